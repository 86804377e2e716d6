package workflows_test

import (
	"compress/gzip"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"millwright/workflows"
)

// TestReplay replays every recorded history, of ended and of open runs, against the current workflows.
func TestReplay(t *testing.T) {
	root := filepath.Join("testdata", "replay")
	kinds := map[string]int{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		kinds[filepath.Dir(name)]++
		t.Run(strings.TrimSuffix(filepath.ToSlash(name), ".json.gz"), func(t *testing.T) {
			file, err := os.Open(path)
			require.NoError(t, err)
			defer func() { _ = file.Close() }()
			text, err := gzip.NewReader(file)
			require.NoError(t, err)
			history, err := client.HistoryFromJSON(text, client.HistoryJSONOptions{})
			require.NoError(t, err)
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableRegistrationAliasing: true})
			require.NoError(t, err)
			workflows.Register(replayer)
			require.NoError(t, replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), history))
		})
		return nil
	}))
	for _, kind := range []string{"machine", "machineset", "machinedeployment", "machineclass", "drain", "rollout", "orphancollection"} {
		require.Positive(t, kinds[kind], "no history of %s is recorded", kind)
	}
}
