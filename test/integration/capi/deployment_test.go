//go:build integration

package capi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// fleet is a MachineDeployment that Millwright reconciles.
type fleet struct{ pool }

// newFleet makes a MachineDeployment of this size in the shared cluster and returns when the control plane of the
// cluster runs. The replacements are applied to the text of the manifest.
func newFleet(t *testing.T, name string, replicas int, replacements ...string) fleet {
	t.Helper()
	return awaitSharedNamespace(t).newFleet(t, name, replicas, replacements...)
}

// newFleet creates a MachineDeployment with this number of replicas in the namespace.
func (s testNamespace) newFleet(t *testing.T, name string, replicas int, replacements ...string) fleet {
	t.Helper()
	pairs := slices.Concat(
		replacements,
		[]string{"NAME", name, "CLUSTER", s.name, "replicas: 0", fmt.Sprintf("replicas: %d", replicas)},
	)
	require.NoError(t, applyManifest(t.Context(), s.name, "deployment.yaml", pairs...))
	return fleet{pool{s, machineDeploymentResource, name}}
}

// rolloutReplacement returns a replacement that sets spec.rollout in the manifest.
func rolloutReplacement(text string) []string {
	return []string{"rollout: {strategy: {type: RollingUpdate}}", "rollout: " + text}
}

// newInfrastructureTemplate makes an infrastructure template like the template of the cluster. If a value and a path
// are given, the field at this path has the other value.
func (s testNamespace) newInfrastructureTemplate(t *testing.T, name string, valueAndPath ...string) {
	t.Helper()
	o := s.getObject(t, devMachineTemplateResource, s.name)
	fresh := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "spec": o.Object["spec"]},
	}
	fresh.SetName(name)
	if len(valueAndPath) > 0 {
		value, path := valueAndPath[0], append([]string{"spec", "template", "spec"}, valueAndPath[1:]...)
		require.NoError(t, unstructured.SetNestedField(fresh.Object, value, path...))
	}
	_, err := s.resourceClient(devMachineTemplateResource).Create(t.Context(), fresh, metav1.CreateOptions{})
	require.NoError(t, err)
}

// setInfrastructureTemplate makes the deployment refer to another infrastructure template.
func (f fleet) setInfrastructureTemplate(t *testing.T, name string) {
	t.Helper()
	f.patchPool(t, fmt.Sprintf(`{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q}}}}}`, name))
}

// countMachinesByTemplate returns the number of infrastructure machines that were made from each template.
func (f fleet) countMachinesByTemplate(t *testing.T) map[string]int {
	t.Helper()
	list, err := f.resourceClient(devMachineResource).
		List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + f.poolName})
	require.NoError(t, err)
	made := map[string]int{}
	for _, o := range list.Items {
		made[o.GetAnnotations()["cluster.x-k8s.io/cloned-from-name"]]++
	}
	return made
}

// awaitMachinesOfTemplate waits until the fleet has exactly n machines, and all are made from a template. The status
// must report all of them as available and up to date.
func (f fleet) awaitMachinesOfTemplate(t *testing.T, template string, n int) {
	t.Helper()
	f.awaitUpToDateMachines(t, template, n, n)
}

// awaitUpToDateMachines waits until the fleet has exactly n machines, and all are made from a template. The status must
// report n available machines, and upToDate machines of the deployment's template.
func (f fleet) awaitUpToDateMachines(t *testing.T, template string, n, upToDate int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines of template %s, and no others", n, template), func() (bool, any) {
		made, counts := f.countMachinesByTemplate(t), f.statusReplicaCounts(t)
		return len(made) == 1 && made[template] == n &&
				slices.Equal(counts, []int64{int64(n), int64(n), int64(n), int64(upToDate)}), fmt.Sprint(
				made,
				counts,
				f.conditionLines(t),
			)
	})
	f.awaitObjectCounts(t, n)
}

