package scale

import (
	"cmp"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/preflight"
)

// DeletionOrder is the order of age in which a set deletes healthy machines.
type DeletionOrder string

// Values of DeletionOrder. The empty DeletionOrder means Newest.
const (
	NewestFirst DeletionOrder = "Newest" // youngest machines first, because older machines are known to work
	OldestFirst DeletionOrder = "Oldest"
	RandomOrder DeletionOrder = "Random" // by a hash of the name, so that the order does not depend on the age
)

// ConditionStatus is the status of a condition. An empty ConditionStatus means that the status is not reported yet.
type ConditionStatus string

// Values of ConditionStatus.
const (
	ConditionTrue    ConditionStatus = vocabulary.StatusTrue
	ConditionFalse   ConditionStatus = vocabulary.StatusFalse
	ConditionUnknown ConditionStatus = vocabulary.StatusUnknown
)

// NodeState is the state of a machine's node.
type NodeState string

// States of a node. A machine with NodeUnknown is not deleted before other machines.
const (
	NoNode        NodeState = ""
	NodeHealthy   NodeState = "Healthy"
	NodeUnhealthy NodeState = "Unhealthy"
	NodeUnknown   NodeState = "Unknown" // the target cluster does not respond
)

// Member is a machine whose controller reference names the set, whether or not the machine's labels match.
type Member struct {
	Name, UID string
	Version   string    // resourceVersion at the read
	CreatedAt time.Time // creation time; a zero time counts as the youngest

	MatchesSelector bool // the machine's labels match the selector
	Deleting        bool
	DeletingSince   time.Time
	TemplateDifferences

	Phase     string // phase for messages
	Joined    bool   // the machine's node has joined; without a target cluster: the machine is Available
	NodeState NodeState
	Readiness
	HealthCheckResult
	Updating bool // the machine is being updated in place
	// MovedForUpdate means that another set moved the machine to this set, before or after an in-place update. The machine
	// is not deleted until it is part of this set's size.
	MovedForUpdate bool

	DeleteFirst bool // an operator chose the machine for the next scale-down
	Priority    int  // machines with a lower priority are deleted first; 3 without the annotation

	MCM        MCMMember        // zero for a machine of Cluster API
	ClusterAPI ClusterAPIMember // zero for a machine of MCM's kinds
}

// TemplateDifferences holds the differences between a machine and the template.
type TemplateDifferences struct {
	Drift          string          // differences that can be changed in place; empty: none
	UpToDate       ConditionStatus // whether the machine matches the current template
	OutdatedReason string          // differences from the current template; empty if UpToDate is True
}

// Readiness says whether a machine's node is ready.
type Readiness struct {
	Ready          ConditionStatus
	NotReadyReason string // reason why the node is not ready
	ReadySince     time.Time
}

// HealthCheckResult is the result of a machine's health check.
type HealthCheckResult struct {
	// False permits the replacement, and True removes the mark; empty: no check, or no result yet
	Healthy ConditionStatus
	Marked  bool // the health check requests the replacement of the machine
	Urgent  bool // an operator requested the replacement; Urgent members are replaced first
}

// Problem is a repeated failure. The zero Problem means that there is no failure.
type Problem struct {
	Reason  string // reason as one word
	Message string // message as one sentence
}

// Orphan is a machine in the namespace that has no controller.
type Orphan struct {
	Name, UID, Version string
	MatchesSelector    bool // the machine's labels match the selector
	MayNotBeAdopted    bool // a machine of MCM's kinds that is being deleted
}

// RemediationPolicy is the policy for the replacement of failed and unhealthy machines.
type RemediationPolicy struct {
	HasMaxInFlight bool // MaxInFlight applies; if false, there is no limit
	MaxInFlight    int  // largest number of marked machines being deleted at a time; percentages are rounded up
	// MaxInFlightText is the value in the spec, such as "20%", for messages. Empty: the number MaxInFlight.
	MaxInFlightText string
	// Blocker is why no marked machine is replaced, as a sentence; empty: nothing prevents it.
	Blocker string
	RetryPolicy
	// MaxSurge is how many machines the set has in excess of its size while members that need a replacement wait for
	// their substitutes; percentages are rounded up. Zero: the members are deleted first.
	MaxSurge      int
	SetIsOutdated bool // the set is an old set of its deployment, so the rollout removes its machines
	// SubstitutesElsewhere is why the set itself creates no machine: the rollout has closed it, and another set of the
	// deployment creates the substitutes. Empty: the set creates machines.
	SubstitutesElsewhere string
}

// Settings holds the fields of a spec that a plan uses.
type Settings struct {
	Replicas         int // wanted number of machines
	DeletionOrder    DeletionOrder
	MinReadyDuration time.Duration // minReadySeconds: how long a machine must be ready before it counts as available
	Remediation      RemediationPolicy
}

