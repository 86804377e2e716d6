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

// preservationRecordPlaces returns the places that record the preservation: the end in the machine's status, the node's
// marks, the node's condition, and the machine's annotation.
func preservationRecordPlaces(w *activitiestest.World) []string {
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
	expiryWrite             = activitiestest.WriteKind{Verb: "update", Resource: "machines", InControlCluster: true}
	nodeAnnotationsWrite    = activitiestest.WriteKind{Verb: "update", Resource: "nodes", InControlCluster: false}
	nodeConditionWrite      = activitiestest.WriteKind{Verb: "patch", Resource: "nodes", InControlCluster: false}
	machineAnnotationsWrite = activitiestest.WriteKind{Verb: "patch", Resource: "machines", InControlCluster: true}
)

func TestPreserveMachineResumesAfterFailedWrite(t *testing.T) {
	t.Parallel()
	all := []string{"end", "marks", "condition", "machine"}
	for done, at := range []activitiestest.WriteKind{expiryWrite, nodeAnnotationsWrite, nodeConditionWrite, machineAnnotationsWrite} {
		t.Run(at.Verb+" "+at.Resource, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo)
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(withNodePreserveAnnotation("now")))
			w.FailWrites(at, 1, errors.New("no answer"), nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).PreserveMachine,
				readInputAfterPreservationStart(m, 0),
			)
			require.ErrorContains(t, err, "no answer")
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.Equal(t, all[:done], preservationRecordPlaces(w), "what comes before is done, what comes after is not")

			preserveMachine(w, readInputAfterPreservationStart(m, time.Hour))
			assert.Equal(t, all, preservationRecordPlaces(w))
			until := activitiestest.PreservationEnd
			if done == 0 {
				until = metav1.NewTime(activitiestest.PreservationEnd.Add(time.Hour)) // the preservation has just begun
			}
			assert.True(t, until.Equal(w.Machine("m").Status.CurrentStatus.PreserveExpiryTime))
			assert.Contains(t, preservedCondition(w.Node()).Message, until.UTC().Format(time.RFC3339))
			assert.Len(t, w.TakeNewEvents(), 1, "told once")
		})
	}
}

func TestEndOfPreservationResumesAfterFailedWrite(t *testing.T) {
	t.Parallel()
	all := []string{"end", "marks", "condition", "machine"}
	for i, row := range []struct {
		at   activitiestest.WriteKind
		left []string
	}{
		{nodeConditionWrite, all},
		{nodeAnnotationsWrite, []string{"end", "marks", "machine"}},
		{machineAnnotationsWrite, []string{"end", "machine"}},
		{expiryWrite, []string{"end"}},
	} {
		t.Run(row.at.Verb+" "+row.at.Resource, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo)
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(withNodePreserveAnnotation("now")))
			preserveMachine(w, readInputAfterPreservationStart(m, 0))
			require.Equal(t, all, preservationRecordPlaces(w))
			w.TakeNewEvents()
			w.FailWrites(row.at, 1, errors.New("no answer"), nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).PreserveMachine,
				readInputAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout),
			)
			require.ErrorContains(t, err, "no answer")
			assert.Equal(t, row.left, preservationRecordPlaces(w))
			assert.Empty(t, w.TakeNewEvents())

			preserveMachine(w, readInputAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout+time.Hour))
			assert.Len(t, w.MutatingRequests(), 4-i)
			assert.Empty(t, preservationRecordPlaces(w))
			assert.Empty(t, w.Node().Annotations)
			assert.Empty(t, w.Machine("m").Annotations)
			assert.Equal(
				t,
				[]string{"Normal PreservationStopped " + preservationStoppedPrefix + "its time is over."},
				w.TakeNewEvents(),
				"told once, at the end",
			)
			assert.Equal(t, preservationStoppedPrefix+"its time is over.", preservedCondition(w.Node()).Message)
		})
	}
}

func TestPreservationStopsIfExpiryTimeAndAnnotationAreRemoved(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
	preserveMachine(w, readInputAfterPreservationStart(m, 0))
	w.TakeNewEvents()
	w.UpdateStatusAsWorkflow(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = nil })
	w.EditObject(cache.MachinesResource, "m", map[string]any{"metadata": map[string]any{"annotations": nil}})
	preserveMachine(w, readInputAfterPreservationStart(m, time.Hour))
	assert.Empty(t, preservationRecordPlaces(w))
	assert.Equal(
		t,
		[]string{"Normal PreservationStopped " + preservationStoppedPrefix + "nobody requests it."},
		w.TakeNewEvents(),
	)
}
