package explain

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/process/problems"
	"millwright/starter/clitest"
	"millwright/workflows/run"
)

// newPoolObjects returns a deployment with a set, one blocked machine, one machine that is not blocked, and the
// MachineClass.
func newPoolObjects() []runtime.Object {
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
			Since:      metav1.NewTime(clitest.LastChangeTime),
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

func TestExplainPrintsTheStateOfObjects(t *testing.T) {
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
			args: []string{"MachineSet/web-1"}, temporal: func(*clitest.FakeTemporal) {}, says: "machineset shop/web-1: 0 of 0 machines available; 2 machines in motion, 1 of them blocked\n" + table,
		},
		"a machine whose call has failed": {
			args: []string{"machine/web-b"}, temporal: func(f *clitest.FakeTemporal) {
				f.WorkflowID, f.Status = "garden/machine/shop/web-b/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
				f.PendingActivities = []*workflowpb.PendingActivityInfo{{
					ActivityId: "create-instance", Attempt: 3, State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED,
					NextAttemptScheduleTime: timestamppb.New(clitest.Now.Add(time.Minute)), LastFailure: &failurepb.Failure{Message: "no\nroom"},
				}}
			},
			says: "machine shop/web-b: no room (since …)\ncreate-instance: attempt 3 begins at 14:07:07 UTC; the attempt before failed: no room\n",
		},
		"a call without a right, whose activity has a number": {
			args: []string{"machine/web-b"}, temporal: func(f *clitest.FakeTemporal) {
				f.WorkflowID, f.Status = "garden/machine/shop/web-b/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
				f.PendingActivities = []*workflowpb.PendingActivityInfo{{
					ActivityId: "20", ActivityType: &commonpb.ActivityType{Name: "DecideMachine"}, Attempt: 8,
					State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, NextAttemptScheduleTime: timestamppb.New(clitest.Now.Add(time.Minute)),
					LastFailure: &failurepb.Failure{Message: `machines is forbidden: User "w" cannot list resource "machines"`},
				}}
			},
			says: "machine shop/web-b: no room (since …)\nDecideMachine: attempt 8 begins at 14:07:07 UTC; the attempt before failed: " +
				`machines is forbidden: User "w" cannot list resource "machines"` +
				": is this user's role bound? `kubectl get clusterrolebindings,rolebindings -A -o wide`\n",
		},
		"a call that is made again because its class has changed": {
			args: []string{"machine/web-b"}, temporal: func(f *clitest.FakeTemporal) {
				f.WorkflowID, f.Status = "garden/machine/shop/web-b/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
				f.PendingActivities = []*workflowpb.PendingActivityInfo{{
					ActivityId: "create-instance", Attempt: 2, State: enumspb.PENDING_ACTIVITY_STATE_STARTED, LastStartedTime: timestamppb.New(clitest.LastChangeTime),
					LastFailure: &failurepb.Failure{
						Message:     "MachineClass small or its Secret has changed, so the call is made again",
						FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kube.FailureTypeCacheBehind}},
					},
				}}
			},
			says: "machine shop/web-b: no room (since …)\ncreate-instance: attempt 2 is open since 13:51:07 UTC (15m); " +
				"the attempt before ended early: MachineClass small or its Secret has changed, so the call is made again\n",
		},
		"KIND NAME, as kubectl takes it": {
			args: []string{"mc", "web-c"}, temporal: func(*clitest.FakeTemporal) {}, says: "machine shop/web-c: phase new; Millwright has written no status yet; the events may say why: `kubectl describe machine -n shop web-c`\n",
		},
		"a call that is open": {
			args: []string{"machine/web-b"}, temporal: func(f *clitest.FakeTemporal) {
				f.WorkflowID, f.Status = "garden/machine/shop/web-b/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
				f.PendingActivities = []*workflowpb.PendingActivityInfo{
					{ActivityId: "create-instance", Attempt: 1, State: enumspb.PENDING_ACTIVITY_STATE_STARTED, LastStartedTime: timestamppb.New(clitest.LastChangeTime)},
					{ActivityId: "other", Attempt: 1, State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, ScheduledTime: timestamppb.New(clitest.LastChangeTime)},
				}
			},
			says: "machine shop/web-b: no room (since …)\ncreate-instance: attempt 1 is open since 13:51:07 UTC (15m)\n" +
				"other: attempt 1 waits for a worker since 13:51:07 UTC (15m)\n",
		},
		"an activity without a name of its own": {
			args: []string{"machine/web-b"}, temporal: func(f *clitest.FakeTemporal) {
				f.WorkflowID, f.Status = "garden/machine/shop/web-b/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
				f.PendingActivities = []*workflowpb.PendingActivityInfo{{
					ActivityId: "20", ActivityType: &commonpb.ActivityType{Name: "DecideMachine"}, Attempt: 8,
					State:                   enumspb.PENDING_ACTIVITY_STATE_SCHEDULED,
					NextAttemptScheduleTime: timestamppb.New(clitest.Now.Add(time.Minute)),
				}}
			},
			says: "machine shop/web-b: no room (since …)\nDecideMachine: attempt 8 begins at 14:07:07 UTC\n",
		},
		"15: Temporal does not answer": {
			args: []string{"machine/web-b", "--temporal-address", "temporal:7233"}, temporal: func(f *clitest.FakeTemporal) { f.Err = errors.New("connection refused") },
			says: "Temporal at temporal:7233 does not answer: nothing moves until it does (ask Temporal for the workers of queue garden/machines: connection refused).\n" + toDo +
				"machine shop/web-b: no room (since …)\n",
		},
		"a class":                            {args: []string{"mcc/small", "--cluster-name", "garden"}, temporal: func(*clitest.FakeTemporal) {}, says: "machineclass shop/small: provider aws, used by 4 machines, served by 1 worker\n"},
		"a class of an unknown installation": {args: []string{"mcc/small"}, temporal: func(*clitest.FakeTemporal) {}, says: "machineclass shop/small: provider aws, used by 4 machines\n"},
		"a class that no worker serves": {
			args:     []string{"mcc/small", "--cluster-name", "garden"},
			temporal: func(f *clitest.FakeTemporal) { f.UnpolledQueues = []string{"garden/provider-aws"} },
			says: "machineclass shop/small: provider aws, used by 4 machines, served by no worker\n" +
				"No worker serves provider aws (queue garden/provider-aws): no instance is made or deleted until one runs.\n",
		},
		"a failed machine that nobody replaces": {
			args: []string{"mc/alone"}, temporal: func(*clitest.FakeTemporal) {},
			says: "machine shop/alone: phase Failed: node n-1 belongs to another instance; " +
				"no set replaces it: `kubectl delete machine -n shop alone`\n",
		},
		"a machine that is calm": {
			args: []string{"mc/web-c"}, temporal: func(*clitest.FakeTemporal) {}, says: "machine shop/web-c: phase new; Millwright has written no status yet; the events may say why: `kubectl describe machine -n shop web-c`\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend(newPoolObjects()...)
			row.temporal(w.Temporal)
			out, err := w.Run(t.Context(), Command(w.Environment()), append(row.args, "-n", "shop")...)
			require.NoError(t, err)
			assert.Equal(t, row.says, out)
		})
	}
}

