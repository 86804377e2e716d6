//go:build integration

package capi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// pool is a MachineSet or MachineDeployment of a namespace that Millwright reconciles.
type pool struct {
	testNamespace
	resource schema.GroupVersionResource
	poolName string // name of the set or deployment, and value of the label pool of its machines
}

// createSharedCluster makes the cluster for all tests that do not change the cluster itself.
var createSharedCluster = sync.OnceValue(func() error {
	_, err := createNamespace(context.Background(), "shared", "plane.yaml")
	return err
})

// newPool makes a MachineSet of this size in the shared cluster, and returns when the control plane of the cluster
// runs.
func newPool(t *testing.T, name string, replicas int) pool {
	t.Helper()
	return awaitSharedNamespace(t).newPool(t, name, replicas)
}

// awaitSharedNamespace waits until the control plane of the shared cluster runs, and returns the cluster's namespace.
func awaitSharedNamespace(t *testing.T) testNamespace {
	t.Helper()
	require.NoError(t, createSharedCluster())
	return awaitStartedNamespace(t, "shared")
}

// awaitStartedNamespace waits until the control plane of the cluster in a test's namespace runs, and returns the
// namespace.
func awaitStartedNamespace(t *testing.T, name string) testNamespace {
	t.Helper()
	s, err := openNamespace(name)
	require.NoError(t, err)
	rig.Eventually(t, "the control plane runs", func() (bool, any) {
		planes, _, seen := s.countRunningMachines(t.Context())
		return planes == 1, seen
	})
	return s
}

// newPool creates a MachineSet with this number of replicas in the namespace.
func (s testNamespace) newPool(t *testing.T, name string, replicas int) pool {
	t.Helper()
	require.NoError(
		t,
		applyManifest(
			t.Context(),
			s.name,
			"set.yaml",
			"NAME",
			name,
			"CLUSTER",
			s.name,
			"replicas: 0",
			fmt.Sprintf("replicas: %d", replicas),
		),
	)
	return pool{s, machineSetResource, name}
}

// scale sets spec.replicas.
func (p pool) scale(t *testing.T, replicas int) {
	t.Helper()
	p.patchPool(t, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// patchPool applies a merge patch to the set or the deployment.
func (p pool) patchPool(t *testing.T, patch string) {
	t.Helper()
	p.applyMergePatch(t, p.resource, p.poolName, patch)
}

// applyMergePatch applies a merge patch to an object.
func (s testNamespace) applyMergePatch(t *testing.T, resource schema.GroupVersionResource, name, patch string) {
	t.Helper()
	_, err := s.resourceClient(resource).
		Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// listMachines returns the machines of the set or deployment.
func (p pool) listMachines(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list, err := p.resourceClient(machineResource).
		List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + p.poolName})
	require.NoError(t, err)
	return list.Items
}

// describeObjectCounts returns how many machines, infrastructure machines and bootstrap configurations the set has.
func (p pool) describeObjectCounts(ctx context.Context) (text string, err error) {
	var n []int
	for _, resource := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
		list, err := p.resourceClient(resource).List(ctx, metav1.ListOptions{LabelSelector: "pool=" + p.poolName})
		if err != nil {
			return "", err
		}
		n = append(n, len(list.Items))
	}
	return fmt.Sprint(n), nil
}

// awaitObjectCounts waits until the set has this many machines, and as many clones of each template.
func (p pool) awaitObjectCounts(t *testing.T, n int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines, each with its clones", n), func() (bool, any) {
		counts, err := p.describeObjectCounts(t.Context())
		return err == nil && counts == fmt.Sprint([]int{n, n, n}), fmt.Sprint(counts, err)
	})
}

// requireObjectCounts asserts that the set now has n machines, and n clones of each template.
func (p pool) requireObjectCounts(t *testing.T, n int) {
	t.Helper()
	counts, err := p.describeObjectCounts(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint([]int{n, n, n}), counts)
}

// forceReconcile makes Millwright decide again about the set, or about the deployment and its sets. forceReconcile
// returns when Millwright has decided.
func (p pool) forceReconcile(t *testing.T) {
	t.Helper()
	if p.resource == machineSetResource {
		testRig.ForceReconcile(t, run.KindClusterAPISet, p.name, p.poolName)
		return
	}
	testRig.ForceReconcile(t, run.KindClusterAPIDeployment, p.name, p.poolName)
	for _, s := range (fleet{p}).listSets(t) {
		testRig.ForceReconcile(t, run.KindClusterAPISet, p.name, s.GetName())
	}
}

// readCondition returns the status, reason and message of a condition.
func (p pool) readCondition(t *testing.T, kind string) (status, reason, message string) {
	t.Helper()
	return conditionOfObject(t, p.getObject(t, p.resource, p.poolName), kind)
}

