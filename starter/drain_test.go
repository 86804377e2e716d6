package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
)

var _ temporal = client.Client(nil) // the SDK's client fulfils it

// now is when all tests happen. The drains of machines began a quarter of an hour before.
var (
	now   = time.Date(2026, 11, 21, 14, 6, 7, 0, time.UTC)
	begun = now.Add(-15 * time.Minute)
)

// edit makes one machine differ from others.
type edit func(*v1alpha1.Machine)

// going is machine shop/m-1, of which somebody asked the deletion and nothing is recorded yet.
func going(edits ...edit) *v1alpha1.Machine {
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "m-1", UID: "u-1", ResourceVersion: "7",
			Labels: map[string]string{v1alpha1.LabelNode: "n-1"}, Annotations: map[string]string{},
			DeletionTimestamp: new(metav1.NewTime(begun)), Finalizers: []string{v1alpha1.FinalizerMachine},
		},
		Spec:   v1alpha1.MachineSpec{ProviderID: "virtual:///i-1"},
		Status: v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineTerminating}},
	}
	for _, e := range edits {
		e(m)
	}
	return m
}

func named(namespace, name string) edit {
	return func(m *v1alpha1.Machine) { m.Namespace, m.Name = namespace, name }
}

func at(stage v1alpha1.MachineDeletionStage) edit {
	return func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage, Since: metav1.NewTime(begun)}
	}
}

// by is a drain that uses these means since it began, a quarter of an hour ago.
func by(means string) edit {
	return func(m *v1alpha1.Machine) {
		at(v1alpha1.MachineDeletionDrain)(m)
		m.Status.Deletion.Drain = &v1alpha1.MachineDrain{StartedAt: metav1.NewTime(begun), Means: means, MeansSince: new(metav1.NewTime(begun))}
	}
}

func ended(stage v1alpha1.MachineDeletionStage, result string) edit {
	return func(m *v1alpha1.Machine) {
		by("Evict")(m)
		m.Status.Deletion.Stage, m.Status.Deletion.Drain.Result = stage, result
	}
}

func doing(step, blockedBy string) edit {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentOperation = &v1alpha1.Operation{Step: step, Since: metav1.NewTime(begun), LastError: blockedBy}
	}
}

// until is the deadline of the step in motion, after those that name one.
func until(in time.Duration) edit {
	return func(m *v1alpha1.Machine) { m.Status.CurrentOperation.Deadline = new(metav1.NewTime(now.Add(in))) }
}

func saying(kind corev1.NodeConditionType, reason, message string) edit {
	return func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(begun)})
	}
}

// emptied makes a machine one that is to stay, and whose node is being emptied.
func emptied(purpose v1alpha1.DrainPurpose) edit {
	return func(m *v1alpha1.Machine) {
		m.DeletionTimestamp, m.Finalizers = nil, nil
		occasion := metav1.NewTime(begun.Add(-time.Second))
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning}
		if purpose == v1alpha1.DrainForPreservation {
			m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, PreserveExpiryTime: &occasion}
		}
		m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonSelectedForUpdate, LastTransitionTime: occasion}}
		m.Status.Drain = &v1alpha1.StayingDrain{Purpose: purpose, Occasion: occasion, MachineDrain: v1alpha1.MachineDrain{
			StartedAt: metav1.NewTime(begun), Means: "Evict", MeansSince: new(metav1.NewTime(begun)),
		}}
		doing("evict", "")(m)
	}
}

func wished(annotation, value string) edit {
	return func(m *v1alpha1.Machine) { m.Annotations[annotation] = value }
}

func alive(phase v1alpha1.MachinePhase) edit {
	return func(m *v1alpha1.Machine) { m.DeletionTimestamp, m.Status.CurrentStatus.Phase = nil, phase }
}

