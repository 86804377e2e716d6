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
	Deleting      bool
	DeletingSince time.Time
	Template

	Phase  string // for messages
	Joined bool   // its node has joined, or it is Available without a cluster to join
	Node   Node
	Readiness
	HealthCheck
	Updating bool // it is being updated in place
	// Updated: another set handed it over to this set, for an update in place or after one. It is not deleted until the
	// size of this set counts it.
	Updated bool

	DeleteFirst bool // an operator chose it for the next scale-down
	Priority    int  // lower is deleted first; 3 where the annotation is absent

	MCM        MCMMember        // zero for a machine of Cluster API
	ClusterAPI ClusterAPIMember // zero for a machine of MCM's kinds
}

// Template is how a machine differs from the template.
type Template struct {
	Drift       string // what may be changed in place; empty: nothing
	UpToDate    Answer // it matches the current template
	UpToDateWhy string // what differs; empty if True
}

// Readiness is whether the node of a machine is ready.
type Readiness struct {
	Ready     Answer
	ReadyWhy  string // why it is not
	ReadyFrom time.Time
}

// HealthCheck is what a health check says about a machine.
type HealthCheck struct {
	Healthy Answer // only False leads to a replacement, only True ends a mark; empty: no check, or no result yet
	Marked  bool   // the check asks the set to replace the machine
	Urgent  bool   // an operator asked for its replacement: it goes before other marked members
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
	MaxInFlight int  // largest number of marked machines that are being deleted at a time; a percentage was rounded up
	// Backoff is the pause before the second generation in a row that failed before it had joined is deleted. The pause
	// doubles with each further generation, up to MaxBackoff. Zero: no pause.
	Backoff    time.Duration
	MaxBackoff time.Duration // zero: unbounded
	Outdated   bool          // the set is an old set of its deployment: the rollout removes its machines
}

// Settings are the parts of a spec that a plan needs.
type Settings struct {
	Replicas    int // machines wanted
	Order       Order
	MinReady    time.Duration // how long a machine must have been ready to be available
	Remediation Remediation
}

// Deletion is how far the deletion of an object is.
type Deletion struct {
	Deleting bool
	// Orphaning: it is being deleted with --cascade=orphan, and the garbage collector still has to remove the owner
	// references of what it owns.
	Orphaning bool
	Finalizer bool // our finalizer is on the object
}

// Failure is an error of the last batch of writes. The zero Failure: it had none.
type Failure struct {
	Deleting bool // it was a deletion; false: a creation
	Message  string
}

// Observed is what the set's activity read at one moment.
type Observed struct {
	Now time.Time
	Settings
	Deletion
	// Invalid is why the spec is invalid, such as a selector that does not match the template; empty: the spec is valid.
	Invalid    string
	SelectsAll bool     // the selector is empty: the set adopts nothing
	Naming     []string // parts of the name of a new machine: its random characters stand between them
	Seed       uint64   // source of the random characters
	Members    []Member // in any order
	Orphans    []Orphan // in any order
	Released   int      // number of machines that this set released, that have no controller and are not being deleted

	Pauses []string // who has paused the set, each as one sentence; none: it is not paused
	// further reasons why no machine is created, each as one sentence; the other facts have reasons of their own
	Stopped   []string
	Missing   []string           // kinds of objects that the template refers to and that do not exist
	Preflight preflight.Observed // zero: no control plane is configured, and nothing is checked

	LastFailure Failure

	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	Reported           Status // the present status

	MCM        MCMSet        // zero for a set of Cluster API
	ClusterAPI ClusterAPISet // zero for a set of MCM's kinds
}

// target returns the member as it was read, for a decision.
func (m Member) target(why string) Target {
	return Target{Name: m.Name, UID: m.UID, Version: m.Version, Why: why}
}

func (m *Member) name() string { return m.Name }

// planner is a set during a decision: its facts, with members and orphans sorted by name and no negative size, and what
// follows from them. Its lists must not be changed.
type planner struct {
	Observed
	live       []Member // the members that are not being deleted
	joined     bool     // a member created after the last of Generations has joined
	remediable []Member // marked members that are deleted now, at most MaxBatch
	marksLater []said   // why each of the other marked members stays for now
	postponed  []said   // marksLater, and why each failed member that stays for now does so
}

// open returns the planner of these facts.
func open(observed Observed) *planner {
	o := &planner{Observed: observed}
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
	o.joined = slices.ContainsFunc(o.Members, func(m Member) bool { return m.Joined && o.follows(m) })
	o.remediable, o.marksLater = remediation(o)
	o.postponed = slices.Concat(o.marksLater, unripe(o))
	return o
}
