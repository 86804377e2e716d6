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
	namespace = "shoot" // of testdata/aws.yaml
	pool      = "pool-aws"
	placement = `{"tenancy":"dedicated"}`

	// urlVariable tells a process of this binary to be the provider's worker, and where EC2 is; lossyVariable, that it loses
	// heartbeats.
	urlVariable   = "TEST_EC2_URL"
	lossyVariable = "TEST_LOSSY"

	// The cloud shows an instance after consistency. The window in the traits of the worker is longer. Where a create
	// request never arrives, the next attempt waits for life and window: 20 s by default.
	consistency = 200 * time.Millisecond
	window      = time.Second
	life        = 3 * time.Second
)

var (
	r   *rig.Rig
	ec2 = &region{Cloud: &ec2test.Cloud{Consistency: consistency}, killed: make(chan struct{})}
)

// TestMain starts a stack whose provider's worker is this binary, in a process of its own.
func TestMain(m *testing.M) {
	if url := os.Getenv(urlVariable); url != "" {
		if os.Getenv(lossyVariable) != "" {
			loseHeartbeats()
		}
		mcmtest.IgnoreStackFlags()
		mcmdriver.Run(&ec2test.Driver{Cloud: ec2test.Client{URL: url}}, ec2test.Provider,
			mcmdriver.WithWindow(window), mcmdriver.WithAdapter(driver.WithRequestLife(life)))
		return
	}
	server := httptest.NewServer(ec2)
	worker, err := os.Executable()
	if err != nil {
		panic(err)
	}
	env := urlVariable + "=" + server.URL
	options := stack.Options{
		Components: append(component.Names(), component.ProviderWorker, component.SecondWorker),
		Binaries:   map[string]string{component.ProviderWorker: worker, component.SecondWorker: worker},
		Env: map[string][]string{
			component.ProviderWorker: {env}, component.SecondWorker: {env, lossyVariable + "=1"},
		},
	}
	code := rig.Main(m, options, func(up *rig.Rig) {
		r = up
		if err := r.Stack.Stop(context.Background(), component.SecondWorker); err != nil {
			panic(err)
		}
	})
	server.Close()
	os.Exit(code)
}

// region is EC2 at an HTTP address. Of the first six instances that it is asked to make, two are made; of two it gives
// no answer; one is made when the worker has been killed; and one never, because its request is lost.
type region struct {
	*ec2test.Cloud

	killed chan struct{} // closed when the worker is dead

	mu    sync.Mutex
	asked int           // instances; not counted while it is slow
	slow  time.Duration // how long it takes to make one
}

func (e *region) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	n := 0
	if request.URL.Path == ec2test.PathRun {
		body, err := io.ReadAll(request.Body) // of a sender that may be dead when it is needed
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		e.mu.Lock()
		slow := e.slow
		if slow == 0 {
			e.asked++
			n = e.asked
		}
		e.mu.Unlock()
		time.Sleep(slow)
	}
	switch n {
	case 3, 4:
		e.Handler().ServeHTTP(httptest.NewRecorder(), request)
		<-e.killed
	case 5:
		<-e.killed
		e.Handler().ServeHTTP(httptest.NewRecorder(), request)
	case 6:
		<-e.killed
	default:
		e.Handler().ServeHTTP(w, request)
	}
}

// requests returns how many instances it was asked to make.
func (e *region) requests() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

// live returns the machines of the instances that are not terminated, by provider ID.
func (e *region) live() map[string]string {
	live := map[string]string{}
	for _, i := range e.All() {
		if i.State == ec2test.StateRunning {
			live[ec2test.ProviderID("eu-west-1", i.ID)] = i.Tags["Name"]
		}
	}
	return live
}

// nodes makes each instance join the cluster, and takes the Node of a terminated one away, as a cloud controller
// manager does.
func nodes(t *testing.T) {
	kubelets, err := cloud.NewKubeNodes(r.Stack.Kubeconfig(component.Test))
	require.NoError(t, err)
	ec2.Changed = func(i ec2test.Instance) {
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

// mayReadSecrets lets the provider's worker get the Secrets of the namespace and the bootstrap tokens, and no others.
func mayReadSecrets(t *testing.T) {
	const role = "millwright-provider-secrets"
	for _, where := range []string{namespace, metav1.NamespaceSystem} {
		_, err := r.Kube.RbacV1().RoleBindings(where).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: component.ProviderIdentity}},
		}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) { // of the test before
			require.NoError(t, err)
		}
	}
}

