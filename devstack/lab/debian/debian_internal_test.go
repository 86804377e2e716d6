package debian

import (
	"io"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Tests of several packages install at the same time. apt-get does not wait for another one, as mkdir does not here.
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
