package activitiestest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/kube"
	"millwright/activities/machine"
	activitiesrequest "millwright/activities/request"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/inplace"
	"millwright/decide/request"
	"millwright/observe/cache"
	observemachine "millwright/observe/machine"
)

const BackupFinalizer = "example.com/backup" // a finalizer of another controller

// WithCreateAttempt records in a machine that a create call was started.
func WithCreateAttempt(m *v1alpha1.Machine) {
	m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
}

// RecordCreateAttempt records in a machine that a create call was started, and drops this write from the recorded
// requests.
func (w *World) RecordCreateAttempt(name string) {
	w.T.Helper()
	m := w.Machine(name).DeepCopy()
	WithCreateAttempt(m)
	_, err := w.MachineClient.MachineV1alpha1().
		Machines(TestNamespace).
		UpdateStatus(w.T.Context(), m, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	w.ForgetRequests()
}

// ReplaceWithOtherMachine replaces a machine by another machine of the same name.
func (w *World) ReplaceWithOtherMachine(name string) {
	w.T.Helper()
	tracker, gvr := w.MachineClient.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("machines")
	require.NoError(w.T, tracker.Delete(gvr, TestNamespace, name))
	other := NewMachine(name)
	other.UID = "uid-of-another"
	require.NoError(w.T, tracker.Create(gvr, other, TestNamespace))
}

// WritesPhaseFailed reports whether a decision sets the machine's phase to Failed.
func WritesPhaseFailed(d machine.Decision) bool {
	return d.Health != nil && d.Health.Change != nil && d.Health.Change.Phase == "Failed"
}

// WithReplacementDue gives a machine the condition ReplacementDue with this reason.
func WithReplacementDue(reason string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.MachineReplacementDue, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: OldTime,
		})
	}
}

func WithReplacementGrant(m *v1alpha1.Machine) {
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReplacementGranted, OldTime.Format(time.RFC3339))
}

// NewMachinesWithGoneAndHealthyNodes returns machines whose node is gone, and machines whose node is healthy.
func NewMachinesWithGoneAndHealthyNodes(gone, well int) []runtime.Object {
	var objects []runtime.Object
	for i := range gone + well {
		m := NewMachine(fmt.Sprintf("x-%d", i), WithPhase(v1alpha1.MachineRunning))
		m.Labels[v1alpha1.LabelNode] = m.Name
		objects = append(objects, m)
		if i >= gone {
			objects = append(objects, NewNode(func(n *corev1.Node) { n.Name = m.Name }))
		}
	}
	return objects
}

// WithUpdateLabels replaces the labels of a node by labels of an in-place update.
func WithUpdateLabels(names ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Labels = map[string]string{}
		for _, name := range names {
			n.Labels[name] = v1alpha1.ValueLowerTrue
		}
	}
}

var (
	WithCandidateLabel = WithUpdateLabels(v1alpha1.LabelCandidateForUpdate)
	WithSelectedLabels = WithUpdateLabels(v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate)
)

func WithUpdateResult(value string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		WithSelectedLabels(n)
		n.Labels[v1alpha1.LabelUpdateResult] = value
		n.Annotations = map[string]string{v1alpha1.AnnotationUpdateFailedReason: "disk full"}
	}
}

func WithCordon(n *corev1.Node) { n.Spec.Unschedulable = true }

// WithUpdateCondition gives a node an old condition with the progress of its update.
func WithUpdateCondition(reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append([]corev1.NodeCondition{{
			Type: v1alpha1.NodeInPlaceUpdate, Status: "True", Reason: reason, Message: "so be it", LastTransitionTime: OldTime,
		}}, n.Status.Conditions...)
	}
}

// FindUpdateCondition returns the condition of a node's in-place update; nil if the node has no such condition.
func FindUpdateCondition(n *corev1.Node) *corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeInPlaceUpdate {
			return &c
		}
	}
	return nil
}

// NodeMinVersions returns the MinVersions that an activity on the node returns, whether or not the activity writes.
func (w *World) NodeMinVersions() kube.MinVersions {
	return kube.MinVersions{cache.NodesResource: w.Node().ResourceVersion}
}

// RunInPlaceStep carries out one decision about the in-place update of the machine m, each activity twice, and returns
// the decision.
func RunInPlaceStep(w *World) inplace.Decision {
	w.T.Helper()
	m := w.Machine("m")
	d := attention.PlanMachine(observemachine.Facts(m, observemachine.RelatedObjects{Node: w.Node()}, time.Time{})).InPlace
	told := machine.InPlaceCondition{Read: NewReadInput(m), Reason: d.Reason, Message: d.Message}
	switch d.Step {
	case inplace.StepNothing:
	case inplace.StepDrain:
		RunActivityTwice[kube.MinVersions](w, (&machine.Activities{Kube: w.Kube}).CordonNode, NewReadInput(m))
		RunActivityTwice[kube.MinVersions](w, (&machine.Activities{Kube: w.Kube}).MarkInPlace, told)
	case inplace.StepSetUpdatingPhase:
		m.Status.CurrentStatus.Phase = v1alpha1.MachineInPlaceUpdating
		w.WriteStatus(m)
	case inplace.StepWriteCondition, inplace.StepStartAgent:
		RunActivityTwice[kube.MinVersions](w, (&machine.Activities{Kube: w.Kube}).MarkInPlace, told)
	}
	return d
}

