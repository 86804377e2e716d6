//go:build integration

package capi

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// The finalizers of the controllers of MachineSets and MachineDeployments.
const (
	millwrightFinalizer         = "machine.sapcloud.io/cluster-api"
	upstreamSetFinalizer        = "cluster.x-k8s.io/machineset"
	upstreamDeploymentFinalizer = "cluster.x-k8s.io/machinedeployment"
)

func TestASetIsHandedOverAndBackWithoutReplacingAMachine(t *testing.T) {
	t.Parallel()
	p := newPool(t, "handed", 0)
	p.handOver(t, component.UpstreamFilterValue, upstreamSetFinalizer)
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		fmt.Sprintf(
			`{"spec":{"replicas":2,"template":{
				"metadata":{"labels":{%q:%q,"leaves":"x"}},
				"spec":{"deletion":{"nodeDrainTimeoutSeconds":60},"readinessGates":[{"conditionType":"NodeReady"}]}}}}`,
			component.WatchFilterLabel,
			component.UpstreamFilterValue,
		),
	)
	p.awaitReplicaStatus(t, 2)
	p.awaitMachineLabel(t, "leaves", "x")
	before := p.machineUIDs(t)
	p.logManagedFields(t, "under Cluster API")

	p.handOver(t, component.MillwrightFilterValue, millwrightFinalizer)
	p.scale(t, 3)
	p.awaitReplicaStatus(t, 3)
	assert.Subset(t, p.machineUIDs(t), before, "Millwright keeps the machines of Cluster API")
	third := p.machineUIDs(t)
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		`{"spec":{"template":{"metadata":{"labels":{"by":"millwright","leaves":null}},"spec":{"deletion":null,"readinessGates":null}}}}`,
	)
	p.awaitMachineLabel(t, "by", "millwright")
	for _, m := range p.listMachines(t) { // also the machines that Cluster API created lose what the template lost
		assert.NotContains(t, m.GetLabels(), "leaves")
		assert.NotContains(t, p.getObject(t, devMachineResource, m.GetName()).GetLabels(), "leaves")
		assert.NotContains(t, p.getObject(t, kubeadmConfigResource, m.GetName()).GetLabels(), "leaves")
		drain, _, _ := unstructured.NestedInt64(m.Object, "spec", "deletion", "nodeDrainTimeoutSeconds")
		assert.Zero(t, drain)
		gates, _, _ := unstructured.NestedSlice(m.Object, "spec", "readinessGates")
		assert.Empty(t, gates)
	}
	p.logManagedFields(t, "under Millwright")

	p.handOver(t, component.UpstreamFilterValue, upstreamSetFinalizer)
	p.scale(t, 4)
	p.awaitReplicaStatus(t, 4)
	assert.Subset(t, p.machineUIDs(t), third, "Cluster API keeps the machines of Millwright")
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		`{"spec":{"template":{"metadata":{"labels":{"by":null,"came":"back"}}}}}`,
	)
	p.awaitMachineLabel(t, "came", "back")
	p.logManagedFields(t, "under Cluster API again")
	for _, m := range p.listMachines(t) { // also what Millwright wrote leaves the machines with the template
		for _, resource := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
			o := p.getObject(t, resource, m.GetName())
			assert.NotContains(t, o.GetLabels(), "by", "%s %s", resource.Resource, m.GetName())
			for _, entry := range o.GetManagedFields() {
				assert.NotContains(t, entry.Manager, "millwright", "%s %s", resource.Resource, m.GetName())
			}
		}
		clone := p.getObject(t, devMachineResource, m.GetName())
		assert.Contains(t, clone.GetAnnotations(), "cluster.x-k8s.io/cloned-from-name")
	}
	assert.Len(t, p.machineUIDs(t), 4)
}

// logManagedFields logs which field managers own which fields of the oldest machine of the set and of its clones.
func (p pool) logManagedFields(t *testing.T, when string) {
	t.Helper()
	machines := p.listMachines(t)
	slices.SortFunc(machines, func(a, b unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	for _, resource := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
		o := p.getObject(t, resource, machines[0].GetName())
		t.Logf("%s: %s %s", when, resource.Resource, o.GetName())
		for _, entry := range o.GetManagedFields() {
			if entry.Subresource == "" {
				t.Logf("  %s (%s): %s", entry.Manager, entry.Operation, entry.FieldsV1.GetRawBytes())
			}
		}
	}
}

// handOver sets the watch filter of the set or deployment, and waits until this finalizer is the only finalizer of the
// object. A hand-over to Millwright pauses the object and its sets.
func (p pool) handOver(t *testing.T, filter, finalizer string) {
	t.Helper()
	if filter == component.MillwrightFilterValue {
		resume := p.pauseForHandOver(t)
		defer resume()
	}
	p.setWatchFilter(t, filter)
	p.awaitFinalizer(t, finalizer)
}

// pauseForHandOver pauses the set, or the deployment and its sets, and waits until Cluster API's controllers have set
// the condition Paused. The returned function resumes them.
func (p pool) pauseForHandOver(t *testing.T) (resume func()) {
	t.Helper()
	paused := []pool{p}
	if p.resource == machineDeploymentResource {
		for _, set := range (fleet{p}).listSets(t) {
			paused = append(paused, pool{p.testNamespace, machineSetResource, set.GetName()})
		}
	}
	const annotation = "cluster.x-k8s.io/paused"
	for _, o := range paused {
		o.patchPool(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, annotation))
	}
	for _, o := range paused {
		rig.Eventually(t, o.poolName+" is paused", func() (bool, any) {
			status, _, message := o.readCondition(t, "Paused")
			return status == "True", message
		})
	}
	return func() {
		for _, o := range paused {
			o.patchPool(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, annotation))
		}
	}
}

// awaitFinalizer waits until this finalizer is the only finalizer of the set or deployment.
func (p pool) awaitFinalizer(t *testing.T, finalizer string) {
	t.Helper()
	rig.Eventually(t, "it has the finalizer "+finalizer, func() (bool, any) {
		finalizers := p.getObject(t, p.resource, p.poolName).GetFinalizers()
		return slices.Equal(finalizers, []string{finalizer}), finalizers
	})
}

// machineUIDs returns the UIDs of the machines of the set or deployment.
func (p pool) machineUIDs(t *testing.T) (uids []types.UID) {
	t.Helper()
	for _, m := range p.listMachines(t) {
		uids = append(uids, m.GetUID())
	}
	return uids
}

// awaitMachineLabel waits until all machines of the set have a label.
func (p pool) awaitMachineLabel(t *testing.T, key, value string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("all machines have the label %s=%s", key, value), func() (bool, any) {
		var values []string
		for _, m := range p.listMachines(t) {
			values = append(values, m.GetLabels()[key])
		}
		return !slices.ContainsFunc(values, func(v string) bool { return v != value }), values
	})
}
