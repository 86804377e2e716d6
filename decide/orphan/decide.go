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

// Decide returns which instances are orphans, and which orphans are deleted now. An orphan is deleted if two sweeps
// found it at least Confirm apart, if it is at least MinAge old, and if the breaker is closed.
func Decide(f Facts) Decision {
	f.Settings = f.Settings.withDefaults()
	d := Decision{Instances: len(f.Instances)}
	for _, m := range f.Machines {
		if m.Elsewhere == "" {
			d.Machines++
		}
	}
	orphans := d.groupUnclaimedInstances(f)
	for _, g := range orphans {
		d.Orphans += len(g.members)
	}
	most, held := deletionLimit(f, d)
	if held != "" {
		d.Held = held
		return d // while the breaker is open, machines may be missing, so that the sweep records no sightings
	}
	d.selectTargets(f, orphans, most)
	d.Sightings = nextSightings(orphans)
	return d
}

// instanceGroup holds all instances with one UID. All instances of a group are kept, or all are deleted.
type instanceGroup struct {
	machineName, machineUID string
	members                 []Instance // instances of the group, sorted by provider ID
	firstSeenTimes          []time.Time
}

// latestFirstSeenTime returns when the last member of the group was first seen without a machine.
func (g instanceGroup) latestFirstSeenTime() time.Time {
	return slices.MaxFunc(g.firstSeenTimes, time.Time.Compare)
}

// groupUnclaimedInstances counts the instances, and returns the groups that no machine claims, sorted by UID.
func (d *Decision) groupUnclaimedInstances(f Facts) []instanceGroup {
	var unclear noteList
	var orphans []instanceGroup
	claims := newClaimIndex(f.Machines)
	for _, g := range groupByUID(f) {
		if f.IdentifiedByName && g.machineUID == "" && claims.isUnclaimed(g.members[0]) {
			orphans = append(orphans, g)
			continue
		}
		if g.machineUID == "" || g.machineName == "" || g.members[0].ProviderID == "" {
			for _, i := range g.members {
				if why := claims.ownerUncertaintyReason(i); why != "" {
					d.Unknown++
					unclear.addNote(
						"instance %s %s: it is not deleted",
						cmp.Or(i.ProviderID, i.MachineName, i.MachineUID, "without any name"),
						why,
					)
				}
			}
			continue
		}
		owner, claimed := claims.machineByUID[g.machineUID]
		for _, i := range g.members {
			if m, why := claims.claimingMachine(i); why != "" && !claimed {
				owner, claimed = m, true
				unclear.addNote("instance %s has the UID of another machine and is not deleted: %s", i.ProviderID, why)
			}
		}
		switch {
		case !claimed:
			orphans = append(orphans, g)
		case len(g.members) > 1:
			d.Duplicates += len(g.members) - 1
			unclear.addNote(
				"%s has %d instances (%s), and it is not known which of them to delete: delete the surplus at the cloud",
				owner,
				len(g.members),
				g.providerIDText(),
			)
		}
	}
	d.Unclear = unclear.limitedNotes()
	return orphans
}

// groupByUID returns the instances grouped by UID. Each instance carries the time since which sweeps have seen it
// without a machine.
func groupByUID(f Facts) []instanceGroup {
	since := map[[2]string]time.Time{}
	for _, s := range f.Sightings {
		since[[2]string{s.ProviderID, s.UID}] = s.Since
	}
	sorted := list.SortedCopy(f.Instances, func(a, b Instance) int {
		return cmp.Or(
			cmp.Compare(a.MachineUID, b.MachineUID),
			cmp.Compare(a.MachineName, b.MachineName),
			cmp.Compare(a.ProviderID, b.ProviderID),
		)
	})
	var all []instanceGroup
	for _, i := range sorted {
		seen := f.Now
		if earlier, known := since[[2]string{i.ProviderID, i.MachineUID}]; known && earlier.Before(f.Now) {
			seen = earlier
		}
		if last := len(all) - 1; last >= 0 && i.MachineUID != "" && all[last].machineUID == i.MachineUID {
			all[last].members, all[last].firstSeenTimes = append(all[last].members, i), append(all[last].firstSeenTimes, seen)
			continue
		}
		all = append(
			all,
			instanceGroup{
				machineName:    i.MachineName,
				machineUID:     i.MachineUID,
				members:        []Instance{i},
				firstSeenTimes: []time.Time{seen},
			},
		)
	}
	return all
}

// breakerOverrideHint is the part of a message that tells operators how to allow a sweep that the breaker blocks.
const breakerOverrideHint = ", unless the class's annotation machine.sapcloud.io/collect-orphans says how many may be deleted, and until when"

// deletionLimit returns how many instances may be deleted, or why none may be deleted. A valid annotation
// collect-orphans overrides every breaker.
func deletionLimit(f Facts, d Decision) (most int, held string) {
	allowed, wrong := f.parseAllowedDeletions()
	few := max(breakerToleratedOrphans, d.Instances/breakerInstancesPerOrphan)
	switch {
	case d.Orphans == 0:
		return 0, ""
	case wrong != "":
		return 0, fmt.Sprintf(
			"the annotation collect-orphans says %s, which %s: nothing is deleted",
			strconv.Quote(phrase.TruncateText(strings.TrimSpace(f.AllowedDeletionsText), maxNoteBytes)),
			wrong,
		)
	case allowed != nil:
		return min(*allowed, MaxDeletionsPerSweep), ""
	case d.Machines == 0:
		return 0, fmt.Sprintf(
			"%s and no machine at all: moved or restored control plane? Nothing is deleted%s",
			phrase.CountText(d.Orphans, "instance"),
			breakerOverrideHint,
		)
	case d.Orphans+d.Unknown == d.Instances: // while a backup is restored, machines appear one by one
		return 0, fmt.Sprintf(
			"no machine claims any of the class's %s: is it being restored? Nothing is deleted%s",
			phrase.CountText(d.Instances, "instance"),
			breakerOverrideHint,
		)
	case d.Orphans > few:
		return 0, fmt.Sprintf(
			"%d of %s have no machine, more than the %d allowed at once: are machines missing? Nothing is deleted%s",
			d.Orphans,
			phrase.CountText(d.Instances, "instance"),
			few,
			breakerOverrideHint,
		)
	default:
		return f.Settings.MaxPerSweep, ""
	}
}

