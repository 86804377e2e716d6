//go:build integration

package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/capi/extension"
	"millwright/test/integration/rig"
)

// inPlaceNamespace is the name of the namespace, the cluster and the ExtensionConfig of the tests of updates in place.
// Cluster API allows one extension per namespace, so all these tests share one extension. Each test sets how the
// extension answers for its deployment.
const inPlaceNamespace = "updates"

var startExtension = sync.OnceValues(func() (*extension.Server, error) {
	ctx := context.Background()
	s, err := createNamespace(ctx, inPlaceNamespace, "plane.yaml")
	if err != nil {
		return nil, err
	}
	// core calls the extension again when core restarts, so the extension runs until this process ends
	server := extension.New()
	config := server.ExtensionConfig(inPlaceNamespace, component.WatchFilterLabel, component.UpstreamFilterValue)
	_, err = s.client.Resource(extensionConfigResource).Create(ctx, config, metav1.CreateOptions{})
	return server, err
})

var extensionConfigResource = schema.GroupVersionResource{
	Group:    "runtime.cluster.x-k8s.io",
	Version:  "v1beta2",
	Resource: "extensionconfigs",
}

// inPlaceFleet is a MachineDeployment whose machines an extension can update in place.
type inPlaceFleet struct {
	fleet
	extension *extension.Server
	// UIDs of all machines and their clones when all machines were available, by kind and name
	originalUIDs map[string]types.UID
}

// newInPlaceFleet makes a MachineDeployment of three machines, and returns when the machines are available. The
// replacements are applied to the text of the manifest.
func newInPlaceFleet(t *testing.T, name string, replacements ...string) inPlaceFleet {
	t.Helper()
	server, err := startExtension()
	require.NoError(t, err)
	s := awaitStartedNamespace(t, inPlaceNamespace)
	rig.Eventually(t, "core knows the hooks of the extension", func() (bool, any) {
		config, err := s.client.Resource(extensionConfigResource).Get(t.Context(), inPlaceNamespace, metav1.GetOptions{})
		require.NoError(t, err)
		return extension.IsDiscovered(config)
	})
	first, second := name+"-1", name+"-2"
	s.newInfrastructureTemplate(t, first, "1s", "backend", "inMemory", "node", "provisioning", "startupDuration")
	s.newInfrastructureTemplate(
		t,
		second,
		secondTemplateStartupDuration,
		"backend",
		"inMemory",
		"vm",
		"provisioning",
		"startupDuration",
	)
	f := s.newFleet(
		t,
		name,
		3,
		append(replacements, "DevMachineTemplate, name: CLUSTER", "DevMachineTemplate, name: "+first)...)
	f.awaitMachinesOfTemplate(t, first, 3)
	return inPlaceFleet{f, server, f.uidsByName(t)}
}

// secondTemplateStartupDuration is how long a new machine of the second template takes to start.
// secondTemplateStartupDuration does not change machines that have already started.
const secondTemplateStartupDuration = "2s"

// uidsByName returns the UIDs of the fleet's machines and of their clones, by kind and name.
func (f fleet) uidsByName(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, kind := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
		list, err := f.resourceClient(kind).List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + f.poolName})
		require.NoError(t, err)
		for _, o := range list.Items {
			uids[kind.Resource+" "+o.GetName()] = o.GetUID()
		}
	}
	return uids
}

// beginInPlaceUpdate makes the deployment refer to the second template, and watches the bounds of its machines.
func (u inPlaceFleet) beginInPlaceUpdate(t *testing.T, want rolloutBounds) (verdict func()) {
	t.Helper()
	verdict = u.watchBounds(t, want)
	u.setInfrastructureTemplate(t, u.poolName+"-2")
	return verdict
}

