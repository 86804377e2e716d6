// Tier: test-all. The package's tests show that every recorded situation can be recorded again.

//go:build integration

// Package record stores histories of a real Temporal server, of closed and of open runs, for workflows/replay_test.go.
// `make record` runs the tests that call this package. In all other runs of the tests, these tests are skipped.
package record

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"

	"millwright/devstack/build"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

var (
	historyWriteLock    sync.Mutex // serializes the writes of histories
	recordedEventCounts sync.Map   // number of events of each added history, by ID of the run

	folderFlag = flag.String(
		"record",
		"",
		"name of the folder in workflows/testdata/replay into which histories are recorded; empty means that none is",
	)
	nameFilterFlag = flag.String(
		"record-only",
		"",
		"regular expression of the histories that are kept, such as ^rollout/; empty means all",
	)
)

// IsRecordingEnabled parses the flags and reports whether this run of the tests records histories.
func IsRecordingEnabled() bool {
	flag.Parse()
	return *folderFlag != ""
}

// SkipUnlessEnabled skips the test unless this run of the tests records histories.
func SkipUnlessEnabled(t *testing.T) {
	t.Helper()
	if !IsRecordingEnabled() {
		t.Skip("records only with -record (make record): a recorded history never changes")
	}
}

// QueryForKind returns a query for the runs of a kind in a namespace.
func QueryForKind(k run.Kind, namespace string) string {
	return fmt.Sprintf("WorkflowType = %q AND MachineNamespace = %q", k, namespace)
}

// EndedRunsCondition is appended to a query to find only closed runs.
const EndedRunsCondition = ` AND ExecutionStatus != "Running"`

// OpenRunsCondition is appended to a query to find only open runs.
const OpenRunsCondition = ` AND ExecutionStatus = "Running"`

// SaveLongestHistory stores a history of a run that a query finds and that has started all the named activities. If
// several runs match, SaveLongestHistory stores the longest history. The name consists of kind and situation, for
// example drain/blocked. If the name exists already, the test fails, and the stored history does not change. A history
// that is already stored is stored again only if it has grown.
func SaveLongestHistory(t *testing.T, r *rig.Rig, name, query string, activities ...string) {
	t.Helper()
	if wanted := regexp.MustCompile(*nameFilterFlag); !wanted.MatchString(name) {
		return
	}
	var longest *historypb.History
	var id string
	rig.Eventually(t, "a run for "+name, func() (bool, any) {
		for _, w := range r.WorkflowRuns(t, query) {
			h := r.History(t, w.Execution.WorkflowId, w.Execution.RunId)
			stored, _ := recordedEventCounts.Load(w.Execution.RunId)
			fits := stored != len(h.Events) &&
				!slices.ContainsFunc(activities, func(a string) bool { return !hasBegunActivity(h, a) })
			if fits && (longest == nil || len(h.Events) > len(longest.Events)) {
				longest, id = h, w.Execution.RunId
			}
		}
		return longest != nil, fmt.Sprint(query, activities)
	})
	recordedEventCounts.Store(id, len(longest.Events))
	text, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(longest)
	require.NoError(t, err)
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	historyWriteLock.Lock()
	defer historyWriteLock.Unlock()
	// A failure here does not stop the recording of the next situation.
	assert.NoError(t, addHistory(filepath.Join(repo, "workflows", "testdata", "replay"), *folderFlag, name, text))
	t.Logf("%s: %d events", name, len(longest.Events))
}

// hasBegunActivity reports whether a run has started an activity, as a regular or as a local activity.
func hasBegunActivity(h *historypb.History, activity string) bool {
	return slices.ContainsFunc(h.Events, func(e *historypb.HistoryEvent) bool {
		if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == activity {
			return true
		}
		for _, payload := range e.GetMarkerRecordedEventAttributes().GetDetails()["data"].GetPayloads() {
			if bytes.Contains(payload.GetData(), []byte(`"ActivityType":"`+activity+`"`)) {
				return true
			}
		}
		return false
	})
}

// addHistory writes a history into a folder of root, and its digest into the folder's list. The list has the format of
// sha256sum. addHistory changes no existing file except this list.
func addHistory(root, folder, name string, text []byte) error {
	file := filepath.ToSlash(filepath.Join(folder, name)) + ".json.gz"
	path := filepath.Join(root, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of the history: %w", err)
	}
	zipped, err := compressHistory(text)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf(
			"%s is recorded already, and today's workflows must replay it; record what is new into another folder: make record RECORD=NAME",
			file,
		)
	}
	if err != nil {
		return fmt.Errorf("create the history: %w", err)
	}
	_, err = out.Write(zipped)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	sum := sha256.Sum256(zipped)
	return addDigestLine(filepath.Join(root, folder+".sum"), hex.EncodeToString(sum[:])+"  "+file)
}

func compressHistory(text []byte) ([]byte, error) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("compress the history: %w", err)
	}
	_, err = w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("compress the history: %w", err)
	}
	return zipped.Bytes(), nil
}

// addDigestLine adds a line to a list of digests. The list is sorted by the names of the files.
func addDigestLine(path, line string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the list of histories: %w", err)
	}
	lines := append(strings.FieldsFunc(string(old), func(r rune) bool { return r == '\n' }), line)
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2*sha256.Size:], b[2*sha256.Size:]) })
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("write the list of histories: %w", err)
	}
	return nil
}