// docs/runbook.md, sections 13 and 14: the Leases show that worker and bridge are down.
func TestExplainReportsDownProcesses(t *testing.T) {
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
		"never anything": {nil, []string{"No worker has ever been at work: no Lease millwright-worker was ever renewed.", "No bridge has ever been at work: no Lease millwright-bridge was ever renewed."}},
	} {
		t.Run(name, func(t *testing.T) {
			down, troubles := DescribeProcessProblems(
				t.Context(),
				kubefake.NewClientset(row.leases...).CoordinationV1(),
				"prod",
				clitest.Now,
				func(problems.Problem) bool { return true },
			)
			assert.Equal(t, row.says, down)
			assert.Empty(t, troubles)
		})
	}
	down, _ := DescribeProcessProblems(t.Context(), nil, "prod", clitest.Now, nil)
	assert.Empty(t, down, "nobody who may read Leases")
}

// docs/runbook.md, section 17: the worker does not have a permission that it needs for the object.
func TestProblemsOfProcessesAreNamedFirst(t *testing.T) {
	w := clitest.NewFakeBackend(newPoolObjects()...)
	w.ClusterClient = kubefake.NewClientset(
		newLeaseWithProblems(t, problems.Report{Identity: "w-1", Problems: []problems.Problem{
			{
				System:       problems.ControlCluster,
				Resource:     "machinesets.machine.sapcloud.io/status",
				Verb:         "update",
				Kind:         problems.Refused,
				Message:      "User w cannot update",
				FirstFailure: clitest.LastChangeTime,
			},
			{
				System:       problems.TargetCluster,
				Resource:     "nodes",
				Verb:         "watch",
				Kind:         problems.Failing,
				Message:      "etcd is slow",
				FirstFailure: clitest.LastChangeTime,
			},
		}}, problems.Report{Identity: "w-2", Problems: []problems.Problem{
			{
				System:       problems.TargetCluster,
				Resource:     "nodes",
				Verb:         "watch",
				Kind:         problems.Failing,
				Message:      "etcd is slow",
				FirstFailure: clitest.LastChangeTime,
			},
		}}),
		newLease("millwright-bridge", time.Second),
	)
	const nodes = "The worker cannot watch nodes of the target cluster: etcd is slow (since 13:51:07 UTC (15m)): " +
		"look at the API server and its webhooks: kubectl get --raw '/readyz?verbose' (in the target cluster)\n"
	for name, says := range map[string]string{
		"mc/web-c": nodes + "machine shop/web-c: phase new; Millwright has written no status yet; the events may say why: `kubectl describe machine -n shop web-c`\n",
		"mcs/web-1": nodes + "The worker may not update machinesets.machine.sapcloud.io/status: User w cannot update (since 13:51:07 UTC (15m)): " +
			"is each of its roles bound, and of its version? kubectl get clusterrolebindings,rolebindings -A -o wide | grep millwright-worker\nmachineset shop/web-1: 0 of 0 machines available",
		"mcc/small": "machineclass shop/small: provider aws, used by 4 machines\n",
	} {
		out, err := w.Run(t.Context(), Command(w.Environment()), name, "-n", "shop")
		require.NoError(t, err)
		assert.Equal(t, says, out[:min(len(says), len(out))], name)
	}
}