// A MachineDeployment of MCM's users, whose class names a driver of MCM: it is made while the worker is killed, rolled,
// scaled down and deleted. Each machine has one instance, and none is left.
func TestAPoolOfADriverOfMCM(t *testing.T) {
	_, err := r.Stack.Kubectl(t.Context(), "apply", "-f", "testdata/aws.yaml")
	require.NoError(t, err)
	mayReadSecrets(t)
	nodes(t)
	all := intstr.FromString("100%")
	p := r.Pool(t, namespace, pool, 6, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.Class.Name = "pool-aws"
		d.Spec.Template.Spec.NodeTemplateSpec.Annotations = map[string]string{ec2test.PlacementAnnotation: placement}
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
		made := len(ec2.All())
		return ec2.requests() == 6 && made == 4 &&
				recorded == 2, fmt.Sprintf(
				"%d requests, %d instances, %d of them on record",
				ec2.requests(),
				made,
				recorded,
			)
	})
	require.NoError(t, r.Stack.Kill(t.Context(), component.ProviderWorker))
	close(ec2.killed)
	require.NoError(t, r.Stack.Start(t.Context(), component.ProviderWorker))
	p.AwaitRunning(t, 6)
	before := eachHasOne(t, p)
	require.Len(t, ec2.All(), 6, "instances that ever were")
	for _, i := range ec2.All() {
		assert.JSONEq(t, placement, i.Placement)
		assert.Contains(t, i.UserData, "echo "+i.Tags["Name"]+" >")
		assert.Regexp(t, `--token [a-z0-9]{6}\.[a-z0-9]{16} `, i.UserData)
		assert.True(t, i.NetworkReady, "InitializeMachine of %s", i.ID)
	}

	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	rig.Eventually(t, "all machines are new", func() (bool, any) {
		machines := p.Machines(t)
		old := slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return before[m.Spec.ProviderID] != "" })
		return len(machines) == 6 && !old, len(machines)
	})
	p.AwaitRunning(t, 6)
	eachHasOne(t, p)

	p.Scale(t, 2)
	p.AwaitRunning(t, 2)
	eachHasOne(t, p)

	p.Delete(t)
	p.AwaitGone(t)
	assert.Empty(t, ec2.live())
	assert.Len(t, ec2.All(), 12, "six, and six in the rollout")
	joined, err := r.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, joined.Items)
	theWorkersRequests(t)
}

// Two workers serve the provider. The cloud takes 20 s to make an instance, and the driver does not heed cancellations.
// Temporal does not answer heartbeats of one worker for four of every ten seconds.
func TestTwoWorkersUnderLostHeartbeatsMakeEachInstanceOnce(t *testing.T) {
	const many = 200
	_, err := r.Stack.Kubectl(t.Context(), "apply", "-f", "testdata/aws.yaml")
	require.NoError(t, err)
	mayReadSecrets(t)
	before := len(ec2.All())
	ec2.become(20 * time.Second)
	defer ec2.become(0)
	ec2.Changed = nil // no node joins
	require.NoError(t, r.Stack.Start(t.Context(), component.SecondWorker))
	p := r.Pool(
		t,
		namespace,
		pool,
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
	text, err := os.ReadFile(r.Stack.LogPath(component.SecondWorker))
	require.NoError(t, err)
	t.Logf("%d heartbeats had an error", bytes.Count(text, []byte("RecordActivityHeartbeat with error")))
	eachHasOne(t, p)
	require.Equal(t, many, len(ec2.All())-before, "instances that ever were")
	p.Delete(t)
	p.AwaitGone(t)
	require.NoError(t, r.Stack.Stop(t.Context(), component.SecondWorker))
}

// become makes the cloud take so long to make an instance.
func (e *region) become(slow time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slow = slow
}

// loseHeartbeats puts a link in front of the Temporal that the flags of this process name. Of every ten seconds, it
// passes on nothing for four.
func loseHeartbeats() {
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

// eachHasOne requires that each machine has one instance, which has its name, and that there is no other one. It
// returns them as live.
func eachHasOne(t *testing.T, p *rig.Pool) map[string]string {
	t.Helper()
	recorded := map[string]string{}
	for _, m := range p.Machines(t) {
		recorded[m.Spec.ProviderID] = m.Name
	}
	require.Equal(t, recorded, ec2.live())
	return recorded
}

// theWorkersRequests shows what the worker asked of the API server, and that its requests to EC2 are counted.
func theWorkersRequests(t *testing.T) {
	t.Helper()
	counts := map[string]int{}
	for _, a := range r.Audit(t, func(a rig.Audited) bool { return a.User.Username == component.ProviderIdentity }) {
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
			r.Metric(t, component.ProviderWorker, metric),
			r.Metric(t, component.ProviderWorker, "millwright_provider_calls_total"),
			metric,
		)
	}
}
