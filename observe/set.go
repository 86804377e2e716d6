package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/preflight"
	"millwright/decide/scale"
)

// AroundSet is what stands around a set.
type AroundSet struct {
	Members    []*v1alpha1.Machine // that it controls, in no order
	Orphans    []*v1alpha1.Machine // of its namespace that nothing controls, in no order
	Deployment *v1alpha1.MachineDeployment
	Preflight  []preflight.Failure // checks that keep the set from making machines
	// ControlPlane is the version of the control plane that was looked at; empty when there is none.
	ControlPlane string
}

// AroundSet returns what stands around a set, from the caches.
func (c *Cluster) AroundSet(set *v1alpha1.MachineSet) AroundSet {
	around := AroundSet{
		Members: c.MachinesOf(string(set.UID)),
		Orphans: indexed[*v1alpha1.Machine](c.informers[Machines], byOwner, orphansOf(set.Namespace)),
	}
	if owner := metav1.GetControllerOf(set); owner != nil {
		if d, found := c.Deployment(set.Namespace + "/" + owner.Name); found && d.UID == owner.UID {
			around.Deployment = d
		}
	}
	around.check(c, set, c.controlPlane())
	return around
}

// check adds what the preflight checks say.
func (a *AroundSet) check(c *Cluster, set *v1alpha1.MachineSet, controlPlane *unstructured.Unstructured) {
	a.Preflight, a.ControlPlane = c.preflightOf(set, controlPlane), ""
	if controlPlane != nil {
		a.ControlPlane = controlPlane.GetResourceVersion()
	}
}

// LiveAroundSet reads the machines around a set from the API server. Machines that the set owns although its selector does
// not match their labels any more come from the cache: a live look that left them out would count other members than
// AroundSet does, and each would undo what the other asked for.
func (c *Cluster) LiveAroundSet(ctx context.Context, set *v1alpha1.MachineSet) (AroundSet, error) {
	around := c.AroundSet(set)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() { // nothing is adopted by it
		selector = labels.SelectorFromSet(set.Spec.Template.Labels)
	}
	list, err := c.client.MachineV1alpha1().Machines(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return around, fmt.Errorf("list machines of set %s: %w", set.Name, err)
	}
	controlPlane, err := c.liveControlPlane(ctx)
	if err != nil {
		return around, err
	}
	around.check(c, set, controlPlane)
	listed := map[types.UID]bool{}
	var members, orphans []*v1alpha1.Machine
	for i := range list.Items {
		m := &list.Items[i]
		listed[m.UID] = true
		switch {
		case metav1.IsControlledBy(m, set):
			members = append(members, m)
		case metav1.GetControllerOf(m) == nil:
			orphans = append(orphans, m)
		}
	}
	unlisted := func(m *v1alpha1.Machine) bool { return !listed[m.UID] && !selector.Matches(labels.Set(m.Labels)) }
	around.Members = slices.Concat(members, keep(around.Members, unlisted))
	around.Orphans = slices.Concat(orphans, keep(around.Orphans, unlisted))
	return around, nil
}

func keep[T any](list []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(item T) bool { return !wanted(item) })
}

// SetFacts turns a set and what stands around it into the facts that say whether the set is calm at that time.
func SetFacts(set *v1alpha1.MachineSet, around AroundSet, now time.Time) attention.SetFacts {
	o := ScaleObserved(set, around, now, 0)
	d := scale.Decide(o)
	f := attention.SetFacts{
		Deleting:           o.Deleting,
		Finalizer:          HasFinalizer(set.Finalizers),
		Generation:         set.Generation,
		ObservedGeneration: set.Status.ObservedGeneration,
		Wanted:             o.Replicas,
		Members:            len(o.Members),
		Unreported:         !Reports(set, scale.Report(o)),
		Recheck:            !d.Recheck.IsZero(),
	}
	if d.Acts() {
		f.Next = d.Why
	}
	return f
}

// Reports reports whether a set's status says what was counted and decided.
func Reports(set *v1alpha1.MachineSet, want scale.Status) bool {
	changed := set.DeepCopy()
	ApplySetStatus(&changed.Status, want, set.Status.LastOperation.LastUpdateTime)
	return sameSetStatus(&changed.Status, &set.Status)
}

func sameSetStatus(a, b *v1alpha1.MachineSetStatus) bool {
	return a.Replicas == b.Replicas && a.FullyLabeledReplicas == b.FullyLabeledReplicas && a.ReadyReplicas == b.ReadyReplicas &&
		a.AvailableReplicas == b.AvailableReplicas && a.UpToDateReplicas == b.UpToDateReplicas &&
		a.PreservedFailedReplicas == b.PreservedFailedReplicas && a.AutoPreserveFailedMachineCount == b.AutoPreserveFailedMachineCount &&
		a.PeakReplicas == b.PeakReplicas && a.Overshoot == b.Overshoot &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y v1alpha1.MachineSetCondition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
		})
}

