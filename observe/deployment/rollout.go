// Package deployment turns a MachineDeployment and all below it into the facts that decide asks for.
package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/preserve"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/drain"
	"millwright/observe/machine"
	observeset "millwright/observe/set"
)

// Family is a deployment and all below it, as it was read at one moment.
type Family struct {
	Deployment *v1alpha1.MachineDeployment
	Sets       []*v1alpha1.MachineSet // that it controls, in no order
	Members    []*v1alpha1.Machine    // that these control, in no order
	Read       string                 // resource version up to which machines had been read at least; empty: that is not known
	// Node returns the node of a machine, nil when it has none; nil: nothing is known of nodes.
	Node func(*v1alpha1.Machine) *corev1.Node
	// Guard: the cluster autoscaler is kept off nodes during a rollout.
	Guard bool
}

// Read returns a deployment and all below it, from the caches.
func Read(c *cache.Cluster, d *v1alpha1.MachineDeployment) Family {
	sets, read := c.SetsOf(string(d.UID)), c.Applied(cache.Machines) // before they are read: there may be more, and no fewer
	return Family{Deployment: d, Sets: sets, Members: c.MembersOf(sets), Read: read, Node: func(m *v1alpha1.Machine) *corev1.Node { return soleNodeOf(c, m) }, Guard: !c.Unguided}
}

// soleNodeOf returns the node of a machine, nil when it has none or another machine names the same one: nobody may write such a
// node for either.
func soleNodeOf(c *cache.Cluster, m *v1alpha1.Machine) *corev1.Node {
	if len(c.MachinesOfNode(m.Labels[v1alpha1.LabelNode])) > 1 {
		return nil
	}
	return c.NodeOf(m)
}

// Observed turns a deployment and all below it into what decide/rollout asks for.
func Observed(f Family, now time.Time) rollout.Observed {
	d := f.Deployment
	o := rollout.Observed{
		Now:        now,
		Replicas:   int(d.Spec.Replicas),
		Deleting:   d.DeletionTimestamp != nil,
		Invalid:    invalid(d),
		Frozen:     cache.IsFrozen(d),
		Paused:     d.Spec.Paused,
		Guard:      f.Guard,
		Trigger:    d.Annotations[v1alpha1.AnnotationTriggerDeletion],
		Scaled:     d.Annotations[v1alpha1.AnnotationLastScalerChange],
		Progress:   Progress(d),
		Replacing:  len(d.Status.Replacements),
		Generation: d.Generation,
		Finalizer:  cache.HasFinalizer(d.Finalizers),

		ObservedGeneration: d.Status.ObservedGeneration,
		RolledBackTo:       d.Annotations[v1alpha1.AnnotationAutomaticRollbackTo],
		Reported:           reportedRollout(&d.Status),
	}
	o.Strategy, o.Surge, o.Unavailable = strategy(&d.Spec.Strategy)
	applyPolicy(&o, &d.Spec)
	members := map[types.UID][]*v1alpha1.Machine{}
	for _, m := range f.Members {
		if machine.IsWaiting(m) {
			o.Due++
		}
		if owner := metav1.GetControllerOf(m); owner != nil {
			members[owner.UID] = append(members[owner.UID], m)
		}
	}
	for _, s := range f.Sets {
		o.Sets = append(o.Sets, rolloutSet(f, s, members[s.UID], now))
	}
	o.Held, o.Approved = steered(d, currentRevision(o.Sets))
	return o
}

// applyPolicy reads what people want of a rollout beside its strategy.
func applyPolicy(o *rollout.Observed, spec *v1alpha1.MachineDeploymentSpec) {
	if limit := spec.RevisionHistoryLimit; limit != nil {
		o.HistoryLimit = new(int(*limit))
	}
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		o.Deadline = new(time.Duration(*deadline) * time.Second)
	}
	if spec.RollbackTo != nil {
		o.RollbackTo = new(spec.RollbackTo.Revision)
	}
	policy := spec.Rollout
	if policy == nil {
		return
	}
	o.FreeWhenDeleting = policy.MachineReplacementPolicy == v1alpha1.MachineTerminationStarted
	for _, s := range policy.Steps {
		step := rollout.Step{Size: bound(s.Replicas), Approve: s.Approve}
		if s.Wait != nil {
			step.Wait = s.Wait.Duration
		}
		o.Steps = append(o.Steps, step)
	}
	if auto := policy.AutomaticRollback; auto != nil {
		o.Automatic.OnDeadline = auto.OnProgressDeadline
		if auto.MaxFailedMachines != nil {
			o.Automatic.Failed, o.Automatic.MaxFailed = true, int(*auto.MaxFailedMachines)
		}
	}
}

