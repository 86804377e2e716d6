package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// observedSet returns the facts about one set of a deployment.
func observedSet(
	d *v1alpha1.MachineDeployment,
	s *v1alpha1.MachineSet,
	members ...*v1alpha1.Machine,
) rollout.MachineSet {
	return deployment.RolloutFacts(deployment.ObjectTree{Deployment: d, Sets: []*v1alpha1.MachineSet{s}, Members: members}, observetest.Noon).Sets[0]
}

func asFailingSet(status v1alpha1.ConditionStatus) observetest.SetChange {
	return func(s *v1alpha1.MachineSet) {
		s.Status.Conditions = []v1alpha1.MachineSetCondition{
			{Type: v1alpha1.MachineSetFrozen, Status: "True", Reason: "X"},
			{Type: v1alpha1.MachineSetReplicaFailure, Status: status, Reason: "ResourceExhausted", Message: "no room"},
		}
	}
}

// Each row tests one fact about a set of a deployment.
func TestRolloutSet(t *testing.T) {
	const desired, most = v1alpha1.AnnotationDesiredReplicas, v1alpha1.AnnotationMaxReplicas
	numbered := func(d *v1alpha1.MachineDeployment) { withDeploymentAnnotation(v1alpha1.AnnotationRevision, "7")(d) }
	minReady := func(d *v1alpha1.MachineDeployment) { d.Spec.MinReadySeconds = 5 }
	// TestRolloutMember and observe/capi/deployment test the missing facts.
	told := map[string][]any{"Machines": {nil}}
	for _, row := range []struct {
		name       string
		fact       string
		set        observetest.SetChange
		deployment observetest.DeploymentChange
		want       any
	}{
		{fact: "Name", want: "s"},
		{fact: "UID", want: "uid-s"},
		{fact: "Version", set: func(s *v1alpha1.MachineSet) { s.ResourceVersion = "9" }, want: "9"},
		{fact: "Created", set: func(s *v1alpha1.MachineSet) { s.CreationTimestamp = observetest.MinutesBeforeNoon(5) }, want: observetest.MinutesBeforeNoon(5).Time},
		{name: "of the template", fact: "Current", want: true},
		{name: "of another", fact: "Current", deployment: observetest.WithNewClass, want: false},
		{name: "of one that differs in what rolls nothing", fact: "Current", deployment: func(d *v1alpha1.MachineDeployment) {
			d.Spec.Template.Spec.MachineConfiguration = observetest.WithDrainTimeout(time.Minute)
		}, want: true},
		{fact: "Deleting", set: observetest.AsDeletingSet, want: true},
		{fact: "MCM.Foreign", set: func(s *v1alpha1.MachineSet) { s.Labels = map[string]string{"app": "other"} }, want: true},
		{name: "an empty selector", fact: "MCM.Foreign", deployment: func(d *v1alpha1.MachineDeployment) { d.Spec.Selector = &metav1.LabelSelector{} }, want: true},
		{fact: "Orphaning", set: func(s *v1alpha1.MachineSet) { observetest.AsDeletingSet(s); s.Finalizers = []string{"orphan"} }, want: true},
		{fact: "Finalizer", set: func(s *v1alpha1.MachineSet) { s.Finalizers = []string{v1alpha1.FinalizerMachine} }, want: true},
		{fact: "Replicas", set: func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 3 }, want: 3},
		{fact: "Counted", set: func(s *v1alpha1.MachineSet) { s.Status.Replicas = 4 }, want: 4},
		{name: "of machines up to a version", fact: "Counted", set: func(s *v1alpha1.MachineSet) { s.Status.Replicas, s.Status.ObservedMachines = 4, "7" }, want: 4},
		{fact: "ActedOn", set: func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas = 2 }, want: 2},
		{fact: "Revision", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "7"), want: int64(7)},
		{name: "none", fact: "Revision", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "x"), want: int64(0)},
		{name: "below zero", fact: "Revision", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "-7"), want: int64(0)},
		{fact: "History", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevisionHistory, "1,3"), want: "1,3"},
		{name: "none", fact: "Desired", want: -1},
		{fact: "Desired", set: observetest.WithSetAnnotation(desired, "5"), want: 5},
		{name: "zero is a number", fact: "Desired", set: observetest.WithSetAnnotation(desired, "0"), want: 0},
		{name: "nonsense", fact: "Desired", set: observetest.WithSetAnnotation(desired, "five"), want: -1},
		{name: "none", fact: "Max", want: -1},
		{fact: "Max", set: observetest.WithSetAnnotation(most, "6"), want: 6},
		{name: "nonsense", fact: "Max", set: observetest.WithSetAnnotation(most, "-6"), want: -1},
		{name: "by its presence", fact: "NoScaleUp", set: observetest.WithSetLabel(v1alpha1.LabelScaleUpDisabled, ""), want: true},
		{fact: "MCM.Frozen", set: observetest.AsFrozenSet, want: true},
		{name: "somebody ended it", fact: "MCM.Frozen", set: observetest.CombineChanges(observetest.AsFrozenSet, observetest.WithSetAnnotation(v1alpha1.AnnotationUnfreeze, "")), want: false},
		{fact: "Failure.Reason", set: asFailingSet("True"), want: "ResourceExhausted"},
		{fact: "Failure.Message", set: asFailingSet("True"), want: "no room"},
		{name: "that is over", fact: "Failure", set: asFailingSet("False"), want: rollout.Problem{}},

		{name: "nothing differs", fact: "Drift", want: false},
		{name: "something is to be copied", fact: "Drift", deployment: minReady, want: true},
		{name: "not to former sets", fact: "Drift", deployment: observetest.CombineChanges(minReady, observetest.WithNewClass), want: false},
		{name: "the deployment has another number", fact: "Drift", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "8"), deployment: numbered, want: true},
		{name: "the deployment has none", fact: "Drift", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "8"), want: true},
		{name: "the same number", fact: "Drift", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "7"), deployment: numbered, want: false},
		{name: "it has yet to get one", fact: "Drift", deployment: numbered, want: false},
		{name: "former sets have other numbers", fact: "Drift", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "6"), deployment: observetest.CombineChanges(numbered, observetest.WithNewClass), want: false},
	} {
		t.Run(rowTitle(row.name, row.fact), func(t *testing.T) {
			s, d := observetest.NewSet("s"), observetest.NewDeployment("d")
			if row.set != nil {
				row.set(s)
			}
			if row.deployment != nil {
				row.deployment(d)
			}
			before := s.DeepCopy()
			assert.Equal(t, row.want, observetest.FieldByName(observedSet(d, s), row.fact))
			assert.Equal(t, before, s, "what is looked at stays as it is")
		})
		told[row.fact] = append(told[row.fact], row.want)
	}
	assertAllFactsHaveRows(t, rollout.MachineSet{}, told)
}

