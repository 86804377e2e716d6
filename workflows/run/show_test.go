package run_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/workflows/run"
)

func TestFormatTableAlignsColumns(t *testing.T) {
	assert.Equal(t, "```\nPOD        STATE     NEXT\nshop/wéb   Blocked\nb          Waiting   12:00\n```",
		run.FormatTable([][]string{{"POD", "STATE", "NEXT"}, {"shop/wéb", "Blocked", ""}, {"b", "Waiting", "12:00"}}))
}
