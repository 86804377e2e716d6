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
	return FirstMatchingPolicy(
		IndexedObjects[*v1alpha1.RolloutPolicy](c.Informers[RolloutPoliciesResource], cache.NamespaceIndex, o.GetNamespace()),
		o,
	)
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
	return len(p.Spec.Targets) == 0 || slices.ContainsFunc(p.Spec.Targets, func(t v1alpha1.RolloutPolicyTarget) bool {
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