// conditionLines returns conditions of the deployment, one per line, for the message of a failed test.
func (f fleet) conditionLines(t *testing.T) (lines []string) {
	t.Helper()
	for _, kind := range []string{"Available", "RollingOut", "ScalingUp", "ScalingDown", "Paused", "Blocked", "Progressing"} {
		status, reason, message := f.readCondition(t, kind)
		lines = append(lines, fmt.Sprintf("%s=%s/%s %s", kind, status, reason, message))
	}
	return lines
}

// listSets returns the sets of the deployment.
func (f fleet) listSets(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list, err := f.resourceClient(machineSetResource).
		List(t.Context(), metav1.ListOptions{LabelSelector: "cluster.x-k8s.io/deployment-name=" + f.poolName})
	require.NoError(t, err)
	return list.Items
}

// revision returns the revision of the deployment.
func (f fleet) revision(t *testing.T) string {
	t.Helper()
	return f.getObject(t, machineDeploymentResource, f.poolName).GetAnnotations()["machinedeployment.clusters.x-k8s.io/revision"]
}

// kubeRef returns the reference to the set or deployment that its workflows use.
func (p pool) kubeRef(t *testing.T) kube.Ref {
	t.Helper()
	return kube.Ref{Namespace: p.name, Name: p.poolName, UID: string(p.getObject(t, p.resource, p.poolName).GetUID())}
}

// sendRequestByUpdate sends a request to the deployment by an update of its workflow, and returns the result.
func (f fleet) sendRequestByUpdate(t *testing.T, in run.RequestInput) string {
	t.Helper()
	in.Actor = "ann"
	handle, err := testRig.Temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: rig.Installation.ID(run.KindClusterAPIDeployment, f.kubeRef(t)), UpdateName: run.RequestMessageName,
		WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{in},
	})
	require.NoError(t, err)
	var answer string
	require.NoError(t, handle.Get(t.Context(), &answer))
	return answer
}

// rolloutBounds are the limits that a deployment guarantees during a rollout.
type rolloutBounds struct {
	maxMachines  int // maximum number of machines, including machines that are being deleted
	minAvailable int // minimum number of available machines that are not being deleted
}

// watchBounds watches every event of the fleet's machines. The returned function verdict fails the test if a bound was
// ever broken. Call watchBounds only when all replicas of the deployment are available.
func (f fleet) watchBounds(t *testing.T, want rolloutBounds) (verdict func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	options := metav1.ListOptions{LabelSelector: "pool=" + f.poolName}
	list, err := f.resourceClient(machineResource).List(ctx, options)
	require.NoError(t, err)
	available := map[string]bool{}
	for i := range list.Items {
		available[list.Items[i].GetName()] = isMachineAvailable(&list.Items[i])
	}
	options.ResourceVersion = list.GetResourceVersion()
	watch, err := f.resourceClient(machineResource).Watch(ctx, options)
	require.NoError(t, err)
	var broken []string
	events, peak, low, over := 0, 0, want.maxMachines, make(chan struct{})
	go func() {
		defer close(over)
		for e := range watch.ResultChan() {
			m, is := e.Object.(*unstructured.Unstructured)
			if !is && ctx.Err() != nil {
				return // the watch was stopped
			}
			if !is {
				broken = append(broken, fmt.Sprintf("the watch ended: %v", e.Object))
				return
			}
			events++
			if available[m.GetName()] = isMachineAvailable(m); e.Type == "DELETED" {
				delete(available, m.GetName())
			}
			n := 0
			for _, is := range available {
				if is {
					n++
				}
			}
			peak, low = max(peak, len(available)), min(low, n)
			if len(available) > want.maxMachines || n < want.minAvailable {
				broken = append(broken, fmt.Sprintf("%s %s: %d machines, %d available", e.Type, m.GetName(), len(available), n))
			}
		}
	}()
	stop := func() {
		cancel()
		watch.Stop()
		<-over
	}
	t.Cleanup(stop)
	return func() {
		t.Helper()
		stop()
		t.Logf("%d events: at most %d machines, at least %d available", events, peak, low)
		assert.Empty(t, broken, "at most %d machines, at least %d available", want.maxMachines, want.minAvailable)
		assert.Positive(t, events)
	}
}

