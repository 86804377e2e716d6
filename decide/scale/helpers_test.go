package scale_test

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/phrase"
	"millwright/decide/preflight"
	"millwright/decide/scale"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func epochPlus(after time.Duration) time.Time { return epoch.Add(after) }

// memberChange changes a machine.
type memberChange func(*scale.Member)

// newMember returns a machine of the given age with a ready node. The machine matches its set and its template.
func newMember(name string, age time.Duration, changes ...memberChange) scale.Member {
	m := scale.Member{
		Name:                name,
		UID:                 "uid-" + name,
		Version:             "7",
		CreatedAt:           epochPlus(-age),
		MatchesSelector:     true,
		MCM:                 scale.MCMMember{Labelled: true},
		TemplateDifferences: scale.TemplateDifferences{UpToDate: scale.ConditionTrue},
		Phase:               "Running",
		Joined:              true,
		NodeState:           scale.NodeHealthy,
		Readiness:           scale.Readiness{Ready: scale.ConditionTrue, ReadySince: epochPlus(-age)},
		Priority:            3,
	}
	for _, c := range changes {
		c(&m)
	}
	return m
}

// runningMembers returns n machines, from the oldest to the youngest.
func runningMembers(n int, changes ...memberChange) []scale.Member {
	var list []scale.Member
	for i := range n {
		list = append(list, newMember(fmt.Sprintf("m-%d", i+1), time.Duration(n-i)*24*time.Hour, changes...))
	}
	return list
}

// asFreshMachine makes the machine look as if it was just created.
func asFreshMachine(m *scale.Member) {
	m.Phase, m.Joined, m.NodeState, m.Ready, m.ReadySince = "", false, scale.NoNode, "", time.Time{}
}

func asPendingMachine(m *scale.Member) {
	asFreshMachine(m)
	m.Phase, m.Ready = "Pending", scale.ConditionFalse
}

func asMachineWithFailingCreation(m *scale.Member) {
	asFreshMachine(m)
	m.Phase, m.MCM.CreationFailing, m.Ready = "CrashLoopBackOff", true, scale.ConditionFalse
}

// asFailedMachine makes the machine one that joined, later failed, and may be replaced now.
func asFailedMachine(m *scale.Member) {
	m.Phase, m.MCM.Failed, m.MCM.Replaceable, m.Ready, m.NodeState = "Failed", true, true, scale.ConditionFalse, scale.NodeUnhealthy
}

// asNeverJoinedMachine makes the machine one that failed before it joined.
func asNeverJoinedMachine(m *scale.Member) {
	asFailedMachine(m)
	m.Joined, m.NodeState = false, scale.NoNode
}

const noScaleUpReason = "MachineSet has the label scale-up-disabled"

func pauseSet(o *scale.Facts)    { o.PauseSentences = []string{phrase.PausedSentence("MachineSet")} }
func stopScaleUp(o *scale.Facts) { o.StopReasons = []string{noScaleUpReason} }

func asUnreplaceableMachine(m *scale.Member) { m.MCM.Replaceable = false }

func asDeletingMachine(m *scale.Member) {
	m.Deleting, m.DeletingSince, m.Phase = true, epochPlus(-time.Minute), "Terminating"
}

func withDeletionDuration(d time.Duration) memberChange {
	return func(m *scale.Member) { asDeletingMachine(m); m.DeletingSince = epochPlus(-d) }
}

func asPreservedMachine(m *scale.Member) { m.MCM.Preserved, m.MCM.Replaceable = true, false }

func withPreservationEnd(t time.Time) memberChange {
	return func(m *scale.Member) { asPreservedMachine(m); m.MCM.PreservedUntil = t }
}

func asAutoPreservedMachine(m *scale.Member)    { asPreservedMachine(m); m.MCM.AutoPreserved = true }
func withForbiddenPreservation(m *scale.Member) { m.MCM.PreservationForbidden = true }
func asMachineToDeleteFirst(m *scale.Member)    { m.DeleteFirst = true }
func asUpdatingMachine(m *scale.Member)         { m.Updating, m.Phase = true, "InPlaceUpdating" }
func asMovedMachine(m *scale.Member)            { m.MovedForUpdate = true }
func withoutNode(m *scale.Member)               { m.NodeState = scale.NoNode }
func withUnhealthyNode(m *scale.Member) {
	m.NodeState, m.Ready, m.Phase = scale.NodeUnhealthy, scale.ConditionFalse, "Unknown"
}
func withUnknownNode(m *scale.Member)         { m.NodeState = scale.NodeUnknown }
func asUnhealthyMachine(m *scale.Member)      { m.Healthy = scale.ConditionFalse }
func asHealthyMachine(m *scale.Member)        { m.Healthy = scale.ConditionTrue }
func withUnknownHealth(m *scale.Member)       { m.Healthy = scale.ConditionUnknown }
func asMarkedMachine(m *scale.Member)         { m.Marked = true }
func asMachineToReplaceFirst(m *scale.Member) { m.Urgent = true }
func withoutCreationTime(m *scale.Member)     { m.CreatedAt = time.Time{} }
func asUnmatchedMachine(m *scale.Member)      { m.MatchesSelector, m.MCM.Labelled = false, false }
func withDrift(what string) memberChange      { return func(m *scale.Member) { m.Drift = what } }
func withPriority(p int) memberChange         { return func(m *scale.Member) { m.Priority = p } }

func withChoiceTime(t time.Time) memberChange {
	return func(m *scale.Member) { m.Priority, m.MCM.ChosenAt = 1, t }
}

func newOrphan(name string) scale.Orphan {
	return scale.Orphan{Name: name, UID: "uid-" + name, Version: "7", MatchesSelector: true}
}

// newSet returns a set with the given size and members.
func newSet(replicas int, members ...scale.Member) scale.Facts {
	return scale.Facts{
		Now:       epoch,
		NameParts: []string{"s-", ""},
		Settings:  scale.Settings{Replicas: replicas},
		Members:   members,
		NameSeed:  7,
	}
}

func targetNames(list []scale.MachineTarget) []string {
	var result []string
	for _, t := range list {
		result = append(result, t.Name)
	}
	return result
}

// isIdleDecision reports whether a decision changes no machine.
func isIdleDecision(d scale.Decision) bool {
	all := slices.Concat(d.Release, d.Adopt, d.Keep, d.Unmark, d.Remediate, d.Delete, d.Update, d.Move, d.Sync)
	return len(d.Create)+len(all) == 0
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

// upgradingControlPlane returns a control plane that fails the preflight check ControlPlaneIsStable.
func upgradingControlPlane() preflight.Facts {
	return preflight.Facts{
		ControlPlane: &preflight.ControlPlane{Kind: "ControlPlane", Name: "cp", Upgrading: true},
		Settings:     preflight.Settings{Checks: []string{preflight.CheckAll}, Strict: true, RequireReplicas: true},
	}
}
