//go:build integration

package mcmdriver_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/cloud"
	"millwright/provider/driver"
	"millwright/provider/mcmdriver"
	"millwright/provider/mcmdriver/internal/ec2test"
	"millwright/provider/mcmdriver/internal/mcmtest"
	"millwright/provider/virtual"
	"millwright/test/integration/rig"
)

const (
	namespace     = "shoot" // namespace in testdata/aws.yaml
	poolName      = "pool-aws"
	placementJSON = `{"tenancy":"dedicated"}`

	// ec2URLVariable is the environment variable with the URL of EC2. If ec2URLVariable is set, a process of the test
	// binary runs as the provider's worker. If lossyHeartbeatsVariable is also set, the worker loses heartbeats.
	ec2URLVariable          = "TEST_EC2_URL"
	lossyHeartbeatsVariable = "TEST_LOSSY"

	// readDelay is the time after which the cloud shows a new instance. The consistency window of the worker's Traits
	// is longer. If a create request never arrives, the next attempt waits for requestLifetime + consistencyWindow
	// (default: 20 s).
	readDelay         = 200 * time.Millisecond
	consistencyWindow = time.Second
	requestLifetime   = 3 * time.Second
)

var (
	testRig *rig.Rig
	ec2     = &faultyEC2{Cloud: &ec2test.Cloud{ReadDelay: readDelay}, workerKilled: make(chan struct{})}
)

// TestMain starts a local stack. The provider's worker in the local stack is another process of the test binary.
func TestMain(m *testing.M) {
	if url := os.Getenv(ec2URLVariable); url != "" {
		if os.Getenv(lossyHeartbeatsVariable) != "" {
			startLossyProxy()
		}
		mcmtest.IgnoreStackFlags()
		mcmdriver.Run(
			&ec2test.Driver{Cloud: ec2test.Client{URL: url}},
			ec2test.ProviderName,
			mcmdriver.WithConsistencyWindow(
				consistencyWindow,
			),
			mcmdriver.WithDriverOptions(driver.WithRequestLifetime(requestLifetime)),
		)
		return
	}
	server := httptest.NewServer(ec2)
	worker, err := os.Executable()
	if err != nil {
		panic(err)
	}
	env := ec2URLVariable + "=" + server.URL
	options := stack.Options{
		Components:  append(component.Names(), component.ProviderWorker, component.SecondWorker),
		BinaryPaths: map[string]string{component.ProviderWorker: worker, component.SecondWorker: worker},
		Env: map[string][]string{
			component.ProviderWorker: {env}, component.SecondWorker: {env, lossyHeartbeatsVariable + "=1"},
		},
	}
	code := rig.Main(m, options, func(up *rig.Rig) {
		testRig = up
		if err := testRig.Stack.StopComponent(context.Background(), component.SecondWorker); err != nil {
			panic(err)
		}
	})
	server.Close()
	os.Exit(code)
}

// faultyEC2 is EC2 at an HTTP address, with faults for the first six create requests. Requests 1 and 2 succeed.
// Requests 3 and 4 create an instance, but get no response. Request 5 creates an instance after the worker was killed.
// Request 6 is lost.
type faultyEC2 struct {
	*ec2test.Cloud

	workerKilled chan struct{} // closed after the worker was killed

	mu             sync.Mutex
	requestCount   int           // number of create requests, except requests while createDuration is set
	createDuration time.Duration // duration of a create request
}

func (e *faultyEC2) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	n := 0
	if request.URL.Path == ec2test.PathRunInstances {
		body, err := io.ReadAll(request.Body) // the body is read first, because the client may be killed later
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		e.mu.Lock()
		slow := e.createDuration
		if slow == 0 {
			e.requestCount++
			n = e.requestCount
		}
		e.mu.Unlock()
		time.Sleep(slow)
	}
	switch n {
	case 3, 4:
		e.Handler().ServeHTTP(httptest.NewRecorder(), request)
		<-e.workerKilled
	case 5:
		<-e.workerKilled
		e.Handler().ServeHTTP(httptest.NewRecorder(), request)
	case 6:
		<-e.workerKilled
	default:
		e.Handler().ServeHTTP(w, request)
	}
}

// createRequestCount returns the number of counted create requests.
func (e *faultyEC2) createRequestCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requestCount
}

