// Package drain decides how a node is emptied: which pods go, in which order and by which means, and what blocks the
// others. The activity that evicts pods asks again whenever something changes. The package does no I/O and knows no API
// type.
package drain

import "time"

// Pod is a pod on the node, with the attempts to remove it.
type Pod struct {
	UID, Namespace, Name string

	Priority  int32         // zero: none
	Grace     time.Duration // its own termination grace period, or that of its deletion
	DeletedAt time.Time     // metadata.deletionTimestamp, when its grace ends; zero: it is not being deleted
	Started   time.Time     // status.startTime; zero: not yet
	Finished  bool          // Succeeded or Failed
	Pending   bool          // phase Pending: no budget counts it
	Ready     bool          // condition Ready

	Returned  bool   // it was scheduled to the node after the drain began, because it tolerates the cordon
	Mirror    bool   // mirror pod of a static pod: the kubelet owns it
	DaemonSet bool   // its controller is a DaemonSet
	Label     string // value of the label cluster.x-k8s.io/drain; empty: none
	Protected string // value of the annotation karpenter.sh/do-not-disrupt; empty: none
	Rule      *Rule  // the drain rule that matches it; nil: none

	Budgets     []string // keys of the disruption budgets that select it, sorted
	StatefulSet string   // namespace/name of its StatefulSet; empty: none
	Volumes     []string // sorted names of the persistent volumes that it mounts and that a drain waits for

	Tries Tries
}

// Rule is the part of a drain rule about the pods that it selects.
type Rule struct {
	Name     string
	Behavior string // Drain, Skip or WaitCompleted
	Order    int32  // with Drain: pods of a lower order go first; default zero
}

// Tries are the attempts to remove a pod.
type Tries struct {
	Attempts int       // number of requests sent
	Failures int       // number of failed requests in a row, up to the last one, with the same means
	Last     time.Time // when the last request was sent; zero: none
	Means    Means     // means of the last request
	Accepted bool      // the API server accepted a request: the pod is never evicted again
	Result   Result    // result of the last request
	Message  string    // message of the API server
	Next     time.Time // earliest time of the next request with the same means; zero: at once
}

// Result is the answer of the API server.
type Result string

// The results.
const (
	NotTried  Result = ""
	Accepted  Result = "Accepted"  // the pod is being deleted
	Gone      Result = "Gone"      // the pod is gone, or another one has its name
	Refused   Result = "Refused"   // a disruption budget does not allow it
	Several   Result = "Several"   // several budgets select the pod, so the API server rejects the eviction
	Throttled Result = "Throttled" // the API server is busy
	Going     Result = "Going"     // its namespace is being deleted, and the pod with it
	Failed    Result = "Failed"    // anything else
)

// Budget is one PodDisruptionBudget.
type Budget struct {
	Key       string // namespace/name
	Allowed   int    // status.disruptionsAllowed
	Healthy   int    // status.currentHealthy
	Desired   int    // status.desiredHealthy
	Expected  int    // status.expectedPods
	Disrupted int    // entries of status.disruptedPods: accepted evictions that are not counted yet
	Current   bool   // the status belongs to the present spec
	Unhealthy bool   // unhealthyPodEvictionPolicy AlwaysAllow

	Used int       // evictions of its pods sent since its status last changed
	Next time.Time // earliest time of a probe; zero: at once. See AfterProbe
}

// Departed is a pod with volumes that left the node in this drain. Its lane waits for its volumes.
type Departed struct {
	Pod  Pod
	At   time.Time // when the pod left
	Free time.Time // when the last of its volumes was detached from the node; zero: not yet
}

// Volume is where a persistent volume is attached.
type Volume struct {
	Here      bool // to this node, also while it is being detached
	Elsewhere bool // to another node, and ready there
}

// Means is how pods are removed. A drain climbs to the next means when the time of the present one ends, or at once to
// Kill (Ladder.Forced). It never climbs back.
type Means string

// The means, in the order in which a drain uses them.
const (
	Evict Means = "Evict" // the Eviction API, which respects disruption budgets
	// instead of Evict, if the cluster cannot evict: deletion with the pod's own grace period, in the order of Evict
	DeleteInOrder Means = "DeleteInOrder"
	Delete        Means = "Delete" // deletion with the pod's own grace period, all pods at once
	Kill          Means = "Kill"   // deletion with a grace period of zero, all pods at once
)

