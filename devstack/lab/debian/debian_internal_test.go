package debian

import (
	"io"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Tests of several packages install packages at the same time. apt-get fails while another apt-get runs; the test uses
// mkdir, which fails in the same way.
func TestOneCallOfAptAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			assert.NoError(t, runApt(t.Context(), io.Discard, "sh", "-c", "mkdir "+dir+" && sleep 0.1 && rmdir "+dir))
		})
	}
	calls.Wait()
}