// awaitUpdatedMachines waits until all machines are of the second template. awaitUpdatedMachines asserts that this many
// machines and their clones are the same as before, and that no object has a leftover of an update.
func (u inPlaceFleet) awaitUpdatedMachines(t *testing.T, same int) {
	t.Helper()
	u.awaitMachinesOfTemplate(t, u.poolName+"-2", 3)
	u.awaitConditionMessage(t, "RollingOut", "False", "NotRollingOut", "")
	u.awaitConditionMessage(t, "MachinesUpToDate", "True", "UpToDate", "")
	now, kept := u.uidsByName(t), map[string]int{}
	for name, uid := range now {
		if u.originalUIDs[name] == uid {
			kind, _, _ := strings.Cut(name, " ")
			kept[kind]++
		}
	}
	for _, kind := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
		assert.Equal(
			t,
			same,
			kept[kind.Resource],
			"%s that are the same as before: %v, now %v",
			kind.Resource,
			u.originalUIDs,
			now,
		)
	}
	u.requireMachinesMatchTemplate(t, u.poolName+"-2")
	assert.NoError(t, u.extension.RefusedRequestsError())
}

// requireMachinesMatchTemplate asserts that all infrastructure machines match a template and have no field of another
// template. requireMachinesMatchTemplate also asserts that no object has an annotation of an update in place.
func (u inPlaceFleet) requireMachinesMatchTemplate(t *testing.T, template string) {
	t.Helper()
	want, _, err := unstructured.NestedMap(
		u.getObject(t, devMachineTemplateResource, template).Object,
		"spec",
		"template",
		"spec",
		"backend",
	)
	require.NoError(t, err)
	for _, kind := range []schema.GroupVersionResource{machineResource, devMachineResource, kubeadmConfigResource} {
		list, err := u.resourceClient(kind).List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + u.poolName})
		require.NoError(t, err)
		for _, o := range list.Items {
			assert.Empty(t, inPlaceUpdateAnnotations(&o), "%s %s", kind.Resource, o.GetName())
			if kind != devMachineResource {
				continue
			}
			backend, _, err := unstructured.NestedMap(o.Object, "spec", "backend")
			require.NoError(t, err)
			assert.Equal(t, want, backend, o.GetName())
		}
	}
}