// parseAllowedDeletions returns the number in the annotation collect-orphans, whose form is "5 until
// 2026-11-24T12:00:00Z". The number is nil if there is no annotation, or if its time has passed. The number 0 needs no
// end time. The result wrong is the reason why the annotation is invalid.
func (f Facts) parseAllowedDeletions() (n *int, wrong string) {
	fields := strings.Fields(f.AllowedDeletionsText)
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
	case end.Sub(f.Now) > maxAllowanceDuration:
		return nil, fmt.Sprintf("ends more than %s from now", phrase.DurationText(maxAllowanceDuration))
	case !f.Now.Before(end):
		return nil, ""
	default:
		return &number, ""
	}
}

// selectTargets selects the groups to delete now, the groups with the earliest sightings first.
func (d *Decision) selectTargets(f Facts, orphans []instanceGroup, most int) {
	var notes noteList
	queue := slices.Clone(orphans)
	slices.SortStableFunc(
		queue,
		func(a, b instanceGroup) int { return a.latestFirstSeenTime().Compare(b.latestFirstSeenTime()) },
	)
	count, size := 0, 0
	for _, g := range queue {
		why := cmp.Or(
			waitReason(g, f),
			phrase.TextIf(count+len(g.members) > most, "one sweep deletes at most %d", most),
			phrase.TextIf(
				size+g.deletionTargetBytes() > maxDeletionTargetsBytes,
				"the names do not fit into the history, and a later sweep deletes it",
			),
		)
		if why != "" {
			notes.addNote(
				"instance %s of Machine %s, which does not exist, is not deleted yet: %s",
				g.providerIDText(),
				g.machineName,
				why,
			)
			continue
		}
		count, size = count+len(g.members), size+g.deletionTargetBytes()
		d.Collect = append(d.Collect, DeletionTarget{g.machineName, g.machineUID, g.providerIDs()})
	}
	d.Notes = notes.limitedNotes()
}

// waitReason returns what a group waits for; empty: the group may be deleted.
func waitReason(g instanceGroup, f Facts) string {
	if confirmed := g.latestFirstSeenTime().Add(f.Settings.Confirm); f.Now.Before(confirmed) {
		return fmt.Sprintf(
			"first seen at %s, and not confirmed before %s",
			phrase.ClockText(g.latestFirstSeenTime(), f.Now),
			phrase.ClockText(confirmed, f.Now),
		)
	}
	for _, i := range g.members {
		if grown := i.Created.Add(f.Settings.MinAge); !i.Created.IsZero() && f.Now.Before(grown) {
			return fmt.Sprintf("it is too young until %s", phrase.ClockText(grown, f.Now))
		}
	}
	return ""
}

// SightingsWithoutDeleted returns the sightings without the sightings of deleted instances.
func SightingsWithoutDeleted(all []Sighting, gone []string) []Sighting {
	return slices.DeleteFunc(slices.Clone(all), func(s Sighting) bool { return slices.Contains(gone, s.ProviderID) })
}

// Limits that keep the JSON of a Decision below 16 KiB for any number of instances and any length of names.
const (
	maxSightings            = 100
	maxSightingsBytes       = 7 << 10
	maxDeletionTargetsBytes = 3 << 10
	maxNotes                = 10
	maxNoteBytes            = 200
	jsonOverheadBytes       = 80 // bytes of one sighting or target: keys, quotes and the time
)

// nextSightings returns the sightings for the next sweep, the oldest first, as many as fit into a history. For an
// instance that does not fit, a later sweep starts a new sighting.
func nextSightings(orphans []instanceGroup) []Sighting {
	var all []Sighting
	for _, g := range orphans {
		for i, m := range g.members {
			all = append(all, Sighting{ProviderID: m.ProviderID, UID: g.machineUID, Since: g.firstSeenTimes[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b Sighting) int { return a.Since.Compare(b.Since) })
	size := 0
	for i, s := range all {
		if size += len(s.ProviderID) + len(s.UID) + jsonOverheadBytes; i == maxSightings || size > maxSightingsBytes {
			return all[:i]
		}
	}
	return all
}

// deletionTargetBytes returns the size of the group's target in a history, in bytes.
func (g instanceGroup) deletionTargetBytes() int {
	size := len(g.machineName) + len(g.machineUID) + jsonOverheadBytes
	for _, m := range g.members {
		size += len(m.ProviderID) + len(`"",`)
	}
	return size
}

func (g instanceGroup) providerIDs() []string {
	return list.Map(g.members, func(i Instance) string { return i.ProviderID })
}

func (g instanceGroup) providerIDText() string { return strings.Join(g.providerIDs(), ", ") }

// noteList is a list of sentences of a decision.
type noteList []string

func (n *noteList) addNote(format string, args ...any) {
	*n = append(*n, phrase.TruncateText(fmt.Sprintf(format, args...), maxNoteBytes))
}

// limitedNotes returns at most maxNotes sentences. If there are more, the last sentence counts the omitted sentences.
func (n noteList) limitedNotes() []string {
	if len(n) <= maxNotes {
		return n
	}
	return append(slices.Clone(n[:maxNotes-1]), fmt.Sprintf("and %d more", len(n)-maxNotes+1))
}
