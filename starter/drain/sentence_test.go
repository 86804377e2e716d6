package drain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
)

func TestStatementDescribesTheDeletion(t *testing.T) {
	const (
		backup = v1alpha1.AnnotationPreDrainHook + "/backup"
		dns    = v1alpha1.AnnotationPreTerminateHook
	)
	failed := func(code, text string) machineEdit {
		return func(m *v1alpha1.Machine) {
			m.Status.LastOperation = v1alpha1.LastOperation{
				Type:        v1alpha1.MachineOperationDelete,
				State:       v1alpha1.MachineStateFailed,
				ErrorCode:   code,
				Description: text,
			}
		}
	}
	place := func(m *v1alpha1.Machine) {
		m.Status.LastOperation.Description = "queued: place 12 of 80; 100 nodes are drained at a time"
	}
	targetUnavailable := func(m *v1alpha1.Machine) {
		m.Status.LastOperation = v1alpha1.LastOperation{
			Description:    "the target cluster does not answer: cordons node n-1",
			LastUpdateTime: metav1.NewTime(now.Add(-2 * time.Minute)),
		}
	}
	unready := func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))},
		}
	}
	blocked := func(message string) machineEdit {
		return withCondition(v1alpha1.MachineDrained, v1alpha1.ReasonBlocked, message)
	}
	for _, c := range []struct {
		name    string
		machine *v1alpha1.Machine
		want    string
		change  []string // expected commands, in order
	}{
		{
			"nothing is recorded yet", newDeletedMachine(func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now.Add(-time.Second))) }),
			"the deletion was asked for at 14:06:06 UTC (1s), and nothing is recorded yet.", nil,
		},
		{
			"nothing is recorded, and nobody comes", newDeletedMachine(),
			"the deletion was asked for at 13:51:07 UTC (15m), and nothing is recorded yet: check that bridge and workers run.", nil,
		},
		{
			"pre-drain hook", newDeletedMachine(withStage(v1alpha1.MachineDeletionPreDrainHooks), withAnnotation(backup, "velero"), withAnnotation(v1alpha1.AnnotationPreDrainHook+"er", "no hook")),
			"since 13:51:07 UTC (15m) it waits for the owner of each pre-drain hook to remove it: " + backup + " (velero); this step has no deadline;",
			[]string{"kubectl annotate machine -n shop m-1 " + backup + "-"},
		},
		{
			"pre-terminate hooks", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionPreTerminateHooks, "Drained"), withAnnotation(dns, ""), withAnnotation(dns+"/z", "z")),
			"since 13:51:07 UTC (15m) it waits for the owner of each pre-terminate hook to remove it: " + dns + ", " + dns + "/z (z); this step has no deadline;",
			[]string{"kubectl annotate machine -n shop m-1 " + dns + "-", "kubectl annotate machine -n shop m-1 " + dns + "/z-"},
		},
		{
			"hook that just went", newDeletedMachine(withStage(v1alpha1.MachineDeletionPreDrainHooks)),
			"since 13:51:07 UTC (15m) it waited for pre-drain hooks; none is left; it continues now.", nil,
		},
		{
			"queued", newDeletedMachine(withStage(v1alpha1.MachineDeletionDrain), withStep("queued"), place),
			"since 13:51:07 UTC (15m) it waits for its turn to be drained (queued: place 12 of 80; 100 nodes are drained at a time); its drainTimeout of 2h begins then;",
			[]string{"millwright drain force shop/m-1 --reason …", "millwright drain skip shop/m-1 --reason …"},
		},
		{
			"about to be drained", newDeletedMachine(withStage(v1alpha1.MachineDeletionDrain), withStep("drain")),
			"since 13:51:07 UTC (15m) node n-1 waits to be emptied; no pod was evicted yet, and its drainTimeout of 2h begins with the first eviction.", nil,
		},
		{
			"evicting, from the machine alone", newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"), blocked("2 pods left: PodDisruptionBudget shop/web needs 2 healthy pods and has 2")),
			"2 pods left: PodDisruptionBudget shop/web needs 2 healthy pods and has 2; since 13:51:07 UTC (15m) pods are evicted, and at 15:51:07 UTC (in 1h45m) the remaining pods are deleted with their own grace periods, whatever blocks them;",
			[]string{"kubectl describe pdb -n shop web", "millwright drain extend shop/m-1 --for 1h --reason …", "millwright drain force shop/m-1 --reason …"},
		},
		{
			"evicting, and the status has an older deadline", newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods), withDeadline(time.Minute), withAnnotation(v1alpha1.AnnotationExtend, "2026-11-21T18:00:00Z ann: more")),
			"node n-1 is being emptied; since 13:51:07 UTC (15m) pods are evicted, and at 18:00:00 UTC (in 3h53m) the remaining pods are deleted with their own grace periods, whatever blocks them;",
			[]string{"millwright drain extend shop/m-1 --for 1h --reason …", "millwright drain force shop/m-1 --reason …"},
		},
		{
			"evicting from a node that is not ready", newDeletedMachine(withRemovalMeans("Evict"), unready),
			"node n-1 is being emptied; since 13:51:07 UTC (15m) pods are evicted, and at 14:10:07 UTC (in 4m) the remaining pods are deleted without a grace period, because their node is not well, whatever blocks them;",
			[]string{"millwright drain force shop/m-1 --reason …"},
		},
		{
			"evicting, and nobody looked at the deadline", newDeletedMachine(withRemovalMeans("Evict"), func(m *v1alpha1.Machine) { m.Status.Deletion.Drain.StartedAt = metav1.NewTime(now.Add(-3 * time.Hour)) }),
			"node n-1 is being emptied; since 13:51:07 UTC (15m) pods are evicted, and the next step was due at 13:06:07 UTC (1h ago) but did not follow: check that bridge and workers run;",
			[]string{"millwright drain extend shop/m-1 --for 1h --reason …", "millwright drain force shop/m-1 --reason …"},
		},
		{
			"deleting in order, and the status has an older deadline", newDeletedMachine(withRemovalMeans("DeleteInOrder"), withStep("delete-in-order"), withDeadline(time.Minute), withAnnotation(v1alpha1.AnnotationExtend, "2026-11-21T18:00:00Z ann: more")),
			"node n-1 is being emptied; since 13:51:07 UTC (15m) pods are deleted in order, because the cluster cannot evict, and at 18:00:00 UTC (in 3h53m) the remaining pods are deleted all at once, whatever blocks them;",
			[]string{"millwright drain extend shop/m-1 --for 1h --reason …", "millwright drain force shop/m-1 --reason …"},
		},
		{
			"held while deleting in order", newDeletedMachine(withRemovalMeans("DeleteInOrder"), withStep("held", "Hold"), withAnnotation(v1alpha1.AnnotationHold, "ann: looking")),
			"it is held (ann: looking) in stage Drain, which began at 13:51:07 UTC (15m): nothing more happens in it until the hold ends; its deadline is not moved: resumed after 15:51:07 UTC (in 1h45m), it deletes pods;",
			[]string{"millwright drain resume shop/m-1", "millwright drain extend shop/m-1 --for 1h --reason …"},
		},
		{
			"deleting", newDeletedMachine(withRemovalMeans("Delete"), withStep("delete"), withDeadline(time.Minute), withCondition(v1alpha1.MachineDrained, v1alpha1.ReasonForcing, "1 pod left: 1 is terminating")),
			"1 pod left: 1 is terminating; since 13:51:07 UTC (15m) pods are deleted with their own grace periods, whatever blocks them, and at 14:07:07 UTC (in 60s) they are deleted without;",
			[]string{"millwright drain force shop/m-1 --reason …"},
		},
		{
			"killing", newDeletedMachine(withRemovalMeans("Kill"), withStep("kill"), withDeadline(20*time.Second)),
			"node n-1 is being emptied; since 13:51:07 UTC (15m) pods are deleted without a grace period, and at 14:06:27 UTC (in 20s) the remaining pods stay and the deletion continues.", nil,
		},
		{
			"the drain has just ended", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionDrain, "Drained")),
			"the drain of node n-1 has ended (Drained), and the next stage is about to begin.", nil,
		},
		{
			"held while evicting", newDeletedMachine(withRemovalMeans("Evict"), withStep("held", "Hold"), withAnnotation(v1alpha1.AnnotationHold, "ann: looking")),
			"it is held (ann: looking) in stage Drain, which began at 13:51:07 UTC (15m): nothing more happens in it until the hold ends; its deadline is not moved: resumed after 15:51:07 UTC (in 1h45m), it deletes pods;",
			[]string{"millwright drain resume shop/m-1", "millwright drain extend shop/m-1 --for 1h --reason …"},
		},
		{
			"held in another stage", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance), withAnnotation(v1alpha1.AnnotationHold, "")),
			"it is held (by an unknown person) in stage Instance, which began at 13:51:07 UTC (15m): nothing more happens in it until the hold ends; this step has no deadline;",
			[]string{"millwright drain resume shop/m-1"},
		},
		{
			"held before it began", newDeletedMachine(withAnnotation(v1alpha1.AnnotationHold, "ann")),
			"it is held (ann) before its first stage: nothing happens until the hold ends;",
			[]string{"millwright drain resume shop/m-1"},
		},
		{
			"detaching", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionDetach, "Drained")),
			"since 13:51:07 UTC (15m) it waits until the volumes are detached from node n-1, for --pv-detach-timeout of the workers; then it continues anyway;",
			[]string{"kubectl annotate machine -n shop m-1 machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach="},
		},
		{
			"detaching, with an end", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionDetach, "Drained"), withStep("await-detach"), withDeadline(time.Minute)),
			"since 13:51:07 UTC (15m) it waits until the volumes are detached from node n-1, until 14:07:07 UTC (in 60s); then it continues anyway;",
			[]string{"kubectl annotate machine -n shop m-1 machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach="},
		},
		{
			"the provider works", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance), withStep("delete-instance"), withCondition(v1alpha1.MachineInstanceReady, "InstanceGone", "of an earlier trouble")),
			"since 13:51:07 UTC (15m) the provider deletes instance virtual:///i-1, and this step has no deadline.", nil,
		},
		{
			"the provider refuses", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance), withStep("delete-instance", "PermissionDenied"), failed("PermissionDenied", "Cloud provider message - may not delete."),
				withCondition(v1alpha1.MachineInstanceReady, "PermissionDenied", "may not delete.")),
			"since 13:51:07 UTC (15m) the deletion of instance virtual:///i-1 at the provider is blocked by PermissionDenied: may not delete; this step has no deadline: repair what blocks it; abandon-instance is the last resort and leaves the instance running;",
			[]string{"millwright drain retry shop/m-1", "millwright drain abandon-instance shop/m-1 --reason …"},
		},
		{
			"the class is gone", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance), withStep("delete-instance", "ClassNotFound"), withCondition(v1alpha1.MachineClassReady, "ClassNotFound", "MachineClass shop/small does not exist"),
				func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" }),
			"since 13:51:07 UTC (15m) the deletion of its instance (if any) at the provider is blocked by ClassNotFound: MachineClass shop/small does not exist; this step has no deadline: repair what blocks it; abandon-instance is the last resort and leaves the instance running;",
			[]string{"millwright drain retry shop/m-1", "millwright drain abandon-instance shop/m-1 --reason …"},
		},
		{
			"only the last operation tells", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance), failed("Internal", "Cloud provider message - boom")),
			"since 13:51:07 UTC (15m) the deletion of instance virtual:///i-1 at the provider is blocked by Internal: boom; this step has no deadline: repair what blocks it; abandon-instance is the last resort and leaves the instance running;",
			[]string{"millwright drain retry shop/m-1", "millwright drain abandon-instance shop/m-1 --reason …"},
		},
		{
			"the target is away before anything is recorded", newDeletedMachine(withStep("announce", "TargetUnavailable"), targetUnavailable),
			"since 14:04:07 UTC (2m) it waits: the target cluster does not answer: cordons node n-1; it continues when that cluster answers; this step has no deadline; skip continues without the drain; abandon-instance, the last resort, also leaves the instance running;",
			[]string{"millwright drain skip shop/m-1 --reason …", "millwright drain abandon-instance shop/m-1 --reason …"},
		},
		{
			"the target is away when the instance is gone", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionNode, "Drained"), withStep("delete-node", "TargetUnavailable")),
			"since 13:51:07 UTC (15m) it waits: the target cluster does not answer; it continues when that cluster answers; this step has no deadline; abandon-instance removes the object and leaves the remains of node n-1;",
			[]string{"millwright drain abandon-instance shop/m-1 --reason …"},
		},
		{
			"emptied for its update", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate)),
			"node n-1 is being emptied; since 13:51:07 UTC (15m) pods are evicted, and at 15:51:07 UTC (in 1h45m) the remaining pods are deleted with their own grace periods, whatever blocks them;",
			[]string{"millwright drain extend shop/m-1 --for 1h --reason …", "millwright drain force shop/m-1 --reason …"},
		},
		{
			"killed for its preservation", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForPreservation), withDeadline(20*time.Second), func(m *v1alpha1.Machine) { m.Status.Drain.Means = "Kill" }),
			"node n-1 is being emptied; since 13:51:07 UTC (15m) pods are deleted without a grace period, and at 14:06:27 UTC (in 20s) the remaining pods stay and the preservation continues.", nil,
		},
		{
			"held while it is emptied for its update", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate), withAnnotation(v1alpha1.AnnotationHold, "ann: looking")),
			"it is held (ann: looking) while node n-1 is emptied for its in-place update, which began at 13:51:07 UTC (15m): no pod is evicted until the hold ends; its deadline is not moved: resumed after 15:51:07 UTC (in 1h45m), it deletes pods;",
			[]string{"millwright drain resume shop/m-1", "millwright drain extend shop/m-1 --for 1h --reason …"},
		},
		{
			"node", newDeletedMachine(withStage(v1alpha1.MachineDeletionNode)),
			"the instance is gone, and since 13:51:07 UTC (15m) the remains of node n-1 are removed.", nil,
		},
		{
			"release", newDeletedMachine(withStage(v1alpha1.MachineDeletionRelease)),
			"instance and node have been gone since 13:51:07 UTC (15m), and the object is removed next.", nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := "shop/m-1: " + c.want
			if c.change != nil {
				want += "\nto change that: " + joinCommands(c.change) + "."
			}
			assert.Equal(t, want, snapshot{machine: c.machine, now: now}.statement().String())
		})
	}
}

