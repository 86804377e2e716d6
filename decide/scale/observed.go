package scale

import (
	"cmp"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/preflight"
)

// Order is by which age the healthy machines of a set are deleted.
type Order string

// The orders. Empty means Newest.
const (
	Newest Order = "Newest" // the youngest first: the older ones have proven themselves
	Oldest Order = "Oldest"
	Random Order = "Random" // by a hash of the name: no age is preferred, and the answer is always the same
)

// Answer is whether something holds, as a condition says it. Empty means that nobody has said yet.
type Answer string

// The answers.
const (
	True    Answer = vocabulary.StatusTrue
	False   Answer = vocabulary.StatusFalse
	Unknown Answer = vocabulary.StatusUnknown
)

// Node is how the node of a machine is.
type Node string

// The nodes. Unknown is no reason to delete a machine before others.
const (
	NoNode        Node = ""
	NodeHealthy   Node = "Healthy"
	NodeUnhealthy Node = "Unhealthy"
	NodeUnknown   Node = "Unknown" // it cannot be told: the target cluster does not answer
)

// Member is a machine that the set owns, by the controller reference, whether or not its labels still match.
type Member struct {
	Name, UID string
	Version   string    // resourceVersion that was read
	Created   time.Time // zero counts as the youngest

	Matches       bool // its labels match the selector
	Labelled      bool // it has all labels of the template
	Deleting      bool
	DeletingSince time.Time
	Drift         string // what differs from the template and may be changed in place; empty when nothing does
	UpToDate      Answer // it is what the current template makes
	UpToDateWhy   string // what differs; empty when True

	Phase     string // for sentences
	Failed    bool
	Crashing  bool // the creation of its instance keeps failing
	Updating  bool // it is updated in place right now
	Updated   bool // it was, and was handed to this set: not deleted until the set's size has caught up
	Joined    bool // it is or was a node, or all it will ever be without a cluster to join
	Node      Node
	Ready     Answer // its node is ready
	ReadyWhy  string // why it is not
	ReadyFrom time.Time
	Serves    bool    // it counts as available without a node: there is no cluster to join
	Blocked   Problem // what keeps the provider from making its instance; zero when nothing does

	Replace        bool // failed, and to be replaced now: nobody else has to agree; stays so while it is being deleted
	Preserved      bool // kept on purpose: the last to go
	PreservedUntil time.Time
	Kept           bool // by its set, because it failed
	Dismissed      bool // nobody wants it kept

	DeleteFirst bool      // a person chose it for the next scale-down
	Priority    int       // lower is deleted first; 3 where the annotation is absent
	Chosen      time.Time // when the autoscaler chose it; zero: it did not
	HealthCheck Answer    // what a health check says; only False is a reason to act, only True ends a mark
	Marked      bool      // the health check asks its owner, this set, to replace it
	Urgent      bool      // a person asked for it: before the other marked ones
}

// Problem is something that keeps failing.
type Problem struct {
	Reason  string // one word
	Message string // one sentence
}

// Orphan is a machine of the namespace without a controller.
type Orphan struct {
	Name, UID, Version string
	Matches            bool // its labels match the selector
	Deleting           bool
}

// Remediation is the policy for machines that are replaced because they failed or are unhealthy.
type Remediation struct {
	Limited     bool // MaxInFlight counts; false: as many at a time as there are
	MaxInFlight int  // marked machines that are being deleted at a time; already rounded up from a percentage
	// Backoff is the pause before the second generation of machines in a row that failed before they had joined; each
	// further one waits twice as long, at most MaxBackoff. Zero means none.
	Backoff    time.Duration
	MaxBackoff time.Duration // zero means that it grows without a bound
	Outdated   bool          // another set is the current one of its deployment: the rollout removes the machines
}

// Generations is what the status records of machines that failed one after the other.
type Generations struct {
	Failed int       // generations in a row of which no machine joined
	Last   time.Time // when the last of them was given up; whole seconds: a status keeps no more
}

// Failure is the last write of a batch that failed; zero when the last one succeeded.
type Failure struct {
	Deleting bool // it was a deletion; false: a creation
	Message  string
}

// Observed is what the set's activity read, at one moment.
type Observed struct {
	Now        time.Time
	Set        string // name of the set; prefix of the names of new machines
	Replicas   int    // machines wanted
	Order      Order
	Keep       int           // failed members to keep at the most
	MinReady   time.Duration // for how long a machine must have been ready to be available
	Deleting   bool          // the set itself is being deleted
	Finalizer  bool          // ours is on
	ListFailed bool          // the machines could not be listed: nothing is known of them
	Invalid    string        // why the set cannot be acted upon, such as a selector that its template does not match; empty when it can
	SelectsAll bool          // the selector is empty: it adopts nothing
	Seed       uint64        // source of new names
	Taken      []string      // names that exist besides members and orphans
	Members    []Member      // in any order
	Orphans    []Orphan      // in any order
	Released   int           // machines without a controller that this set released, and that are not being deleted

	Paused      bool               // by its own annotation
	OwnerPaused string             // kind of the owner that has the annotation; empty when none has
	Frozen      bool               // no machine is created, for safety
	NoScaleUp   bool               // no machine is created, because others took the set's place
	Missing     []string           // kinds that the template names and that do not exist
	Preflight   preflight.Observed // zero: no control plane is configured, and nothing is checked

	Scaled      time.Time // when the autoscaler last changed the size; zero: never
	Remediation Remediation
	Generations Generations // as recorded
	LastFailure Failure

	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	Reported           Status // the status as it is
}

// target names a member for a decision.
func (m Member) target(why string) Target {
	return Target{Name: m.Name, UID: m.UID, Version: m.Version, Why: why}
}

// live returns the members that are not being deleted, as a list of its own.
func (o Observed) live() []Member {
	return list.Where(o.Members, func(m Member) bool { return !m.Deleting })
}

// sorted returns the same with members and orphans by name, and no size below zero.
func (o Observed) sorted() Observed {
	o.Replicas = max(o.Replicas, 0)
	o.Members = list.Sorted(o.Members, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	o.Orphans = list.Sorted(o.Orphans, func(a, b Orphan) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	return o
}
