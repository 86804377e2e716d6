package workflows

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// A provider's message may be of any length; Temporal fails the workflow task for a summary of more than 400 bytes.
func TestBriefFitsWhatTemporalTakes(t *testing.T) {
	assert.Equal(t, "short", brief("short"))
	for extra := range 5 {
		cut := brief(strings.Repeat("x", extra) + strings.Repeat("ü", 1000))
		assert.LessOrEqual(t, len(cut), 400)
		assert.True(t, utf8.ValidString(cut))
		assert.True(t, strings.HasSuffix(cut, "…"))
	}
}
