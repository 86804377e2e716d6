package rollout

import "time"

// Target names a set or a machine as it was seen.
type Target struct {
	Name    string
	UID     string
	Version string // resourceVersion that was read: the write must meet the same one. Of nodes it says nothing
	Node    string // of a machine whose node is meant
	Why     string
}

// Resize gives a set its size and the annotations that go with it, if it still has the UID and version that were seen, or, within a
// moment, the size. From and To may be the same: then the annotations are out of date.
type Resize struct {
	Name    string
	UID     string
	Version string
	From    int
	To      int
	Desired int // annotation desired-replicas
	Max     int // annotation max-replicas
	// Forced: the set may take an available machine, and too few may be left for a moment. Only to end a deadlock.
	Forced bool
	Why    string
}

// Creation asks for the set of the current template.
type Creation struct {
	Replicas int
	Revision int64
	Desired  int
	Max      int
}

// Decision says what to do next. It is carried out in the order of its fields; with a Record, a Rollback waits for the next decision.
// All of it is harmless when done twice, and what was not done is decided again. Its lists have not more than MaxBatch entries in all,
// and fewer where names are long: what is left is for the next decision.
type Decision struct {
	Rollback   *Rollback // alone, but for a Record: it changes the template
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

	Revision int64     // that the current set has, or is given by Revise; zero while it has yet to be made
	Done     bool      // the deployment is being deleted and owns no set any more
	Rolling  bool      // machines of other templates are there, and are to give way
	Pending  bool      // the template has no set, and gets none now
	Complete bool      // all that is wanted is there, of the current template, and nothing else
	Gate     *Gate     // the stage that it waits at; nil: none
	HoldBy   string    // what holds it, in one word: Paused, Held, Stage, Invalid or Machines; empty when nothing does
	Hold     string    // the same in a sentence
	Late     bool      // the progress deadline has passed
	Recheck  time.Time // when to look again although nothing else changes; zero means that there is no need
	Why      string    `json:"Plan"` // not Why: whoever embeds a Decision has a Why too, and JSON would drop this one
}

// Acts reports whether there is anything to do now.
func (d Decision) Acts() bool {
	lists := len(d.Mark) + len(d.Unmark) + len(d.Open) + len(d.Close) + len(d.Sync) + len(d.Resize) + len(d.Move) + len(d.Accept) +
		len(d.Settle) + len(d.Strip) + len(d.Candidates) + len(d.Select) + len(d.Taint) + len(d.Untaint) + len(d.Guard) +
		len(d.Unguard) + len(d.Delete)
	return lists > 0 || d.Rollback != nil || d.Trigger != nil || d.Create != nil || d.Revise != nil || d.Record != nil
}
