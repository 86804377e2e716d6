package rollout

import (
	"encoding/json"
	"slices"
	"time"

	"millwright/decide/list"
)

// Target names a set or a machine as it was read.
type Target struct {
	Name, UID string
	Version   string // resourceVersion of the set or machine that was read: precondition of its write, not of the node's
	Node      string // name of the machine's node; empty for a set
	Why       string
}

// Resize gives a set its size and annotations. Precondition: the set has this UID, and it has this Version or, for a
// short time after the decision, still the size From. From and To may be equal: then only the annotations change.
type Resize struct {
	Name, UID, Version string
	From, To           int
	ActedOn            int `json:",omitempty"` // the size that the set's workflow has acted on
	Desired            int // annotation desired-replicas
	Max                int // annotation max-replicas
	// Forced: the set may delete an available machine, so that too few may be available for a short time. Only to break a
	// deadlock.
	Forced   bool
	Transfer Transfer `json:",omitzero"` // its annotations about machines that move between sets
	Why      string
}

// Creation creates the set of the current template.
type Creation struct {
	Replicas     int
	Revision     int64
	Desired, Max int
}

// SetChanges are the changes of sets, in the order of the fields.
type SetChanges struct {
	Release       []Target  // remove our controller reference
	Adopt         []Target  // make the deployment their controller, after a live read of the deployment
	Create        *Creation // the set of the present template
	AllowScaleUp  []Target  // remove the label scale-up-disabled
	ForbidScaleUp []Target  // add the label scale-up-disabled
	Revise        *Revise   // set the revision of the current set and of the deployment
	Sync          []Target  // copy the deployment's settings
	// Ask asks an extension whether it can bring the machines of these sets to the current set's template.
	Ask    []Target `json:",omitempty"`
	Resize []Resize
	Delete []Target // after all changes of machines and nodes
}

// Len returns how many sets the lists have, without those to ask about.
func (c SetChanges) Len() int {
	return len(c.Release) + len(c.Adopt) + len(c.AllowScaleUp) + len(c.ForbidScaleUp) + len(c.Sync) + len(c.Resize) +
		len(c.Delete)
}

// MachineChanges are the changes of machines. Mark and Unmark come before all changes of sizes, so that marks are
// written before a size becomes smaller.
type MachineChanges struct {
	Mark              []Mark
	Unmark            []Target // remove priority and time
	Move              []Move   // hand over to the current set
	ClearUpdateResult []Target // remove the label update-result
}

// Len returns how many entries the lists have.
func (c MachineChanges) Len() int {
	return len(c.Mark) + len(c.Unmark) + len(c.Move) + len(c.ClearUpdateResult)
}

// NodeChanges are the changes of the nodes of machines, after all changes of machines.
type NodeChanges struct {
	FinishUpdate            []Target // remove the labels of an in-place update, uncordon, await critical components
	ClearUpdateLabels       []Target // remove the labels of an in-place update
	Candidates              []Target // add the label candidate-for-update
	Select                  []Target // add the label selected-for-update
	Taint                   []Target // add the taint prefer-no-schedule
	Untaint                 []Target // remove the taint prefer-no-schedule
	ProtectFromAutoscaler   []Target // add both annotations for the cluster autoscaler
	UnprotectFromAutoscaler []Target // remove both annotations
}

// Len returns how many entries the lists have. A machine may have several.
func (c NodeChanges) Len() int {
	return len(c.FinishUpdate) + len(c.ClearUpdateLabels) + len(c.Candidates) + len(c.Select) + len(c.Taint) +
		len(c.Untaint) + len(c.ProtectFromAutoscaler) + len(c.UnprotectFromAutoscaler)
}

// Decision says what to do next. It is safe to carry out twice. What was not carried out is decided again. Its lists
// have at most MaxBatch entries in all, and fewer if names are long; the next decision has the rest.
type Decision struct {
	Rollback *Rollback // without other changes: it changes the template
	Trigger  *Trigger  // only with Mark and Unmark
	Record   *Progress // the Progress to record; its Failed has only names that are not recorded yet
	SetChanges
	MachineChanges
	NodeChanges

	Revision int64       // of the current set, or the one that Revise gives it; zero: the set does not exist yet
	Done     bool        // the deployment is being deleted and owns no set
	Rolling  bool        // machines of other templates exist, and are being replaced
	NoSet    bool        // the template has no set, and none is created now
	Complete bool        // exactly the wanted machines exist, and all have the current template
	Pause    *PausePoint // the rollout step at which the deployment waits; nil: none
	HoldBy   string      // what holds the rollout: Paused, Held, Step, Invalid or Machines; empty: nothing
	Hold     string      // HoldBy as a sentence
	Late     bool        // the progress deadline has passed
	Recheck  time.Time   // when to decide again if nothing else changes; zero: never
	Why      string      // what is done next, or what the deployment waits for, in one sentence
}

// Acts reports whether there is anything to do now.
func (d Decision) Acts() bool {
	lists := d.SetChanges.Len() + len(d.Ask) + d.MachineChanges.Len() + d.NodeChanges.Len()
	return lists > 0 || d.Rollback != nil || d.Trigger != nil || d.Create != nil || d.Revise != nil || d.Record != nil
}

