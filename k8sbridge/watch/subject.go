package watch

import (
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
	"millwright/workflows"
)

// subject is an object as its workflow is told about it.
type subject struct {
	ref        observe.Ref
	generation int64
	deleting   bool
	owner      workflows.Owner
	decision   attention.Decision
	nodeless   bool // a machine for which it makes no difference any more how its node is
	// versions are those of all that the decision was made of. Who is told to look must see no less: the caches of the
	// worker may be behind ours in a resource of which nothing was to be told, such as the class of a new machine.
	versions observe.Gate
	rollout  string // workflow ID of the rollout that is open, as the status names it; empty when none is
}

// subject reads an object from the caches and asks whether it is calm.
func (b *Bridge) subject(k key) (subject, bool) {
	id := k.namespace + "/" + k.name
	switch k.kind {
	case workflows.KindMachine:
		m, found := b.cluster.Machine(id)
		if !found {
			return subject{}, false
		}
		return b.machine(m), true
	case workflows.KindMachineSet:
		set, found := b.cluster.Set(id)
		if !found {
			return subject{}, false
		}
		around := b.cluster.AroundSet(set)
		s := describe(observe.Sets, set, attention.MachineSet(observe.SetFacts(set, around, time.Now())))
		for _, m := range slices.Concat(around.Members, around.Orphans) {
			s.versions.Raise(observe.Machines, m.ResourceVersion)
			if node := around.NodeAsked(m); node != nil {
				s.versions.Raise(observe.Nodes, node.ResourceVersion)
			}
		}
		s.versions.Raise(observe.ControlPlanes, around.ControlPlane)
		s.versions.Raise(observe.Classes, around.Class)
		if around.Deployment != nil {
			s.versions.Raise(observe.Deployments, around.Deployment.ResourceVersion)
		}
		s.owner = workflows.Owner{MachineSet: set.Name, MachineDeployment: controller(set)}
		return s, true
	case workflows.KindMachineClass:
		class, found := b.cluster.Class(id)
		if !found {
			return subject{}, false
		}
		neighbours := b.cluster.Neighbours(k.namespace)
		s := describe(observe.Classes, class, attention.Class(observe.ClassFacts(class, neighbours)))
		for resource, version := range neighbours.Versions() {
			s.versions.Raise(resource, version)
		}
		s.owner = workflows.Owner{Provider: class.Provider}
		return s, true
	default:
		d, found := b.cluster.Deployment(id)
		if !found {
			return subject{}, false
		}
		return b.deployment(d), true
	}
}

// deployment describes a deployment with all below it.
func (b *Bridge) deployment(d *v1alpha1.MachineDeployment) subject {
	family := b.cluster.Family(d)
	s := describe(observe.Deployments, d, attention.MachineDeployment(observe.DeploymentFacts(family, b.now())))
	for _, set := range family.Sets {
		s.versions.Raise(observe.Sets, set.ResourceVersion)
	}
	for _, m := range family.Members {
		s.versions.Raise(observe.Machines, m.ResourceVersion)
		if node := family.Node(m); node != nil && d.Spec.Strategy.EffectiveType() == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType {
			s.versions.Raise(observe.Nodes, node.ResourceVersion) // it says how the update went
		}
	}
	s.owner = workflows.Owner{MachineDeployment: d.Name}
	s.rollout = observe.RolloutNamed(d)
	return s
}

// machine describes a machine with its node, class and parents.
func (b *Bridge) machine(m *v1alpha1.Machine) subject {
	node := b.cluster.NodeOf(m)
	facts := observe.MachineFacts(m, b.cluster.Around(m), time.Time{})
	s := describe(observe.Machines, m, attention.Machine(facts))
	s.nodeless = facts.Deleting && facts.Emptied
	if node != nil {
		s.versions.Raise(observe.Nodes, node.ResourceVersion)
	}
	s.owner = workflows.Owner{Machine: m.Name, MachineSet: controller(m)}
	if set, found := b.cluster.Set(m.Namespace + "/" + s.owner.MachineSet); found {
		s.owner.MachineDeployment = controller(set)
	}
	if class, found := b.cluster.Class(m.Namespace + "/" + m.Spec.Class.Name); found {
		s.owner.Provider = class.Provider
		s.versions.Raise(observe.Classes, class.ResourceVersion)
	}
	return s
}

func describe(resource observe.Resource, o metav1.Object, d attention.Decision) subject {
	return subject{
		ref: refOf(o), generation: o.GetGeneration(), deleting: deleting(o), decision: d,
		versions: observe.Gate{resource: o.GetResourceVersion()},
	}
}

// said is what attention says of it; empty when it is calm.
func (s subject) said() string {
	if s.decision.Calm() {
		return ""
	}
	return string(s.decision.Need) + ": " + s.decision.Why
}

// pause is the least time until the next signal.
func (s subject) pause() time.Duration {
	if s.rollout != "" {
		return perRollout
	}
	return perObject
}

// options are those of a run that has yet to be started.
func (s subject) options(k key) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       workflows.ID(k.kind, s.ref),
		TaskQueue:                workflows.QueueMachines,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    workflows.StartAttributes(k.namespace, s.owner),
		Priority:                 workflows.Priority(k.kind, k.namespace, s.owner),
		StaticSummary:            fmt.Sprintf("%s %s/%s", k.kind, k.namespace, k.name),
		StaticDetails:            "started because: " + s.decision.Why,
	}
}
