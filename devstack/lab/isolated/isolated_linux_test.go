package isolated

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// init binds the first goroutine, which runs TestMain, to the first thread.
func init() { runtime.LockOSThread() }

// worked is the ID of the thread that did the work of TestMain's call on the first thread.
var worked int

func TestMain(m *testing.M) {
	if unix.Gettid() == unix.Getpid() {
		onThreadThatEnds(func() { worked = unix.Gettid() })
	}
	os.Exit(m.Run())
}

// The first thread of a process never ends, so it must not enter a namespace.
func TestTheFirstThreadLeavesTheWorkToAnother(t *testing.T) {
	assert.NotZero(t, worked, "TestMain did not run on the first thread")
	assert.NotEqual(t, os.Getpid(), worked)
}
