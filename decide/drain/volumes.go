package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

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
	for _, d := range sorted(o.Departed, byDeparture) {
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
	first := func(is func(Volume) bool) (string, bool) {
		i := slices.IndexFunc(d.Pod.Volumes, func(name string) bool { return !used[name] && is(o.Volumes[name]) })
		if i < 0 {
			return "", false
		}
		return d.Pod.Volumes[i], true
	}
	if d.Free.IsZero() {
		if name, here := first(func(v Volume) bool { return v.Here }); here {
			until := d.At.Add(o.Settings.Detach)
			return awaited{d, Detaching, name, until}, until.After(o.Now)
		}
		d.Free = o.Now
	}
	name, missing := first(func(v Volume) bool { return !v.Elsewhere })
	until := d.Free.Add(o.Settings.Attach)
	return awaited{d, Attaching, name, until}, missing && until.After(o.Now)
}

func byDeparture(a, b Departed) int { return cmp.Or(a.At.Compare(b.At), byName(a.Pod, b.Pod)) }
