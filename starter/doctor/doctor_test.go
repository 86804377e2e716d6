package doctor

import (
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakediscovery "k8s.io/client-go/discovery/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/observe/capi/capitest"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

// newBackendWithCRDs returns a cluster with the CRDs of these kinds and one MachineClass.
func newBackendWithCRDs(t *testing.T, kinds ...string) *clitest.FakeBackend {
	t.Helper()
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}, Provider: "aws"}
	w := clitest.NewFakeBackend(class)
	api := &metav1.APIResourceList{GroupVersion: v1alpha1.SchemeGroupVersion.String()}
	for _, kind := range kinds {
		api.APIResources = append(api.APIResources, metav1.APIResource{Name: kind})
	}
	discovery, is := w.MachineClient.Discovery().(*fakediscovery.FakeDiscovery)
	require.True(t, is)
	if len(kinds) > 0 {
		discovery.Resources = []*metav1.APIResourceList{api}
	}
	return w
}

func TestDoctorPrintsAllChecks(t *testing.T) {
	all := []string{
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
		"machines/status",
	}
	const well = "ok      Temporal and its namespace\nok      search attributes\n" +
		"ok      queue garden/machines: 1 worker polled it within 75s\nok      queue garden/kubernetes: 1 worker polled it within 75s\nok      queue garden/drains: 1 worker polled it within 75s\n"
	for name, row := range map[string]struct {
		kinds    []string
		args     []string
		temporal func(*clitest.FakeTemporal)
		says     string
		fails    string
	}{
		"all is well": {
			kinds: all, args: []string{"--cluster-name", "garden"}, temporal: func(*clitest.FakeTemporal) {},
			says: "ok      API server and CRDs\n" + well + "ok      queue garden/provider-aws: 1 worker polled it within 75s\n",
		},
		"the CRDs are of an older version": {
			kinds: all[:4], args: []string{"--cluster-name", "garden"}, temporal: func(*clitest.FakeTemporal) {},
			says: "FAILED  API server and CRDs: no machinedrainrules, rolloutpolicies\n        install the CRDs of this version: kubectl apply -k deploy/crds\n" +
				well + "ok      queue garden/provider-aws: 1 worker polled it within 75s\n",
			fails: "1 check failed",
		},
		"nobody serves a provider, and a search attribute is missing": {
			kinds: all, args: []string{"--cluster-name", "garden"}, temporal: func(f *clitest.FakeTemporal) {
				f.UnpolledQueues, f.UnregisteredAttributes = []string{"garden/provider-aws"}, []string{"Stuck"}
			},
			says: "ok      API server and CRDs\nok      Temporal and its namespace\nFAILED  search attributes: no Stuck\n        millwright bootstrap\n" +
				"ok      queue garden/machines: 1 worker polled it within 75s\nok      queue garden/kubernetes: 1 worker polled it within 75s\nok      queue garden/drains: 1 worker polled it within 75s\n" +
				"FAILED  queue garden/provider-aws: no worker polls it\n        start a worker with --queues=provider-aws\n",
			fails: "2 checks failed",
		},
		"Temporal is down": {
			kinds: all, args: []string{"--temporal-address", "temporal:7233"}, temporal: func(f *clitest.FakeTemporal) { f.Err = serviceerror.NewUnavailable("connection refused") },
			says: "ok      API server and CRDs\nFAILED  Temporal and its namespace: connection refused\n" +
				"        does a Temporal server run at temporal:7233? --temporal-address sets the address, else the variable TEMPORAL_ADDRESS\n",
			fails: "1 check failed",
		},
		"Temporal has no such namespace": {
			kinds: all, args: []string{"--temporal-namespace", "prod"}, temporal: func(f *clitest.FakeTemporal) { f.Err = serviceerror.NewNamespaceNotFound("prod") },
			says: "ok      API server and CRDs\nFAILED  Temporal and its namespace: Namespace prod is not found.\n" +
				"        check --temporal-namespace (prod), or make the namespace: millwright bootstrap\n",
			fails: "1 check failed",
		},
		"Temporal refuses the credentials": {
			kinds: all, temporal: func(f *clitest.FakeTemporal) { f.Err = serviceerror.NewPermissionDenied("Request unauthorized.", "") },
			says: "ok      API server and CRDs\nFAILED  Temporal and its namespace: Request unauthorized.\n" +
				"        check the API key, --temporal-api-key-path, or the certificate, --temporal-tls-cert-path\n",
			fails: "1 check failed",
		},
		"the installation is not named": {
			kinds: all, args: []string{"--cluster-name", ""}, temporal: func(*clitest.FakeTemporal) {},
			says:  "ok      API server and CRDs\nok      Temporal and its namespace\nok      search attributes\nFAILED  queues: the installation is not known\n        give --cluster-name\n",
			fails: "1 check failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBackendWithCRDs(t, row.kinds...)
			row.temporal(w.Temporal)
			out, err := w.Run(t.Context(), Command(w.Environment()), row.args...)
			assert.Equal(t, row.says, out)
			if row.fails == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.fails)
		})
	}
}