// inPlaceUpdateAnnotations returns the annotations of an update in place that an object has.
func inPlaceUpdateAnnotations(o *unstructured.Unstructured) (names []string) {
	for name := range o.GetAnnotations() {
		if strings.HasPrefix(name, "in-place-updates.internal.cluster.x-k8s.io/") ||
			name == "runtime.cluster.x-k8s.io/pending-hooks" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// upstreamReplacements returns replacements that make Cluster API reconcile the deployment of this name.
func upstreamReplacements(name string) []string {
	return []string{
		component.WatchFilterLabel + ": " + component.MillwrightFilterValue,
		component.WatchFilterLabel + ": " + component.UpstreamFilterValue,
		"labels: {pool: NAME}",
		fmt.Sprintf("labels: {pool: %s, %s: %s}", name, component.WatchFilterLabel, component.UpstreamFilterValue),
	}
}

// Cluster API itself updates machines in place with the extension of these tests. Two of the three machines are updated
// and keep their UIDs. The third machine was deleted: the surge machine has replaced it.
func TestUpstreamUpdatesMachinesInPlace(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "theirs", upstreamReplacements("theirs")...)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	u.awaitUpdatedMachines(t, 2)
	verdict()
	asked := u.extension.Calls(extension.HookCanUpdateMachineSet, u.poolName)
	assert.Len(t, asked, 1, "it is asked once for each former set")
	done := u.extension.Calls(extension.HookUpdateMachine, u.poolName)
	assert.GreaterOrEqual(t, len(done), 4, "each update takes two calls: %v", done)
}

// inPlaceReplacements returns replacements that make Millwright update the machines of the deployment in place. The
// arguments surge and unavailable are maxSurge and maxUnavailable.
func inPlaceReplacements(surge, unavailable int) []string {
	labels := fmt.Sprintf("labels: {%s: %s}", component.WatchFilterLabel, component.MillwrightFilterValue)
	return append(
		rolloutReplacement(
			fmt.Sprintf(
				"{strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: %d, maxUnavailable: %d}}}",
				surge,
				unavailable,
			),
		),
		labels,
		fmt.Sprintf("%s\n  annotations: {%s: %q}", labels, v1alpha1.AnnotationInPlaceUpdates, "true"),
	)
}

// extensionAnswer returns the extension's answer that Millwright has written on the old set.
func (u inPlaceFleet) extensionAnswer(t *testing.T) (text string, possible bool) {
	t.Helper()
	for _, set := range u.listSets(t) {
		if set.GetAnnotations()["machinedeployment.clusters.x-k8s.io/revision"] != "1" {
			continue
		}
		text = set.GetAnnotations()[v1alpha1.AnnotationInPlaceAnswer]
		var said struct{ Possible bool }
		require.NoError(t, json.Unmarshal([]byte(text), &said), text)
		return text, said.Possible
	}
	require.Fail(t, "the former set is gone")
	return "", false
}

// awaitAnnotatedMachine waits until a machine of the fleet has an annotation of an update in place.
func (u inPlaceFleet) awaitAnnotatedMachine(t *testing.T, annotation string) {
	t.Helper()
	rig.Eventually(t, "a machine has the annotation "+annotation, func() (bool, any) {
		all := map[string][]string{}
		for _, m := range u.listMachines(t) {
			all[m.GetName()] = inPlaceUpdateAnnotations(&m)
		}
		marked := func(names []string) bool { return slices.Contains(names, annotation) }
		return slices.ContainsFunc(slices.Collect(maps.Values(all)), marked), fmt.Sprint(all, u.conditionLines(t))
	})
}

// Annotations of machines that are updated in place, as Cluster API's core reads and removes them.
const (
	updateInProgressAnnotation = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
	pendingHooksAnnotation     = "runtime.cluster.x-k8s.io/pending-hooks"
)

func TestADeploymentIsUpdatedInPlace(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "changed", inPlaceReplacements(1, 0)...)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	u.awaitUpdatedMachines(t, 2)
	verdict()
	u.requireCreatedMachineCount(t, 4) // the three machines and one surge machine
	assert.Equal(t, "2", u.revision(t))
	text, possible := u.extensionAnswer(t)
	assert.True(t, possible, text)
	assert.NotEmpty(
		t,
		u.extension.Calls(extension.HookCanUpdateMachineSet, u.poolName),
		"it is asked about the former set",
	)
	names := map[string]int{}
	for _, call := range u.extension.Calls(extension.HookUpdateMachine, u.poolName) {
		names[call.ObjectName]++
		assert.Contains(t, call.DesiredState, secondTemplateStartupDuration, "it is given the new infrastructure machine")
	}
	assert.Len(t, names, 2, "it has updated two machines: %v", names)
}

// Without surge, no machine is replaced. The machines are unavailable one after the other, each during its own update.
func TestADeploymentIsUpdatedInPlaceWithoutSurge(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "tight", inPlaceReplacements(0, 1)...)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 3, minAvailable: 2})
	u.awaitUpdatedMachines(t, 3)
	verdict()
	u.requireCreatedMachineCount(t, 3)
}

func TestMachinesAreReplacedIfTheExtensionDeclines(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "declined", inPlaceReplacements(1, 0)...)
	u.extension.SetBehaviour(extension.HookCanUpdateMachineSet, u.poolName, extension.BehaviourDeclines)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	u.awaitUpdatedMachines(t, 0)
	verdict()
	u.requireCreatedMachineCount(t, 6)
	text, possible := u.extensionAnswer(t)
	assert.False(t, possible, text)
	assert.Contains(t, text, "DevMachineTemplate", "it says what the extension cannot change")
	assert.Empty(t, u.extension.Calls(extension.HookUpdateMachine, u.poolName))
}

