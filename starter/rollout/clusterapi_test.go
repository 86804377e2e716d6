package rollout

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/capi/capitest"
	"millwright/starter/clitest"
)

// clusterAPIArgument is the command-line argument for the deployment of newClusterAPIObjects.
const clusterAPIArgument = "machinedeployment.cluster.x-k8s.io/shop/d"

// newClusterAPIObjects returns a deployment of Cluster API with 3 replicas in a rollout to version v1.31.2. Two
// machines of the former template and one machine of the new template run; a second new machine waits for its instance.
func newClusterAPIObjects(change ...capitest.DeploymentChange) []runtime.Object {
	d := capitest.NewPreparedDeployment(3, append([]capitest.DeploymentChange{func(d *clusterv1.MachineDeployment) {
		d.Annotations[clusterv1.RevisionAnnotation] = "2"
	}}, change...)...)
	former := capitest.NewSetOfDeployment(
		d,
		"d-old",
		2,
		1,
		capitest.AsSetReplacedByRevisionTwo,
		func(s *clusterv1.MachineSet) { s.CreationTimestamp = capitest.MinutesBeforeNoon(600) },
	)
	current := capitest.NewSetOfDeployment(d, "d-new", 2, 2)
	coming := capitest.NewMachine(
		"d-new-b",
		current,
		capitest.WithConditionReason(clusterv1.MachineInfrastructureReadyCondition, "False", "NotReady", "no room"),
		capitest.WithCondition(clusterv1.MachineReadyCondition, "False"),
		func(m *clusterv1.Machine) {
			m.Status.Phase, m.Status.NodeRef = "Provisioning", clusterv1.MachineNodeReference{}
		},
	)
	return []runtime.Object{
		d,
		former,
		current,
		capitest.NewMachine("d-old-a", former),
		capitest.NewMachine("d-old-b", former),
		capitest.NewMachine("d-new-a", current),
		coming,
		capitest.NewCluster(),
		capitest.NewBootstrapTemplate(capitest.WithClusterOwner),
		capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
		capitest.NewControlPlane(),
	}
}

// newBackendWithClusterAPI returns a backend with these Cluster API objects, and with more objects of Millwright's API
// group.
func newBackendWithClusterAPI(objects []runtime.Object, more ...runtime.Object) *clitest.FakeBackend {
	w := clitest.NewFakeBackend(more...)
	w.ClusterAPI = capitest.NewFakeServer(objects...)
	return w
}

func runRolloutCommand(t *testing.T, w *clitest.FakeBackend, args ...string) (string, error) {
	t.Helper()
	return w.Run(t.Context(), Command(w.Environment()), args...)
}

// For a deployment of Cluster API, status prints the same sentence and tables as for a deployment of Millwright.
func TestStatusOfAClusterAPIDeployment(t *testing.T) {
	out, err := runRolloutCommand(t, newBackendWithClusterAPI(newClusterAPIObjects()), "status", "shop/d")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"shop/d: revision 2 waits: 1 new machine is not available yet: 3 are available, 3 are needed.\n",
	)
	assert.Contains(t, out, "[======>   ] 2/3 up to date, 3 available\n")
	assert.Contains(t, out, "machines   3 wanted, 2 up to date, 3 ready, 3 available\n")
	assert.Contains(t, out, "revision   2, set d-new of template small, created at ")
	assert.Contains(t, out, "strategy   RollingUpdate, maxSurge 1, maxUnavailable 0\n")
	assert.Contains(
		t,
		out,
		"REVISION   SET     REPLICAS   MACHINES   READY   AVAILABLE   TERMINATING   TEMPLATE   CURRENT\n"+
			"2          d-new   2          2          1       1           0             small      yes\n"+
			"1          d-old   2          2          2       2           0             small      -\n",
	)
	assert.Contains(t, out, "d-new-b   Provisioning   ")
	assert.Contains(t, out, "the infrastructure is not ready: no room\n")
	assert.Contains(t, out, "To stop it where it is: millwright rollout pause "+clusterAPIArgument+"\n")
	assert.Contains(t, out, "To go back: millwright rollout undo "+clusterAPIArgument+" --reason …\n")
	assert.Contains(t, out, "To follow it: millwright rollout watch "+clusterAPIArgument+"\n")

	blocked := capitest.WithAnnotation[*clusterv1.MachineDeployment](
		v1alpha1.AnnotationOperation,
		`{"step":"rollout","waitsFor":"1 of 4 machines waits"}`,
	)
	out, err = runRolloutCommand(t, newBackendWithClusterAPI(newClusterAPIObjects(blocked)), "status", clusterAPIArgument)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "machinedeployment.cluster.x-k8s.io shop/d: 1 of 4 machines waits\n"), out)
}

