package watch

import (
	"context"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/class"
	"millwright/observe/deployment"
	"millwright/observe/machine"
	"millwright/observe/set"
	"millwright/workflows/run"
)

// subject is an object with everything that a signal to its workflow needs.
type subject struct {
	ref        cache.Ref
	generation int64
	deleting   bool
	owner      run.Owner
	decision   attention.Decision
	// versions are those of all objects that the decision was made from. The workflow's decision must see at least these:
	// the worker's caches may be behind the bridge's in a resource without an event, such as the class of a new machine.
	versions    cache.MinVersions
	unexplained bool   // the status of a machine does not name what blocks it
	rollout     string // workflow ID of the open rollout, from the status; empty: none
}

// ours reports whether Millwright acts on objects of a kind in a namespace.
func (b *Bridge) ours(kind run.Kind, namespace string) bool {
	switch kind {
	case run.KindClusterAPISet, run.KindClusterAPIDeployment, run.KindClusterAPIDrain, run.KindClusterAPIRollout:
		return b.cluster.Acts(namespace)
	default:
		return b.cluster.Ours(namespace)
	}
}

// subject reads an object from the caches and decides whether it is calm.
func (b *Bridge) subject(ctx context.Context, k key) (s subject, found bool) {
	if !b.ours(k.kind, k.namespace) {
		return subject{}, false // as if it did not exist: its run, if there is one, ends
	}
	id := k.namespace + "/" + k.name
	switch k.kind {
	case run.KindMachine:
		if m, found := b.cluster.Machine(id); found {
			return b.machine(m), true
		}
	case run.KindMachineSet:
		if s, found := b.cluster.Set(id); found {
			return b.set(s), true
		}
	case run.KindClusterAPISet:
		if s, found := b.api.Set(id); found {
			return b.clusterAPISet(ctx, s), true
		}
	case run.KindClusterAPIDeployment:
		if d, found := b.api.OwnDeployment(id); found {
			return b.clusterAPIDeployment(ctx, d), true
		}
	case run.KindClusterAPIDrain:
		if m, found := b.api.Machine(id); found {
			return b.clusterAPIDrain(m), true
		}
	case run.KindMachineClass:
		if c, found := b.cluster.Class(id); found {
			return b.class(c), true
		}
	default:
		if d, found := b.cluster.Deployment(id); found {
			return b.deployment(d), true
		}
	}
	return subject{}, false
}

// set returns the subject of a set. Its versions include those of the machines and of all other objects that the
// decision reads.
func (b *Bridge) set(of *v1alpha1.MachineSet) subject {
	related := set.Read(b.cluster, of)
	observed := set.Observed(of, related, time.Now(), 0)
	plan := set.Explain(of, related, observed, scale.Plan(observed))
	s := describe(cache.Sets, of, unlessSaid(plan.Pending, plan.Said))
	for _, m := range slices.Concat(related.Members, related.Orphans) {
		s.versions.Raise(cache.Machines, m.ResourceVersion)
		if node := related.NodeAsked(m); node != nil {
			s.versions.Raise(cache.Nodes, node.ResourceVersion)
		}
	}
	s.versions.Raise(cache.ControlPlanes, related.ControlPlane)
	s.versions.Raise(cache.Classes, related.Class)
	if related.Policy != nil {
		s.versions.Raise(cache.Policies, related.Policy.ResourceVersion)
	}
	if related.Deployment != nil {
		s.versions.Raise(cache.Deployments, related.Deployment.ResourceVersion)
	}
	s.owner = run.Owner{MachineSet: of.Name, MachineDeployment: controller(of)}
	return s
}

// class returns the subject of a class. Its versions include those of the other objects in the namespace that the
// decision reads.
func (b *Bridge) class(c *v1alpha1.MachineClass) subject {
	neighbours := class.Read(b.cluster, c.Namespace)
	facts := class.Facts(c, neighbours)
	served, asked := b.isServed(c.ProviderName())
	facts.Checked, facts.Unserved = asked, !served
	s := describe(cache.Classes, c, attention.DecideClass(facts))
	for resource, version := range neighbours.Versions() {
		s.versions.Raise(resource, version)
	}
	s.owner = run.Owner{Provider: c.ProviderName()}
	return s
}

