package migrate

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/ownership"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/decide/takeover"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/observe/machine"
	"millwright/observe/set"
	"millwright/provider"
)

// addFacts adds the facts about each object, including the decision that Millwright would make.
func (o namespaceObjects) addFacts(f *takeover.Facts) {
	f.Classes = o.classFacts()
	for _, d := range o.deployments {
		f.Deployments = append(f.Deployments, o.deploymentFacts(d))
	}
	for _, s := range o.sets {
		f.Sets = append(f.Sets, o.setFacts(s))
	}
	for _, m := range o.machines {
		f.Machines = append(f.Machines, o.machineFacts(m))
	}
}

func (o namespaceObjects) classFacts() (facts []takeover.Class) {
	users := map[string]int{}
	for name := range o.classes {
		users[name] = 0
	}
	for _, d := range o.deployments {
		users[d.Spec.Template.Spec.Class.Name] += 0
	}
	for _, m := range o.machines {
		users[m.Spec.Class.Name]++
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		c := takeover.Class{Name: name, MachineCount: users[name]}
		if class := o.classes[name]; class != nil {
			c.Exists, c.Provider = true, class.ProviderName()
			if err := provider.ValidateName(c.Provider); err != nil {
				c.InvalidProviderReason = err.Error()
			}
		}
		facts = append(facts, c)
	}
	return facts
}

func (o namespaceObjects) nodeOfMachine(m *v1alpha1.Machine) *corev1.Node {
	return o.nodes[cache.NodeNameOfMachine(m)]
}

func (o namespaceObjects) classOfMachine(m *v1alpha1.Machine) *v1alpha1.MachineClass {
	return o.classes[m.Spec.Class.Name]
}

// machinesOfSet returns the machines of a set.
func (o namespaceObjects) machinesOfSet(s *v1alpha1.MachineSet) (members []*v1alpha1.Machine) {
	for _, m := range o.machines {
		if metav1.IsControlledBy(m, s) {
			members = append(members, m)
		}
	}
	return members
}

func (o namespaceObjects) deploymentFacts(d *v1alpha1.MachineDeployment) takeover.Deployment {
	tree := deployment.ObjectTree{
		Deployment:     d,
		NodeOfMachine:  o.nodeOfMachine,
		ClassOfMachine: o.classOfMachine,
		GuardsNodes:    true,
		BehavesAsMCM:   o.actsAsMCM,
		Policy:         cache.FirstMatchingPolicy(o.policies, d),
	}
	for _, s := range o.sets {
		switch {
		case metav1.IsControlledBy(s, d):
			tree.Sets, tree.Members = append(tree.Sets, s), append(tree.Members, o.machinesOfSet(s)...)
		case cache.CanBeAdopted(s, d, cache.KindDeployment):
			tree.Orphans = append(tree.Orphans, s)
		}
	}
	observed := deployment.RolloutFacts(tree, o.now)
	plan := rollout.PlanDeployment(observed)
	return takeover.Deployment{
		Name:             d.Name,
		InvalidReason:    observed.InvalidReason,
		MinReadyDuration: time.Duration(d.Spec.MinReadySeconds) * time.Second,
		Frozen:           cache.IsFrozen(d),
		NeedsNewSet:      plan.Decision.Create != nil,
		Rolling:          plan.Decision.Rolling && plan.Decision.HoldBy != rollout.HeldByPause,
		NextAction:       plan.Decision.Why,
	}
}

// setFacts returns the facts about a set. The seed for new machine names is 0, because the names are not used.
func (o namespaceObjects) setFacts(s *v1alpha1.MachineSet) takeover.MachineSet {
	related := set.RelatedObjects{
		Members:        o.machinesOfSet(s),
		NodeOfMachine:  o.nodeOfMachine,
		ClassOfMachine: o.classOfMachine,
		BehavesAsMCM:   o.actsAsMCM,
	}
	for _, m := range o.machines {
		if cache.CanBeAdopted(m, s, cache.KindSet) {
			related.Orphans = append(related.Orphans, m)
		}
	}
	for _, d := range o.deployments {
		if metav1.IsControlledBy(s, d) {
			related.Deployment, related.Policy = d, cache.FirstMatchingPolicy(o.policies, d)
		}
	}
	if related.Deployment == nil {
		related.Policy = cache.FirstMatchingPolicy(o.policies, s)
	}
	observed := set.ScaleFacts(s, related, o.now, 0)
	d := scale.PlanSet(observed).Decision
	return takeover.MachineSet{
		Name:                s.Name,
		Standalone:          related.Deployment == nil,
		InvalidReason:       observed.InvalidReason,
		Frozen:              cache.IsFrozen(s),
		MinReadyDuration:    time.Duration(s.Spec.MinReadySeconds) * time.Second,
		CreationCount:       len(d.Create),
		DeletionCount:       len(d.Delete) + len(d.Remediate),
		MetadataChangeCount: len(d.Adopt) + len(d.Release) + len(d.Sync) + len(d.Keep),
		NextAction:          d.Why,
	}
}

func (o namespaceObjects) machineFacts(m *v1alpha1.Machine) takeover.Machine {
	node := o.nodeOfMachine(m)
	related := machine.RelatedObjects{
		Node:            node,
		NodeGone:        node == nil,
		FoundNode:       o.nodeByProviderID(m),
		Class:           o.classOfMachine(m),
		Set:             o.setOfMachine(m),
		NoTargetCluster: o.hasNoNodes,
	}
	facts := machine.Facts(m, related, o.now)
	// Millwright writes the UID on every node, so a missing UID does not matter here
	facts.Wanted.MachineUID = ""
	plan := attention.PlanMachine(facts)
	failed := m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed
	f := takeover.Machine{
		Name:       m.Name,
		NodeName:   cache.NodeNameOfMachine(m),
		ProviderID: m.Spec.ProviderID,
		Deleting:   m.DeletionTimestamp != nil,
		Need:       plan.Need,
		NeedReason: plan.Why,
		Preserved:  machine.IsPreserved(m) || failed && machine.IsProtectedFromReplacement(m, node),
	}
	f.Fails = f.Need != attention.NeedDeletion && !f.Preserved && (failed ||
		plan.Health != nil && plan.Health.Change != nil && plan.Health.Change.Phase == string(v1alpha1.MachineFailed))
	if node != nil && node.Spec.ProviderID != "" && m.Spec.ProviderID != "" &&
		!ownership.IsSameInstance(node.Spec.ProviderID, m.Spec.ProviderID) {
		f.NodeProviderID = node.Spec.ProviderID
	}
	return f
}

// nodeByProviderID returns the node with a machine's provider ID if the machine has no node name yet; nil if there is
// no such node.
func (o namespaceObjects) nodeByProviderID(m *v1alpha1.Machine) *corev1.Node {
	id := cache.UnnamedNodeProviderID(m)
	for _, name := range slices.Sorted(maps.Keys(o.nodes)) {
		if ownership.IsSameInstance(o.nodes[name].Spec.ProviderID, id) {
			return o.nodes[name]
		}
	}
	return nil
}

// setOfMachine returns the set that controls a machine; nil if no set controls the machine.
func (o namespaceObjects) setOfMachine(m *v1alpha1.Machine) *v1alpha1.MachineSet {
	i := slices.IndexFunc(o.sets, func(s *v1alpha1.MachineSet) bool { return metav1.IsControlledBy(m, s) })
	if i < 0 {
		return nil
	}
	return o.sets[i]
}
