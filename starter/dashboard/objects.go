package dashboard

import (
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	capiset "millwright/observe/capi/set"
	"millwright/observe/target"
	"millwright/starter/explain"
)

// objectID names an object. Kind is the kind as millwright top prints it, such as mcd or
// machinedeployment.cluster.x-k8s.io, so KIND/NAMESPACE/NAME is an argument of the other commands.
type objectID struct{ Kind, Namespace, Name string }

// Key returns namespace/name.
func (o objectID) Key() string { return o.Namespace + "/" + o.Name }

// String returns KIND/NAMESPACE/NAME.
func (o objectID) String() string { return o.Kind + "/" + o.Key() }

func (o objectID) namespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// Kinds of Millwright's own API group, by their short names, and the kind of a pool that has no object.
const (
	kindDeployment = "mcd"
	kindSet        = "mcs"
	kindMachine    = "mc"
	kindLoose      = "machines" // the machines of a namespace that no set controls
)

// deploymentFacts are the facts about a MachineDeployment of either API group that pages show.
type deploymentFacts struct {
	id         objectID
	version    string // resource version
	uid        types.UID
	cluster    string // name of the Cluster of Cluster API; empty for Millwright's own kinds
	desired    int
	revision   int64 // 0: not known
	rollout    *v1alpha1.RolloutStatus
	operation  *v1alpha1.Operation
	isDeleting bool
}

// setFacts are the facts about a MachineSet of either API group that pages show.
type setFacts struct {
	id         objectID
	version    string // resource version
	uid        types.UID
	owner      types.UID // UID of its deployment; empty without one
	cluster    string
	desired    int
	revision   int64
	operation  *v1alpha1.Operation
	isDeleting bool
	isForeign  bool // Cluster API reconciles the set itself, so it and its machines are not shown
}

// machineFacts are the facts about a Machine of either API group that pages show.
type machineFacts struct {
	id            objectID
	version       string    // resource version
	owner         types.UID // UID of its set; empty without one
	setName       string
	cluster       string
	phase         string
	phaseSince    time.Time
	node          string
	class         string // its class; of a Machine of Cluster API its infrastructure object
	providerID    string
	lastOperation string
	operation     *v1alpha1.Operation // of a Machine of Cluster API nil: see operationAt
	clusterAPI    *clusterv1.Machine  // what operationAt needs; nil for a Machine of Millwright
	created       time.Time
	isReady       bool
	isFailed      bool
	isDeleting    bool
	isDrained     bool // Millwright deletes it or empties its node: the command drain explain has more
}

// operationAt returns the current operation of a machine; nil if the machine waits for nothing. Cluster API's status has
// no such field: there the operation follows from the conditions and the time.
func (m *machineFacts) operationAt(now time.Time) *v1alpha1.Operation {
	if m.clusterAPI == nil {
		return m.operation
	}
	return capiset.MachineOperation(m.clusterAPI, now)
}

// snapshot is everything that the pages show, read at one moment.
type snapshot struct {
	deployments []*deploymentFacts
	sets        []*setFacts
	machines    []*machineFacts
	processes   []explain.Heartbeat
	targets     map[string]target.Report // state of the target cluster of a namespace
	unserved    map[string]string        // why nobody serves a namespace
	readErrors  []string                 // lines that say what cannot be read, and why
	isLoading   bool                     // a first list is not complete yet
	context     string                   // context of the kubeconfig; empty if not known
	namespace   string                   // namespace that is shown; empty: all namespaces
	now         time.Time
}

// cached is what a cache keeps of one object: its name and version, and the facts that pages show. Ten thousand whole
// machines would need ten times as much memory.
type cached[T any] struct {
	metav1.ObjectMeta

	facts T
}

func newCached[T any](o metav1.Object, facts T) *cached[T] {
	return &cached[T]{metav1.ObjectMeta{
		Namespace:       sharedText(o.GetNamespace()),
		Name:            o.GetName(),
		UID:             o.GetUID(),
		ResourceVersion: o.GetResourceVersion(),
	}, facts}
}

// sharedText returns a text that shares its memory with equal texts: most machines have the namespace, the set and the
// cause of others.
func sharedText(text string) string { return unique.Make(text).Value() }

// sharedOperation returns an operation whose texts share their memory.
func sharedOperation(o *v1alpha1.Operation) *v1alpha1.Operation {
	if o == nil {
		return nil
	}
	short := *o
	short.Cause, short.WaitsFor, short.Step = sharedText(o.Cause), sharedText(o.WaitsFor), sharedText(o.Step)
	return &short
}

func controllerOf(o metav1.Object) (uid types.UID, name string) {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return types.UID(sharedText(string(ref.UID))), sharedText(ref.Name)
	}
	return "", ""
}
