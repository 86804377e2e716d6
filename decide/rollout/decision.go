package rollout

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"millwright/decide/list"
)

// ObjectTarget identifies a set or a machine by the version that was read.
type ObjectTarget struct {
	Name, UID string
	Version   string // resourceVersion as read; precondition for writes of the set or machine, but not of the node
	Node      string // name of the machine's node; empty for a set
	Why       string
}

// SetResize changes a set's size and annotations. The write requires that the set has this UID and this Version. For a
// short time after the decision, the size From is enough instead of the Version. If From equals To, only the
// annotations change.
type SetResize struct {
	Name, UID, Version string
	From, To           int
	ActedOn            int `json:",omitempty"` // size for which the set's workflow has created and deleted machines
	Desired            int // annotation desired-replicas
	Max                int // annotation max-replicas
	// Forced means that the set may delete an available machine, so that too few machines may be available for a short
	// time. Forced is set only to break a deadlock.
	Forced   bool
	HasEvent bool            `json:",omitempty"` // the resize is reported as an event
	Transfer MachineTransfer `json:",omitzero"`  // the set's annotations for machines that move between sets
	Why      string
}

// SetCreation creates the set of the current template.
type SetCreation struct {
	Replicas     int
	Revision     int64
	Desired, Max int
}

// SetChanges holds the changes of sets. The changes are carried out in the order of the fields.
type SetChanges struct {
	Release []ObjectTarget // remove Millwright's controller reference from these sets
	// make the deployment the controller of these sets, after a live read of the deployment
	Adopt         []ObjectTarget
	Create        *SetCreation    // create the set of the current template
	AllowScaleUp  []ObjectTarget  // remove the label scale-up-disabled
	ForbidScaleUp []ObjectTarget  // add the label scale-up-disabled
	Revise        *RevisionChange // set the revision of the current set and of the deployment
	Sync          []ObjectTarget  // copy the deployment's settings to the sets
	// Ask asks an extension whether these sets' machines can be updated in place to the current set's template.
	Ask    []ObjectTarget `json:",omitempty"`
	Resize []SetResize
	Delete []ObjectTarget // delete these sets, after all changes of machines and nodes
}

// Len returns the number of entries in all lists except Ask.
func (c SetChanges) Len() int {
	return len(c.Release) + len(c.Adopt) + len(c.AllowScaleUp) + len(c.ForbidScaleUp) + len(c.Sync) + len(c.Resize) +
		len(c.Delete)
}

// MachineChanges holds the changes of machines. Mark and Unmark are executed before all changes of sizes, so that the
// machines are marked before a set shrinks.
type MachineChanges struct {
	Mark              []ChoiceMark
	Unmark            []ObjectTarget // remove the machine's priority and the time at which the autoscaler chose it
	Move              []MachineMove  // move machines to the current set
	ClearUpdateResult []ObjectTarget // remove the label update-result
}

// Len returns the number of entries in all lists.
func (c MachineChanges) Len() int {
	return len(c.Mark) + len(c.Unmark) + len(c.Move) + len(c.ClearUpdateResult)
}

// NodeChanges holds the changes of machines' nodes. NodeChanges are executed after all changes of machines.
type NodeChanges struct {
	FinishUpdate      []ObjectTarget // remove the update labels, uncordon the node, and wait for critical components
	ClearUpdateLabels []ObjectTarget // remove the labels of an in-place update
	Candidates        []ObjectTarget // add the label candidate-for-update
	Select            []ObjectTarget // add the label selected-for-update
	Taint             []ObjectTarget // add the taint prefer-no-schedule
	Untaint           []ObjectTarget // remove the taint prefer-no-schedule
	// add both annotations that stop the cluster autoscaler from removing the node
	ProtectFromAutoscaler []ObjectTarget
	// remove both annotations that stop the cluster autoscaler from removing the node
	UnprotectFromAutoscaler []ObjectTarget
}

// Len returns the number of entries in all lists. A machine may have several entries.
func (c NodeChanges) Len() int {
	return len(c.FinishUpdate) + len(c.ClearUpdateLabels) + len(c.Candidates) + len(c.Select) + len(c.Taint) +
		len(c.Untaint) + len(c.ProtectFromAutoscaler) + len(c.UnprotectFromAutoscaler)
}

