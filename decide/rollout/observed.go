package rollout

import (
	"cmp"
	"time"

	"millwright/decide/list"
	"millwright/decide/scale"
)

// Strategy is how new machines replace old machines.
type Strategy string

// Values of Strategy.
const (
	RollingUpdate Strategy = "RollingUpdate" // new machines are created while old machines are deleted
	Recreate      Strategy = "Recreate"      // the first new machine is created after all old machines are gone
	// machines keep their instances, and Millwright selects the next nodes to update
	InPlaceAuto Strategy = "InPlaceAuto"
	// machines keep their instances, and a person selects the next nodes to update
	InPlaceManual Strategy = "InPlaceManual"
	OnDelete      Strategy = "OnDelete" // an old machine stays until a person deletes it
)

// IntOrPercent is a number of machines, or a percentage of a number of machines.
type IntOrPercent struct {
	Value     int
	IsPercent bool
}

// Step is one entry of spec.rollout.steps.
type Step struct {
	Size          IntOrPercent  // number of new machines; a percentage is rounded up
	Wait          time.Duration // how long the rollout waits after all machines of the step exist; zero: no wait
	NeedsApproval bool          // a person must approve the step before the rollout continues
}

// Progress is the record of a rollout in the status. The zero value means that there is no record. A record for another
// revision or another set is ignored. The record contains names of sets instead of UIDs, because a restored or moved
// set keeps its name but gets a new UID.
type Progress struct {
	Revision int64     // the revision being rolled out
	Set      string    // name of the template's set
	Step     int       // index of the current step, from 0; equal to the number of steps after the last step
	Reached  time.Time // when the step had all its machines, in whole seconds; zero: not yet
	Failed   []string  // sorted names of new machines that failed, at most MaxFailed+1
	Attempt  int       // number of retries of this revision
	// FormerMachines is the creation time of the newest machine of all earlier attempts. A failed machine counts only
	// if it was created after FormerMachines. If FormerMachines is zero, all failed machines count.
	FormerMachines time.Time
	// Completed is the time at which the rollout of this revision was first complete; zero: never.
	Completed time.Time
	Good      string // name of the set of the last complete rollout; empty: unknown
	// FormerGood is the name of the set to which an automatic rollback during the bake time returns; empty: none.
	FormerGood string
	Pin        *Pin // nil: no pin
	Turn       Turn
}

// Member is a machine of a set.
type Member struct {
	Name, UID string
	Version   string // resourceVersion at the read
	CreatedAt time.Time
	Deleting  bool

	Ready     bool // the machine's node is ready
	Available bool // ready for minReadySeconds, or without a target cluster; never true with Deleting or Updating
	// Unhealthy means that the set deletes this machine before each available machine. The machine failed, its creation
	// keeps failing, it has no node, or its node is unhealthy. If the health is unknown, Unhealthy is false, because
	// this is the worst case for a decision.
	Unhealthy        bool
	Failed           bool // phase Failed; in Cluster API: the health check failed
	Joined           bool // the machine's node was healthy once
	RemovalRequested bool // a person requested the machine's replacement or deletion
	DenialReason     DenialReason
	Priority         int  // machines with a lower priority are deleted first; 3 without the annotation
	DeleteFirst      bool // an operator chose the machine for the next scale-down
	Updating         bool // the machine's in-place update has begun and has not succeeded

	MCM        MCMMember        // zero for a machine of Cluster API
	ClusterAPI ClusterAPIMember // zero for a machine of MCM's kinds
}

// Problem is a repeated failure. The zero value means no failure.
type Problem = scale.Problem

// MachineSet is a set that the deployment owns.
type MachineSet struct {
	Name, UID string
	Version   string // resourceVersion at the read
	CreatedAt time.Time
	Current   bool // the set has the deployment's current template
	scale.Deletion
	Replicas int // spec.replicas

	Machines           []Member // members in any order
	StatusMachineCount int      // number of machines in the set's status if the machine cache may be outdated; zero otherwise
	// ObservedReplicas is the size for which the set's workflow last wrote the status. If ObservedReplicas differs from
	// Replicas, the workflow may still create or delete machines for any size from ObservedReplicas to Replicas.
	ObservedReplicas int

	Revision        int64          // zero: no revision yet
	History         string         // old revisions, comma-separated
	DesiredReplicas int            // annotation desired-replicas; -1: no annotation
	MaxReplicas     int            // annotation max-replicas; -1: no annotation
	ScaleUpDisabled bool           // the set has the label scale-up-disabled and creates no machine
	Drifted         bool           // the set differs from the settings that the deployment copies to its sets
	Source          InstanceSource // zero: unknown
	Failure         Problem

	MCM        MCMSet        // zero for a set of Cluster API
	ClusterAPI ClusterAPISet // zero for a set of MCM's kinds
}

// Orphan is a set in the namespace whose controller does not exist.
type Orphan struct {
	Name, UID, Version string
	MatchesSelector    bool // the deployment's selector matches the set's labels
	Deleting           bool
	Released           bool // this deployment released the set
}

// MachineCounts are the numbers of machines in a deployment's status.
type MachineCounts struct {
	Replicas, Updated, Ready, Available, Unavailable, PreservedFailed int
}

// Condition is one condition of the deployment.
type Condition struct {
	Type            string
	Status          string // status: True, False or Unknown
	Reason, Message string
	LastUpdateTime  time.Time // lastUpdateTime; for Progressing: time of the last progress
}

