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

// subject is an object with the data for a signal to its workflow.
type subject struct {
	ref        cache.Ref
	generation int64
	deleting   bool
	owner      run.Owner
	decision   attention.Decision
	// versions are the resource versions of all objects that the decision read. The workflow's decision must read at
	// least the subject's versions: for a resource without an event, such as a new machine's class, the worker's
	// cache may be behind the bridge's cache.
	versions          cache.MinVersions
	blockerUnreported bool   // the status of a machine does not name its blocker
	openRolloutID     string // workflow ID of the open rollout in the status; empty: none
}

// actsOn reports whether Millwright acts on objects of a kind in a namespace.
func (b *Bridge) actsOn(kind run.Kind, namespace string) bool {
	switch kind {
	case run.KindClusterAPISet, run.KindClusterAPIDeployment, run.KindClusterAPIDrain, run.KindClusterAPIRollout:
		return b.cluster.ActsIn(namespace)
	default:
		return b.cluster.ActsOnMachines(namespace)
	}
}

// subject reads an object from the caches and decides whether the object is calm.
func (b *Bridge) subject(ctx context.Context, k objectKey) (s subject, found bool) {
	if !b.actsOn(k.kind, k.namespace) {
		return subject{}, false // the object counts as missing, so its open run ends
	}
	id := k.namespace + "/" + k.name
	switch k.kind {
	case run.KindMachine:
		if m, found := b.cluster.Machine(id); found {
			return b.machineSubject(m), true
		}
	case run.KindMachineSet:
		if s, found := b.cluster.Set(id); found {
			return b.setSubject(s), true
		}
	case run.KindClusterAPISet:
		if s, found := b.clusterAPI.Set(id); found {
			return b.clusterAPISetSubject(ctx, s), true
		}
	case run.KindClusterAPIDeployment:
		if d, found := b.clusterAPI.OwnDeployment(id); found {
			return b.clusterAPIDeploymentSubject(ctx, d), true
		}
	case run.KindClusterAPIDrain:
		if m, found := b.clusterAPI.Machine(id); found {
			return b.clusterAPIDrainSubject(m), true
		}
	case run.KindMachineClass:
		if c, found := b.cluster.Class(id); found {
			return b.classSubject(c), true
		}
	default:
		if d, found := b.cluster.Deployment(id); found {
			return b.deploymentSubject(d), true
		}
	}
	return subject{}, false
}

// setSubject returns the subject for a set. The subject's versions include those of the machines and of all other
// objects that the decision reads.
func (b *Bridge) setSubject(of *v1alpha1.MachineSet) subject {
	related := set.Read(b.cluster, of)
	observed := set.Observed(of, related, time.Now(), 0)
	plan := set.Explain(of, related, observed, scale.Plan(observed))
	s := newSubject(cache.Sets, of, pendingOrStatusWrite(plan.Pending, plan.Said))
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
	s.owner = run.Owner{MachineSet: of.Name, MachineDeployment: controllerName(of)}
	return s
}

// classSubject returns the subject for a class. The subject's versions include those of the other objects in the
// namespace that the decision reads.
func (b *Bridge) classSubject(c *v1alpha1.MachineClass) subject {
	neighbours := class.Read(b.cluster, c.Namespace)
	facts := class.Facts(c, neighbours)
	served, asked := b.hasWorker(c.ProviderName())
	facts.Checked, facts.Unserved = asked, !served
	s := newSubject(cache.Classes, c, attention.DecideClass(facts))
	for resource, version := range neighbours.Versions() {
		s.versions.Raise(resource, version)
	}
	s.owner = run.Owner{Provider: c.ProviderName()}
	return s
}

// deploymentSubject returns the subject for a deployment. The subject's versions include those of the deployment's
// sets and machines.
func (b *Bridge) deploymentSubject(d *v1alpha1.MachineDeployment) subject {
	tree := deployment.Read(b.cluster, d)
	now := time.Now()
	plan := rollout.Plan(deployment.Observed(tree, now))
	// while a replacement is held, the deployment is not calm
	hold := deployment.MessageOf(d, v1alpha1.MachineDeploymentReplacementHeld)
	said := deployment.IsExplained(&d.Status, deployment.Explained(tree, plan, hold, now).Blocked(now))
	s := newSubject(cache.Deployments, d, pendingOrStatusWrite(plan.Pending, said))
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
			s.versions.Raise(cache.Nodes, node.ResourceVersion) // the node has the result of the in-place update
		}
	}
	s.owner = run.Owner{MachineDeployment: d.Name}
	s.openRolloutID = deployment.Named(d)
	return s
}

// machineSubject returns the subject for a machine. The subject's versions include those of the machine's node and
// class.
func (b *Bridge) machineSubject(m *v1alpha1.Machine) subject {
	node, related := b.cluster.NodeOf(m), machine.Read(b.cluster, m)
	s := newSubject(cache.Machines, m, attention.PlanMachine(machine.Facts(m, related, time.Time{})).Decision)
	s.blockerUnreported = !machine.IsExplained(m, machine.Explained(m, related.Class, time.Now()).WaitsFor())
	if node != nil {
		s.versions.Raise(cache.Nodes, node.ResourceVersion)
	}
	s.owner = run.Owner{Machine: m.Name, MachineSet: controllerName(m)}
	if set, found := b.cluster.Set(m.Namespace + "/" + s.owner.MachineSet); found {
		s.owner.MachineDeployment = controllerName(set)
	}
	if class, found := b.cluster.Class(m.Namespace + "/" + m.Spec.Class.Name); found {
		s.owner.Provider = class.ProviderName()
		s.versions.Raise(cache.Classes, class.ResourceVersion)
	}
	return s
}

// pendingOrStatusWrite returns the pending work of a set or a deployment. If there is no pending work but the status
// does not name the blocker, pendingOrStatusWrite returns the write of the status as pending work.
func pendingOrStatusWrite(pending attention.Decision, said bool) attention.Decision {
	if pending.Calm() && !said {
		return attention.Decision{Need: attention.Scale, Why: "the status does not say what blocks it"}
	}
	return pending
}

func newSubject(resource cache.Resource, o metav1.Object, d attention.Decision) subject {
	return subject{
		ref: refOf(o), generation: o.GetGeneration(), deleting: isDeleting(o), decision: d,
		versions: cache.MinVersions{resource: o.GetResourceVersion()},
	}
}

// startOptions returns the start options for the object's workflow.
func (b *Bridge) startOptions(k objectKey, s subject) client.StartWorkflowOptions {
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