// Deletion is the progress of an object's deletion.
type Deletion struct {
	Deleting bool
	// Orphaning means that the object is being deleted with --cascade=orphan. The garbage collector must still remove
	// the owner references that point to the object.
	Orphaning    bool
	HasFinalizer bool // Millwright's finalizer is on the object
}

// WriteFailure is an error of the last batch of writes. The zero WriteFailure means that there was no error.
type WriteFailure struct {
	Deleting bool // a deletion failed; if Deleting and Changing are false, a creation failed
	Message  string
	Changing bool `json:",omitzero"` // a change of existing machines, or of objects related to the set, was refused
}

// Reported holds what the set's object already reports.
type Reported struct {
	ObservedGeneration int64            // status.observedGeneration
	ReportedStatus     Status           // the current status
	Generations        GenerationRecord // the recorded generations of failed machines
}

// Facts holds the facts that the set's activity read at one moment.
type Facts struct {
	Now time.Time
	Settings
	Deletion
	// InvalidReason is the reason why the spec is invalid, such as a selector that does not match the template; empty:
	// valid.
	InvalidReason string
	SelectsAll    bool     // the selector is empty, so the set adopts no machine
	NameParts     []string // parts of the name of a new machine, with random characters between the parts
	NameSeed      uint64   // seed of the random characters
	Members       []Member // members in any order
	Orphans       []Orphan // orphans in any order
	// number of machines that this set released, that have no controller, and that are not being deleted
	ReleasedMachineCount int

	PauseSentences []string // who paused the set, as one sentence for each pause; empty: not paused
	// StopReasons has reasons why no machine is created, each as one sentence. Reasons that follow from other facts are
	// not in StopReasons.
	StopReasons        []string
	MissingObjectKinds []string // kinds of the template's objects that do not exist
	// facts for the preflight checks; zero: no control plane is configured, and nothing is checked
	Preflight preflight.Facts

	LastWriteFailure WriteFailure

	Generation int64 // metadata.generation
	Reported

	MCM        MCMSet        // zero for a set of Cluster API
	ClusterAPI ClusterAPISet // zero for a set of MCM's kinds
}

// asTarget returns the member as a MachineTarget of a decision.
func (m Member) asTarget(why string) MachineTarget {
	return MachineTarget{Name: m.Name, UID: m.UID, Version: m.Version, Why: why}
}

func (m *Member) name() string { return m.Name }

// planner is the state of a set during a decision: its facts, and values computed from the facts. Members and orphans
// are sorted by name. Replicas is not negative, and includes the substitutes that the set creates before it deletes
// their predecessors. The lists must not be changed.
type planner struct {
	Facts
	// number of machines in Replicas that the set has only until their predecessors are deleted
	substituteCount       int
	liveMembers           []Member         // members that are not being deleted
	hasJoinedAfterFailure bool             // a member created after the last failed generation has joined
	failedToRemove        []Member         // failed members that are deleted now, at most MaxBatchSize
	membersToRemediate    []Member         // marked members that are deleted now, at most MaxBatchSize
	waitingMarkedMembers  []machineMessage // the other marked members, each with the reason why it is not deleted
	// waitingMarkedMembers, and failed members that are not deleted yet, each with the reason
	postponedMembers []machineMessage
}

// newPlanner returns the planner of these facts.
func newPlanner(observed Facts) *planner {
	o := &planner{Facts: observed}
	o.Replicas = max(o.Replicas, 0)
	o.Members = list.SortedCopyOfLargeItems(
		o.Members,
		func(a, b *Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) },
	)
	o.Orphans = list.SortedCopy(
		o.Orphans,
		func(a, b Orphan) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) },
	)
	o.liveMembers = o.Members
	if deleting := func(m Member) bool { return m.Deleting }; slices.ContainsFunc(o.Members, deleting) {
		o.liveMembers = slices.DeleteFunc(slices.Clone(o.Members), deleting)
	}
	o.hasJoinedAfterFailure = slices.ContainsFunc(
		o.Members,
		func(m Member) bool { return m.Joined && o.wasCreatedAfterFailure(m) },
	)
	o.planReplacements()
	return o
}

// planReplacements decides which failed and marked members are deleted now, and how many substitutes the set creates
// before.
func (o *planner) planReplacements() {
	failed, marked := failedMembersToRemove(o), rankMarkedMembers(o)
	o.substituteCount = countSubstitutes(o, failed, marked)
	o.Replicas += o.substituteCount
	next, waiting := splitMarkedMembers(marked)
	pool := newSubstitutePool(o, slices.Concat(failed, next))
	var failedLater, markedLater []Member
	o.failedToRemove, failedLater = pool.take(failed)
	o.membersToRemediate, markedLater = pool.take(next)
	o.waitingMarkedMembers = slices.Concat(waiting, substituteWaitMessages(o, markedLater))
	o.postponedMembers = slices.Concat(
		o.waitingMarkedMembers,
		waitingFailedMembers(o),
		substituteWaitMessages(o, failedLater),
	)
}
