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

// Decide says which instances are orphans, and which of them are deleted now: orphans found by two sweeps at least
// Confirm apart, of at least MinAge, and few enough for the breaker.
func Decide(f Facts) Decision {
	f.Settings = f.Settings.withDefaults()
	d := Decision{Instances: len(f.Instances)}
	for _, m := range f.Machines {
		if m.Elsewhere == "" {
			d.Machines++
		}
	}
	orphans := d.sort(f)
	for _, g := range orphans {
		d.Orphans += len(g.members)
	}
	most, held := limit(f, d)
	if held != "" {
		d.Held = held
		return d // no sightings while the breaker is open, because machines may be missing
	}
	d.collect(f, orphans, most)
	d.Sightings = sightings(orphans)
	return d
}

// group is all instances with one UID. They are kept or deleted together.
type group struct {
	machine, uid string
	members      []Instance // by provider ID
	since        []time.Time
}

// last returns when the last member of the group was first seen without a machine.
func (g group) last() time.Time { return slices.MaxFunc(g.since, time.Time.Compare) }

// sort counts the instances, and returns the groups that no machine claims, sorted by UID.
func (d *Decision) sort(f Facts) []group {
	var unclear notes
	var orphans []group
	claims := claimsOf(f.Machines)
	for _, g := range groups(f) {
		if f.Named && g.uid == "" && claims.nobodys(g.members[0]) {
			orphans = append(orphans, g)
			continue
		}
		if g.uid == "" || g.machine == "" || g.members[0].ProviderID == "" {
			for _, i := range g.members {
				if why := claims.unclear(i); why != "" {
					d.Unknown++
					unclear.add("instance %s %s: it is not deleted", cmp.Or(i.ProviderID, i.Machine, i.UID, "without any name"), why)
				}
			}
			continue
		}
		owner, claimed := claims.byUID[g.uid]
		for _, i := range g.members {
			if m, why := claims.of(i); why != "" && !claimed {
				owner, claimed = m, true
				unclear.add("instance %s has the UID of another machine and is not deleted: %s", i.ProviderID, why)
			}
		}
		switch {
		case !claimed:
			orphans = append(orphans, g)
		case len(g.members) > 1:
			d.Duplicates += len(g.members) - 1
			unclear.add(
				"%s has %d instances (%s), and it is not known which of them to delete: delete the surplus at the cloud",
				owner,
				len(g.members),
				g.ids(),
			)
		}
	}
	d.Unclear = unclear.bounded()
	return orphans
}

// groups returns the instances by UID, each with the time since which it is known to have no machine.
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

// unless says how an operator allows a sweep that the breaker holds.
const unless = ", unless the class's annotation machine.sapcloud.io/collect-orphans says how many may be deleted, and until when"

// limit returns how many instances may be deleted, or why none may be. The annotation collect-orphans replaces both
// breakers.
func limit(f Facts, d Decision) (most int, held string) {
	allowed, wrong := f.allowed()
	few := max(breakerFew, d.Instances/breakerShare)
	switch {
	case d.Orphans == 0:
		return 0, ""
	case wrong != "":
		return 0, fmt.Sprintf(
			"the annotation collect-orphans says %s, which %s: nothing is deleted",
			strconv.Quote(phrase.Cut(strings.TrimSpace(f.Allowed), maxNoteBytes)),
			wrong,
		)
	case allowed != nil:
		return min(*allowed, MostPerSweep), ""
	case d.Machines == 0:
		return 0, fmt.Sprintf(
			"%s and no machine at all: moved or restored control plane? Nothing is deleted%s",
			phrase.Count(d.Orphans, "instance"),
			unless,
		)
	case d.Orphans+d.Unknown == d.Instances: // machines are restored one by one, and those of other classes may come first
		return 0, fmt.Sprintf(
			"no machine claims any of the class's %s: is it being restored? Nothing is deleted%s",
			phrase.Count(d.Instances, "instance"),
			unless,
		)
	case d.Orphans > few:
		return 0, fmt.Sprintf(
			"%d of %s have no machine, more than the %d allowed at once: are machines missing? Nothing is deleted%s",
			d.Orphans,
			phrase.Count(d.Instances, "instance"),
			few,
			unless,
		)
	default:
		return f.Settings.MaxPerSweep, ""
	}
}