// Ordered reports whether pods go in their order and only as do-not-disrupt allows. Both end with the drain's deadline.
func (m Means) Ordered() bool { return m == Evict || m == DeleteInOrder }

// Observed is what is known of a node's pods at one moment.
type Observed struct {
	Pods     []Pod // in any order
	Budgets  []Budget
	Volumes  map[string]Volume // by name of the persistent volume; a missing entry is attached nowhere
	Departed []Departed        // in any order; see Leave
	Gone     int               // number of pods that left the node in this drain, for the picture
	Means    Means             // empty means Evict
	Settings Settings
	Now      time.Time
}

// Settings are options of the operator.
type Settings struct {
	// Parallel lets pods with volumes go at the same time if they share no StatefulSet, budget or volume. Otherwise they
	// go one after the other.
	Parallel bool
	// Attach is how long a lane waits for a pod's volumes to be attached to another node. Zero: no wait.
	Attach time.Duration
	// Detach is how long a lane waits, after a pod left, for its volumes to be detached. Zero: no wait; and while a volume
	// is still attached to the node, no wait for another node (Attach) either.
	Detach time.Duration
}

// Decision is what to do now, and what to show.
type Decision struct {
	Act []Action // requests to send now, all at the same time
	// departed pods that a lane still waits for, the earliest first, at most maxDeparted bytes: pass them as Departed of
	// the next Observed
	Departed []Departed
	Done     bool      // no pod is left to remove, and no lane waits for a volume
	Look     time.Time // when to decide again if nothing changes before; zero: never
	Blockers []Blocker // at most MaxBlockers, sorted by kind and name
	Picture  Picture
}

// Action is one request to the API server.
type Action struct {
	UID   string // UID of the pod: precondition of the request
	Means Means
	Probe []string // keys of the budgets whose status does not allow this eviction, if it is a probe; nil: it is none
}

// Blocker is a reason why pods stay.
type Blocker struct {
	Kind string // one of the kinds below
	Name string // namespace/name of the budgets, name of the volume, else empty
	Pods int    // number of pods that it blocks; zero: no pod is left, and the drain itself waits for a volume
	Why  string // one sentence
	Bad  bool   // somebody has to change something

	Until time.Time // end of the wait for a volume; zero for all other kinds
}

// The kinds of blockers.
const (
	BlockedByBudget     = "PodDisruptionBudget"
	BlockedByProtection = "DoNotDisrupt"
	BlockedByWork       = "WaitCompleted" // the drain waits for the pod to complete
	BlockedByVolume     = "Volume"        // a volume of a pod that left before
	BlockedByEnding     = "Terminating"   // the pod should have ended long ago
	BlockedByNamespace  = "Namespace"     // the namespace is being deleted, and the pod with it
	BlockedByError      = "Error"         // the request failed
)

// Picture is the display of a drain: counts of all pods, and at most MaxRows pods, first those that may need somebody.
type Picture struct {
	Counts Counts
	Rows   []Row
	Why    string // what the drain waits for, in one sentence
}

// MaxRows is the largest number of pods in a picture. Source: ADR 0013.
const MaxRows = 20

// Counts are the numbers of pods on the node by state, each pod counted once, and of those that left it in this drain.
type Counts struct {
	Gone        int // left the node in this drain
	Terminating int // being deleted, or the request was sent
	Blocked     int
	Waiting     int // waiting for pods of a lower order, or for a pod of their lane
	Skipped     int // pods that stay: mirror pods, pods of DaemonSets, pods that opted out
}

// Row is one pod of a picture.
type Row struct {
	Pod       string    // namespace/name
	State     string    // one of the states below
	Since     time.Time // zero: not known
	Attempts  int
	BlockedBy string    // name of the blocker, or its kind if it has no name; empty: none
	Budgets   []string  // sorted keys of the disruption budgets that block the pod
	Bad       bool      // somebody has to change what blocks the pod
	Next      time.Time // time of the next attempt, or end of the wait; zero: something else has to change first
}

// The states of a row.
const (
	Blocked     = "Blocked"
	Terminating = "Terminating"
	Evicting    = "Evicting"  // the request was sent, and the pod does not terminate yet
	Detaching   = "Detaching" // the pod left, and its volumes are still attached to the node
	Attaching   = "Attaching" // the pod left, and its volumes are not attached to another node yet
	Waiting     = "Waiting"
)
