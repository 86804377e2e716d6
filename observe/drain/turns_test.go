package drain_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/observe/observetest"
)

// inDeletionStage sets the deletion stage of a machine; the stage started at a fixed time.
func inDeletionStage(stage v1alpha1.MachineDeletionStage, drain *v1alpha1.MachineDrain) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		observetest.AsDeletingMachine(m)
		m.DeletionTimestamp = new(metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		observetest.InDeletionStage(stage, drain)(m)
	}
}

func TestIsInDrainQueue(t *testing.T) {
	draining := v1alpha1.MachineDeletionDrain
	begun := &v1alpha1.MachineDrain{StartedAt: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	for _, row := range []struct {
		name    string
		machine *v1alpha1.Machine
		in      bool
	}{
		{"one that runs", observetest.NewMachine("m"), false},
		{"one that is being deleted, and nothing is recorded", observetest.NewMachine("m", observetest.AsDeletingMachine), false},
		{"one before its drain", observetest.NewMachine("m", inDeletionStage(v1alpha1.MachineDeletionPreDrainHooks, nil)), false},
		{"one that waits for its turn", observetest.NewMachine("m", inDeletionStage(draining, nil)), true},
		{"one that is drained", observetest.NewMachine("m", inDeletionStage(draining, begun)), true},
		{"one whose drain has ended", observetest.NewMachine("m", inDeletionStage(draining, &v1alpha1.MachineDrain{Result: "Drained"})), false},
		{"one after its drain", observetest.NewMachine("m", inDeletionStage(v1alpha1.MachineDeletionInstance, begun)), false},
		{"one that is held before its drain began", observetest.NewMachine("m", inDeletionStage(draining, nil), observetest.WithSingleAnnotation(v1alpha1.AnnotationHold, "")), false},
		{"one that is held in its drain", observetest.NewMachine("m", inDeletionStage(draining, begun), observetest.WithSingleAnnotation(v1alpha1.AnnotationHold, "")), true},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.in, observe.IsInDrainQueue(row.machine)) })
	}

	queued := func(m *v1alpha1.Machine) { m.Status.Deletion.Queued = true }
	first := observetest.WithSingleAnnotation(v1alpha1.AnnotationMachinePriority, "1")
	cluster, _ := observetest.StartCaches(
		t,
		nil,
		observetest.NewMachine("running", inDeletionStage(draining, begun)),
		observetest.NewMachine("new", inDeletionStage(draining, nil)),
		observetest.NewMachine("b", inDeletionStage(draining, nil), queued),
		observetest.NewMachine(
			"a",
			inDeletionStage(draining, nil),
			queued,
		),
		observetest.NewMachine("c", inDeletionStage(draining, nil), queued, first),
		observetest.NewMachine("other"),
	)
	assert.Len(t, observe.QueueEntries(cluster, "shop"), 5)
	var next []string
	for _, turn := range drain.NextQueuedMachines(observe.QueueEntries(cluster, "shop"), 2) {
		next = append(next, turn.UID)
	}
	assert.Equal(t, []string{"uid-c", "uid-a"}, next)
}

// Each target cluster has a drain queue of its own: drains that are stuck in one cluster stop no drain of another
// cluster.
func TestEachTargetClusterHasItsOwnDrainQueue(t *testing.T) {
	begun := &v1alpha1.MachineDrain{StartedAt: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	drained := func(namespace, name string, record *v1alpha1.MachineDrain) *v1alpha1.Machine {
		m := observetest.NewMachine(name, inDeletionStage(v1alpha1.MachineDeletionDrain, record))
		m.Namespace = namespace
		return m
	}
	cluster, _ := observetest.StartCaches(
		t, nil,
		drained("shop", "shop-stuck", begun), drained("shop", "shop-next", nil),
		drained("depot", "depot-stuck", begun), drained("bank", "bank-next", nil),
	)
	cluster.SetTargetSource(observetest.Targets{
		"shop": cache.NewTarget(nil, "cluster-1"), "depot": cache.NewTarget(nil, "cluster-1"),
		"bank": cache.NewTarget(nil, "cluster-2"),
	})
	uids := func(turns []drain.QueueEntry) (list []string) {
		for _, turn := range turns {
			list = append(list, turn.UID)
		}
		slices.Sort(list)
		return list
	}
	shared := []string{"uid-depot-stuck", "uid-shop-next", "uid-shop-stuck"}
	assert.Equal(t, shared, uids(observe.QueueEntries(cluster, "shop")))
	assert.Equal(t, shared, uids(observe.QueueEntries(cluster, "depot")), "two namespaces with one target have one queue")
	assert.Equal(t, []string{"uid-bank-next"}, uids(observe.QueueEntries(cluster, "bank")))

	may, why := drain.MayDrainNow(observe.QueueEntries(cluster, "bank"), "uid-bank-next", 2)
	assert.True(t, may, why)
	may, _ = drain.MayDrainNow(observe.QueueEntries(cluster, "shop"), "uid-shop-next", 2)
	assert.False(t, may)

	var queues [][]string
	for _, turns := range observe.AllQueues(cluster) {
		queues = append(queues, uids(turns))
	}
	assert.ElementsMatch(t, [][]string{shared, {"uid-bank-next"}}, queues)
}

func TestOperatorRequestsTextDiffersForEachRequest(t *testing.T) {
	seen := map[string]string{observe.OperatorRequestsText(observetest.NewMachine("m")): "none"}
	for _, key := range []string{
		v1alpha1.AnnotationForce, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining, v1alpha1.AnnotationHold,
		v1alpha1.AnnotationExtend, v1alpha1.AnnotationRetry,
	} {
		for _, value := range []string{"", "alice", "bob"} {
			text := observe.OperatorRequestsText(observetest.NewMachine("m", observetest.WithSingleAnnotation(key, value)))
			assert.Empty(t, seen[text], "%s=%s", key, value)
			seen[text] = key + "=" + value
		}
	}
	forced := observetest.NewMachine("m")
	forced.Labels[v1alpha1.LabelForceDeletion] = "true"
	assert.Empty(t, seen[observe.OperatorRequestsText(forced)])
	assert.Equal(
		t,
		"none",
		seen[observe.OperatorRequestsText(observetest.NewMachine("m", observetest.WithSingleAnnotation("example.com/note", "x")))],
	)
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
			assert.Equal(
				t,
				row.want,
				observe.ToleratesCordon(newPod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{row.tolerates} })),
			)
		})
	}
	assert.False(t, observe.ToleratesCordon(newPod()))
}