// runningInstances returns the machine names of all running instances, by provider ID.
func (e *faultyEC2) runningInstances() map[string]string {
	live := map[string]string{}
	for _, i := range e.AllInstances() {
		if i.State == ec2test.StateRunning {
			live[ec2test.ProviderID("eu-west-1", i.ID)] = i.Tags["Name"]
		}
	}
	return live
}

// simulateNodes creates the Node of each new instance and deletes the Node of each terminated instance, like a cloud
// controller manager.
func simulateNodes(t *testing.T) {
	kubelets, err := cloud.NewKubeNodeClient(testRig.Stack.KubeconfigPath(component.TestIdentity))
	require.NoError(t, err)
	ec2.OnInstanceChange = func(i ec2test.Instance) {
		instance := virtual.Instance{
			ProviderID: ec2test.ProviderID("eu-west-1", i.ID),
			NodeName:   i.PrivateDNSName,
			Address:    "10.250.0.1",
		}
		var err error
		if i.State == ec2test.StateRunning {
			err = kubelets.Register(
				context.Background(),
				instance,
				virtual.Spec{Region: "eu-west-1", Zone: "eu-west-1a", InstanceType: "m5.large"},
				false,
			)
		} else {
			_, err = kubelets.Remove(context.Background(), instance)
		}
		assert.NoError(t, err)
	}
}

// allowSecretReads gives the provider's worker the right to get Secrets in the test namespace and in kube-system
// (bootstrap tokens), and in no other namespace.
func allowSecretReads(t *testing.T) {
	const role = "millwright-provider-secrets"
	for _, where := range []string{namespace, metav1.NamespaceSystem} {
		_, err := testRig.Kube.RbacV1().RoleBindings(where).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: component.ProviderIdentity}},
		}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) { // an earlier test has created the RoleBinding
			require.NoError(t, err)
		}
	}
}

// An MCM MachineDeployment uses a class for MCM's AWS driver. The test kills the worker during the creation, then rolls
// out, scales down and deletes the MachineDeployment. Each machine has exactly one instance, and no instance remains.
func TestPoolWithAWSDriverMakesOneInstancePerMachine(t *testing.T) {
	_, err := testRig.Stack.RunKubectl(t.Context(), "apply", "-f", "testdata/aws.yaml")
	require.NoError(t, err)
	allowSecretReads(t)
	simulateNodes(t)
	all := intstr.FromString("100%")
	p := testRig.CreatePool(t, namespace, poolName, 6, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.Class.Name = "pool-aws"
		d.Spec.Template.Spec.NodeTemplateSpec.Annotations = map[string]string{ec2test.PlacementAnnotation: placementJSON}
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &all},
		}
	})

	rig.Eventually(t, "six create requests, of which four have made an instance and two are answered", func() (bool, any) {
		recorded := 0
		for _, m := range p.Machines(t) {
			if m.Spec.ProviderID != "" {
				recorded++
			}
		}
		made := len(ec2.AllInstances())
		return ec2.createRequestCount() == 6 && made == 4 &&
				recorded == 2, fmt.Sprintf(
				"%d requests, %d instances, %d of them on record",
				ec2.createRequestCount(),
				made,
				recorded,
			)
	})
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.ProviderWorker))
	close(ec2.workerKilled)
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.ProviderWorker))
	p.AwaitRunningMachines(t, 6)
	before := requireOneInstancePerMachine(t, p)
	require.Len(t, ec2.AllInstances(), 6, "instances that ever were")
	for _, i := range ec2.AllInstances() {
		assert.JSONEq(t, placementJSON, i.Placement)
		assert.Contains(t, i.UserData, "echo "+i.Tags["Name"]+" >")
		assert.Regexp(t, `--token [a-z0-9]{6}\.[a-z0-9]{16} `, i.UserData)
		assert.True(t, i.IsNetworkReady, "InitializeMachine of %s", i.ID)
	}

	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	rig.Eventually(t, "all machines are new", func() (bool, any) {
		machines := p.Machines(t)
		old := slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return before[m.Spec.ProviderID] != "" })
		return len(machines) == 6 && !old, len(machines)
	})
	p.AwaitRunningMachines(t, 6)
	requireOneInstancePerMachine(t, p)

	p.Scale(t, 2)
	p.AwaitRunningMachines(t, 2)
	requireOneInstancePerMachine(t, p)

	p.Delete(t)
	p.AwaitPoolGone(t)
	assert.Empty(t, ec2.runningInstances())
	assert.Len(t, ec2.AllInstances(), 12, "six, and six in the rollout")
	joined, err := testRig.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, joined.Items)
	requireRequestMetrics(t)
}