// If in-place updates are required and the extension declines, no machine is made and none goes. The size still follows
// spec.replicas. After a person has allowed replacements, the rollout goes on.
func TestNoMachineIsReplacedIfInPlaceUpdatesAreRequired(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "required", inPlaceReplacements(1, 0)...)
	u.patchPool(
		t,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationInPlaceUpdates, v1alpha1.ValueRequired),
	)
	u.extension.SetBehaviour(extension.HookCanUpdateMachineSet, u.poolName, extension.BehaviourDeclines)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	u.awaitConditionMessage(t, "Blocked", "True", "NotUpdatedInPlace", "DevMachineTemplate")
	u.scale(t, 4)
	u.awaitUpToDateMachines(t, u.poolName+"-1", 4, 0)
	verdict()
	for name, uid := range u.originalUIDs {
		assert.Equal(t, uid, u.uidsByName(t)[name], "%s was replaced", name)
	}
	u.requireCreatedMachineCount(t, 4)

	verdict = u.watchBounds(t, rolloutBounds{maxMachines: 5, minAvailable: 4})
	u.patchPool(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationInPlaceUpdates))
	u.awaitMachinesOfTemplate(t, u.poolName+"-2", 4)
	verdict()
	u.requireCreatedMachineCount(t, 8)
}

// While the extension does not answer, Millwright does not move or replace any machine, and a condition of the
// deployment reports why.
func TestADeploymentWaitsForTheAnswerOfTheExtension(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "unanswered", inPlaceReplacements(1, 0)...)
	u.extension.SetBehaviour(extension.HookCanUpdateMachineSet, u.poolName, extension.BehaviourServerError)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	named := "machinedeployment.cluster.x-k8s.io/" + u.name + "/" + u.poolName
	rig.Eventually(t, "explain names the extension", func() (bool, any) {
		out, err := testRig.TryRunMillwright(t, "explain", named, "--temporal-address", testRig.Stack.TemporalAddress())
		return err == nil && strings.Contains(out, "extension") && strings.Contains(out, "500"), out
	})
	u.awaitConditionMessage(t, "Blocked", "True", "ExtensionFailed", "HTTP status 500")
	text, possible := u.extensionAnswer(t)
	assert.False(t, possible, text)
	u.extension.SetBehaviour(extension.HookCanUpdateMachineSet, u.poolName, extension.BehaviourDisconnects)
	asked := len(u.extension.Calls(extension.HookCanUpdateMachineSet, u.poolName))
	rig.Eventually(t, "the extension is asked again", func() (bool, any) {
		n := len(u.extension.Calls(extension.HookCanUpdateMachineSet, u.poolName))
		return n > asked, n
	})
	assert.Equal(t, u.originalUIDs, u.uidsByName(t), "no machine was made, and none has gone")
	u.extension.SetBehaviour(extension.HookCanUpdateMachineSet, u.poolName, extension.BehaviourWorks)
	u.awaitUpdatedMachines(t, 2)
	verdict()
	u.requireCreatedMachineCount(t, 4)
}

// When an update fails, no other update starts, and the failed machine is not replaced. The update continues as soon as
// the extension succeeds.
func TestNoUpdateStartsAfterAFailedUpdate(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "failing", inPlaceReplacements(1, 0)...)
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourReportsFailure)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	rig.Eventually(t, "core says of one machine that its update has failed", func() (bool, any) {
		failed := 0
		for _, m := range u.listMachines(t) {
			if _, reason, _ := conditionOfObject(t, &m, "Updating"); reason == "InPlaceUpdateFailed" {
				failed++
			}
		}
		return failed == 1, fmt.Sprint(failed, u.conditionLines(t))
	})
	u.awaitConditionMessage(
		t,
		"Blocked",
		"True",
		"InPlaceUpdate",
		"the update in place does not end: UpdateMachine hook failed",
	)
	u.forceReconcile(t)
	inProgress := 0
	for _, m := range u.listMachines(t) {
		if slices.Contains(inPlaceUpdateAnnotations(&m), updateInProgressAnnotation) {
			inProgress++
		}
	}
	assert.Equal(t, 1, inProgress, "no other update has begun")
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourWorks)
	u.awaitUpdatedMachines(t, 2)
	verdict()
	u.requireCreatedMachineCount(t, 4)
}

