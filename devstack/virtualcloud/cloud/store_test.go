package cloud

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// makeChanges makes changes of several kinds to a cloud, all of which the cloud writes to disk.
func makeChanges(t *testing.T, c *Cloud) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		r := newCreateRequest(name)
		r.Spec.NeedsInitialization, r.UserData, r.ClientToken = true, []byte("data of "+name), "token-"+name
		mustCreateInstance(t, c, r)
	}
	_, err := c.initializeInstance("i-1")
	require.NoError(t, err)
	_, err = c.CreateByHand(newCreateRequest("a"))
	require.NoError(t, err)
	require.NoError(t, c.terminateInstance("i-2", "c1"))
	require.NoError(t, c.MakeInstanceVanish(admin.VanishRequest{ID: "i-3"}))
}

func TestCloudStateSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	first := openCloud(t, dir, nil)
	makeChanges(t, first)
	editBehaviour(t, first, func(b *admin.Behaviour) { b.Quotas = map[string]int{"total": 7} })
	before, instances := first.Stats(), first.Instances()
	crashCloud(t, first)

	for range 2 { // the second Open reads a compacted log
		again := openCloud(t, dir, nil)
		after := again.Stats()
		assert.Equal(t, before.CreatedInstances, after.CreatedInstances)
		assert.Equal(t, before.DeletedInstances, after.DeletedInstances)
		assert.Equal(t, before.VanishedInstances, after.VanishedInstances)
		assert.Equal(t, before.DuplicateInstances, after.DuplicateInstances)
		assert.Equal(t, before.LiveDuplicateUIDs, after.LiveDuplicateUIDs)
		assert.Equal(t, before.MaxLiveInstances, after.MaxLiveInstances)
		assert.Equal(t, 7, again.Behaviour().Quotas["total"])
		require.Len(t, again.Instances(), len(instances))
		for i, instance := range again.Instances() {
			assert.Equal(t, instances[i].ID, instance.ID)
			assert.Equal(t, instances[i].Initialized, instance.Initialized)
			assert.True(t, instances[i].Created.Equal(instance.Created))
		}
		data, err := again.UserData("i-1")
		require.NoError(t, err)
		assert.Equal(t, "data of a", string(data))
		crashCloud(t, again)
	}

	last := openCloud(t, dir, nil)
	defer crashCloud(t, last)
	r := newCreateRequest("a")
	r.ClientToken = "token-a"
	assert.Equal(t, "i-1", mustCreateInstance(t, last, r).ID, "client tokens outlive the process too")
	assert.Equal(t, "i-5", mustCreateInstance(t, last, newCreateRequest("d")).ID, "no number is used twice")
}

// If a process is killed during a write, any part of the last line may remain. In each case, the cloud opens with the
// state before the last line, and accepts new entries.
func TestIncompleteLastLogLineIsIgnored(t *testing.T) {
	dir := t.TempDir()
	c := openCloud(t, dir, nil)
	makeChanges(t, c)
	crashCloud(t, c)
	whole, err := os.ReadFile(filepath.Join(dir, logFileName))
	require.NoError(t, err)

	torn := t.TempDir()
	path := filepath.Join(torn, logFileName)
	expected := []*cloudState{}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for n := range lines {
		require.NoError(t, os.WriteFile(path, bytes.Join(lines[:n], nil), 0o600))
		w, err := (&store{dir: torn}).loadState()
		require.NoError(t, err)
		expected = append(expected, w)
	}
	for _, cut := range truncationPositions(lines) {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		st, w, err := openStore(torn, time.Now())
		require.NoError(t, err, "cut at byte %d", cut)
		want := expected[bytes.Count(whole[:cut], []byte("\n"))]
		require.Equal(t, want.recordNumbers, w.recordNumbers, "cut at byte %d", cut)
		require.Equal(t, want.counters, w.counters, "cut at byte %d", cut)
		r := instanceRecord{Number: w.nextInstanceNumber, Name: "after", AcceptedAt: time.Now()}
		require.NoError(t, st.appendEntry(logEntry{Kind: entryCreated, Record: &r}))
		require.NoError(t, st.close())
		again, err := (&store{dir: torn}).loadState()
		require.NoError(t, err, "cut at byte %d", cut)
		require.Contains(t, again.records, r.Number, "cut at byte %d", cut)
	}
}

// truncationPositions returns the positions at which a test truncates a log: every byte of the last line, and the bytes
// around each line break.
func truncationPositions(lines [][]byte) []int {
	var at []int
	end := 0
	for n, line := range lines {
		for i := range line {
			// The last line is at len(lines)-2, because the last element of lines is empty.
			if i < 2 || i > len(line)-3 || n == len(lines)-2 {
				at = append(at, end+i)
			}
		}
		end += len(line)
	}
	return append(at, end)
}

func TestCorruptLogIsRefused(t *testing.T) {
	const whole = `{"kind":"summary","counters":{},"next":1}` + "\n"
	for _, spoiled := range []string{"{not JSON", "{}", `{"kind":"summary"}`, `{"kind":"created"}`} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, logFileName), []byte(whole+spoiled+"\n"+whole), 0o600))
		_, err := Open(Options{Dir: dir})
		require.ErrorContains(t, err, "read line 2 of log", spoiled)
	}
}

func TestDataFolderIsLockedAgainstASecondCloud(t *testing.T) {
	dir := t.TempDir()
	c := openCloud(t, dir, nil)
	_, err := Open(Options{Dir: dir})
	require.ErrorContains(t, err, "is another virtualcloud running there")
	require.NoError(t, c.Close())
	require.NoError(t, openCloud(t, dir, nil).Close())
}

func TestFailedWriteChangesNothing(t *testing.T) {
	c := openCloud(t, t.TempDir(), nil)
	require.NoError(t, c.store.logFile.Close())
	_, err := c.createInstance(t.Context(), newCreateRequest("a"))
	assert.Equal(t, provider.Internal, provider.CodeOfError(err))
	assert.Zero(t, c.Stats().CreatedInstances)
	assert.Empty(t, c.Instances())
}

func TestCompactionDropsOldRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := openCloud(t, dir, nil)
		makeChanges(t, c)
		crashCloud(t, c)
		time.Sleep(goneRecordLifetime + time.Second)
		c = openCloud(t, dir, nil)
		defer crashCloud(t, c)
		assert.Equal(t, []int{1, 4}, c.state.recordNumbers)
		assert.Equal(t, 4, c.Stats().CreatedInstances, "what is forgotten stays counted")
		content, err := os.ReadFile(filepath.Join(dir, logFileName))
		require.NoError(t, err)
		assert.NotContains(t, string(content), `"name":"b"`)
		assert.Equal(t, 3, bytes.Count(content, []byte("\n")))
	})
}

func TestLogIsCompactedWhileTheCloudRuns(t *testing.T) {
	dir := t.TempDir()
	c := openCloud(t, dir, nil)
	c.store.compactionThresholdBytes = 1 // The next write exceeds this size, so the cloud compacts the log.
	mustCreateInstance(t, c, newCreateRequest("a"))
	assert.GreaterOrEqual(t, c.store.compactionThresholdBytes, int64(minCompactionBytes))
	mustCreateInstance(t, c, newCreateRequest("b"))
	crashCloud(t, c)
	c = openCloud(t, dir, nil)
	defer crashCloud(t, c)
	assert.Len(t, c.Instances(), 2)
}

func TestNegativeDurationIsRefused(t *testing.T) {
	var d virtual.Duration
	assert.Error(t, d.UnmarshalText([]byte("-1s")))
}