// newClientsetForUser returns an API server that authenticates the user ann. The parameter may contains the permissions
// of the user ann, each as VERB RESOURCE. The parameter behind is how far the command's clock is behind the API
// server's clock.
func newClientsetForUser(behind time.Duration, may ...string) *kubefake.Clientset {
	kube := kubefake.NewClientset()
	kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(clitest.Now.Add(behind))},
			Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ann"}},
		}, nil
	})
	kube.PrependReactor(
		"create",
		"selfsubjectaccessreviews",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			asked := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
			asked.Status.Allowed = slices.Contains(
				may,
				asked.Spec.ResourceAttributes.Verb+" "+asked.Spec.ResourceAttributes.Resource,
			)
			return true, asked, nil
		},
	)
	return kube
}

// newLease returns a Lease of the installation garden that was renewed the duration ago before the command's time.
func newLease(name string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "millwright",
			Name:        name,
			Annotations: map[string]string{v1alpha1.AnnotationInstallation: "garden"},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(clitest.Now.Add(-ago)))},
	}
}

// If both API groups are served, the names of kinds in kubectl are ambiguous.
func TestDoctorNotesAmbiguousKindNames(t *testing.T) {
	w := newBackendWithCRDs(
		t,
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
	)
	out, err := w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "garden")
	require.NoError(t, err)
	assert.NotContains(t, out, "Cluster API")
	assert.Equal(t, 1, w.DiscoveryCount)
	w.ClusterAPI = capitest.NewFakeServer()
	out, err = w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "garden")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"ok      Cluster API is installed, too: `kubectl get machines` may mean either; mc, mcs and mcd are Millwright's, ma, ms and md Cluster API's\n",
	)
}

// The Leases show whether worker and bridge are active, and name the installation. An overdue heartbeat is a warning.
func TestDoctorReadsTheLeases(t *testing.T) {
	const look = "        look at its log, and at its Lease: kubectl get leases --all-namespaces --output custom-columns=NAME:.metadata.name,RENEWED:.spec.renewTime\n"
	for name, row := range map[string]struct {
		worker, bridge time.Duration
		temporal       error
		says           string
		fails          string
	}{
		"both are at work": {20 * time.Second, 20 * time.Second, nil, "ok      heartbeat of the worker: 20s ago\nok      heartbeat of the bridge: 20s ago\nok      queue garden/machines: 1 worker polled it within 75s\n", ""},
		"those of both are overdue": {
			21 * time.Second, 21 * time.Second, nil, "WARNING heartbeat of the worker: the last one was 21s ago, and one is due each 15s\n" +
				"        the worker may be down; after 45s it counts as down: repeat the command then, or look at its log\n" +
				"WARNING heartbeat of the bridge: the last one was 21s ago, and one is due each 17s\n" +
				"        the bridge may be down; after 45s it counts as down: repeat the command then, or look at its log\n", "",
		},
		"none is at work": {
			15 * time.Minute, 15 * time.Minute, nil,
			"FAILED  heartbeats: No worker has been at work since 13:51:07 UTC (15m): nothing moves until one reaches Temporal and the API server.\n" + look +
				"FAILED  heartbeats: No bridge has been at work since 13:51:07 UTC (15m): nobody sees changes until one is.\n" + look, "2 checks failed",
		},
		"Temporal is down, and that comes first": {
			15 * time.Minute, time.Second, serviceerror.NewUnavailable("connection refused"),
			"FAILED  Temporal and its namespace: connection refused\n" +
				"        does a Temporal server run at 127.0.0.1:7233? --temporal-address sets the address, else the variable TEMPORAL_ADDRESS\n" +
				"FAILED  heartbeats: No worker has been at work since 13:51:07 UTC (15m): nothing moves until one reaches Temporal and the API server.\n" +
				"        mend Temporal first: a worker has a heartbeat only while Temporal answers\nok      heartbeat of the bridge: 1s ago\n", "2 checks failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBackendWithCRDs(
				t,
				"machines",
				"machinesets",
				"machinedeployments",
				"machineclasses",
				"machinedrainrules",
				"rolloutpolicies",
			)
			w.ClusterClient = kubefake.NewClientset(
				newLease(v1alpha1.LeaseWorkers, row.worker),
				newLease("millwright-bridge", row.bridge),
			)
			w.Temporal.Err = row.temporal
			out, err := w.Run(t.Context(), Command(w.Environment()), "--temporal-address", "127.0.0.1:7233")
			assert.Contains(t, out, row.says)
			if row.fails == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.fails)
		})
	}
}