func conditionOfObject(t *testing.T, o *unstructured.Unstructured, kind string) (status, reason, message string) {
	t.Helper()
	list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	require.NoError(t, err)
	for _, item := range list {
		if c := item.(map[string]any); c["type"] == kind {
			message, _ = c["message"].(string)
			return c["status"].(string), c["reason"].(string), message
		}
	}
	return "", "", ""
}

// awaitConditionMessage waits until a condition has this status and reason, and a message with this text.
func (p pool) awaitConditionMessage(t *testing.T, kind, status, reason, part string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("condition %s is %s/%s with %q", kind, status, reason, part), func() (bool, any) {
		is, why, text := p.readCondition(t, kind)
		return is == status && why == reason && strings.Contains(text, part), fmt.Sprint(is, " ", why, " ", text)
	})
}

// awaitReplicaStatus waits until the status has n replicas, n ready and n available replicas. awaitReplicaStatus does
// not check the up-to-date replicas: Cluster API's core sets the condition UpToDate only on machines of a deployment.
func (p pool) awaitReplicaStatus(t *testing.T, n int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("the status counts %d machines", n), func() (bool, any) {
		seen := p.statusReplicaCounts(t)[:3]
		return slices.Equal(seen, []int64{int64(n), int64(n), int64(n)}), seen
	})
}

// statusReplicaCounts returns the numbers of the status: replicas, ready, available and up-to-date replicas.
func (p pool) statusReplicaCounts(t *testing.T) (counts []int64) {
	t.Helper()
	o := p.getObject(t, p.resource, p.poolName).Object
	for _, field := range []string{"replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"} {
		count, _, err := unstructured.NestedInt64(o, "status", field)
		require.NoError(t, err)
		counts = append(counts, count)
	}
	return counts
}

// awaitPoolGone waits until the set or deployment does not exist.
func (p pool) awaitPoolGone(t *testing.T) {
	t.Helper()
	rig.Eventually(t, p.resource.Resource+" "+p.poolName+" is gone", func() (bool, any) {
		o, err := p.resourceClient(p.resource).Get(t.Context(), p.poolName, metav1.GetOptions{})
		return apierrors.IsNotFound(err), o
	})
}

func TestSetIsScaledFromZeroToThreeToOneAndDeleted(t *testing.T) {
	t.Parallel()
	p := newPool(t, "life", 0)
	p.scale(t, 3)
	p.awaitObjectCounts(t, 3)
	p.awaitReplicaStatus(t, 3)
	status, reason, message := p.readCondition(t, "ScalingUp")
	assert.Equal(t, []string{"False", "NotScalingUp", ""}, []string{status, reason, message})
	for _, m := range p.listMachines(t) {
		owner := metav1.GetControllerOf(&m)
		require.NotNil(t, owner)
		assert.Equal(t, "MachineSet", owner.Kind)
		assert.Equal(t, p.poolName, m.GetLabels()["cluster.x-k8s.io/set-name"])
		assert.Equal(t, component.UpstreamFilterValue, m.GetLabels()[component.WatchFilterLabel])
		infra := p.getObject(t, devMachineResource, m.GetName())
		assert.Equal(
			t,
			"Machine",
			metav1.GetControllerOf(infra).Kind,
			"Cluster API's controller has taken it over: %v",
			infra.GetOwnerReferences(),
		)
		assert.Len(t, infra.GetOwnerReferences(), 1)
		assert.Equal(t, p.name, infra.GetAnnotations()["cluster.x-k8s.io/cloned-from-name"])
		assert.Equal(t, "blue", infra.GetAnnotations()["example.com/team"])
	}
	set := p.getObject(t, machineSetResource, p.poolName)
	assert.Equal(t, []string{"machine.sapcloud.io/cluster-api"}, set.GetFinalizers())
	require.Len(t, set.GetOwnerReferences(), 1, "it stands alone, so the Cluster owns it")
	assert.Equal(t, "Cluster", set.GetOwnerReferences()[0].Kind)
	template := p.getObject(t, devMachineTemplateResource, p.name)
	assert.Equal(t, p.name, template.GetLabels()[clusterLabel])

	p.scale(t, 1)
	p.awaitObjectCounts(t, 1)
	require.NoError(t, p.resourceClient(machineSetResource).Delete(t.Context(), p.poolName, metav1.DeleteOptions{}))
	p.awaitObjectCounts(t, 0)
	p.awaitPoolGone(t)
}

