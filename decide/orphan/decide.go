package orphan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Decide says which instances are orphans, and which of them go now: those that were without a machine at two sweeps far enough
// apart, that are old enough, and that are few. Nothing goes while Held says so.
func Decide(f Facts) Decision {
	f.Settings = f.Settings.withDefaults()
	d := Decision{Instances: len(f.Instances), Machines: len(f.Machines)}
	if f.Held != "" { // nothing that was read counts, so nothing that was known is forgotten
		d.Held, d.Sightings = f.Held, f.Sightings
		return d
	}
	orphans := d.sort(f)
	for _, g := range orphans {
		d.Orphans += len(g.members)
	}
	most, held := limit(f, d)
	if held != "" {
		d.Held = held
		return d // no sightings: what shows while the breaker is open may show because the machines are not all there yet
	}
	d.collect(f, orphans, most)
	d.Sightings = sightings(orphans)
	return d
}

// group is all instances that carry one UID. They stay together, or go together.
type group struct {
	machine, uid string
	members      []Instance // by provider ID
	since        []time.Time
}

// last is when the group's last member was first seen without a machine.
func (g group) last() time.Time { return slices.MaxFunc(g.since, time.Time.Compare) }

// sort counts the instances and returns the groups that no machine claims, by UID.
func (d *Decision) sort(f Facts) []group {
	var unclear notes
	byUID, byID := map[string]Machine{}, map[string]Machine{}
	for _, m := range f.Machines {
		byUID[m.UID] = m
		if m.ProviderID != "" {
			byID[m.ProviderID] = m
		}
	}
	var orphans []group
	for _, g := range groups(f) {
		owner, claimed := byUID[g.uid]
		if g.uid == "" || g.machine == "" || g.members[0].ProviderID == "" {
			for _, i := range g.members { // they do not say whose they are: one that a machine names is that machine's
				if _, named := byID[i.ProviderID]; !named {
					d.Unknown++
					unclear.add("instance %s carries no name, UID or provider ID by which to find its machine: it is left alone",
						cmp.Or(i.ProviderID, i.Machine, i.UID, "without any name"))
				}
			}
			continue
		}
		for _, i := range g.members {
			if m, named := byID[i.ProviderID]; named && !claimed {
				owner, claimed = m, true
				unclear.add("instance %s carries the UID of another machine and stays: Machine %s names it", i.ProviderID, m.Name)
			}
		}
		switch {
		case !claimed:
			orphans = append(orphans, g)
		case len(g.members) > 1:
			d.Duplicates += len(g.members) - 1
			unclear.add("Machine %s has %d instances (%s), and nothing tells which of them may go: delete at the cloud what is too much", owner.Name, len(g.members), g.ids())
		}
	}
	d.Unclear = unclear.bounded()
	return orphans
}

// groups returns the instances by UID, with the time since which each is known to have no machine.
func groups(f Facts) []group {
	since := map[[2]string]time.Time{}
	for _, s := range f.Sightings {
		since[[2]string{s.ProviderID, s.UID}] = s.Since
	}
	sorted := list.Sorted(f.Instances, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.ProviderID, b.ProviderID))
	})
	var all []group
	for _, i := range sorted {
		seen := f.Now
		if earlier, known := since[[2]string{i.ProviderID, i.UID}]; known && earlier.Before(f.Now) {
			seen = earlier
		}
		if last := len(all) - 1; last >= 0 && i.UID != "" && all[last].uid == i.UID {
			all[last].members, all[last].since = append(all[last].members, i), append(all[last].since, seen)
			continue
		}
		all = append(all, group{machine: i.Machine, uid: i.UID, members: []Instance{i}, since: []time.Time{seen}})
	}
	return all
}

// unless tells people how they let a sweep act that the breaker holds.
const unless = ", unless the class's annotation machine.sapcloud.io/collect-orphans says how many may be"

