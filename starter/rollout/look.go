package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/starter/kubecli"
)

// rolloutCommand is the command `millwright rollout` with the flags of its subcommands.
type rolloutCommand struct {
	kubecli.ObjectFlags
	targetKubeconfig string // kubeconfig of the target cluster; if empty, nodes are not read
	actsAsMCM        bool   // worker and bridge run with --as-mcm
}

// deploymentReader reads one deployment for the rollout commands.
type deploymentReader struct {
	key       types.NamespacedName
	apiGroup  string // API group that the user named; empty if the user named none
	clients   kubecli.Clients
	nodes     typedcorev1.NodesGetter // nil if nodes are not read
	actsAsMCM bool
	now       func() time.Time
}

// newDeploymentReader returns a reader of the named deployment. The reader's clients connect on their first use.
func (f *rolloutCommand) newDeploymentReader(c *cobra.Command, args []string) (l deploymentReader, err error) {
	key, err := f.ParseKey(c, args)
	if err != nil {
		return l, err
	}
	l, err = f.newListReader()
	l.key, l.apiGroup = key, f.Group
	return l, err
}

// deploymentSource is a deployment of either API group as it was read, with its sets, machines and policy. The methods
// withPolicy, withReplicas, withSpecFromFile, withoutPauseAndHold and withTemplateOfSet return a changed copy.
type deploymentSource interface {
	asTree(now time.Time) deploymentTree
	rolloutFacts(now time.Time) rollout.Facts // the sets in the result have the same order as in asTree
	requestFacts(o rollout.Facts, next rollout.Decision) request.DeploymentFacts
	templateOfSet(set int) any // the template of the set at this index, in the form of the deployment's spec.template

	withPolicy(policy *v1alpha1.RolloutPolicy) deploymentSource
	// withSiblings reads the deployments that take turns with the deployment.
	withSiblings(ctx context.Context, policies []*v1alpha1.RolloutPolicy) (deploymentSource, error)
	withReplicas(replicas int32) deploymentSource
	// withSpecFromFile returns a copy with the spec from the file, or errNoDeploymentInFile if the file does not contain
	// the deployment.
	withSpecFromFile(file string) (deploymentSource, error)
	withoutPauseAndHold() deploymentSource // a copy that is neither paused nor held
	// withTemplateOfSet returns a copy with the template of the set at this index, and without the rollback request. A
	// negative index keeps the template.
	withTemplateOfSet(set int, now time.Time) deploymentSource

	patchDeployment(ctx context.Context, data []byte) error
	// patchBuilder returns the function for the field BuildPatch of kubecli.Subject.
	patchBuilder() func(request.Command, request.Decision) map[string]any
}

// deploymentTree has the facts of a source that the commands print, in the same form for both API groups.
type deploymentTree struct {
	object               metav1.Object
	kind                 string // kind of the deployment in the sentence of explain
	argument             string // name of the deployment as an argument of millwright
	resource             string // resource of the deployment, for kubectl
	setResource          string // resource of the sets, as an argument of millwright
	machineResource      string // resource of the machines, for kubectl
	templateWord         string // what machines are made from: "class" or "template"
	listDeletionsCommand string // command that lists the deployment's machines that are being deleted
	strategy             string // name of the strategy in the spec
	operation            *v1alpha1.Operation
	policy               *v1alpha1.RolloutPolicy // nil if no policy applies
	hasUnreadNodes       bool                    // the nodes were not read
	Sets                 []treeSet               // sets from the oldest to the newest
	Machines             []treeMachine
}

// treeSet is one MachineSet of a tree.
type treeSet struct {
	name, templateName string // templateName names the class or the infrastructure template of the set's machines
	createdAt          time.Time
	replicas           int32
	changeCause        string // annotation kubernetes.io/change-cause
	// why and since when a pin replaces the revision with an earlier revision; empty if no pin does so
	pinReason string
}

// treeMachine is one machine of a tree.
type treeMachine struct {
	name, uid, node string
	phase           string
	phaseBeginTime  time.Time // when the machine entered its phase
	lastOperation   string
	isBeingDeleted  bool
	explainCommand  string // command that says why the machine still exists
}

// snapshot is a rollout at one moment: the objects in the API server, and the decision of decide/rollout about these
// objects.
type snapshot struct {
	source       deploymentSource
	tree         deploymentTree
	policies     []*v1alpha1.RolloutPolicy // all policies of the namespace
	facts        rollout.Facts             // facts of the sets, in the same order as in tree.Sets
	decision     rollout.Decision
	status       rollout.Status
	now          time.Time
	overdueSince time.Time // time since which the next step is overdue; zero if no step is overdue
}

