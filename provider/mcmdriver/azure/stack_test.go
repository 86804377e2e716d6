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
	// azureAddressVariable is the environment variable with the address of Azure. If azureAddressVariable is set, a
	// process of the test binary runs as the provider's worker.
	azureAddressVariable = "TEST_AZURE"
	resourceGroupName    = "shoot--dev"

	// Reads of the fake are never stale, so the worker uses a short consistencyWindow and requestLifetime.
	consistencyWindow = time.Second
	requestLifetime   = 3 * time.Second
)

var (
	testRig *rig.Rig
	region  *azure.Region
)

// TestMain starts a local stack. The provider's worker in the local stack is another process of the test binary, with
// MCM's released driver for Azure.
func TestMain(m *testing.M) {
	if address := os.Getenv(azureAddressVariable); address != "" {
		mcmtest.IgnoreStackFlags()
		mcmdriver.Run(
			released.NewDefaultDriver(azure.ClientFactory{RegionAddress: address}),
			"Azure",
			mcmdriver.WithConsistencyWindow(
				consistencyWindow,
			),
			mcmdriver.WithDriverOptions(driver.WithRequestLifetime(requestLifetime)),
		)
		return
	}
	var err error
	if region, err = azure.NewRegion(azure.NewSpec(resourceGroupName, testhelp.Location)); err != nil {
		panic(err)
	}
	region.InterceptRequest, region.OnVMChange = injector.handleRequest, updateNode
	server := httptest.NewServer(region)
	worker, err := os.Executable()
	if err != nil {
		panic(err)
	}
	code := rig.Main(m, stack.Options{
		Components:  append(component.Names(), component.ProviderWorker),
		BinaryPaths: map[string]string{component.ProviderWorker: worker},
		Env: map[string][]string{
			component.ProviderWorker: {azureAddressVariable + "=" + server.Listener.Addr().String()},
		},
	}, func(up *rig.Rig) { testRig = up })
	server.Close()
	os.Exit(code)
}

// updateNode creates the Node of each new VM and deletes the Node of each deleted VM, like a cloud controller manager.
// The Node's provider ID has the form of Azure's cloud controller manager, which differs from the form of the driver.
func updateNode(name string, exists bool) {
	kubelets, err := cloud.NewKubeNodeClient(testRig.Stack.KubeconfigPath(component.TestIdentity))
	if err != nil {
		panic(err)
	}
	instance := virtual.Instance{
		ProviderID: "azure:///subscriptions/" + testhelp.SubscriptionID + "/resourceGroups/" + resourceGroupName +
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

// faultHandler is a function that handles a create request with a fault.
type faultHandler func(w http.ResponseWriter, serve func(http.ResponseWriter))

// faultInjector handles the next create request of a method with a fault.
type faultInjector struct {
	mu           sync.Mutex
	method       string
	pendingFault faultHandler  // fault for the next request; nil if there is none
	workerKilled chan struct{} // closed after the worker was killed
}

var injector = &faultInjector{}

// faultHandlers are the possible outcomes of a create request whose sender is killed before the answer.
var faultHandlers = map[string]faultHandler{
	"the request takes effect, and the answer is lost": func(_ http.ResponseWriter, serve func(http.ResponseWriter)) {
		serve(httptest.NewRecorder())
		<-injector.workerKilled
	},
	"the request takes effect when the worker is dead": func(_ http.ResponseWriter, serve func(http.ResponseWriter)) {
		<-injector.workerKilled
		serve(httptest.NewRecorder())
	},
	"the request is lost": dropRequest,
}

func dropRequest(http.ResponseWriter, func(http.ResponseWriter)) { <-injector.workerKilled }

func (d *faultInjector) handleRequest(w http.ResponseWriter, request azure.Request, serve func(http.ResponseWriter)) {
	d.mu.Lock()
	next := d.pendingFault
	if next != nil && request.Method == d.method {
		d.pendingFault = nil
	} else {
		next = func(w http.ResponseWriter, serve func(http.ResponseWriter)) { serve(w) }
	}
	d.mu.Unlock()
	next(w, serve)
}

func (d *faultInjector) injectFault(method string, next faultHandler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.method, d.pendingFault, d.workerKilled = method, next, make(chan struct{})
}

// awaitFault waits until the fault has hit a create request.
func (d *faultInjector) awaitFault(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "a create request was disturbed", func() (bool, any) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.pendingFault == nil, d.method
	})
}

