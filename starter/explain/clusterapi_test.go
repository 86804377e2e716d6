package explain

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/capi/capitest"
	"millwright/starter/clitest"
)

// preDrainHook is an annotation that delays the drain of a machine of Cluster API.
const preDrainHook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"

var lastChangeTime = metav1.NewTime(clitest.LastChangeTime)

// withSetCondition adds a condition to a set, with status True since Begun.
func withSetCondition(kind, reason, message string) capitest.SetChange {
	return func(s *clusterv1.MachineSet) {
		s.Status.Conditions = append(
			s.Status.Conditions,
			metav1.Condition{
				Type:               kind,
				Status:             metav1.ConditionTrue,
				Reason:             reason,
				Message:            message,
				LastTransitionTime: lastChangeTime,
			},
		)
	}
}

// newClusterAPIPool returns a Cluster API set that Millwright reconciles, with three machines: pool-a runs, pool-b
// waits for a hook before its drain, and pool-c waits for its instance. newClusterAPIPool also returns the set theirs
// with a machine, which Millwright does not reconcile.
func newClusterAPIPool() []runtime.Object {
	s := capitest.NewSet(
		"pool",
		2,
		withSetCondition("ScalingDown", "ScalingDown", "Scaling down from 3 to 2 replicas"),
		withSetCondition("Blocked", "Waiting", "1 of 3 machines waits to leave"),
	)
	s.Status.AvailableReplicas, s.Status.ReadyReplicas = new(int32(1)), new(int32(1))
	s.Status.ObservedGeneration = s.Generation
	kept := capitest.NewMachine(
		"pool-b",
		s,
		capitest.WithAnnotation[*clusterv1.Machine](preDrainHook, ""),
		capitest.WithConditionReason(
			clusterv1.MachineDeletingCondition,
			metav1.ConditionTrue,
			clusterv1.MachineDeletingWaitingForPreDrainHookReason,
			"hooks",
		),
	)
	kept.DeletionTimestamp, kept.Status.Phase = &lastChangeTime, "Deleting"
	fresh := capitest.NewMachine(
		"pool-c",
		s,
		capitest.WithConditionReason(
			clusterv1.MachineInfrastructureReadyCondition,
			metav1.ConditionFalse,
			"NotReady",
			"no room",
		),
	)
	fresh.CreationTimestamp = metav1.NewTime(clitest.Now.Add(-90e9))
	fresh.Status.NodeRef = clusterv1.MachineNodeReference{}
	fresh.Status.Phase = "Provisioning"
	theirs := capitest.NewSet("theirs", 3, func(s *clusterv1.MachineSet) {
		s.Finalizers, s.Labels[clusterv1.WatchLabel] = []string{clusterv1.MachineSetFinalizer}, "upstream"
	}, withSetCondition("ScalingUp", "ScalingUp", "Scaling up"))
	return []runtime.Object{
		s,
		capitest.NewMachine("pool-a", s),
		kept,
		fresh,
		theirs,
		capitest.NewMachine("theirs-a", theirs, func(m *clusterv1.Machine) { m.DeletionTimestamp = &lastChangeTime }),
	}
}

// newBackendWithBothAPIGroups returns a backend with objects of both API groups.
func newBackendWithBothAPIGroups(more ...runtime.Object) *clitest.FakeBackend {
	w := clitest.NewFakeBackend(append(newPoolObjects(), more...)...)
	w.ClusterClient = kubefake.NewClientset(newLease("millwright-worker", 1e9), newLease("millwright-bridge", 1e9))
	w.ClusterAPI = capitest.NewFakeServer(newClusterAPIPool()...)
	return w
}