// Decision contains the next changes of a deployment. A Decision may be carried out twice. The next decision repeats
// all changes that were not carried out. The lists have at most MaxBatchSize entries in all, or fewer if names are
// long. The next decision has the remaining entries.
type Decision struct {
	// if Rollback is set, the decision has no other changes, because a rollback changes the template
	Rollback *Rollback
	Pin      *Pin                     // the pin that is in force; nil: none
	Trigger  *TriggerAnnotationUpdate // set only with Mark and Unmark
	// the Progress to record; Record.Failed has only names that are not in the status yet
	Record *Progress
	SetChanges
	MachineChanges
	NodeChanges

	Revision int64       // revision of the current set, including the change in Revise; zero: no current set
	Done     bool        // the deployment is being deleted and owns no set
	Rolling  bool        // machines of other templates exist and are being replaced
	NoSet    bool        // the template has no set, and this decision creates none
	Complete bool        // the number of machines is as wanted, and all have the current template
	Pause    *PausePoint // the rollout step at which the deployment waits; nil: none
	Turn     *TurnWait   `json:",omitempty"` // why other deployments of the policy are rolled out first; nil: none is
	HoldBy   string      // why the rollout waits: Paused, Held, Turn, Step, Invalid or Machines; empty: it does not wait
	Hold     string      // HoldBy as a sentence
	Late     bool        // the progress deadline has passed
	Recheck  time.Time   // time of the next decision if no object changes; zero: never
	Why      string      // one sentence with the next action, or with the reason for the wait
}

// TargetRevision returns the revision that the machines will have, which is the template's revision or, while pinned,
// an earlier revision.
func (d Decision) TargetRevision() int64 {
	if d.Pin != nil {
		return d.Pin.Revision
	}
	return d.Revision
}

// BeginsPin reports whether the decision records a new pin.
func (d Decision) BeginsPin() bool { return d.Record != nil && d.Record.Pin != nil }

// HasActions reports whether the decision contains a change to execute now.
func (d Decision) HasActions() bool {
	lists := d.SetChanges.Len() + len(d.Ask) + d.MachineChanges.Len() + d.NodeChanges.Len()
	return lists > 0 || d.Rollback != nil || d.Trigger != nil || d.Create != nil || d.Revise != nil || d.Record != nil
}

// asTarget returns the set as an ObjectTarget of a decision.
func (s MachineSet) asTarget(why string) ObjectTarget {
	return ObjectTarget{Name: s.Name, UID: s.UID, Version: s.Version, Why: why}
}

// targetsOfSets returns the sets as ObjectTargets of a decision.
func targetsOfSets(sets []*setPlan, why string) []ObjectTarget {
	return list.Map(sets, func(set *setPlan) ObjectTarget { return set.asTarget(why) })
}

// addResizes adds the sets whose size or annotations change. The annotations of old sets with size 0 do not change. If
// a set with the label scale-up-disabled must create machines, the label is removed first.
func (p *planner) addResizes(d *Decision) {
	for _, set := range p.sets {
		if set.ScaleUpDisabled && set.size > set.Replicas && (set == p.currentSet || set.size > set.activeMachineCount) {
			d.AllowScaleUp = append(d.AllowScaleUp, set.asTarget(set.sizeReason))
			continue
		}
		stale := (set.size > 0 || set == p.currentSet) &&
			(set.DesiredReplicas != p.facts.Replicas || set.MaxReplicas != maxReplicas(p.facts))
		if stale || set.size != set.Replicas || set.transfer != set.machineTransfer() {
			appendBounded(&d.Resize, SetResize{
				Name:     set.Name,
				UID:      set.UID,
				Version:  set.Version,
				From:     set.Replicas,
				To:       set.size,
				ActedOn:  set.ObservedReplicas,
				Desired:  p.facts.Replicas,
				Max:      maxReplicas(p.facts),
				Forced:   set.isResizeForced,
				Transfer: set.transfer,
				Why:      set.sizeReason,
				HasEvent: p.reportsResizeAsEvent(set),
			})
		}
	}
	sortReceiversFirst(d.Resize)
}

// reportsResizeAsEvent reports whether a set's new size is reported as an event. During a rollout, a set has at most
// two such events, for its first machine and for the deletion of its last machine.
func (p *planner) reportsResizeAsEvent(set *setPlan) bool {
	return set.size != set.Replicas && (p.isOnlyScaling() || set.Replicas == 0 || set.size == 0)
}

