//go:build integration

package capi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

var clusterClassResource = newResource("", "clusterclasses")

// topologyLabel is the label with the name of a MachineDeployment in its topology.
const topologyLabel = "topology.cluster.x-k8s.io/deployment-name"

// fleetOfTopology waits until core has made the MachineDeployment with a name in the topology.
func (s testNamespace) fleetOfTopology(t *testing.T, name string) (f fleet) {
	t.Helper()
	rig.Eventually(t, "the topology has made "+name, func() (bool, any) {
		list, err := s.resourceClient(machineDeploymentResource).
			List(t.Context(), metav1.ListOptions{LabelSelector: topologyLabel + "=" + name})
		require.NoError(t, err)
		if len(list.Items) != 1 {
			return false, len(list.Items)
		}
		f = fleet{pool{s, machineDeploymentResource, list.Items[0].GetName()}}
		return true, nil
	})
	return f
}

// awaitVersions waits until the machines of a MachineDeployment have these versions, and no others. Core looks at the
// topology only when an object of the Cluster changes, so awaitVersions changes the Cluster.
func (f fleet) awaitVersions(t *testing.T, want map[string]int) {
	t.Helper()
	f.awaitTopology(t, fmt.Sprintf("%s has machines of versions %v", f.poolName, want), func() (bool, any) {
		list, err := f.resourceClient(machineResource).
			List(t.Context(), metav1.ListOptions{LabelSelector: "cluster.x-k8s.io/deployment-name=" + f.poolName})
		require.NoError(t, err)
		versions := map[string]int{}
		for _, m := range list.Items {
			version, _, _ := unstructured.NestedString(m.Object, "spec", "version")
			versions[version]++
		}
		return maps.Equal(versions, want), versions
	})
}

// awaitTopology waits until a condition holds, and wakes core meanwhile.
func (s testNamespace) awaitTopology(t *testing.T, what string, holds func() (bool, any)) {
	t.Helper()
	var woken time.Time
	rig.Eventually(t, what, func() (bool, any) {
		if time.Since(woken) > topologyWakeInterval {
			woken = time.Now()
			s.applyMergePatch(t, clusterResource, s.name,
				fmt.Sprintf(`{"metadata":{"annotations":{"example.com/wake":%q}}}`, woken))
		}
		return holds()
	})
}

