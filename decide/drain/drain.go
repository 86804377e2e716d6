// Package drain answers how a node is emptied: which of its pods have to go, which of them go next and how, what blocks the
// others, and which means the time that has passed allows. The activity that evicts pods calls it with what it sees,
// whenever something changes. It knows no API kind and talks to nobody.
package drain

import "time"

// Pod is one pod that is bound to the node, and what was tried with it before.
type Pod struct {
	UID, Namespace, Name string

	Priority  int32         // zero when it has none (D1)
	Grace     time.Duration // its own termination grace period
	DeletedAt time.Time     // metadata.deletionTimestamp, when its grace ends; zero: nobody deletes it
	Started   time.Time     // status.startTime; zero: not yet
	Finished  bool          // Succeeded or Failed
	Pending   bool          // phase Pending: no budget counts it
	Ready     bool          // condition Ready

	Returned  bool   // it came to the node after the drain began, since it tolerates the cordon
	Mirror    bool   // of a static pod: the kubelet owns it
	DaemonSet bool   // its controller is a DaemonSet
	Label     string // value of the label cluster.x-k8s.io/drain; empty when it has none
	Protected string // value of the annotation karpenter.sh/do-not-disrupt; empty when it has none
	Rule      *Rule  // the drain rule that matches it; nil when none does

	Budgets     []string // keys of the disruption budgets that select it, sorted
	StatefulSet string   // namespace/name of its StatefulSet; empty when it has none
	Volumes     []string // names of the persistent volumes that it mounts, sorted; those that need no waiting are left out

	Tries Tries
}

// Rule is what a drain rule says of the pods that it selects.
type Rule struct {
	Name     string
	Behavior string // Drain, Skip or WaitCompleted
	Order    int32  // with Drain: pods of a lower order go first; the default is zero
}

// Tries is what became of the attempts to make a pod go.
type Tries struct {
	Attempts int       // requests that were sent
	Failures int       // how many of the last ones failed in a row, with the same means
	Last     time.Time // when the last one was sent; zero: none was
	Means    Means     // with which the last one was sent
	Accepted bool      // the API server accepted one: the pod is never evicted again (D41)
	Result   Result    // of the last one
	Message  string    // what the API server said, for people
	Next     time.Time // not tried again before; zero means at once. It holds for Means only: the next means begins anew
}

// Result is how the API server answered.
type Result string

// The results.
const (
	NotTried  Result = ""
	Accepted  Result = "Accepted"  // the pod goes
	Gone      Result = "Gone"      // there is no such pod any more, or another one of its name
	Refused   Result = "Refused"   // a disruption budget does not allow it
	Several   Result = "Several"   // several budgets select the pod: the API server cannot decide
	Throttled Result = "Throttled" // the API server is busy
	Going     Result = "Going"     // its namespace is being deleted, and takes it along
	Failed    Result = "Failed"    // anything else
)

// Budget is one PodDisruptionBudget.
type Budget struct {
	Key       string // namespace/name
	Allowed   int    // status.disruptionsAllowed
	Healthy   int    // status.currentHealthy
	Desired   int    // status.desiredHealthy
	Expected  int    // status.expectedPods
	Disrupted int    // entries of status.disruptedPods: evictions that were accepted and are not counted yet
	Current   bool   // the status is of the present spec
	Unhealthy bool   // pods that are not ready may always be evicted

	Used int       // evictions of its pods that were sent since its status last changed
	Next time.Time // when one pod may be tried although the status allows none; zero means at once. See AfterProbe
}

// Departed is a pod with volumes that has left the node in this drain. Its lane waits for its volumes.
type Departed struct {
	Pod  Pod
	At   time.Time // when it was gone
	Free time.Time // when the last of its volumes was detached from the node; zero: not yet
}

// Volume is where a persistent volume is attached.
type Volume struct {
	Here      bool // to the node, also while it is being detached
	Elsewhere bool // to another node, and ready there
}

// Means is how pods are made to go. A drain climbs from one to the next by time alone, and never back.
type Means string