func TestASetWaitsForItsMissingTemplate(t *testing.T) {
	t.Parallel()
	p := newPool(t, "template", 0)
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		`{"spec":{"replicas":2,"template":{"spec":{"infrastructureRef":{"name":"absent"}}}}}`,
	)
	p.awaitConditionMessage(
		t,
		"ScalingUp",
		"True",
		"ScalingUp",
		"Scaling up from 0 to 2 replicas is blocked because:\n* DevMachineTemplate does not exist",
	)
	_, reason, _ := p.readCondition(t, "MachinesCreated")
	assert.Equal(t, "TemplateNotFound", reason)
	_, reason, _ = p.readCondition(t, "Blocked")
	assert.Equal(t, "TemplateNotFound", reason)
	counts, err := p.describeObjectCounts(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "[0 0 0]", counts, "no machine, and no bootstrap configuration is left over")

	p.newInfrastructureTemplate(t, "absent")
	// TestATemplateSignalsTheSetsThatWaitForIt of k8sbridge/watch proves that the new template wakes the set
	p.awaitObjectCounts(t, 2)
}

// A set and a deployment wait for a template. The worker dies while they wait. The template is created while the bridge
// is down.
func TestTemplateIsCreatedWhileWorkerAndBridgeAreDown(t *testing.T) {
	t.Parallel()
	p := newPool(t, "orphaned", 0)
	f := p.newFleet(t, "stranded", 1)
	f.awaitMachinesOfTemplate(t, f.name, 1)
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		`{"spec":{"replicas":2,"template":{"spec":{"infrastructureRef":{"name":"late"}}}}}`,
	)
	f.setInfrastructureTemplate(t, "late")
	p.awaitConditionMessage(t, "Blocked", "True", "TemplateNotFound", "late")
	f.awaitConditionMessage(t, "Blocked", "True", "TemplateNotFound", "late")
	killAndRestartProcess(t, component.Worker)
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Bridge))
	p.newInfrastructureTemplate(t, "late")
	require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Bridge))
	p.awaitAndRequireCreatedMachineCount(t, 2, 2)
	f.awaitMachinesOfTemplate(t, "late", 1)
	f.requireCreatedMachineCount(t, 2)
}

func TestInPlaceChangesReachMachinesAndClones(t *testing.T) {
	t.Parallel()
	p := newPool(t, "inplace", 0)
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		`{"spec":{"replicas":1,"template":{"metadata":{"labels":{"tier":"old"}}}}}`,
	)
	p.awaitObjectCounts(t, 1)
	m := p.listMachines(t)[0]
	name, uid := m.GetName(), m.GetUID()
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		`{"spec":{"template":{"metadata":{"labels":{"tier":null,"rank":"new"}},"spec":{"deletion":{"nodeDrainTimeoutSeconds":7}}}}}`,
	)
	rig.Eventually(t, "the machine and its clones have the new label and not the old one", func() (bool, any) {
		m := p.getObject(t, machineResource, name)
		drain, _, _ := unstructured.NestedInt64(m.Object, "spec", "deletion", "nodeDrainTimeoutSeconds")
		ok, seen := drain == 7, []any{drain}
		for _, labels := range []map[string]string{m.GetLabels(), p.getObject(t, devMachineResource, name).GetLabels(), p.getObject(t, kubeadmConfigResource, name).GetLabels()} {
			_, old := labels["tier"]
			ok = ok && !old && labels["rank"] == "new"
			seen = append(seen, labels)
		}
		return ok, seen
	})
	assert.Equal(t, uid, p.getObject(t, machineResource, name).GetUID(), "the same machine")
}

// killAndRestartProcess kills a process with SIGKILL and restarts the process.
func killAndRestartProcess(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), name))
	require.NoError(t, testRig.Stack.RestartComponent(t.Context(), name))
}

// newMachineHealthCheck creates a MachineHealthCheck for the machines of the set.
func (p pool) newMachineHealthCheck(t *testing.T) {
	t.Helper()
	check := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2",
		"kind":       "MachineHealthCheck",
		"metadata": map[string]any{
			"name":   p.poolName,
			"labels": map[string]any{component.WatchFilterLabel: component.UpstreamFilterValue},
		},
		"spec": map[string]any{
			"clusterName": p.name,
			"selector":    map[string]any{"matchLabels": map[string]any{"pool": p.poolName}},
			"checks":      map[string]any{"nodeStartupTimeoutSeconds": int64(600)},
		},
	}}
	_, err := p.resourceClient(newResource("", "machinehealthchecks")).Create(t.Context(), check, metav1.CreateOptions{})
	require.NoError(t, err)
}

// awaitReplacedMachine waits until a machine does not exist any more, and n other machines exist.
func (p pool) awaitReplacedMachine(t *testing.T, name string, n int) {
	t.Helper()
	rig.Eventually(t, name+" is replaced", func() (bool, any) {
		var names []string
		for _, m := range p.listMachines(t) {
			names = append(names, m.GetName())
		}
		return len(names) == n && !slices.Contains(names, name), names
	})
}

