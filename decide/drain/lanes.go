package drain

import (
	"cmp"
	"fmt"
	"time"

	"millwright/decide/list"
)

// lane is a group of pods with volumes that go one after the other, the next only when the volumes of the one before
// have arrived elsewhere. Source: MCM evicts pods with volumes serially, so that a node which loses dozens of volumes at
// once does not exceed what its cloud detaches and attaches in time.
type lane struct {
	busy  bool
	cause cause // the volume that it waits for; zero when it waits for none
}

// lanes finds the lane of a pod. All pods share one, unless lanes are parallel: then those share one that have a
// StatefulSet, a budget or a volume in common, also by way of others (P6).
type lanes struct {
	parallel bool
	parents  map[string]string // a forest of what is shared: each tree is one lane
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

// of returns the lane of a pod. One that needs none has a lane of its own: it has no volumes, or finished by itself and holds none.
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

// shares are the things that keep a pod with volumes in a lane with others.
func (l *lanes) shares(p Pod) []string {
	if !l.parallel {
		return []string{""}
	}
	var keys []string
	for _, name := range p.Volumes {
		keys = append(keys, "volume "+name)
	}
	for _, key := range p.Budgets {
		keys = append(keys, "budget "+key)
	}
	if p.StatefulSet != "" {
		keys = append(keys, "set "+p.StatefulSet)
	}
	return keys
}

// join makes one lane of all that a pod shares.
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

// Leave is what is remembered of a pod that is gone, as it was seen last. Call it for each pod that left, with volumes or
// without: Decide forgets those that nothing waits for.
func Leave(p Pod, now time.Time) Departed { return Departed{Pod: p, At: now} }

// awaited is a pod that left, and the volume of it that its lane waits for.
type awaited struct {
	Departed
	state  string // Detaching or Attaching
	volume string
	until  time.Time // the wait ends then, without being a failure
}

func (a awaited) cause() cause {
	why := "is still attached to the node"
	if a.state == Attaching {
		why = "is not attached to another node yet"
	}
	return cause{kind: BlockedByVolume, name: a.volume, why: fmt.Sprintf("volume %s of %s %s", a.volume, a.Pod.key(), why)}
}

// settle returns the departed pods that still hold their lane.
func settle(o Observed) []awaited {
	used := map[string]bool{} // by a pod that is still there: such a volume stays
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

// await says which volume of a departed pod is waited for. First none of them may be attached to the node any more, then
// all have to be attached elsewhere. When the first takes too long, the second is not waited for.
func await(d Departed, o Observed, used map[string]bool) (awaited, bool) {
	if Treat(d.Pod).Do == Skip || d.Pod.Finished && d.Pod.DeletedAt.IsZero() { // one that had finished by itself held nothing
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
