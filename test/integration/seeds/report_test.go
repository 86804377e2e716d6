package seeds

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFormatTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "report.jsonl")
	for _, r := range []Report{
		{Seed: 1, Loads: []string{"roll"}, Faults: []string{"kill", "pause"}, DurationSeconds: 60},
		{Seed: 2, Loads: []string{"roll", "scale"}, Faults: []string{"kill"}, IsNamespaceDeletedEarly: true, Violations: []string{"two instances"}},
	} {
		require.NoError(t, r.AppendToFile(path))
	}
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	reports, err := ReadReports(file)
	require.NoError(t, err)
	assert.Equal(t, `| fault | all | delete-namespace | roll | scale |
|---|---|---|---|---|
| all | 2/1 | 1/1 | 2/1 | 1/1 |
| kill | 2/1 | 1/1 | 2/1 | 1/1 |
| pause | 1 | 0 | 1 | 0 |
`, FormatTable(reports))
}

func TestStepKindsAreSortedAndUnique(t *testing.T) {
	assert.Equal(t, []string{"kill", "pause"}, stepKinds([]planStep{{Kind: "pause"}, {Kind: "kill"}, {Kind: "pause"}}))
}