func TestHistoryOfAClusterAPIDeployment(t *testing.T) {
	w := newBackendWithClusterAPI(newClusterAPIObjects())
	out, err := runRolloutCommand(t, w, "history", "shop/d")
	require.NoError(t, err)
	assert.Equal(
		t,
		"REVISION   FORMERLY   SET     CREATED                   REPLICAS   TEMPLATE   CURRENT   CHANGE-CAUSE\n"+
			"1          -          d-old   2026-01-01 02:00:00 UTC   2          small      -         -\n"+
			"2          -          d-new   2026-01-01 11:00:00 UTC   2          small      yes       -\n",
		out,
	)
	out, err = runRolloutCommand(t, w, "history", "shop/d", "--revision", "1")
	require.NoError(t, err)
	assert.Contains(t, out, "# revision 1 of shop/d: set d-old\n")
	assert.Contains(t, out, "  version: v1.30.0\n")
	assert.NotContains(t, out, "machine-template-hash")
	_, err = runRolloutCommand(t, w, "history", "shop/d", "--revision", "7")
	require.EqualError(t, err, "deployment shop/d has no revision 7: it has 1, 2")
}

func TestPlanOfAClusterAPIDeployment(t *testing.T) {
	w := newBackendWithClusterAPI(newClusterAPIObjects())
	out, err := runRolloutCommand(t, w, "plan", "shop/d")
	require.NoError(t, err)
	assert.Contains(t, out, "#   d-old   d-new   STEP\n-   2       2       as it is now\n")
	assert.Contains(t, out, "   0       3       ")

	file := filepath.Join(t.TempDir(), "pool.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: d, namespace: shop}
spec:
  clusterName: c
  selector: {matchLabels: {pool: pool, cluster.x-k8s.io/cluster-name: c}}
  rollout: {strategy: {type: OnDelete}}
  template:
    metadata: {labels: {pool: pool, cluster.x-k8s.io/cluster-name: c}}
    spec:
      clusterName: c
      version: v1.32.0
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: join}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: ExampleMachineTemplate, name: small}
`), 0o600))
	out, err = runRolloutCommand(t, w, "plan", "shop/d", "-f", file)
	require.NoError(t, err)
	assert.Contains(t, out, "The plan ends here: old machines stay until somebody deletes them.\n")

	require.NoError(
		t,
		os.WriteFile(
			file,
			[]byte("apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineDeployment\nmetadata: {name: d}\n"),
			0o600,
		),
	)
	_, err = runRolloutCommand(t, w, "plan", "shop/d", "-f", file)
	require.ErrorContains(t, err, "MachineDeployment d has version v1beta1: give it as cluster.x-k8s.io/v1beta2")

	out, err = runRolloutCommand(
		t,
		newBackendWithClusterAPI(newClusterAPIObjects(func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) })),
		"plan",
		"shop/d",
	)
	require.NoError(t, err)
	assert.Contains(t, out, "It is paused: these steps follow when it resumes.\n")
	assert.Contains(t, out, "   0       3       ")

	out, err = runRolloutCommand(
		t,
		newBackendWithClusterAPI(
			newClusterAPIObjects(capitest.WithAnnotation[*clusterv1.MachineDeployment](v1alpha1.AnnotationRollbackTo, "1")),
		),
		"plan",
		"shop/d",
	)
	require.NoError(t, err)
	assert.Contains(t, out, "An undo comes first: ")
	assert.Contains(t, out, "   3       0       ", "the former template comes back")
}

// clusterAPIPatches returns the merge patches that were sent to deployments of Cluster API.
func clusterAPIPatches(w *clitest.FakeBackend) (all []string) {
	for _, action := range w.ClusterAPI.Clientset.Actions() {
		if patch, is := action.(clienttesting.PatchAction); is {
			all = append(all, string(patch.GetPatch()))
		}
	}
	return all
}

// A request on a deployment of Cluster API writes the field of Cluster API, if there is one, or else an annotation that
// the workflow reads.
func TestRequestsForAClusterAPIDeployment(t *testing.T) {
	for name, row := range map[string]struct {
		change capitest.DeploymentChange
		args   []string
		says   string
		writes []string
	}{
		"pause": {
			args: []string{"pause", "shop/d", "--reason", "until Monday"}, says: "To take it back: millwright rollout resume " + clusterAPIArgument + "\nTo follow it: millwright rollout watch " + clusterAPIArgument + "\n",
			writes: []string{`"paused":true`, `until Monday`},
		},
		"resume": {
			change: func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) },
			args:   []string{"resume", clusterAPIArgument}, says: "deployment shop/d is no longer paused", writes: []string{`"paused":false`},
		},
		"undo": {
			args: []string{"undo", clusterAPIArgument, "--to-revision", "1"}, says: "the template of that revision returns, and is rolled out with the strategy RollingUpdate",
			writes: []string{`"rollout.machine.sapcloud.io/rollback-to":"1"`},
		},
		"cancel": {args: []string{"cancel", "shop/d", "--reason", "bad"}, says: "machines of all templates stay", writes: []string{`"rollout.machine.sapcloud.io/hold":`}},
		"start": {
			change: func(d *clusterv1.MachineDeployment) {
				d.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
			},
			args: []string{"start", "shop/d", "--reason", "certificates"}, says: "another revision of the template is rolled out with the strategy OnDelete",
			writes: []string{`"rollout":{"after":"2026-11-21T14:06:07Z"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []capitest.DeploymentChange
			if row.change != nil {
				changes = append(changes, row.change)
			}
			w := newBackendWithClusterAPI(newClusterAPIObjects(changes...))
			out, err := runRolloutCommand(t, w, append(row.args, "--as-user", "ann")...)
			require.NoError(t, err)
			assert.Contains(t, out, row.says)
			patches := clusterAPIPatches(w)
			require.Len(t, patches, 1)
			for _, part := range append(row.writes, `"resourceVersion":"900","uid":"uid-d"`) {
				assert.Contains(t, patches[0], part)
			}
			assert.Empty(t, w.Patches(), "nothing of Millwright's group")
		})
	}
	w := newBackendWithClusterAPI(newClusterAPIObjects())
	_, err := runRolloutCommand(t, w, "approve", "shop/d", "--reason", "fine", "--as-user", "ann")
	require.ErrorContains(t, err, "shop/d")
	assert.Empty(t, clusterAPIPatches(w))

	gone := newClusterAPIObjects()
	for _, o := range gone {
		if s, is := o.(*clusterv1.MachineSet); is && s.Name == "d-old" {
			s.Spec.Template.Spec.InfrastructureRef.Name = "absent"
		}
	}
	w = newBackendWithClusterAPI(gone)
	_, err = runRolloutCommand(t, w, "undo", "shop/d", "--as-user", "ann")
	require.ErrorContains(t, err, "ExampleMachineTemplate shop/absent", "the former template cannot return")
	assert.Empty(t, clusterAPIPatches(w))
}