// readSnapshot reads a deployment with its sets, machines and nodes, and computes the decision.
func (l deploymentReader) readSnapshot(ctx context.Context) (snapshot, error) {
	from, policies, err := l.readDeploymentWithPolicies(ctx)
	if err != nil {
		return snapshot{}, err
	}
	s := newSnapshot(from, l.now())
	s.policies = policies
	return s, nil
}

// readDeploymentWithPolicies reads a deployment with its sets and machines from the API server, and the policies of its
// namespace. An object that is created between two requests may be missing until the next read.
func (l deploymentReader) readDeploymentWithPolicies(
	ctx context.Context,
) (deploymentSource, []*v1alpha1.RolloutPolicy, error) {
	from, err := l.findDeployment(ctx)
	if err != nil {
		return nil, nil, err
	}
	policies, err := l.listPolicies(ctx)
	if err != nil {
		return nil, nil, err
	}
	policy := cache.FirstMatchingPolicy(policies, from.asTree(time.Time{}).object)
	if from = from.withPolicy(policy); policy.PolicySpec().Turns != nil {
		from, err = from.withSiblings(ctx, policies)
	}
	return from, policies, err
}

// findDeployment reads the deployment in the API group that the user named. If the user named no group, findDeployment
// returns the only deployment with the name, and an error if Millwright reconciles a deployment with the name in each
// group. If the objects of Cluster API cannot be read, findDeployment returns the deployment of machine.sapcloud.io.
func (l deploymentReader) findDeployment(ctx context.Context) (deploymentSource, error) {
	switch l.apiGroup {
	case v1alpha1.GroupName:
		return l.readMillwrightDeployment(ctx)
	case clusterv1.GroupVersion.Group:
		return l.readClusterAPIDeployment(ctx, true)
	}
	ours, err := l.readMillwrightDeployment(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	theirs, upstreamErr := l.readClusterAPIDeployment(ctx, false)
	switch {
	case theirs == nil && err == nil:
		return ours, nil
	case theirs == nil:
		return nil, cmp.Or(upstreamErr, err)
	case err == nil:
		const kind = "machinedeployment"
		return nil, fmt.Errorf(
			"both API groups have a %s %s: give %[1]s.%[3]s/%[2]s or %[1]s.%[4]s/%[2]s",
			kind,
			l.key,
			v1alpha1.GroupName,
			clusterv1.GroupVersion.Group,
		)
	}
	return theirs, nil
}

// newSnapshot returns a snapshot with the decision of decide/rollout.
func newSnapshot(from deploymentSource, now time.Time) snapshot {
	facts := from.rolloutFacts(now)
	plan := rollout.PlanDeployment(facts)
	return snapshot{
		source:   from,
		tree:     from.asTree(now),
		facts:    facts,
		decision: plan.Decision,
		status:   plan.Status,
		now:      now,
	}
}

// listPolicies reads the RolloutPolicies of the deployment's namespace.
func (l deploymentReader) listPolicies(ctx context.Context) ([]*v1alpha1.RolloutPolicy, error) {
	list, err := l.clients.MachineClient.MachineV1alpha1().RolloutPolicies(l.key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list rollout policies of namespace %s: %w", l.key.Namespace, err)
	}
	return cache.PointersToItems(list.Items), nil
}

// currentSetIndex returns the index of the set with the deployment's template; -1 if no set has the template. If
// several sets have the template, currentSetIndex returns the oldest set, as in decide/rollout.
func (s snapshot) currentSetIndex() int {
	return slices.IndexFunc(s.facts.Sets, func(set rollout.MachineSet) bool { return set.Current && !set.Deleting })
}

// key returns namespace/name of the deployment.
func (s snapshot) key() string { return kubecli.KeyOfObject(s.tree.object) }

// isInPlace reports whether the strategy updates machines in place.
func (s snapshot) isInPlace() bool {
	return s.facts.Strategy == rollout.InPlaceAuto || s.facts.Strategy == rollout.InPlaceManual
}

// lacksNodes reports whether the decision needs the nodes, which were not read.
func (s snapshot) lacksNodes() bool { return s.isInPlace() && s.tree.hasUnreadNodes }
