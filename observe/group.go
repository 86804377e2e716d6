package observe

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/preserve"
	"millwright/decide/replace"
)

// isDismissed reports whether a failed machine is not to be kept: somebody does not want it, or its set has asked once.
func isDismissed(m *v1alpha1.Machine) bool {
	_, asked := m.Annotations[v1alpha1.AnnotationAutoPreserved]
	return asked || m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveFalse
}

// isKept reports whether its set asked for a machine's preservation.
func isKept(m *v1alpha1.Machine) bool {
	return m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveAuto
}

// replaceable reports whether a machine failed and its set is to replace it now, or is doing so. Where a deployment stands
// above, that is for its replacement budget to say.
func replaceable(m *v1alpha1.Machine, set *v1alpha1.MachineSet) bool {
	return hasFailed(m) && !IsProtected(m) && (isGranted(m) || !HasDeployment(set))
}

// hasFailed reports whether a machine failed. The phase of one that is being deleted does not say so any more.
func hasFailed(m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed || (m.DeletionTimestamp != nil && IsDue(m))
}

// IsPreserved reports whether a machine is kept on purpose, as its status says.
func IsPreserved(m *v1alpha1.Machine) bool { return m.Status.CurrentStatus.PreserveExpiryTime != nil }

// isKeptNow reports whether a machine is preserved, or has failed and is about to be.
func isKeptNow(m *v1alpha1.Machine) bool {
	return IsPreserved(m) || (m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && IsProtected(m))
}

// IsProtected reports whether no deleter may replace a machine that has failed or fails now: it is preserved, or asks to be and its own workflow
// has yet to put that on record.
func IsProtected(m *v1alpha1.Machine) bool {
	wish := PreserveFacts(m, nil, time.Time{})
	wish.Failed = true
	return IsPreserved(m) || preserve.Protected(wish)
}

// IsWaiting reports whether patience with a machine has ended and nobody has agreed yet that it is replaced.
func IsWaiting(m *v1alpha1.Machine) bool {
	over := IsDue(m) || m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed
	return over && m.DeletionTimestamp == nil && !isGranted(m) && !IsProtected(m)
}

// Blocked returns what keeps the provider from making a machine's instance, as a reason and in a sentence; empty when
// nothing does.
func Blocked(m *v1alpha1.Machine) (reason, message string) {
	if m.DeletionTimestamp != nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineCrashLoopBackOff {
		return "", ""
	}
	for _, c := range m.Status.Conditions {
		if (c.Type == v1alpha1.MachineClassReady || c.Type == v1alpha1.MachineInstanceReady) && c.Status == corev1.ConditionFalse {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// BlockedSet returns the reason of Blocked as the set's status says it; empty when nothing blocks.
func BlockedSet(set *v1alpha1.MachineSet) string {
	for _, c := range set.Status.Conditions {
		if c.Type == v1alpha1.MachineSetReplicaFailure && c.Status == v1alpha1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}

// Priority returns a machine's deletion priority: lower goes first; 3 where the annotation is absent or no number, as in
// MCM.
func Priority(m *v1alpha1.Machine) int {
	if p, err := strconv.Atoi(m.Annotations[v1alpha1.AnnotationMachinePriority]); err == nil {
		return p
	}
	return v1alpha1.PriorityDefault
}

// OverlappingDeployments returns the names of the other deployments in the namespace whose selector matches the labels of
// this one's template: machines would have two masters.
func (c *Cluster) OverlappingDeployments(d *v1alpha1.MachineDeployment) []string {
	var names []string
	for _, item := range c.informers[Deployments].GetStore().List() {
		other := item.(*v1alpha1.MachineDeployment)
		if other.Namespace != d.Namespace || other.UID == d.UID || other.DeletionTimestamp != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(other.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			names = append(names, other.Name)
		}
	}
	return names
}

// ReplaceObserved turns a deployment and the machines of its sets into what decide/replace asks for.
func (c *Cluster) ReplaceObserved(d *v1alpha1.MachineDeployment, members []*v1alpha1.Machine, now time.Time) replace.Observed {
	o := replace.Observed{Budget: budget(d), Nodes: c.NodeHealth(d.Namespace, now), Now: now}
	live := 0
	for _, m := range members {
		class, _ := c.Class(m.Namespace + "/" + m.Spec.Class.Name)
		o.Machines = append(o.Machines, replaceFacts(m, FailureDomain(m, class)))
		if m.DeletionTimestamp == nil {
			live++
		}
	}
	o.Missing = max(int(d.Spec.Replicas)-live, 0)
	for _, r := range d.Status.Replacements {
		o.Grants = append(o.Grants, replace.Grant{
			UID: string(r.UID), Name: r.Name, Domain: r.FailureDomain, Reason: r.Reason, At: r.GrantedAt.Time,
		})
	}
	return o
}

func replaceFacts(m *v1alpha1.Machine, domain string) replace.Machine {
	phase := m.Status.CurrentStatus.Phase
	f := replace.Machine{
		Name:      m.Name,
		UID:       string(m.UID),
		Domain:    domain,
		Granted:   isGranted(m),
		Preserved: isKeptNow(m),
		Deleting:  m.DeletionTimestamp != nil,
		Failed:    phase == v1alpha1.MachineFailed,
		Created:   m.CreationTimestamp.Time,
	}
	switch phase {
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineFailed:
		f.Joined = m.Annotations[v1alpha1.AnnotationMachineJoinDuration] != ""
	default:
		f.Joined = true
	}
	if f.Failed { // a failure that has no condition is told by its phase
		f.Due, f.DueSince, f.Reason = true, m.Status.CurrentStatus.LastUpdateTime.Time, string(phase)
	}
	for _, c := range m.Status.Conditions {
		if c.Type == v1alpha1.MachineReplacementDue && c.Status == corev1.ConditionTrue {
			f.Due, f.DueSince, f.Reason = true, c.LastTransitionTime.Time, c.Reason
		}
	}
	return f
}

// budget reads the replacement budget; admission refuses every other text than a percentage.
func budget(d *v1alpha1.MachineDeployment) replace.Budget {
	wanted := d.Spec.EffectiveMaxReplacements()
	if wanted.Type == intstr.Int {
		return replace.Budget{Value: int(wanted.IntVal)}
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(wanted.StrVal, "%"))
	if err != nil {
		return replace.Budget{}
	}
	return replace.Budget{Value: percent, Percent: true}
}
