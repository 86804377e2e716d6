package drain

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	activities "millwright/activities/drain"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
)

func TestExplainAsJSONHasTheFactsOfTheText(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(
		withRemovalMeans("Evict"),
		withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"),
		withAnnotation(v1alpha1.AnnotationExtend, "2026-11-21T18:00:00Z ann: the backup"),
	))
	w.Temporal = newTemporalWithOpenDrain(newPendingActivity(activities.Progress{Gone: 3, Picture: newBlockedOverview()}))
	out, err := w.run(t.Context(), "explain", "mc", "m-1", "-n", "shop", "-o", "json")
	require.NoError(t, err)
	var got explanation
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(
		t,
		[]string{"shop", "m-1", "n-1", "Drain", "Evict"},
		[]string{got.Namespace, got.Name, got.Node, got.Stage, got.Means},
	)
	assert.Equal(t, lastChangeTime, got.Since)
	assert.Equal(t, time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC), got.Deadline)
	assert.Equal(t, []string{"PodDisruptionBudget shop/web"}, got.BlockedBy)
	assert.Equal(t, map[string]string{"extend": "2026-11-21T18:00:00Z ann: the backup"}, got.Requests)
	assert.Contains(t, got.Sentence, "PodDisruptionBudget shop/web allows none")
	assert.NotEmpty(t, got.Commands)
	assert.Equal(t, &podCounts{Gone: 3, Terminating: 1, Blocked: 1, Skipped: 2}, got.Counts)
	require.Len(t, got.Pods, 2)
	assert.Equal(t, podAnswer{
		Pod: "shop/web-1", State: "Blocked", Attempts: 14, BlockedBy: "shop/web", Budgets: []string{"shop/web"},
		Next: now.Add(time.Minute),
	}, got.Pods[0])
	assert.Equal(t, now.Add(-2*time.Second), got.SeenAt)
	out, err = w.run(t.Context(), "explain", "shop/m-1", "-o", "yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "stage: Drain\n")
}

func TestExplainAsJSONSaysWhatIsNotKnown(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods)))
	w.Temporal.Err = assert.AnError
	out, err := w.run(t.Context(), "explain", "shop/m-1", "-o", "json")
	require.NoError(t, err)
	var got explanation
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.NotEmpty(t, got.Note)
	assert.Nil(t, got.Counts)
}
