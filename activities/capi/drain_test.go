package capi_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	decidedrain "millwright/decide/drain"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
)

func withMachineAnnotation(key, value string) capitest.MachineChange {
	return capitest.WithAnnotation[*clusterv1.Machine](key, value)
}

// withDrainRecord annotates a machine with the record of a drain.
func withDrainRecord(d v1alpha1.MachineDrain) capitest.MachineChange {
	return func(m *clusterv1.Machine) {
		v := capidrain.ToMillwrightMachine(m)
		v.Status.Deletion.Drain = &d
		text, err := capidrain.StatusText(v)
		if err != nil {
			panic(err)
		}
		withMachineAnnotation(v1alpha1.AnnotationDrainStatus, text)(m)
	}
}

// newNode returns the Node of a machine of capitest.AsMachineAtDrainHook.
func newNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, UID: "uid-node", ResourceVersion: "900"}}
	n.Spec.ProviderID = "example:///" + name
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return activitiestest.ApplyChanges(n, change)
}

// newDrainWorld returns a world with a machine to drain, the machine's infrastructure, and objects of the workload
// cluster.
func newDrainWorld(
	t *testing.T,
	m *clusterv1.Machine,
	inWorkload ...runtime.Object,
) (*activitiestest.World, *capi.Activities) {
	t.Helper()
	w, a := newWorld(t, m, newClone(capitest.NewInfrastructureTemplate(), m.Name))
	for _, o := range inWorkload {
		require.NoError(t, w.TargetClient.Tracker().Add(o))
	}
	return w, a
}

func decideDrain(t *testing.T, w *activitiestest.World, a *capi.Activities, m *clusterv1.Machine) drain.Decision {
	t.Helper()
	in := drain.Input{ReadInput: activitiestest.NewReadInput(m)}
	in.At = capitest.Noon
	cached, err := activitiestest.RunActivity[drain.Decision](w, a.DecideClusterAPIDrain, in)
	require.NoError(t, err)
	in.Live = true
	live, err := activitiestest.RunActivity[drain.Decision](w, a.DecideClusterAPIDrain, in)
	require.NoError(t, err)
	assert.Equal(t, live, cached)
	return live
}

func TestDecideClusterAPIDrain(t *testing.T) {
	set := capitest.NewSet("s", 1)
	machine := func(change ...capitest.MachineChange) *clusterv1.Machine {
		return capitest.NewMachine("m", set, append([]capitest.MachineChange{capitest.AsMachineAtDrainHook}, change...)...)
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	another := func(n *corev1.Node) { n.Spec.ProviderID = "example:///other" }
	for name, row := range map[string]struct {
		machine  *clusterv1.Machine
		workload []runtime.Object
		want     drain.Decision // the test compares only Hook, Result, Why, Cordon and Hold
	}{
		"the node takes new pods": {machine(), []runtime.Object{newNode("m")}, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrain, Cordon: true}, Why: "evicts for as long as it takes (nodeDrainTimeoutSeconds is not set)",
		}},
		"the node is cordoned": {machine(), []runtime.Object{newNode("m", cordoned)}, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrain}, Why: "evicts for as long as it takes (nodeDrainTimeoutSeconds is not set)",
		}},
		"a timeout": {machine(func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(60)) }), []runtime.Object{newNode("m", cordoned)}, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrain}, Why: "evicts for 1m (nodeDrainTimeoutSeconds 1m), then deletes",
		}},
		"the node is gone": {machine(), nil, drain.Decision{ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrainEnded}, Result: vocabulary.DrainResultDrained, Why: "there is no node node-m"}},
		"the node belongs to another instance": {machine(), []runtime.Object{newNode("m", another)}, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrainEnded}, Result: vocabulary.DrainResultDrained, Why: "there is no node node-m",
		}},
		"a person skips it": {machine(withMachineAnnotation(v1alpha1.AnnotationSkipDrain, "ann: test")), nil, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrainEnded}, Result: vocabulary.DrainResultSkipped, Why: "annotation " + v1alpha1.AnnotationSkipDrain + ": ann: test",
		}},
		"a person excludes it": {machine(withMachineAnnotation(clusterv1.ExcludeNodeDrainingAnnotation, "ann")), nil, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrainEnded}, Result: vocabulary.DrainResultSkipped, Why: "annotation " + clusterv1.ExcludeNodeDrainingAnnotation + ": ann",
		}},
		"a person holds it": {machine(withMachineAnnotation(v1alpha1.AnnotationHold, "ann: lunch")), []runtime.Object{newNode("m", cordoned)}, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrain}, Why: "evicts for as long as it takes (nodeDrainTimeoutSeconds is not set)", Hold: "ann: lunch",
		}},
		"it has ended": {machine(withDrainRecord(v1alpha1.MachineDrain{Result: vocabulary.DrainResultForced})), nil, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookDrainEnded}, Result: vocabulary.DrainResultForced, Why: "the drain has already ended",
		}},
		"Cluster API has not come to it": {capitest.NewMachine("m", set, capitest.WithDrainHook, capitest.AsDeletingObject), nil, drain.Decision{
			ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookNotReached}, Why: "Cluster API has not come to the pre-drain hooks of the machine yet",
		}},
		"not deleted": {capitest.NewMachine("m", set, capitest.WithDrainHook), nil, drain.Decision{ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookNothing}, Result: drain.ResultCancelled, Why: "the machine is not being deleted"}},
		"no hook":     {capitest.NewMachine("m", set, capitest.AsDeletingObject), nil, drain.Decision{ClusterAPI: drain.ClusterAPIFacts{Step: decidedrain.HookNothing}, Result: drain.ResultCancelled, Why: "the machine has no hook of Millwright"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := newDrainWorld(t, row.machine, row.workload...)
			d := decideDrain(t, w, a, row.machine)
			assert.Equal(
				t,
				row.want,
				drain.Decision{
					ClusterAPI: drain.ClusterAPIFacts{Step: d.ClusterAPI.Step, Cordon: d.ClusterAPI.Cordon},
					Result:     d.Result,
					Why:        d.Why,
					Hold:       d.Hold,
				},
			)
			assert.Equal(t, "node-m", d.ClusterAPI.NodeName)
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		w, a := newWorld(t)
		assert.Equal(t, drain.ResultCancelled, decideDrain(t, w, a, machine()).Result)
	})
}

