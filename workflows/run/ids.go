package run

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
)

// Kind is the type of a workflow. Each workflow ID contains the kind.
type Kind string

// The kinds. Each workflow is registered under the name of its kind.
const (
	KindMachine              Kind = "Machine"
	KindMachineSet           Kind = "MachineSet"
	KindMachineDeployment    Kind = "MachineDeployment"
	KindClusterAPISet        Kind = "ClusterAPISet"        // a MachineSet of Cluster API
	KindClusterAPIDeployment Kind = "ClusterAPIDeployment" // a MachineDeployment of Cluster API
	KindMachineClass         Kind = "MachineClass"
	KindDrain                Kind = "Drain"             // the ID has the machine's name
	KindClusterAPIDrain      Kind = "ClusterAPIDrain"   // drain of a Cluster API Machine, with its name
	KindRollout              Kind = "Rollout"           // the ID has the deployment's name and revision
	KindClusterAPIRollout    Kind = "ClusterAPIRollout" // like Rollout, for Cluster API
	// OrphanCollection has the name of its class in its ID. A Temporal schedule starts it and appends the time to the
	// ID.
	KindOrphanCollection Kind = "OrphanCollection"
	KindProviderCheck    Kind = "ProviderCheck" // its ID has the name of the class; a person starts it
	// Each installation has exactly one workflow of this kind. The workflow's memo names the control cluster that uses
	// the installation's name.
	KindInstallation Kind = "Installation"
)

// The names of the task queues. Each provider also has its own task queue: Shard.ProviderTaskQueue.
const (
	// task queue for workflows, decisions, status writes and small numbers of other writes
	QueueMachines   = "machines"
	QueueKubernetes = "kubernetes" // queue for writes of many objects
	// task queue for evictions and for waits for volumes, which are long and must not delay other activities
	QueueDrains = "drains"
)

// Installation is the name of one Millwright installation (flag --cluster-name). The installation name is the prefix of
// the names of the task queues and of the IDs of the workflows and schedules. Therefore installations that share a
// Temporal namespace never get each other's tasks. Installation is empty only in unit tests and in histories recorded
// before this name existed.
type Installation string

// maxInstallationNameLength is the maximum length of an installation's name. A workflow ID also contains other names
// and a UID.
const maxInstallationNameLength = 63

// Check returns the reason why the installation's name is invalid, or nil.
func (i Installation) Check() error {
	allowed := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
	}
	switch {
	case i == "":
		return errors.New(
			"it is empty, and there is no default: installations with the same name would take each other's work",
		)
	case len(i) > maxInstallationNameLength:
		return fmt.Errorf("it has %d characters, and at most %d are possible", len(i), maxInstallationNameLength)
	case strings.ContainsFunc(string(i), func(r rune) bool { return !allowed(r) }):
		return fmt.Errorf("%q has other characters than letters, digits, '-', '_' and '.'", string(i))
	}
	return nil
}

// idSeparator follows the installation name in the name of a task queue or in an ID.
const idSeparator = "/"

// Shard returns a shard of the installation.
func (i Installation) Shard(number int) Shard { return Shard{Installation: i, Number: number} }

// Shard is a part of an installation: namespaces whose workflows and activities have their own task queues. Shard 0
// exists in each installation, and its task queues have no number in their names.
type Shard struct {
	Installation Installation
	Number       int
}

// TaskQueue returns the full name of a task queue of the shard.
func (s Shard) TaskQueue(name string) string {
	if s.Number == 0 {
		return s.Installation.idPrefix() + name
	}
	return s.Installation.idPrefix() + strconv.Itoa(s.Number) + idSeparator + name
}

// ProviderTaskQueue returns the name of the shard's task queue for a provider's activities.
func (s Shard) ProviderTaskQueue(name string) string { return s.TaskQueue("provider-" + name) }

// OrphanCollectionIDPrefix returns the common prefix of the IDs of all orphan collections and their schedules.
func (i Installation) OrphanCollectionIDPrefix() string {
	return i.idPrefix() + KindOrphanCollection.idSegment() + "/"
}

func (i Installation) idPrefix() string {
	if i == "" {
		return ""
	}
	return string(i) + idSeparator
}

// ParseID returns the kind, namespace, name and UID in an ID of this installation. If the name is long, the ID may
// contain only its start. ours is false if the ID belongs to another installation, or if it is not the ID of an object.
func (i Installation) ParseID(id string) (kind Kind, ref kube.Ref, ours bool) {
	rest, ours := strings.CutPrefix(id, i.idPrefix())
	parts := strings.Split(rest, idSeparator)
	k := slices.IndexFunc(allKinds(), func(k Kind) bool { return k.idSegment() == parts[0] })
	if !ours || k < 0 || len(parts) < 4 {
		return "", kube.Ref{}, false
	}
	return allKinds()[k], kube.Ref{Namespace: parts[1], Name: parts[2], UID: parts[3]}, true
}