// limit says how many instances may go, or why none may. A person's wish takes the place of both breakers.
func limit(f Facts, d Decision) (most int, held string) {
	wish := strings.TrimSpace(f.Wish)
	few := max(breakerFew, d.Instances/breakerShare)
	switch n, err := strconv.Atoi(wish); {
	case d.Orphans == 0:
		return 0, ""
	case wish != "" && (err != nil || n < 0):
		return 0, fmt.Sprintf("the annotation collect-orphans says %s, which is no number of instances: nothing is deleted", strconv.Quote(phrase.Cut(wish, maxNoteBytes)))
	case wish != "":
		return min(n, MostPerSweep), ""
	case d.Machines == 0:
		return 0, fmt.Sprintf("%s and no machine at all: moved or restored control plane? Nothing is deleted%s", phrase.Count(d.Orphans, "instance"), unless)
	case d.Orphans+d.Unknown == d.Instances: // machines come back one by one, and those of other classes came first
		return 0, fmt.Sprintf("no machine claims any of the class's %s: is it being restored? Nothing is deleted%s", phrase.Count(d.Instances, "instance"), unless)
	case d.Orphans > few:
		return 0, fmt.Sprintf("%d of %s have no machine, more than the %d that may at once: are all machines there? Nothing is deleted%s", d.Orphans, phrase.Count(d.Instances, "instance"), few, unless)
	default:
		return f.Settings.MaxPerSweep, ""
	}
}

// collect chooses what goes now, those that were seen first before the others. A group goes as a whole.
func (d *Decision) collect(f Facts, orphans []group, most int) {
	var notes notes
	queue := slices.Clone(orphans)
	slices.SortStableFunc(queue, func(a, b group) int { return a.last().Compare(b.last()) })
	count, size := 0, 0
	for _, g := range queue {
		why := cmp.Or(
			waits(g, f),
			phrase.If(count+len(g.members) > most, "no more than %d go in one sweep", most),
			phrase.If(size+g.size() > maxTargetBytes, "the names of so many would fill the history, a later sweep takes it"),
		)
		if why != "" {
			notes.add("instance %s of Machine %s, which does not exist, stays for now: %s", g.ids(), g.machine, why)
			continue
		}
		count, size = count+len(g.members), size+g.size()
		d.Collect = append(d.Collect, Target{Machine: g.machine, UID: g.uid, ProviderIDs: g.providerIDs()})
	}
	d.Notes = notes.bounded()
}

// waits says what a group waits for; empty when it may go.
func waits(g group, f Facts) string {
	if confirmed := g.last().Add(f.Settings.Confirm); f.Now.Before(confirmed) {
		return fmt.Sprintf("seen first at %s, and not believed before %s", clock(g.last()), clock(confirmed))
	}
	for _, i := range g.members {
		if grown := i.Created.Add(f.Settings.MinAge); !i.Created.IsZero() && f.Now.Before(grown) {
			return fmt.Sprintf("it is too young until %s", clock(grown))
		}
	}
	return ""
}

// After returns the sightings that are left when these provider IDs are gone.
func After(all []Sighting, gone []string) []Sighting {
	return slices.DeleteFunc(slices.Clone(all), func(s Sighting) bool { return slices.Contains(gone, s.ProviderID) })
}

// Bounds of a Decision: as JSON it stays below 16 KiB, whatever the fleet and however long its names.
const (
	maxSightings     = 100
	maxSightingBytes = 7 << 10
	maxTargetBytes   = 3 << 10
	maxNotes         = 10
	maxNoteBytes     = 200
	jsonOverhead     = 80 // of one sighting or target: keys, quotes and the time
)

// sightings returns those of all members for the next sweep, the oldest first, and no more than a history can hold. One that
// is left out starts its clock at a later sweep.
func sightings(orphans []group) []Sighting {
	var all []Sighting
	for _, g := range orphans {
		for i, m := range g.members {
			all = append(all, Sighting{ProviderID: m.ProviderID, UID: g.uid, Since: g.since[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b Sighting) int { return a.Since.Compare(b.Since) })
	size := 0
	for i, s := range all {
		if size += len(s.ProviderID) + len(s.UID) + jsonOverhead; i == maxSightings || size > maxSightingBytes {
			return all[:i]
		}
	}
	return all
}

// size is what a target of the group takes in a history, in bytes.
func (g group) size() int {
	size := len(g.machine) + len(g.uid) + jsonOverhead
	for _, m := range g.members {
		size += len(m.ProviderID) + len(`"",`)
	}
	return size
}

func (g group) providerIDs() []string {
	var ids []string
	for _, m := range g.members {
		ids = append(ids, m.ProviderID)
	}
	return ids
}

func (g group) ids() string { return strings.Join(g.providerIDs(), ", ") }

// notes are the sentences of a decision.
type notes []string

func (n *notes) add(format string, args ...any) {
	*n = append(*n, phrase.Cut(fmt.Sprintf(format, args...), maxNoteBytes))
}

// bounded returns at most ten of them; the last says how many more there are.
func (n notes) bounded() []string {
	if len(n) <= maxNotes {
		return n
	}
	return append(slices.Clone(n[:maxNotes-1]), fmt.Sprintf("and %d more", len(n)-maxNotes+1))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
