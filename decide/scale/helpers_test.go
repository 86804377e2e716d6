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

func at(after time.Duration) time.Time { return epoch.Add(after) }

// change turns a machine into another one.
type change func(*scale.Member)

// member is a machine of the given age with a ready node, in every way as its set wants it.
func member(name string, age time.Duration, changes ...change) scale.Member {
	m := scale.Member{
		Name:      name,
		UID:       "uid-" + name,
		Version:   "7",
		Created:   at(-age),
		Matches:   true,
		MCM:       scale.MCMMember{Labelled: true},
		Template:  scale.Template{UpToDate: scale.True},
		Phase:     "Running",
		Joined:    true,
		Node:      scale.NodeHealthy,
		Readiness: scale.Readiness{Ready: scale.True, ReadyFrom: at(-age)},
		Priority:  3,
	}
	for _, c := range changes {
		c(&m)
	}
	return m
}

// running are n machines, the first of them the oldest.
func running(n int, changes ...change) []scale.Member {
	var list []scale.Member
	for i := range n {
		list = append(list, member(fmt.Sprintf("m-%d", i+1), time.Duration(n-i)*24*time.Hour, changes...))
	}
	return list
}

// fresh has just been made.
func fresh(m *scale.Member) {
	m.Phase, m.Joined, m.Node, m.Ready, m.ReadyFrom = "", false, scale.NoNode, "", time.Time{}
}

func pending(m *scale.Member) { fresh(m); m.Phase, m.Ready = "Pending", scale.False }

func crashing(m *scale.Member) {
	fresh(m)
	m.Phase, m.MCM.Crashing, m.Ready = "CrashLoopBackOff", true, scale.False
}

// failed failed after it had joined, and nobody else has to agree that it goes.
func failed(m *scale.Member) {
	m.Phase, m.MCM.Failed, m.MCM.Replace, m.Ready, m.Node = "Failed", true, true, scale.False, scale.NodeUnhealthy
}

// stillborn failed before it had joined.
func stillborn(m *scale.Member) { failed(m); m.Joined, m.Node = false, scale.NoNode }

const noScaleUp = "MachineSet has the label scale-up-disabled"

func paused(o *scale.Observed)       { o.Pauses = []string{phrase.PausedBy("MachineSet")} }
func notToScaleUp(o *scale.Observed) { o.Stopped = []string{noScaleUp} }

func notGranted(m *scale.Member) { m.MCM.Replace = false }

func deleting(m *scale.Member) {
	m.Deleting, m.DeletingSince, m.Phase = true, at(-time.Minute), "Terminating"
}

func deletingFor(d time.Duration) change {
	return func(m *scale.Member) { deleting(m); m.DeletingSince = at(-d) }
}

func preserved(m *scale.Member) { m.MCM.Preserved, m.MCM.Replace = true, false }

func preservedUntil(t time.Time) change {
	return func(m *scale.Member) { preserved(m); m.MCM.PreservedUntil = t }
}
func kept(m *scale.Member)      { preserved(m); m.MCM.Kept = true }
func dismissed(m *scale.Member) { m.MCM.Dismissed = true }
func annotated(m *scale.Member) { m.DeleteFirst = true }
func updating(m *scale.Member)  { m.Updating, m.Phase = true, "InPlaceUpdating" }
func updated(m *scale.Member)   { m.Updated = true }
func noNode(m *scale.Member)    { m.Node = scale.NoNode }
func nodeUnhealthy(m *scale.Member) {
	m.Node, m.Ready, m.Phase = scale.NodeUnhealthy, scale.False, "Unknown"
}
func nodeUnknown(m *scale.Member) { m.Node = scale.NodeUnknown }
func unhealthy(m *scale.Member)   { m.Healthy = scale.False }
func checked(m *scale.Member)     { m.Healthy = scale.True }
func unchecked(m *scale.Member)   { m.Healthy = scale.Unknown }
func marked(m *scale.Member)      { m.Marked = true }
func urgent(m *scale.Member)      { m.Urgent = true }
func ageless(m *scale.Member)     { m.Created = time.Time{} }
func stray(m *scale.Member)       { m.Matches, m.MCM.Labelled = false, false }
func drift(what string) change    { return func(m *scale.Member) { m.Drift = what } }
func priority(p int) change       { return func(m *scale.Member) { m.Priority = p } }

func chosen(t time.Time) change {
	return func(m *scale.Member) { m.Priority, m.MCM.Chosen = 1, t }
}

func orphan(name string) scale.Orphan {
	return scale.Orphan{Name: name, UID: "uid-" + name, Version: "7", Matches: true}
}

// set wants so many machines and has these.
func set(replicas int, members ...scale.Member) scale.Observed {
	return scale.Observed{
		Now:      epoch,
		Naming:   []string{"s-", ""},
		Settings: scale.Settings{Replicas: replicas},
		Members:  members,
		Seed:     7,
	}
}

func targets(list []scale.Target) []string {
	var result []string
	for _, t := range list {
		result = append(result, t.Name)
	}
	return result
}

// idle reports whether a decision does nothing.
func idle(d scale.Decision) bool {
	all := slices.Concat(d.Release, d.Adopt, d.Keep, d.Unmark, d.Remediate, d.Delete, d.Update, d.Move, d.Sync)
	return len(d.Create)+len(all) == 0
}

// dice is the SplitMix64 generator: the same throws for the same seed, on every version of Go.
type dice uint64

func (d *dice) below(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *dice) oneIn(n int) bool { return d.below(n) == 0 }

func pick[T any](d *dice, items ...T) T { return items[d.below(len(items))] }

func shuffle[T any](d *dice, items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		j := i + d.below(len(items)-i)
		items[i], items[j] = items[j], items[i]
	}
	return items
}

// upgrading is a control plane for which the check ControlPlaneIsStable fails.
func upgrading() preflight.Observed {
	return preflight.Observed{
		ControlPlane: &preflight.ControlPlane{Kind: "ControlPlane", Name: "cp", Upgrading: true},
		Settings:     preflight.Settings{Checks: []string{preflight.All}, Strict: true},
	}
}
