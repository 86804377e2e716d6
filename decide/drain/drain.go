// Package drain decides how a node is drained: which pods are removed, in which order and by which means, and what
// blocks the other pods. The activity that evicts pods calls Decide after each change. The package does no I/O and
// imports no API type.
package drain

import "time"

// Pod is a pod on the node, with the record of the requests to remove the pod.
type Pod struct {
	UID, Namespace, Name string

	Priority  int32         // spec.priority of the pod; zero: no priority
	Grace     time.Duration // the pod's termination grace period, or the grace period of its deletion
	DeletedAt time.Time     // metadata.deletionTimestamp: end of the grace period; zero: the pod is not being deleted
	Started   time.Time     // status.startTime; zero: the pod has not started
	Finished  bool          // the phase is Succeeded or Failed
	Pending   bool          // the phase is Pending, so that no budget counts the pod
	Ready     bool          // the pod's condition Ready is True

	Returned  bool   // the pod was scheduled to the node after the drain began, because the pod tolerates the cordon
	Mirror    bool   // the pod is the mirror pod of a static pod, which the kubelet owns
	DaemonSet bool   // the controller of the pod is a DaemonSet
	Label     string // value of the label cluster.x-k8s.io/drain; empty: no label
	Protected string // value of the annotation karpenter.sh/do-not-disrupt; empty: no annotation
	Rule      *Rule  // the drain rule that matches the pod; nil: none

	Budgets     []string // sorted keys of the PodDisruptionBudgets that select the pod
	StatefulSet string   // namespace/name of the pod's StatefulSet; empty: none
	Volumes     []string // sorted names of the pod's persistent volumes that a drain waits for

	Tries RequestRecord
}

// Rule is the part of a drain rule about the pods that the rule selects.
type Rule struct {
	Name     string
	Behavior string // Drain, Skip or WaitCompleted
	Order    int32  // order of removal if Behavior is Drain: pods of a lower order are removed first; default zero
}

// RequestRecord is the record of the requests to remove a pod.
type RequestRecord struct {
	Attempts int           // number of requests that were sent for the pod
	Failures int           // number of failed requests in a row with the same means, up to the last request
	Last     time.Time     // time of the last request; zero: no request was sent
	Means    RemovalMeans  // means of the last request for the pod
	Accepted bool          // the API server accepted a request, so that the pod is not evicted again
	Result   RequestResult // the API server's answer to the last request
	Message  string        // the API server's message in the last answer
	Next     time.Time     // earliest time of the next request with the same means; zero: at once
}

// RequestResult is the API server's answer to a request.
type RequestResult string

// The results of a request to remove a pod.
const (
	ResultNotRequested   RequestResult = ""
	ResultAccepted       RequestResult = "Accepted"  // the pod is being deleted
	ResultPodGone        RequestResult = "Gone"      // the pod does not exist, or another pod has its name
	ResultRefused        RequestResult = "Refused"   // a PodDisruptionBudget does not allow the eviction
	ResultSeveralBudgets RequestResult = "Several"   // several budgets select the pod, so that the API server rejects the eviction
	ResultThrottled      RequestResult = "Throttled" // the API server is busy
	// the pod's namespace is being deleted, and the namespace controller deletes the pod
	ResultNamespaceDeleting RequestResult = "Going"
	ResultFailed            RequestResult = "Failed" // any other error
)

// DisruptionBudget is one PodDisruptionBudget.
type DisruptionBudget struct {
	Key                string // namespace/name of the PodDisruptionBudget
	DisruptionsAllowed int    // status.disruptionsAllowed of the budget
	CurrentHealthy     int    // status.currentHealthy of the budget
	DesiredHealthy     int    // status.desiredHealthy of the budget
	ExpectedPods       int    // status.expectedPods of the budget
	// number of entries of status.disruptedPods, which are accepted evictions that the status does not count yet
	DisruptedCount        int
	IsUpToDate            bool // the budget's status.observedGeneration is its present generation
	AlwaysAllowsUnhealthy bool // unhealthyPodEvictionPolicy of the budget is AlwaysAllow

	SentEvictions int       // number of evictions sent for the budget's pods since its status last changed
	NextProbe     time.Time // earliest time of the next probe; zero: at once. See NextProbeTime
}

// DepartedPod is a pod with volumes that left the node in this drain. The next pod of the same lane is not removed
// before these volumes are detached, and attached to another node.
type DepartedPod struct {
	Pod  Pod
	At   time.Time // when the pod left the node
	Free time.Time // when the last volume of the pod was detached from the node; zero: not yet
}

// VolumeState is where a persistent volume is attached.
type VolumeState struct {
	AttachedHere      bool // the volume is attached to this node, or is being detached from this node
	AttachedElsewhere bool // the volume is attached to another node, and ready there
}

// RemovalMeans is a way to remove pods. When the time limit of the current means has passed, the drain uses the next
// means. A forced drain uses Kill at once (EscalationFacts.ForceReason). A drain never returns to an earlier means.
type RemovalMeans string

// The means, in the order in which a drain uses them.
const (
	MeansEvict RemovalMeans = "Evict" // the Eviction API, which respects disruption budgets
	// deletes pods with their own grace period, in the same order as Evict; used if the cluster cannot evict
	MeansDeleteInOrder RemovalMeans = "DeleteInOrder"
	MeansDelete        RemovalMeans = "Delete" // deletes all pods at once, with their own grace period
	MeansKill          RemovalMeans = "Kill"   // deletes all pods at once, with a grace period of zero
)