// ApplySetStatus makes a status say what scale.Report says. The time of a condition moves with its status. The sentence of
// ReplicaFailure stays while its reason does: another machine's is no news.
func ApplySetStatus(s *v1alpha1.MachineSetStatus, want scale.Status, now metav1.Time) {
	if c := want.Counts; c != nil {
		s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas = int32(c.Replicas), int32(c.Labelled), int32(c.Ready)
		s.AvailableReplicas, s.UpToDateReplicas = int32(c.Available), int32(c.UpToDate)
		s.PreservedFailedReplicas, s.AutoPreserveFailedMachineCount = int32(c.PreservedFailed), int32(c.AutoPreserved)
	}
	s.PeakReplicas, s.Overshoot = int32(want.Peak), int32(want.Overshoot)
	was := s.Conditions
	s.Conditions = make([]v1alpha1.MachineSetCondition, 0, len(want.Conditions))
	for _, c := range want.Conditions {
		next := v1alpha1.MachineSetCondition{
			Type: v1alpha1.MachineSetConditionType(c.Type), Status: v1alpha1.ConditionStatus(c.Status), Reason: c.Reason, Message: short(c.Message), LastTransitionTime: now,
		}
		if i := slices.IndexFunc(was, func(o v1alpha1.MachineSetCondition) bool { return o.Type == next.Type }); i >= 0 {
			if was[i].Status == next.Status {
				next.LastTransitionTime = was[i].LastTransitionTime
			}
			if next.Type == v1alpha1.MachineSetReplicaFailure && was[i].Reason == next.Reason {
				next.Message = was[i].Message
			}
		}
		s.Conditions = append(s.Conditions, next)
	}
}

// longestMessage bounds the message of a condition, in bytes. Source: an event has 1 KiB for one.
const longestMessage = 1000

func short(text string) string {
	if len(text) <= longestMessage {
		return text
	}
	return strings.ToValidUTF8(text[:longestMessage], "") + "…"
}

// ScaleObserved turns a set and what stands around it into what decide/scale asks for. Seed is the source of new names.
func ScaleObserved(set *v1alpha1.MachineSet, around AroundSet, now time.Time, seed uint64) scale.Observed {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	o := scale.Observed{
		Now:      now,
		Set:      set.Name,
		Deleting: set.DeletionTimestamp != nil,
		Replicas: int(set.Spec.Replicas),
		Order:    scale.Order(set.Spec.DeletionOrder),
		Keep:     int(set.Spec.AutoPreserveFailedMachineMax),
		MinReady: time.Duration(set.Spec.MinReadySeconds) * time.Second,
		Seed:     seed,
		Frozen:   isFrozen(set),
		Scaled:   timeIn(set.Annotations[v1alpha1.AnnotationLastScalerChange]),
		Peak:     int(set.Status.PeakReplicas),

		Preflight:   around.Preflight,
		Remediation: remediation(set, around.Deployment),
	}
	_, o.Paused = set.Annotations[v1alpha1.AnnotationPaused]
	_, o.NoScaleUp = set.Labels[v1alpha1.LabelScaleUpDisabled]
	if d := around.Deployment; d != nil {
		if _, paused := d.Annotations[v1alpha1.AnnotationPaused]; paused {
			o.OwnerPaused = "MachineDeployment"
		}
	}
	if g := set.Status.FailedGenerations; g != nil {
		o.Generations = scale.Generations{Failed: int(g.Count), Last: g.LastFailedAt.Time}
	}
	switch {
	case err != nil:
		o.Invalid, selector = fmt.Sprintf("the selector cannot be read: %v", err), labels.Nothing()
	case selector.Empty():
		o.SelectsAll = true
	case !selector.Matches(labels.Set(set.Spec.Template.Labels)):
		o.Invalid = "the selector does not match the labels of the template"
	}
	for _, m := range around.Members {
		o.Members = append(o.Members, member(m, set, selector, around.Deployment))
	}
	for _, m := range around.Orphans {
		o.Orphans = append(o.Orphans, scale.Orphan{
			Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Matches: selector.Matches(labels.Set(m.Labels)), Deleting: m.DeletionTimestamp != nil,
		})
		if m.DeletionTimestamp == nil && m.Annotations[v1alpha1.AnnotationReleasedBy] == string(set.UID) {
			o.Released++
		}
	}
	return o
}

// isFrozen reports whether a set makes no machine for safety, and nobody has said otherwise.
func isFrozen(set *v1alpha1.MachineSet) bool {
	_, ended := set.Annotations[v1alpha1.AnnotationUnfreeze]
	return set.Labels[v1alpha1.LabelFreeze] == v1alpha1.ValueTrue && !ended
}

func timeIn(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text)
	return at
}

