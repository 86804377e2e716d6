package scale

import (
	"cmp"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/preflight"
)

// Order says by which age the healthy machines of a set are deleted.
type Order string

// The orders. The empty Order means Newest.
const (
	Newest Order = "Newest" // the youngest first: older machines have proven themselves
	Oldest Order = "Oldest"
	Random Order = "Random" // by a hash of the name: independent of age, and always the same
)

// Answer is the status of a condition. The empty Answer: not reported yet.
type Answer string

// The answers.
const (
	True    Answer = vocabulary.StatusTrue
	False   Answer = vocabulary.StatusFalse
	Unknown Answer = vocabulary.StatusUnknown
)

// Node is the state of a machine's node.
type Node string

// The states of a node. A machine with NodeUnknown is not deleted before others.
const (
	NoNode        Node = ""
	NodeHealthy   Node = "Healthy"
	NodeUnhealthy Node = "Unhealthy"
	NodeUnknown   Node = "Unknown" // the target cluster does not answer
)

// Member is a machine whose controller reference names the set, whether or not its labels match.
type Member struct {
	Name, UID string
	Version   string    // resourceVersion that was read
	Created   time.Time // zero counts as the youngest

	Matches       bool // its labels match the selector
	Labelled      bool // it has all labels of the template
	Deleting      bool
	DeletingSince time.Time
	Drift         string // what differs from the template and may be changed in place; empty: nothing
	UpToDate      Answer // it matches the current template
	UpToDateWhy   string // what differs; empty if True

	Phase    string // for messages
	Failed   bool
	Troubled bool // its last operation failed
	Crashing bool // the creation of its instance keeps failing
	Updating bool // it is being updated in place
	// it was handed over to this set, for an update in place or after one: not deleted until the set's size counts it
	Updated   bool
	UpdateDue bool // it was handed over to be updated in place, and the set has to begin that now
	Joined    bool // its node has joined, or it is Available without a cluster to join
	Node      Node
	Ready     Answer // whether its node is ready
	ReadyWhy  string // why it is not
	ReadyFrom time.Time
	Serves    bool    // it counts as available without a node, because there is no cluster to join
	Blocked   Problem // why the provider creates no instance; zero: no problem

	Replace        bool // failed, and to be replaced now without a grant; also while it is being deleted
	Preserved      bool // preserved: deleted last
	PreservedUntil time.Time
	Kept           bool // preserved by its set because it failed
	Dismissed      bool // its annotation forbids to preserve it

	DeleteFirst bool      // an operator chose it for the next scale-down
	Priority    int       // lower is deleted first; 3 where the annotation is absent
	Chosen      time.Time // when the autoscaler chose it; zero: it did not
	HealthCheck Answer    // result of a health check; only False leads to a replacement, only True ends a mark
	Marked      bool      // the health check asks the set to replace it
	MarkedWhy   string    // what the mark says about the replacement; empty: nothing
	Urgent      bool      // an operator asked for its replacement: it goes before other marked members
}

// Problem is a failure that repeats. The zero Problem: none.
type Problem struct {
	Reason  string // one word
	Message string // one sentence
}

// Orphan is a machine of the namespace that has no controller.
type Orphan struct {
	Name, UID, Version string
	Matches            bool // its labels match the selector
	Deleting           bool
}

// Remediation is the policy for the replacement of machines that failed or are unhealthy.
type Remediation struct {
	Limited     bool // MaxInFlight applies; false: no limit
	MaxInFlight int  // most marked machines that are being deleted at a time, rounded up from a percentage
	// Backoff is the pause before the second generation in a row that failed before it had joined is deleted. The pause
	// doubles with each further generation, up to MaxBackoff. Zero: no pause.
	Backoff    time.Duration
	MaxBackoff time.Duration // zero: unbounded
	Outdated   bool          // the set is an old set of its deployment: the rollout removes its machines
}

// Generations is the status's record of machines that failed before they had joined.
type Generations struct {
	Failed int       // number of generations in a row without a machine that joined
	Last   time.Time // when the last of them was deleted; in whole seconds, like all times of a status
}

// Freeze is the label freeze of a set, which stops the creation of machines, and what may end it.
type Freeze struct {
	Label    bool // the set has the label
	Owner    bool // its deployment has the label, and nothing has ended that
	Unfreeze bool // the set has the annotation unfreeze
	EndsAt   int  // the freeze ends with so many machines or fewer; zero: only the annotation ends it
}