// allowed returns the number of the annotation collect-orphans, in the form "5 until 2026-11-24T12:00:00Z"; nil when
// there is none or its time is over. 0 needs no end. wrong says why the annotation cannot be obeyed.
func (f Facts) allowed() (n *int, wrong string) {
	fields := strings.Fields(f.Allowed)
	if len(fields) == 0 {
		return nil, ""
	}
	number, err := strconv.Atoi(fields[0])
	switch {
	case err != nil || number < 0:
		return nil, "is not a number of instances"
	case len(fields) == 1 && number == 0:
		return &number, ""
	case len(fields) != 3 || fields[1] != "until":
		return nil, `has no end, such as "5 until 2006-01-02T15:04:05Z"`
	}
	end, err := time.Parse(time.RFC3339, fields[2])
	switch {
	case err != nil:
		return nil, `has no end, such as "5 until 2006-01-02T15:04:05Z"`
	case end.Sub(f.Now) > maxAllowedFor:
		return nil, fmt.Sprintf("ends more than %s from now", phrase.Length(maxAllowedFor))
	case !f.Now.Before(end):
		return nil, ""
	default:
		return &number, ""
	}
}

// collect chooses the groups to delete now, those seen first before the others.
func (d *Decision) collect(f Facts, orphans []group, most int) {
	var notes notes
	queue := slices.Clone(orphans)
	slices.SortStableFunc(queue, func(a, b group) int { return a.last().Compare(b.last()) })
	count, size := 0, 0
	for _, g := range queue {
		why := cmp.Or(
			waits(g, f),
			phrase.If(count+len(g.members) > most, "one sweep deletes at most %d", most),
			phrase.If(size+g.size() > maxTargetBytes, "the names do not fit into the history, and a later sweep deletes it"),
		)
		if why != "" {
			notes.add("instance %s of Machine %s, which does not exist, is not deleted yet: %s", g.ids(), g.machine, why)
			continue
		}
		count, size = count+len(g.members), size+g.size()
		d.Collect = append(d.Collect, Target{g.machine, g.uid, g.providerIDs()})
	}
	d.Notes = notes.bounded()
}

// waits says what a group waits for; empty: it may be deleted.
func waits(g group, f Facts) string {
	if confirmed := g.last().Add(f.Settings.Confirm); f.Now.Before(confirmed) {
		return fmt.Sprintf(
			"first seen at %s, and not confirmed before %s",
			phrase.Clock(g.last(), f.Now),
			phrase.Clock(confirmed, f.Now),
		)
	}
	for _, i := range g.members {
		if grown := i.Created.Add(f.Settings.MinAge); !i.Created.IsZero() && f.Now.Before(grown) {
			return fmt.Sprintf("it is too young until %s", phrase.Clock(grown, f.Now))
		}
	}
	return ""
}

// After returns the sightings without those of deleted instances.
func After(all []Sighting, gone []string) []Sighting {
	return slices.DeleteFunc(slices.Clone(all), func(s Sighting) bool { return slices.Contains(gone, s.ProviderID) })
}

// Bounds of a Decision: as JSON it stays below 16 KiB, whatever the size of the fleet and its names.
const (
	maxSightings     = 100
	maxSightingBytes = 7 << 10
	maxTargetBytes   = 3 << 10
	maxNotes         = 10
	maxNoteBytes     = 200
	jsonOverhead     = 80 // of one sighting or target: keys, quotes and the time
)

// sightings returns the sightings for the next sweep, the oldest first, as many as fit into a history. An instance that
// is left out is first seen again by a later sweep.
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

// size returns the size of the group's target in a history, in bytes.
func (g group) size() int {
	size := len(g.machine) + len(g.uid) + jsonOverhead
	for _, m := range g.members {
		size += len(m.ProviderID) + len(`"",`)
	}
	return size
}

func (g group) providerIDs() []string {
	return list.Map(g.members, func(i Instance) string { return i.ProviderID })
}

func (g group) ids() string { return strings.Join(g.providerIDs(), ", ") }

// notes are sentences of a decision.
type notes []string

func (n *notes) add(format string, args ...any) {
	*n = append(*n, phrase.Cut(fmt.Sprintf(format, args...), maxNoteBytes))
}

// bounded returns at most maxNotes of them; the last one counts the others.
func (n notes) bounded() []string {
	if len(n) <= maxNotes {
		return n
	}
	return append(slices.Clone(n[:maxNotes-1]), fmt.Sprintf("and %d more", len(n)-maxNotes+1))
}
