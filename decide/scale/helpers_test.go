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

func timeAt(after time.Duration) time.Time { return epoch.Add(after) }

// memberChange changes a machine.
type memberChange func(*scale.Member)

// newMember returns a machine of the given age with a ready node. The machine matches its set and its template.
func newMember(name string, age time.Duration, changes ...memberChange) scale.Member {
	m := scale.Member{
		Name:      name,
		UID:       "uid-" + name,
		Version:   "7",
		Created:   timeAt(-age),
		Matches:   true,
		MCM:       scale.MCMMember{Labelled: true},
		Template:  scale.Template{UpToDate: scale.True},
		Phase:     "Running",
		Joined:    true,
		Node:      scale.NodeHealthy,
		Readiness: scale.Readiness{Ready: scale.True, ReadyFrom: timeAt(-age)},
		Priority:  3,
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

// makeFresh makes the machine one that was just created.
func makeFresh(m *scale.Member) {
	m.Phase, m.Joined, m.Node, m.Ready, m.ReadyFrom = "", false, scale.NoNode, "", time.Time{}
}

func makePending(m *scale.Member) { makeFresh(m); m.Phase, m.Ready = "Pending", scale.False }

func makeCrashing(m *scale.Member) {
	makeFresh(m)
	m.Phase, m.MCM.Crashing, m.Ready = "CrashLoopBackOff", true, scale.False
}

// makeFailed makes the machine one that failed after it had joined and that may be replaced now.
func makeFailed(m *scale.Member) {
	m.Phase, m.MCM.Failed, m.MCM.Replace, m.Ready, m.Node = "Failed", true, true, scale.False, scale.NodeUnhealthy
}

// makeNeverJoined makes the machine one that failed before it joined.
func makeNeverJoined(m *scale.Member) { makeFailed(m); m.Joined, m.Node = false, scale.NoNode }

const noScaleUpReason = "MachineSet has the label scale-up-disabled"

func pauseSet(o *scale.Observed)    { o.Pauses = []string{phrase.PausedBy("MachineSet")} }
func stopScaleUp(o *scale.Observed) { o.Stopped = []string{noScaleUpReason} }

func revokeReplacement(m *scale.Member) { m.MCM.Replace = false }

func makeDeleting(m *scale.Member) {
	m.Deleting, m.DeletingSince, m.Phase = true, timeAt(-time.Minute), "Terminating"
}

func makeDeletingFor(d time.Duration) memberChange {
	return func(m *scale.Member) { makeDeleting(m); m.DeletingSince = timeAt(-d) }
}

func makePreserved(m *scale.Member) { m.MCM.Preserved, m.MCM.Replace = true, false }

func makePreservedUntil(t time.Time) memberChange {
	return func(m *scale.Member) { makePreserved(m); m.MCM.PreservedUntil = t }
}
func markKept(m *scale.Member)        { makePreserved(m); m.MCM.Kept = true }
func makeDismissed(m *scale.Member)   { m.MCM.Dismissed = true }
func makeDeleteFirst(m *scale.Member) { m.DeleteFirst = true }
func makeUpdating(m *scale.Member)    { m.Updating, m.Phase = true, "InPlaceUpdating" }
func makeUpdated(m *scale.Member)     { m.Updated = true }
func removeNode(m *scale.Member)      { m.Node = scale.NoNode }
func makeNodeUnhealthy(m *scale.Member) {
	m.Node, m.Ready, m.Phase = scale.NodeUnhealthy, scale.False, "Unknown"
}
func makeNodeUnknown(m *scale.Member)      { m.Node = scale.NodeUnknown }
func makeUnhealthy(m *scale.Member)        { m.Healthy = scale.False }
func makeHealthy(m *scale.Member)          { m.Healthy = scale.True }
func makeHealthUnknown(m *scale.Member)    { m.Healthy = scale.Unknown }
func makeMarked(m *scale.Member)           { m.Marked = true }
func makeUrgent(m *scale.Member)           { m.Urgent = true }
func removeCreated(m *scale.Member)        { m.Created = time.Time{} }
func makeUnmatched(m *scale.Member)        { m.Matches, m.MCM.Labelled = false, false }
func makeDrifted(what string) memberChange { return func(m *scale.Member) { m.Drift = what } }
func withPriority(p int) memberChange      { return func(m *scale.Member) { m.Priority = p } }

func makeChosen(t time.Time) memberChange {
	return func(m *scale.Member) { m.Priority, m.MCM.Chosen = 1, t }
}

func newOrphan(name string) scale.Orphan {
	return scale.Orphan{Name: name, UID: "uid-" + name, Version: "7", Matches: true}
}

// newSet returns a set with the given size and members.
func newSet(replicas int, members ...scale.Member) scale.Observed {
	return scale.Observed{
		Now:      epoch,
		Naming:   []string{"s-", ""},
		Settings: scale.Settings{Replicas: replicas},
		Members:  members,
		Seed:     7,
	}
}

func targetNames(list []scale.Target) []string {
	var result []string
	for _, t := range list {
		result = append(result, t.Name)
	}
	return result
}

// isIdle reports whether a decision changes no machine.
func isIdle(d scale.Decision) bool {
	all := slices.Concat(d.Release, d.Adopt, d.Keep, d.Unmark, d.Remediate, d.Delete, d.Update, d.Move, d.Sync)
	return len(d.Create)+len(all) == 0
}

// dice is the SplitMix64 generator: the same seed gives the same numbers with every version of Go.
type dice uint64

func (d *dice) randomBelow(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *dice) randomOneIn(n int) bool { return d.randomBelow(n) == 0 }

func pickRandom[T any](d *dice, items ...T) T { return items[d.randomBelow(len(items))] }

func shuffled[T any](d *dice, items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		j := i + d.randomBelow(len(items)-i)
		items[i], items[j] = items[j], items[i]
	}
	return items
}

// upgradingControlPlane returns a control plane that fails the preflight check ControlPlaneIsStable.
func upgradingControlPlane() preflight.Observed {
	return preflight.Observed{
		ControlPlane: &preflight.ControlPlane{Kind: "ControlPlane", Name: "cp", Upgrading: true},
		Settings:     preflight.Settings{Checks: []string{preflight.All}, Strict: true},
	}
}
