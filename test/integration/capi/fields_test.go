//go:build integration

package capi

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// newField is a field of a newer version of Cluster API: the API server serves it in the spec, the template and the
// status, and the Go types of Millwright and Cluster API's core lack it.
const newField = "fieldOfANewerVersion"

// errNewerAPI is the result of serveNewerAPI.
var errNewerAPI error

// serveNewerAPI adds newField to the CustomResourceDefinitions of Machines, MachineSets and MachineDeployments.
func serveNewerAPI(ctx context.Context) error {
	s, err := openNamespace("")
	if err != nil {
		return err
	}
	definitions := s.client.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	)
	for _, resource := range []schema.GroupVersionResource{machineResource, machineSetResource, machineDeploymentResource} {
		definition, err := definitions.Get(ctx, resource.GroupResource().String(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		for _, version := range versions {
			if err := addNewField(version.(map[string]any), resource != machineResource); err != nil {
				return err
			}
		}
		if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		if _, err := definitions.Update(ctx, definition, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func addNewField(version map[string]any, hasTemplate bool) error {
	if version["name"] != machineResource.Version {
		return nil
	}
	paths := [][]string{{"spec"}, {"status"}}
	if hasTemplate {
		paths = append(paths, []string{"spec", "properties", "template", "properties", "spec"})
	}
	for _, path := range paths {
		at := slices.Concat([]string{"schema", "openAPIV3Schema", "properties"}, path, []string{"properties", newField})
		if err := unstructured.SetNestedField(version, map[string]any{"type": "string"}, at...); err != nil {
			return err
		}
	}
	return nil
}

// objectKey names an object of a namespace.
type objectKey struct {
	resource schema.GroupVersionResource
	name     string
}

// setNewField sets newField in the spec, the template and the status of an object.
func (s testNamespace) setNewField(t *testing.T, o objectKey) {
	t.Helper()
	spec := fmt.Sprintf(`{"spec":{%q:"x"}}`, newField)
	if o.resource != machineResource {
		spec = fmt.Sprintf(`{"spec":{%[1]q:"x","template":{"spec":{%[1]q:"x"}}}}`, newField)
	}
	rig.Eventually(t, "the API server stores "+newField, func() (bool, any) {
		s.applyMergePatch(t, o.resource, o.name, spec)
		_, err := s.resourceClient(o.resource).Patch(
			t.Context(),
			o.name,
			types.MergePatchType,
			fmt.Appendf(nil, `{"status":{%q:"x"}}`, newField),
			metav1.PatchOptions{},
			"status",
		)
		require.NoError(t, err)
		lost := s.pathsWithoutNewField(t, o)
		return len(lost) == 0, lost
	})
}

// pathsWithoutNewField returns the parts of an object that lack newField.
func (s testNamespace) pathsWithoutNewField(t *testing.T, o objectKey) (lost []string) {
	t.Helper()
	object := s.getObject(t, o.resource, o.name).Object
	paths := [][]string{{"spec"}, {"status"}}
	if o.resource != machineResource {
		paths = append(paths, []string{"spec", "template", "spec"})
	}
	for _, path := range paths {
		if value, _, _ := unstructured.NestedString(object, append(path, newField)...); value != "x" {
			lost = append(lost, fmt.Sprint(o.resource.Resource, " ", o.name, " ", path))
		}
	}
	return lost
}

// requireNewField asserts that objects still have newField.
func (s testNamespace) requireNewField(t *testing.T, after string, objects ...objectKey) {
	t.Helper()
	for _, o := range objects {
		require.Empty(t, s.pathsWithoutNewField(t, o), "after: %s", after)
	}
}

// machineKeys returns the machines of the set or deployment.
func (p pool) machineKeys(t *testing.T) (keys []objectKey) {
	t.Helper()
	for _, m := range p.listMachines(t) {
		keys = append(keys, objectKey{machineResource, m.GetName()})
	}
	return keys
}

// A field of a newer version of Cluster API survives all writes of Millwright to a deployment, its sets and machines.
func TestFieldsOfANewerVersionStayOnADeployment(t *testing.T) {
	t.Parallel()
	require.NoError(t, errNewerAPI)
	f := newFleet(t, "newer", 2)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	former := objectKey{machineSetResource, f.listSets(t)[0].GetName()}
	objects := append(f.machineKeys(t), former, objectKey{machineDeploymentResource, f.poolName})
	for _, o := range objects {
		f.setNewField(t, o)
	}
	f.awaitMachinesOfTemplate(t, f.name, 2)
	f.requireNewField(t, "status", objects...)

	f.scale(t, 3)
	f.awaitMachinesOfTemplate(t, f.name, 3)
	f.requireNewField(t, "scale", objects...)

	f.patchPool(
		t,
		`{"spec":{"template":{"metadata":{"labels":{"rank":"new"}},"spec":{"deletion":{"nodeDrainTimeoutSeconds":7}}}}}`,
	)
	f.awaitMachineLabel(t, "rank", "new")
	f.requireNewField(t, "change in place", objects...)

	f.newInfrastructureTemplate(t, "newer-b")
	f.setInfrastructureTemplate(t, "newer-b")
	f.awaitMachinesOfTemplate(t, "newer-b", 3)
	objects = []objectKey{former, {machineDeploymentResource, f.poolName}}
	f.requireNewField(t, "rollout", objects...)

	f.patchPool(t, `{"metadata":{"annotations":{"rollout.machine.sapcloud.io/rollback-to":"0"}}}`)
	f.awaitMachinesOfTemplate(t, f.name, 3)
	f.requireNewField(t, "rollback", objects...)

	require.NoError(t, f.resourceClient(f.resource).Delete(t.Context(), f.poolName, metav1.DeleteOptions{}))
	f.awaitPoolGone(t)
}

// A field of a newer version of Cluster API survives all writes of Millwright to a set and its machines.
func TestFieldsOfANewerVersionStayOnASet(t *testing.T) {
	t.Parallel()
	require.NoError(t, errNewerAPI)
	p := newPool(t, "newerset", 1)
	p.awaitReplicaStatus(t, 1)
	set, machine := objectKey{machineSetResource, p.poolName}, p.machineKeys(t)[0]
	p.setNewField(t, set)
	p.setNewField(t, machine)

	p.applyMergePatch(t, machine.resource, machine.name, `{"metadata":{"labels":{"pool":"elsewhere"}}}`)
	rig.Eventually(t, "the set has released the machine, and has another", func() (bool, any) {
		controller := metav1.GetControllerOf(p.getObject(t, machine.resource, machine.name))
		return controller == nil && len(p.listMachines(t)) == 1, controller
	})
	p.requireNewField(t, "release", set, machine)
	p.applyMergePatch(t, machine.resource, machine.name, fmt.Sprintf(`{"metadata":{"labels":{"pool":%q}}}`, p.poolName))
	rig.Eventually(t, "the set has adopted the machine, and has deleted the other", func() (bool, any) {
		keys := p.machineKeys(t)
		return slices.Equal(keys, []objectKey{machine}), keys
	})
	assert.NotNil(t, metav1.GetControllerOf(p.getObject(t, machine.resource, machine.name)))
	p.requireNewField(t, "adoption", set, machine)

	p.handOver(t, component.UpstreamFilterValue, upstreamSetFinalizer)
	p.handOver(t, component.MillwrightFilterValue, millwrightFinalizer)
	p.requireNewField(t, "hand-over", set, machine)

	const hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/test"
	p.applyMergePatch(t, machine.resource, machine.name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, hook))
	p.patchPool(t, `{"spec":{"replicas":0,"template":{"spec":{"deletion":{"nodeDrainTimeoutSeconds":7}}}}}`)
	rig.Eventually(t, "the machine that is being deleted has the shorter timeout", func() (bool, any) {
		m := p.getObject(t, machine.resource, machine.name)
		drain, _, _ := unstructured.NestedInt64(m.Object, "spec", "deletion", "nodeDrainTimeoutSeconds")
		return m.GetDeletionTimestamp() != nil && drain == 7, drain
	})
	p.requireNewField(t, "change while it is being deleted", set, machine)
	p.applyMergePatch(t, machine.resource, machine.name, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, hook))
	p.awaitObjectCounts(t, 0)
	require.NoError(t, p.resourceClient(p.resource).Delete(t.Context(), p.poolName, metav1.DeleteOptions{}))
	p.awaitPoolGone(t)
}

// A person's change of a machine stays if the template of the set lacks the field, and the set does not write the
// machine.
func TestAPersonsChangeOfAMachineStays(t *testing.T) {
	t.Parallel()
	p := newPool(t, "person", 1)
	p.awaitReplicaStatus(t, 1)
	name := p.listMachines(t)[0].GetName()
	p.forceReconcile(t)
	before := len(p.patchesOfMillwright(t, name))
	p.applyMergePatch(t, machineResource, name, `{"spec":{
		"deletion":{"nodeDrainTimeoutSeconds":60},"minReadySeconds":1,"readinessGates":[{"conditionType":"NodeReady"}]}}`)
	p.forceReconcile(t)
	p.forceReconcile(t)
	assert.Len(t, p.patchesOfMillwright(t, name), before)
	m := p.getObject(t, machineResource, name)
	for field, want := range map[string]any{"minReadySeconds": int64(1), "readinessGates": 1} {
		value, _, _ := unstructured.NestedFieldCopy(m.Object, "spec", field)
		if list, isList := value.([]any); isList {
			value = len(list)
		}
		assert.Equal(t, want, value, field)
	}
}

// patchesOfMillwright returns the requests with which the worker changed a machine or one of its clones.
func (p pool) patchesOfMillwright(t *testing.T, name string) []rig.AuditedRequest {
	t.Helper()
	return testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return a.User.Username == component.WorkerIdentity && a.Verb == "patch" && a.ObjectRef.Namespace == p.name &&
			a.ObjectRef.Name == name
	})
}