// Resources have the same name in both API groups and in several workload clusters.
func TestObjectsAreAffectedOnlyByRelatedProblems(t *testing.T) {
	object := &metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}}
	both := []run.Kind{run.KindMachineSet, run.KindClusterAPISet}
	for name, row := range map[string]struct {
		problem problems.Problem
		kinds   []run.Kind // kinds of the objects that the problem affects
	}{
		"machines of Millwright":   {problems.Problem{System: problems.ControlCluster, Resource: "machines.machine.sapcloud.io/status"}, both[:1]},
		"machines of Cluster API":  {problems.Problem{System: problems.ControlCluster, Resource: "machines.cluster.x-k8s.io/status"}, both[1:]},
		"the nodes":                {problems.Problem{System: problems.TargetCluster, Resource: "nodes"}, both},
		"Temporal":                 {problems.Problem{System: problems.Temporal, Verb: "DescribeNamespace"}, both},
		"its workload cluster":     {problems.Problem{System: problems.WorkloadClusterSystem("shop", "c1"), Resource: "nodes"}, both[1:]},
		"another workload cluster": {problems.Problem{System: problems.WorkloadClusterSystem("shop", "c2")}, nil},
	} {
		concerned := list.Filter(both, func(kind run.Kind) bool {
			s := subject{workflowKind: kind, object: object}
			return s.isAffectedBy(row.problem)
		})
		assert.ElementsMatch(t, row.kinds, concerned, name)
	}
	s := subject{workflowKind: run.KindClusterAPIDeployment, object: object}
	assert.True(
		t,
		s.isAffectedBy(problems.Problem{System: problems.ControlCluster, Resource: "rolloutpolicies.machine.sapcloud.io"}),
	)
}

// The problems of another installation's workers do not apply to an object of this installation; neither do the
// problems of a worker that has stopped.
func TestProblemsOfOtherInstallationsAreIgnored(t *testing.T) {
	refused := []problems.Problem{
		{System: problems.ControlCluster, Resource: "nodes", Verb: "get", Kind: problems.Refused},
	}
	own := problems.Report{Identity: "w-1", Installation: "prod", Problems: refused}
	all := func(problems.Problem) bool { return true }
	client := kubefake.NewClientset(newLeaseWithProblems(t, own)).CoordinationV1()
	for now, says := range map[time.Time]int{clitest.Now: 1, clitest.Now.Add(3 * time.Minute): 0} {
		for of, isOwn := range map[run.Installation]bool{"prod": true, "": true, "test": false} {
			_, troubles := DescribeProcessProblems(t.Context(), client, of, now, all)
			assert.Len(t, troubles, map[bool]int{true: says}[isOwn], "installation %q at %v", of, now)
		}
	}
}