// strategy reads how old machines give way to new ones.
func strategy(s *v1alpha1.MachineDeploymentStrategy) (kind rollout.Strategy, surge, unavailable rollout.Bound) {
	maxSurge, maxUnavailable := s.EffectiveRollingUpdate()
	switch s.EffectiveType() {
	case v1alpha1.RecreateMachineDeploymentStrategyType:
		return rollout.Recreate, surge, unavailable
	case v1alpha1.OnDeleteMachineDeploymentStrategyType:
		return rollout.OnDelete, surge, unavailable
	case v1alpha1.InPlaceUpdateMachineDeploymentStrategyType:
		kind = rollout.InPlaceAuto
		if s.InPlaceUpdate != nil && s.InPlaceUpdate.OrchestrationType == v1alpha1.OrchestrationTypeManual {
			kind = rollout.InPlaceManual
		}
		maxSurge, maxUnavailable = s.EffectiveInPlaceUpdate()
	default:
		kind = rollout.RollingUpdate
	}
	return kind, bound(maxSurge), bound(maxUnavailable)
}

// bound reads a number of machines or a percentage. A string without a percent sign is a percentage too, as in MCM; admission
// refuses every other string.
func bound(v intstr.IntOrString) rollout.Bound {
	if v.Type == intstr.Int {
		return rollout.Bound{Value: int(v.IntVal)}
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	if err != nil {
		return rollout.Bound{}
	}
	return rollout.Bound{Value: n, Percent: true}
}

// invalid says why nothing can be done with a deployment; empty when all is well. Admission refuses what it can see.
func invalid(d *v1alpha1.MachineDeployment) string {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	kind := d.Spec.Strategy.EffectiveType()
	switch class := d.Spec.Template.Spec.Class; {
	case err != nil:
		return fmt.Sprintf("the selector cannot be read: %v", err)
	case selector.Empty():
		return "the selector is empty: it would match every machine"
	case !selector.Matches(labels.Set(d.Spec.Template.Labels)):
		return "the selector does not match the labels of the template"
	case class.Name == "":
		return "the template names no machine class"
	case kind == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType && !orchestrated(d.Spec.Strategy.InPlaceUpdate):
		return "the strategy InPlaceUpdate says not who picks the nodes: orchestrationType is Auto or Manual"
	case !slices.Contains(strategies, kind):
		return fmt.Sprintf("there is no strategy %q", kind)
	default:
		return invalidSteps(d.Spec.Rollout)
	}
}

var strategies = []v1alpha1.MachineDeploymentStrategyType{
	v1alpha1.RollingUpdateMachineDeploymentStrategyType, v1alpha1.RecreateMachineDeploymentStrategyType,
	v1alpha1.InPlaceUpdateMachineDeploymentStrategyType, v1alpha1.OnDeleteMachineDeploymentStrategyType,
}

func orchestrated(u *v1alpha1.InPlaceUpdateMachineDeployment) bool {
	return u != nil && (u.OrchestrationType == v1alpha1.OrchestrationTypeAuto || u.OrchestrationType == v1alpha1.OrchestrationTypeManual)
}

// invalidSteps says which step of a rollout cannot be read: admission cannot afford to look into so many of them.
func invalidSteps(policy *v1alpha1.RolloutPolicy) string {
	if policy == nil {
		return ""
	}
	for i, s := range policy.Steps {
		percent, err := strconv.Atoi(strings.TrimSuffix(s.Replicas.StrVal, "%"))
		if s.Replicas.Type == intstr.String && (err != nil || percent < 0) {
			return fmt.Sprintf("step %d of the rollout: replicas is %q, and no percentage", i+1, s.Replicas.StrVal)
		}
	}
	return ""
}

// Revision returns the number that a deployment or set carries; 0 where it carries none.
func Revision(o metav1.Object) int64 {
	n, err := strconv.ParseInt(o.GetAnnotations()[v1alpha1.AnnotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// currentRevision is that of the set that was made from the template as it is, the oldest of several; 0 while there is none.
func currentRevision(sets []rollout.Set) int64 {
	current := slices.DeleteFunc(slices.Clone(sets), func(s rollout.Set) bool { return !s.Current || s.Deleting })
	if len(current) == 0 {
		return 0
	}
	byAge := func(a, b rollout.Set) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) }
	return slices.MinFunc(current, byAge).Revision
}

// steered reads what people said of the rollout of one revision: why it is held, empty when it is not, and how many of its
// steps they passed. What they said of another revision counts for nothing.
func steered(d *v1alpha1.MachineDeployment, revision int64) (held string, approved int) {
	if revision == 0 {
		return "", 0
	}
	if which, words, _ := strings.Cut(d.Annotations[v1alpha1.AnnotationRolloutHold], " "); which != "" && which == strconv.FormatInt(revision, 10) {
		held = cmp.Or(strings.TrimSpace(words), "somebody holds it")
	}
	which, _, _ := strings.Cut(d.Annotations[v1alpha1.AnnotationRolloutApprove], " ")
	which, stages, _ := strings.Cut(which, "/")
	if n, err := strconv.Atoi(stages); err == nil && which == strconv.FormatInt(revision, 10) {
		approved = max(n, 0)
	}
	return held, approved
}

// Progress returns what a deployment's status has on record of its rollout; the zero Progress when nothing.
func Progress(d *v1alpha1.MachineDeployment) rollout.Progress {
	r := d.Status.Rollout
	if r == nil {
		return rollout.Progress{}
	}
	return rollout.Progress{Revision: r.Revision, Step: int(r.Step), Reached: cache.TimeOf(r.ReachedAt), Failed: r.FailedMachines}
}

// reportedRollout returns what a deployment's status says of what rollout.Look decides.
func reportedRollout(s *v1alpha1.MachineDeploymentStatus) rollout.Status {
	r := rollout.Status{Counts: rollout.Counts{
		Replicas: int(s.Replicas), Updated: int(s.UpdatedReplicas), Ready: int(s.ReadyReplicas), Available: int(s.AvailableReplicas),
		Unavailable: int(s.UnavailableReplicas), PreservedFailed: int(s.PreservedFailedReplicas),
	}}
	for _, c := range s.Conditions {
		r.Conditions = append(r.Conditions, rollout.Condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Updated: c.LastUpdateTime.Time,
		})
	}
	for _, m := range s.FailedMachines {
		r.Failed = append(r.Failed, m.Name)
	}
	return r
}

// counted is how many machines the status of a set speaks of; zero when the family was read as far as that, and has them all.
func (f Family) counted(set *v1alpha1.MachineSet) int {
	if seen := set.Status.ObservedMachines; seen != "" && (f.Read == seen || cache.Newer(f.Read, seen)) {
		return 0
	}
	return int(set.Status.Replicas)
}

// rolloutSet turns one of the sets into what decide/rollout asks for.
func rolloutSet(f Family, set *v1alpha1.MachineSet, members []*v1alpha1.Machine, now time.Time) rollout.Set {
	s := rollout.Set{
		Name:     set.Name,
		UID:      string(set.UID),
		Version:  set.ResourceVersion,
		Created:  set.CreationTimestamp.Time,
		Current:  observeset.SameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template),
		Deleting: set.DeletionTimestamp != nil,
		Replicas: int(set.Spec.Replicas),
		Counted:  f.counted(set),
		Seen:     int(set.Status.ObservedReplicas),
		Revision: Revision(set),
		History:  set.Annotations[v1alpha1.AnnotationRevisionHistory],
		Desired:  numberIn(set.Annotations[v1alpha1.AnnotationDesiredReplicas]),
		Max:      numberIn(set.Annotations[v1alpha1.AnnotationMaxReplicas]),
		Frozen:   cache.IsFrozen(set),
	}
	_, s.NoScaleUp = set.Labels[v1alpha1.LabelScaleUpDisabled]
	if s.Current {
		s.Drift = FollowDeployment(set.DeepCopy(), f.Deployment) || s.Revision > 0 && Revision(f.Deployment) != s.Revision
	}
	for _, c := range set.Status.Conditions {
		if c.Type == v1alpha1.MachineSetReplicaFailure && c.Status == v1alpha1.ConditionTrue {
			s.Failure = rollout.Problem{Reason: c.Reason, Message: c.Message}
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	for _, m := range members {
		var node *corev1.Node
		if f.Node != nil {
			node = f.Node(m)
		}
		s.Machines = append(s.Machines, rolloutMember(m, set, selector, node, now))
	}
	return s
}

// numberIn reads an annotation that holds a number; -1 where it holds none.
func numberIn(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n
	}
	return -1
}

// rolloutMember turns a machine into what decide/rollout asks for. Who may serve, and who goes first, is asked of decide/scale, so
// that a deployment and its sets count alike.
func rolloutMember(m *v1alpha1.Machine, set *v1alpha1.MachineSet, selector labels.Selector, node *corev1.Node, now time.Time) rollout.Member {
	seen := observeset.Member(m, set, selector)
	r := rollout.Member{
		Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Created: m.CreationTimestamp.Time,
		Deleting:   m.DeletionTimestamp != nil,
		Ready:      m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning,
		Unhealthy:  seen.Unhealthy(),
		Failed:     seen.Failed,
		Troubled:   m.Status.LastOperation.State == v1alpha1.MachineStateFailed,
		Preserved:  seen.Preserved,
		Priority:   seen.Priority,
		First:      seen.DeleteFirst,
		MarkedAt:   m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime],
		HandedOver: seen.Updated,
	}
	if node != nil {
		r.Node = node.Name
		r.Preserved = r.Preserved || seen.Failed && preserve.Protected(machine.PreserveFacts(m, node, time.Time{}))
		inPlace := drain.InPlaceNode(node)
		done := inPlace.Result == v1alpha1.ValueUpdateSuccessful && inPlace.Reason == v1alpha1.ReasonUpdateSuccessful
		_, marked := node.Labels[v1alpha1.LabelCandidateForUpdate]
		r.Candidate, r.UpdateLabels = inPlace.Candidate, marked || inPlace.Selected || inPlace.Result != ""
		r.Updating = inPlace.Selected && !done || seen.Updating
		r.Updated = done && !seen.Updating
		r.Guard = node.Annotations[v1alpha1.AnnotationScaleDownDisabled]
		r.Guarded = r.Guard != "" && node.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] != ""
		r.Tainted = cache.HasTaint(node, v1alpha1.TaintPreferNoSchedule)
	}
	r.Available = !r.Deleting && !r.Updating && seen.Available(now, time.Duration(set.Spec.MinReadySeconds)*time.Second)
	return r
}
