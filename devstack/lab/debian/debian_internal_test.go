package debian

import (
	"io"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Tests of several Go packages may call apt-get at the same time, but apt-get fails while another apt-get runs. This
// test uses mkdir instead of apt-get, because mkdir fails in the same way.
func TestAptCallsRunOneAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			assert.NoError(t, runApt(t.Context(), io.Discard, "sh", "-c", "mkdir "+dir+" && sleep 0.1 && rmdir "+dir))
		})
	}
	calls.Wait()
}