// unrecordedProgress returns the part of the record that is not in the status yet, or nil if the status is complete.
func (p *planner) unrecordedProgress(record Progress) *Progress {
	known := p.facts.Progress
	if record.Revision == known.Revision && record.Set == known.Set {
		same := record.Step == known.Step && record.Reached.Equal(known.Reached) && record.Attempt == known.Attempt &&
			record.Completed.Equal(known.Completed) && record.Good == known.Good && record.Pin == known.Pin &&
			record.Turn.equals(known.Turn)
		if same && slices.Equal(record.Failed, known.Failed) {
			return nil
		}
	}
	if record.Revision == known.Revision && record.Attempt == known.Attempt {
		before := list.KeySet(known.Failed, list.Identity)
		record.Failed = slices.DeleteFunc(slices.Clone(record.Failed), func(name string) bool { return before[name] })
	}
	return &record
}

// MergedWith returns the record after a decision's Record was written. If the revision and the attempt are the same,
// MergedWith merges the failed machines, and keeps the completion and the pin of the attempt. MergedWith is idempotent.
func (r Progress) MergedWith(next Progress) Progress {
	if r.Revision == next.Revision && r.Attempt == next.Attempt {
		next.Failed = slices.Concat(r.Failed, next.Failed)
		next.Pin = cmp.Or(next.Pin, r.Pin)
		if next.Completed.IsZero() {
			next.Completed, next.Good, next.FormerGood = r.Completed, r.Good, r.FormerGood
		}
	}
	next.Failed = slices.Compact(slices.Sorted(slices.Values(next.Failed)))
	return next
}

// MaxBatchSize is the largest number of sets, machines and nodes in all lists of a decision. Source:
// decide/scale.MaxBatchSize.
const MaxBatchSize = 50

// Bounds of a decision, in bytes. Source: a decision may take 16 KiB in a history. The history contains Why twice. The
// remaining bytes are for status texts.
const (
	maxListBytes     = 9 << 10 // maximum size of all lists
	maxSentenceBytes = 1 << 10 // bound of Why
	// maximum length of a text from a person or another program, such as the reason of a hold
	maxReasonBytes = 200
)

// listSpace is the number of entries and bytes that still fit into a decision's lists.
type listSpace struct{ entryCount, byteCount int }

// reserve reports whether the given entries and bytes fit into the remaining space, and subtracts them if they do. The
// first entry always fits, because an empty decision would be repeated forever.
func (s *listSpace) reserve(entries, bytes int) bool {
	if s.entryCount < entries || (s.byteCount < bytes && s.entryCount < MaxBatchSize) {
		return false
	}
	s.entryCount, s.byteCount = s.entryCount-entries, s.byteCount-bytes
	return true
}

// longestFittingPrefix returns the longest prefix of entries that fits into the remaining space.
func longestFittingPrefix[T any](s *listSpace, entries []T) []T {
	for i, entry := range entries {
		if !s.reserve(1, encodedSize(entry)) {
			s.entryCount = 0 // no space is left, so that later lists get no entries before this list is complete
			return entries[:i]
		}
	}
	return entries
}

// encodedSize returns the size of an entry in a history, in bytes.
func encodedSize(entry any) int {
	text, _ := json.Marshal(entry) // Marshal of plain structs and strings never fails
	return len(text) + len(",")
}

// limitLists shortens a decision's lists to one batch, in the order in which the lists are executed. The next decision
// has the remaining entries.
func (d *Decision) limitLists() {
	s := &listSpace{MaxBatchSize, maxListBytes}
	if d.Trigger != nil {
		d.Trigger.Drop = longestFittingPrefix(s, d.Trigger.Drop)
	}
	d.Mark = longestFittingPrefix(s, d.Mark)
	for _, list := range []*[]ObjectTarget{&d.Release, &d.Adopt, &d.Unmark, &d.AllowScaleUp, &d.ForbidScaleUp, &d.Sync} {
		*list = longestFittingPrefix(s, *list)
	}
	if d.Record != nil {
		d.Record.Failed = longestFittingPrefix(s, d.Record.Failed)
	}
	d.Ask = longestFittingPrefix(s, d.Ask)
	d.Resize = longestFittingPrefix(s, d.Resize)
	d.Move = longestFittingPrefix(s, d.Move)
	d.limitNodeLists(s)
	d.Delete = longestFittingPrefix(s, d.Delete)
}

// limitNodeLists keeps or drops all entries of a machine together, so that the machine's node is written only once.
func (d *Decision) limitNodeLists(s *listSpace) {
	lists := []*[]ObjectTarget{
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
			bytes[t.UID] += encodedSize(t)
		}
	}
	kept := map[string]bool{}
	for _, uid := range order {
		kept[uid] = s.reserve(entries[uid], bytes[uid])
	}
	for _, list := range lists {
		*list = slices.DeleteFunc(*list, func(t ObjectTarget) bool { return !kept[t.UID] })
	}
}
