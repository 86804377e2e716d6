package drain

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
)

// NodeLocation is where a drain happens: the machine, and the cluster of its node.
type NodeLocation struct {
	Kube    *kube.Kube                                // settings, metrics, and locks of budgets
	Name    string                                    // identity of the node's cluster; empty: the target cluster of all namespaces
	Target  *cache.Target                             // cluster of the node: client, budgets and attachments
	Sources observedrain.ChangeSources                // caches whose changes wake the drain
	Machine func() *v1alpha1.Machine                  // returns the cached machine; nil: the machine is gone
	Rules   func() (observedrain.MachineRules, error) // returns the drain rules that select the machine
}

// acquireNodeLocation returns the NodeLocation of a machine of Millwright, with filled caches of budgets and
// attachments. The caller must call release when it no longer reads these caches.
func (a *Activities) acquireNodeLocation(
	ctx context.Context,
	ref kube.Ref,
) (p NodeLocation, release func(), err error) {
	a.Kube.Cluster.KeepTargetConnected(ref.Namespace)
	release, err = a.Kube.Cluster.Target(ref.Namespace).UseDrainCaches(ctx)
	if err != nil {
		return p, nil, fmt.Errorf("read budgets and attachments: %w", err)
	}
	return a.nodeLocationOf(ref), release, nil
}

// nodeLocationOf returns the NodeLocation of a machine of Millwright.
func (a *Activities) nodeLocationOf(ref kube.Ref) NodeLocation {
	c := a.Kube.Cluster
	target := c.Target(ref.Namespace)
	p := NodeLocation{
		Kube:   a.Kube,
		Name:   target.Identity(),
		Target: target,
		Sources: observedrain.NewChangeSources(
			c.Informer(cache.MachinesResource),
			c.Informer(cache.DrainRulesResource),
			target,
		),
	}
	p.Machine = func() *v1alpha1.Machine {
		m, _ := c.Machine(ref.Key())
		return m
	}
	p.Rules = func() (observedrain.MachineRules, error) {
		if m := p.Machine(); m != nil {
			return observedrain.ReadRules(c, m)
		}
		return nil, nil
	}
	return p
}

// client returns the client of the node's cluster.
func (p NodeLocation) client() kubernetes.Interface { return p.Target.Client() }
