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

// updatesSpace is the name of the namespace, the cluster and the ExtensionConfig of the tests of updates in place.
// Cluster API allows one extension for each namespace, so all these tests have the same one, which answers each
// deployment as its test wants.
const updatesSpace = "updates"

var updater = sync.OnceValues(func() (*extension.Server, error) {
	ctx := context.Background()
	s, err := makeSpace(ctx, updatesSpace, "plane.yaml")
	if err != nil {
		return nil, err
	}
	server := extension.New() // it ends with this process: core asks it again when it starts
	config := server.Config(updatesSpace, component.WatchFilterLabel, component.UpstreamFilter)
	_, err = s.client.Resource(extensionConfigs).Create(ctx, config, metav1.CreateOptions{})
	return server, err
})

var extensionConfigs = schema.GroupVersionResource{
	Group:    "runtime.cluster.x-k8s.io",
	Version:  "v1beta2",
	Resource: "extensionconfigs",
}

// updated is a MachineDeployment whose machines an extension can update in place.
type updated struct {
	fleet
	extension *extension.Server
	before    map[string]types.UID // of all machines and their clones, by kind and name, when all machines were available
}

// newUpdated makes a MachineDeployment of three machines, with replacements of the text of its manifest, and returns
// when they are available.
func newUpdated(t *testing.T, name string, replacements ...string) updated {
	t.Helper()
	server, err := updater()
	require.NoError(t, err)
	s := startedSpace(t, updatesSpace)
	rig.Eventually(t, "core knows the hooks of the extension", func() (bool, any) {
		config, err := s.client.Resource(extensionConfigs).Get(t.Context(), updatesSpace, metav1.GetOptions{})
		require.NoError(t, err)
		return extension.Discovered(config)
	})
	first, second := name+"-1", name+"-2"
	s.template(t, first, "1s", "backend", "inMemory", "node", "provisioning", "startupDuration")
	s.template(t, second, startup, "backend", "inMemory", "vm", "provisioning", "startupDuration")
	f := s.newFleet(
		t,
		name,
		3,
		append(replacements, "DevMachineTemplate, name: CLUSTER", "DevMachineTemplate, name: "+first)...)
	f.awaitMade(t, first, 3)
	return updated{f, server, f.identities(t)}
}

// startup is how long new machines take to start, by the second template. It says nothing about machines that have
// started.
const startup = "2s"

// identities returns the UIDs of the machines of the fleet and of their clones, by kind and name.
func (f fleet) identities(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, kind := range []schema.GroupVersionResource{machines, devMachines, kubeadmConfigs} {
		list, err := f.of(kind).List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + f.set})
		require.NoError(t, err)
		for _, o := range list.Items {
			uids[kind.Resource+" "+o.GetName()] = o.GetUID()
		}
	}
	return uids
}

// begin makes the second template the one of the deployment, and guards its machines.
func (u updated) begin(t *testing.T, want bounds) (verdict func()) {
	t.Helper()
	verdict = u.guard(t, want)
	u.change(t, u.set+"-2")
	return verdict
}

// awaitUpdated waits until all machines are of the second template, and asserts that this many are the same as before,
// with the same clones, and that nothing is left of the updates.
func (u updated) awaitUpdated(t *testing.T, same int) {
	t.Helper()
	u.awaitMade(t, u.set+"-2", 3)
	u.awaitMessage(t, "RollingOut", "False", "NotRollingOut", "")
	u.awaitMessage(t, "MachinesUpToDate", "True", "UpToDate", "")
	now, kept := u.identities(t), map[string]int{}
	for name, uid := range now {
		if u.before[name] == uid {
			kind, _, _ := strings.Cut(name, " ")
			kept[kind]++
		}
	}
	for _, kind := range []schema.GroupVersionResource{machines, devMachines, kubeadmConfigs} {
		assert.Equal(t, same, kept[kind.Resource], "%s that are the same as before: %v, now %v", kind.Resource, u.before, now)
	}
	u.settled(t, u.set+"-2")
	assert.NoError(t, u.extension.Refused())
}

// settled asserts that all infrastructure machines are as a template wants them, without a field of another template,
// and that no object has an annotation of an update in place.
func (u updated) settled(t *testing.T, template string) {
	t.Helper()
	want, _, err := unstructured.NestedMap(u.get(t, devTemplates, template).Object, "spec", "template", "spec", "backend")
	require.NoError(t, err)
	for _, kind := range []schema.GroupVersionResource{machines, devMachines, kubeadmConfigs} {
		list, err := u.of(kind).List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + u.set})
		require.NoError(t, err)
		for _, o := range list.Items {
			assert.Empty(t, marks(&o), "%s %s", kind.Resource, o.GetName())
			if kind != devMachines {
				continue
			}
			backend, _, err := unstructured.NestedMap(o.Object, "spec", "backend")
			require.NoError(t, err)
			assert.Equal(t, want, backend, o.GetName())
		}
	}
}