func TestDecideDrainReportsUnreachableCluster(t *testing.T) {
	m := capitest.NewMachine("m", capitest.NewSet("s", 1), capitest.AsMachineAtDrainHook)
	t.Run("no Secret", func(t *testing.T) {
		w, a := newDrainWorld(t, m)
		require.NoError(
			t,
			w.KubeconfigClient.CoreV1().Secrets(capitest.Namespace).Delete(t.Context(), "c-kubeconfig", metav1.DeleteOptions{}),
		)
		d := decideDrain(t, w, a, m)
		assert.Equal(t, decidedrain.HookNodeUnknown, d.ClusterAPI.Step)
		assert.Equal(
			t,
			"the nodes of Cluster c cannot be read: no kubeconfig can be used: Secret shop/c-kubeconfig does not exist",
			d.Why,
		)
	})
	t.Run("no answer", func(t *testing.T) {
		w, a := newDrainWorld(t, m)
		w.TargetClient.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		d := decideDrain(t, w, a, m)
		assert.Equal(t, decidedrain.HookNodeUnknown, d.ClusterAPI.Step)
		assert.Equal(t, "Cluster c does not answer: get node node-m: connection refused", d.Why)
	})
}

// A setting limits how many nodes of one Cluster are drained at the same time. A running drain is not queued again.
func TestConcurrentDrainsOfAClusterAreLimited(t *testing.T) {
	set := capitest.NewSet("s", 2)
	first := capitest.NewMachine(
		"m",
		set,
		capitest.AsMachineAtDrainHook,
		withDrainRecord(v1alpha1.MachineDrain{StartedAt: capitest.MinutesBeforeNoon(1), Means: "Evict"}),
	)
	second := capitest.NewMachine("next", set, capitest.AsMachineAtDrainHook)
	w, a := newWorld(
		t,
		first,
		second,
		newClone(capitest.NewInfrastructureTemplate(), "m"),
		newClone(capitest.NewInfrastructureTemplate(), "next"),
	)
	w.MaxDrains = 1
	for _, o := range []runtime.Object{newNode("m"), newNode("next")} {
		require.NoError(t, w.TargetClient.Tracker().Add(o))
	}
	assert.Empty(t, decideDrain(t, w, a, first).ClusterAPI.Queue)
	assert.Equal(t, "queued: place 1 of 1; 1 node is drained at a time", decideDrain(t, w, a, second).ClusterAPI.Queue)
}

