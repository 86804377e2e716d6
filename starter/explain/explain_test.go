package explain

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/starter/clitest"
)

// newStackObjects returns a deployment with a set, one blocked machine, one machine that is not blocked, and the
// MachineClass.
func newStackObjects() []runtime.Object {
	owned := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{
			{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: kind, Name: name, UID: "uid-" + "x", Controller: new(true)},
		}
	}
	d := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-x", Generation: 3},
	}
	d.Spec.Template.Spec.Class.Name, d.Status.ObservedGeneration = "small", 2
	d.Status.CurrentOperation = &v1alpha1.Operation{
		WaitsFor:  "1 of 2 machines waits for its instance",
		BlockedBy: []string{"ResourceExhausted"},
	}
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "shop",
			Name:            "web-1",
			UID:             "uid-x",
			OwnerReferences: owned("MachineDeployment", "web"),
		},
	}
	set.Spec.Template.Spec.Class.Name = "small"
	machine := func(name string, operation *v1alpha1.Operation) *v1alpha1.Machine {
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       "shop",
				Name:            name,
				UID:             "uid-m",
				OwnerReferences: owned("MachineSet", "web-1"),
			},
		}
		m.Spec.Class.Name, m.Status.CurrentOperation = "small", operation
		return m
	}
	waits := func(by ...string) *v1alpha1.Operation {
		return &v1alpha1.Operation{
			WorkflowID: "garden/machine/shop/web-a/uid-m",
			Step:       "create-instance",
			Since:      metav1.NewTime(clitest.BeginTime),
			Cause:      "no room (since the sale)",
			WaitsFor:   "no room (since …)",
			BlockedBy:  by,
		}
	}
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}, Provider: "aws"}
	alone := machine("alone", nil)
	alone.OwnerReferences, alone.Status.CurrentStatus.Phase = nil, v1alpha1.MachineFailed
	alone.Status.Conditions = []corev1.NodeCondition{{
		Type: v1alpha1.MachineReplacementDue, Status: corev1.ConditionTrue, Message: "node n-1 belongs to another instance",
	}}
	return []runtime.Object{
		d,
		set,
		machine("web-a", waits()),
		machine("web-b", waits("ResourceExhausted")),
		machine("web-c", nil),
		class,
		alone,
	}
}

