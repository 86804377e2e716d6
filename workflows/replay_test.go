package workflows_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"millwright/workflows"
)

// recordedHistoriesFolder is the folder of the recorded histories. `make record` writes each subdirectory, and next to
// the subdirectory a list of its histories.
var recordedHistoriesFolder = filepath.Join("testdata", "replay")

// TestReplayRecordedHistories replays every recorded history, of ended and of open runs, against the current workflows.
func TestReplayRecordedHistories(t *testing.T) {
	for _, name := range historyNames(t) {
		t.Run(strings.TrimSuffix(name, ".json.gz"), func(t *testing.T) {
			replayer, err := worker.NewWorkflowReplayerWithOptions(
				worker.WorkflowReplayerOptions{DisableRegistrationAliasing: true, DisableDeadlockDetection: true},
			)
			require.NoError(t, err)
			workflows.Register(replayer)
			require.NoError(
				t,
				replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), readHistory(t, name)),
			)
		})
	}
}

// historyNames returns the names of the recorded histories, as in the lists: folder/kind/situation.json.gz.
func historyNames(t *testing.T) []string {
	t.Helper()
	var all []string
	require.NoError(
		t,
		fs.WalkDir(os.DirFS(recordedHistoriesFolder), ".", func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && path.Ext(name) != ".sum" {
				all = append(all, name)
			}
			return err
		}),
	)
	return all
}

func readHistory(t *testing.T, name string) *historypb.History {
	t.Helper()
	file, err := os.Open(filepath.Join(recordedHistoriesFolder, filepath.FromSlash(name)))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	history, err := client.HistoryFromJSON(text, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return history
}

// A recorded history is never changed or deleted, because workflows of the version that recorded it may still be open.
// The lists contain each recorded history once.
func TestRecordedHistoriesMatchTheirLists(t *testing.T) {
	lists, err := filepath.Glob(filepath.Join(recordedHistoriesFolder, "*.sum"))
	require.NoError(t, err)
	require.Contains(t, lists, filepath.Join(recordedHistoriesFolder, "v0.1.sum"))
	listed, digests := []string{}, map[string]string{}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			digest, name, is := strings.Cut(strings.TrimSpace(line), "  ")
			require.True(t, is, "%s: a digest and a file: %q", list, line)
			assert.Equal(
				t,
				strings.TrimSuffix(filepath.Base(list), ".sum"),
				strings.Split(name, "/")[0],
				"%s lists its own folder",
				list,
			)
			history, err := os.ReadFile(filepath.Join(recordedHistoriesFolder, filepath.FromSlash(name)))
			if !assert.NoError(t, err, "a recorded history is never deleted") {
				continue
			}
			sum := sha256.Sum256(history)
			assert.Equal(
				t,
				digest,
				hex.EncodeToString(sum[:]),
				"%s was changed: restore it; what is new is recorded under another name (make record)",
				name,
			)
			assert.Empty(t, digests[digest], "%s is the same history", name)
			listed, digests[digest] = append(listed, name), name
		}
	}
	assert.ElementsMatch(t, listed, historyNames(t), "make record adds a history to its list")
}

// workflowNameRecorder stores the names of the registered workflows.
type workflowNameRecorder struct {
	worker.WorkflowRegistry

	workflowNames []string
}

func (r *workflowNameRecorder) RegisterWorkflowWithOptions(_ any, options workflow.RegisterOptions) {
	r.workflowNames = append(r.workflowNames, options.Name)
}

// Each registered workflow has a recorded history of an open run and of an ended run. The recorded histories together
// contain every type of event that a workflow can have.
func TestEachWorkflowAndEventTypeIsRecorded(t *testing.T) {
	var registered workflowNameRecorder
	workflows.Register(&registered)
	open, ended, happened := map[string]bool{}, map[string]bool{}, map[enumspb.EventType]bool{}
	local := false
	for _, name := range historyNames(t) {
		events := readHistory(t, name).Events
		kind := events[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()
		assert.Equal(t, strings.ToLower(kind), strings.Split(name, "/")[1], "the folder of %s", name)
		if endsRun(events[len(events)-1].EventType) {
			ended[kind] = true
		} else {
			open[kind] = true
		}
		for _, e := range events {
			happened[e.EventType] = true
			for _, payload := range e.GetMarkerRecordedEventAttributes().GetDetails()["data"].GetPayloads() {
				local = local || bytes.Contains(payload.GetData(), []byte("ActivityType"))
			}
		}
	}
	slices.Sort(registered.workflowNames)
	assert.Equal(t, registered.workflowNames, slices.Sorted(maps.Keys(ended)), "a history of an ended run of each")
	brief := []string{"OrphanCollection", "ProviderCheck"} // workflows that only wait for one provider call
	assert.Equal(
		t,
		slices.DeleteFunc(
			slices.Clone(registered.workflowNames),
			func(name string) bool { return slices.Contains(brief, name) },
		),
		slices.Sorted(maps.Keys(open)),
		"and one of an open run",
	)
	assert.True(t, local, "a local activity")
	for _, e := range []enumspb.EventType{
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
		enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED,
		enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED, enumspb.EVENT_TYPE_TIMER_FIRED, enumspb.EVENT_TYPE_TIMER_CANCELED,
		enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
	} {
		assert.True(t, happened[e], "no recorded history has an event %s", e)
	}
}

// endsRun reports whether the event type ends a run.
func endsRun(e enumspb.EventType) bool {
	return slices.Contains([]enumspb.EventType{
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
	}, e)
}