// The remedies depend on the texts of decide/drain: this test fails when the texts change.
func TestRemediesMatchTheBlockers(t *testing.T) {
	pod := func(name string, edits ...func(*drain.Pod)) drain.Pod {
		p := drain.Pod{UID: name, Namespace: "shop", Name: name, Ready: true, Started: now.Add(-time.Hour)}
		for _, e := range edits {
			e(&p)
		}
		return p
	}
	guarded := func(keys ...string) func(*drain.Pod) { return func(p *drain.Pod) { p.Budgets = keys } }
	never := drain.DisruptionBudget{
		Key:            "shop/web",
		CurrentHealthy: 3,
		DesiredHealthy: 3,
		ExpectedPods:   3,
		IsUpToDate:     true,
		NextProbe:      now.Add(time.Minute),
	}
	scarce := drain.DisruptionBudget{
		Key:            "shop/web",
		CurrentHealthy: 2,
		DesiredHealthy: 2,
		ExpectedPods:   3,
		IsUpToDate:     true,
		NextProbe:      now.Add(time.Minute),
	}
	for _, c := range []struct {
		name     string
		observed drain.Facts
		want     []string
	}{
		{"budget that allows none", drain.Facts{Pods: []drain.Pod{pod("web", guarded("shop/web"))}, Budgets: []drain.DisruptionBudget{never}}, []string{"kubectl edit pdb -n shop web"}},
		{"budget that waits for a healthy pod", drain.Facts{Pods: []drain.Pod{pod("web", guarded("shop/web"))}, Budgets: []drain.DisruptionBudget{scarce}}, nil},
		{
			"several budgets",
			drain.Facts{Pods: []drain.Pod{pod("web", guarded("shop/a", "shop/b"))}, Budgets: []drain.DisruptionBudget{{Key: "shop/a", NextProbe: now.Add(time.Minute)}, {Key: "shop/b"}}},
			[]string{"kubectl edit pdb -n shop a", "kubectl edit pdb -n shop b"},
		},
		{
			"pod that is not to be disrupted",
			drain.Facts{Pods: []drain.Pod{pod("web", func(p *drain.Pod) { p.Protected = "true" })}},
			[]string{"kubectl annotate pod -n shop web karpenter.sh/do-not-disrupt-"},
		},
		{
			"pod that does not end",
			drain.Facts{Pods: []drain.Pod{pod("web", func(p *drain.Pod) { p.DeletedAt = now.Add(-time.Hour) })}},
			[]string{"kubectl describe pod -n shop web"},
		},
		{
			"namespace that is being deleted",
			drain.Facts{Pods: []drain.Pod{pod("web", func(p *drain.Pod) {
				p.Tries = drain.RequestRecord{Result: drain.ResultNamespaceDeleting, Next: now.Add(time.Minute)}
			})}},
			[]string{"kubectl describe namespace shop"},
		},
		{
			"no more than two",
			drain.Facts{Pods: []drain.Pod{
				pod("a", func(p *drain.Pod) { p.Protected = "true" }), pod("b", func(p *drain.Pod) { p.Protected = "true" }), pod("web", guarded("shop/web")),
			}, Budgets: []drain.DisruptionBudget{never}},
			[]string{"kubectl edit pdb -n shop web", "kubectl annotate pod -n shop a karpenter.sh/do-not-disrupt-"},
		},
		{"nothing", drain.Facts{Pods: []drain.Pod{pod("web")}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.observed.Now = now
			seen := drain.Decide(c.observed).Picture
			s := snapshot{machine: newDeletedMachine(withRemovalMeans("Evict")), podOverview: &seen, now: now}
			assert.Equal(t, c.want, append([]string(nil), s.remedies()...), seen)
			text := s.statement().String()
			assert.True(
				t,
				strings.HasPrefix(text, "shop/m-1: "+seen.Why+"; since 13:51:07 UTC (15m) pods are evicted, and at 15:51:07 UTC"),
				text,
			)
			assert.Equal(t, 1, strings.Count(text, "\n"), "it is two lines")
		})
	}
}
