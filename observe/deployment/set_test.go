package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// observedSetFacts returns the facts about one set of a deployment.
func observedSetFacts(
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
func TestRolloutFactsOfASet(t *testing.T) {
	const desired, most = v1alpha1.AnnotationDesiredReplicas, v1alpha1.AnnotationMaxReplicas
	numbered := func(d *v1alpha1.MachineDeployment) { withDeploymentAnnotation(v1alpha1.AnnotationRevision, "7")(d) }
	minReady := func(d *v1alpha1.MachineDeployment) { d.Spec.MinReadySeconds = 5 }
	// TestRolloutFactsOfAMachine and observe/capi/deployment test the missing facts.
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
		{fact: "CreatedAt", set: func(s *v1alpha1.MachineSet) { s.CreationTimestamp = observetest.MinutesBeforeNoon(5) }, want: observetest.MinutesBeforeNoon(5).Time},
		{name: "of the template", fact: "Current", want: true},
		{name: "of another", fact: "Current", deployment: observetest.WithNewClass, want: false},
		{name: "of one that differs in what rolls nothing", fact: "Current", deployment: func(d *v1alpha1.MachineDeployment) {
			d.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}, want: true},
		{fact: "Deleting", set: observetest.AsDeletingSet, want: true},
		{fact: "MCM.Unselected", set: func(s *v1alpha1.MachineSet) { s.Labels = map[string]string{"app": "other"} }, want: true},
		{name: "an empty selector", fact: "MCM.Unselected", deployment: func(d *v1alpha1.MachineDeployment) { d.Spec.Selector = &metav1.LabelSelector{} }, want: true},
		{fact: "Orphaning", set: func(s *v1alpha1.MachineSet) { observetest.AsDeletingSet(s); s.Finalizers = []string{"orphan"} }, want: true},
		{fact: "HasFinalizer", set: func(s *v1alpha1.MachineSet) { s.Finalizers = []string{v1alpha1.FinalizerMachine} }, want: true},
		{fact: "Replicas", set: func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 3 }, want: 3},
		{fact: "StatusMachineCount", set: func(s *v1alpha1.MachineSet) { s.Status.Replicas = 4 }, want: 4},
		{name: "of machines up to a version", fact: "StatusMachineCount", set: func(s *v1alpha1.MachineSet) { s.Status.Replicas, s.Status.ObservedMachines = 4, "7" }, want: 4},
		{fact: "ObservedReplicas", set: func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas = 2 }, want: 2},
		{fact: "Revision", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "7"), want: int64(7)},
		{name: "none", fact: "Revision", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "x"), want: int64(0)},
		{name: "below zero", fact: "Revision", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "-7"), want: int64(0)},
		{fact: "History", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevisionHistory, "1,3"), want: "1,3"},
		{name: "none", fact: "DesiredReplicas", want: -1},
		{fact: "DesiredReplicas", set: observetest.WithSetAnnotation(desired, "5"), want: 5},
		{name: "zero is a number", fact: "DesiredReplicas", set: observetest.WithSetAnnotation(desired, "0"), want: 0},
		{name: "nonsense", fact: "DesiredReplicas", set: observetest.WithSetAnnotation(desired, "five"), want: -1},
		{name: "none", fact: "MaxReplicas", want: -1},
		{fact: "MaxReplicas", set: observetest.WithSetAnnotation(most, "6"), want: 6},
		{name: "nonsense", fact: "MaxReplicas", set: observetest.WithSetAnnotation(most, "-6"), want: -1},
		{name: "by its presence", fact: "ScaleUpDisabled", set: observetest.WithSetLabel(v1alpha1.LabelScaleUpDisabled, ""), want: true},
		{fact: "MCM.Frozen", set: observetest.AsFrozenSet, want: true},
		{name: "somebody ended it", fact: "MCM.Frozen", set: observetest.CombineChanges(observetest.AsFrozenSet, observetest.WithSetAnnotation(v1alpha1.AnnotationUnfreeze, "")), want: false},
		{fact: "Failure.Reason", set: asFailingSet("True"), want: "ResourceExhausted"},
		{fact: "Failure.Message", set: asFailingSet("True"), want: "no room"},
		{name: "that is over", fact: "Failure", set: asFailingSet("False"), want: rollout.Problem{}},

		{name: "nothing differs", fact: "Drifted", want: false},
		{name: "something is to be copied", fact: "Drifted", deployment: minReady, want: true},
		{name: "not to former sets", fact: "Drifted", deployment: observetest.CombineChanges(minReady, observetest.WithNewClass), want: false},
		{name: "the deployment has another number", fact: "Drifted", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "8"), deployment: numbered, want: true},
		{name: "the deployment has none", fact: "Drifted", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "8"), want: true},
		{name: "the same number", fact: "Drifted", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "7"), deployment: numbered, want: false},
		{name: "it has yet to get one", fact: "Drifted", deployment: numbered, want: false},
		{name: "former sets have other numbers", fact: "Drifted", set: observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, "6"), deployment: observetest.CombineChanges(numbered, observetest.WithNewClass), want: false},
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
			assert.Equal(t, row.want, observetest.FieldByName(observedSetFacts(d, s), row.fact))
			assert.Equal(t, before, s, "what is looked at stays as it is")
		})
		told[row.fact] = append(told[row.fact], row.want)
	}
	source := observedSource(withProviderAndSecrets, withNodeTemplate)
	for _, fact := range []string{"Provider", "Account", "InstanceType", "Object"} {
		told["Source."+fact] = []any{observetest.FieldByName(source, fact)}
	}
	told["MCM.MissingClass"] = []any{"TestSetWhoseClassIsDeletedReportsTheMissingClass"}
	assertEveryFactIsTested(t, rollout.MachineSet{}, told)
}

