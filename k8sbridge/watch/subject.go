package watch

import (
	"cmp"
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
	ref            cache.ObjectRef
	generation     int64
	isBeingDeleted bool
	parentNames    run.ParentNames
	decision       attention.Decision
	// versions are the resource versions of all objects that the decision read. The workflow's decision must read at
	// least the subject's versions: for a resource without an event, such as a new machine's class, the worker's
	// cache may be behind the bridge's cache.
	versions             cache.MinVersions
	hasUnreportedBlocker bool   // the status of a machine does not name its blocker
	openRolloutID        string // workflow ID of the open rollout in the status; empty: none
}

// actsOnNamespace reports whether Millwright acts on objects of a kind in a namespace.
func (b *Bridge) actsOnNamespace(kind run.Kind, namespace string) bool {
	switch kind {
	case run.KindClusterAPISet, run.KindClusterAPIDeployment, run.KindClusterAPIDrain, run.KindClusterAPIRollout:
		return b.cluster.ActsInNamespace(namespace)
	default:
		return b.cluster.ActsOnMachines(namespace)
	}
}

// readSubject reads an object from the caches and decides whether the object has pending work.
func (b *Bridge) readSubject(ctx context.Context, k objectKey) (s subject, found bool) {
	if !b.actsOnNamespace(k.kind, k.namespace) {
		return subject{}, false // the object counts as missing, so its open run ends
	}
	id := k.namespace + "/" + k.name
	switch k.kind {
	case run.KindMachine:
		if m, found := b.cluster.Machine(id); found {
			return b.machineSubject(m), true
		}
	case run.KindMachineSet:
		if s, found := b.cluster.MachineSet(id); found {
			return b.machineSetSubject(s), true
		}
	case run.KindClusterAPISet:
		if s, found := b.clusterAPICache.MachineSet(id); found {
			return b.clusterAPISetSubject(ctx, s), true
		}
	case run.KindClusterAPIDeployment:
		if d, found := b.clusterAPICache.ReconciledDeployment(id); found {
			return b.clusterAPIDeploymentSubject(ctx, d), true
		}
	case run.KindClusterAPIDrain:
		if m, found := b.clusterAPICache.Machine(id); found {
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

// machineSetSubject returns the subject for a set. The subject's versions include the versions of the machines and of
// all other objects that the decision reads.
func (b *Bridge) machineSetSubject(of *v1alpha1.MachineSet) subject {
	related := set.ReadRelatedObjects(b.cluster, of)
	observed := set.ScaleFacts(of, related, time.Now(), 0)
	plan := set.ExplainPlan(of, related, observed, scale.PlanSet(observed))
	s := newSubject(cache.SetsResource, of, pendingWorkOrStatusWrite(plan.PendingWork, plan.IsShownInStatus))
	for _, m := range slices.Concat(related.Members, related.Orphans) {
		s.versions.RaiseVersion(cache.MachinesResource, m.ResourceVersion)
		if node := related.PreservationNode(m); node != nil {
			s.versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
		}
	}
	s.versions.RaiseVersion(cache.ControlPlanesResource, related.ControlPlaneVersion)
	s.versions.RaiseVersion(cache.ClassesResource, related.ClassVersion)
	if related.Policy != nil {
		s.versions.RaiseVersion(cache.RolloutPoliciesResource, related.Policy.ResourceVersion)
	}
	if related.Deployment != nil {
		s.versions.RaiseVersion(cache.DeploymentsResource, related.Deployment.ResourceVersion)
	}
	s.parentNames = run.ParentNames{MachineSet: of.Name, MachineDeployment: controllerName(of)}
	return s
}

// classSubject returns the subject for a class. The subject's versions include the versions of the other objects in the
// namespace that the decision reads.
func (b *Bridge) classSubject(c *v1alpha1.MachineClass) subject {
	neighbours := class.ReadNamespaceObjects(b.cluster, c.Namespace)
	facts := class.Facts(c, neighbours)
	served, asked := b.hasWorker(c.ProviderName())
	facts.ServingKnown, facts.Unserved = asked, !served
	s := newSubject(cache.ClassesResource, c, attention.DecideClass(facts))
	for resource, version := range neighbours.ResourceVersions() {
		s.versions.RaiseVersion(resource, version)
	}
	s.parentNames = run.ParentNames{Provider: c.ProviderName()}
	return s
}

// deploymentSubject returns the subject for a deployment. The subject's versions include the versions of the
// deployment's sets and machines.
func (b *Bridge) deploymentSubject(d *v1alpha1.MachineDeployment) subject {
	tree := deployment.ReadTree(b.cluster, d)
	now := time.Now()
	plan := rollout.PlanDeployment(deployment.RolloutFacts(tree, now))
	// while the condition ReplacementHeld is set, the deployment has pending work
	hold := deployment.ConditionMessage(d, v1alpha1.MachineDeploymentReplacementHeld)
	said := deployment.StatusShowsBlockers(
		&d.Status,
		deployment.ExplanationFacts(tree, plan, hold, now).BlockedSummary(now),
	)
	s := newSubject(cache.DeploymentsResource, d, pendingWorkOrStatusWrite(plan.PendingWork, said))
	if tree.Policy != nil {
		s.versions.RaiseVersion(cache.RolloutPoliciesResource, tree.Policy.ResourceVersion)
	}
	for _, set := range slices.Concat(tree.Sets, tree.Orphans) {
		s.versions.RaiseVersion(cache.SetsResource, set.ResourceVersion)
	}
	for _, m := range tree.Members {
		s.versions.RaiseVersion(cache.MachinesResource, m.ResourceVersion)
		if node := tree.NodeOfMachine(m); node != nil &&
			d.Spec.Strategy.EffectiveType() == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType {
			s.versions.RaiseVersion(cache.NodesResource, node.ResourceVersion) // the node has the result of the in-place update
		}
	}
	s.parentNames = run.ParentNames{MachineDeployment: d.Name}
	s.openRolloutID = deployment.CurrentRolloutID(d)
	return s
}

// machineSubject returns the subject for a machine. The subject's versions include the versions of the machine's node
// and class.
func (b *Bridge) machineSubject(m *v1alpha1.Machine) subject {
	node, related := b.cluster.NodeOfMachine(m), machine.ReadRelatedObjects(b.cluster, m)
	s := newSubject(cache.MachinesResource, m, attention.PlanMachine(machine.Facts(m, related, time.Time{})).Decision)
	s.hasUnreportedBlocker = !machine.StatusShowsBlockers(
		m,
		machine.ExplanationFacts(m, related.Class, time.Now()).CurrentWait(),
	)
	if node != nil {
		s.versions.RaiseVersion(cache.NodesResource, node.ResourceVersion)
	}
	s.parentNames = run.ParentNames{Machine: m.Name, MachineSet: controllerName(m)}
	if set, found := b.cluster.MachineSet(m.Namespace + "/" + s.parentNames.MachineSet); found {
		s.parentNames.MachineDeployment = controllerName(set)
	}
	if class, found := b.cluster.Class(m.Namespace + "/" + m.Spec.Class.Name); found {
		s.parentNames.Provider = class.ProviderName()
		s.versions.RaiseVersion(cache.ClassesResource, class.ResourceVersion)
	}
	return s
}

// pendingWorkOrStatusWrite returns the pending work of a set or a deployment. If there is no pending work but the
// status does not name the blocker, pendingWorkOrStatusWrite returns the write of the status as pending work.
func pendingWorkOrStatusWrite(pending attention.Decision, said bool) attention.Decision {
	if pending.NeedsNothing() && !said {
		return attention.Decision{Need: attention.NeedScaling, Why: "the status does not say what blocks it"}
	}
	return pending
}

func newSubject(resource cache.Resource, o metav1.Object, d attention.Decision) subject {
	return subject{
		ref: objectRef(o), generation: o.GetGeneration(), isBeingDeleted: isDeleting(o), decision: d,
		versions: cache.MinVersions{resource: o.GetResourceVersion()},
	}
}

// startOptions returns the start options for the object's workflow.
func (b *Bridge) startOptions(k objectKey, s subject) client.StartWorkflowOptions {
	s.parentNames.Cluster = cmp.Or(s.parentNames.Cluster, b.cluster.ClusterNameOfNamespace(k.namespace))
	turns := s.parentNames
	if b.cluster.HasTargetPerNamespace() { // the namespaces take turns, because a tenant may make many deployments
		turns = run.ParentNames{}
	}
	return client.StartWorkflowOptions{
		ID:                       b.shard.Installation.ID(k.kind, s.ref),
		TaskQueue:                b.shard.TaskQueue(run.QueueMachines),
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    run.StartSearchAttributes(k.namespace, s.parentNames),
		Priority:                 run.TaskPriority(k.kind, k.namespace, turns),
		StaticSummary:            fmt.Sprintf("%s %s/%s", k.kind, k.namespace, k.name),
		StaticDetails:            "started because: " + s.decision.Why,
	}
}
