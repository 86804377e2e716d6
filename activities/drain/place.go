package drain

import (
	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
)

// Place is where a drain happens: the machine, and the cluster of its node.
type Place struct {
	Kube    *kube.Kube                         // settings, metrics, and locks of budgets
	Name    string                             // name of the node's cluster; empty: the target cluster
	Cluster *cache.Cluster                     // cluster of the node: client, budgets and attachments
	Sources observedrain.Sources               // caches whose changes wake the drain
	Machine func() *v1alpha1.Machine           // returns the cached machine; nil: the machine is gone
	Rules   func() (observedrain.Rules, error) // returns the drain rules that select the machine
}

// placeOf returns the Place of a machine of Millwright.
func (a *Activities) placeOf(ref kube.Ref) Place {
	c := a.Kube.Cluster
	p := Place{Kube: a.Kube, Cluster: c, Sources: observedrain.SourcesOf(c)}
	p.Machine = func() *v1alpha1.Machine {
		m, _ := c.Machine(ref.Key())
		return m
	}
	p.Rules = func() (observedrain.Rules, error) {
		if m := p.Machine(); m != nil {
			return observedrain.ReadRules(c, m)
		}
		return nil, nil
	}
	return p
}

// client returns the client of the node's cluster.
func (p Place) client() kubernetes.Interface { return p.Cluster.Target("") }