// docs/runbook.md, section 17: a worker has a heartbeat, but not the permissions of its role.
func TestDoctorReadsTheProblemsOfProcesses(t *testing.T) {
	w := newBackendWithCRDs(
		t,
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
	)
	worker, bridge := newLease(v1alpha1.LeaseWorkers, time.Second), newLease("millwright-bridge", time.Second)
	worker.Annotations[v1alpha1.AnnotationProblems] = `[{"by":"w-1","at":"2026-11-21T14:06:00Z","problems":[` +
		`{"system":"control","resource":"machines.machine.sapcloud.io","verb":"watch","namespace":"shop","kind":"refused","words":"User w cannot list","first":"2024-05-17T13:51:07Z"}]}]`
	bridge.Annotations[v1alpha1.AnnotationProblems] = `[{"by":"b-1","at":"2026-11-21T14:06:00Z","problems":[` +
		`{"system":"temporal","verb":"SignalWithStartWorkflowExecution","kind":"refused","words":"Request unauthorized."}]}]`
	former := newLease("millwright-bridge", time.Hour) // Lease of an installation that has moved to another namespace
	former.Namespace = "former"
	former.Annotations[v1alpha1.AnnotationProblems] = strings.ReplaceAll(
		bridge.Annotations[v1alpha1.AnnotationProblems],
		"14:06:00",
		"14:03:00",
	)
	w.ClusterClient = kubefake.NewClientset(worker, bridge, former)
	out, err := w.Run(t.Context(), Command(w.Environment()))
	require.EqualError(t, err, "2 checks failed")
	assert.Contains(
		t,
		out,
		"FAILED  worker w-1: the worker may not watch machines.machine.sapcloud.io in namespace shop: User w cannot list (since ",
	)
	assert.Contains(
		t,
		out,
		"\n        is each of its roles bound, and of its version? kubectl get clusterrolebindings,rolebindings -A -o wide | grep millwright-worker\n",
	)
	assert.Contains(
		t,
		out,
		"FAILED  bridge b-1: Temporal refuses SignalWithStartWorkflowExecution to the bridge: Request unauthorized.",
	)
	assert.Contains(t, out, "ok      heartbeat of the worker", "the worker renews its Lease")
}

// machine-controller-manager is active in one namespace, and has stopped in another namespace.
func TestDoctorNamesTheNamespacesOfAnotherController(t *testing.T) {
	w := newBackendWithCRDs(t, "machines")
	of := func(namespace string, ago time.Duration) *coordinationv1.Lease {
		l := newLease("machine-controller-manager", ago)
		l.Namespace, l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = namespace, new("pod-1"), new(int32(15))
		return l
	}
	w.ClusterClient = kubefake.NewClientset(
		newLease(
			v1alpha1.LeaseWorkers,
			time.Second,
		),
		newLease("millwright-bridge", time.Second),
		of("shop", time.Second),
		of("old", time.Hour),
	)
	out, err := w.Run(t.Context(), Command(w.Environment()))
	require.Error(t, err, "kinds are missing")
	assert.Contains(
		t,
		out,
		"ok      namespace shop is left to machine-controller-manager, which is at work there: pod-1 renewed Lease machine-controller-manager 1s ago\n",
	)
	assert.NotContains(t, out, "namespace old")
}

