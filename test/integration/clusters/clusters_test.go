// Tier: test-all. This package starts three target clusters, each with its own API server and etcd.

//go:build integration

// Package clusters tests that one installation serves namespaces whose nodes are in different real clusters. Each
// target cluster has its own API server, etcd, scheduler, controller manager and KWOK. The instances of the cloud's
// region NAME register their nodes in the target cluster NAME.
package clusters

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

const (
	targetSecretName = "millwright-target"
	machines         = 3 // machines of each pool
)

var (
	testRig *rig.Rig
	targets = map[string]*rig.Rig{} // by the name of the cluster, which is also the name of its region and namespace
)

// clusterNames returns the names of the target clusters.
func clusterNames() []string { return []string{"amber", "birch", "cedar"} }

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// runTests starts the target clusters and the stack, and runs the tests.
func runTests(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "millwright-targets-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var regions []string
	for _, name := range clusterNames() {
		target, err := rig.StartRig(context.Background(), filepath.Join(dir, name), stack.Options{Components: []string{
			component.Bootstrap, component.ControllerManager, component.Scheduler, component.Kwok,
		}})
		if err != nil {
			return 1, fmt.Errorf("start cluster %s: %w", name, err)
		}
		defer func() { _ = target.Stack.Down(context.Background()) }()
		targets[name] = target
		regions = append(regions, name+"="+target.Stack.KubeconfigPath(component.VirtualCloud))
	}
	targetFlags := []string{"--target-secret=" + targetSecretName}
	return rig.Main(m, stack.Options{
		Args: map[string][]string{
			component.Worker: targetFlags, component.Bridge: targetFlags,
			component.VirtualCloud: {"--region-kubeconfigs=" + strings.Join(regions, ",")},
		},
		CompletePlan: func(_ context.Context, plan *component.Plan) ([]*os.File, error) {
			plan.ManifestFolders = append(plan.ManifestFolders, filepath.Join(plan.Repo, "test/integration/targets/rights"))
			return nil, nil
		},
	}, func(up *rig.Rig) { testRig = up }), nil
}

// createTarget creates the namespace of a target cluster, the Secret with the cluster's kubeconfig, and a pool.
func createTarget(t *testing.T, name string) *rig.Pool {
	t.Helper()
	testRig.CreateNamespace(t, name, fmt.Sprintf(`{"region":%q,"zone":"%s-1","instanceType":"small"}`, name, name))
	config, err := clientcmd.LoadFromFile(targets[name].Stack.KubeconfigPath(component.WorkerIdentity))
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.FlattenConfig(config))
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	_, err = testRig.Kube.CoreV1().Secrets(name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: targetSecretName},
		Data:       map[string][]byte{"kubeconfig": text},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return testRig.CreatePool(t, name, name, machines, rig.WithNodeLabel)
}

// nodeNames returns the names of the nodes of a cluster, sorted.
func nodeNames(t *testing.T, cluster *rig.Rig) []string {
	t.Helper()
	list, err := cluster.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	names := []string{}
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	return names
}

// rollOut changes the template of a pool.
func rollOut(t *testing.T, p *rig.Pool, edition string) {
	t.Helper()
	p.Patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":%q}}}}}`, edition))
}

// awaitRollout waits until all machines of a pool have an edition and run.
func awaitRollout(t *testing.T, p *rig.Pool, edition string) {
	t.Helper()
	rig.Eventually(t, "all machines of "+p.Name+" have edition "+edition, func() (bool, any) {
		editions := []string{}
		for _, m := range p.Machines(t) {
			editions = append(editions, m.Labels["edition"])
		}
		return len(editions) == machines &&
			!slices.ContainsFunc(editions, func(e string) bool { return e != edition }), editions
	})
	p.AwaitRunningMachines(t, machines)
}

// awaitBlockedMachine waits until a machine of the pool is blocked by the given reason.
func awaitBlockedMachine(t *testing.T, p *rig.Pool, reason string) {
	t.Helper()
	rig.Eventually(t, "a machine of "+p.Name+" is blocked by "+reason, func() (bool, any) {
		blockers := []string{}
		for _, m := range p.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil {
				blockers = append(blockers, o.BlockedBy...)
			}
		}
		return slices.ContainsFunc(blockers, func(b string) bool { return strings.HasPrefix(b, reason) }), blockers
	})
}

// Three namespaces have their nodes in three clusters. The API server of one of them is killed while all three pools are
// rolled out and their nodes are drained: the other two pools go on, and the third goes on when its API server is back.
func TestEachNamespaceHasARealClusterOfItsOwn(t *testing.T) {
	const pods = 2 * machines
	pools := map[string]*rig.Pool{}
	for _, name := range clusterNames() {
		pools[name] = createTarget(t, name)
	}
	for name, p := range pools {
		p.AwaitRunningMachines(t, machines)
		var names []string
		for _, m := range p.Machines(t) {
			names = append(names, m.Name)
		}
		slices.Sort(names)
		assert.Equal(t, names, nodeNames(t, targets[name]), "the cluster has the nodes of its namespace and no others")
	}
	assert.Empty(t, nodeNames(t, testRig), "the control cluster has no nodes")

	begun := time.Now()
	rollOut(t, pools["amber"], "alone")
	awaitRollout(t, pools["amber"], "alone")
	alone := time.Since(begun)

	for name, p := range pools {
		_, err := targets[name].Kube.CoreV1().Namespaces().Create(
			t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
		)
		require.NoError(t, err)
		inTarget := p.InCluster(targets[name])
		inTarget.AwaitLabelledNodes(t, machines)
		inTarget.DeployPods(t, "web", pods)
		inTarget.CreateBudget(t, "web", pods)
		rollOut(t, p, "second")
	}
	for _, p := range pools {
		awaitBlockedMachine(t, p, "PodDisruptionBudget")
	}
	require.NoError(t, targets["birch"].Stack.KillComponent(t.Context(), component.APIServer))
	for _, name := range []string{"amber", "cedar"} {
		pools[name].InCluster(targets[name]).RelaxBudget(t, "web", 0)
	}
	awaitRollout(t, pools["amber"], "second")
	awaitRollout(t, pools["cedar"], "second")
	awaitBlockedMachine(t, pools["birch"], vocabulary.BlockedByUnavailableTarget)

	begun = time.Now()
	rollOut(t, pools["amber"], "third")
	awaitRollout(t, pools["amber"], "third")
	t.Logf("a rollout of %d machines took %s alone, and %s with the same pods while another target was dead",
		machines, alone.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	assert.NotEmpty(t, pools["birch"].Machines(t))

	require.NoError(t, targets["birch"].Stack.StartComponent(t.Context(), component.APIServer))
	pools["birch"].InCluster(targets["birch"]).RelaxBudget(t, "web", 0)
	awaitRollout(t, pools["birch"], "second")
	for _, target := range targets {
		target.RequireOneEviction(t, time.Time{})
	}
	for _, p := range pools {
		p.Scale(t, 0)
	}
	for name, p := range pools {
		p.AwaitRunningMachines(t, 0)
		rig.Eventually(t, "no node is left", func() (bool, any) {
			names := nodeNames(t, targets[name])
			return len(names) == 0, names
		})
	}
}
