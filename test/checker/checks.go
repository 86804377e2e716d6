package checker

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"millwright/api/v1alpha1"
)

// Names of the checks of snapshots.
const (
	CheckDuplicateInstance  = "two instances of one machine"
	CheckOrphanedInstance   = "instance without a Machine"
	CheckMissingInstance    = "Machine without an instance"
	CheckTooManyMachines    = "more machines than allowed"
	CheckTooManyInstances   = "more instances than allowed"
	CheckTooFewNodes        = "fewer serving nodes than promised"
	CheckBrokenBudget       = "disruption budget broken"
	CheckFailedRun          = "run that ended badly"
	CheckUnsettledObject    = "not calm"
	CheckLeftover           = "left behind"
	CheckPodWithoutEviction = "pod lost without an eviction"
	CheckWronglyDrainedNode = "node of a machine that stays is cordoned or deleted"
	CheckVanishedInstance   = "machine that stays has lost its instance"
)

// FindingDurationLimits returns how long a finding may last before it is a violation, by check. A finding of a check
// without a limit is a violation at once.
func FindingDurationLimits() map[string]time.Duration {
	return map[string]time.Duration{
		// Orphans are excused if a person has removed the finalizer of their machine. Other orphans may appear only for
		// a short time: a snapshot does not read all objects at the same time.
		CheckOrphanedInstance: 10 * time.Second,
		CheckMissingInstance:  missingInstanceGracePeriod,
		CheckVanishedInstance: 3 * time.Second, // a snapshot reads the instances before the machines
		CheckBrokenBudget:     3 * time.Second, // the budget's controller counts a pod some time after the pod became ready
	}
}

// FindDuplicateInstances finds machine UIDs with more than one instance.
func FindDuplicateInstances(s Snapshot) (found []Finding) {
	for uid, instances := range s.InstancesByMachineUID() {
		if len(instances) < 2 || uid == "" {
			continue
		}
		var saw []string
		for _, i := range instances {
			saw = append(saw, i.ID+" "+i.State)
		}
		found = append(
			found,
			Finding{CheckDuplicateInstance, instances[0].Tags.MachineName + "/" + uid, strings.Join(saw, ", ")},
		)
	}
	return found
}

// FindOrphanedInstances finds instances whose machine does not exist. FindOrphanedInstances ignores the instances of
// machines whose UID is in excused, because a person has removed the finalizers of these machines.
func FindOrphanedInstances(s Snapshot, excused map[string]bool) (found []Finding) {
	for _, i := range s.Instances {
		uid := i.Tags.MachineUID
		if s.MachineByUID(uid) == nil && !excused[uid] {
			found = append(
				found,
				Finding{
					CheckOrphanedInstance,
					i.ID,
					fmt.Sprintf("instance %s of machine %s (UID %s), which does not exist", i.State, i.Tags.MachineName, uid),
				},
			)
		}
	}
	return found
}

const (
	// defaultCreationTimeout is the creation timeout of a machine whose spec sets no timeout. Source: MCM's default.
	defaultCreationTimeout = 20 * time.Minute
	// missingInstanceGracePeriod is how long after its creation timeout a machine may have no instance without being
	// Failed. The slack covers a fault that still continues, and the time without a running worker, which does not use up
	// the creation timeout.
	missingInstanceGracePeriod = 2 * time.Minute
)

// FindMissingInstances finds machines that have no instance although their creation timeout is over.
// FindMissingInstances ignores machines in the phase Failed, and machines whose status says that the provider rejects
// their creation.
func FindMissingInstances(s Snapshot) (found []Finding) {
	of := s.InstancesByMachineUID()
	for _, m := range s.Machines {
		timeout := defaultCreationTimeout
		if c := m.Spec.MachineConfiguration; c != nil && c.MachineCreationTimeout != nil {
			timeout = c.MachineCreationTimeout.Duration
		}
		age := s.Time.Sub(m.CreationTimestamp.Time)
		shown := m.Status.CurrentStatus.Phase
		if len(of[string(m.UID)]) > 0 || m.DeletionTimestamp != nil || age < timeout ||
			shown == v1alpha1.MachineFailed || shown == v1alpha1.MachineCrashLoopBackOff {
			continue
		}
		found = append(
			found,
			Finding{
				CheckMissingInstance,
				m.Name,
				fmt.Sprintf(
					"no instance after %s; timeout %s, phase %q",
					age.Round(time.Second),
					timeout,
					cmp.Or(string(shown), "none"),
				),
			},
		)
	}
	return found
}

// FindWronglyDrainedNodes finds nodes that are cordoned or deleted although the machine of their instance is not being
// removed. The node belongs to the machine whose UID is on the instance with the node's provider ID.
func FindWronglyDrainedNodes(s Snapshot) (found []Finding) {
	for _, i := range s.Instances {
		m, n := s.MachineByUID(i.Tags.MachineUID), s.NodeOfInstance(i)
		if n == nil || !mustKeepNodeAndInstance(s, m) || !n.Spec.Unschedulable && n.DeletionTimestamp == nil {
			continue
		}
		found = append(found, Finding{CheckWronglyDrainedNode, n.Name, fmt.Sprintf(
			"node of machine %s: unschedulable %t, deleted %t", m.Name, n.Spec.Unschedulable, n.DeletionTimestamp != nil)})
	}
	return found
}

// FindVanishedInstances finds machines that are not being removed, but whose recorded instance no longer exists.
func FindVanishedInstances(s Snapshot) (found []Finding) {
	of := s.InstancesByMachineUID()
	for _, m := range s.Machines {
		if m.Spec.ProviderID != "" && len(of[string(m.UID)]) == 0 && mustKeepNodeAndInstance(s, &m) {
			found = append(found, Finding{CheckVanishedInstance, m.Name, "no instance " + m.Spec.ProviderID})
		}
	}
	return found
}

// mustKeepNodeAndInstance reports whether a machine must keep its node and its instance.
func mustKeepNodeAndInstance(s Snapshot, m *v1alpha1.Machine) bool {
	return m != nil && m.DeletionTimestamp == nil && !s.MachinesDeletedDuringSnapshot[m.UID] &&
		m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed
}
