package drain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// lane is a group of pods with volumes that go one after the other: the next pod goes when the volumes of the one
// before are attached elsewhere. Source: MCM evicts pods with volumes serially, so that a node with dozens of volumes
// does not exceed what its cloud detaches and attaches in time.
type lane struct {
	busy  bool
	cause cause // the volume that it has waited for longest; zero: none
}

// lanes finds the lane of a pod. Without parallel lanes, all pods with volumes share one lane. With parallel lanes,
// pods share a lane if they have a StatefulSet, a budget or a volume in common, directly or through other pods.
type lanes struct {
	parallel bool
	parents  map[string]string // a forest of what pods share: each tree is one lane
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
		if c := d.cause(); own.cause.name == "" ||
			cmp.Or(c.from.Compare(own.cause.from), cmp.Compare(c.name, own.cause.name)) < 0 {
			own.cause = c
		}
	}
	return l
}

// of returns the lane of a pod. A pod has an empty lane of its own if it has no volumes, or if it finished and is not
// being deleted.
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

// shares returns what puts a pod with volumes into one lane with others: volumes, budgets and StatefulSet.
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

// root returns the root of the tree of a key. It shortens the path from the key to the root, so that thousands of pods
// with one budget do not make a chain of thousands.
func (l *lanes) root(key string) string {
	root := key
	for parent, ok := l.parents[root]; ok; parent, ok = l.parents[root] {
		root = parent
	}
	for key != root {
		l.parents[key], key = root, l.parents[key]
	}
	return root
}

// Leave returns the Departed of a pod that is gone, as it was last seen. Call it for each pod that left, with or
// without volumes: Decide drops those that no lane waits for.
func Leave(p Pod, now time.Time) Departed {
	p.Tries.Message = "" // of any length, and about an eviction that is over
	return Departed{Pod: p, At: now}
}

// maxDeparted is how many bytes of Departed a decision returns: they are in inputs, results and heartbeats. Source:
// Temporal warns of payloads of 256 KiB, and half of that has room for 128 volumes, the most that a cloud attaches to a
// node, if names have up to 80 bytes.
const maxDeparted = 128 << 10

// fitting returns the first departed pods, as many as maxDeparted has room for. Lanes do not wait for the volumes of
// the others.
func fitting(all []Departed) []Departed {
	bytes := 0
	for i, d := range all {
		text, _ := json.Marshal(d) // plain structs and texts never fail
		if bytes += len(text) + len(","); bytes > maxDeparted {
			return all[:i]
		}
	}
	return all
}

// awaited is a departed pod, with the one of its volumes that its lane waits for.
type awaited struct {
	Departed
	state  string // Detaching or Attaching
	volume string
	until  time.Time // end of the wait; the lane then goes on, and nothing has failed
}

// since returns when the wait for the volume began.
func (a awaited) since() time.Time {
	if a.state == Attaching {
		return a.Free
	}
	return a.At
}

func (a awaited) cause() cause {
	why := "is still attached to the node"
	if a.state == Attaching {
		why = "is not attached to another node yet"
	}
	return cause{
		kind:  BlockedByVolume,
		name:  a.volume,
		from:  a.since().Add(slowVolume),
		until: a.until,
		why:   fmt.Sprintf("volume %s of %s %s", a.volume, a.Pod.key(), why),
	}
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

// await returns the volume of a departed pod that its lane waits for. First all volumes have to be detached from the
// node, then all have to be attached to other nodes. If the detachment takes too long, there is no wait for the
// attachment.
func await(d Departed, o Observed, used map[string]bool) (awaited, bool) {
	if Treat(d.Pod).Do == Skip || d.Pod.Finished && d.Pod.DeletedAt.IsZero() {
		// a pod that finished by itself used no volume
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
