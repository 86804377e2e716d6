package activities_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// saying tells which of the four places say that the machine is preserved: its end, the node's marks, the node's condition
// and what the machine remembers.
func saying(w *world) []string {
	m, n := w.machine("m"), w.node()
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

// write names a kind of write that can be made to fail.
type write struct {
	verb, resource string
	ours           bool
}

var (
	writeEnd       = write{"update", "machines", true}
	writeMarks     = write{"update", "nodes", false}
	writeCondition = write{"patch", "nodes", false}
	writeMachine   = write{"patch", "machines", true}
)

func (w *world) fail(at write, times int, err error, do func()) {
	if at.ours {
		failing(w.machines, at.verb, at.resource, times, err, do)
		return
	}
	failing(w.target, at.verb, at.resource, times, err, do)
}

func TestU132_PreserveResumesAtEachStep(t *testing.T) {
	t.Parallel()
	all := []string{"end", "marks", "condition", "machine"}
	for done, at := range []write{writeEnd, writeMarks, writeCondition, writeMachine} {
		t.Run(at.verb+" "+at.resource, func(t *testing.T) {
			m := machine("m", onNode, ill)
			w := newWorld(t, m, node(nodeAsks("now")))
			w.fail(at, 1, errors.New("no answer"), nil)
			_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
			require.ErrorContains(t, err, "no answer")
			_, retryable := failure(t, err)
			assert.True(t, retryable)
			assert.Equal(t, all[:done], saying(w), "what comes before is done, what comes after is not")

			preserveMachine(w, keepAt(m, time.Hour))
			assert.Equal(t, all, saying(w))
			until := keptUntil
			if done == 0 {
				until = metav1.NewTime(keptUntil.Add(time.Hour)) // it has only just begun
			}
			assert.True(t, until.Equal(w.machine("m").Status.CurrentStatus.PreserveExpiryTime))
			assert.Contains(t, preservedCondition(w.node()).Message, until.UTC().Format(time.RFC3339))
			assert.Len(t, w.told(), 1, "told once")
		})
	}
}

func TestU133_StopResumesAtEachStep(t *testing.T) {
	t.Parallel()
	all := []string{"end", "marks", "condition", "machine"}
	for i, row := range []struct {
		at   write
		left []string
	}{
		{writeCondition, all},
		{writeMarks, []string{"end", "marks", "machine"}},
		{writeMachine, []string{"end", "machine"}},
		{writeEnd, []string{"end"}},
	} {
		t.Run(row.at.verb+" "+row.at.resource, func(t *testing.T) {
			m := machine("m", onNode, ill)
			w := newWorld(t, m, node(nodeAsks("now")))
			preserveMachine(w, keepAt(m, 0))
			require.Equal(t, all, saying(w))
			w.told()
			w.fail(row.at, 1, errors.New("no answer"), nil)
			_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, v1alpha1.DefaultPreserveTimeout))
			require.ErrorContains(t, err, "no answer")
			assert.Equal(t, row.left, saying(w))
			assert.Empty(t, w.told())

			preserveMachine(w, keepAt(m, v1alpha1.DefaultPreserveTimeout+time.Hour))
			assert.Len(t, w.writes(), 4-i)
			assert.Empty(t, saying(w))
			assert.Empty(t, w.node().Annotations)
			assert.Empty(t, w.machine("m").Annotations)
			assert.Equal(t, []string{"Normal PreservationStopped " + stopSentence + "its time is over."}, w.told(), "told once, at the end")
			assert.Equal(t, stopSentence+"its time is over.", preservedCondition(w.node()).Message)
		})
	}
}

func TestU133_AnEndThatAnotherControllerLost(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, ill, asks("now"))
	w := newWorld(t, m, node())
	preserveMachine(w, keepAt(m, 0))
	w.told()
	w.setStatus(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = nil })
	w.edit(observe.Machines, "m", map[string]any{"metadata": map[string]any{"annotations": nil}})
	preserveMachine(w, keepAt(m, time.Hour))
	assert.Empty(t, saying(w))
	assert.Equal(t, []string{"Normal PreservationStopped " + stopSentence + "nobody asks for it."}, w.told())
}