func TestExplainReadsClusterAPIObjects(t *testing.T) {
	const set = "machineset.cluster.x-k8s.io shop/pool: 1 of 3 machines waits to leave\n" +
		"\nMACHINE   STATUS         STEP              SINCE   DEADLINE   WAITS FOR\n" +
		"pool-b    Deleting       await-hooks       15m     -          the hook " + preDrainHook + " keeps it\n" +
		"pool-c    Provisioning   create-instance   90s     -          the infrastructure is not ready: no room\n"
	for name, row := range map[string]struct {
		arg, says string
	}{
		"a set with its group":             {"machineset.cluster.x-k8s.io/pool", set},
		"a set as lists print it":          {"machinesets.cluster.x-k8s.io/shop/pool", set},
		"a set by its kind":                {"machineset/pool", set},
		"a set by its name alone":          {"pool", set},
		"a set of Millwright's group":      {"machineset.machine.sapcloud.io/web-1", "machineset shop/web-1: 0 of 0 machines available; 2 machines in motion, 1 of them blocked"},
		"a machine that a hook keeps":      {"machine/pool-b", "machine.cluster.x-k8s.io shop/pool-b: the hook " + preDrainHook + " keeps it (since 13:51:07 UTC); `kubectl annotate machines.cluster.x-k8s.io -n shop pool-b " + preDrainHook + "-`\n"},
		"a machine that runs":              {"pool-a", "machine.cluster.x-k8s.io shop/pool-a: phase Running; it waits for nothing\n"},
		"a set of others, if it is meant":  {"machineset.cluster.x-k8s.io/theirs", "machineset.cluster.x-k8s.io shop/theirs: it has no finalizer machine.sapcloud.io/cluster-api, so Millwright does not reconcile it; its label cluster.x-k8s.io/watch-filter is \"upstream\"; 0 of 3 machines available\n"},
		"a machine of others, if it is so": {"machine.cluster.x-k8s.io/theirs-a", "machine.cluster.x-k8s.io shop/theirs-a: no controller of Cluster API has looked at it (since 13:51:07 UTC); `kubectl get pods -A -l cluster.x-k8s.io/provider=cluster-api`\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBackendWithBothAPIGroups()
			out, err := w.Run(t.Context(), Command(w.Environment()), row.arg, "-n", "shop", "--cluster-name", "garden")
			require.NoError(t, err)
			if strings.HasSuffix(row.says, "\n") {
				assert.Equal(t, row.says, out)
			} else {
				assert.Contains(t, out, row.says)
			}
			assert.LessOrEqual(t, w.DiscoveryCount, 1)
		})
	}
	for arg, want := range map[string]string{
		"machineset/theirs":                "there is no machineset theirs in namespace shop",
		"machine/theirs-a":                 "there is no machine theirs-a in namespace shop; what happened to a machine that is gone: `millwright history shop/theirs-a`",
		"mcs/pool":                         "there is no machineset pool in namespace shop",
		"machineset.example.com/pool":      `unknown kind "machineset.example.com": use mcd, mcs, mc, mcc or node; and namespace machineset.example.com has no object pool`,
		"machineset.cluster.x-k8s.io/none": "there is no machineset.cluster.x-k8s.io none in namespace shop",
	} {
		w := newBackendWithBothAPIGroups()
		_, err := w.Run(t.Context(), Command(w.Environment()), arg, "-n", "shop")
		require.EqualError(t, err, want)
	}
}

// If both API groups have a set with the name, the user must name the group.
func TestANameInBothAPIGroupsNeedsTheGroup(t *testing.T) {
	w := newBackendWithBothAPIGroups(&v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pool"}})
	for _, arg := range []string{"pool", "machinesets/pool"} {
		_, err := w.Run(t.Context(), Command(w.Environment()), arg, "-n", "shop")
		require.EqualError(
			t,
			err,
			"both API groups have a machineset shop/pool: give machineset.machine.sapcloud.io/pool or machineset.cluster.x-k8s.io/pool",
		)
	}
	for arg, says := range map[string]string{
		"machineset.machine.sapcloud.io/pool": "machineset shop/pool: 0 of 0 machines available; it waits for nothing\n",
		"mcs/pool":                            "machineset shop/pool: 0 of 0 machines available; it waits for nothing\n",
		"machineset.cluster.x-k8s.io/pool":    "machineset.cluster.x-k8s.io shop/pool: 1 of 3 machines waits to leave",
	} {
		out, err := w.Run(t.Context(), Command(w.Environment()), arg, "-n", "shop")
		require.NoError(t, err)
		assert.Contains(t, out, says)
	}
}

// Without Cluster API no command fails, and each command asks the API server for Cluster API at most once.
func TestCommandsWorkWithoutClusterAPI(t *testing.T) {
	w := clitest.NewFakeBackend(newPoolObjects()...)
	w.ClusterClient = kubefake.NewClientset(newLease("millwright-worker", 1e9), newLease("millwright-bridge", 1e9))
	for _, args := range [][]string{{"web", "-n", "shop"}, {"machineset/web-1", "-n", "shop"}, {"machine/web-a", "-n", "shop"}} {
		w.DiscoveryCount = 0
		_, err := w.Run(t.Context(), Command(w.Environment()), args...)
		require.NoError(t, err)
		assert.LessOrEqual(t, w.DiscoveryCount, 1)
	}
	w.DiscoveryCount = 0
	_, err := w.Run(t.Context(), Command(w.Environment()), "nothing", "-n", "shop")
	require.EqualError(t, err, "there is no object nothing in namespace shop")
	assert.Equal(t, 1, w.DiscoveryCount)
	_, err = w.Run(t.Context(), Command(w.Environment()), "machineset.cluster.x-k8s.io/pool", "-n", "shop")
	require.EqualError(t, err, "the API server does not serve cluster.x-k8s.io/v1beta2: Cluster API is not installed")
	w.DiscoveryCount = 0
	out, err := w.Run(t.Context(), TopCommand(w.Environment()), "-A")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"1 pool in motion, 1 of them blocked; 1 object changed, and no status says that Millwright has seen it\n",
	)
	assert.Equal(t, 1, w.DiscoveryCount)
}

