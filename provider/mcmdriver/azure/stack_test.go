//go:build integration

package azure_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/api"
	released "github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/provider"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/testhelp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/cloud"
	"millwright/provider/driver"
	"millwright/provider/mcmdriver"
	"millwright/provider/mcmdriver/azure"
	"millwright/provider/mcmdriver/internal/mcmtest"
	"millwright/provider/virtual"
	"millwright/test/integration/rig"

	sdk "go.temporal.io/sdk/client"
)

const (
	// addressVariable tells a process of this binary to be the provider's worker, and where Azure is.
	addressVariable = "TEST_AZURE"
	shoot           = "shoot--dev"

	// A read of the fake is never stale.
	window = time.Second
	life   = 3 * time.Second
)

var (
	r      *rig.Rig
	region *azure.Region
)

// TestMain starts a stack whose provider's worker is this binary, in a process of its own, with MCM's released driver.
func TestMain(m *testing.M) {
	if address := os.Getenv(addressVariable); address != "" {
		mcmtest.IgnoreStackFlags()
		mcmdriver.Run(released.NewDefaultDriver(azure.Factory{Region: address}), "Azure",
			mcmdriver.WithWindow(window), mcmdriver.WithAdapter(driver.WithRequestLife(life)))
		return
	}
	var err error
	if region, err = azure.NewRegion(azure.Spec(shoot, testhelp.Location)); err != nil {
		panic(err)
	}
	region.Answer, region.Changed = faults.answer, join
	server := httptest.NewServer(region)
	worker, err := os.Executable()
	if err != nil {
		panic(err)
	}
	code := rig.Main(m, stack.Options{
		Components: append(component.Names(), component.ProviderWorker),
		Binaries:   map[string]string{component.ProviderWorker: worker},
		Env: map[string][]string{
			component.ProviderWorker: {addressVariable + "=" + server.Listener.Addr().String()},
		},
	}, func(up *rig.Rig) { r = up })
	server.Close()
	os.Exit(code)
}

// join makes each VM join the cluster, and takes the Node of one that is gone away, as a cloud controller manager does.
// The Node's provider ID has the form of Azure's cloud controller manager, which is not the driver's.
func join(name string, exists bool) {
	kubelets, err := cloud.NewKubeNodes(r.Stack.Kubeconfig(component.Test))
	if err != nil {
		panic(err)
	}
	instance := virtual.Instance{
		ProviderID: "azure:///subscriptions/" + testhelp.SubscriptionID + "/resourceGroups/" + shoot +
			"/providers/Microsoft.Compute/virtualMachines/" + name,
		NodeName: name,
		Address:  "10.250.0.1",
	}
	if exists {
		err = kubelets.Register(context.Background(), instance,
			virtual.Spec{Region: testhelp.Location, Zone: "1", InstanceType: testhelp.VMSize}, false)
	} else {
		_, err = kubelets.Remove(context.Background(), instance)
	}
	if err != nil {
		panic(err)
	}
}

// way is what becomes of a create request.
type way func(w http.ResponseWriter, serve func(http.ResponseWriter))

// disturbance changes what becomes of the next create request of a method.
type disturbance struct {
	mu     sync.Mutex
	method string
	way    way           // nil: the request was met
	killed chan struct{} // closed when the worker is dead
}

var faults = &disturbance{}

// ways are those in which a request ends whose sender is killed while it waits for the answer.
var ways = map[string]way{
	"the request takes effect, and the answer is lost": func(_ http.ResponseWriter, serve func(http.ResponseWriter)) {
		serve(httptest.NewRecorder())
		<-faults.killed
	},
	"the request takes effect when the worker is dead": func(_ http.ResponseWriter, serve func(http.ResponseWriter)) {
		<-faults.killed
		serve(httptest.NewRecorder())
	},
	"the request is lost": lost,
}

func lost(http.ResponseWriter, func(http.ResponseWriter)) { <-faults.killed }

func (d *disturbance) answer(w http.ResponseWriter, request azure.Request, serve func(http.ResponseWriter)) {
	d.mu.Lock()
	next := d.way
	if next != nil && request.Method == d.method {
		d.way = nil
	} else {
		next = func(w http.ResponseWriter, serve func(http.ResponseWriter)) { serve(w) }
	}
	d.mu.Unlock()
	next(w, serve)
}

func (d *disturbance) breakNext(method string, next way) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.method, d.way, d.killed = method, next, make(chan struct{})
}

// awaitMet waits until the request was met.
func (d *disturbance) awaitMet(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "a create request was disturbed", func() (bool, any) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.way == nil, d.method
	})
}