// The means, gentlest first.
const (
	Evict  Means = "Evict"  // the Eviction API, which asks the disruption budgets
	Delete Means = "Delete" // deletion with the pod's own grace period
	Kill   Means = "Kill"   // deletion with a grace period of zero
)

// Observed is all that is known of a node's pods at one moment.
type Observed struct {
	Pods     []Pod // in any order
	Budgets  []Budget
	Volumes  map[string]Volume // by the name of the persistent volume; one that is missing is attached nowhere
	Departed []Departed        // in any order; see Leave
	Gone     int               // pods that left the node in this drain, for the picture
	Means    Means             // empty means Evict
	Settings Settings
	Now      time.Time
}

// Settings is what operators choose.
type Settings struct {
	// Parallel lets pods with volumes go at the same time when they share no StatefulSet, no budget and no volume (P6).
	// Without it they go one after the other.
	Parallel bool
	// Attach is how long a lane waits until the volumes of a pod are attached to another node. Zero does not wait.
	Attach time.Duration
	// Detach is how long a lane waits, beyond the pod's own grace period, until they are detached. Zero does not wait: a
	// volume that is still attached when its pod is gone is then not waited for elsewhere either.
	Detach time.Duration
}

// Decision is what to do now, and what there is to see.
type Decision struct {
	Act      []Action   // at once, and all at the same time
	Departed []Departed // those that a lane still waits for: the Departed of the next time
	Done     bool       // nothing has to go any more, and no lane waits for a volume
	Look     time.Time  // when to decide again, should nothing change before; zero means never
	Blockers []Blocker  // what keeps pods from going, at most MaxBlockers, sorted by kind and name; changes only when the picture does
	Picture  Picture
}

// Action is one request to the API server.
type Action struct {
	UID   string // of the pod, which is the precondition
	Means Means
	Probe []string // keys of the budgets that do not allow it by their status: one pod is tried all the same
}

// Blocker is one thing that keeps pods from going.
type Blocker struct {
	Kind string // one of the kinds below
	Name string // namespace/name of the budget, name of the volume, else empty
	Pods int    // how many it blocks
	Why  string // one sentence
	Bad  bool   // it will not go away by itself
}

// The kinds of blockers.
const (
	BlockedByBudget     = "PodDisruptionBudget"
	BlockedByProtection = "DoNotDisrupt"
	BlockedByWork       = "WaitCompleted" // the pod is to complete what it does
	BlockedByVolume     = "Volume"        // of a pod that left before
	BlockedByEnding     = "Terminating"   // it should have ended long ago
	BlockedByNamespace  = "Namespace"     // which is being deleted, and takes the pod along
	BlockedByError      = "Error"         // the request failed
)

// Picture is what people see of a drain: at most MaxRows pods, the most interesting ones first, and counts of all.
type Picture struct {
	Counts Counts
	Rows   []Row
	Why    string // one sentence: what the drain waits for
}

// MaxRows is how many pods a picture shows. Source: ADR 0013.
const MaxRows = 20

// Counts are the pods of the node, each counted once, and those that left it in this drain.
type Counts struct {
	Gone        int // left in this drain
	Terminating int // also those that were just asked to go
	Blocked     int
	Waiting     int // for their turn: a lower order, or a pod before them in their lane
	Skipped     int // stay: mirror pods, those of DaemonSets, those that opted out
}

// Row is one pod of a picture.
type Row struct {
	Pod       string    // namespace/name
	State     string    // one of the states below
	Since     time.Time // zero: not known
	Attempts  int
	BlockedBy string    // name of the blocker, or its kind when it has no name; empty when nothing blocks
	Budgets   []string  // keys of the disruption budgets that block the pod, sorted; empty when none does
	Bad       bool      // somebody has to change what blocks: it will not go away by itself
	Next      time.Time // of the next attempt, or the end of the wait; zero: something else has to change first
}

// The states of a row.
const (
	Blocked     = "Blocked"
	Terminating = "Terminating"
	Evicting    = "Evicting"  // asked to go, by whatever means, and not seen to terminate yet
	Detaching   = "Detaching" // left; its volumes are still attached to the node
	Attaching   = "Attaching" // left; its volumes are not attached to another node yet
	Waiting     = "Waiting"
)
