package rollout

import (
	"cmp"
	"time"

	"millwright/decide/list"
	"millwright/decide/scale"
)

// Strategy is how old machines give way to new ones.
type Strategy string

// The strategies.
const (
	RollingUpdate Strategy = "RollingUpdate" // new machines come as old ones go
	Recreate      Strategy = "Recreate"      // all old machines are gone before the first new one comes
	InPlaceAuto   Strategy = "InPlaceAuto"   // machines keep their instance; we choose which nodes are updated next
	InPlaceManual Strategy = "InPlaceManual" // the same, and a person chooses
	OnDelete      Strategy = "OnDelete"      // an old machine stays until somebody deletes it
)

// Bound is a number of machines, or a percentage of the wanted ones.
type Bound struct {
	Value   int
	Percent bool
}

// Step is one step of a rollout in steps.
type Step struct {
	Size    Bound         // new machines to reach; a percentage is rounded up
	Wait    time.Duration // how long the step lasts once it is reached; zero: not by the clock
	Approve bool          // a person has to pass it
}

// AutoRollback is when a rollout gives up by itself. The zero value: never.
type AutoRollback struct {
	OnDeadline bool // when the progress deadline passes
	MaxFailed  int  // when more new machines than that have failed; zero: they are not counted
	Failed     bool // when MaxFailed counts; so that a MaxFailed of zero can mean that none may fail
}

// Progress is what the deployment's status records of a rollout. The zero value: nothing yet. A record of another revision
// counts for nothing.
type Progress struct {
	Revision int64     // that is being rolled out
	Step     int       // that is in force, from 0; the number of steps once all are passed
	Reached  time.Time // when its size was reached; zero: not yet. Whole seconds: a status keeps no more
	Failed   []string  // names of new machines that failed, in order; as many as the policy needs to know
}

// Member is a machine of a set.
type Member struct {
	Name, UID string
	Version   string // resourceVersion that was read
	Created   time.Time
	Node      string // name of its node; empty: none that we know
	Deleting  bool

	Ready     bool // in phase Running
	Available bool // ready for long enough, or serving without a cluster to join; never while Deleting or Updating
	// Sick: when its set has one machine too many, it takes this one before any that is available: failed, its creation
	// keeps failing, without a node, or with an unhealthy one. False where that is not known: then the worst is assumed.
	Sick      bool
	Failed    bool   // in phase Failed
	Troubled  bool   // its last operation failed
	Preserved bool   // kept on purpose
	Priority  int    // lower is deleted first; 3 where nobody said
	First     bool   // a person chose it for the next scale-down
	MarkedAt  string // annotation marked-for-deletion-time; empty: none

	Tainted  bool   // its node has the taint prefer-no-schedule
	Guard    string // value of its node's annotation scale-down-disabled; empty: none
	Guarded  bool   // and our marker, which says that the guard is ours
	Updated  bool   // its node was updated in place with success, and the machine is not in phase InPlaceUpdating any more
	Handed   bool   // it was handed to this set after that: its label update-result
	Marks    bool   // its node carries labels of an in-place update
	Updating bool   // its node is selected for an in-place update that has not ended well
	// Candidate: its node carries the label candidate-for-update.
	Candidate bool
}

// Problem is something that keeps failing. The zero value: nothing does.
type Problem = scale.Problem

// Set is a set that the deployment owns.
type Set struct {
	Name, UID string
	Version   string // resourceVersion that was read
	Created   time.Time
	Current   bool // it was made from the deployment's template as it is now
	Deleting  bool
	Replicas  int // spec.replicas

	Machines []Member // in any order
	Counted  int      // machines that its status speaks of: more than Machines when those were read earlier; zero when it is known that they were not
	// Seen is the size that its workflow acted on when it last wrote the status. Where it is not Replicas, the workflow may
	// still make or delete machines for that one, or for any between.
	Seen int

	Revision  int64  // zero: none yet
	History   string // former revisions, separated by commas
	Desired   int    // annotation desired-replicas; -1: none
	Max       int    // annotation max-replicas; -1: none
	NoScaleUp bool   // label scale-up-disabled: it makes no machine
	Frozen    bool   // label freeze
	Drift     bool   // something that is copied from the deployment to its current set differs
	Failure   Problem
}

// Counts are the numbers of a deployment's status.
type Counts struct {
	Replicas, Updated, Ready, Available, Unavailable, PreservedFailed int
}