func isMachineAvailable(m *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(m.Object, "status", "conditions")
	return m.GetDeletionTimestamp() == nil && slices.ContainsFunc(list, func(item any) bool {
		c := item.(map[string]any)
		return c["type"] == "Available" && c["status"] == "True"
	})
}

func TestDeploymentIsCreatedRolledOutAndDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "fleet", 3)
	f.awaitMachinesOfTemplate(t, f.name, 3)
	d := f.getObject(t, machineDeploymentResource, f.poolName)
	phase, _, _ := unstructured.NestedString(d.Object, "status", "phase")
	assert.Equal(t, "Running", phase)
	for kind, want := range map[string]string{
		"Available": "True/Available", "MachinesReady": "True/Ready", "MachinesUpToDate": "True/UpToDate", "RollingOut": "False/NotRollingOut",
		"ScalingUp": "False/NotScalingUp", "ScalingDown": "False/NotScalingDown", "Remediating": "False/NotRemediating", "Deleting": "False/NotDeleting",
		"Paused": "False/NotPaused",
	} {
		status, reason, message := conditionOfObject(t, d, kind)
		assert.Equal(t, want, status+"/"+reason, "%s: %s", kind, message)
	}
	assert.Equal(t, []string{millwrightFinalizer}, d.GetFinalizers())
	require.Len(t, d.GetOwnerReferences(), 1, "it stands alone, so the Cluster owns it")
	assert.Equal(t, "Cluster", d.GetOwnerReferences()[0].Kind)
	sets := f.listSets(t)
	require.Len(t, sets, 1)
	owner := metav1.GetControllerOf(&sets[0])
	require.NotNil(t, owner)
	assert.Equal(t, d.GetUID(), owner.UID)
	assert.Equal(t, component.MillwrightFilterValue, sets[0].GetLabels()[component.WatchFilterLabel])
	assert.Equal(t, f.name, sets[0].GetLabels()[clusterLabel])
	assert.Equal(t, "1", sets[0].GetAnnotations()["machinedeployment.clusters.x-k8s.io/revision"])
	for _, m := range f.listMachines(t) {
		assert.Equal(t, component.UpstreamFilterValue, m.GetLabels()[component.WatchFilterLabel])
		assert.Equal(t, sets[0].GetLabels()["machine-template-hash"], m.GetLabels()["machine-template-hash"])
		assert.Equal(t, f.poolName, m.GetLabels()["cluster.x-k8s.io/deployment-name"])
	}

	rig.Eventually(t, "the bridge counts its machines", func() (bool, any) {
		n := testRig.ReadMetric(t, component.Bridge, "millwright_cluster_api_deployment_status_available_replicas")
		return n >= 3, n
	})

	verdict := f.watchBounds(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	f.newInfrastructureTemplate(t, "fleet-2")
	f.setInfrastructureTemplate(t, "fleet-2")
	f.awaitConditionMessage(t, "RollingOut", "True", "RollingOut", "not up-to-date replica")
	f.awaitMachinesOfTemplate(t, "fleet-2", 3)
	verdict()
	f.awaitConditionMessage(t, "RollingOut", "False", "NotRollingOut", "")
	assert.Equal(t, "2", f.revision(t))
	assert.Len(t, f.listSets(t), 2, "the old set stays, so that it can be put back")

	ref := f.kubeRef(t)
	require.NoError(t, f.resourceClient(machineDeploymentResource).Delete(t.Context(), f.poolName, metav1.DeleteOptions{}))
	f.awaitPoolGone(t)
	assert.Empty(t, f.listMachines(t))
	assert.Empty(t, f.listSets(t))
	f.awaitObjectCounts(t, 0)
	rig.Eventually(t, "its workflow has ended", func() (bool, any) {
		open := testRig.WorkflowRuns(
			t,
			fmt.Sprintf(
				"WorkflowId = %q AND ExecutionStatus = 'Running'",
				rig.Installation.ID(run.KindClusterAPIDeployment, ref),
			),
		)
		return len(open) == 0, open
	})
}