// remediation is the policy of a set. Where a deployment stands above, its replacement budget and its own pauses decide when
// failed machines go, so that there is no second one here.
func remediation(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) scale.Remediation {
	r := scale.Remediation{Backoff: v1alpha1.DefaultRemediationBackoff, MaxBackoff: v1alpha1.DefaultRemediationMaxBackoff}
	if spec := set.Spec.Remediation; spec != nil {
		if spec.Backoff != nil {
			r.Backoff = spec.Backoff.Duration
		}
		if spec.MaxBackoff != nil {
			r.MaxBackoff = spec.MaxBackoff.Duration
		}
		if most := spec.MaxInFlight; most != nil {
			r.Limited = true
			r.MaxInFlight, _ = intstr.GetScaledValueFromIntOrPercent(most, int(set.Spec.Replicas), true) // unreadable: none at a time
		}
	}
	if HasDeployment(set) {
		r.Backoff = 0
	}
	r.Outdated = d != nil && !SameTemplate(&set.Spec.Template, &d.Spec.Template)
	return r
}

// member turns a machine of a set into what decide/scale asks for.
func member(m *v1alpha1.Machine, set *v1alpha1.MachineSet, selector labels.Selector, d *v1alpha1.MachineDeployment) scale.Member {
	phase := m.Status.CurrentStatus.Phase
	f := scale.Member{
		Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Created: m.CreationTimestamp.Time,
		Matches:  selector.Matches(labels.Set(m.Labels)) || selector.Empty(),
		Labelled: labels.SelectorFromSet(set.Spec.Template.Labels).Matches(labels.Set(m.Labels)),
		Deleting: m.DeletionTimestamp != nil, DeletingSince: timeOf(m.DeletionTimestamp),
		Drift:    drift(m, set),
		UpToDate: scale.True,

		Phase:    string(phase),
		Failed:   phase == v1alpha1.MachineFailed,
		Crashing: phase == v1alpha1.MachineCrashLoopBackOff,
		Updating: phase == v1alpha1.MachineInPlaceUpdating,
		Updated:  m.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.ValueUpdateSuccessful,
		Joined:   hasJoined(m),
		Serves:   phase == v1alpha1.MachineAvailable,

		Replace:        replaceable(m, set),
		Preserved:      isKeptNow(m),
		PreservedUntil: timeOf(m.Status.CurrentStatus.PreserveExpiryTime),
		Kept:           isKept(m),
		Dismissed:      isDismissed(m),

		Priority: Priority(m),
		Chosen:   timeIn(m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime]),
	}
	if d != nil && !SameTemplate(&set.Spec.Template, &d.Spec.Template) {
		f.UpToDate, f.UpToDateWhy = scale.False, "MachineDeployment "+d.Name+" has another template"
	}
	f.Ready, f.ReadyWhy, f.ReadyFrom, f.Node = readiness(m)
	if reason, message := Blocked(m); reason != "" {
		f.Blocked = scale.Problem{Reason: reason, Message: message}
	}
	_, f.DeleteFirst = m.Annotations[v1alpha1.AnnotationDeleteMachine]
	if _, f.Urgent = m.Annotations[v1alpha1.AnnotationRemediateMachine]; f.Urgent {
		f.HealthCheck, f.Marked = scale.False, true
	}
	return f
}

// readiness says whether a machine's node is ready, as the machine's own workflow says it.
func readiness(m *v1alpha1.Machine) (ready scale.Answer, why string, since time.Time, node scale.Node) {
	phase := m.Status.CurrentStatus.Phase
	switch phase {
	case "":
		return "", "", since, scale.NoNode
	case v1alpha1.MachineRunning:
		return scale.True, "", ReadySince(m), scale.NodeHealthy
	case v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineAvailable:
		node = scale.NoNode
	case v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful:
		node = scale.NodeHealthy
	default:
		node = scale.NodeUnhealthy
	}
	return scale.False, cmp.Or(m.Status.LastOperation.Description, "phase "+string(phase)), since, node
}

// ReadySince is since when the node of a machine that runs is ready; zero for one that does not run.
func ReadySince(m *v1alpha1.Machine) time.Time {
	if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		return time.Time{}
	}
	for _, c := range m.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return m.Status.CurrentStatus.LastUpdateTime.Time
}

// SetsSelecting returns the sets of a machine's namespace whose selector matches its labels, and the one that released it, in
// no order. An empty selector matches nothing.
func (c *Cluster) SetsSelecting(m *v1alpha1.Machine) []*v1alpha1.MachineSet {
	var sets []*v1alpha1.MachineSet
	for _, item := range c.informers[Sets].GetStore().List() {
		set := item.(*v1alpha1.MachineSet)
		if set.Namespace != m.Namespace {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
		selects := err == nil && !selector.Empty() && selector.Matches(labels.Set(m.Labels))
		if selects || m.Annotations[v1alpha1.AnnotationReleasedBy] == string(set.UID) {
			sets = append(sets, set)
		}
	}
	return sets
}

// hasJoined reports whether the node of a machine has joined, or will never have to.
func hasJoined(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase {
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineFailed, v1alpha1.MachineTerminating:
		return m.Annotations[v1alpha1.AnnotationMachineJoinDuration] != ""
	default:
		return true
	}
}
