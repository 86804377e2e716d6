package rollout

import (
	"encoding/json"
	"slices"
	"time"
)

// Target names a set or a machine as it was seen.
type Target struct {
	Name, UID string
	Version   string // resourceVersion that was read: the write must meet the same one. Of nodes it says nothing
	Node      string // of a machine whose node is meant
	Why       string
}

// Resize gives a set its size and the annotations that go with it, if it still has the UID and version that were seen, or, within a
// moment, the size. From and To may be the same: then the annotations are out of date.
type Resize struct {
	Name, UID, Version string
	From, To           int
	Desired            int // annotation desired-replicas
	Max                int // annotation max-replicas
	// Forced: the set may take an available machine, and too few may be left for a moment. Only to end a deadlock.
	Forced bool
	Why    string
}

// Creation asks for the set of the current template.
type Creation struct {
	Replicas     int
	Revision     int64
	Desired, Max int
}

// Decision says what to do next. It is carried out in the order of its fields. All of it is harmless when done twice, and what was not done is decided again. Its lists have not more than MaxBatch entries in all,
// and fewer where names are long: what is left is for the next decision.
type Decision struct {
	Rollback   *Rollback // alone: it changes the template
	Trigger    *Trigger  // alone with Mark and Unmark, so that marks stand before a size becomes smaller
	Mark       []Mark
	Unmark     []Target // machines: take priority and time off
	Create     *Creation
	Open       []Target  // sets: take the label scale-up-disabled off
	Close      []Target  // sets: put it on
	Revise     *Revise   // number the current set, and the deployment with it
	Sync       []Target  // sets: copy to them what is the deployment's
	Record     *Progress // its Failed are those that are not on record yet
	Resize     []Resize
	Move       []Move   // machines: hand them to the current set
	Accept     []Target // machines: take the label update-result off
	Settle     []Target // nodes: end an in-place update: labels off, uncordon, await critical components
	Strip      []Target // nodes: take the labels of an in-place update off, and no more
	Candidates []Target // nodes: label candidate-for-update
	Select     []Target // nodes: label selected-for-update
	Taint      []Target // nodes: put the taint prefer-no-schedule on
	Untaint    []Target // nodes: take it off
	Guard      []Target // nodes: put both annotations for the cluster autoscaler on
	Unguard    []Target // nodes: take both off
	Delete     []Target // sets

	Revision int64       // that the current set has, or is given by Revise; zero while it has yet to be made
	Done     bool        // the deployment is being deleted and owns no set any more
	Rolling  bool        // machines of other templates are there, and are to give way
	NoSet    bool        // the template has no set, and gets none now
	Complete bool        // all that is wanted is there, of the current template, and nothing else
	Pause    *PausePoint // where it waits; nil: at no step
	HoldBy   string      // what holds it, in one word: Paused, Held, Step, Invalid or Machines; empty when nothing does
	Hold     string      // the same in a sentence
	Late     bool        // the progress deadline has passed
	Recheck  time.Time   // when to look again although nothing else changes; zero means that there is no need
	Why      string      // what is done next, or what it waits for, in a sentence
}

// Acts reports whether there is anything to do now.
func (d Decision) Acts() bool {
	lists := len(d.Mark) + len(d.Unmark) + len(d.Open) + len(d.Close) + len(d.Sync) + len(d.Resize) + len(d.Move) + len(d.Accept) +
		len(d.Settle) + len(d.Strip) + len(d.Candidates) + len(d.Select) + len(d.Taint) + len(d.Untaint) + len(d.Guard) +
		len(d.Unguard) + len(d.Delete)
	return lists > 0 || d.Rollback != nil || d.Trigger != nil || d.Create != nil || d.Revise != nil || d.Record != nil
}

// target names a set for a decision.
func (s Set) target(why string) Target {
	return Target{Name: s.Name, UID: s.UID, Version: s.Version, Why: why}
}

// target names a machine, and its node.
func (m Member) target(why string) Target {
	return Target{Name: m.Name, UID: m.UID, Version: m.Version, Node: m.Node, Why: why}
}