// awaitOutdatedNodes waits until n nodes of the fleet have the taint with which Cluster API's core marks nodes of an
// old template.
func (f fleet) awaitOutdatedNodes(t *testing.T, n int) {
	t.Helper()
	nodes := f.workloadClient(t).CoreV1().Nodes()
	rig.Eventually(t, fmt.Sprintf("%d nodes have the taint of an old template", n), func() (bool, any) {
		var tainted []string
		for _, m := range f.awaitJoinedMachines(t, len(f.listMachines(t))) {
			name := nodeNameOfMachine(m)
			node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			if slices.ContainsFunc(
				node.Spec.Taints,
				func(taint corev1.Taint) bool { return taint.Key == "node.cluster.x-k8s.io/outdated-revision" },
			) {
				tainted = append(tainted, name)
			}
		}
		return len(tainted) == n, tainted
	})
}

// With the strategy OnDelete, a machine is replaced only when a person deletes the machine.
func TestOnDeleteReplacesOnlyMachinesThatAPersonDeletesOrThatAreUnhealthy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "ondelete", 2, rolloutReplacement("{strategy: {type: OnDelete}}")...)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	before := f.machineUIDs(t)
	f.awaitNoWrites(t) // after this wait, only Millwright's writes make Cluster API's core reconcile again
	f.newInfrastructureTemplate(t, "ondelete-2")
	f.setInfrastructureTemplate(t, "ondelete-2")
	rig.Eventually(t, "the old set creates no machines any more", func() (bool, any) {
		var disabled []string
		for _, s := range f.listSets(t) {
			disabled = append(disabled, s.GetAnnotations()["cluster.x-k8s.io/disable-machine-create"])
		}
		return len(disabled) == 2 && slices.Contains(disabled, "true"), disabled
	})
	f.awaitConditionMessage(
		t,
		"RollingOut",
		"True",
		"RollingOut",
		"Rolling out 2 not up-to-date replicas\n* DevMachine is not up-to-date",
	)
	f.awaitOutdatedNodes(t, 2)
	f.forceReconcile(t)
	assert.ElementsMatch(t, before, f.machineUIDs(t), "nobody has deleted a machine")

	gone := f.listMachines(t)[0]
	require.NoError(t, f.resourceClient(machineResource).Delete(t.Context(), gone.GetName(), metav1.DeleteOptions{}))
	rig.Eventually(t, "one machine is of the new template, and one of the old", func() (bool, any) {
		made, counts := f.countMachinesByTemplate(t), f.statusReplicaCounts(t)
		return fmt.Sprint(made) == "map[ondelete-2:1 shared:1]" &&
				slices.Equal(counts, []int64{2, 2, 2, 1}), fmt.Sprint(
				made,
				counts,
				f.conditionLines(t),
			)
	})
	stayed := slices.DeleteFunc(f.machineUIDs(t), func(uid types.UID) bool { return !slices.Contains(before, uid) })
	assert.Len(t, stayed, 1, "the machine that nobody has deleted")

	for _, m := range f.listMachines(t) {
		if m.GetUID() == stayed[0] {
			f.markForRemediation(t, m.GetName())
		}
	}
	f.awaitMachinesOfTemplate(t, "ondelete-2", 2)
}

// At the time in spec.rollout.after, new machines of the same template replace all machines.
func TestRolloutBeginsAtTheTimeInRolloutAfter(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "after", 1)
	f.awaitMachinesOfTemplate(t, f.name, 1)
	before := f.machineUIDs(t)
	former := []types.UID{f.listSets(t)[0].GetUID()}
	due := time.Now().Add(8 * time.Second).UTC().Truncate(time.Second)
	f.patchPool(t, fmt.Sprintf(`{"spec":{"rollout":{"after":%q}}}`, due.Format(time.RFC3339)))
	rig.Eventually(t, "the machine is another one", func() (bool, any) {
		uids := f.machineUIDs(t)
		return len(uids) == 1 && uids[0] != before[0], fmt.Sprint(uids, f.conditionLines(t))
	})
	f.awaitMachinesOfTemplate(t, f.name, 1)
	assert.Equal(t, "2", f.revision(t))
	for _, o := range slices.Concat(f.listMachines(t), f.listSets(t)) {
		if !slices.Contains(former, o.GetUID()) {
			assert.False(
				t,
				o.GetCreationTimestamp().Time.Before(due),
				"%s %s was made before it was due",
				o.GetKind(),
				o.GetName(),
			)
		}
	}
}