// ReservationWorkflowID returns the ID of the workflow that reserves the installation's name.
func (i Installation) ReservationWorkflowID() string {
	return i.idPrefix() + KindInstallation.idSegment()
}

// InstallationOfWorkflow returns the installation of a workflow, from the name of the workflow's task queue.
func InstallationOfWorkflow(ctx workflow.Context) Installation {
	return shardOfWorkflow(ctx).Installation
}

// shardOfWorkflow returns the shard of a workflow, from the name of the workflow's task queue. Activities and child
// workflows use the task queues of the same shard, even if the namespace has been moved to another shard since.
func shardOfWorkflow(ctx workflow.Context) Shard {
	parts := strings.Split(workflow.GetInfo(ctx).TaskQueueName, idSeparator)
	switch len(parts) {
	case 1: // only in unit tests and in old histories
		return Shard{}
	case 2:
		return Shard{Installation: Installation(parts[0])}
	default:
		number, _ := strconv.Atoi(parts[1]) // TaskQueue made the name
		return Shard{Installation: Installation(parts[0]), Number: number}
	}
}

// InstallationInID returns the installation name in a workflow ID, or "" if the ID has no installation name.
func InstallationInID(workflowID string) Installation {
	parts := strings.SplitN(workflowID, idSeparator, 3)
	if len(parts) < 3 || !slices.ContainsFunc(allKinds(), func(k Kind) bool { return k.idSegment() == parts[1] }) {
		return ""
	}
	return Installation(parts[0])
}

// TemporalNamespace is the Temporal namespace of Millwright.
const TemporalNamespace = "millwright"

// SignalChanged is the only signal of the bridge. The signal tells a workflow that something about its object has
// changed, so the workflow decides again. A deployment's workflow also forwards the signal to its open rollout. When
// the rollout ends, the rollout sends the signal to the deployment's workflow.
const SignalChanged = "changed"

// ChangeSignal is the content of SignalChanged: facts about the change, and the resource versions to read, but no
// command. Fields may be added. Fields must not be renamed or retyped.
type ChangeSignal struct {
	UID        string
	Generation int64
	Versions   kube.MinVersions // resource versions that the caches must have reached
	Deleting   bool
	// Tell is the ID of a workflow that the rollout must signal when the rollout ends. Only signals to a rollout have
	// this field. Empty: no change.
	Tell  string
	Ended string // for a deployment: ID of the rollout that has ended; may be empty
	// Shard is the number of the shard of the object's namespace. A run that continues as new uses the task queues of
	// this shard. Nil: the sender does not know the shard.
	Shard *int `json:",omitempty"`

	undecryptable bool // the content could not be decrypted
}

// MarkUndecryptable replaces the content of a signal that cannot be decrypted. The new content only means that
// something has changed.
func (c *ChangeSignal) MarkUndecryptable(string) { *c = ChangeSignal{undecryptable: true} }

// maxIDLength is the maximum length of a workflow ID whose name is not cut. Temporal's SQL stores allow 255 characters.
// A longer ID must also have space for the namespace and the UID.
const maxIDLength = 200

func allKinds() []Kind {
	return []Kind{
		KindMachine,
		KindMachineSet,
		KindMachineDeployment,
		KindMachineClass,
		KindDrain,
		KindRollout,
		KindOrphanCollection,
		KindInstallation,
		KindClusterAPISet,
		KindClusterAPIDrain,
		KindClusterAPIDeployment,
		KindClusterAPIRollout,
	}
}

// idSegment returns the part of a workflow ID that names the kind.
func (k Kind) idSegment() string {
	if k == KindOrphanCollection {
		return "orphans"
	}
	return strings.ToLower(string(k))
}

// ID returns the workflow ID of an object: installation/kind/namespace/name/uid, and /revision for a rollout. If the ID
// is longer than maxIDLength, ID cuts the name and appends a hash of the full ID. All workflow IDs must be made with
// this function.
func (i Installation) ID(kind Kind, ref kube.Ref, revision ...int64) string {
	end := "/" + ref.UID
	for _, n := range revision {
		end += "/" + strconv.FormatInt(n, 10)
	}
	id := func(name string) string {
		return i.idPrefix() + kind.idSegment() + "/" + ref.Namespace + "/" + name + end
	}
	whole := id(ref.Name)
	if len(whole) <= maxIDLength {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	hash := hex.EncodeToString(sum[:8])
	keep := max(len(ref.Name)-(len(whole)-maxIDLength)-len(hash)-1, 0)
	return id(ref.Name[:keep] + "~" + hash)
}
