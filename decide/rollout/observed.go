package rollout

import (
	"cmp"
	"time"

	"millwright/decide/list"
	"millwright/decide/scale"
)

// Strategy is how new machines replace old ones.
type Strategy string

// The strategies.
const (
	RollingUpdate Strategy = "RollingUpdate" // new machines are created while old ones are deleted
	Recreate      Strategy = "Recreate"      // all old machines are gone before the first new one is created
	InPlaceAuto   Strategy = "InPlaceAuto"   // machines keep their instances; we choose the next nodes
	InPlaceManual Strategy = "InPlaceManual" // machines keep their instances; a person chooses the next nodes
	OnDelete      Strategy = "OnDelete"      // an old machine stays until somebody deletes it
)

// Bound is a number of machines, or a percentage of a number of machines.
type Bound struct {
	Value   int
	Percent bool
}

// Step is one entry of spec.rollout.steps.
type Step struct {
	Size    Bound         // number of new machines; a percentage is rounded up
	Wait    time.Duration // how long the step lasts once it has its machines; zero: no wait
	Approve bool          // a person has to approve the end of the step
}

// AutoRollback is the policy for automatic rollbacks. The zero value: never.
type AutoRollback struct {
	OnDeadline bool // roll back when the progress deadline passes
	MaxFailed  int  // roll back when more new machines than this have failed, if Failed is set
	Failed     bool // MaxFailed applies; without it, a MaxFailed of zero could not mean that no machine may fail
}

// Progress is the status's record of a rollout. The zero value: none. A record of another revision is ignored.
type Progress struct {
	Revision int64     // the revision being rolled out
	Step     int       // the current step, from 0; the number of steps once all are over
	Reached  time.Time // when the step had all its machines; zero: not yet. In whole seconds, like all times of a status
	Failed   []string  // sorted names of new machines that failed, at most one more than MaxFailed
}

// Member is a machine of a set.
type Member struct {
	Name, UID string
	Version   string // resourceVersion that was read
	Created   time.Time
	Deleting  bool

	Ready     bool // its node is ready
	Available bool // ready for long enough, or without a cluster to join; never while Deleting or Updating
	// Unhealthy: its set deletes this machine before any that is available, because it failed, its creation keeps failing,
	// or it has no node or an unhealthy one. False if that is not known: the worst case is assumed.
	Unhealthy bool
	Failed    bool // in phase Failed; of Cluster API: its health check failed
	Priority  int  // lower is deleted first; 3 without the annotation
	First     bool // an operator chose it for the next scale-down
	Updating  bool // its in-place update has begun and has not succeeded

	MCM        MCMMember        // zero for a machine of Cluster API
	ClusterAPI ClusterAPIMember // zero for a machine of MCM's kinds
}

// Problem is a failure that repeats. The zero value: none.
type Problem = scale.Problem

// Set is a set that the deployment owns.
type Set struct {
	Name, UID string
	Version   string // resourceVersion that was read
	Created   time.Time
	Current   bool // it matches the deployment's present template
	scale.Deletion
	Replicas int // spec.replicas

	Machines []Member // in any order
	Counted  int      // machines in its status; exceeds Machines if their cache is behind; zero: that cache is current
	// ActedOn is the size that its workflow acted on when it last wrote the status. If it differs from Replicas, the workflow
	// may still create or delete machines for that size, or for any size between.
	ActedOn int

	Revision  int64  // zero: none yet
	History   string // former revisions, separated by commas
	Desired   int    // annotation desired-replicas; -1: none
	Max       int    // annotation max-replicas; -1: none
	NoScaleUp bool   // label scale-up-disabled: it creates no machine
	Drift     bool   // it differs from what the deployment copies to its sets
	Failure   Problem

	MCM        MCMSet        // zero for a set of Cluster API
	ClusterAPI ClusterAPISet // zero for a set of MCM's kinds
}

// Orphan is a set of the namespace that no existing object controls.
type Orphan struct {
	Name, UID, Version string
	Matches            bool // the deployment's selector matches its labels
	Deleting           bool
	Released           bool // this deployment released it
}

// Counts are the numbers of a deployment's status.
type Counts struct {
	Replicas, Updated, Ready, Available, Unavailable, PreservedFailed int
}

// Condition is one condition of the deployment.
type Condition struct {
	Type            string
	Status          string // True, False or Unknown
	Reason, Message string
	Updated         time.Time // lastUpdateTime: for Progressing, the last progress
}