// Pods on a silent node are killed (deleted with a grace period of zero), except while most nodes of the Cluster are
// silent at once.
func TestPodsOfSilentNodeAreKilledUnlessMostNodesAreSilent(t *testing.T) {
	set := capitest.NewSet("s", 4)
	silent := func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, capitest.MinutesBeforeNoon(
			10,
		)
	}
	m := capitest.NewMachine(
		"m",
		set,
		capitest.AsMachineAtDrainHook,
		withDrainRecord(
			v1alpha1.MachineDrain{
				StartedAt:  capitest.MinutesBeforeNoon(20),
				Means:      "Evict",
				MeansSince: new(capitest.MinutesBeforeNoon(20)),
			},
		),
	)
	others := func(status metav1.ConditionStatus) (all []runtime.Object) {
		for _, name := range []string{"a", "b", "d"} {
			all = append(
				all,
				capitest.NewMachine(name, set, capitest.WithCondition(clusterv1.MachineNodeReadyCondition, status)),
			)
		}
		return all
	}
	for name, row := range map[string]struct {
		others metav1.ConditionStatus
		means  decidedrain.RemovalMeans
	}{"one node": {metav1.ConditionTrue, decidedrain.MeansKill}, "most nodes": {metav1.ConditionUnknown, decidedrain.MeansEvict}} {
		t.Run(name, func(t *testing.T) {
			w, a := newWorld(t, append(others(row.others), m, newClone(capitest.NewInfrastructureTemplate(), "m"))...)
			require.NoError(t, w.TargetClient.Tracker().Add(newNode("m", silent)))
			assert.Equal(t, row.means, decideDrain(t, w, a, m).Step.Means)
		})
	}
}

func TestCordonClusterAPINode(t *testing.T) {
	m := capitest.NewMachine("m", capitest.NewSet("s", 1), capitest.AsMachineAtDrainHook)
	w, a := newDrainWorld(t, m, newNode("m"))
	activitiestest.RunActivityTwice[kube.MinVersions](w, a.CordonClusterAPINode, activitiestest.NewReadInput(m))
	node, err := w.TargetClient.CoreV1().Nodes().Get(t.Context(), "node-m", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, node.Spec.Unschedulable)
	w, a = newDrainWorld(t, m, newNode("m", func(n *corev1.Node) { n.Spec.ProviderID = "example:///other" }))
	_, err = activitiestest.RunActivity[kube.MinVersions](w, a.CordonClusterAPINode, activitiestest.NewReadInput(m))
	require.NoError(t, err)
	node, err = w.TargetClient.CoreV1().Nodes().Get(t.Context(), "node-m", metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, node.Spec.Unschedulable, "it belongs to another instance")
}

// EvictClusterAPIPods reads the node's pods and PodDisruptionBudgets in the workload cluster, and the MachineDrainRules
// in the management cluster.
func TestEvictClusterAPIPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := capitest.NewMachine("m", capitest.NewSet("s", 1), capitest.AsMachineAtDrainHook)
		pod := func(name string) *corev1.Pod {
			p := activitiestest.NewPod(name, func(p *corev1.Pod) {
				p.Spec.NodeName, p.Labels = "node-m", map[string]string{"app": name}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			})
			return p
		}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "all", Generation: 1}}
		budget.Spec.MinAvailable = new(intstr.FromInt(1))
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
		budget.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 1,
			CurrentHealthy:     1,
			DesiredHealthy:     1,
			ExpectedPods:       1,
		}
		rule := &clusterv1.MachineDrainRule{ObjectMeta: capitest.NewMetadata("keep")}
		rule.Spec.Drain.Behavior = clusterv1.MachineDrainRuleDrainBehaviorSkip
		rule.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{
			{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}}},
		}
		w, a := newWorld(t, m, rule, newClone(capitest.NewInfrastructureTemplate(), "m"))
		for _, o := range []runtime.Object{newNode("m"), pod("a"), pod("kept"), budget} {
			require.NoError(t, w.TargetClient.Tracker().Add(o))
		}
		seen, err := activitiestest.RunActivity[drain.EvictionResult](w, a.EvictClusterAPIPods, drain.Eviction{
			Machine: activitiestest.NewRef(
				m,
			),
			NodeName: "node-m",
			Means:    decidedrain.MeansEvict,
			Until:    time.Now().Add(3 * time.Second),
		})
		require.NoError(t, err)
		assert.Equal(t, drain.OutcomeChanged, seen.Outcome)
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, "web/all", seen.Blockers[0].Name)
		assert.Equal(t, 1, seen.Picture.Counts.Skipped)
		assert.Equal(t, []string{"web/a"}, seen.Left)
	})
}