// deployment returns the subject of a deployment. Its versions include those of its sets and machines.
func (b *Bridge) deployment(d *v1alpha1.MachineDeployment) subject {
	tree := deployment.Read(b.cluster, d)
	now := time.Now()
	plan := rollout.Plan(deployment.Observed(tree, now))
	// while a replacement is held, the deployment is not calm
	hold := deployment.MessageOf(d, v1alpha1.MachineDeploymentReplacementHeld)
	said := deployment.IsExplained(&d.Status, deployment.Explained(tree, plan, hold, now).Blocked(now))
	s := describe(cache.Deployments, d, unlessSaid(plan.Pending, said))
	if tree.Policy != nil {
		s.versions.Raise(cache.Policies, tree.Policy.ResourceVersion)
	}
	for _, set := range slices.Concat(tree.Sets, tree.Orphans) {
		s.versions.Raise(cache.Sets, set.ResourceVersion)
	}
	for _, m := range tree.Members {
		s.versions.Raise(cache.Machines, m.ResourceVersion)
		if node := tree.Node(m); node != nil &&
			d.Spec.Strategy.EffectiveType() == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType {
			s.versions.Raise(cache.Nodes, node.ResourceVersion) // it has the result of the in-place update
		}
	}
	s.owner = run.Owner{MachineDeployment: d.Name}
	s.rollout = deployment.Named(d)
	return s
}

// machine returns the subject of a machine. Its versions include those of its node and its class.
func (b *Bridge) machine(m *v1alpha1.Machine) subject {
	node, related := b.cluster.NodeOf(m), machine.Read(b.cluster, m)
	s := describe(cache.Machines, m, attention.PlanMachine(machine.Facts(m, related, time.Time{})).Decision)
	s.unexplained = !machine.IsExplained(m, machine.Explained(m, related.Class, time.Now()).WaitsFor())
	if node != nil {
		s.versions.Raise(cache.Nodes, node.ResourceVersion)
	}
	s.owner = run.Owner{Machine: m.Name, MachineSet: controller(m)}
	if set, found := b.cluster.Set(m.Namespace + "/" + s.owner.MachineSet); found {
		s.owner.MachineDeployment = controller(set)
	}
	if class, found := b.cluster.Class(m.Namespace + "/" + m.Spec.Class.Name); found {
		s.owner.Provider = class.ProviderName()
		s.versions.Raise(cache.Classes, class.ResourceVersion)
	}
	return s
}

// unlessSaid returns the pending work of a set or a deployment. If it has none, but its status does not say what blocks
// it, the pending work is to write that status.
func unlessSaid(pending attention.Decision, said bool) attention.Decision {
	if pending.Calm() && !said {
		return attention.Decision{Need: attention.Scale, Why: "the status does not say what blocks it"}
	}
	return pending
}

func describe(resource cache.Resource, o metav1.Object, d attention.Decision) subject {
	return subject{
		ref: refOf(o), generation: o.GetGeneration(), deleting: deleting(o), decision: d,
		versions: cache.MinVersions{resource: o.GetResourceVersion()},
	}
}

// options returns the options for starting the object's workflow.
func (b *Bridge) options(k key, s subject) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       b.installation.ID(k.kind, s.ref),
		TaskQueue:                b.installation.Queue(run.QueueMachines),
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    run.StartAttributes(k.namespace, s.owner),
		Priority:                 run.Priority(k.kind, k.namespace, s.owner),
		StaticSummary:            fmt.Sprintf("%s %s/%s", k.kind, k.namespace, k.name),
		StaticDetails:            "started because: " + s.decision.Why,
	}
}