// If the namespaces of two installations overlap, the installation with the older Lease keeps its namespaces.
func TestDoctorNamesTheNamespacesOfInstallations(t *testing.T) {
	w := newBackendWithCRDs(t, "machines")
	of := func(namespace, name, namespaces string, age time.Duration) *coordinationv1.Lease {
		l := newLease(v1alpha1.LeaseWorkers, time.Second)
		l.Namespace, l.Spec.HolderIdentity, l.CreationTimestamp = namespace, new(
			"pod-1",
		), metav1.NewTime(
			clitest.Now.Add(-age),
		)
		l.Annotations = map[string]string{v1alpha1.AnnotationInstallation: name, v1alpha1.AnnotationScope: namespaces}
		return l
	}
	w.ClusterClient = kubefake.NewClientset(
		of("a", "trial", "", time.Minute),
		of("b", "garden", `{"namespaces":["shop"],"namespaceSelector":"fleet=blue"}`, time.Hour),
	)
	out, err := w.Run(t.Context(), Command(w.Environment()))
	require.Error(t, err, "kinds are missing")
	assert.Contains(t, out, "ok      installation garden acts on namespaces shop with labels fleet=blue\n"+
		"ok      installation trial acts on all namespaces; those of installation garden, which is older, are left to it\n")
}

// If the user may not read Leases, doctor warns, and reports no heartbeat as ok.
func TestDoctorWarnsIfTheUserMayNotReadLeases(t *testing.T) {
	w := newBackendWithCRDs(
		t,
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
	)
	cluster := kubefake.NewClientset(
		newLease(v1alpha1.LeaseWorkers, time.Second),
		newLease("millwright-bridge", time.Second),
	)
	cluster.PrependReactor(
		"list",
		"leases",
		func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") },
	)
	w.ClusterClient = cluster
	out, err := w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "garden")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"WARNING heartbeat of the worker: read Lease millwright-worker: forbidden\n        ask for the right to list Leases\n",
	)
	assert.NotContains(t, out, "ok      heartbeat")
}

// If the provider of a class is misspelt, doctor names the providers that workers serve.
func TestDoctorNamesTheServedProviders(t *testing.T) {
	w := newBackendWithCRDs(t, "machines")
	misspelt := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "typo"}, Provider: "asw"}
	require.NoError(t, w.MachineClient.Tracker().Add(misspelt))
	w.Temporal.UnpolledQueues = []string{"garden/provider-asw"}
	out, err := w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "garden")
	require.Error(t, err)
	assert.Contains(t, out, "FAILED  queue garden/provider-asw: no worker polls it\n"+
		"        start a worker with --queues=provider-asw, or correct the class (served: aws)\n")
}

// A user who may only read gets notes. An object that this user may not read causes neither a failed check nor a
// warning.
func TestDoctorPrintsNotesForAUserWhoMayOnlyRead(t *testing.T) {
	w := newBackendWithCRDs(
		t,
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
	)
	forbid := func(action clienttesting.Action) (bool, runtime.Object, error) {
		why := errors.New(strings.Repeat("no role ", 60))
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", why)
	}
	cluster := kubefake.NewClientset()
	cluster.PrependReactor("list", "leases", forbid)
	w.ClusterClient, w.ReviewClient = cluster, newClientsetForUser(0)
	w.MachineClient.PrependReactor("list", "machineclasses", forbid)
	out, err := w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "")
	require.NoError(t, err)
	assert.Equal(t, "ok      API server and CRDs\n"+
		"note    you may not list the MachineClasses of all namespaces: the queues of providers are not checked\n"+
		"note    user ann may only read, if no RoleBinding of a namespace allows more\n"+
		"ok      clock of this machine\nok      Temporal and its namespace\nok      search attributes\n"+
		"note    you may not list the Leases of all namespaces: whether a worker is at work is not known\n"+
		"note    you may not list the Leases of all namespaces: whether a bridge is at work is not known\n"+
		"note    the queues are not checked: give --cluster-name\n", out)
}