func TestReportClusterAPIDrain(t *testing.T) {
	m := capitest.NewMachine(
		"m",
		capitest.NewSet("s", 1),
		capitest.AsMachineAtDrainHook,
		capitest.WithConditionReason("Theirs", metav1.ConditionTrue, "Some", ""),
	)
	w, a := newDrainWorld(t, m)
	report := machine.Report{
		Read: activitiestest.NewReadInput(m),
		Step: &kube.Step{
			WorkflowID: "g/clusterapidrain/shop/m/uid-m",
			Name:       vocabulary.StepEvictPods,
			Since:      capitest.Noon,
			BlockedBy:  []string{"PodDisruptionBudget web/all"},
			Cause:      "web/all allows none",
		},
		Conditions: []machine.Condition{
			{Type: vocabulary.ConditionDrained, Reason: vocabulary.ReasonBlocked, Message: "web/all allows none"},
		},
		Deletion: &machine.DeletionProgress{Means: "Evict"},
		Event: &kube.Event{
			Warning: true,
			Reason:  vocabulary.ReasonDrainBlocked,
			Message: "node node-m: web/all allows none",
		},
	}
	report.Read.At = capitest.Noon
	said := activitiestest.RunActivityTwice[kube.ReportResult](w, a.ReportClusterAPIDrain, report)
	assert.Equal(t, []string{"PodDisruptionBudget web/all"}, said.BlockedBy)
	now := w.ClusterAPIMachine("m")
	assert.Equal(t, now.ResourceVersion, said.Version)
	v := capidrain.ToMillwrightMachine(now)
	assert.Equal(t, "Evict", v.Status.Deletion.Drain.Means)
	assert.False(t, v.Status.Deletion.Drain.StartedAt.IsZero())
	assert.Equal(t, report.Step.WorkflowID, v.Status.CurrentOperation.WorkflowID)
	for kind, reason := range map[string]string{"Drained": "Blocked", "Theirs": "Some", clusterv1.MachineReadyCondition: "Because"} {
		c := meta.FindStatusCondition(now.Status.Conditions, kind)
		require.NotNil(t, c, kind)
		assert.Equal(t, reason, c.Reason)
	}
	blocked := meta.FindStatusCondition(now.Status.Conditions, "Blocked")
	require.NotNil(t, blocked)
	assert.Contains(t, blocked.Message, "web/all allows none")
	assert.True(t, json.Valid([]byte(now.Annotations[v1alpha1.AnnotationDrainStatus])))
	assert.Len(t, w.Recorder.Events, 1)

	report.Step, report.Event = &kube.Step{Name: vocabulary.StepDrained, Since: capitest.Noon}, nil
	report.Conditions[0] = machine.Condition{
		Type:    vocabulary.ConditionDrained,
		True:    true,
		Reason:  vocabulary.DrainResultDrained,
		Message: "all pods are gone",
	}
	report.Deletion = &machine.DeletionProgress{Result: vocabulary.DrainResultDrained}
	report.Read.Live = true
	_, err := activitiestest.RunActivity[kube.ReportResult](w, a.ReportClusterAPIDrain, report)
	require.NoError(t, err)
	now = w.ClusterAPIMachine("m")
	assert.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, "Drained"))
	assert.Nil(t, meta.FindStatusCondition(now.Status.Conditions, "Blocked"))
	assert.Equal(t, vocabulary.DrainResultDrained, capidrain.ToMillwrightMachine(now).Status.Deletion.Drain.Result)

	w, a = newWorld(t)
	_, err = activitiestest.RunActivity[kube.ReportResult](w, a.ReportClusterAPIDrain, report)
	failure, is := kube.FailureOfType(err, kube.FailureTypeObjectGone)
	assert.True(t, is, failure)
}

