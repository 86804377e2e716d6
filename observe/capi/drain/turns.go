package drain

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/drain"
	"millwright/decide/replace"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	observedrain "millwright/observe/drain"
)

// QueueEntries returns the facts about the order in which the nodes of a Cluster are drained.
func QueueEntries(c *capi.Cache, namespace, cluster string) (turns []drain.QueueEntry) {
	for _, m := range machinesOfCluster(c, namespace, cluster) {
		v := ToMillwrightMachine(m)
		if !HasDrainHook(m) || !observedrain.IsInDrainQueue(v) {
			continue
		}
		t := drain.QueueEntry{
			UID: string(m.UID), Namespace: m.Namespace, Name: m.Name, DeletedAt: m.DeletionTimestamp.Time,
			Priority: observedrain.DeletionPriority(v), Queued: v.Status.Deletion.Queued,
			Group: cmp.Or(m.Labels[clusterv1.MachineDeploymentNameLabel], m.Labels[clusterv1.MachineSetNameLabel]),
		}
		if d := v.Status.Deletion.Drain; d != nil {
			t.Started = d.StartedAt.Time
		}
		turns = append(turns, t)
	}
	return turns
}

// machinesOfCluster returns the machines of a Cluster, unsorted.
func machinesOfCluster(c *capi.Cache, namespace, cluster string) (all []*clusterv1.Machine) {
	for _, m := range observecache.AllObjects[*clusterv1.Machine](c.Cluster.Informer(capi.MachinesResource)) {
		if m.Namespace == namespace && m.Spec.ClusterName == cluster {
			all = append(all, m)
		}
	}
	return all
}

// JoinedNodeCounts returns how many nodes of a Cluster have joined, and how many of these nodes are not ready according
// to Cluster API.
func JoinedNodeCounts(c *capi.Cache, namespace, cluster string) (n replace.NodeCounts) {
	for _, m := range machinesOfCluster(c, namespace, cluster) {
		if !m.Status.NodeRef.IsDefined() {
			continue
		}
		n.Joined++
		if ready := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition); ready != nil &&
			ready.Status != metav1.ConditionTrue {
			n.Dead++
		}
	}
	return n
}

// MachinesWithDrainHook returns the machines with Millwright's hook for which wanted returns true, unsorted.
func MachinesWithDrainHook(c *capi.Cache, wanted func(*clusterv1.Machine) bool) (all []*clusterv1.Machine) {
	for _, m := range observecache.AllObjects[*clusterv1.Machine](c.Cluster.Informer(capi.MachinesResource)) {
		if HasDrainHook(m) && wanted(m) {
			all = append(all, m)
		}
	}
	return all
}
