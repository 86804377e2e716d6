package drain

import (
	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
)

// Place is where a drain happens: the object of the machine, and the cluster of its node.
type Place struct {
	Kube    *kube.Kube                         // settings, metrics, and the locks of budgets
	Name    string                             // of the cluster of the node; empty: the target
	Cluster *cache.Cluster                     // of the node: its client, budgets and attachments
	Sources observedrain.Sources               // caches whose changes wake the drain
	Machine func() *v1alpha1.Machine           // from the caches; nil: it is gone
	Rules   func() (observedrain.Rules, error) // drain rules that select the machine
}

// place is where the node of a machine of Millwright is drained.
func (a *Activities) place(ref kube.Ref) Place {
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

// client returns the client of the cluster of the node.
func (p Place) client() kubernetes.Interface { return p.Cluster.Target("") }