// AssertInPlaceSteps asserts that the next decisions have exactly these steps.
func (w *World) AssertInPlaceSteps(steps ...inplace.Step) {
	w.T.Helper()
	for _, step := range append(steps, inplace.StepNothing) {
		d := RunInPlaceStep(w)
		require.Equal(w.T, step, d.Step, d.Why)
	}
}

// SetNodeLabel sets a label of the node's update. SetNodeLabel removes the label if value is nil.
func (w *World) SetNodeLabel(key string, value any) {
	w.EditObject(
		cache.NodesResource,
		"n",
		map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}},
	)
}

func (w *World) UpdateConditionReason() string {
	w.T.Helper()
	c := FindUpdateCondition(w.Node())
	require.NotNil(w.T, c)
	return c.Reason
}

func WithProviderID(id string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.ProviderID = id }
}

// WithForeignMetadata gives a node labels, annotations and taints of other controllers.
func WithForeignMetadata(n *corev1.Node) {
	since := metav1.Unix(1_700_000_000, 0)
	n.Labels = map[string]string{"kubernetes.io/os": "linux"}
	n.Annotations = map[string]string{
		"volumes.kubernetes.io/x":     "true",
		v1alpha1.AnnotationNotManaged: v1alpha1.ValueNotManaged,
	}
	n.Finalizers = []string{BackupFinalizer}
	n.Spec.Taints = []corev1.Taint{
		{Key: v1alpha1.TaintPreserved, Effect: v1alpha1.TaintPreservedEffect, TimeAdded: &since},
	}
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")}
}

// SetNodeTemplate gives the machine m another node template.
func (w *World) SetNodeTemplate(template map[string]any) {
	w.EditObject(cache.MachinesResource, "m", map[string]any{"spec": map[string]any{"nodeTemplate": template}})
	w.AwaitCaches()
	w.ForgetRequests()
}

// SyncNode runs the activity SyncNode twice and returns the node afterwards.
func SyncNode(w *World, in kube.ReadInput) *corev1.Node {
	w.T.Helper()
	versions := RunActivityTwice[kube.MinVersions](w, (&machine.Activities{Kube: w.Kube}).SyncNode, in)
	n := w.Node()
	if len(w.MutatingRequests()) > 0 {
		require.NotNil(w.T, n)
		assert.Equal(w.T, kube.MinVersions{cache.NodesResource: n.ResourceVersion}, versions, "the version to wait for")
	} else {
		assert.Empty(w.T, versions)
	}
	return n
}

// PreservationStart is the workflow's time when a preservation begins. PreservationStart is later than the clock of any
// worker, so TimeToRecord returns PreservationStart. PreservationStart and PreservationEnd are local times, like the
// times in an API server's answer.
var (
	PreservationStart = time.Date(2100, 3, 1, 12, 0, 0, 0, time.UTC).Local()
	PreservationEnd   = metav1.NewTime(PreservationStart.Add(v1alpha1.DefaultPreserveTimeout))
)

// UpdateStatusAsWorkflow changes the status of the machine m as its own workflow does.
func (w *World) UpdateStatusAsWorkflow(change func(*v1alpha1.Machine)) {
	w.T.Helper()
	m := w.Machine("m")
	change(m)
	_, err := w.MachineClient.MachineV1alpha1().
		Machines(TestNamespace).
		UpdateStatus(w.T.Context(), m, metav1.UpdateOptions{})
	require.NoError(w.T, err)
}

// WriteKind names a kind of write for which a test can inject errors.
type WriteKind struct {
	Verb, Resource   string
	InControlCluster bool
}

func (w *World) FailWrites(at WriteKind, times int, err error, do func()) {
	if at.InControlCluster {
		FailRequests(w.MachineClient, at.Verb, at.Resource, times, err, do)
		return
	}
	FailRequests(w.TargetClient, at.Verb, at.Resource, times, err, do)
}

func DecideMachine(w *World, in kube.ReadInput) machine.Decision {
	w.T.Helper()
	return RunActivityTwice[machine.Decision](w, (&machine.Activities{Kube: w.Kube}).DecideMachine, in)
}

var OldTime = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// requestTime is the time of all requests of the tests. requestTime differs from every worker's time and is not in
// whole seconds.
var requestTime = time.Date(2100, 3, 1, 12, 0, 0, 500_000_000, time.UTC)

// newApplyRequestInput is the input of ApplyRequest for an object of a kind.
func newApplyRequestInput(kind request.Kind, object metav1.Object, o request.CommandOrder) activitiesrequest.Request {
	o.RequestedAt = requestTime
	return activitiesrequest.Request{Kind: kind, Object: NewRef(object), Order: o}
}

func NewMachineRequest(m *v1alpha1.Machine, o request.CommandOrder) activitiesrequest.Request {
	return newApplyRequestInput(request.KindMachine, m, o)
}