func TestExplain(t *testing.T) {
	const toDo = "Start what is missing, or look at its log; `millwright doctor` checks the whole installation.\n"
	const table = "\nMACHINE   STATUS   STEP              SINCE   DEADLINE   WAITS FOR\n" +
		"web-b     new      create-instance   15m     -          no room (since the sale)\n" +
		"web-a     new      create-instance   15m     -          the provider has not answered the call create-instance\n"
	for name, row := range map[string]struct {
		args     []string
		temporal func(*clitest.FakeTemporal)
		says     string
	}{
		"a deployment": {
			args: []string{"mcd/web"}, temporal: func(*clitest.FakeTemporal) {},
			says: "The status is of generation 2, and the object has generation 3: nobody has seen the change yet.\n" +
				"machinedeployment shop/web: 1 of 2 machines waits for its instance\n" + table,
		},
		"with its namespace": {
			args: []string{"shop/web"}, temporal: func(*clitest.FakeTemporal) {},
			says: "The status is of generation 2, and the object has generation 3: nobody has seen the change yet.\n" +
				"machinedeployment shop/web: 1 of 2 machines waits for its instance\n" + table,
		},
		"without a kind the deployment comes first": {
			args: []string{"web"}, temporal: func(f *clitest.FakeTemporal) { f.UnpolledQueues = []string{"garden/provider-aws", "garden/machines"} },
			says: "No worker polls queue garden/machines: nothing moves until a worker runs.\n" + toDo +
				"The status is of generation 2, and the object has generation 3: nobody has seen the change yet.\n" +
				"machinedeployment shop/web: 1 of 2 machines waits for its instance\n" +
				"No worker serves provider aws (queue garden/provider-aws): no instance is made or deleted until one runs.\n" + table,
		},
		"a set that waits for nothing itself": {
			args: []string{"MachineSet/web-1"}, temporal: func(*clitest.FakeTemporal) {}, says: "machineset shop/web-1: its status names nothing that it waits for: 0 of 0 machines available\n" + table,
		},
		"a machine whose call has failed": {
			args: []string{"machine/web-b"}, temporal: func(f *clitest.FakeTemporal) {
				f.ID, f.Status = "garden/machine/shop/web-b/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
				f.PendingActivities = []*workflowpb.PendingActivityInfo{{
					ActivityId: "create-instance", Attempt: 3, State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED,
					NextAttemptScheduleTime: timestamppb.New(clitest.Now.Add(time.Minute)), LastFailure: &failurepb.Failure{Message: "no\nroom"},
				}}
			},
			says: "machine shop/web-b: no room (since …)\ncreate-instance: attempt 3 begins at 14:07:07 UTC; the attempt before failed: no room\n",
		},
		"a call that is open": {
			args: []string{"machine/web-b"}, temporal: func(f *clitest.FakeTemporal) {
				f.ID, f.Status = "garden/machine/shop/web-b/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
				f.PendingActivities = []*workflowpb.PendingActivityInfo{
					{ActivityId: "create-instance", Attempt: 1, State: enumspb.PENDING_ACTIVITY_STATE_STARTED, LastStartedTime: timestamppb.New(clitest.BeginTime)},
					{ActivityId: "other", Attempt: 1, State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, ScheduledTime: timestamppb.New(clitest.BeginTime)},
				}
			},
			says: "machine shop/web-b: no room (since …)\ncreate-instance: attempt 1 is open since 13:51:07 UTC (15m)\n" +
				"other: attempt 1 waits for a worker since 13:51:07 UTC (15m)\n",
		},
		"15: Temporal does not answer": {
			args: []string{"machine/web-b", "--temporal-address", "temporal:7233"}, temporal: func(f *clitest.FakeTemporal) { f.Err = errors.New("connection refused") },
			says: "Temporal at temporal:7233 does not answer: nothing moves until it does (ask Temporal for the workers of queue garden/machines: connection refused).\n" + toDo +
				"machine shop/web-b: no room (since …)\n",
		},
		"a class": {args: []string{"mcc/small"}, temporal: func(*clitest.FakeTemporal) {}, says: "machineclass shop/small: its status names nothing that it waits for: provider aws\n"},
		"a failed machine that nobody replaces": {
			args: []string{"mc/alone"}, temporal: func(*clitest.FakeTemporal) {},
			says: "machine shop/alone: its status names nothing that it waits for: phase Failed: node n-1 belongs to another instance; " +
				"no set replaces it: `kubectl delete machine -n shop alone`\n",
		},
		"a machine that is calm": {
			args: []string{"mc/web-c"}, temporal: func(*clitest.FakeTemporal) {}, says: "machine shop/web-c: its status names nothing that it waits for: phase new\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend(newStackObjects()...)
			row.temporal(w.Temporal)
			out, err := w.Run(t.Context(), Command(w.Environment()), append(row.args, "-n", "shop")...)
			require.NoError(t, err)
			assert.Equal(t, row.says, out)
		})
	}
}