// fakeTemporal answers with one open workflow, or with an error.
type fakeTemporal struct {
	id       string // of the workflow that is open; another one is not found
	status   enumspb.WorkflowExecutionStatus
	pending  []*workflowpb.PendingActivityInfo
	err      error
	queried  any // answer to the query
	queryErr error
	closed   bool
}

func (f *fakeTemporal) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	switch {
	case f.err != nil:
		return nil, f.err
	case id != f.id:
		return nil, serviceerror.NewNotFound("workflow not found for ID: " + id)
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: f.status}, PendingActivities: f.pending,
	}, nil
}

func (f *fakeTemporal) QueryWorkflow(_ context.Context, id, _, query string, _ ...any) (converter.EncodedValue, error) {
	if f.queryErr != nil {
		return nil, f.queryErr
	}
	if id != f.id || query != "picture" {
		return nil, errors.New("unexpected query " + query + " of " + id)
	}
	return client.NewValue(encoded(f.queried)), nil
}

func (f *fakeTemporal) Close() { f.closed = true }

func encoded(value any) *commonpb.Payloads {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(value)
	if err != nil {
		panic(err)
	}
	return payloads
}

// world is what the commands of a test reach.
type world struct {
	machines *fake.Clientset
	temporal *fakeTemporal
	in       string
}

func newWorld(machines ...runtime.Object) *world {
	return &world{machines: fake.NewSimpleClientset(machines...), temporal: &fakeTemporal{}}
}

func (w *world) door() door {
	return door{
		machines: func(string) (versioned.Interface, error) { return w.machines, nil },
		temporal: func(temporalFlags) (temporal, error) { return w.temporal, nil },
		now:      func() time.Time { return now },
	}
}

// run runs a drain command as a person would.
func (w *world) run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	c := drainCommand(w.door())
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetIn(strings.NewReader(w.in))
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

func TestMachineIsNamedInTwoWays(t *testing.T) {
	for _, args := range [][]string{{"shop/m-1"}, {"m-1", "-n", "shop"}, {"m-1", "--namespace=shop"}, {"shop/m-1", "-n", "shop"}} {
		out, err := newWorld(going()).run(t.Context(), append([]string{"explain"}, args...)...)
		require.NoError(t, err)
		assert.Contains(t, out, "shop/m-1", args)
	}
	for args, message := range map[string]string{
		"explain m-1":                  "there is no machine default/m-1",
		"explain shop/":                `"shop/" names no machine`,
		"explain a/b/c":                `"a/b/c" names no machine`,
		"explain shop/m-1 -n other":    "shop/m-1 is in namespace shop, but --namespace says other",
		"explain":                      "accepts 1 arg",
		"watch shop/m-1 --interval 0s": "--interval 0s is no pause",
	} {
		_, err := newWorld(going()).run(t.Context(), strings.Fields(args)...)
		assert.ErrorContains(t, err, message, args)
	}
}

func TestDrainIsACommandOfTheStarter(t *testing.T) {
	c, _, err := command().Find([]string{"drain", "extend"})
	require.NoError(t, err)
	assert.Equal(t, "extend", c.Name())
	for _, sub := range c.Parent().Commands() {
		assert.NotEmpty(t, sub.Example, sub.Name())
		for _, flag := range []string{"kubeconfig", "temporal-address", "temporal-namespace", "namespace"} {
			assert.NotNil(t, sub.InheritedFlags().Lookup(flag), "%s --%s", sub.Name(), flag)
		}
	}
}

func TestClockIsUTC(t *testing.T) {
	paris := time.FixedZone("CET", 3600)
	assert.Equal(t, "14:06:07 UTC", clock(now.In(paris), now))
	assert.Equal(t, "2026-11-22 00:00:00 UTC", clock(time.Date(2026, 11, 22, 1, 0, 0, 0, paris), now), "another day is named")
	assert.Equal(t, "15:06:07 UTC (in 60m)", when(now.Add(time.Hour), now))
	assert.Equal(t, "13:51:07 UTC (15m ago)", when(begun, now))
}

func keyed(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