// resizes fills in the sets whose size or annotations change. The annotations of sets that want no machine are left alone. A
// set that is to grow and may not make machines is opened first, unless it has them.
func (p *planner) resizes(d *Decision) {
	for _, set := range p.sets {
		if set.NoScaleUp && set.size > set.Replicas && (set == p.current || set.size > set.live) {
			d.Open = append(d.Open, set.target(set.why))
			continue
		}
		stale := (set.size > 0 || set == p.current) && (set.Desired != p.o.Replicas || set.Max != most(p.o))
		if stale || set.size != set.Replicas {
			add(&d.Resize, Resize{
				Name: set.Name, UID: set.UID, Version: set.Version, From: set.Replicas, To: set.size,
				Desired: p.o.Replicas, Max: most(p.o), Forced: set.forced, Why: set.why,
			})
		}
	}
}

// unrecorded returns what of record is not in the status yet; nil when all is.
func (p *planner) unrecorded(record Progress) *Progress {
	known := p.o.Progress
	if record.Revision == known.Revision {
		if record.Step == known.Step && record.Reached.Equal(known.Reached) && slices.Equal(record.Failed, known.Failed) {
			return nil
		}
		record.Failed = slices.DeleteFunc(slices.Clone(record.Failed), func(name string) bool { return slices.Contains(known.Failed, name) })
	}
	return &record
}

// Recorded returns the record once that of a decision was written: of one revision, machines that failed are added to those that are
// on it. Recording one twice changes nothing.
func (r Progress) Recorded(next Progress) Progress {
	if r.Revision == next.Revision {
		next.Failed = slices.Concat(r.Failed, next.Failed)
	}
	next.Failed = slices.Compact(slices.Sorted(slices.Values(next.Failed)))
	return next
}

// MaxBatch is how many sets, machines and nodes a decision names at the most, those of all lists together. Source: as in decide/scale.
const MaxBatch = 50

// Bytes of a decision. Source: it has 16 KiB in history, and its sentence stands there twice; the rest is for what people see.
const (
	maxLists    = 9 << 10 // what its lists may take
	maxSentence = 1 << 10 // what tells the step
	maxReason   = 200     // what others wrote, such as why somebody holds a rollout
)

// space is what is left of a decision's lists.
type space struct{ entries, bytes int }

// take reports whether so many entries of so many bytes fit in, and takes the space. The first one fits whatever its size: a
// decision that does nothing would be made again for ever.
func (s *space) take(entries, bytes int) bool {
	if s.entries < entries || (s.bytes < bytes && s.entries < MaxBatch) {
		return false
	}
	s.entries, s.bytes = s.entries-entries, s.bytes-bytes
	return true
}

// fit returns as many entries, from the first on, as there is space for.
func fit[T any](s *space, list []T) []T {
	for i, entry := range list {
		if !s.take(1, weigh(entry)) {
			s.entries = 0 // what comes later in a decision does not overtake
			return list[:i]
		}
	}
	return list
}

// weigh returns how many bytes an entry takes in history.
func weigh(entry any) int {
	text, _ := json.Marshal(entry) // plain structs and texts never fail
	return len(text) + len(",")
}

// bound keeps the lists of a decision within one batch, in the order in which they are carried out. Who reads the facts again finds
// the rest.
func (d *Decision) bound() {
	s := &space{MaxBatch, maxLists}
	if d.Trigger != nil {
		d.Trigger.Drop = fit(s, d.Trigger.Drop)
	}
	d.Mark = fit(s, d.Mark)
	for _, list := range []*[]Target{&d.Unmark, &d.Open, &d.Close, &d.Sync} {
		*list = fit(s, *list)
	}
	if d.Record != nil {
		d.Record.Failed = fit(s, d.Record.Failed)
	}
	d.Resize = fit(s, d.Resize)
	d.Move = fit(s, d.Move)
	d.boundNodes(s)
	d.Delete = fit(s, d.Delete)
}

// boundNodes keeps together what is done at one machine, so that its node is written once.
func (d *Decision) boundNodes(s *space) {
	lists := []*[]Target{&d.Accept, &d.Settle, &d.Strip, &d.Candidates, &d.Select, &d.Taint, &d.Untaint, &d.Guard, &d.Unguard}
	entries, bytes := map[string]int{}, map[string]int{}
	var order []string
	for _, list := range lists {
		for _, t := range *list {
			if entries[t.UID]++; entries[t.UID] == 1 {
				order = append(order, t.UID)
			}
			bytes[t.UID] += weigh(t)
		}
	}
	kept := map[string]bool{}
	for _, uid := range order {
		kept[uid] = s.take(entries[uid], bytes[uid])
	}
	for _, list := range lists {
		*list = slices.DeleteFunc(*list, func(t Target) bool { return !kept[t.UID] })
	}
}