// Condition is one statement about the deployment.
type Condition struct {
	Type            string
	Status          string // True, False or Unknown
	Reason, Message string
	Updated         time.Time // lastUpdateTime: for Progressing, the last progress
}

// Observed is what the deployment's activity read, at one moment.
type Observed struct {
	Now         time.Time
	Replicas    int // machines wanted
	Strategy    Strategy
	Surge       Bound // rounded up
	Unavailable Bound // maxUnavailable, rounded down
	Deleting    bool
	Finalizer   bool   // ours is on
	Invalid     string // why nothing can be done with it, in a sentence; empty when all is well
	NoSet       string // why no set of the current template could be made a moment ago; empty when nobody tried, or it was made
	Frozen      bool   // label freeze

	Paused   bool   // spec.paused
	Held     string // why this revision is held where it is, such as who cancelled it; empty: it is not
	Steps    []Step // in order; none: all at once
	Approved int    // steps that people passed for this revision, counted from the first
	// FreeWhenDeleting: a machine that is being deleted holds no place any more. False, the default, keeps the promise that
	// there are never more machines than wanted and surge, instances that are on their way out included.
	FreeWhenDeleting bool
	HistoryLimit     *int           // old sets without machines to keep; nil: all
	Deadline         *time.Duration // without progress; nil: none
	Automatic        AutoRollback
	RollbackTo       *int64 // revision that is asked for; 0: the one before; nil: none
	Guard            bool   // the cluster autoscaler is kept off nodes during a rollout

	Revision int64    // annotation of the deployment
	Trigger  string   // annotation trigger-deletion-by-mcm
	Scaled   string   // annotation last-deployment-replica-change-by-scaler-time
	Progress Progress // as recorded
	Sets     []Set    // in any order
	// RolledBackTo is the UID of the set whose template the last automatic rollback brought back; empty: none did, or a person has
	// changed the template since.
	RolledBackTo string

	Due       int // machines that wait until they may be replaced
	Replacing int // replacements that were granted and are not complete

	Generation         int64  // metadata.generation
	ObservedGeneration int64  // status.observedGeneration
	Reported           Status // the status as it is, with conditions of all types
}

// Sorted returns a copy of the same, sets from the oldest to the newest and machines by name, and no size below zero.
func (o Observed) Sorted() Observed {
	o.Replicas = max(o.Replicas, 0)
	o.Sets = list.Sorted(o.Sets, func(a, b Set) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	byName := func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) }
	for i := range o.Sets {
		o.Sets[i].Machines = list.Sorted(o.Sets[i].Machines, byName)
	}
	return o
}

// reported returns what the status says of a condition; the zero Condition when nothing.
func (o Observed) reported(kind string) Condition {
	return list.Find(o.Reported.Conditions, func(c Condition) bool { return c.Type == kind })
}

// of resolves a bound. Source of the rounding: MCM, surge up and unavailable down.
func (b Bound) of(total int, up bool) int {
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

// Bounds returns how many machines there may be above Replicas, and how many of Replicas may be unavailable. Where both are
// zero nothing could ever move, and one may be unavailable. Recreate and OnDelete know neither. Who chooses the nodes of an
// in-place update by hand has no surge.
func Bounds(o Observed) (surge, unavailable int) {
	if o.Replicas <= 0 || o.Strategy == Recreate || o.Strategy == OnDelete {
		return 0, 0
	}
	if o.Strategy != InPlaceManual {
		surge = o.Surge.of(o.Replicas, true)
	}
	unavailable = o.Unavailable.of(o.Replicas, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, o.Replicas)
}

// most is what the annotation max-replicas says. Source: MCM, where only a rolling update counts its surge there.
func most(o Observed) int {
	surge, _ := Bounds(o)
	if o.Strategy != RollingUpdate {
		surge = 0
	}
	return o.Replicas + surge
}

// inPlace reports whether machines keep their instance.
func (o Observed) inPlace() bool { return o.Strategy == InPlaceAuto || o.Strategy == InPlaceManual }

// stepped reports whether the strategy knows steps: the others let nobody say how many new machines there are.
func (o Observed) stepped() bool { return o.Strategy == RollingUpdate || o.Strategy == InPlaceAuto }

// StepCount returns how many steps a rollout has. Zero: all at once, or the strategy knows none.
func (o Observed) StepCount() int {
	if !o.stepped() {
		return 0
	}
	return len(o.Steps)
}