// installed makes a namespace with a class of Azure, as users of MCM have it.
func installed(t *testing.T, namespace string) {
	t.Helper()
	r.ReadSecrets(t, component.ProviderIdentity)
	class := class(t, azure.Spec(shoot, testhelp.Location))
	class.Secret[api.ClientSecret] = []byte(rig.Canary)
	class.Secret[api.UserData] = []byte("#cloud-config " + rig.Canary)
	ctx := t.Context()
	_, err := r.Kube.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = r.Kube.CoreV1().Secrets(namespace).Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Data: class.Secret}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = r.Machines.MachineV1alpha1().MachineClasses(namespace).Create(ctx, &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Name: "small"}, Provider: "Azure",
		ProviderSpec: runtime.RawExtension{Raw: class.Spec},
		SecretRef:    &corev1.SecretReference{Namespace: namespace, Name: "small"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// eachHasOne requires that each machine has one VM, which has its name, and that nothing else is left in the cloud.
func eachHasOne(t *testing.T, p *rig.Pool) {
	t.Helper()
	names := []string{}
	for _, m := range p.Machines(t) {
		require.Equal(t, "azure:///"+testhelp.Location+"/"+m.Name, m.Spec.ProviderID)
		names = append(names, m.Name)
	}
	slices.Sort(names)
	require.Equal(t, names, region.VMs())
	require.Equal(t, names, region.Resources())
}

// A pool is made, rolled, scaled down and deleted. Nothing of it is left, neither VMs nor network interfaces nor disks.
func TestAPoolOfMCMsDriverForAzure(t *testing.T) {
	const namespace, size = "chain", 4
	installed(t, namespace)
	all := intstr.FromString("100%")
	p := r.Pool(t, namespace, "pool", size, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &all},
		}
	})
	p.AwaitRunning(t, size)
	p.AwaitSynced(t)
	eachHasOne(t, p)
	before := region.VMs()

	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	rig.Eventually(t, "all machines are new", func() (bool, any) {
		left := slices.DeleteFunc(region.VMs(), func(name string) bool { return !slices.Contains(before, name) })
		return len(left) == 0, left
	})
	p.AwaitRunning(t, size)
	eachHasOne(t, p)
	p.Scale(t, 1)
	p.AwaitRunning(t, 1)
	eachHasOne(t, p)
	p.Delete(t)
	p.AwaitGone(t)
	assert.Empty(t, region.Resources())
}

// The worker is killed while it waits for the answer to a create request, of the network interface or of the VM. The
// machine gets its one VM.
func TestAWorkerThatIsKilledInMidCreation(t *testing.T) {
	const namespace = "killed"
	installed(t, namespace)
	n := 0
	for _, method := range []string{azure.MakeNIC, azure.MakeVM} {
		for name, way := range ways {
			n++
			pool := fmt.Sprintf("pool-%d", n)
			t.Run(method+": "+name, func(t *testing.T) {
				faults.breakNext(method, way)
				p := r.Pool(t, namespace, pool, 1)
				faults.awaitMet(t)
				require.NoError(t, r.Stack.Kill(t.Context(), component.ProviderWorker))
				close(faults.killed)
				require.NoError(t, r.Stack.Start(t.Context(), component.ProviderWorker))
				p.AwaitRunning(t, 1)
				eachHasOne(t, p)
				p.Delete(t)
				p.AwaitGone(t)
				assert.Empty(t, region.Resources())
			})
		}
	}
}

// A machine is deleted when the worker has been killed in mid-creation: there is a network interface and no VM. The name
// of a machine is no title to delete it at once; a sweep does.
func TestWhatIsLeftOfAMachineThatWasNeverMade(t *testing.T) {
	const namespace = "half"
	installed(t, namespace)
	kept := r.Pool(t, namespace, "kept", 1)
	kept.AwaitRunning(t, 1)
	faults.breakNext(azure.MakeVM, lost)
	p := r.Pool(t, namespace, "half", 1)
	faults.awaitMet(t)
	require.Len(t, region.Resources(), 2)
	require.NoError(t, r.Stack.Kill(t.Context(), component.ProviderWorker))
	close(faults.killed)
	p.Delete(t)
	require.NoError(t, r.Stack.Start(t.Context(), component.ProviderWorker))
	rig.Eventually(t, "no machine", func() (bool, any) { return len(p.Machines(t)) == 0, nil })

	sweeps := r.Sweeps(t, namespace, time.Second)
	rig.Eventually(t, "nothing is left", func() (bool, any) {
		if len(region.Resources()) == 1 {
			return true, nil
		}
		time.Sleep(time.Second)
		return false, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{})
	})
	eachHasOne(t, kept)
	kept.Delete(t)
	kept.AwaitGone(t)
}

// Azure has no capacity for the size of the VM. The driver says ResourceExhausted and takes away what it has made.
func TestNoCapacity(t *testing.T) {
	const namespace = "capacity"
	installed(t, namespace)
	faults.breakNext(azure.MakeVM, func(w http.ResponseWriter, _ func(http.ResponseWriter)) {
		w.Header().Set("X-Ms-Error-Code", "SkuNotAvailable")
		w.WriteHeader(http.StatusConflict)
	})
	p := r.Pool(t, namespace, "pool", 1)
	rig.Eventually(t, "the machine says why", func() (bool, any) {
		for _, m := range p.Machines(t) {
			if m.Status.LastOperation.ErrorCode == "ResourceExhausted" {
				return true, nil
			}
		}
		return false, p.Machines(t)
	})
	p.AwaitRunning(t, 1)
	eachHasOne(t, p)
	p.Delete(t)
	p.AwaitGone(t)
	assert.Empty(t, region.Resources())
}