func TestExplainPrintsAClusterAPISetAsJSON(t *testing.T) {
	w := newBackendWithBothAPIGroups()
	out, err := w.Run(
		t.Context(),
		Command(w.Environment()),
		"machineset.cluster.x-k8s.io/shop/pool",
		"-o",
		"json",
		"--cluster-name",
		"garden",
	)
	require.NoError(t, err)
	var a explanation
	require.NoError(t, json.Unmarshal([]byte(out), &a))
	assert.Equal(
		t,
		[]any{"machineset.cluster.x-k8s.io", "1 of 3 machines waits to leave", true, true, "delete-machines"},
		[]any{a.Kind, a.Sentence, a.IsWaiting, a.IsBlocked, a.StepName},
	)
	assert.Equal(t, &counts{Desired: 2, Ready: 1, Available: 1, Machines: 3, Waiting: 2, Blocked: 1}, a.Counts)
	require.Len(t, a.Machines, 2)
	assert.Equal(t, waitingMachine{
		"pool-b",
		"Deleting",
		step{
			StepName:  "await-hooks",
			Goal:      "waits to leave",
			Why:       "the hook " + preDrainHook + " keeps it",
			BlockedBy: []string{preDrainHook},
			Since:     clitest.LastChangeTime,
			Command:   "kubectl annotate machines.cluster.x-k8s.io -n shop pool-b " + preDrainHook + "-",
		},
	}, a.Machines[0])
}

