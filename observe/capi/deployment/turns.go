package deployment

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/deployment"
)

// turns returns the facts about the turns of the deployment and of its siblings.
func (f ObjectTree) turns(now time.Time) rollout.Turns {
	turns := deployment.TurnsOfPolicy(f.Policy)
	if turns.MaxConcurrent == 0 {
		return turns
	}
	for _, s := range f.Siblings {
		facts := deployment.SiblingFacts(f.Policy, f.Deployment, s.Deployment, RolloutFacts(s, now))
		turns.Siblings = append(turns.Siblings, facts)
	}
	return turns
}

// WithSiblings returns the tree with the siblings among the deployments of its namespace. The siblings have no machines
// and no siblings. Deployments that Millwright does not reconcile take no turns.
func (f ObjectTree) WithSiblings(
	policies []*v1alpha1.RolloutPolicy,
	all []*clusterv1.MachineDeployment,
	complete func(ObjectTree) ObjectTree, // adds the sets and the Cluster of a sibling
) ObjectTree {
	f.Siblings = nil
	for _, s := range cache.SiblingsInTurns(f.Policy, policies, f.Deployment, all) {
		if f.Cache.IsReconciledByMillwright(s) {
			f.Siblings = append(f.Siblings, complete(ObjectTree{Cache: f.Cache, Deployment: s}))
		}
	}
	return f
}

// withCachedSiblings returns the tree with the siblings from the caches.
func (f ObjectTree) withCachedSiblings(c *capi.Cache) ObjectTree {
	namespace := f.Deployment.Namespace
	return f.WithSiblings(c.Cluster.RolloutPolicies(namespace), c.DeploymentsOfNamespace(namespace), completeFromCache)
}

func completeFromCache(f ObjectTree) ObjectTree {
	f.Sets = f.Cache.SetsOfDeployment(f.Deployment)
	f.Cluster, _ = f.Cache.ClusterByKey(f.Deployment.Namespace + "/" + f.Deployment.Spec.ClusterName)
	return f
}

// WithLiveSiblings returns the tree with the siblings from the API server. Their sets are from the caches: a sibling whose
// new set is missing there counts as a deployment that waits.
func (f ObjectTree) WithLiveSiblings(ctx context.Context, c *capi.Cache) (ObjectTree, error) {
	namespace := f.Deployment.Namespace
	list, err := c.Client().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return f, fmt.Errorf("list machinedeployments of namespace %s: %w", namespace, err)
	}
	return f.WithSiblings(c.Cluster.RolloutPolicies(namespace), cache.PointersToItems(list.Items), completeFromCache), nil
}