// observedSource returns the Source of a set of this class.
func observedSource(change ...func(*v1alpha1.MachineClass)) rollout.InstanceSource {
	class := observetest.NewClass("small", change...)
	tree := deployment.ObjectTree{
		Deployment: observetest.NewDeployment("d"), Sets: []*v1alpha1.MachineSet{observetest.NewSet("s")},
		ClassOfMachine: func(*v1alpha1.Machine) *v1alpha1.MachineClass { return class },
	}
	return deployment.RolloutFacts(tree, observetest.Noon).Sets[0].Source
}

// withProviderAndSecrets gives a class a provider and two Secrets.
func withProviderAndSecrets(c *v1alpha1.MachineClass) {
	c.Provider = "virtual"
	c.SecretRef = &corev1.SecretReference{Namespace: "shop", Name: "user-data"}
	c.CredentialsSecretRef = &corev1.SecretReference{Namespace: "shop", Name: "account"}
}

// When the class of a former set is deleted, the set reports the missing class. If classes are unknown, the set reports
// no missing class.
func TestSetWhoseClassIsDeletedReportsTheMissingClass(t *testing.T) {
	former := observetest.NewSet("former")
	current := observetest.NewSet("current", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "large" })
	tree := deployment.ObjectTree{
		Deployment: observetest.NewDeployment("d", observetest.WithNewClass), Sets: []*v1alpha1.MachineSet{former, current},
	}
	lacks := func() []string {
		sets := deployment.RolloutFacts(tree, observetest.Noon).Sets
		return []string{sets[0].MissingObject(), sets[1].MissingObject()}
	}
	tree.Deployment.Spec.Template = *current.Spec.Template.DeepCopy()
	assert.Equal(t, []string{"", ""}, lacks())
	tree.ClassOfMachine = func(*v1alpha1.Machine) *v1alpha1.MachineClass { return nil }
	assert.Equal(
		t, []string{"MachineClass " + former.Namespace + "/" + former.Spec.Template.Spec.Class.Name, ""}, lacks(),
		"the set of the template says so itself",
	)
	tree.ClassOfMachine = func(m *v1alpha1.Machine) *v1alpha1.MachineClass {
		return observetest.NewClass(m.Spec.Class.Name)
	}
	assert.Equal(t, []string{"", ""}, lacks())
}

func withNodeTemplate(c *v1alpha1.MachineClass) {
	c.NodeTemplate = &v1alpha1.NodeTemplate{InstanceType: "m5.large", Region: "eu-1", Zone: "a"}
}

