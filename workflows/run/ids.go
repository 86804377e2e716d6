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
	// Each installation has one Installation workflow. The workflow's memo names the control cluster that uses the
	// installation's name.
	KindInstallation Kind = "Installation"
)

// The names of the task queues. Each provider also has its own task queue: Installation.ProviderTaskQueue.
const (
	QueueMachines   = "machines"   // queue for workflows, decisions, status, a few writes
	QueueKubernetes = "kubernetes" // queue for writes of many objects
	QueueDrains     = "drains"     // evictions and waits for volumes; their long waits must not delay other activities
)

// Installation is the name of one Millwright (flag --cluster-name). The names of its task queues, and the IDs of its
// workflows and schedules, begin with it, so installations that share a Temporal namespace never process each other's
// tasks. Installation is empty only in unit tests and in histories recorded before this name existed.
type Installation string

// maxInstallationLength is the maximum length of an installation's name. A workflow ID also contains other names and
// a UID.
const maxInstallationLength = 63

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
	case len(i) > maxInstallationLength:
		return fmt.Errorf("it has %d characters, and at most %d are possible", len(i), maxInstallationLength)
	case strings.ContainsFunc(string(i), func(r rune) bool { return !allowed(r) }):
		return fmt.Errorf("%q has other characters than letters, digits, '-', '_' and '.'", string(i))
	}
	return nil
}

// idSeparator stands after the installation's name in a queue name or an ID.
const idSeparator = "/"

// TaskQueue returns the full name of the task queue: the installation's name and the given name.
func (i Installation) TaskQueue(name string) string { return i.idPrefix() + name }

// ProviderTaskQueue returns the name of the task queue for a provider's activities.
func (i Installation) ProviderTaskQueue(name string) string { return i.TaskQueue("provider-" + name) }

// OrphanIDPrefix returns the common prefix of the IDs of all orphan collections and their schedules.
func (i Installation) OrphanIDPrefix() string {
	return i.idPrefix() + KindOrphanCollection.idSegment() + "/"
}

func (i Installation) idPrefix() string {
	if i == "" {
		return ""
	}
	return string(i) + idSeparator
}

// ParseID splits an ID of this installation into kind, namespace, name and UID. A long name may be shortened in the
// ID. ours is false if the ID belongs to another installation or is no object's ID.
func (i Installation) ParseID(id string) (kind Kind, ref kube.Ref, ours bool) {
	rest, ours := strings.CutPrefix(id, i.idPrefix())
	parts := strings.Split(rest, idSeparator)
	k := slices.IndexFunc(allKinds(), func(k Kind) bool { return k.idSegment() == parts[0] })
	if !ours || k < 0 || len(parts) < 4 {
		return "", kube.Ref{}, false
	}
	return allKinds()[k], kube.Ref{Namespace: parts[1], Name: parts[2], UID: parts[3]}, true
}

// InstallationMarkID returns the ID of the workflow that reserves the installation's name.
func (i Installation) InstallationMarkID() string { return i.idPrefix() + KindInstallation.idSegment() }

// InstallationOfWorkflow returns the installation of a workflow, from the name of the workflow's task queue.
func InstallationOfWorkflow(ctx workflow.Context) Installation {
	name, _, found := strings.Cut(workflow.GetInfo(ctx).TaskQueueName, idSeparator)
	if !found {
		return ""
	}
	return Installation(name)
}

// InstallationInID returns the installation in a workflow ID, or "" if the ID contains none.
func InstallationInID(workflowID string) Installation {
	parts := strings.SplitN(workflowID, idSeparator, 3)
	if len(parts) < 3 || !slices.ContainsFunc(allKinds(), func(k Kind) bool { return k.idSegment() == parts[1] }) {
		return ""
	}
	return Installation(parts[0])
}

// Namespace is the Temporal namespace of Millwright.
const Namespace = "millwright"

// SignalChanged is the only signal of the bridge. SignalChanged says that something about the object changed, and the
// workflow decides again. A deployment forwards SignalChanged to its open rollout, and the rollout reports its own end
// with it.
const SignalChanged = "changed"

// ChangeSignal is the content of SignalChanged: the event, and the resource versions to read, but no command. Fields
// may be added. Fields must not be renamed or retyped.
type ChangeSignal struct {
	UID        string
	Generation int64
	Versions   kube.MinVersions // resource versions that the caches must have reached
	Deleting   bool
	// Tell is for a rollout: the ID of a workflow to signal when the rollout ends. Empty: no change.
	Tell  string
	Ended string // for a deployment: the rollout that has ended; empty: none

	undecryptable bool // the content could not be decrypted
}

// MarkUndecryptable replaces a signal that cannot be decrypted: the result only says that something has changed.
func (c *ChangeSignal) MarkUndecryptable(string) { *c = ChangeSignal{undecryptable: true} }

// maxIDLength is the maximum length of a workflow ID whose name is not cut. Temporal's SQL stores keep 255
// characters; the namespace and the UID must fit as well.
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

// ID returns the workflow ID of an object: installation/kind/namespace/name/uid, and /revision for a rollout. If the
// ID is longer than maxIDLength, ID cuts the name and appends a hash of the full ID. No other function makes workflow
// IDs.
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