// A name without an API group must match only one deployment.
func TestAmbiguousDeploymentNameNeedsAnAPIGroup(t *testing.T) {
	ours := webPool().deployment
	ours.Name = "d"
	w := newBackendWithClusterAPI(newClusterAPIObjects(), ours)
	_, err := runRolloutCommand(t, w, "status", "shop/d")
	require.EqualError(
		t,
		err,
		"both API groups have a machinedeployment shop/d: give machinedeployment.machine.sapcloud.io/shop/d or machinedeployment.cluster.x-k8s.io/shop/d",
	)
	for arg, says := range map[string]string{
		"machinedeployment.machine.sapcloud.io/shop/d": "To follow it: millwright rollout watch shop/d\n",
		clusterAPIArgument: "To follow it: millwright rollout watch " + clusterAPIArgument + "\n",
	} {
		out, err := runRolloutCommand(t, w, "status", arg)
		require.NoError(t, err)
		assert.Contains(t, out, says)
	}
	out, err := runRolloutCommand(t, w, "status", "machinedeployments.cluster.x-k8s.io/d", "-n", "shop")
	require.NoError(t, err)
	assert.Contains(t, out, "set d-new of template small")

	theirs := func(d *clusterv1.MachineDeployment) {
		d.Finalizers, d.Labels[clusterv1.WatchLabel] = []string{clusterv1.MachineDeploymentFinalizer}, "upstream"
	}
	_, err = runRolloutCommand(t, newBackendWithClusterAPI(newClusterAPIObjects(theirs)), "status", "shop/d")
	require.ErrorContains(t, err, "there is no deployment shop/d")
	_, err = runRolloutCommand(t, newBackendWithClusterAPI(newClusterAPIObjects(theirs)), "status", clusterAPIArgument)
	require.EqualError(
		t,
		err,
		`deployment shop/d has no finalizer machine.sapcloud.io/cluster-api, so Millwright does not roll it out; its label cluster.x-k8s.io/watch-filter is "upstream"`,
	)

	w = completedPool().newBackend().FakeBackend
	_, err = runRolloutCommand(t, w, "status", "shop/web")
	require.NoError(t, err)
	assert.LessOrEqual(t, w.DiscoveryCount, 1, "Cluster API is not installed")
	_, err = runRolloutCommand(t, w, "status", clusterAPIArgument)
	require.EqualError(t, err, "the API server does not serve cluster.x-k8s.io/v1beta2: Cluster API is not installed")
}

func TestWatchOfAClusterAPIDeployment(t *testing.T) {
	w := newBackendWithClusterAPI(newClusterAPIObjects())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := w.ClusterAPI.Client.Deployments("shop").
		Patch(ctx, "d", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = w.Run(ctx, Command(w.Environment()), "watch", clusterAPIArgument, "--interval", "1ms")
	require.ErrorContains(t, err, "shop/d: it is paused: 2 of 3 machines up to date")
}