// KeepsPodOrder reports whether a means removes pods in order and respects do-not-disrupt. After the drain's deadline,
// order and do-not-disrupt have no effect.
func (m RemovalMeans) KeepsPodOrder() bool { return m == MeansEvict || m == MeansDeleteInOrder }

// Facts holds the facts about a node's pods at one moment.
type Facts struct {
	Pods         []Pod // pods on the node, in any order
	Budgets      []DisruptionBudget
	Volumes      map[string]VolumeState // by name of the persistent volume; a volume without an entry is attached to no node
	DepartedPods []DepartedPod          // pods that have left the node, in any order; see NewDepartedPod
	GonePodCount int                    // number of pods that left the node in this drain; only for Overview
	Means        RemovalMeans           // present means of the drain; empty: Evict
	Settings     Settings
	Now          time.Time
}

// Settings are options that the operator sets.
type Settings struct {
	// Parallel lets pods with volumes be removed at the same time if they share no StatefulSet, budget or volume.
	// Without Parallel, pods with volumes are removed one at a time.
	Parallel bool
	// Attach is how long a lane waits until a pod's volumes are attached to another node. Zero means no wait for the
	// attachment.
	Attach time.Duration
	// Detach is how long a lane waits, after a pod left, until the pod's volumes are detached. Zero means no wait for
	// the detachment. If Detach is zero and a volume is still attached to the node, the lane does not wait for Attach
	// either.
	Detach time.Duration
}

// Decision holds the requests to send now, and the facts to display.
type Decision struct {
	Act []Action // requests to send now, all at the same time
	// departed pods that a lane still waits for, oldest first, at most maxDepartedPodsBytes bytes of JSON; the caller
	// copies them to Departed of the next Facts
	Departed []DepartedPod
	Done     bool      // no pod is left to remove, and no lane waits for a volume
	Look     time.Time // when to call Decide again if nothing changes before; zero: never
	Blockers []Blocker // at most MaxBlockers, sorted by kind and name
	Picture  Overview
}

// Action is one request to the API server.
type Action struct {
	UID   string // UID of the pod, as the precondition of the request
	Means RemovalMeans
	// keys of the budgets whose status does not allow this eviction, if the request is a probe; nil: no probe
	Probe []string
}

// Blocker is a reason why pods stay on the node.
type Blocker struct {
	Kind string // kind of the blocker, one of the constants BlockedBy...
	Name string // namespace/name of the budgets, or name of the volume; empty for the other kinds
	// number of pods that the blocker keeps on the node; zero: no pod is left, and the drain waits for a volume
	Pods int
	Why  string // one sentence that explains the blocker
	Bad  bool   // the blocker stays until a person changes something

	Until time.Time // end of the wait for a volume; zero for the other kinds
}

// The kinds of blockers of a drain.
const (
	BlockedByBudget     = "PodDisruptionBudget"
	BlockedByProtection = "DoNotDisrupt"
	BlockedByCompletion = "WaitCompleted" // the drain waits until the pod completes
	// a volume of a departed pod is still attached to this node, or not attached to another node yet
	BlockedByVolume      = "Volume"
	BlockedByTermination = "Terminating" // the pod's grace period ended more than a minute ago
	// the pod's namespace is being deleted, and the namespace controller deletes the pod
	BlockedByNamespace = "Namespace"
	BlockedByError     = "Error" // the request failed
)

// Overview shows the state of a drain: the counts of all pods, and at most MaxOverviewRows rows, sorted by state and
// deletion time.
type Overview struct {
	Counts PodCounts
	Rows   []PodRow
	Why    string // what the drain waits for, in one sentence
}

// MaxOverviewRows is the largest number of rows in an Overview (source: ADR 0013).
const MaxOverviewRows = 20

// PodCounts holds the number of pods that left the node, and the numbers of pods on the node by state. Each pod is in
// exactly one of the counts.
type PodCounts struct {
	Gone        int // pods that left the node in this drain
	Terminating int // pods that are being deleted, or for which a request was sent
	Blocked     int // pods that a Blocker keeps on the node
	Waiting     int // pods that wait for pods of a lower order, or for another pod of the same lane
	Skipped     int // pods that stay: mirror pods, pods of DaemonSets, pods that opted out
}

// PodRow is the row of one pod in an Overview.
type PodRow struct {
	Pod       string    // namespace/name of the pod
	State     string    // state of the pod: one of the constants below
	Since     time.Time // since when the pod has this state; zero: not known
	Attempts  int
	BlockedBy string    // name of the blocker, or the blocker's kind if the blocker has no name; empty: no blocker
	Budgets   []string  // sorted keys of the disruption budgets that block the pod
	Bad       bool      // the pod stays blocked until a person changes something
	Next      time.Time // time of the next attempt, or end of the wait; zero: not determined by time
}

// The states of a row in an Overview.
const (
	StateBlocked     = "Blocked"
	StateTerminating = "Terminating"
	StateEvicting    = "Evicting"  // a request was sent, and the pod has no deletion timestamp yet
	StateDetaching   = "Detaching" // the pod left the node, and its volumes are still attached to the node
	StateAttaching   = "Attaching" // the pod left the node, and its volumes are not attached to another node yet
	StateWaiting     = "Waiting"
)