// newLeaseWithProblems returns the Lease of active workers that have problems.
func newLeaseWithProblems(t *testing.T, reports ...problems.Report) *coordinationv1.Lease {
	t.Helper()
	for i := range reports {
		reports[i].WrittenAt = clitest.Now.Add(-time.Second)
	}
	text, err := json.Marshal(reports)
	require.NoError(t, err)
	lease := newLease("millwright-worker", time.Second)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, "machine.sapcloud.io/problems", string(text))
	return lease
}

// docs/runbook.md, sections 13 and 14: lines about processes that are down come before the sentence, which may be
// outdated.
func TestDownProcessesAreNamedFirst(t *testing.T) {
	w := clitest.NewFakeBackend(newPoolObjects()...)
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
			"machineclass shop/small: provider aws, used by 4 machines\n",
		out,
	)
}

func TestTopPrintsActiveObjects(t *testing.T) {
	const blocked = "1 pool in motion, 1 of them blocked; 1 object changed, and no status says that Millwright has seen it\n\n" +
		"BLOCKED  no quota or capacity\n" +
		"  shop/web   1 of 3 machines   for 15m   until a person acts\n" +
		"    no room (since …)\n"
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"everything":        {[]string{"-n", "shop"}, blocked},
		"what stands still": {[]string{"-A", "--blocked"}, blocked},
		"all objects": {[]string{"-n", "shop", "-o", "wide"}, "1 pool in motion, 1 of them blocked; 1 object changed, and no status says that Millwright has seen it\n" +
			"NAMESPACE   OBJECT     STEP              SINCE   DEADLINE   WAITS FOR                                WORKFLOW\n" +
			"shop        mcd/web    -                 -       -          1 of 2 machines waits for its instance   -\n" +
			"shop        mc/web-b   create-instance   15m     -          no room (since …)                        garden/machine/shop/web-a/uid-m\n" +
			"shop        mc/web-a   create-instance   15m     -          no room (since …)                        garden/machine/shop/web-a/uid-m\n"},
		"nothing here": {[]string{"-n", "bar"}, "nothing is in motion in namespace bar; 3 objects in other namespaces: `millwright top -A`\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend(newPoolObjects()...)
			out, err := w.Run(t.Context(), TopCommand(w.Environment()), row.args...)
			require.NoError(t, err)
			assert.Equal(t, row.says, out)
		})
	}
}

func TestExplainReportsUnknownObjects(t *testing.T) {
	w := clitest.NewFakeBackend(newPoolObjects()...)
	w.ClusterClient = kubefake.NewClientset()
	for arg, want := range map[string]string{
		"pod/web": `unknown kind "pod": use mcd, mcs, mc, mcc or node; and namespace pod has no object web`,
		"mcd/no":  "there is no machinedeployment no in namespace shop",
		"mc/no":   "there is no machine no in namespace shop; what happened to a machine that is gone: `millwright history shop/no`",
		"node/no": "there is no node no",
		"mdc/web": `unknown kind "mdc": use mcd, mcs, mc, mcc or node; did you mean mcd?; and namespace mdc has no object web`,
		"mcd/wbe": "there is no machinedeployment wbe in namespace shop; did you mean web?",
	} {
		_, err := w.Run(t.Context(), Command(w.Environment()), arg, "-n", "shop")
		require.EqualError(t, err, want)
	}
}

// The sentence in a machine's status ends with a `millwright explain` command, which prints the sentence. The output of
// this command omits the command itself.
func TestExplainOmitsItsOwnCommand(t *testing.T) {
	w := clitest.NewFakeBackend(newBlockedMachine())
	out, err := w.Run(t.Context(), Command(w.Environment()), "mc/web-a", "-n", "shop")
	require.NoError(t, err)
	assert.Contains(t, out, "if its instance is not ready, it is replaced at 15:06:07 UTC\n")
	assert.NotContains(t, out, "millwright explain")
}
