package machine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// preservationRecords returns the places that record the preservation: the end in the machine's status, the node's
// marks, the node's condition, and the machine's annotation.
func preservationRecords(w *activitiestest.World) []string {
	m, n := w.Machine("m"), w.Node()
	places := []string{}
	if m.Status.CurrentStatus.PreserveExpiryTime != nil {
		places = append(places, "end")
	}
	if preservedTaint(n) != nil && n.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] == "true" {
		places = append(places, "marks")
	}
	if preservedCondition(n).Status == corev1.ConditionTrue {
		places = append(places, "condition")
	}
	if m.Annotations[v1alpha1.AnnotationLastAppliedPreserve] != "" {
		places = append(places, "machine")
	}
	return places
}

var (
	endWrite         = activitiestest.WriteKind{Verb: "update", Resource: "machines", InControlCluster: true}
	marksWrite       = activitiestest.WriteKind{Verb: "update", Resource: "nodes", InControlCluster: false}
	conditionWrite   = activitiestest.WriteKind{Verb: "patch", Resource: "nodes", InControlCluster: false}
	annotationsWrite = activitiestest.WriteKind{Verb: "patch", Resource: "machines", InControlCluster: true}
)

func TestPreserveResumesAtEachStep(t *testing.T) {
	t.Parallel()
	all := []string{"end", "marks", "condition", "machine"}
	for done, at := range []activitiestest.WriteKind{endWrite, marksWrite, conditionWrite, annotationsWrite} {
		t.Run(at.Verb+" "+at.Resource, func(t *testing.T) {
			m := activitiestest.Machine("m", activitiestest.WithNode, setFailedLongAgo)
			w := activitiestest.NewWorld(t, m, activitiestest.Node(withNodePreserveAnnotation("now")))
			w.FailWrites(at, 1, errors.New("no answer"), nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).PreserveMachine,
				readAfterPreservationStart(m, 0),
			)
			require.ErrorContains(t, err, "no answer")
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.Equal(t, all[:done], preservationRecords(w), "what comes before is done, what comes after is not")

			preserveMachine(w, readAfterPreservationStart(m, time.Hour))
			assert.Equal(t, all, preservationRecords(w))
			until := activitiestest.PreservationEnd
			if done == 0 {
				until = metav1.NewTime(activitiestest.PreservationEnd.Add(time.Hour)) // the preservation has just begun
			}
			assert.True(t, until.Equal(w.Machine("m").Status.CurrentStatus.PreserveExpiryTime))
			assert.Contains(t, preservedCondition(w.Node()).Message, until.UTC().Format(time.RFC3339))
			assert.Len(t, w.NewEvents(), 1, "told once")
		})
	}
}

func TestStopOfPreservationResumesAtEachStep(t *testing.T) {
	t.Parallel()
	all := []string{"end", "marks", "condition", "machine"}
	for i, row := range []struct {
		at   activitiestest.WriteKind
		left []string
	}{
		{conditionWrite, all},
		{marksWrite, []string{"end", "marks", "machine"}},
		{annotationsWrite, []string{"end", "machine"}},
		{endWrite, []string{"end"}},
	} {
		t.Run(row.at.Verb+" "+row.at.Resource, func(t *testing.T) {
			m := activitiestest.Machine("m", activitiestest.WithNode, setFailedLongAgo)
			w := activitiestest.NewWorld(t, m, activitiestest.Node(withNodePreserveAnnotation("now")))
			preserveMachine(w, readAfterPreservationStart(m, 0))
			require.Equal(t, all, preservationRecords(w))
			w.NewEvents()
			w.FailWrites(row.at, 1, errors.New("no answer"), nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).PreserveMachine,
				readAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout),
			)
			require.ErrorContains(t, err, "no answer")
			assert.Equal(t, row.left, preservationRecords(w))
			assert.Empty(t, w.NewEvents())

			preserveMachine(w, readAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout+time.Hour))
			assert.Len(t, w.WriteRequests(), 4-i)
			assert.Empty(t, preservationRecords(w))
			assert.Empty(t, w.Node().Annotations)
			assert.Empty(t, w.Machine("m").Annotations)
			assert.Equal(
				t,
				[]string{"Normal PreservationStopped " + stopSentence + "its time is over."},
				w.NewEvents(),
				"told once, at the end",
			)
			assert.Equal(t, stopSentence+"its time is over.", preservedCondition(w.Node()).Message)
		})
	}
}

func TestPreservationStopsIfExpiryTimeAndAnnotationAreRemoved(t *testing.T) {
	t.Parallel()
	m := activitiestest.Machine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
	w := activitiestest.NewWorld(t, m, activitiestest.Node())
	preserveMachine(w, readAfterPreservationStart(m, 0))
	w.NewEvents()
	w.UpdateStatusAsWorkflow(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = nil })
	w.EditObject(cache.Machines, "m", map[string]any{"metadata": map[string]any{"annotations": nil}})
	preserveMachine(w, readAfterPreservationStart(m, time.Hour))
	assert.Empty(t, preservationRecords(w))
	assert.Equal(t, []string{"Normal PreservationStopped " + stopSentence + "nobody requests it."}, w.NewEvents())
}