// Settings holds the fields of a spec and a policy that a plan uses.
type Settings struct {
	Replicas             int // wanted number of machines
	Strategy             Strategy
	MaxSurge             IntOrPercent // maxSurge; percentages are rounded up
	MaxUnavailable       IntOrPercent // maxUnavailable; percentages are rounded down
	Steps                []Step       // steps in order; without steps, all machines are replaced in one step
	NextRolloutStepCount int          // number of steps of a rollout that begins now
	// If IgnoresDeletingMachines is true, a machine that is being deleted is not counted, and its replacement does not
	// wait for the deletion. If IgnoresDeletingMachines is false (the default), the number of machines, including machines
	// that are being deleted, never exceeds Replicas plus surge.
	IgnoresDeletingMachines bool
	HistoryLimit            *int           // number of old sets without machines to keep; nil: keep all
	ProgressDeadline        *time.Duration // longest time without progress; nil: unlimited
	RollbackPolicy          AutoRollback
	Turns                   Turns
}

// OperatorRequests holds the requests of people.
type OperatorRequests struct {
	Paused            bool   // spec.paused
	PausedBy          string // who paused the deployment, and why, such as "ann: lunch"; empty: unknown
	HoldReason        string // actor and reason of the hold of this revision; empty: not held
	ApprovedStepCount int    // number of approved steps of this revision, counted from the first step
	RollbackTo        *int64 // requested revision; 0: the previous revision; nil: no request
	RetryCount        int    // number of retries of this revision that people requested
	PinRevision       int64  // old revision to which a person pins this revision; zero: no request
	PinRequestedBy    string // who requested PinTo, and why, such as "ann: lunch"
}

// Facts holds the facts that the deployment's activity read at one moment.
type Facts struct {
	Now time.Time
	Settings
	scale.Deletion
	OperatorRequests
	InvalidReason   string        // one sentence why the deployment is invalid; empty: valid
	CreationProblem Problem       // why no set may be created for a template without a set; zero: a set may be created
	CreationError   string        // why the last creation of the current set failed; empty: no failure
	WorkerDowntime  time.Duration // time without a running worker since the last progress; the deadline does not include it
	Progress        Progress      // the recorded Progress
	Sets            []MachineSet  // in any order
	Orphans         []Orphan      // in any order

	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	ReportedStatus     Status // the current status, with conditions of all types

	MCM        MCMDeployment        // zero for a deployment of Cluster API
	ClusterAPI ClusterAPIDeployment // zero for a deployment of MCM's kinds
}

// SortedCopy returns a sorted copy. Sets are sorted from the oldest to the newest, and orphans and machines by name. A
// negative Replicas becomes 0.
func (o Facts) SortedCopy() Facts {
	o.Replicas = max(o.Replicas, 0)
	o.Sets = list.SortedCopy(
		o.Sets,
		func(a, b MachineSet) int {
			return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name))
		},
	)
	o.Orphans = list.SortedCopy(
		o.Orphans,
		func(a, b Orphan) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) },
	)
	byName := func(a, b *Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) }
	for i := range o.Sets {
		o.Sets[i].Machines = list.SortedCopyOfLargeItems(o.Sets[i].Machines, byName)
	}
	return o
}

// reportedCondition returns the current condition of a type; zero: no such condition.
func (o Facts) reportedCondition(kind string) Condition {
	return list.FindFirst(o.ReportedStatus.Conditions, func(c Condition) bool { return c.Type == kind })
}

// ScaledValue returns the number of machines that b means for a total. A percentage is rounded up if up is true, and
// down otherwise. A negative value counts as 0.
func (b IntOrPercent) ScaledValue(total int, up bool) int {
	value := max(b.Value, 0)
	if !b.IsPercent {
		return value
	}
	n := value * total
	if up {
		n += 99
	}
	return n / 100
}

// SurgeAndUnavailable returns how many machines may exist in addition to Replicas, and how many machines of Replicas
// may be unavailable. If surge and unavailable are both zero, one machine may be unavailable, because otherwise the
// rollout could not continue. With Recreate and OnDelete, both are zero. With InPlaceManual, surge is zero. The surge
// is rounded up and unavailable is rounded down, as in MCM.
func SurgeAndUnavailable(o Facts) (surge, unavailable int) {
	if o.Replicas <= 0 || o.Strategy == Recreate || o.Strategy == OnDelete {
		return 0, 0
	}
	if o.Strategy != InPlaceManual {
		surge = o.MaxSurge.ScaledValue(o.Replicas, true)
	}
	unavailable = o.MaxUnavailable.ScaledValue(o.Replicas, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, o.Replicas)
}

// maxReplicas returns the value of the annotation max-replicas. Source: MCM, which adds the surge only for a rolling
// update.
func maxReplicas(o Facts) int {
	surge, _ := SurgeAndUnavailable(o)
	if o.Strategy != RollingUpdate {
		surge = 0
	}
	return o.Replicas + surge
}

// isInPlace reports whether machines keep their instances.
func (o Facts) isInPlace() bool { return o.Strategy == InPlaceAuto || o.Strategy == InPlaceManual }

// usesSteps reports whether rollout steps apply. With all other strategies, Millwright does not choose the number of
// new machines.
func (o Facts) usesSteps() bool { return o.Strategy == RollingUpdate || o.Strategy == InPlaceAuto }

// NextStepCount returns the number of steps of a rollout that begins now; zero if the strategy uses no steps.
func (o Facts) NextStepCount() int {
	if !o.usesSteps() {
		return 0
	}
	return o.NextRolloutStepCount
}

// StepCount returns the number of steps of a rollout, or zero if the rollout or the strategy has no steps.
func (o Facts) StepCount() int {
	if !o.usesSteps() {
		return 0
	}
	return len(o.Steps)
}
