package drain

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	observedrain "millwright/observe/drain"
)

// RulesOfMachine returns Cluster API's drain rules that select a machine. A rule that does not parse is an error,
// because the rule may select this machine.
func RulesOfMachine(c *capi.Cache, m *clusterv1.Machine) (observedrain.MachineRules, error) {
	var found observedrain.MachineRules
	informer := c.Cluster.Informer(capi.DrainRulesResource)
	for _, r := range observecache.IndexedObjects[*clusterv1.MachineDrainRule](informer, cache.NamespaceIndex, m.Namespace) {
		selects, err := ruleSelectsMachine(c, r, m)
		if err != nil {
			return nil, fmt.Errorf("read MachineDrainRule %s/%s: %w", r.Namespace, r.Name, err)
		}
		if !selects {
			continue
		}
		var pods []observedrain.PodSelector
		for _, p := range r.Spec.Pods {
			pods = append(
				pods,
				observedrain.PodSelector{PodLabelSelector: p.Selector, NamespaceLabelSelector: p.NamespaceSelector},
			)
		}
		rule, err := observedrain.NewRule(r.Name, string(r.Spec.Drain.Behavior), r.Spec.Drain.Order, pods)
		if err != nil {
			return nil, fmt.Errorf("read MachineDrainRule %s/%s: %w", r.Namespace, r.Name, err)
		}
		found = append(found, rule)
	}
	return observedrain.SortedRules(found), nil
}

// ruleSelectsMachine reports whether a drain rule selects a machine: an entry of the rule matches the labels of the
// machine and of the machine's Cluster.
func ruleSelectsMachine(c *capi.Cache, r *clusterv1.MachineDrainRule, m *clusterv1.Machine) (bool, error) {
	var ofCluster labels.Set
	if cluster := clusterOfMachine(c, m); cluster != nil {
		ofCluster = cluster.Labels
	}
	for _, entry := range r.Spec.Machines {
		machines, err := observedrain.ParseSelector(entry.Selector)
		if err != nil {
			return false, err
		}
		clusters, err := observedrain.ParseSelector(entry.ClusterSelector)
		if err != nil {
			return false, err
		}
		if (machines == nil || machines.Matches(labels.Set(m.Labels))) && (clusters == nil || clusters.Matches(ofCluster)) {
			return true, nil
		}
	}
	return len(r.Spec.Machines) == 0, nil
}