// Settings are the parts of a spec and a policy that a plan needs.
type Settings struct {
	Replicas    int // machines wanted
	Strategy    Strategy
	Surge       Bound  // rounded up
	Unavailable Bound  // maxUnavailable, rounded down
	Steps       []Step // in order; none: all machines at once
	// FreeWhenDeleting: a machine that is being deleted takes no place. If false, the default, there are never more
	// machines than wanted and surge, including machines that are being deleted.
	FreeWhenDeleting bool
	HistoryLimit     *int           // old sets without machines to keep; nil: all
	Deadline         *time.Duration // longest time without progress; nil: unlimited
	Automatic        AutoRollback
}

// Requests are what people asked for.
type Requests struct {
	Paused     bool   // spec.paused
	PausedBy   string // who paused it, and why: "ann: lunch"; empty: not known
	Held       string // why this revision is held, such as who cancelled it; empty: it is not
	Approved   int    // number of steps that people approved for this revision, counted from the first
	RollbackTo *int64 // requested revision; 0: the one before; nil: none requested
}

// Observed is what the deployment's activity read at one moment.
type Observed struct {
	Now time.Time
	Settings
	scale.Deletion
	Requests
	Invalid  string        // why the deployment is invalid, in one sentence; empty: it is valid
	NoSet    string        // why the last creation of the current set failed; empty: it did not fail
	Absent   time.Duration // for how long since the last progress no worker was at work; this time does not count
	Progress Progress      // as recorded
	Sets     []Set         // in any order
	Orphans  []Orphan      // in any order
	// RolledBackTo is the UID of the set whose template the last automatic rollback restored; empty: none did, or a person
	// has changed the template since.
	RolledBackTo string

	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	Reported           Status // the present status, with conditions of all types

	MCM        MCMDeployment        // zero for a deployment of Cluster API
	ClusterAPI ClusterAPIDeployment // zero for a deployment of MCM's kinds
}

// Sorted returns a copy with sets from the oldest to the newest, orphans and machines by name, and no negative number
// of replicas.
func (o Observed) Sorted() Observed {
	o.Replicas = max(o.Replicas, 0)
	o.Sets = list.Sorted(
		o.Sets,
		func(a, b Set) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) },
	)
	o.Orphans = list.Sorted(
		o.Orphans,
		func(a, b Orphan) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) },
	)
	byName := func(a, b *Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) }
	for i := range o.Sets {
		o.Sets[i].Machines = list.SortedLarge(o.Sets[i].Machines, byName)
	}
	return o
}

// reported returns the present condition of a type; zero: none.
func (o Observed) reported(kind string) Condition {
	return list.Find(o.Reported.Conditions, func(c Condition) bool { return c.Type == kind })
}

// Of returns the number of machines that a bound means for a total; up rounds a percentage up, else down. A negative
// bound counts as zero.
func (b Bound) Of(total int, up bool) int {
	value := max(b.Value, 0)
	if !b.Percent {
		return value
	}
	n := value * total
	if up {
		n += 99
	}
	return n / 100
}

// Bounds returns how many machines there may be above Replicas, and how many of Replicas may be unavailable. If both
// are zero, one may be unavailable, because nothing could change otherwise. Recreate and OnDelete have neither, and
// InPlaceManual has no surge. Source of the rounding: MCM, surge up and unavailable down.
func Bounds(o Observed) (surge, unavailable int) {
	if o.Replicas <= 0 || o.Strategy == Recreate || o.Strategy == OnDelete {
		return 0, 0
	}
	if o.Strategy != InPlaceManual {
		surge = o.Surge.Of(o.Replicas, true)
	}
	unavailable = o.Unavailable.Of(o.Replicas, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, o.Replicas)
}

// most returns the value of the annotation max-replicas. Source: MCM, which adds the surge only for a rolling update.
func most(o Observed) int {
	surge, _ := Bounds(o)
	if o.Strategy != RollingUpdate {
		surge = 0
	}
	return o.Replicas + surge
}

// inPlace reports whether machines keep their instances.
func (o Observed) inPlace() bool { return o.Strategy == InPlaceAuto || o.Strategy == InPlaceManual }

// stepped reports whether rollout steps apply. With the other strategies Millwright does not choose the number of new
// machines.
func (o Observed) stepped() bool { return o.Strategy == RollingUpdate || o.Strategy == InPlaceAuto }

// StepCount returns how many steps a rollout has. Zero: no steps, or the strategy has none.
func (o Observed) StepCount() int {
	if !o.stepped() {
		return 0
	}
	return len(o.Steps)
}
