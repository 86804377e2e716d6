package deployment

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/machine"
	"millwright/observe/set"
)

// SelectsSet reports whether the selector of a deployment matches the labels of a set. An empty selector, or a selector
// that does not parse, matches no set.
func SelectsSet(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(set.Labels))
}

// DeploymentsThatSelectSet returns the deployments of a set's namespace whose selector matches the set's labels, and
// the deployment that released the set, unsorted.
func DeploymentsThatSelectSet(c *cache.Cluster, set *v1alpha1.MachineSet) []*v1alpha1.MachineDeployment {
	return slices.DeleteFunc(
		cache.AllObjects[*v1alpha1.MachineDeployment](c.Informer(cache.DeploymentsResource)),
		func(d *v1alpha1.MachineDeployment) bool {
			return d.Namespace != set.Namespace ||
				!SelectsSet(d, set) && set.Annotations[v1alpha1.AnnotationReleasedBy] != string(d.UID)
		},
	)
}

// OverlappingDeploymentNames returns the sorted names of the other deployments of the namespace whose selector matches
// the labels of this deployment's template. Deployments with overlapping selectors would claim the same machines.
func OverlappingDeploymentNames(c *cache.Cluster, d *v1alpha1.MachineDeployment) []string {
	var names []string
	for _, other := range cache.AllObjects[*v1alpha1.MachineDeployment](c.Informer(cache.DeploymentsResource)) {
		if other.Namespace != d.Namespace || other.UID == d.UID || other.DeletionTimestamp != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(other.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			names = append(names, other.Name)
		}
	}
	slices.Sort(names)
	return names
}

// ReplacementFacts returns the facts for decisions about the replacement of a deployment's machines. The parameter
// members contains the machines of the deployment's sets.
func ReplacementFacts(
	c *cache.Cluster,
	d *v1alpha1.MachineDeployment,
	members []*v1alpha1.Machine,
	now time.Time,
) replace.Facts {
	policy := c.PolicyOfObject(d).PolicySpec()
	o := replace.Facts{
		Budget:     ParseIntOrPercent(policy.EffectiveMaxReplacements()),
		Retries:    set.RetryPolicy(policy.Remediation, 0),
		NodeCounts: machine.JoinedNodeCounts(c, d.Namespace, now),
		Now:        now,
	}
	active := 0 // members that are not being deleted
	for _, m := range members {
		class, _ := c.Class(m.Namespace + "/" + m.Spec.Class.Name)
		f := machineReplacementFacts(m, machine.FailureDomain(m, class))
		f.BypassesBudget = machine.IsNodeDeletedManually(c, m)
		f.Generations = generationsOfSet(c, m)
		o.Machines = append(o.Machines, f)
		if m.DeletionTimestamp == nil {
			active++
		}
	}
	o.MissingMachineCount = max(int(d.Spec.Replicas)-active, 0)
	for _, r := range d.Status.Replacements {
		o.Grants = append(o.Grants, replace.ReplacementGrant{
			MachineUID: string(
				r.UID,
			),
			MachineName: r.Name,
			Domain:      r.FailureDomain,
			Reason:      r.Reason,
			GrantedAt:   r.GrantedAt.Time,
		})
	}
	return o
}

// generationsOfSet returns the recorded generations of failed machines of a machine's set.
func generationsOfSet(c *cache.Cluster, m *v1alpha1.Machine) (r scale.GenerationRecord) {
	if owner := metav1.GetControllerOf(m); owner != nil {
		if s, found := c.MachineSet(m.Namespace + "/" + owner.Name); found && s.UID == owner.UID {
			return set.GenerationRecord(s)
		}
	}
	return r
}

func machineReplacementFacts(m *v1alpha1.Machine, domain string) replace.Machine {
	phase := m.Status.CurrentStatus.Phase
	f := replace.Machine{
		Name:      m.Name,
		UID:       string(m.UID),
		Domain:    domain,
		Granted:   machine.IsReplacementGranted(m),
		Preserved: machine.IsPreservedNowOrLater(m),
		Deleting:  m.DeletionTimestamp != nil,
		Failed:    phase == v1alpha1.MachineFailed,
		CreatedAt: m.CreationTimestamp.Time,
		Joined:    phase == v1alpha1.MachineTerminating || machine.HasJoined(m),
	}
	if f.Failed { // without the condition ReplacementDue, the phase decides
		f.Due, f.DueSince, f.Reason = true, m.Status.CurrentStatus.LastUpdateTime.Time, string(phase)
	}
	if c := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineReplacementDue); c != nil &&
		c.Status == corev1.ConditionTrue {
		f.Due, f.DueSince, f.Reason = true, c.LastTransitionTime.Time, c.Reason
	}
	return f
}