func withNodeLabel(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }
}

func withNodeAnnotation(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value) }
}

// withUpdateResult sets the label and the condition for the result of a node's in-place update.
func withUpdateResult(result, reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelUpdateResult, result)
		n.Status.Conditions = append(
			n.Status.Conditions,
			corev1.NodeCondition{Type: v1alpha1.NodeInPlaceUpdate, Status: "True", Reason: reason},
		)
	}
}

// Each row tests one fact about a machine of a deployment, derived from the machine, its node and its set.
func TestRolloutMember(t *testing.T) {
	is := observetest.WithPhase
	selected := withNodeLabel(v1alpha1.LabelSelectedForUpdate, "true")
	done := withUpdateResult("successful", v1alpha1.ReasonUpdateSuccessful)
	ours := observetest.CombineChanges(
		withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabled, "true"),
		withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabledByMCM, "true"),
	)
	minReady := func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 300 }
	troubled := func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed }
	handed := func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = "successful" }
	told := map[string][]any{"Moved": {"of Cluster API"}, "Unacknowledged": {"of Cluster API"}}
	for _, row := range []struct {
		name    string
		fact    string
		machine func(*v1alpha1.Machine)
		node    func(*corev1.Node) // nil: the machine has no node
		set     observetest.SetChange
		want    any
	}{
		{fact: "Name", want: "m"},
		{fact: "UID", want: "uid-m"},
		{fact: "Version", machine: observetest.WithResourceVersion("9"), want: "9"},
		{fact: "Created", machine: func(m *v1alpha1.Machine) { m.CreationTimestamp = observetest.MinutesBeforeNoon(5) }, want: observetest.MinutesBeforeNoon(5).Time},
		{fact: "MCM.Node", node: func(*corev1.Node) {}, want: "n"},
		{name: "that does not exist", fact: "MCM.Node", machine: observetest.WithNodeLabel("n"), want: ""},
		{fact: "Deleting", machine: observetest.AsDeletingMachine, want: true},

		{fact: "Ready", machine: is(v1alpha1.MachineRunning), want: true},
		{name: "being made", fact: "Ready", machine: is(v1alpha1.MachinePending), want: false},
		{fact: "Available", machine: is(v1alpha1.MachineRunning), want: true},
		{name: "without a cluster to join", fact: "Available", machine: is(v1alpha1.MachineAvailable), want: true},
		{name: "being made", fact: "Available", machine: is(v1alpha1.MachinePending), want: false},
		{name: "ready for not so long yet", fact: "Available", machine: observetest.WithReadyTime(observetest.MinutesBeforeNoon(4)), set: minReady, want: false},
		{name: "ready for long enough", fact: "Available", machine: observetest.WithReadyTime(observetest.MinutesBeforeNoon(5)), set: minReady, want: true},
		{name: "going", fact: "Available", machine: observetest.CombineChanges(is(v1alpha1.MachineRunning), observetest.AsDeletingMachine), want: false},
		{name: "under update", fact: "Available", machine: is(v1alpha1.MachineRunning), node: selected, want: false},
		{name: "updated", fact: "Available", machine: is(v1alpha1.MachineRunning), node: observetest.CombineChanges(selected, done), want: true},

		{name: "being made", fact: "Unhealthy", machine: is(v1alpha1.MachinePending), want: true},
		{name: "unhealthy", fact: "Unhealthy", machine: is(v1alpha1.MachineUnknown), want: true},
		{name: "running", fact: "Unhealthy", machine: is(v1alpha1.MachineRunning), want: false},
		{name: "without a cluster to join", fact: "Unhealthy", machine: is(v1alpha1.MachineAvailable), want: false},
		{name: "running, and ready for not so long yet", fact: "Unhealthy", machine: observetest.WithReadyTime(observetest.MinutesBeforeNoon(4)), set: minReady, want: false},
		{fact: "Failed", machine: is(v1alpha1.MachineFailed), want: true},
		{fact: "MCM.Troubled", machine: troubled, want: true},
		{fact: "MCM.Preserved", machine: observetest.AsPreservedMachine, want: true},
		{name: "failed and asks for it", fact: "MCM.Preserved", machine: observetest.CombineChanges(is(v1alpha1.MachineFailed), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveWhenFailed)), want: true},
		{name: "asks, and is well", fact: "MCM.Preserved", machine: observetest.CombineChanges(is(v1alpha1.MachineRunning), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveWhenFailed)), want: false},
		{name: "nobody said", fact: "Priority", want: 3},
		{fact: "Priority", machine: observetest.WithAnnotation(v1alpha1.AnnotationMachinePriority, "1"), want: 1},
		{fact: "First", machine: observetest.WithAnnotation(v1alpha1.AnnotationDeleteMachine, ""), want: true},
		{name: "as it stands", fact: "MCM.MarkedAt", machine: observetest.WithAnnotation(v1alpha1.AnnotationMarkedForDeletionTime, "soon"), want: "soon"},

		{fact: "MCM.Tainted", node: func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "theirs"}, {Key: v1alpha1.TaintPreferNoSchedule, Effect: "PreferNoSchedule"}}
		}, want: true},
		{name: "with the key alone", fact: "MCM.Tainted", node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPreferNoSchedule}} }, want: true},
		{name: "with another one", fact: "MCM.Tainted", node: observetest.WithCriticalTaint, want: false},
		{fact: "MCM.Guard", node: ours, want: "true"},
		{name: "as others wrote it", fact: "MCM.Guard", node: withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabled, "yes"), want: "yes"},
		{name: "of a machine that has not joined: its first sync writes it", fact: "MCM.Guard", machine: is(v1alpha1.MachinePending), node: withNodeLabel("os", "linux"), want: "true"},
		{name: "of one that has", fact: "MCM.Guard", machine: is(v1alpha1.MachineUnknown), node: withNodeLabel("os", "linux"), want: ""},
		{name: "that is not written yet is not ours", fact: "MCM.Guarded", machine: is(v1alpha1.MachinePending), node: withNodeLabel("os", "linux"), want: false},
		{name: "by us", fact: "MCM.Guarded", node: ours, want: true},
		{name: "by others", fact: "MCM.Guarded", node: withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabled, "true"), want: false},
		{name: "a marker alone", fact: "MCM.Guarded", node: withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabledByMCM, "true"), want: false},

		{fact: "MCM.Candidate", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "true"), want: true},
		{name: "with another value", fact: "MCM.Candidate", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "false"), want: false},
		{name: "a candidate", fact: "MCM.UpdateLabels", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "true"), want: true},
		{name: "a candidate of another value: the label is there", fact: "MCM.UpdateLabels", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "false"), want: true},
		{name: "selected", fact: "MCM.UpdateLabels", node: selected, want: true},
		{name: "with a result", fact: "MCM.UpdateLabels", node: withNodeLabel(v1alpha1.LabelUpdateResult, "failed"), want: true},
		{name: "with none of them", fact: "MCM.UpdateLabels", node: withNodeLabel("pool", "web"), want: false},
		{name: "selected", fact: "Updating", node: selected, want: true},
		{name: "a candidate", fact: "Updating", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "true"), want: false},
		{name: "selected, and failed", fact: "Updating", node: observetest.CombineChanges(selected, withUpdateResult("failed", v1alpha1.ReasonUpdateFailed)), want: true},
		{name: "selected, and done", fact: "Updating", node: observetest.CombineChanges(selected, done), want: false},
		{name: "done, and the machine has not seen it", fact: "Updating", machine: is(v1alpha1.MachineInPlaceUpdating), node: observetest.CombineChanges(selected, done), want: true},
		{name: "not selected, and the machine says so", fact: "Updating", machine: is(v1alpha1.MachineInPlaceUpdating), node: func(*corev1.Node) {}, want: true},
		{fact: "MCM.Updated", node: observetest.CombineChanges(selected, done), want: true},
		{name: "with success by its label alone", fact: "MCM.Updated", node: withUpdateResult("successful", v1alpha1.ReasonSelectedForUpdate), want: false},
		{name: "with success by its condition alone", fact: "MCM.Updated", node: withUpdateResult("", v1alpha1.ReasonUpdateSuccessful), want: false},
		{name: "in vain", fact: "MCM.Updated", node: withUpdateResult("failed", v1alpha1.ReasonUpdateFailed), want: false},
		{name: "and the machine has not seen it", fact: "MCM.Updated", machine: is(v1alpha1.MachineInPlaceUpdating), node: observetest.CombineChanges(selected, done), want: false},
		{fact: "MCM.HandedOver", machine: handed, want: true},
		{name: "the node's label is not the machine's", fact: "MCM.HandedOver", node: done, want: false},
	} {
		t.Run(rowTitle(row.name, row.fact), func(t *testing.T) {
			s := observetest.NewSet("s")
			m, n := observetest.MachineFromTemplate(observetest.WithOwnerSet(s)), observetest.NewNode()
			if row.machine != nil {
				row.machine(m)
			}
			if row.set != nil {
				row.set(s)
			}
			f := deployment.ObjectTree{
				Deployment: observetest.NewDeployment("d"),
				Sets:       []*v1alpha1.MachineSet{s},
				Members:    []*v1alpha1.Machine{m},
			}
			if row.node != nil {
				row.node(n)
				f.NodeOfMachine = func(*v1alpha1.Machine) *corev1.Node { return n }
			}
			before, nodeBefore := m.DeepCopy(), n.DeepCopy()
			assert.Equal(
				t,
				row.want,
				observetest.FieldByName(deployment.RolloutFacts(f, observetest.Noon).Sets[0].Machines[0], row.fact),
			)
			assert.Equal(t, before, m, "what is looked at stays as it is")
			assert.Equal(t, nodeBefore, n)
		})
		told[row.fact] = append(told[row.fact], row.want)
	}
	assertAllFactsHaveRows(t, rollout.Member{}, told)
}

