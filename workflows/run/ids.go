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

// Kind is the type of a workflow and a part of its ID.
type Kind string

// The kinds. The name of a kind is the name under which its workflow is registered.
const (
	KindMachine              Kind = "Machine"
	KindMachineSet           Kind = "MachineSet"
	KindMachineDeployment    Kind = "MachineDeployment"
	KindClusterAPISet        Kind = "ClusterAPISet"        // a MachineSet of Cluster API
	KindClusterAPIDeployment Kind = "ClusterAPIDeployment" // a MachineDeployment of Cluster API
	KindMachineClass         Kind = "MachineClass"
	KindDrain                Kind = "Drain"             // named after its machine
	KindClusterAPIDrain      Kind = "ClusterAPIDrain"   // of a Machine of Cluster API, and named after it
	KindRollout              Kind = "Rollout"           // named after its deployment and the revision
	KindClusterAPIRollout    Kind = "ClusterAPIRollout" // the same for a deployment of Cluster API
	// named after its class; a schedule with that ID starts it and appends the time
	KindOrphanCollection Kind = "OrphanCollection"
	KindProviderCheck    Kind = "ProviderCheck" // named after its class; started by a person
	// one for each installation; its memo says which control cluster has the name
	KindInstallation Kind = "Installation"
)

// The names of the task queues. Each provider also has its own: Installation.ProviderQueue.
const (
	QueueMachines   = "machines"   // workflows, decisions, status, a few writes
	QueueKubernetes = "kubernetes" // writes of many objects
	QueueDrains     = "drains"     // evictions and waits for volumes: long waits must not delay other activities
)

// Installation is the name of one Millwright, from --cluster-name. It is the first part of its task queues, of the IDs
// of its workflows and of the IDs of its schedules, so that installations that share a Temporal namespace never take
// each other's work. Empty only in unit tests and in histories from before the name was added.
type Installation string

// maxInstallation is the longest name of an installation: a workflow ID also has names and a UID.
const maxInstallation = 63

// Check returns why the name cannot be used; nil if it can.
func (i Installation) Check() error {
	allowed := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
	}
	switch {
	case i == "":
		return errors.New(
			"it is empty, and there is no default: installations with the same name would take each other's work",
		)
	case len(i) > maxInstallation:
		return fmt.Errorf("it has %d characters, and at most %d are possible", len(i), maxInstallation)
	case strings.ContainsFunc(string(i), func(r rune) bool { return !allowed(r) }):
		return fmt.Errorf("%q has other characters than letters, digits, '-', '_' and '.'", string(i))
	}
	return nil
}

// separator is between the name of the installation and the rest of a queue's name or of an ID.
const separator = "/"

// Queue returns the task queue of that name.
func (i Installation) Queue(name string) string { return i.prefix() + name }

// ProviderQueue returns the task queue of a provider's activities.
func (i Installation) ProviderQueue(name string) string { return i.Queue("provider-" + name) }

// OrphanIDs returns the prefix of the IDs of all orphan collections and of their schedules.
func (i Installation) OrphanIDs() string { return i.prefix() + KindOrphanCollection.prefix() + "/" }

func (i Installation) prefix() string {
	if i == "" {
		return ""
	}
	return string(i) + separator
}

// ParseID returns kind, namespace, name and UID in an ID of this installation. The name may be shortened. ours is false
// for any other ID.
func (i Installation) ParseID(id string) (kind Kind, ref kube.Ref, ours bool) {
	rest, ours := strings.CutPrefix(id, i.prefix())
	parts := strings.Split(rest, separator)
	k := slices.IndexFunc(kinds(), func(k Kind) bool { return k.prefix() == parts[0] })
	if !ours || k < 0 || len(parts) < 4 {
		return "", kube.Ref{}, false
	}
	return kinds()[k], kube.Ref{Namespace: parts[1], Name: parts[2], UID: parts[3]}, true
}

// MarkID returns the ID of the workflow that marks the name as taken.
func (i Installation) MarkID() string { return i.prefix() + KindInstallation.prefix() }

// InstallationOf returns the installation that a workflow belongs to, from the name of its task queue.
func InstallationOf(ctx workflow.Context) Installation {
	name, _, found := strings.Cut(workflow.GetInfo(ctx).TaskQueueName, separator)
	if !found {
		return ""
	}
	return Installation(name)
}

// InstallationIn returns the installation in a workflow ID; empty if the ID has none.
func InstallationIn(workflowID string) Installation {
	parts := strings.SplitN(workflowID, separator, 3)
	if len(parts) < 3 || !slices.ContainsFunc(kinds(), func(k Kind) bool { return k.prefix() == parts[1] }) {
		return ""
	}
	return Installation(parts[0])
}

// Namespace is Temporal's namespace for Millwright.
const Namespace = "millwright"

// SignalChanged is the bridge's only signal: something about the object changed, decide again. A deployment whose
// rollout is open forwards the signal to the rollout, and the rollout sends it to report its end.
const SignalChanged = "changed"

// Changed is the content of SignalChanged. It says what happened and which versions to read, never what to do. Fields
// may be added, never renamed or retyped.
type Changed struct {
	UID        string
	Generation int64
	Versions   kube.MinVersions // resource versions that the caches must have reached
	Deleting   bool
	// to a rollout: ID of a workflow that did not start it and must be signaled at its end; empty: no change
	Tell  string
	Ended string // to a deployment: the rollout that has ended; empty: none

	unread bool // nobody could decrypt it
}

// Unreadable turns a signal that nobody can decrypt into one that only says that something has changed.
func (c *Changed) Unreadable(string) { *c = Changed{unread: true} }

// maxID is the longest workflow ID that is used unchanged. SQL stores of Temporal keep 255 characters, which must also
// hold the namespace and the UID.
const maxID = 200

func kinds() []Kind {
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

// prefix is the part of an ID that names its kind.
func (k Kind) prefix() string {
	if k == KindOrphanCollection {
		return "orphans"
	}
	return strings.ToLower(string(k))
}

// ID returns the workflow ID of an object: installation/kind/namespace/name/uid, and for a rollout also /revision. If
// the ID would be too long, the name is cut and a hash of the whole ID is appended to it. No other function makes
// workflow IDs.
func (i Installation) ID(kind Kind, ref kube.Ref, revision ...int64) string {
	end := "/" + ref.UID
	for _, n := range revision {
		end += "/" + strconv.FormatInt(n, 10)
	}
	id := func(name string) string {
		return i.prefix() + kind.prefix() + "/" + ref.Namespace + "/" + name + end
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