// docs/runbook.md, sections 13 and 14: the Leases show that worker and bridge are down.
func TestHeartbeats(t *testing.T) {
	lease := func(namespace, name string, ago time.Duration) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		l.Spec.RenewTime = &metav1.MicroTime{Time: clitest.Now.Add(-ago)}
		return l
	}
	for name, row := range map[string]struct {
		leases []runtime.Object
		says   []string
	}{
		"all at work":    {[]runtime.Object{lease("a", "millwright-worker", time.Second), lease("b", "millwright-worker", time.Hour), lease("a", "millwright-bridge", time.Second)}, nil},
		"13: no worker":  {[]runtime.Object{lease("a", "millwright-worker", 15*time.Minute), lease("a", "millwright-bridge", time.Second)}, []string{"No worker has been at work since 13:51:07 UTC (15m): nothing moves until one reaches Temporal and the API server."}},
		"14: no bridge":  {[]runtime.Object{lease("a", "millwright-worker", time.Second), lease("a", "millwright-bridge", 15*time.Minute)}, []string{"No bridge has been at work since 13:51:07 UTC (15m): nobody sees changes until one is."}},
		"never anything": {nil, []string{"No worker has ever been at work: there is no Lease millwright-worker.", "No bridge has ever been at work: there is no Lease millwright-bridge."}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(
				t,
				row.says,
				HeartbeatLines(t.Context(), kubefake.NewClientset(row.leases...).CoordinationV1(), clitest.Now),
			)
		})
	}
	assert.Empty(t, HeartbeatLines(t.Context(), nil, clitest.Now), "nobody who may read Leases")
}

// docs/runbook.md, sections 13 and 14: lines about processes that are down come before the sentence, which may be
// outdated.
func TestDownProcessesAreNamedFirst(t *testing.T) {
	w := clitest.NewFakeBackend(newStackObjects()...)
	w.ClusterClient = kubefake.NewClientset(
		newLease("millwright-worker", 15*time.Minute),
		newLease("millwright-bridge", 15*time.Minute),
	)
	out, err := w.Run(t.Context(), Command(w.Environment()), "mcc/small", "-n", "shop")
	require.NoError(t, err)
	assert.Equal(
		t,
		"No worker has been at work since 13:51:07 UTC (15m): nothing moves until one reaches Temporal and the API server.\n"+
			"No bridge has been at work since 13:51:07 UTC (15m): nobody sees changes until one is.\n"+
			"Start what is missing, or look at its log; `millwright doctor` checks the whole installation.\n"+
			"machineclass shop/small: its status names nothing that it waits for: provider aws\n",
		out,
	)
}

func TestTop(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"everything": {[]string{"-n", "shop"}, "3 objects in motion, 2 of them blocked\n" +
			"NAMESPACE   OBJECT     STEP              SINCE   DEADLINE   WAITS FOR\n" +
			"shop        mcd/web    -                 -       -          1 of 2 machines waits for its instance\n" +
			"shop        mc/web-b   create-instance   15m     -          no room (since …)\n" +
			"shop        mc/web-a   create-instance   15m     -          no room (since …)\n"},
		"what stands still": {[]string{"-A", "--blocked"}, "2 objects in motion, 2 of them blocked\n" +
			"NAMESPACE   OBJECT     STEP              SINCE   DEADLINE   WAITS FOR\n" +
			"shop        mcd/web    -                 -       -          1 of 2 machines waits for its instance\n" +
			"shop        mc/web-b   create-instance   15m     -          no room (since …)\n"},
		"nothing": {[]string{"-n", "bar"}, "nothing is in motion\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend(newStackObjects()...)
			out, err := w.Run(t.Context(), TopCommand(w.Environment()), row.args...)
			require.NoError(t, err)
			assert.Equal(t, row.says, out)
		})
	}
}

func TestExplainFindsNothing(t *testing.T) {
	w := clitest.NewFakeBackend(newStackObjects()...)
	w.ClusterClient = kubefake.NewClientset()
	for arg, want := range map[string]string{
		"pod/web": `"pod" is no kind, and in no namespace of that name is an object web: give machinedeployment, machineset, machine, machineclass or node`,
		"mcd/no":  "there is no mcd no in namespace shop",
	} {
		_, err := w.Run(t.Context(), Command(w.Environment()), arg, "-n", "shop")
		require.EqualError(t, err, want)
	}
}