// A deployment and its sets must count available machines in the same way: a deployment must not rely on available
// machines that its sets do not have.
func TestDeploymentAndSetsCountAlike(t *testing.T) {
	s := observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 300 })
	for _, m := range []*v1alpha1.Machine{
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachinePending)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithReadyTime(observetest.MinutesBeforeNoon(4))), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithReadyTime(observetest.MinutesBeforeNoon(6))),
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineUnknown)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineFailed)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineAvailable)),
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineCrashLoopBackOff)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineFailed), observetest.AsPreservedMachine),
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineInPlaceUpdateSuccessful)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineInPlaceUpdating)),
	} {
		above := observedSet(observetest.NewDeployment("d"), s, m).Machines[0]
		below := scale.PlanSet(set.ScaleFacts(s, observetest.RelatedMembers(m), observetest.Noon, 0)).Status.Counts
		assert.Equal(t, below.Available, map[bool]int{true: 1}[above.Available], m.Status.CurrentStatus.Phase)
		assert.Equal(t, below.Ready, map[bool]int{true: 1}[above.Ready], m.Status.CurrentStatus.Phase)
		assert.Equal(
			t,
			below.PreservedFailed,
			map[bool]int{true: 1}[above.Failed && above.MCM.Preserved],
			m.Status.CurrentStatus.Phase,
		)
	}
}

func TestAPreservedNodeCountsAlikeForSetAndDeployment(t *testing.T) {
	s := observetest.NewSet("s")
	m := observetest.MachineFromTemplate(
		observetest.WithOwnerSet(s),
		observetest.WithPhase(v1alpha1.MachineFailed),
		observetest.WithNodeLabel("n"),
	)
	n := observetest.NewNode()
	withNodeAnnotation(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveWhenFailed)(n)
	nodeOf := func(*v1alpha1.Machine) *corev1.Node { return n }
	related := observetest.RelatedMembers(m)
	related.NodeOfMachine = nodeOf
	o := deployment.RolloutFacts(
		deployment.ObjectTree{
			Deployment:    observetest.NewDeployment("d"),
			Sets:          []*v1alpha1.MachineSet{s},
			Members:       related.Members,
			NodeOfMachine: nodeOf,
		},
		observetest.Noon,
	)
	assert.True(t, o.Sets[0].Machines[0].MCM.Preserved)
	assert.True(t, set.ScaleFacts(s, related, observetest.Noon, 0).Members[0].MCM.Preserved)
}