// thaw reports whether the freeze of the set is over, and its label or annotation has to be removed.
func (o Observed) thaw() bool {
	return o.Freeze.Unfreeze || o.Freeze.Label && o.Freeze.EndsAt > 0 && len(o.Members) <= o.Freeze.EndsAt
}

// frozen reports whether no machine is created.
func (o Observed) frozen() bool { return o.Freeze.Owner || o.Freeze.Label && !o.thaw() }

// Failure is an error of the last batch of writes. The zero Failure: it had none.
type Failure struct {
	Deleting bool // it was a deletion; false: a creation
	Message  string
}

// Observed is what the set's activity read at one moment.
type Observed struct {
	Now      time.Time
	Set      string // name of the set, and prefix of the names of new machines
	Replicas int    // machines wanted
	Order    Order
	Keep     int           // most failed members that the set preserves
	MinReady time.Duration // how long a machine must have been ready to be available
	Deleting bool          // the set itself is being deleted
	// it is being deleted with --cascade=orphan, and the garbage collector has not let go of its machines yet
	Orphaning  bool
	Finalizer  bool // ours is on
	ListFailed bool // the machines could not be listed, and Members is not known
	// why the spec is invalid, such as a selector that does not match the template; empty: it is valid
	Invalid    string
	SelectsAll bool   // the selector is empty: the set adopts nothing
	Unsized    bool   // the number of machines is not set yet
	Seed       uint64 // source of new names
	// Naming are the parts of the name of a new machine. Its random characters stand between the parts. Fewer than two
	// parts mean: the name of the set, "-" and the random characters.
	Naming   []string
	Members  []Member // in any order
	Orphans  []Orphan // in any order
	Released int      // number of machines that this set released, that have no controller and are not being deleted

	Paused      bool   // by its own annotation
	OwnerPaused string // kind of the owner with the annotation; empty: none
	// ClusterAPI: members that are being deleted count as up to date, too, as Cluster API counts them.
	ClusterAPI bool
	// ClusterPaused: the Cluster of Cluster API that the set belongs to is paused.
	ClusterPaused bool
	Freeze        Freeze
	NoScaleUp     bool               // no machine is created, because other sets replace this one
	Stopped       string             // why else no machine is created, in one sentence; empty: no other reason
	Missing       []string           // kinds of objects that the template refers to and that do not exist
	Preflight     preflight.Observed // zero: no control plane is configured, and nothing is checked

	// MoveTo is the set that takes the surplus of this one, to update the machines in place; empty: the surplus is
	// deleted.
	MoveTo string
	// NoMove is why that set takes no machine now; empty: it takes them.
	NoMove string

	Scaled      time.Time // when the autoscaler last changed the size; zero: never
	Remediation Remediation
	Generations Generations // as recorded
	LastFailure Failure

	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	Reported           Status // the present status

	// What is asked for again and again, as sorted fills it in. The lists are not to be changed.
	live       []Member // the members that are not being deleted
	joined     bool     // a member created after the last of Generations has joined
	remediable []Member // marked members that are deleted now, at most MaxBatch
	marksLater []said   // why each of the other marked members stays for now
	postponed  []said   // the same, and why each failed member stays that does
}

// target returns the member as it was read, for a decision.
func (m Member) target(why string) Target {
	return Target{Name: m.Name, UID: m.UID, Version: m.Version, Why: why}
}

func (m *Member) name() string { return m.Name }

// sorted returns a copy with members and orphans by name, no negative size, and what follows from them.
func (o Observed) sorted() Observed {
	o.Replicas = max(o.Replicas, 0)
	o.Members = list.SortedLarge(
		o.Members,
		func(a, b *Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) },
	)
	o.Orphans = list.Sorted(
		o.Orphans,
		func(a, b Orphan) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) },
	)
	o.live = o.Members
	if deleting := func(m Member) bool { return m.Deleting }; slices.ContainsFunc(o.Members, deleting) {
		o.live = slices.DeleteFunc(slices.Clone(o.Members), deleting)
	}
	o.joined = slices.ContainsFunc(
		o.Members,
		func(m Member) bool { return m.Joined && m.Created.After(o.Generations.Last) },
	)
	o.remediable, o.marksLater = remediation(o)
	o.postponed = slices.Concat(o.marksLater, unripe(o))
	return o
}