// Cluster API often writes the machine's status, so a report that gets a conflict reads the machine again.
func TestDrainReportRetriesAfterConflict(t *testing.T) {
	m := capitest.NewMachine("m", capitest.NewSet("s", 1), capitest.AsMachineAtDrainHook)
	w, a := newDrainWorld(t, m)
	conflicts := 1
	w.ClusterAPIServer.Clientset.PrependReactor(
		"patch",
		"machines",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "status" {
				return false, nil, nil
			}
			conflicts--
			return conflicts >= 0, nil, apierrors.NewConflict(
				clusterv1.GroupVersion.WithResource("machines").GroupResource(),
				"m",
				nil,
			)
		},
	)
	report := machine.Report{
		Read:       activitiestest.NewReadInput(m),
		Step:       &kube.Step{Name: "drain", Since: capitest.Noon},
		Conditions: []machine.Condition{{Type: "Drained", Reason: "Draining", Message: "x"}},
	}
	_, err := activitiestest.RunActivity[kube.ReportResult](w, a.ReportClusterAPIDrain, report)
	require.NoError(t, err)
	assert.Equal(t, "Draining", meta.FindStatusCondition(w.ClusterAPIMachine("m").Status.Conditions, "Drained").Reason)
}

func TestHoldADrainThatWasCancelledInTemporal(t *testing.T) {
	set := capitest.NewSet("s", 1)
	for name, row := range map[string]struct {
		machine *clusterv1.Machine
		want    string
	}{
		"nobody holds it":           {capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook), "cancelled"},
		"somebody holds it already": {capitest.NewMachine("m", set, capitest.AsMachineAtDrainHook, withMachineAnnotation(v1alpha1.AnnotationHold, "ann: lunch")), "ann: lunch"},
		"its hook is gone":          {capitest.NewMachine("m", set, capitest.AsDeletingObject), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := newWorld(t, row.machine)
			activitiestest.RunActivityTwice[string](
				w,
				a.HoldClusterAPIDrain,
				drain.HoldInput{Read: activitiestest.NewReadInput(row.machine), Why: "cancelled"},
			)
			assert.Equal(t, row.want, w.ClusterAPIMachine("m").Annotations[v1alpha1.AnnotationHold])
		})
	}
}

func TestReleaseClusterAPIHook(t *testing.T) {
	for name, drained := range map[string]bool{"after a drain": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			m := capitest.NewMachine("m", capitest.NewSet("s", 1), capitest.AsMachineAtDrainHook)
			w, a := newWorld(t, m)
			version := activitiestest.RunActivityTwice[string](
				w,
				a.ReleaseClusterAPIHook,
				capi.HookRelease{Read: activitiestest.NewReadInput(m), Drained: drained},
			)
			now := w.ClusterAPIMachine("m")
			assert.Equal(t, now.ResourceVersion, version)
			assert.False(t, capidrain.HasDrainHook(now))
			_, excluded := now.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
			assert.Equal(t, drained, excluded, "Cluster API drains what Millwright did not")
		})
	}
	w, a := newWorld(t)
	_, err := activitiestest.RunActivity[string](
		w,
		a.ReleaseClusterAPIHook,
		capi.HookRelease{Read: activitiestest.NewReadInput(capitest.NewMachine("m", capitest.NewSet("s", 1)))},
	)
	_, is := kube.FailureOfType(err, kube.FailureTypeObjectGone)
	assert.True(t, is)
}

// A set that is handed over first loses the hooks of its machines, and then its finalizer. Machines that are being
// deleted keep their hook.
func TestHandedOverSetLosesHooksBeforeFinalizer(t *testing.T) {
	s := capitest.NewSet("s", 2, withOtherController)
	other := capitest.NewMachine("other", capitest.NewSet("z", 1), capitest.WithDrainHook)
	w, a := newWorld(
		t,
		s,
		capitest.NewMachine("alive", s, capitest.WithDrainHook),
		capitest.NewMachine("going", s, capitest.AsMachineAtDrainHook),
		other,
	)
	_, err := activitiestest.RunActivity[string](w, a.FinalizeClusterAPISet, activitiestest.NewReadInput(s))
	require.NoError(t, err)
	assert.Empty(t, w.ClusterAPISet("s").Finalizers)
	assert.False(t, capidrain.HasDrainHook(w.ClusterAPIMachine("alive")))
	assert.Equal(t, map[string]string{"team": "web"}, w.ClusterAPIMachine("alive").Annotations)
	assert.True(t, capidrain.HasDrainHook(w.ClusterAPIMachine("going")))
	assert.True(t, capidrain.HasDrainHook(w.ClusterAPIMachine("other")))
}