// Two workers serve the provider. A creation in the cloud takes 20 s, and the driver ignores cancellations. For 4 of
// every 10 seconds, Temporal does not answer the heartbeats of the second worker.
func TestTwoWorkersWithLostHeartbeatsMakeEachInstanceOnce(t *testing.T) {
	const many = 200
	_, err := testRig.Stack.RunKubectl(t.Context(), "apply", "-f", "testdata/aws.yaml")
	require.NoError(t, err)
	allowSecretReads(t)
	before := len(ec2.AllInstances())
	ec2.setCreateDuration(20 * time.Second)
	defer ec2.setCreateDuration(0)
	ec2.OnInstanceChange = nil // no node joins
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.SecondWorker))
	p := testRig.CreatePool(
		t,
		namespace,
		poolName,
		many,
		func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "pool-aws" },
	)
	rig.Eventually(t, "all instances are on record", func() (bool, any) {
		recorded := 0
		for _, m := range p.Machines(t) {
			if m.Spec.ProviderID != "" {
				recorded++
			}
		}
		return recorded == many, recorded
	})
	text, err := os.ReadFile(testRig.Stack.LogPath(component.SecondWorker))
	require.NoError(t, err)
	t.Logf("%d heartbeats had an error", bytes.Count(text, []byte("RecordActivityHeartbeat with error")))
	requireOneInstancePerMachine(t, p)
	require.Equal(t, many, len(ec2.AllInstances())-before, "instances that ever were")
	p.Delete(t)
	p.AwaitPoolGone(t)
	require.NoError(t, testRig.Stack.StopComponent(t.Context(), component.SecondWorker))
}

// setCreateDuration sets how long a create request takes.
func (e *faultyEC2) setCreateDuration(slow time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.createDuration = slow
}

// startLossyProxy starts a proxy for the Temporal address in the flags of this process, and changes the flag to the
// proxy's address. The proxy forwards no data during 4 of every 10 seconds.
func startLossyProxy() {
	at := slices.Index(os.Args, "--temporal-address") + 1
	temporal := os.Args[at]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	os.Args[at] = listener.Addr().String()
	var passes sync.Mutex
	go func() {
		for {
			time.Sleep(6 * time.Second)
			passes.Lock()
			time.Sleep(4 * time.Second)
			passes.Unlock()
		}
	}()
	pass := func(to io.WriteCloser, from io.Reader) {
		defer func() { _ = to.Close() }()
		part := make([]byte, 64<<10)
		for {
			n, err := from.Read(part)
			if err != nil {
				return
			}
			passes.Lock()
			_, err = to.Write(part[:n])
			passes.Unlock()
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", temporal)
			if err != nil {
				_ = near.Close()
				continue
			}
			go pass(near, far)
			go pass(far, near)
		}
	}()
}

// requireOneInstancePerMachine requires that each machine has exactly one instance with the machine's name, and that no
// other instance runs. requireOneInstancePerMachine returns the machine names by provider ID.
func requireOneInstancePerMachine(t *testing.T, p *rig.Pool) map[string]string {
	t.Helper()
	recorded := map[string]string{}
	for _, m := range p.Machines(t) {
		recorded[m.Spec.ProviderID] = m.Name
	}
	require.Equal(t, recorded, ec2.runningInstances())
	return recorded
}

// requireRequestMetrics logs the worker's requests for Machines to the API server, and requires that metrics count the
// worker's requests to EC2.
func requireRequestMetrics(t *testing.T) {
	t.Helper()
	counts := map[string]int{}
	for _, a := range testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool { return a.User.Username == component.ProviderIdentity }) {
		if a.ObjectRef.Resource == "machines" {
			require.NotEqual(t, http.StatusForbidden, a.ResponseStatus.Code, "%s %s", a.Verb, a.RequestURI)
			counts[strings.TrimSpace(a.Verb+" "+cmp.Or(a.ObjectRef.Namespace, "all"))]++
		}
	}
	t.Logf("requests for Machines: %v", counts)
	require.GreaterOrEqual(t, counts["get "+namespace], 12, "one for each creation")
	for _, metric := range []string{"millwright_provider_requests_total", "millwright_provider_request_duration_seconds_count"} {
		require.Greater(
			t,
			testRig.ReadMetric(t, component.ProviderWorker, metric),
			testRig.ReadMetric(t, component.ProviderWorker, "millwright_provider_calls_total"),
			metric,
		)
	}
}
