package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"millwright/activities"
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
	KindOrphanCollection  Kind = "OrphanCollection" // named after its class; started by a schedule of that ID, which appends the time
)

// The task queues. Each provider has one of its own besides: ProviderQueue.
const (
	QueueMachines   = "machines"   // workflows, decisions, status, a few writes
	QueueKubernetes = "kubernetes" // writes of many objects
	QueueDrains     = "drains"     // pods that are evicted, volumes that are awaited: what waits must hold up nobody else
)

// Namespace is Temporal's namespace for Millwright.
const Namespace = "millwright"

// SignalChanged is the one signal of the bridge: something about the object changed, look again. A deployment that finds its rollout
// open passes it on, and the rollout tells its end by it.
const SignalChanged = "changed"

// Changed is what SignalChanged carries. It says what happened and up to where to read, never what to do. Fields may be added, never
// renamed or retyped.
type Changed struct {
	UID        string
	Generation int64
	Versions   activities.Gate // resource versions that the caches must have reached
	Deleting   bool
	Tell       string // to a rollout: the workflow that wants to hear of its end, having not started it; empty: no news
	Ended      string // to a deployment: the rollout that has ended; empty: none
}

// ProviderQueue returns the task queue of a provider's activities.
func ProviderQueue(provider string) string { return "provider-" + provider }

// maxID is the longest workflow ID that is used as it is. SQL stores of Temporal keep 255 characters, and the namespace
// and UID need their share.
const maxID = 200

// OrphanIDs is how the ID of every orphan collection begins, and of its schedule.
const OrphanIDs = "orphans/"

// prefix is the first part of the IDs of a kind.
func (k Kind) prefix() string {
	if k == KindOrphanCollection {
		return strings.TrimSuffix(OrphanIDs, "/")
	}
	return strings.ToLower(string(k))
}

// ID returns the workflow ID of an object: kind/namespace/name/uid, and the revision of a rollout behind it. Where that would be
// too long, the name is cut and ends in a hash of the whole. It is the only function that makes IDs.
func ID(kind Kind, ref activities.Ref, revision ...int64) string {
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