// target returns the set as it was read, for a decision.
func (s Set) target(why string) Target {
	return Target{Name: s.Name, UID: s.UID, Version: s.Version, Why: why}
}

// targets returns sets as they were read, for a decision.
func targets(sets []*setPlan, why string) []Target {
	return list.Map(sets, func(set *setPlan) Target { return set.target(why) })
}

// resizes adds the sets whose size or annotations change. Annotations of sets that want no machine stay. A set that
// grows and may not create machines is opened first, unless it has the machines.
func (p *planner) resizes(d *Decision) {
	for _, set := range p.sets {
		if set.NoScaleUp && set.size > set.Replicas && (set == p.current || set.size > set.active) {
			d.AllowScaleUp = append(d.AllowScaleUp, set.target(set.why))
			continue
		}
		stale := (set.size > 0 || set == p.current) && (set.Desired != p.o.Replicas || set.Max != most(p.o))
		if stale || set.size != set.Replicas || set.transfer != set.Set.transfer() {
			add(&d.Resize, Resize{
				Name: set.Name, UID: set.UID, Version: set.Version, From: set.Replicas, To: set.size, ActedOn: set.ActedOn,
				Desired: p.o.Replicas, Max: most(p.o), Forced: set.forced, Transfer: set.transfer, Why: set.why,
			})
		}
	}
	receiverFirst(d.Resize)
}

// unrecorded returns the part of the record that the status lacks; nil: none.
func (p *planner) unrecorded(record Progress) *Progress {
	known := p.o.Progress
	if record.Revision == known.Revision {
		if record.Step == known.Step && record.Reached.Equal(known.Reached) && slices.Equal(record.Failed, known.Failed) {
			return nil
		}
		before := list.Set(known.Failed, list.Identity)
		record.Failed = slices.DeleteFunc(slices.Clone(record.Failed), func(name string) bool { return before[name] })
	}
	return &record
}

// Recorded returns the record after a decision's Record was written. Of the same revision, the failed machines are
// added. It is safe to apply twice.
func (r Progress) Recorded(next Progress) Progress {
	if r.Revision == next.Revision {
		next.Failed = slices.Concat(r.Failed, next.Failed)
	}
	next.Failed = slices.Compact(slices.Sorted(slices.Values(next.Failed)))
	return next
}

// MaxBatch is the largest number of sets, machines and nodes in all lists of a decision. Source: as in decide/scale.
const MaxBatch = 50

// Bytes of a decision. Source: a decision has 16 KiB in a history, which holds its sentence twice; the rest is for
// status texts.
const (
	maxLists    = 9 << 10 // for the lists
	maxSentence = 1 << 10 // for Why
	maxReason   = 200     // for a text that others wrote, such as the reason of a hold
)

// space is the room left in a decision's lists.
type space struct{ entries, bytes int }

// take reports whether so many entries of so many bytes fit, and takes their space. The first entry always fits: a
// decision that does nothing would be repeated for ever.
func (s *space) take(entries, bytes int) bool {
	if s.entries < entries || (s.bytes < bytes && s.entries < MaxBatch) {
		return false
	}
	s.entries, s.bytes = s.entries-entries, s.bytes-bytes
	return true
}

// fit returns the first entries, as many as fit.
func fit[T any](s *space, entries []T) []T {
	for i, entry := range entries {
		if !s.take(1, weigh(entry)) {
			s.entries = 0 // later lists must not overtake this one
			return entries[:i]
		}
	}
	return entries
}

// weigh returns the size of an entry in a history, in bytes.
func weigh(entry any) int {
	text, _ := json.Marshal(entry) // plain structs and texts never fail
	return len(text) + len(",")
}

// bound keeps the lists of a decision within one batch, in the order in which they are carried out. The next decision
// has the rest.
func (d *Decision) bound() {
	s := &space{MaxBatch, maxLists}
	if d.Trigger != nil {
		d.Trigger.Drop = fit(s, d.Trigger.Drop)
	}
	d.Mark = fit(s, d.Mark)
	for _, list := range []*[]Target{&d.Release, &d.Adopt, &d.Unmark, &d.AllowScaleUp, &d.ForbidScaleUp, &d.Sync} {
		*list = fit(s, *list)
	}
	if d.Record != nil {
		d.Record.Failed = fit(s, d.Record.Failed)
	}
	d.Ask = fit(s, d.Ask)
	d.Resize = fit(s, d.Resize)
	d.Move = fit(s, d.Move)
	d.boundNodes(s)
	d.Delete = fit(s, d.Delete)
}

// boundNodes keeps or drops all entries of a machine together, so that its node is written once.
func (d *Decision) boundNodes(s *space) {
	lists := []*[]Target{
		&d.ClearUpdateResult,
		&d.FinishUpdate,
		&d.ClearUpdateLabels,
		&d.Candidates,
		&d.Select,
		&d.Taint,
		&d.Untaint,
		&d.ProtectFromAutoscaler,
		&d.UnprotectFromAutoscaler,
	}
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
