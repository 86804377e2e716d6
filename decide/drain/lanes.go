package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// lane is a group of pods with volumes that go one after the other: the next pod goes when the volumes of the one before are
// attached elsewhere. Source: MCM evicts pods with volumes serially, so that a node with dozens of volumes does not exceed what
// its cloud detaches and attaches in time.
type lane struct {
	busy  bool
	cause cause // the volume that it waits for; zero: none
}

// lanes finds the lane of a pod. All pods share one lane. With parallel lanes, pods share a lane if they have a StatefulSet, a
// budget or a volume in common, also through other pods (P6).
type lanes struct {
	parallel bool
	parents  map[string]string // a forest of the shared things: each tree is one lane
	byRoot   map[string]*lane
}

func newLanes(views []*view, departed []awaited, parallel bool) *lanes {
	l := &lanes{parallel: parallel, parents: map[string]string{}, byRoot: map[string]*lane{}}
	for _, v := range views {
		l.join(v.pod)
	}
	for _, d := range departed {
		l.join(d.Pod)
	}
	for _, v := range views {
		if v.pod.leaving() {
			l.of(v.pod).busy = true
		}
	}
	for _, d := range departed {
		own := l.lane(d.Pod)
		own.busy = true
		if own.cause.name == "" || d.volume < own.cause.name {
			own.cause = d.cause()
		}
	}
	return l
}

// of returns the lane of a pod. A pod has an empty lane of its own if it has no volumes, or if it finished and is not being
// deleted.
func (l *lanes) of(p Pod) *lane {
	if len(p.Volumes) == 0 || p.Finished && !p.leaving() {
		return &lane{}
	}
	return l.lane(p)
}

func (l *lanes) lane(p Pod) *lane {
	root := l.root(l.shares(p)[0])
	if l.byRoot[root] == nil {
		l.byRoot[root] = &lane{}
	}
	return l.byRoot[root]
}

// shares returns the things that put a pod with volumes into a lane with others.
func (l *lanes) shares(p Pod) []string {
	if !l.parallel {
		return []string{""}
	}
	volumes := list.Map(p.Volumes, func(name string) string { return "volume " + name })
	budgets := list.Map(p.Budgets, func(key string) string { return "budget " + key })
	return slices.Concat(volumes, budgets, phrase.Parts(phrase.If(p.StatefulSet != "", "set %s", p.StatefulSet)))
}

// join makes one lane of everything that a pod shares.
func (l *lanes) join(p Pod) {
	if len(p.Volumes) == 0 {
		return
	}
	keys := l.shares(p)
	for _, key := range keys[1:] {
		if a, b := l.root(keys[0]), l.root(key); a != b {
			l.parents[b] = a
		}
	}
}

func (l *lanes) root(key string) string {
	for parent, ok := l.parents[key]; ok; parent, ok = l.parents[key] {
		key = parent
	}
	return key
}

// Leave returns the Departed of a pod that is gone, as it was last seen. Call it for each pod that left, with or without
// volumes: Decide drops those that no lane waits for.
func Leave(p Pod, now time.Time) Departed { return Departed{Pod: p, At: now} }

// awaited is a pod that left, and one of its volumes that its lane waits for.
type awaited struct {
	Departed
	state  string // Detaching or Attaching
	volume string
	until  time.Time // end of the wait, which is no failure
}

func (a awaited) cause() cause {
	why := "is still attached to the node"
	if a.state == Attaching {
		why = "is not attached to another node yet"
	}
	return cause{kind: BlockedByVolume, name: a.volume, until: a.until, why: fmt.Sprintf("volume %s of %s %s", a.volume, a.Pod.key(), why)}
}

// awaitedVolumes returns the departed pods whose lane still waits.
func awaitedVolumes(o Observed) []awaited {
	used := map[string]bool{} // by a pod on the node: such a volume stays attached
	for _, p := range o.Pods {
		for _, v := range p.Volumes {
			used[v] = used[v] || !p.Finished
		}
	}
	var result []awaited
	byTime := func(a, b Departed) int { return cmp.Or(a.At.Compare(b.At), byName(a.Pod, b.Pod)) }
	for _, d := range list.Sorted(o.Departed, byTime) {
		if a, waits := await(d, o, used); waits {
			result = append(result, a)
		}
	}
	return result
}

// await returns the volume of a departed pod that its lane waits for. First all volumes have to be detached from the node, then
// all have to be attached to other nodes. If the detachment takes too long, there is no wait for the attachment.
func await(d Departed, o Observed, used map[string]bool) (awaited, bool) {
	if Treat(d.Pod).Do == Skip || d.Pod.Finished && d.Pod.DeletedAt.IsZero() { // a pod that finished by itself used no volume
		return awaited{}, false
	}
	first := func(is func(Volume) bool) string {
		return list.Find(d.Pod.Volumes, func(name string) bool { return !used[name] && is(o.Volumes[name]) })
	}
	if d.Free.IsZero() {
		if name := first(func(v Volume) bool { return v.Here }); name != "" {
			until := d.At.Add(o.Settings.Detach)
			return awaited{d, Detaching, name, until}, until.After(o.Now)
		}
		d.Free = o.Now
	}
	name := first(func(v Volume) bool { return !v.Elsewhere })
	until := d.Free.Add(o.Settings.Attach)
	return awaited{d, Attaching, name, until}, name != "" && until.After(o.Now)
}
