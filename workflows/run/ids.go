package run

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"millwright/activities/kube"
)

// Kind is the type of a workflow and the first part of its ID.
type Kind string

// The kinds. The name of a kind is the name under which its workflow is registered.
const (
	KindMachine           Kind = "Machine"
	KindMachineSet        Kind = "MachineSet"
	KindMachineDeployment Kind = "MachineDeployment"
	KindMachineClass      Kind = "MachineClass"
	KindDrain             Kind = "Drain"            // named after its machine
	KindRollout           Kind = "Rollout"          // named after its deployment and the revision
	KindOrphanCollection  Kind = "OrphanCollection" // named after its class; a schedule with that ID starts it and appends the time
)

// The task queues. Each provider also has its own: ProviderQueue.
const (
	QueueMachines   = "machines"   // workflows, decisions, status, a few writes
	QueueKubernetes = "kubernetes" // writes of many objects
	QueueDrains     = "drains"     // evictions and waits for volumes: long waits must not delay other activities
)

// Namespace is Temporal's namespace for Millwright.
const Namespace = "millwright"

// SignalChanged is the bridge's only signal: something about the object changed, decide again. A deployment whose rollout is
// open forwards the signal to the rollout, and the rollout sends it to report its end.
const SignalChanged = "changed"

// Changed is the content of SignalChanged. It says what happened and which versions to read, never what to do. Fields may be
// added, never renamed or retyped.
type Changed struct {
	UID        string
	Generation int64
	Versions   kube.MinVersions // resource versions that the caches must have reached
	Deleting   bool
	Tell       string // to a rollout: ID of a workflow that did not start it and must be signaled at its end; empty: no change
	Ended      string // to a deployment: the rollout that has ended; empty: none
}

// ProviderQueue returns the task queue of a provider's activities.
func ProviderQueue(provider string) string { return "provider-" + provider }

// maxID is the longest workflow ID that is used unchanged. SQL stores of Temporal keep 255 characters, which must also hold the
// namespace and the UID.
const maxID = 200

// OrphanIDs is the prefix of the IDs of all orphan collections and of their schedules.
const OrphanIDs = "orphans/"

// prefix is the first part of the IDs of a kind.
func (k Kind) prefix() string {
	if k == KindOrphanCollection {
		return strings.TrimSuffix(OrphanIDs, "/")
	}
	return strings.ToLower(string(k))
}

// ID returns the workflow ID of an object: kind/namespace/name/uid, and for a rollout also /revision. If the ID would be too
// long, the name is cut and a hash of the whole ID is appended to it. No other function makes workflow IDs.
func ID(kind Kind, ref kube.Ref, revision ...int64) string {
	end := "/" + ref.UID
	for _, n := range revision {
		end += "/" + strconv.FormatInt(n, 10)
	}
	id := func(name string) string {
		return kind.prefix() + "/" + ref.Namespace + "/" + name + end
	}
	whole := id(ref.Name)
	if len(whole) <= maxID {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	hash := hex.EncodeToString(sum[:8])
	keep := max(len(ref.Name)-(len(whole)-maxID)-len(hash)-1, 0)
	return id(ref.Name[:keep] + "~" + hash)
}