// marks returns the annotations of an update in place that an object has.
func marks(o *unstructured.Unstructured) (names []string) {
	for name := range o.GetAnnotations() {
		if strings.HasPrefix(name, "in-place-updates.internal.cluster.x-k8s.io/") ||
			name == "runtime.cluster.x-k8s.io/pending-hooks" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// theirs are replacements for the manifest: with them Cluster API reconciles the deployment of this name.
func theirs(name string) []string {
	return []string{
		component.WatchFilterLabel + ": " + component.OurFilter,
		component.WatchFilterLabel + ": " + component.UpstreamFilter,
		"labels: {pool: NAME}",
		fmt.Sprintf("labels: {pool: %s, %s: %s}", name, component.WatchFilterLabel, component.UpstreamFilter),
	}
}

// Cluster API itself updates machines in place with the extension of these tests. Two of three are the same afterwards:
// the third has made room for one that is down.
func TestUpstreamUpdatesMachinesInPlace(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "theirs", theirs("theirs")...)
	verdict := u.begin(t, bounds{most: 4, least: 3})
	u.awaitUpdated(t, 2)
	verdict()
	asked := u.extension.Calls(extension.CanUpdateMachineSet, u.set)
	assert.Len(t, asked, 1, "it is asked once for each former set")
	done := u.extension.Calls(extension.UpdateMachine, u.set)
	assert.GreaterOrEqual(t, len(done), 4, "each update takes two calls: %v", done)
}

// inPlace are replacements for the manifest: with them Millwright updates machines of the deployment in place. surge
// and unavailable are its maxSurge and maxUnavailable.
func inPlace(surge, unavailable int) []string {
	labels := fmt.Sprintf("labels: {%s: %s}", component.WatchFilterLabel, component.OurFilter)
	return append(
		strategy(
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

// answer is what Millwright has written about the extension on the former set.
func (u updated) answer(t *testing.T) (text string, possible bool) {
	t.Helper()
	for _, set := range u.sets(t) {
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

// awaitMarked waits until a machine of the fleet has an annotation of an update in place.
func (u updated) awaitMarked(t *testing.T, annotation string) {
	t.Helper()
	rig.Eventually(t, "a machine has the annotation "+annotation, func() (bool, any) {
		all := map[string][]string{}
		for _, m := range u.members(t) {
			all[m.GetName()] = marks(&m)
		}
		marked := func(names []string) bool { return slices.Contains(names, annotation) }
		return slices.ContainsFunc(slices.Collect(maps.Values(all)), marked), fmt.Sprint(all, u.says(t))
	})
}

// Annotations of machines that are updated in place, as Cluster API's core reads and removes them.
const (
	updateInProgress = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
	pendingHooks     = "runtime.cluster.x-k8s.io/pending-hooks"
)

func TestADeploymentIsUpdatedInPlace(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "changed", inPlace(1, 0)...)
	verdict := u.begin(t, bounds{most: 4, least: 3})
	u.awaitUpdated(t, 2)
	verdict()
	u.created(t, 4) // one more makes room for the one that is down
	assert.Equal(t, "2", u.revision(t))
	text, possible := u.answer(t)
	assert.True(t, possible, text)
	assert.NotEmpty(t, u.extension.Calls(extension.CanUpdateMachineSet, u.set), "it is asked about the former set")
	names := map[string]int{}
	for _, call := range u.extension.Calls(extension.UpdateMachine, u.set) {
		names[call.Name]++
		assert.Contains(t, call.Desired, startup, "it is given the new infrastructure machine")
	}
	assert.Len(t, names, 2, "it has updated two machines: %v", names)
}

// Without more machines than wanted, all stay. One after the other is down.
func TestADeploymentIsUpdatedInPlaceWithoutSurge(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "tight", inPlace(0, 1)...)
	verdict := u.begin(t, bounds{most: 3, least: 2})
	u.awaitUpdated(t, 3)
	verdict()
	u.created(t, 3)
}

func TestADeploymentIsReplacedWhereTheExtensionDeclines(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "declined", inPlace(1, 0)...)
	u.extension.Behave(extension.CanUpdateMachineSet, u.set, extension.Declines)
	verdict := u.begin(t, bounds{most: 4, least: 3})
	u.awaitUpdated(t, 0)
	verdict()
	u.created(t, 6)
	text, possible := u.answer(t)
	assert.False(t, possible, text)
	assert.Contains(t, text, "DevMachineTemplate", "it says what the extension cannot change")
	assert.Empty(t, u.extension.Calls(extension.UpdateMachine, u.set))
}

// While the extension gives no answer, no machine is moved or replaced, and the deployment says why.
func TestADeploymentWaitsForTheAnswerOfTheExtension(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "unanswered", inPlace(1, 0)...)
	u.extension.Behave(extension.CanUpdateMachineSet, u.set, extension.Breaks)
	verdict := u.begin(t, bounds{most: 4, least: 3})
	named := "machinedeployment.cluster.x-k8s.io/" + u.name + "/" + u.set
	rig.Eventually(t, "explain names the extension", func() (bool, any) {
		out, err := r.TryMillwright(t, "explain", named, "--temporal-address", r.Stack.TemporalAddress())
		return err == nil && strings.Contains(out, "extension") && strings.Contains(out, "500"), out
	})
	u.awaitMessage(t, "Blocked", "True", "ExtensionFailed", "HTTP status 500")
	text, possible := u.answer(t)
	assert.False(t, possible, text)
	u.extension.Behave(extension.CanUpdateMachineSet, u.set, extension.HangsUp)
	asked := len(u.extension.Calls(extension.CanUpdateMachineSet, u.set))
	rig.Eventually(t, "the extension is asked again", func() (bool, any) {
		n := len(u.extension.Calls(extension.CanUpdateMachineSet, u.set))
		return n > asked, n
	})
	assert.Equal(t, u.before, u.identities(t), "no machine was made, and none has gone")
	u.extension.Behave(extension.CanUpdateMachineSet, u.set, extension.Works)
	u.awaitUpdated(t, 2)
	verdict()
	u.created(t, 4)
}

// An update that fails holds the others back, and the machine stays. It goes on as soon as the extension can do it.
func TestADeploymentWaitsForAnUpdateThatFails(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "failing", inPlace(1, 0)...)
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Reports)
	verdict := u.begin(t, bounds{most: 4, least: 3})
	rig.Eventually(t, "core says of one machine that its update has failed", func() (bool, any) {
		failed := 0
		for _, m := range u.members(t) {
			if _, reason, _ := conditionOf(t, &m, "Updating"); reason == "InPlaceUpdateFailed" {
				failed++
			}
		}
		return failed == 1, fmt.Sprint(failed, u.says(t))
	})
	u.awaitMessage(t, "Blocked", "True", "InPlaceUpdate", "the update in place does not end: UpdateMachine hook failed")
	u.lookAgain(t)
	inProgress := 0
	for _, m := range u.members(t) {
		if slices.Contains(marks(&m), updateInProgress) {
			inProgress++
		}
	}
	assert.Equal(t, 1, inProgress, "no other update has begun")
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Works)
	u.awaitUpdated(t, 2)
	verdict()
	u.created(t, 4)
}

