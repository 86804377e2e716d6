package drain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

var now, lastChangeTime = clitest.Now, clitest.LastChangeTime

// machineEdit changes one machine.
type machineEdit func(*v1alpha1.Machine)

// newDeletedMachine returns machine shop/m-1. The deletion of the machine was requested, but the status does not record
// the deletion yet.
func newDeletedMachine(edits ...machineEdit) *v1alpha1.Machine {
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "m-1", UID: "u-1", ResourceVersion: "7",
			Labels: map[string]string{v1alpha1.LabelNode: "n-1"}, Annotations: map[string]string{},
			DeletionTimestamp: new(metav1.NewTime(lastChangeTime)), Finalizers: []string{v1alpha1.FinalizerMachine},
		},
		Spec:   v1alpha1.MachineSpec{ProviderID: "virtual:///i-1"},
		Status: v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineTerminating}},
	}
	for _, e := range edits {
		e(m)
	}
	return m
}

func withName(namespace, name string) machineEdit {
	return func(m *v1alpha1.Machine) { m.Namespace, m.Name = namespace, name }
}

func withStage(stage v1alpha1.MachineDeletionStage) machineEdit {
	return func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage, Since: metav1.NewTime(lastChangeTime)}
	}
}

// withRemovalMeans adds a drain that started 15 minutes ago and has used the given means since then.
func withRemovalMeans(means string) machineEdit {
	return func(m *v1alpha1.Machine) {
		withStage(v1alpha1.MachineDeletionDrain)(m)
		m.Status.Deletion.Drain = &v1alpha1.MachineDrain{
			StartedAt:  metav1.NewTime(lastChangeTime),
			Means:      means,
			MeansSince: new(metav1.NewTime(lastChangeTime)),
		}
	}
}

func withDrainResult(stage v1alpha1.MachineDeletionStage, result string) machineEdit {
	return func(m *v1alpha1.Machine) {
		withRemovalMeans("Evict")(m)
		m.Status.Deletion.Stage, m.Status.Deletion.Drain.Result = stage, result
	}
}

func withStep(step string, blockedBy ...string) machineEdit {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentOperation = &v1alpha1.Operation{
			Step:      step,
			Since:     metav1.NewTime(lastChangeTime),
			BlockedBy: blockedBy,
		}
		if d := m.Status.Deletion; d != nil {
			d.Queued = step == vocabulary.StepQueuedForDrain
		}
	}
}

// withDeadline sets the deadline of the present step. Apply withDeadline after an edit that sets the step.
func withDeadline(in time.Duration) machineEdit {
	return func(m *v1alpha1.Machine) { m.Status.CurrentOperation.Deadline = new(metav1.NewTime(now.Add(in))) }
}

func withCondition(kind corev1.NodeConditionType, reason, message string) machineEdit {
	return func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(
			m.Status.Conditions,
			corev1.NodeCondition{
				Type:               kind,
				Status:             corev1.ConditionFalse,
				Reason:             reason,
				Message:            message,
				LastTransitionTime: metav1.NewTime(lastChangeTime),
			},
		)
	}
}

// withDrainWithoutDeletion cancels the deletion of the machine and adds a drain of its node for this purpose.
func withDrainWithoutDeletion(purpose v1alpha1.DrainPurpose) machineEdit {
	return func(m *v1alpha1.Machine) {
		m.DeletionTimestamp, m.Finalizers = nil, nil
		occasion := metav1.NewTime(lastChangeTime.Add(-time.Second))
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning}
		if purpose == v1alpha1.DrainForPreservation {
			m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, PreserveExpiryTime: &occasion}
		}
		m.Status.Conditions = []corev1.NodeCondition{
			{
				Type:               v1alpha1.NodeInPlaceUpdate,
				Status:             corev1.ConditionTrue,
				Reason:             v1alpha1.ReasonSelectedForUpdate,
				LastTransitionTime: occasion,
			},
		}
		m.Status.Drain = &v1alpha1.StayingDrain{Purpose: purpose, Occasion: occasion, MachineDrain: v1alpha1.MachineDrain{
			StartedAt: metav1.NewTime(lastChangeTime), Means: "Evict", MeansSince: new(metav1.NewTime(lastChangeTime)),
		}}
		withStep(vocabulary.StepEvictPods)(m)
	}
}

func withAnnotation(annotation, value string) machineEdit {
	return func(m *v1alpha1.Machine) { m.Annotations[annotation] = value }
}

func withoutDeletion(phase v1alpha1.MachinePhase) machineEdit {
	return func(m *v1alpha1.Machine) { m.DeletionTimestamp, m.Status.CurrentStatus.Phase = nil, phase }
}

// fakeBackend has the fakes that the commands of a test connect to.
type fakeBackend struct{ *clitest.FakeBackend }

func newFakeBackend(machines ...runtime.Object) *fakeBackend {
	return &fakeBackend{clitest.NewFakeBackend(machines...)}
}

// run runs a drain command.
func (w *fakeBackend) run(ctx context.Context, args ...string) (string, error) {
	return w.Run(ctx, Command(w.Environment()), args...)
}

func TestMachineNameArgumentsAreParsed(t *testing.T) {
	for _, args := range [][]string{{"machine/shop/m-1"}, {"mc/shop/m-1", "-n", "shop"}, {"shop/m-1"}, {"m-1", "-n", "shop"}, {"m-1", "--namespace=shop"}, {"shop/m-1", "-n", "shop"}, {"mc", "m-1", "-n", "shop"}, {"machine", "shop/m-1"}, {"machine/m-1", "-n", "shop"}} {
		out, err := newFakeBackend(newDeletedMachine()).run(t.Context(), append([]string{"explain"}, args...)...)
		require.NoError(t, err)
		assert.Contains(t, out, "shop/m-1", args)
	}
	for args, message := range map[string]string{
		"explain m-1":                  "there is no machine default/m-1",
		"explain shop/":                `"shop/" names no machine`,
		"explain a/b/c":                `unknown kind "a": use mc`,
		"explain mcd/shop/m-1":         `"mcd/shop/m-1" names a machinedeployment, and no machine`,
		"explain shop/m-1 -n other":    "shop/m-1 is in namespace shop, but --namespace says other",
		"explain":                      "accepts between 1 and 2 arg",
		"watch shop/m-1 --interval 0s": "--interval 0s is not positive",
	} {
		_, err := newFakeBackend(newDeletedMachine()).run(t.Context(), strings.Fields(args)...)
		assert.ErrorContains(t, err, message, args)
	}
}

func TestDrainSubcommandsHaveExamplesAndFlags(t *testing.T) {
	c, _, err := Command(kubecli.NewEnvironment()).Find([]string{"extend"})
	require.NoError(t, err)
	assert.Equal(t, "extend", c.Name())
	for _, sub := range c.Parent().Commands() {
		assert.NotEmpty(t, sub.Example, sub.Name())
		for _, flag := range []string{"kubeconfig", "temporal-address", "temporal-namespace", "namespace"} {
			assert.NotNil(t, sub.InheritedFlags().Lookup(flag), "%s --%s", sub.Name(), flag)
		}
	}
}

func newMachineKey(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