// infrastructureTemplates returns the names of the infrastructure templates of the MachineSets of a MachineDeployment.
func (f fleet) infrastructureTemplates(t *testing.T) (names []string) {
	t.Helper()
	for _, set := range f.listSets(t) {
		name, _, _ := unstructured.NestedString(set.Object, "spec", "template", "spec", "infrastructureRef", "name")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// The life of a Cluster of a ClusterClass with two worker classes, as a platform team has it: an autoscaler sizes one of
// them; an upgrade of the topology's version waits for an approval; a new template of the class is rolled out, pinned
// back and rolled out again; the templates of former revisions go; the Cluster is deleted.
func TestTheLifeOfAClusterOfAClass(t *testing.T) {
	t.Parallel()
	const old, next = "v1.36.2", "v1.36.3"
	s := newNamespace(t, "class", "topology.yaml")
	templates := `"bootstrap":{"templateRef":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","name":"class"}},
		"infrastructure":{"templateRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachineTemplate","name":"class"}}`
	s.applyJSONPatch(
		t,
		clusterClassResource,
		`[{"op":"add","path":"/spec/workers/machineDeployments/-","value":{"class":"scaled",`+templates+`}}]`,
	)
	s.patchTopology(
		t,
		`[{"op":"add","path":"/spec/topology/workers/machineDeployments/-","value":{"class":"scaled","name":"scaled","metadata":{
		"labels":{"cluster.x-k8s.io/watch-filter":"millwright"},
		"annotations":{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size":"1","cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size":"5",
			"rollout.machine.sapcloud.io/revision-history-limit":"0"}}}}]`,
	)
	s.awaitMachines(t, 3)
	workers, scaled := s.fleetOfTopology(t, "workers"), s.fleetOfTopology(t, "scaled")
	run := func(arguments ...string) string {
		t.Helper()
		return strings.Join(testRig.RunMillwright(t, arguments...), "\n")
	}
	named := "machinedeployment.cluster.x-k8s.io/" + s.name + "/" + workers.poolName

	// the autoscaler writes the subresource scale; the topology does not own the size
	_, err := s.resourceClient(machineDeploymentResource).Patch(t.Context(), scaled.poolName, types.MergePatchType,
		[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
	require.NoError(t, err)
	s.awaitMachines(t, 5)
	s.awaitReconciledTopology(t)
	scaled.awaitVersions(t, map[string]int{old: 3})

	// an upgrade of the topology's version waits for an approval after the first machine
	testRig.CreatePolicy(t, s.name, workers.poolName, v1alpha1.RolloutPolicySpec{
		Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}},
	})
	s.patchTopology(t, fmt.Sprintf(`[{"op":"replace","path":"/spec/topology/version","value":%q}]`, next))
	workers.awaitVersions(t, map[string]int{old: 1, next: 1})
	s.awaitTopology(t, "the rollout waits for an approval", func() (bool, any) {
		status, reason, message := workers.readCondition(t, "Blocked")
		return status == "True" && reason == "Approval", message
	})
	run("explain", named, "--temporal-address", testRig.Stack.TemporalAddress())
	run("rollout", "approve", named, "--reason", "the first node is well", "--as-user", "ann")
	workers.awaitVersions(t, map[string]int{next: 2})
	scaled.awaitVersions(t, map[string]int{next: 3})
	s.awaitReconciledTopology(t)

	// a new template of the class
	s.newInfrastructureTemplate(t, "class-2", "1s", "backend", "inMemory", "vm", "provisioning", "startupDuration")
	s.applyJSONPatch(t, clusterClassResource, `[
		{"op":"replace","path":"/spec/workers/machineDeployments/0/infrastructure/templateRef/name","value":"class-2"},
		{"op":"replace","path":"/spec/workers/machineDeployments/1/infrastructure/templateRef/name","value":"class-2"}]`)
	former := workers.infrastructureTemplates(t)
	require.Len(t, former, 1)
	s.awaitTopology(t, "the new template waits for an approval", func() (bool, any) {
		status, reason, message := workers.readCondition(t, "Blocked")
		return len(workers.infrastructureTemplates(t)) == 2 && status == "True" && reason == "Approval", message
	})
	out, err := testRig.TryRunMillwright(t, "rollout", "undo", named, "--reason", "slow boot", "--as-user", "ann")
	require.Error(t, err, out)
	assert.Contains(t, out+err.Error(), "the topology of Cluster class/class writes the template")
	run("rollout", "undo", named, "--pin", "--reason", "slow boot", "--as-user", "ann")
	awaitTemplateOfMachines := func(what string, holds func(template string) bool) {
		s.awaitTopology(t, what, func() (bool, any) {
			made := map[string]int{}
			for _, set := range workers.listSets(t) {
				name, _, _ := unstructured.NestedString(set.Object, "spec", "template", "spec", "infrastructureRef", "name")
				replicas, _, _ := unstructured.NestedInt64(set.Object, "status", "replicas")
				ready, _, _ := unstructured.NestedInt64(set.Object, "status", "readyReplicas")
				if replicas > 0 || ready > 0 {
					made[name] += int(ready)
				}
			}
			for template, n := range made {
				if len(made) == 1 && n == 2 && holds(template) {
					return true, nil
				}
			}
			return false, fmt.Sprint(made, workers.conditionLines(t))
		})
	}
	awaitTemplateOfMachines(
		"the machines are back on the former template",
		func(template string) bool { return template == former[0] },
	)
	assert.Contains(t, run("rollout", "status", named), "pinned")
	run("rollout", "retry", named, "--reason", "the image is repaired", "--as-user", "ann")
	s.awaitTopology(t, "the retried rollout waits for an approval", func() (bool, any) {
		status, reason, message := workers.readCondition(t, "Blocked")
		return status == "True" && reason == "Approval", message
	})
	run("rollout", "approve", named, "--reason", "it boots", "--as-user", "ann")
	awaitTemplateOfMachines(
		"all machines have the new template",
		func(template string) bool { return template != former[0] },
	)
	s.awaitReconciledTopology(t)
	s.awaitTopology(t, "the class without history has one template", func() (bool, any) {
		list, err := s.resourceClient(devMachineTemplateResource).
			List(t.Context(), metav1.ListOptions{LabelSelector: topologyLabel + "=scaled"})
		require.NoError(t, err)
		return len(list.Items) == 1 && len(scaled.listSets(t)) == 1, len(list.Items)
	})
	run("rollout", "history", named)

	require.NoError(t, s.resourceClient(clusterResource).Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	s.awaitOnlyTemplatesOfClass(
		t,
		"kubeadmconfigtemplates class",
		"devmachinetemplates class",
		"devmachinetemplates class-2",
	)
}
