package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
)

// PolicyOfObject returns from the cache the RolloutPolicy that applies to a MachineDeployment, or to a MachineSet
// without a deployment; nil if no policy applies.
func (c *Cluster) PolicyOfObject(o metav1.Object) *v1alpha1.RolloutPolicy {
	return FirstMatchingPolicy(c.RolloutPolicies(o.GetNamespace()), o)
}

// RolloutPolicies returns the RolloutPolicies of a namespace from the cache.
func (c *Cluster) RolloutPolicies(namespace string) []*v1alpha1.RolloutPolicy {
	return IndexedObjects[*v1alpha1.RolloutPolicy](c.Informers[RolloutPoliciesResource], cache.NamespaceIndex, namespace)
}

// LivePolicyOfObject does the same as PolicyOfObject, but reads from the API server.
func (c *Cluster) LivePolicyOfObject(ctx context.Context, o metav1.Object) (*v1alpha1.RolloutPolicy, error) {
	list, err := c.client.MachineV1alpha1().RolloutPolicies(o.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list rollout policies of namespace %s: %w", o.GetNamespace(), err)
	}
	return FirstMatchingPolicy(PointersToItems(list.Items), o), nil
}

// FirstMatchingPolicy returns the first policy, by name, that selects an object; nil if no policy selects the object.
func FirstMatchingPolicy(policies []*v1alpha1.RolloutPolicy, o metav1.Object) *v1alpha1.RolloutPolicy {
	selecting := slices.DeleteFunc(
		slices.Clone(policies),
		func(p *v1alpha1.RolloutPolicy) bool { return !policySelectsObject(p, o) },
	)
	if len(selecting) == 0 {
		return nil
	}
	return slices.MinFunc(selecting, func(a, b *v1alpha1.RolloutPolicy) int { return cmp.Compare(a.Name, b.Name) })
}

// policySelectsObject reports whether a policy applies to an object of its namespace. A target whose selector does not
// parse selects nothing.
func policySelectsObject(p *v1alpha1.RolloutPolicy, o metav1.Object) bool {
	return len(p.Spec.Targets) == 0 || indexOfTarget(p, o) >= 0
}

// indexOfTarget returns the index of the first target of a policy that selects an object; -1 if there is none.
func indexOfTarget(p *v1alpha1.RolloutPolicy, o metav1.Object) int {
	return slices.IndexFunc(p.Spec.Targets, func(t v1alpha1.RolloutPolicyTarget) bool {
		if t.Name != "" && t.Name != o.GetName() {
			return false
		}
		if t.Selector == nil {
			return true
		}
		selector, err := metav1.LabelSelectorAsSelector(t.Selector)
		return err == nil && selector.Matches(labels.Set(o.GetLabels()))
	})
}

// HasEarlierTurn reports whether the turn of a deployment is before the turn of another deployment of the same policy:
// the targets of the policy are in order, and the deployments of one target are in the order of their names.
func HasEarlierTurn(p *v1alpha1.RolloutPolicy, a, b metav1.Object) bool {
	return cmp.Or(cmp.Compare(indexOfTarget(p, a), indexOfTarget(p, b)), cmp.Compare(a.GetName(), b.GetName())) < 0
}

// SiblingsInTurns returns the other deployments to which a deployment's policy applies, if the policy limits how many of
// them are rolled out at a time; otherwise nil.
func SiblingsInTurns[T metav1.Object](
	policy *v1alpha1.RolloutPolicy,
	policies []*v1alpha1.RolloutPolicy,
	d T,
	all []T,
) []T {
	if policy.PolicySpec().Turns == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(o T) bool {
		of := FirstMatchingPolicy(policies, o)
		return o.GetName() == d.GetName() || of == nil || of.Name != policy.Name
	})
}
