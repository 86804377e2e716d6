package rollout_test

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/rollout"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func epochPlus(after time.Duration) time.Time { return epoch.Add(after) }

func countValue(n int) rollout.IntOrPercent   { return rollout.IntOrPercent{Value: n} }
func percentValue(n int) rollout.IntOrPercent { return rollout.IntOrPercent{Value: n, IsPercent: true} }

// newMachine returns an available machine with a node of its own.
func newMachine(name string, changes ...func(*rollout.Member)) rollout.Member {
	m := rollout.Member{
		Name:      name,
		UID:       "uid-" + name,
		Version:   "7",
		CreatedAt: epoch,
		MCM:       rollout.MCMMember{NodeName: "node-" + name},
		Ready:     true,
		Available: true,
		Priority:  3,
	}
	for _, c := range changes {
		c(&m)
	}
	return m
}

// asUnavailableMachine makes the machine unavailable but not Unhealthy, so the set need not delete it first.
func asUnavailableMachine(m *rollout.Member) { m.Ready, m.Available = false, false }
func asUnhealthyMachine(m *rollout.Member)   { asUnavailableMachine(m); m.Unhealthy = true }
func asFailedMachine(m *rollout.Member) {
	asUnhealthyMachine(m)
	m.Failed, m.MCM.LastOperationFailed = true, true
}
func asPreservedMachine(m *rollout.Member) { m.MCM.Preserved = true }
func asDeletingMachine(m *rollout.Member)  { asUnavailableMachine(m); m.Deleting = true }
func asUpdatingMachine(m *rollout.Member) {
	asUnavailableMachine(m)
	m.MCM.IsUpdateCandidate, m.Updating, m.MCM.HasUpdateLabels = true, true, true
}

func asUpdateCandidate(m *rollout.Member) {
	m.MCM.IsUpdateCandidate, m.MCM.HasUpdateLabels = true, true
}

func asUpdatedMachine(m *rollout.Member) {
	m.MCM.IsUpdateCandidate, m.MCM.Updated, m.MCM.HasUpdateLabels = true, true, true
}
func asHandedOverMachine(m *rollout.Member) { asUpdatedMachine(m); m.MCM.HandedOver = true }
func withTaintedNode(m *rollout.Member)     { m.MCM.NodeTainted = true }
func withScaleDownDisabledNode(m *rollout.Member) {
	m.MCM.ScaleDownDisabledValue, m.MCM.ScaleDownDisabledByMillwright = "true", true
}
func withoutNode(m *rollout.Member) { m.MCM.NodeName = "" }

func asMachineToDeleteFirst(m *rollout.Member) { m.DeleteFirst = true }
func asChosenMachine(m *rollout.Member)        { m.Priority, m.MCM.MarkedAt = 1, "2026-01-01T00:00:00Z" }

// oldSet returns old set number n of a deployment, with the given size and number of live machines. The first
// `available` machines are available.
func oldSet(n, replicas, live, available int) rollout.MachineSet {
	name := fmt.Sprintf("ms%d", n)
	s := rollout.MachineSet{
		Name:             name,
		UID:              "uid-" + name,
		Version:          "5",
		CreatedAt:        epochPlus(time.Duration(n) * time.Hour),
		Replicas:         replicas,
		ObservedReplicas: replicas,
		Revision:         int64(n),
	}
	for i := range live {
		m := newMachine(fmt.Sprintf("%s-%02d", name, i), withTaintedNode)
		if i >= available {
			asUnavailableMachine(&m)
		}
		s.Machines = append(s.Machines, m)
	}
	return s
}

// currentSet returns an oldSet that is the current set, without taints.
func currentSet(n, replicas, live, available int) rollout.MachineSet {
	s := oldSet(n, replicas, live, available)
	s.Current = true
	for i := range s.Machines {
		s.Machines[i].MCM.NodeTainted = false
	}
	return s
}

// withChangedMachine returns the set with the i-th machine changed.
func withChangedMachine(s rollout.MachineSet, i int, changes ...func(*rollout.Member)) rollout.MachineSet {
	s.Machines = slices.Clone(s.Machines)
	for _, c := range changes {
		c(&s.Machines[i])
	}
	return s
}

// withAdditionalMachines returns the set with additional machines.
func withAdditionalMachines(s rollout.MachineSet, list ...rollout.Member) rollout.MachineSet {
	s.Machines = append(slices.Clone(s.Machines), list...)
	return s
}

// withoutScaleUp returns the set with the label scale-up-disabled.
func withoutScaleUp(s rollout.MachineSet) rollout.MachineSet {
	s.ScaleUpDisabled = true
	return s
}

// rollingUpdateDeployment returns a deployment with the strategy RollingUpdate.
func rollingUpdateDeployment(replicas, surge, unavailable int, sets ...rollout.MachineSet) rollout.Facts {
	o := rollout.Facts{
		Now: epoch,
		Settings: rollout.Settings{
			Replicas:       replicas,
			Strategy:       rollout.RollingUpdate,
			MaxSurge:       countValue(surge),
			MaxUnavailable: countValue(unavailable),
		},
		Sets: sets,
	}
	return withCorrectAnnotations(o)
}

func withStrategy(s rollout.Strategy, o rollout.Facts) rollout.Facts {
	o.Strategy = s
	return withCorrectAnnotations(o)
}

// withCorrectAnnotations gives all sets correct annotations. withCorrectAnnotations also records the highest revision,
// the template's set, and the time at which the rollout of this revision was first complete.
func withCorrectAnnotations(o rollout.Facts) rollout.Facts {
	surge, _ := rollout.SurgeAndUnavailable(o)
	if o.Strategy != rollout.RollingUpdate {
		surge = 0
	}
	o.Sets = slices.Clone(o.Sets)
	for i := range o.Sets {
		s := &o.Sets[i]
		s.DesiredReplicas, s.MaxReplicas = o.Replicas, o.Replicas+surge
		o.Progress.Revision = max(o.Progress.Revision, s.Revision)
		if s.Current {
			o.Progress.Set = s.Name
		}
	}
	if o.Progress.Completed.IsZero() {
		o.Progress.Completed = epochPlus(-time.Hour)
	}
	return o
}

// changedSizes returns the new sizes that a decision sets, by set.
func changedSizes(d rollout.Decision) map[string]int {
	m := map[string]int{}
	for _, r := range d.Resize {
		if r.From != r.To {
			m[r.Name] = r.To
		}
	}
	return m
}

// forcedResizeSetNames returns the sets whose resize is Forced to break a deadlock.
func forcedResizeSetNames(d rollout.Decision) []string {
	var names []string
	for _, r := range d.Resize {
		if r.Forced {
			names = append(names, r.Name)
		}
	}
	return names
}

func targetNames(list []rollout.ObjectTarget) []string {
	var result []string
	for _, t := range list {
		result = append(result, t.Name)
	}
	return result
}

// randomSource is the SplitMix64 generator, which gives the same numbers for the same seed in every version of Go.
type randomSource uint64

func (d *randomSource) randomIntBelow(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *randomSource) randomBoolOneIn(n int) bool { return d.randomIntBelow(n) == 0 }

func pickRandomItem[T any](d *randomSource, items ...T) T { return items[d.randomIntBelow(len(items))] }

func shuffledItems[T any](d *randomSource, items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		j := i + d.randomIntBelow(len(items)-i)
		items[i], items[j] = items[j], items[i]
	}
	return items
}