func TestSourceOfASet(t *testing.T) {
	oneSecret := func(c *v1alpha1.MachineClass) { c.CredentialsSecretRef, c.SecretRef.Namespace = nil, "" }
	large := func(c *v1alpha1.MachineClass) { c.Provider = "Virtual" }
	user := "shop/user-data"
	assert.Equal(
		t,
		rollout.InstanceSource{Provider: "virtual", Account: "shop/account", Object: user},
		observedSource(withProviderAndSecrets),
		"without a node template, the type is unknown",
	)
	assert.Equal(
		t, rollout.InstanceSource{Provider: "virtual", InstanceType: "eu-1/a/m5.large", Object: user},
		observedSource(withProviderAndSecrets, oneSecret, withNodeTemplate),
		"each class may have a Secret of its own with the same credentials",
	)
	assert.Equal(
		t,
		observedSource(withProviderAndSecrets),
		observedSource(withProviderAndSecrets, large),
		"any case of letters",
	)
	assert.Zero(t, observedSource(), "a class without provider and Secrets")
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

// withCreationDenial gives a machine a usable class and the provider's reason for not creating the instance.
func withCreationDenial(reason string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(
			m.Status.Conditions,
			corev1.NodeCondition{Type: v1alpha1.MachineClassReady, Status: corev1.ConditionTrue},
			corev1.NodeCondition{Type: v1alpha1.MachineInstanceReady, Status: corev1.ConditionFalse, Reason: reason},
		)
	}
}

// withInstanceReason gives a machine the reason why it has no instance yet.
func withInstanceReason(reason string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(
			m.Status.Conditions,
			corev1.NodeCondition{Type: v1alpha1.MachineInstanceReady, Status: corev1.ConditionFalse, Reason: reason},
		)
	}
}

// withClassProblem gives a machine a class that cannot be used.
func withClassProblem(reason, message string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.MachineClassReady, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		})
	}
}

// If a Secret is missing, the condition does not show whether it is the Secret with the credentials or with the user
// data.
func TestCreationDenialsThatDependOnTheClass(t *testing.T) {
	denial := func(change func(*v1alpha1.Machine), served metav1.ConditionStatus) rollout.DenialReason {
		s := observetest.NewSet("s")
		class := observetest.NewClass("small", withProviderAndSecrets)
		class.Status.Conditions = []metav1.Condition{{Type: vocabulary.ConditionServed, Status: served}}
		return deployment.RolloutFacts(deployment.ObjectTree{
			Deployment: observetest.NewDeployment("d"), Sets: []*v1alpha1.MachineSet{s},
			Members:        []*v1alpha1.Machine{observetest.MachineFromTemplate(observetest.WithOwnerSet(s), change)},
			ClassOfMachine: func(*v1alpha1.Machine) *v1alpha1.MachineClass { return class },
		}, observetest.Noon).Sets[0].Machines[0].DenialReason
	}
	problem := func(reason string) rollout.DenialReason {
		return denial(withClassProblem(reason, "Secret shop/user-data: why"), metav1.ConditionTrue)
	}
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	assert.Equal(t, rollout.DeniedBySecret, problem(v1alpha1.ReasonSecretNotFound))
	assert.Equal(t, rollout.DeniedBySecret, problem(v1alpha1.ReasonSecretNotAllowed))
	assert.Equal(t, rollout.DeniedByTemplate, problem(v1alpha1.ReasonSecretInvalid), "the user data")
	assert.Equal(t, rollout.DeniedByWorker, denial(withInstanceReason(v1alpha1.ReasonCreating), no))
	assert.Equal(t, rollout.DeniedByNetwork, denial(withInstanceReason(v1alpha1.ReasonCreating), yes))
}