// Temporal still lists the polls of a killed worker, so doctor ignores these polls if the worker has no heartbeat.
func TestDoctorIgnoresThePollsOfADeadWorker(t *testing.T) {
	w := newBackendWithCRDs(t, "machines")
	w.ClusterClient = kubefake.NewClientset(
		newLease(v1alpha1.LeaseWorkers, time.Minute),
		newLease("millwright-bridge", time.Second),
	)
	out, err := w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "garden")
	require.Error(t, err)
	assert.Contains(t, out, "FAILED  heartbeats: No worker has been at work since ")
	assert.Contains(t, out, "note    queue garden/machines: 1 worker polled it within 75s, and none has a heartbeat now\n")
	assert.NotContains(t, out, "ok      queue garden/machines")
}

// If no server listens on Temporal's port, doctor ends quickly, and advises the user to check the address instead of
// running bootstrap.
func TestDoctorAdvisesToCheckTheTemporalAddress(t *testing.T) {
	w := newBackendWithCRDs(
		t,
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
	)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	e := w.Environment()
	e.DialTemporal = kubecli.DialTemporal
	out, err := w.Run(t.Context(), Command(e), "--cluster-name", "garden", "--temporal-address", address)
	require.EqualError(t, err, "1 check failed")
	assert.Regexp(
		t,
		"FAILED  Temporal and its namespace: .*connection refused.*\n        does a Temporal server run at "+address+"\\?",
		out,
	)
	assert.NotContains(t, out, "millwright bootstrap")
}

func TestDoctorChecksUserAndClock(t *testing.T) {
	for name, row := range map[string]struct {
		kube  *kubefake.Clientset
		says  string
		fails bool
	}{
		"one who changes machines": {newClientsetForUser(4*time.Second, "patch machines", "patch machinedeployments"), "ok      user ann may change machines, machinedeployments\nok      clock of this machine\n", false},
		"one who only reads":       {newClientsetForUser(-4 * time.Second), "note    user ann may only read, if no RoleBinding of a namespace allows more\nok      clock of this machine\n", false},
		"a clock that is behind": {
			newClientsetForUser(time.Minute), "note    user ann may only read, if no RoleBinding of a namespace allows more\nFAILED  clock of this machine: 60s from that of the API server\n" +
				"        set it by NTP: millwright prints times and ages by this clock\n", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBackendWithCRDs(
				t,
				"machines",
				"machinesets",
				"machinedeployments",
				"machineclasses",
				"machinedrainrules",
				"rolloutpolicies",
			)
			w.ReviewClient = row.kube
			out, err := w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "garden")
			assert.Contains(t, out, row.says)
			assert.Equal(t, row.fails, err != nil)
		})
	}
}

func TestDoctorAsJSONHasTheSameExitCode(t *testing.T) {
	w := newBackendWithCRDs(t, "machines")
	w.Temporal.Err = serviceerror.NewUnavailable("connection refused")
	out, err := w.Run(t.Context(), Command(w.Environment()), "-o", "json", "--temporal-address", "temporal:7233")
	require.EqualError(t, err, "2 checks failed")
	var got struct{ Items []findingAnswer }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Items, 2)
	assert.Equal(t, findingAnswer{
		Check:   "Temporal and its namespace",
		Result:  "failed",
		Problem: "connection refused",
		Remedy:  "does a Temporal server run at temporal:7233? --temporal-address sets the address, else the variable TEMPORAL_ADDRESS",
	}, got.Items[1])
	w = newBackendWithCRDs(
		t,
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
	)
	out, err = w.Run(t.Context(), Command(w.Environment()), "-o", "yaml", "--cluster-name", "garden")
	require.NoError(t, err)
	assert.Contains(t, out, "- check: API server and CRDs\n  result: ok\n")
}

func TestFindingsHaveAResult(t *testing.T) {
	for want, f := range map[string]finding{
		"ok": {remedy: "r"}, "note": {isNote: true}, "failed": {problem: "p"}, "warning": {problem: "p", isWarning: true},
	} {
		assert.Equal(t, want, f.result())
	}
}
