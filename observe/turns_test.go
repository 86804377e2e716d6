package observe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

// inStage is a machine that is to go since then, in a stage of its deletion.
func inStage(stage v1alpha1.MachineDeletionStage, drain *v1alpha1.MachineDrain) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		goingMachine(m)
		m.DeletionTimestamp = new(metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		at(stage, drain)(m)
	}
}

func TestN13_WhoTakesAPlaceInTheOrderOfDrains(t *testing.T) {
	drain := v1alpha1.MachineDeletionDrain
	begun := &v1alpha1.MachineDrain{StartedAt: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		in      bool
	}{
		{"one that runs", machine("m"), false},
		{"one that is to go, and nothing is recorded", machine("m", goingMachine), false},
		{"one before its drain", machine("m", inStage(v1alpha1.MachineDeletionPreDrainHooks, nil)), false},
		{"one that waits for its turn", machine("m", inStage(drain, nil)), true},
		{"one that is drained", machine("m", inStage(drain, begun)), true},
		{"one whose drain has ended", machine("m", inStage(drain, &v1alpha1.MachineDrain{Result: "Drained"})), false},
		{"one after its drain", machine("m", inStage(v1alpha1.MachineDeletionInstance, begun)), false},
		{"one that is held before its drain began", machine("m", inStage(drain, nil), noted(v1alpha1.AnnotationHold, "")), false},
		{"one that is held in its drain", machine("m", inStage(drain, begun), noted(v1alpha1.AnnotationHold, "")), true},
	} {
		t.Run("N13: "+row.name, func(t *testing.T) { assert.Equal(t, row.in, observe.InDrain(row.machine)) })
	}

	queued := func(m *v1alpha1.Machine) { m.Status.CurrentOperation = &v1alpha1.Operation{Step: v1alpha1.StepQueued} }
	first := noted(v1alpha1.AnnotationMachinePriority, "1")
	cluster, _ := start(t, nil, machine("running", inStage(drain, begun)), machine("new", inStage(drain, nil)), machine("b", inStage(drain, nil), queued),
		machine("a", inStage(drain, nil), queued), machine("c", inStage(drain, nil), queued, first), machine("other"))
	assert.Len(t, cluster.Turns(), 5)
	assert.Equal(t, []observe.Ref{{Namespace: "shop", Name: "c", UID: "uid-c"}, {Namespace: "shop", Name: "a", UID: "uid-a"}}, cluster.NextToDrain(2))
}

func TestWishesTellEachWishApart(t *testing.T) {
	seen := map[string]string{observe.Wishes(machine("m")): "none"}
	for _, key := range []string{
		v1alpha1.AnnotationForce, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining, v1alpha1.AnnotationHold,
		v1alpha1.AnnotationExtend, v1alpha1.AnnotationRetry,
	} {
		for _, value := range []string{"", "alice", "bob"} {
			text := observe.Wishes(machine("m", noted(key, value)))
			assert.Empty(t, seen[text], "%s=%s", key, value)
			seen[text] = key + "=" + value
		}
	}
	forced := machine("m")
	forced.Labels[v1alpha1.LabelForceDeletion] = "true"
	assert.Empty(t, seen[observe.Wishes(forced)])
	assert.Equal(t, "none", seen[observe.Wishes(machine("m", noted("example.com/note", "x")))])
}

func TestToleratesCordon(t *testing.T) {
	for _, row := range []struct {
		name      string
		tolerates corev1.Toleration
		want      bool
	}{
		{"everything", corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{"the cordon", corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}, true},
		{"the cordon and its effect", corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, true},
		{"another effect", corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoExecute}, false},
		{"another taint", corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, observe.ToleratesCordon(pod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{row.tolerates} })))
		})
	}
	assert.False(t, observe.ToleratesCordon(pod()))
}