// Each row tests one fact about a machine of a deployment, derived from the machine, its node and its set.
func TestRolloutFactsOfAMachine(t *testing.T) {
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
	granted := observetest.WithAnnotation(v1alpha1.AnnotationReplacementGranted, "2026-01-01T12:00:00Z")
	named := func(uid types.UID) func(*v1alpha1.Machine) { return func(m *v1alpha1.Machine) { m.UID = uid } }
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
		{fact: "CreatedAt", machine: func(m *v1alpha1.Machine) { m.CreationTimestamp = observetest.MinutesBeforeNoon(5) }, want: observetest.MinutesBeforeNoon(5).Time},
		{fact: "MCM.NodeName", node: func(*corev1.Node) {}, want: "n"},
		{name: "that does not exist", fact: "MCM.NodeName", machine: observetest.WithNodeLabel("n"), want: ""},
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
		{fact: "Joined", machine: func(m *v1alpha1.Machine) { m.Status.JoinedAt = new(observetest.MinutesBeforeNoon(5)) }, want: true},
		{fact: "RemovalRequested", machine: observetest.WithAnnotation(v1alpha1.AnnotationReplacementGranted, "2026-01-01T12:00:00Z"), want: true},
		{name: "granted by the deployment", fact: "RemovalRequested", machine: observetest.CombineChanges(granted, named("due")), want: false},
		{name: "granted by a person, and on record", fact: "RemovalRequested", machine: observetest.CombineChanges(granted, named("asked")), want: true},
		{name: "deleted first", fact: "RemovalRequested", machine: observetest.WithAnnotation(v1alpha1.AnnotationDeleteMachine, ""), want: true},
		{fact: "DenialReason", machine: withCreationDenial("ResourceExhausted"), want: rollout.DeniedByQuota},
		{name: "credentials", fact: "DenialReason", machine: withCreationDenial("PermissionDenied"), want: rollout.DeniedByCredentials},
		{name: "no answer", fact: "DenialReason", machine: withCreationDenial(v1alpha1.ReasonCreating), want: rollout.DeniedByNetwork},
		{name: "an invalid class", fact: "DenialReason", machine: withCreationDenial("InvalidArgument"), want: rollout.DenialReason("")},
		{name: "before the first answer", fact: "DenialReason", machine: withInstanceReason(v1alpha1.ReasonCreating), want: rollout.DeniedByNetwork},
		{name: "no bootstrap token yet", fact: "DenialReason", want: rollout.DeniedByNetwork},
		{name: "no class", fact: "DenialReason", machine: withClassProblem(v1alpha1.ReasonClassNotFound, ""), want: rollout.DenialReason("")},
		{name: "a class that cannot be used", fact: "DenialReason", machine: withClassProblem(v1alpha1.ReasonClassInvalid, ""), want: rollout.DenialReason("")},
		{name: "the class was lost after a call", fact: "DenialReason", machine: observetest.CombineChanges(withInstanceReason("MaxUnavailable"), withClassProblem(v1alpha1.ReasonClassNotFound, "")), want: rollout.DenialReason("")},
		{name: "no Secret", fact: "DenialReason", machine: withClassProblem(v1alpha1.ReasonSecretNotFound, ""), want: rollout.DeniedBySecret},
		{name: "the instance exists", fact: "DenialReason", machine: observetest.CombineChanges(withCreationDenial("ResourceExhausted"), func(m *v1alpha1.Machine) { m.Spec.ProviderID = "x" }), want: rollout.DenialReason("")},
		{fact: "MCM.LastOperationFailed", machine: troubled, want: true},
		{fact: "MCM.Preserved", machine: observetest.AsPreservedMachine, want: true},
		{name: "failed and asks for it", fact: "MCM.Preserved", machine: observetest.CombineChanges(is(v1alpha1.MachineFailed), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveWhenFailed)), want: true},
		{name: "asks, and is well", fact: "MCM.Preserved", machine: observetest.CombineChanges(is(v1alpha1.MachineRunning), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveWhenFailed)), want: false},
		{name: "nobody said", fact: "Priority", want: 3},
		{fact: "Priority", machine: observetest.WithAnnotation(v1alpha1.AnnotationMachinePriority, "1"), want: 1},
		{fact: "DeleteFirst", machine: observetest.WithAnnotation(v1alpha1.AnnotationDeleteMachine, ""), want: true},
		{name: "as it stands", fact: "MCM.MarkedAt", machine: observetest.WithAnnotation(v1alpha1.AnnotationMarkedForDeletionTime, "soon"), want: "soon"},

		{fact: "MCM.NodeTainted", node: func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "theirs"}, {Key: v1alpha1.TaintPreferNoSchedule, Effect: "PreferNoSchedule"}}
		}, want: true},
		{name: "with the key alone", fact: "MCM.NodeTainted", node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPreferNoSchedule}} }, want: true},
		{name: "with another one", fact: "MCM.NodeTainted", node: observetest.WithCriticalTaint, want: false},
		{fact: "MCM.ScaleDownDisabledValue", node: ours, want: "true"},
		{name: "as others wrote it", fact: "MCM.ScaleDownDisabledValue", node: withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabled, "yes"), want: "yes"},
		{name: "of a machine that has not joined: its first sync writes it", fact: "MCM.ScaleDownDisabledValue", machine: is(v1alpha1.MachinePending), node: withNodeLabel("os", "linux"), want: "true"},
		{name: "of one that has", fact: "MCM.ScaleDownDisabledValue", machine: is(v1alpha1.MachineUnknown), node: withNodeLabel("os", "linux"), want: ""},
		{name: "that is not written yet is not ours", fact: "MCM.ScaleDownDisabledByMillwright", machine: is(v1alpha1.MachinePending), node: withNodeLabel("os", "linux"), want: false},
		{name: "by us", fact: "MCM.ScaleDownDisabledByMillwright", node: ours, want: true},
		{name: "by others", fact: "MCM.ScaleDownDisabledByMillwright", node: withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabled, "true"), want: false},
		{name: "a marker alone", fact: "MCM.ScaleDownDisabledByMillwright", node: withNodeAnnotation(v1alpha1.AnnotationScaleDownDisabledByMCM, "true"), want: false},

		{fact: "MCM.IsUpdateCandidate", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "true"), want: true},
		{name: "with another value", fact: "MCM.IsUpdateCandidate", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "false"), want: false},
		{name: "a candidate", fact: "MCM.HasUpdateLabels", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "true"), want: true},
		{name: "a candidate of another value: the label is there", fact: "MCM.HasUpdateLabels", node: withNodeLabel(v1alpha1.LabelCandidateForUpdate, "false"), want: true},
		{name: "selected", fact: "MCM.HasUpdateLabels", node: selected, want: true},
		{name: "with a result", fact: "MCM.HasUpdateLabels", node: withNodeLabel(v1alpha1.LabelUpdateResult, "failed"), want: true},
		{name: "with none of them", fact: "MCM.HasUpdateLabels", node: withNodeLabel("pool", "web"), want: false},
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
			d := observetest.NewDeployment("d")
			d.Status.Replacements = []v1alpha1.MachineReplacement{
				{UID: "due", Reason: v1alpha1.ReasonCreationTimeout}, {UID: "asked", Reason: vocabulary.ReasonGrantedByPerson},
			}
			f := deployment.ObjectTree{Deployment: d, Sets: []*v1alpha1.MachineSet{s}, Members: []*v1alpha1.Machine{m}}
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
	assertEveryFactIsTested(t, rollout.Member{}, told)
}

// A deployment and its sets must agree on which machines are available: otherwise the deployment would rely on machines
// that its sets do not count as available.
func TestDeploymentAndSetsCountMachinesAlike(t *testing.T) {
	s := observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 300 })
	for _, m := range []*v1alpha1.Machine{
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachinePending)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithReadyTime(observetest.MinutesBeforeNoon(4))), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithReadyTime(observetest.MinutesBeforeNoon(6))),
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineUnknown)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineFailed)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineAvailable)),
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineCrashLoopBackOff)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineFailed), observetest.AsPreservedMachine),
		observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineInPlaceUpdateSuccessful)), observetest.MachineFromTemplate(observetest.WithOwnerSet(s), observetest.WithPhase(v1alpha1.MachineInPlaceUpdating)),
	} {
		above := observedSetFacts(observetest.NewDeployment("d"), s, m).Machines[0]
		below := scale.PlanSet(set.ScaleFacts(s, observetest.RelatedObjectsWithMembers(m), observetest.Noon, 0)).Status.Counts
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
	related := observetest.RelatedObjectsWithMembers(m)
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
