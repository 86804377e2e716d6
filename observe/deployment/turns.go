package deployment

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

// TurnsOfPolicy returns the limits that a policy sets, without siblings; zero if the policy does not limit rollouts.
func TurnsOfPolicy(policy *v1alpha1.RolloutPolicy) (turns rollout.Turns) {
	limit := policy.PolicySpec().Turns
	if limit == nil {
		return turns
	}
	turns.Policy, turns.MaxConcurrent = policy.Name, int(limit.MaxConcurrent)
	if limit.PauseBetween != nil {
		turns.PauseBetween = limit.PauseBetween.Duration
	}
	return turns
}

// SiblingFacts returns the facts about a sibling of a deployment.
func SiblingFacts(policy *v1alpha1.RolloutPolicy, d, sibling metav1.Object, facts rollout.Facts) rollout.Sibling {
	return rollout.Sibling{
		Name: sibling.GetName(), Earlier: cache.HasEarlierTurn(policy, sibling, d), Facts: facts,
	}
}

// turns returns the facts about the turns of the deployment and of its siblings.
func (f ObjectTree) turns(now time.Time) rollout.Turns {
	turns := TurnsOfPolicy(f.Policy)
	if turns.MaxConcurrent == 0 {
		return turns
	}
	for _, s := range f.Siblings {
		turns.Siblings = append(turns.Siblings, SiblingFacts(f.Policy, f.Deployment, s.Deployment, RolloutFacts(s, now)))
	}
	return turns
}

// WithSiblings returns the tree with the siblings among the deployments of its namespace. The siblings have no machines
// and no siblings.
func (f ObjectTree) WithSiblings(
	policies []*v1alpha1.RolloutPolicy,
	all []*v1alpha1.MachineDeployment,
	setsOf func(*v1alpha1.MachineDeployment) []*v1alpha1.MachineSet,
) ObjectTree {
	f.Siblings = nil
	for _, s := range cache.SiblingsInTurns(f.Policy, policies, f.Deployment, all) {
		f.Siblings = append(f.Siblings, ObjectTree{Deployment: s, Sets: setsOf(s), BehavesAsMCM: f.BehavesAsMCM})
	}
	return f
}

// withCachedSiblings returns the tree with the siblings from the caches.
func (f ObjectTree) withCachedSiblings(c *cache.Cluster) ObjectTree {
	namespace := f.Deployment.Namespace
	return f.WithSiblings(c.RolloutPolicies(namespace), c.Deployments(namespace), setsFromCache(c))
}

func setsFromCache(c *cache.Cluster) func(*v1alpha1.MachineDeployment) []*v1alpha1.MachineSet {
	return func(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet { return c.SetsOfOwner(string(d.UID)) }
}

// WithLivePolicy returns the tree with the policy from the API server.
func (f ObjectTree) WithLivePolicy(ctx context.Context, c *cache.Cluster) (_ ObjectTree, err error) {
	if f.Policy, err = c.LivePolicyOfObject(ctx, f.Deployment); err != nil {
		return f, err
	}
	return f.withCachedSiblings(c), nil
}

// WithLiveSiblings returns the tree with the siblings from the API server. Their sets are from the caches: a sibling whose
// new set is missing there counts as a deployment that waits.
func (f ObjectTree) WithLiveSiblings(ctx context.Context, c *cache.Cluster) (ObjectTree, error) {
	namespace := f.Deployment.Namespace
	list, err := c.Client().MachineV1alpha1().MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return f, fmt.Errorf("list deployments of namespace %s: %w", namespace, err)
	}
	return f.WithSiblings(c.RolloutPolicies(namespace), cache.PointersToItems(list.Items), setsFromCache(c)), nil
}