// The template goes back while a machine is being updated. Its update ends first. Until then no other machine is
// updated, and three are available: Cluster API's own controller moves an available machine in place of the one that is
// down, so that two are available.
func TestADeploymentGoesBackInTheMiddleOfAnUpdate(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "turned", inPlace(1, 0)...)
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Holds)
	verdict := u.begin(t, bounds{most: 4, least: 3})
	u.awaitMarked(t, pendingHooks)
	u.change(t, u.set+"-1")
	u.lookAgain(t) // what the change would break happens now
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Works)
	u.awaitMade(t, u.set+"-1", 3)
	u.awaitMessage(t, "RollingOut", "False", "NotRollingOut", "")
	verdict()
	u.created(t, 4)
	u.settled(t, u.set+"-1")
}

// Fewer machines are wanted while the rollout is paused in the middle of an update: the surplus is deleted, and not
// updated. The update that has begun goes on to its end.
func TestADeploymentGetsSmallerInAPauseOfAnUpdate(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, "smaller", inPlace(0, 1)...)
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Holds)
	verdict := u.begin(t, bounds{most: 3, least: 1})
	u.awaitMarked(t, pendingHooks)
	u.patch(t, `{"spec":{"paused":true}}`)
	u.awaitMessage(t, "Blocked", "True", "Paused", "")
	u.resize(t, 2)
	rig.Eventually(t, "one machine of three has gone", func() (bool, any) {
		n := len(u.members(t))
		return n == 2, fmt.Sprint(n, u.says(t))
	})
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Works)
	half := map[string]int{u.set + "-1": 1, u.set + "-2": 1}
	rig.Eventually(t, "the update that had begun has ended, and two machines are available", func() (bool, any) {
		made, counts := u.made(t), u.status(t)
		return maps.Equal(made, half) && slices.Equal(counts, []int64{2, 2, 2, 1}), fmt.Sprint(made, counts, u.says(t))
	})
	u.patch(t, `{"spec":{"paused":false}}`)
	u.awaitMade(t, u.set+"-2", 2)
	verdict()
	u.created(t, 3)
	u.settled(t, u.set+"-2")
}

// In the middle of updates each process dies: the worker when a machine has just been handed over, the bridge when the
// update has begun, core while the extension is at work.
func TestADeploymentIsUpdatedInPlaceWhileProcessesDie(t *testing.T) {
	u := newUpdated(t, "resumed", inPlace(1, 0)...)
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Holds)
	verdict := u.begin(t, bounds{most: 4, least: 3})
	u.awaitMarked(t, updateInProgress)
	crash(t, component.Worker)
	u.awaitMarked(t, pendingHooks)
	crash(t, component.Bridge)
	rig.Eventually(t, "the extension is at work", func() (bool, any) {
		n := len(u.extension.Calls(extension.UpdateMachine, u.set))
		return n > 0, n
	})
	crash(t, component.ClusterAPICore)
	u.extension.Behave(extension.UpdateMachine, u.set, extension.Works)
	u.awaitUpdated(t, 2)
	verdict()
	u.created(t, 4)
	u.replay(t)
}