// createClassAndSecret creates a namespace with a MachineClass for Azure and its Secret, as in installations of MCM.
func createClassAndSecret(t *testing.T, namespace string) {
	t.Helper()
	testRig.LimitSecretReaders(t, component.ProviderIdentity)
	class := testClass(t, azure.NewSpec(resourceGroupName, testhelp.Location))
	class.Secret[api.ClientSecret] = []byte(rig.CanaryToken)
	class.Secret[api.UserData] = []byte("#cloud-config " + rig.CanaryToken)
	ctx := t.Context()
	_, err := testRig.Kube.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = testRig.Kube.CoreV1().Secrets(namespace).Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Data: class.Secret}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = testRig.MachineClient.MachineV1alpha1().MachineClasses(namespace).Create(ctx, &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Name: "small"}, Provider: "Azure",
		ProviderSpec: runtime.RawExtension{Raw: class.Spec},
		SecretRef:    &corev1.SecretReference{Namespace: namespace, Name: "small"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// requireOneVMPerMachine requires that each machine has exactly one VM with the machine's name, and that the cloud
// contains no other resources.
func requireOneVMPerMachine(t *testing.T, p *rig.Pool) {
	t.Helper()
	names := []string{}
	for _, m := range p.Machines(t) {
		require.Equal(t, "azure:///"+testhelp.Location+"/"+m.Name, m.Spec.ProviderID)
		names = append(names, m.Name)
	}
	slices.Sort(names)
	require.Equal(t, names, region.VMNames())
	require.Equal(t, names, region.MachinesWithResources())
}

// The test creates a pool, rolls out a change, scales the pool down and deletes the pool. No VM, network interface or
// disk remains.
func TestPoolWithAzureDriverLeavesNoResources(t *testing.T) {
	const namespace, size = "chain", 4
	createClassAndSecret(t, namespace)
	all := intstr.FromString("100%")
	p := testRig.CreatePool(t, namespace, "pool", size, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &all},
		}
	})
	p.AwaitRunningMachines(t, size)
	p.AwaitSyncedNodes(t)
	requireOneVMPerMachine(t, p)
	before := region.VMNames()

	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	rig.Eventually(t, "all machines are new", func() (bool, any) {
		left := slices.DeleteFunc(region.VMNames(), func(name string) bool { return !slices.Contains(before, name) })
		return len(left) == 0, left
	})
	p.AwaitRunningMachines(t, size)
	requireOneVMPerMachine(t, p)
	p.Scale(t, 1)
	p.AwaitRunningMachines(t, 1)
	requireOneVMPerMachine(t, p)
	p.Delete(t)
	p.AwaitPoolGone(t)
	assert.Empty(t, region.MachinesWithResources())
}

// The worker is killed while it waits for the answer to a create request for a network interface or a VM. The machine
// still gets exactly one VM.
func TestWorkerKilledDuringACreationMakesOneVM(t *testing.T) {
	const namespace = "killed"
	createClassAndSecret(t, namespace)
	n := 0
	for _, method := range []string{azure.MethodCreateNIC, azure.MethodCreateVM} {
		for name, way := range faultHandlers {
			n++
			pool := fmt.Sprintf("pool-%d", n)
			t.Run(method+": "+name, func(t *testing.T) {
				injector.injectFault(method, way)
				p := testRig.CreatePool(t, namespace, pool, 1)
				injector.awaitFault(t)
				require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.ProviderWorker))
				close(injector.workerKilled)
				require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.ProviderWorker))
				p.AwaitRunningMachines(t, 1)
				requireOneVMPerMachine(t, p)
				p.Delete(t)
				p.AwaitPoolGone(t)
				assert.Empty(t, region.MachinesWithResources())
			})
		}
	}
}

// The worker is killed during a creation, when the network interface exists but the VM does not. The machine is deleted
// after the kill. The deletion does not delete the network interface, because only its name matches; a sweep of orphans
// deletes the network interface.
func TestSweepDeletesTheNetworkInterfaceOfAnUnfinishedCreation(t *testing.T) {
	const namespace = "half"
	createClassAndSecret(t, namespace)
	kept := testRig.CreatePool(t, namespace, "kept", 1)
	kept.AwaitRunningMachines(t, 1)
	injector.injectFault(azure.MethodCreateVM, dropRequest)
	p := testRig.CreatePool(t, namespace, "half", 1)
	injector.awaitFault(t)
	require.Len(t, region.MachinesWithResources(), 2)
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.ProviderWorker))
	close(injector.workerKilled)
	p.Delete(t)
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.ProviderWorker))
	rig.Eventually(t, "no machine", func() (bool, any) { return len(p.Machines(t)) == 0, nil })

	sweeps := testRig.CreateSweepSchedule(t, namespace, time.Second)
	rig.Eventually(t, "nothing is left", func() (bool, any) {
		if len(region.MachinesWithResources()) == 1 {
			return true, nil
		}
		time.Sleep(time.Second)
		return false, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{})
	})
	requireOneVMPerMachine(t, kept)
	kept.Delete(t)
	kept.AwaitPoolGone(t)
}

// Azure has no capacity for the size of the VM. The driver returns ResourceExhausted and deletes the resources that it
// has created.
func TestCreationWithoutCapacityLeavesNoResources(t *testing.T) {
	const namespace = "capacity"
	createClassAndSecret(t, namespace)
	injector.injectFault(azure.MethodCreateVM, func(w http.ResponseWriter, _ func(http.ResponseWriter)) {
		w.Header().Set("X-Ms-Error-Code", "SkuNotAvailable")
		w.WriteHeader(http.StatusConflict)
	})
	p := testRig.CreatePool(t, namespace, "pool", 1)
	rig.Eventually(t, "the machine says why", func() (bool, any) {
		for _, m := range p.Machines(t) {
			if m.Status.LastOperation.ErrorCode == "ResourceExhausted" {
				return true, nil
			}
		}
		return false, p.Machines(t)
	})
	p.AwaitRunningMachines(t, 1)
	requireOneVMPerMachine(t, p)
	p.Delete(t)
	p.AwaitPoolGone(t)
	assert.Empty(t, region.MachinesWithResources())
}