// The template is changed back while a machine is being updated. The update in progress ends first. Until the update
// has ended, no other machine is updated, and three machines are available. Cluster API's own controller instead moves
// an available machine, so that only two machines are available.
func TestDeploymentIsRolledBackDuringAnInPlaceUpdate(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "turned", inPlaceReplacements(1, 0)...)
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourNeverCompletes)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	u.awaitAnnotatedMachine(t, pendingHooksAnnotation)
	u.setInfrastructureTemplate(t, u.poolName+"-1")
	u.forceReconcile(t) // reconcile again after the change, so that a wrong decision of Millwright would become visible
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourWorks)
	u.awaitMachinesOfTemplate(t, u.poolName+"-1", 3)
	u.awaitConditionMessage(t, "RollingOut", "False", "NotRollingOut", "")
	verdict()
	u.requireCreatedMachineCount(t, 4)
	u.requireMachinesMatchTemplate(t, u.poolName+"-1")
}

// The deployment is scaled down while the rollout is paused in the middle of an update. The surplus machine is deleted,
// not updated. The update in progress completes.
func TestADeploymentIsScaledDownWhileAnUpdateIsPaused(t *testing.T) {
	t.Parallel()
	u := newInPlaceFleet(t, "smaller", inPlaceReplacements(0, 1)...)
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourNeverCompletes)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 3, minAvailable: 1})
	u.awaitAnnotatedMachine(t, pendingHooksAnnotation)
	u.patchPool(t, `{"spec":{"paused":true}}`)
	u.awaitConditionMessage(t, "Blocked", "True", "Paused", "")
	u.scale(t, 2)
	rig.Eventually(t, "one machine of three has gone", func() (bool, any) {
		n := len(u.listMachines(t))
		return n == 2, fmt.Sprint(n, u.conditionLines(t))
	})
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourWorks)
	half := map[string]int{u.poolName + "-1": 1, u.poolName + "-2": 1}
	rig.Eventually(t, "the update that had begun has ended, and two machines are available", func() (bool, any) {
		made, counts := u.countMachinesByTemplate(t), u.statusReplicaCounts(t)
		return maps.Equal(made, half) &&
				slices.Equal(counts, []int64{2, 2, 2, 1}), fmt.Sprint(
				made,
				counts,
				u.conditionLines(t),
			)
	})
	u.patchPool(t, `{"spec":{"paused":false}}`)
	u.awaitMachinesOfTemplate(t, u.poolName+"-2", 2)
	verdict()
	u.requireCreatedMachineCount(t, 3)
	u.requireMachinesMatchTemplate(t, u.poolName+"-2")
}

// Each process is killed in the middle of updates: the worker when a machine has just been handed over, the bridge when
// the update has started, and core while the extension handles calls.
func TestADeploymentIsUpdatedInPlaceWhileProcessesDie(t *testing.T) {
	u := newInPlaceFleet(t, "resumed", inPlaceReplacements(1, 0)...)
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourNeverCompletes)
	verdict := u.beginInPlaceUpdate(t, rolloutBounds{maxMachines: 4, minAvailable: 3})
	u.awaitAnnotatedMachine(t, updateInProgressAnnotation)
	killAndRestartProcess(t, component.Worker)
	u.awaitAnnotatedMachine(t, pendingHooksAnnotation)
	killAndRestartProcess(t, component.Bridge)
	rig.Eventually(t, "the extension is at work", func() (bool, any) {
		n := len(u.extension.Calls(extension.HookUpdateMachine, u.poolName))
		return n > 0, n
	})
	killAndRestartProcess(t, component.ClusterAPICore)
	u.extension.SetBehaviour(extension.HookUpdateMachine, u.poolName, extension.BehaviourWorks)
	u.awaitUpdatedMachines(t, 2)
	verdict()
	u.requireCreatedMachineCount(t, 4)
	u.replayHistories(t)
}