// A rollout does not begin while its template does not exist. The rollout begins as soon as the template is created.
func TestRolloutWaitsForAMissingTemplate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "missing", 1)
	f.awaitMachinesOfTemplate(t, f.name, 1)
	before := f.machineUIDs(t)
	f.setInfrastructureTemplate(t, "missing-2")
	f.awaitConditionMessage(t, "Blocked", "True", "TemplateNotFound", "missing-2")
	f.forceReconcile(t)
	assert.Equal(t, before, f.machineUIDs(t))
	f.requireObjectCounts(t, 1)
	verdict := f.watchBounds(t, rolloutBounds{maxMachines: 2, minAvailable: 1})
	// TestATemplateSignalsTheDeploymentsThatWaitForIt of k8sbridge/watch proves that the new template wakes the
	// deployment
	f.newInfrastructureTemplate(t, "missing-2")
	rig.Eventually(t, "a machine of the new template", func() (bool, any) {
		made := f.countMachinesByTemplate(t)
		return made["missing-2"] == 1, fmt.Sprint(made, f.conditionLines(t))
	})
	f.awaitMachinesOfTemplate(t, "missing-2", 1)
	verdict()
	rig.Eventually(t, "nothing blocks it any more", func() (bool, any) {
		status, _, message := f.readCondition(t, "Blocked")
		return status == "", message
	})
}

// resourceVersions returns the resourceVersions of the deployment, its sets, its machines and their clones, by kind and
// name.
func (f fleet) resourceVersions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"deployment": f.getObject(t, machineDeploymentResource, f.poolName).GetResourceVersion()}
	for _, s := range f.listSets(t) {
		all["set "+s.GetName()] = s.GetResourceVersion()
	}
	for _, kind := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
		list, err := f.resourceClient(kind).List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + f.poolName})
		require.NoError(t, err)
		for _, o := range list.Items {
			all[kind.Resource+" "+o.GetName()] = o.GetResourceVersion()
		}
	}
	return all
}

// awaitNoWrites waits until no object of the fleet was written for ten seconds. The status of Cluster API does not show
// whether its work is complete.
func (f fleet) awaitNoWrites(t *testing.T) {
	t.Helper()
	before, since := f.resourceVersions(t), time.Now()
	rig.Eventually(t, "nobody has written for ten seconds", func() (bool, any) {
		now := f.resourceVersions(t)
		if fmt.Sprint(now) != fmt.Sprint(before) {
			before, since = now, time.Now()
		}
		return time.Since(since) > 10*time.Second, now
	})
}

// fieldManagers returns the field managers of the fleet's objects by kind, and logs the fields of each manager.
func (f fleet) fieldManagers(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	note := func(kind string, o *unstructured.Unstructured) {
		for _, entry := range o.GetManagedFields() {
			if manager := strings.TrimSpace(entry.Manager + " " + entry.Subresource); !slices.Contains(names[kind], manager) {
				names[kind] = append(names[kind], manager)
			}
			if entry.FieldsV1 != nil {
				t.Logf(
					"%s %s: %s %s %s: %s",
					kind,
					o.GetName(),
					entry.Manager,
					entry.Operation,
					entry.Subresource,
					entry.FieldsV1.GetRawString(),
				)
			}
		}
	}
	note("deployment", f.getObject(t, machineDeploymentResource, f.poolName))
	for _, s := range f.listSets(t) {
		note("set", &s)
	}
	for _, m := range f.listMachines(t)[:1] { // all machines have the same managers
		note("machine", &m)
	}
	return names
}
