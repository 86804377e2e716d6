package observe

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
)

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
		Seen:     int(set.Status.ObservedReplicas),

		Missing:     around.Missing,
		Preflight:   around.Preflight,
		Remediation: remediation(set, around.Deployment),
	}
	_, o.Paused = set.Annotations[v1alpha1.AnnotationPaused]
	_, o.NoScaleUp = set.Labels[v1alpha1.LabelScaleUpDisabled]
	if d := around.Deployment; d != nil {
		if _, paused := d.Annotations[v1alpha1.AnnotationPaused]; paused {
			o.OwnerPaused = "MachineDeployment"
		}
		o.Frozen = o.Frozen || isFrozen(d)
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
	outdated := ""
	if o.Remediation.Outdated {
		outdated = "MachineDeployment " + around.Deployment.Name + " has another template"
	}
	for _, m := range around.Members {
		f := member(m, set, selector)
		f.Labelled, f.Drift = holds(m.Labels, set.Spec.Template.Labels), drift(m, set)
		if outdated != "" {
			f.UpToDate, f.UpToDateWhy = scale.False, outdated
		}
		if around.keptByNode(m) {
			f.Preserved, f.Replace = true, false
		}
		o.Members = append(o.Members, f)
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

// isFrozen reports whether a set or deployment makes no machine for safety, and nobody has said otherwise.
func isFrozen(o metav1.Object) bool {
	_, ended := o.GetAnnotations()[v1alpha1.AnnotationUnfreeze]
	return o.GetLabels()[v1alpha1.LabelFreeze] == v1alpha1.ValueTrue && !ended
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

// member turns a machine of a set into what decide/scale asks for, but for what its template says of it.
func member(m *v1alpha1.Machine, set *v1alpha1.MachineSet, selector labels.Selector) scale.Member {
	phase := m.Status.CurrentStatus.Phase
	f := scale.Member{
		Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Created: m.CreationTimestamp.Time,
		Matches:  selector.Matches(labels.Set(m.Labels)) || selector.Empty(),
		Deleting: m.DeletionTimestamp != nil, DeletingSince: timeOf(m.DeletionTimestamp),
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
	f.Ready, f.ReadyWhy, f.ReadyFrom, f.Node = readiness(m)
	if reason, message := Blocked(m); reason != "" {
		f.Blocked = scale.Problem{Reason: reason, Message: message}
	}
	_, f.DeleteFirst = m.Annotations[v1alpha1.AnnotationDeleteMachine]
	f.HealthCheck, f.Marked = HealthChecked(m)
	if _, f.Urgent = m.Annotations[v1alpha1.AnnotationRemediateMachine]; f.Urgent {
		f.HealthCheck, f.Marked = scale.False, true
	}
	return f
}

// HealthChecked is what a health check says of a machine, and whether it asks the set to replace it. A mark on a machine that the
// check finds healthy is the check's own to take back.
func HealthChecked(m *v1alpha1.Machine) (check scale.Answer, marked bool) {
	for _, c := range m.Status.Conditions {
		switch c.Type {
		case v1alpha1.MachineHealthCheckSucceeded:
			check = scale.Answer(c.Status)
		case v1alpha1.MachineOwnerRemediated:
			marked = c.Status == corev1.ConditionFalse
		default:
		}
	}
	return check, marked && check == scale.False
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

// hasJoined reports whether the node of a machine has joined, or will never have to.
func hasJoined(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase {
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineFailed, v1alpha1.MachineTerminating:
		return m.Annotations[v1alpha1.AnnotationMachineJoinDuration] != ""
	default:
		return true
	}
}