// requestRemediation requests the replacement of a machine.
func (p pool) requestRemediation(t *testing.T, name string) {
	t.Helper()
	p.applyMergePatch(t, machineResource, name, `{"metadata":{"annotations":{"cluster.x-k8s.io/remediate-machine":""}}}`)
}

func TestAnUnhealthyMachineIsReplaced(t *testing.T) {
	t.Parallel()
	p := newPool(t, "unhealthy", 2)
	p.awaitReplicaStatus(t, 2)
	p.newMachineHealthCheck(t)
	bad := p.listMachines(t)[0]
	p.requestRemediation(t, bad.GetName())
	p.awaitReplacedMachine(t, bad.GetName(), 2)
	p.awaitObjectCounts(t, 2)
	said := testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return a.User.Username == component.WorkerIdentity && a.ObjectRef.Resource == "machines" &&
			a.ObjectRef.Name == bad.GetName() &&
			a.ObjectRef.Subresource == "status"
	})
	assert.NotEmpty(t, said, "it said OwnerRemediated=False/MachineDeleting before it was deleted")
}

// Worker and bridge die while a machine is remediated. The machine is replaced once.
func TestAnUnhealthyMachineIsReplacedWhileProcessesDie(t *testing.T) {
	t.Parallel()
	p := newPool(t, "crashed", 2)
	p.awaitReplicaStatus(t, 2)
	p.newMachineHealthCheck(t)
	for i, name := range []string{component.Worker, component.Bridge} {
		bad := p.listMachines(t)[0].GetName()
		p.requestRemediation(t, bad)
		killAndRestartProcess(t, name)
		p.awaitReplacedMachine(t, bad, 2)
		p.awaitAndRequireCreatedMachineCount(t, 2, 2+i+1)
	}
	p.awaitReplicaStatus(t, 2)
}

// awaitAndRequireCreatedMachineCount waits until the set has n machines with their clones, and asserts that the given
// number of machines was ever created.
func (p pool) awaitAndRequireCreatedMachineCount(t *testing.T, n, made int) {
	t.Helper()
	p.awaitObjectCounts(t, n)
	p.requireCreatedMachineCount(t, made)
}

// requireCreatedMachineCount asserts that n machines were ever created, and n clones of each template. A create request
// of a killed client ends with an error in the audit log, whether or not the API server has created the object. If a
// create request has this error, requireCreatedMachineCount counts its object if the object exists. If the object of
// such a create request does not exist, requireCreatedMachineCount accepts both counts, with and without the object.
func (p pool) requireCreatedMachineCount(t *testing.T, n int) {
	t.Helper()
	for _, resource := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
		list, err := p.resourceClient(resource).List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + p.poolName})
		require.NoError(t, err)
		made, perhaps := map[string]bool{}, map[string]bool{}
		for _, o := range list.Items {
			made[o.GetName()] = true
		}
		for _, a := range testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
			return a.Verb == "create" && a.ObjectRef.Namespace == p.name && a.ObjectRef.Resource == resource.Resource &&
				a.ObjectRef.Subresource == "" && strings.HasPrefix(a.ObjectRef.Name, p.poolName+"-")
		}) {
			switch {
			case a.ResponseStatus.Code < 300:
				made[a.ObjectRef.Name] = true
			case a.ResponseStatus.Code >= 500:
				perhaps[a.ObjectRef.Name] = true
			}
		}
		maps.DeleteFunc(perhaps, func(name string, _ bool) bool { return made[name] })
		assert.LessOrEqual(t, len(made), n, "%s made: %v", resource.Resource, made)
		assert.GreaterOrEqual(t, len(made)+len(perhaps), n, "%s made: %v; perhaps: %v", resource.Resource, made, perhaps)
	}
}

func TestSetIsScaledToTwentyAndBackToFiveWhileProcessesDie(t *testing.T) {
	p := newPool(t, "killed", 0)
	p.scale(t, 20)
	for _, name := range []string{component.Worker, component.Bridge, component.Temporal, component.ClusterAPICore} {
		rig.Eventually(t, "more machines", func() (bool, any) {
			n := len(p.listMachines(t))
			return n > 0, n
		})
		t.Logf("%s is killed when there are %d of 20 machines", name, len(p.listMachines(t)))
		killAndRestartProcess(t, name)
	}
	p.awaitAndRequireCreatedMachineCount(t, 20, 20)
	p.scale(t, 5)
	for _, name := range []string{component.Worker, component.Temporal, component.Bridge, component.ClusterAPICore} {
		killAndRestartProcess(t, name)
	}
	p.awaitObjectCounts(t, 5)
	p.awaitReplicaStatus(t, 5)
}
