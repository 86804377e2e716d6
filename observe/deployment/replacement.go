package deployment

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// OverlappingDeployments returns the names of the other deployments in the namespace whose selector matches the labels of
// this one's template: machines would have two masters.
func OverlappingDeployments(c *cache.Cluster, d *v1alpha1.MachineDeployment) []string {
	var names []string
	for _, other := range cache.All[*v1alpha1.MachineDeployment](c.Informer(cache.Deployments)) {
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
func ReplaceObserved(c *cache.Cluster, d *v1alpha1.MachineDeployment, members []*v1alpha1.Machine, now time.Time) replace.Observed {
	o := replace.Observed{Budget: bound(d.Spec.EffectiveMaxReplacements()), Nodes: machine.JoinedNodes(c, d.Namespace, now), Now: now}
	live := 0
	for _, m := range members {
		class, _ := c.Class(m.Namespace + "/" + m.Spec.Class.Name)
		o.Machines = append(o.Machines, replaceFacts(m, machine.FailureDomain(m, class)))
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
		Granted:   machine.IsGranted(m),
		Preserved: machine.IsKeptNow(m),
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
