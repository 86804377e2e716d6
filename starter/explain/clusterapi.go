package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	capiset "millwright/observe/capi/set"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// readClusterAPIObject reads an object of Cluster API; nil if Cluster API is not installed. The argument meant is true
// if the user named the API group. If meant is false, readClusterAPIObject also returns nil for an object that
// Millwright does not reconcile.
func (x *explainCommand) readClusterAPIObject(
	ctx context.Context,
	clients kubecli.Clients,
	of kubecli.NamedKind,
	name string,
	meant bool,
) (*subject, error) {
	if served, err := clients.ClusterAPI.RequireServedIf(meant); err != nil || !served {
		return nil, err
	}
	switch of.Kind {
	case kubecli.KindClusterAPIMachine:
		return x.readClusterAPIMachine(ctx, clients.ClusterAPI, of, name, meant)
	case kubecli.KindClusterAPIDeployment:
		return x.readClusterAPIDeployment(ctx, clients.ClusterAPI, of, name, meant)
	default:
		return x.readClusterAPISet(ctx, clients.ClusterAPI, of, name, meant)
	}
}

// readClusterAPISet is readClusterAPIObject for a set.
func (x *explainCommand) readClusterAPISet(
	ctx context.Context,
	upstream *kubecli.ClusterAPIReader,
	of kubecli.NamedKind,
	name string,
	meant bool,
) (*subject, error) {
	set, err := upstream.Client().MachineSets(x.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || !meant && !capi.IsMarkedByMillwright(set) {
		return nil, err
	}
	s := &subject{
		kind:      of.FullName(),
		object:    set,
		operation: capiset.OperationOfSet(set),
		idleText:  availableText(valueOrZero(set.Status.AvailableReplicas), valueOrZero(set.Spec.Replicas)),
	}
	s.counts = &counts{
		Desired:   valueOrZero(set.Spec.Replicas),
		Ready:     valueOrZero(set.Status.ReadyReplicas),
		Available: valueOrZero(set.Status.AvailableReplicas),
	}
	if !capi.IsMarkedByMillwright(set) {
		s.operation, s.idleText = nil, notReconciledText(set)+"; "+s.idleText
		return s, nil
	}
	s.workflowKind, s.generation, s.observedGeneration = run.KindClusterAPISet, set.Generation, set.Status.ObservedGeneration
	return s, x.addClusterAPIMembers(ctx, upstream, s, []clusterv1.MachineSet{*set})
}

// readClusterAPIDeployment is readClusterAPIObject for a deployment.
func (x *explainCommand) readClusterAPIDeployment(
	ctx context.Context,
	upstream *kubecli.ClusterAPIReader,
	of kubecli.NamedKind,
	name string,
	meant bool,
) (*subject, error) {
	d, err := upstream.Client().Deployments(x.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || !meant && !capi.IsMarkedByMillwright(d) {
		return nil, err
	}
	wanted, has := valueOrZero(d.Spec.Replicas), &d.Status
	s := &subject{
		kind:      of.FullName(),
		object:    d,
		operation: deployment.OperationWithBlockers(d),
		idleText:  availableText(valueOrZero(has.AvailableReplicas), wanted),
	}
	s.counts = &counts{
		Desired:   wanted,
		Updated:   new(valueOrZero(has.UpToDateReplicas)),
		Ready:     valueOrZero(has.ReadyReplicas),
		Available: valueOrZero(has.AvailableReplicas),
	}
	if !capi.IsMarkedByMillwright(d) {
		s.operation, s.idleText = nil, notReconciledText(d)+"; "+s.idleText
		return s, nil
	}
	s.workflowKind, s.generation, s.observedGeneration = run.KindClusterAPIDeployment, d.Generation, has.ObservedGeneration
	sets, err := upstream.ListSets(ctx, x.Namespace)
	if err != nil {
		return nil, err
	}
	return s, x.addClusterAPIMembers(
		ctx,
		upstream,
		s,
		slices.DeleteFunc(sets, func(set clusterv1.MachineSet) bool { return !metav1.IsControlledBy(&set, d) }),
	)
}

// addClusterAPIMembers adds the machines of these sets to the subject.
func (x *explainCommand) addClusterAPIMembers(
	ctx context.Context,
	upstream *kubecli.ClusterAPIReader,
	s *subject,
	sets []clusterv1.MachineSet,
) error {
	machines, err := upstream.ListMachines(ctx, x.Namespace, sets)
	for i := range machines {
		s.members = append(s.members, newClusterAPIMemberMachine(&machines[i], x.Now()))
	}
	slices.SortFunc(s.members, func(a, b memberMachine) int { return cmp.Compare(a.name, b.name) })
	return err
}

// notReconciledText reports that Millwright does not reconcile an object, and names the value of the label that selects
// the object's controller.
func notReconciledText(o metav1.Object) string {
	return fmt.Sprintf(
		"it has no finalizer %s, so Millwright does not reconcile it; its label %s is %q",
		capi.Finalizer,
		clusterv1.WatchLabel,
		o.GetLabels()[clusterv1.WatchLabel],
	)
}

// readClusterAPIMachine is readClusterAPIObject for a machine. The returned subject has the workflow of the machine's
// set.
func (x *explainCommand) readClusterAPIMachine(
	ctx context.Context,
	upstream *kubecli.ClusterAPIReader,
	of kubecli.NamedKind,
	name string,
	meant bool,
) (*subject, error) {
	m, err := upstream.Client().Machines(x.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	s := &subject{kind: of.FullName(), object: m, idleText: "phase " + cmp.Or(m.Status.Phase, "new")}
	sets, err := upstream.ListSets(ctx, m.Namespace)
	if err != nil {
		return nil, err
	}
	for i := range sets {
		if metav1.IsControlledBy(m, &sets[i]) {
			s.workflowKind, s.workflowObject = run.KindClusterAPISet, &sets[i]
		}
	}
	if s.workflowKind == "" && !meant {
		return nil, nil
	}
	s.machine = new(newClusterAPIMemberMachine(m, x.Now()))
	s.operation = s.machine.operation
	return s, nil
}

// newClusterAPIMemberMachine returns a machine of Cluster API.
func newClusterAPIMemberMachine(m *clusterv1.Machine, now time.Time) memberMachine {
	return memberMachine{
		m.Name,
		cmp.Or(m.Status.Phase, "new"),
		capiset.MachineOperation(m, now),
		capiset.MachineWaitFacts(m, now).CurrentWait(),
	}
}

// valueOrZero returns the value of a number in a Cluster API object; 0 for nil.
func valueOrZero(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// addClusterAPIObjects adds the deployments and sets of Cluster API that Millwright reconciles, and their machines. If
// these objects cannot be read, addClusterAPIObjects adds a clause to processWarnings.
func (m *activeObjects) addClusterAPIObjects(
	ctx context.Context,
	clients kubecli.Clients,
	namespace string,
	add func(kind string, o metav1.Object, operation *v1alpha1.Operation),
) {
	deployments, err := clients.ClusterAPI.ListDeployments(ctx, namespace)
	var sets []clusterv1.MachineSet
	if err == nil {
		sets, err = clients.ClusterAPI.ListSets(ctx, namespace)
	}
	var machines []clusterv1.Machine
	if err == nil {
		machines, err = clients.ClusterAPI.ListMachines(ctx, namespace, sets)
	}
	if err != nil {
		m.processWarnings = append(
			m.processWarnings,
			"what is in motion of Cluster API is not known: "+kubecli.CollapseSpaces(err.Error()),
		)
	}
	var installation run.Installation
	if len(sets) > 0 {
		installation = clients.FindInstallation(ctx)
	}
	for i := range deployments {
		add(
			"machinedeployment."+clusterv1.GroupVersion.Group,
			&deployments[i],
			deployment.OperationWithBlockers(&deployments[i]),
		)
	}
	for i := range sets {
		operation := capiset.OperationOfSet(&sets[i])
		if operation != nil && installation != "" {
			s := subject{workflowKind: run.KindClusterAPISet, object: &sets[i]}
			operation.WorkflowID = s.workflowID(installation)
		}
		add("machineset."+clusterv1.GroupVersion.Group, &sets[i], operation)
	}
	for i := range machines {
		add(
			"machine."+clusterv1.GroupVersion.Group,
			&machines[i],
			newClusterAPIMemberMachine(&machines[i], m.now).operation,
		)
	}
}