func TestTopListsClusterAPIObjects(t *testing.T) {
	w := newBackendWithBothAPIGroups()
	out, err := w.Run(t.Context(), TopCommand(w.Environment()), "-n", "shop", "--blocked")
	require.NoError(t, err)
	assert.Equal(
		t,
		"2 pools in motion, 2 of them blocked; 1 object changed, and no status says that Millwright has seen it\n\n"+
			"BLOCKED  hook "+preDrainHook+"\n"+
			"  shop/pool (machineset)   1 of 3 machines   for 15m   until a person acts\n"+
			"    the hook "+preDrainHook+" keeps it (since 13:51:07 UTC); `kubectl annotate machines.cluster.x-k8s.io -n shop pool-b "+preDrainHook+"-`\n\n"+
			"BLOCKED  no quota or capacity\n"+
			"  shop/web   1 of 3 machines   for 15m   until a person acts\n"+
			"    no room (since …)\n",
		out,
	)

	names, err := w.Run(t.Context(), TopCommand(w.Environment()), "-A", "-o", "name")
	require.NoError(t, err)
	for name := range strings.FieldsSeq(names) { // each name is a valid argument of explain
		_, err := w.Run(t.Context(), Command(w.Environment()), name)
		require.NoError(t, err, name)
	}
	assert.Contains(t, names, "machine.cluster.x-k8s.io/shop/pool-c\n")
	assert.NotContains(t, names, "theirs")

	w.ClusterAPI.Clientset.PrependReactor("list", "machinesets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	out, err = w.Run(t.Context(), TopCommand(w.Environment()), "-n", "bar")
	require.NoError(t, err, "the other objects are known")
	assert.Equal(
		t,
		"nothing is in motion in namespace bar; 3 objects in other namespaces: `millwright top -A`; what is in motion of Cluster API is not known: list machine sets of Cluster API: forbidden\n",
		out,
	)
}

func TestUICommandPrintsAddressesForClusterAPI(t *testing.T) {
	const page = "http://127.0.0.1:8233/namespaces/millwright/workflows/garden%2Fclusterapiset%2Fshop%2Fpool%2Fuid-pool\n"
	for _, arg := range []string{"machineset.cluster.x-k8s.io/pool", "pool", "machine/pool-b"} {
		w := newBackendWithBothAPIGroups()
		out, err := w.Run(t.Context(), UICommand(w.Environment()), arg, "-n", "shop", "--cluster-name", "garden")
		require.NoError(t, err)
		assert.Equal(t, page, out)
	}
	w := newBackendWithBothAPIGroups()
	_, err := w.Run(
		t.Context(),
		UICommand(w.Environment()),
		"machineset.cluster.x-k8s.io/theirs",
		"-n",
		"shop",
		"--cluster-name",
		"garden",
	)
	require.EqualError(t, err, "machineset.cluster.x-k8s.io theirs: the installation is not known: give --cluster-name")
}

// The workflow of a deployment of Cluster API writes the operation into an annotation, and the whole sentence into the
// condition Blocked.
func TestExplainReadsDeploymentsOfClusterAPI(t *testing.T) {
	d := capitest.NewPreparedDeployment(2, capitest.WithAnnotation[*clusterv1.MachineDeployment](
		v1alpha1.AnnotationOperation,
		`{"workflowID":"garden/clusterapirollout/shop/d/uid-d/2","step":"roll","blockedBy":["NodeDrain"],"waitsFor":"1 of 3 …"}`,
	))
	d.Status.ObservedGeneration = d.Generation
	d.Status.AvailableReplicas = new(int32(2))
	d.Status.UpToDateReplicas = new(int32(1))
	d.Status.Conditions = []metav1.Condition{
		{
			Type:               "Blocked",
			Status:             metav1.ConditionTrue,
			Reason:             "NodeDrain",
			Message:            "1 of 3 machines waits to leave",
			LastTransitionTime: lastChangeTime,
		},
	}
	s := capitest.NewSetOfDeployment(d, "d-new", 1, 1)
	objects := []runtime.Object{d, s, capitest.NewMachine("d-new-a", s)}
	w := clitest.NewFakeBackend()
	w.ClusterClient = kubefake.NewClientset(newLease("millwright-worker", 1e9), newLease("millwright-bridge", 1e9))
	w.ClusterAPI = capitest.NewFakeServer(append(objects, newClusterAPIPool()...)...)
	out, err := w.Run(t.Context(), Command(w.Environment()), "d", "-n", "shop")
	require.NoError(t, err)
	assert.Equal(t, "machinedeployment.cluster.x-k8s.io shop/d: 1 of 3 machines waits to leave\n", out)
	out, err = w.Run(t.Context(), Command(w.Environment()), "machinedeployment.cluster.x-k8s.io/shop/d", "-o", "json")
	require.NoError(t, err)
	var a explanation
	require.NoError(t, json.Unmarshal([]byte(out), &a))
	assert.Equal(t, &counts{Desired: 2, Updated: new(int32(1)), Available: 2, Machines: 1}, a.Counts)
	assert.Equal(
		t,
		[]any{"roll", true, "garden/clusterapirollout/shop/d/uid-d/2"},
		[]any{a.StepName, a.IsBlocked, a.WorkflowID},
	)
	out, err = w.Run(t.Context(), UICommand(w.Environment()), "machinedeployment/d", "-n", "shop")
	require.NoError(t, err)
	assert.Contains(t, out, "garden%2Fclusterapirollout%2Fshop%2Fd%2Fuid-d%2F2\n")
	out, err = w.Run(t.Context(), TopCommand(w.Environment()), "-A", "-o", "name")
	require.NoError(t, err)
	assert.Contains(t, out, "machinedeployment.cluster.x-k8s.io/shop/d\n")

	theirs := capitest.NewPreparedDeployment(
		1,
		func(d *clusterv1.MachineDeployment) { d.Finalizers, d.Labels[clusterv1.WatchLabel] = nil, "upstream" },
	)
	w.ClusterAPI = capitest.NewFakeServer(theirs)
	_, err = w.Run(t.Context(), Command(w.Environment()), "d", "-n", "shop")
	require.EqualError(t, err, "there is no object d in namespace shop")
	out, err = w.Run(t.Context(), Command(w.Environment()), "machinedeployment.cluster.x-k8s.io/d", "-n", "shop")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"so Millwright does not reconcile it; its label cluster.x-k8s.io/watch-filter is \"upstream\"; 0 of 1 machine available\n",
	)
}
