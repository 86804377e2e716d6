package rollout

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/capi/capitest"
)

// objects returns the objects of a pool, moved to another namespace and with another name of the deployment.
func (p *pool) objects(namespace, name string) (all []runtime.Object) {
	own := func(uid types.UID) types.UID { return types.UID(name) + "-" + uid } // UIDs of pools are equal otherwise
	p.deployment.Name, p.deployment.UID = name, own(p.deployment.UID)
	move := func(o metav1.Object) { o.SetNamespace(namespace) }
	move(p.deployment)
	all = append(all, p.deployment)
	for _, s := range p.sets {
		move(s)
		s.UID, s.OwnerReferences[0].UID = own(s.UID), p.deployment.UID
		all = append(all, s)
	}
	for _, m := range p.machines {
		move(m)
		m.UID, m.OwnerReferences[0].UID = own(m.UID), own(m.OwnerReferences[0].UID)
		all = append(all, m)
	}
	if p.policy != nil {
		move(p.policy)
		all = append(all, p.policy)
	}
	return all
}

// newFleet returns a backend with rollouts in two namespaces.
func newFleet() *fakeBackend {
	var all []runtime.Object
	all = append(all, waitingPool(withOperation("PodDisruptionBudget shop/web")).objects("shop", "web")...)
	all = append(all, stepPool(approvalStep(1)).objects("bank", "till")...)
	all = append(all, completedPool().objects("store", "calm")...)
	return newFakeBackend(all...)
}

func TestListShowsRolloutsThatAreNotComplete(t *testing.T) {
	w := newFleet()
	out, err := w.runInTest(t, "list", "-A")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
NAMESPACE   NAME   REVISION   DONE   STEP   STATE              SINCE
bank        till   7          1/3    1/1    WaitsForApproval   0s
shop        web    7          2/3    -      Blocked            5m
`, "\n"), out)
	out, err = w.runInTest(t, "list", "-A", "--all", "-o", "wide")
	require.NoError(t, err)
	assert.Regexp(t, `store +calm +7 +3/3 +- +Complete +- +RollingUpdate +revision 7 is complete\n`, out)
	out, err = w.runInTest(t, "list", "-n", "shop", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "machinedeployment/shop/web\n", out)
	out, err = w.runInTest(t, "list", "-A", "-o", "json")
	require.NoError(t, err)
	var got struct{ Items []listRow }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Items, 2)
	assert.Equal(
		t,
		[]int{1, 3, 1, 1},
		[]int{got.Items[0].Done, got.Items[0].Desired, got.Items[0].Step, got.Items[0].StepCount},
	)
	assert.Equal(t, []string{"PodDisruptionBudget shop/web"}, got.Items[1].BlockedBy)
	assert.Equal(t, now.Add(-5*time.Minute), got.Items[1].Since)
}

// The number of requests does not grow with the number of deployments.
func TestListSendsOneRequestForEachKind(t *testing.T) {
	w := newFleet()
	_, err := w.runInTest(t, "list", "-A", "--all")
	require.NoError(t, err)
	verbs := map[string]int{}
	for _, a := range w.MachineClient.Actions() {
		verbs[a.GetVerb()+" "+a.GetResource().Resource]++
	}
	assert.Equal(t, map[string]int{
		"list machinedeployments": 1,
		"list machinesets":        1,
		"list machines":           1,
		"list machineclasses":     1,
		"list rolloutpolicies":    1,
	}, verbs)
}

func TestListWithoutRolloutsNamesTheNamespace(t *testing.T) {
	w := newFleet()
	w.ClusterClient = kubefake.NewClientset()
	for args, want := range map[string]string{
		"list":               "there is no namespace default; 2 elsewhere: -A\n",
		"list -n nope --all": "there is no namespace nope; 3 elsewhere: -A\n",
	} {
		out, err := w.runInTest(t, strings.Fields(args)...)
		require.NoError(t, err)
		assert.Equal(t, want, out)
	}
	w.ClusterClient = nil
	out, err := w.runInTest(t, "list", "-n", "store")
	require.NoError(t, err)
	assert.Equal(t, "no rollout is in motion or stands still in namespace store; 2 elsewhere: -A\n", out)
	out, err = newFakeBackend().runInTest(t, "list", "-A")
	require.NoError(t, err)
	assert.Equal(t, "no rollout is in motion or stands still\n", out)
	out, err = newFakeBackend().runInTest(t, "list", "-o", "json")
	require.NoError(t, err)
	assert.JSONEq(t, `{"items":[]}`, out)
	w.MachineClient.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == metav1.NamespaceAll, nil, assert.AnError
	})
	out, err = w.runInTest(t, "list", "-n", "store")
	require.NoError(t, err)
	assert.Equal(
		t,
		"no rollout is in motion or stands still in namespace store\n",
		out,
		"the user may not list the others",
	)
}

func TestListShowsDeploymentsOfClusterAPI(t *testing.T) {
	busy := func(d *clusterv1.MachineDeployment) {
		d.Annotations[v1alpha1.AnnotationOperation] = `{"workflowID":"w","step":"Roll","since":"2026-11-21T13:56:07Z"}`
	}
	w := newBackendWithClusterAPI(newClusterAPIObjects(busy))
	out, err := runRolloutCommand(t, w, "list", "-A")
	require.NoError(t, err)
	assert.Regexp(t, `shop +d +2 +2/3 +- +\w+ +10m\n`, out)
	out, err = runRolloutCommand(t, w, "list", "-n", "shop", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, clusterAPIArgument+"\n", out)

	calm := func(d *clusterv1.MachineDeployment) { d.Status.ObservedGeneration = d.Generation }
	w = newBackendWithClusterAPI(newClusterAPIObjects(calm))
	out, err = runRolloutCommand(t, w, "list", "-A")
	require.NoError(t, err)
	assert.Equal(t, "no rollout is in motion or stands still\n", out, "its status says that it is at rest")
	out, err = runRolloutCommand(t, w, "list", "-A", "--all")
	require.NoError(t, err)
	assert.Contains(t, out, "shop ")
}

func TestADeploymentOfClusterAPIWithARequestIsNotAtRest(t *testing.T) {
	rest := capitest.NewPreparedDeployment(1)
	rest.Status.ObservedGeneration = rest.Generation
	require.True(t, isAtRest(rest))
	for name, change := range map[string]func(*clusterv1.MachineDeployment){
		"a newer spec": func(d *clusterv1.MachineDeployment) { d.Generation++ },
		"paused":       func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) },
		"held":         func(d *clusterv1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutHold] = "2 ann" },
		"undone":       func(d *clusterv1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRollbackTo] = "1" },
		"pinned": func(d *clusterv1.MachineDeployment) {
			d.Annotations[v1alpha1.AnnotationRolloutProgress] = `{"pinned":{}}`
		},
		"being deleted": func(d *clusterv1.MachineDeployment) { d.DeletionTimestamp = new(metav1.NewTime(now)) },
		"in motion":     func(d *clusterv1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationOperation] = `{"step":"Roll"}` },
	} {
		d := rest.DeepCopy()
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		change(d)
		assert.False(t, isAtRest(d), name)
	}
}

// runInTest runs a rollout command.
func (w *fakeBackend) runInTest(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return w.runCommand(t.Context(), args...)
}
