package isolated

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// init locks the first goroutine, which runs TestMain, to the first thread.
func init() { runtime.LockOSThread() }

// temporaryThreadID is the ID of the thread on which runOnTemporaryThread ran TestMain's function.
var temporaryThreadID int

func TestMain(m *testing.M) {
	if unix.Gettid() == unix.Getpid() {
		runOnTemporaryThread(func() { temporaryThreadID = unix.Gettid() })
	}
	os.Exit(m.Run())
}

// The first thread of a process never ends, so it must not enter a namespace.
func TestRunOnTemporaryThreadAvoidsTheFirstThread(t *testing.T) {
	assert.NotZero(t, temporaryThreadID, "TestMain did not run on the first thread")
	assert.NotEqual(t, os.Getpid(), temporaryThreadID)
}