// clusterctl move and a restore make all fields of an object their own, and an API server can lose the managed fields.
// A label that later leaves the template of a deployment nevertheless leaves its sets, its machines and their clones.
func TestLabelsLeaveObjectsWithoutManagedFields(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "moved", 1, "labels: {pool: NAME}", "labels: {pool: moved, tier: old}")
	f.awaitMachinesOfTemplate(t, f.name, 1)
	set, machine := f.listSets(t)[0].GetName(), f.listMachines(t)[0].GetName()
	objects := []objectKey{
		{
			machineSetResource,
			set,
		},
		{machineResource, machine},
		{devMachineResource, machine},
		{kubeadmConfigResource, machine},
	}
	for _, o := range objects {
		require.Equal(t, "old", f.getObject(t, o.resource, o.name).GetLabels()["tier"], o)
	}
	for _, o := range objects[:2] {
		f.applyMergePatch(t, o.resource, o.name, `{"metadata":{"managedFields":[{}]}}`) // removes all managed fields
	}
	f.forceReconcile(t)
	for i, manager := range []string{"millwright-machinedeployment", "millwright-machineset"} {
		rig.Eventually(t, manager+" has claimed its fields", func() (bool, any) {
			entries := f.getObject(t, objects[i].resource, objects[i].name).GetManagedFields()
			return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager }), entries
		})
	}
	f.patchPool(t, `{"spec":{"template":{"metadata":{"labels":{"tier":null}}}}}`)
	for _, o := range objects[:2] {
		rig.Eventually(t, fmt.Sprint("the label leaves ", o), func() (bool, any) {
			labels := f.getObject(t, o.resource, o.name).GetLabels()
			_, found := labels["tier"]
			return !found, labels
		})
	}
	template, _, _ := unstructured.NestedStringMap(
		f.getObject(t, machineSetResource, set).Object, "spec", "template", "metadata", "labels",
	)
	assert.NotContains(t, template, "tier")
	for _, o := range objects[2:] {
		assert.NotContains(t, f.getObject(t, o.resource, o.name).GetLabels(), "tier", o)
	}
	require.NoError(t, f.resourceClient(f.resource).Delete(t.Context(), f.poolName, metav1.DeleteOptions{}))
	f.awaitPoolGone(t)
}
