package set_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/generated/clientset/versioned"
	typed "millwright/api/generated/clientset/versioned/typed/api/v1alpha1"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe/cache"
	observeset "millwright/observe/set"
)

// machineSetWithMachines returns a set with its machines s-1, s-2 and so on.
func machineSetWithMachines(s *v1alpha1.MachineSet, n int, change ...func(*v1alpha1.Machine)) []runtime.Object {
	objects := []runtime.Object{s}
	for i := range n {
		m := activitiestest.NewMachine(
			fmt.Sprintf("%s-%d", s.Name, i+1),
			append(change, activitiestest.WithOwner[*v1alpha1.Machine](s))...)
		m.ResourceVersion = fmt.Sprint(900 + i)
		observeset.CopyTemplateFields(m, s)
		objects = append(objects, m)
	}
	return objects
}

func decideSet(w *activitiestest.World, in kube.ReadInput) set.Decision {
	w.T.Helper()
	return activitiestest.RunActivityTwice[set.Decision](w, newActivities(w.Kube).DecideSet, set.Input{ReadInput: in})
}

func TestDecideSet(t *testing.T) {
	t.Parallel()
	t.Run("creates what is missing", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 3)
		d := decideSet(
			activitiestest.NewWorld(t, append(machineSetWithMachines(s, 1), activitiestest.NewClass())...),
			activitiestest.NewReadInput(s),
		)
		assert.Len(t, d.Scale.Create, 2)
		assert.Equal(t, "create 2 machines: 3 wanted, 1 there", d.Scale.Why)
		assert.Equal(t, attention.NeedScaling, d.Pending.Need)
		assert.Equal(t, "900", d.Version)
		assert.True(t, d.Report)
	})
	t.Run("deletes what is too many, as it was seen", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 1)
		d := decideSet(activitiestest.NewWorld(t, machineSetWithMachines(s, 2)...), activitiestest.NewReadInput(s))
		require.Len(t, d.Scale.Delete, 1)
		assert.Contains(t, []string{"uid-s-1 900", "uid-s-2 901"}, d.Scale.Delete[0].UID+" "+d.Scale.Delete[0].Version)
	})
	t.Run("a set that has what it wants, and says so, is calm", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2)
		w := activitiestest.NewWorld(t, machineSetWithMachines(s, 2, activitiestest.WithPhase(v1alpha1.MachineRunning))...)
		reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)})
		d := decideSet(w, activitiestest.NewReadInput(s))
		assert.Equal(t, attention.NeedNothing, d.Pending.Need)
		assert.False(t, d.Report || d.Prepare || d.Free)
		assert.Empty(t, d.Scale.Create)
		assert.Empty(t, d.Scale.Delete)
	})
	t.Run("an operation that was left in the status of a calm set is worth a report", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2)
		w := activitiestest.NewWorld(t, machineSetWithMachines(s, 2, activitiestest.WithPhase(v1alpha1.MachineRunning))...)
		reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)})
		s = w.MachineSet("s").DeepCopy()
		s.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "machineset/shop/s"}
		w.WriteStatus(s)
		d := decideSet(w, activitiestest.NewReadInput(s))
		assert.Equal(t, attention.NeedNothing, d.Pending.Need)
		assert.True(t, d.Report)
	})
	t.Run("a new set lacks our finalizer", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 0, activitiestest.WithoutFinalizers)
		assert.True(t, decideSet(activitiestest.NewWorld(t, s), activitiestest.NewReadInput(s)).Prepare)
	})
	t.Run("a set that is being deleted deletes its machines, and is released when none is left", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 5, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet])
		d := decideSet(activitiestest.NewWorld(t, machineSetWithMachines(s, 2)...), activitiestest.NewReadInput(s))
		assert.Len(t, d.Scale.Delete, 2)
		assert.False(t, d.Free)
		assert.True(t, decideSet(activitiestest.NewWorld(t, s), activitiestest.NewReadInput(s)).Free)
	})
	t.Run("is gone, also when another set has its name", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewMachineSet("s", 5))
		for _, live := range []bool{false, true} {
			assert.True(
				t,
				decideSet(
					w,
					kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewMachineSet("s", 5)), Live: live},
				).Gone,
			)
			assert.True(
				t,
				decideSet(w, kube.ReadInput{Ref: activitiestest.NewRef(activitiestest.NewMachineSet("x", 5)), Live: live}).Gone,
			)
		}
	})
	t.Run("never asks for more than a batch", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 1000)
		assert.Len(
			t,
			decideSet(activitiestest.NewWorld(t, s, activitiestest.NewClass()), activitiestest.NewReadInput(s)).Scale.Create,
			scale.MaxCreations,
		)
	})
}

func TestDecideSetWithStaleCache(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 3)
	w := activitiestest.NewWorld(t, s)
	w.HoldEvents()
	made, err := activitiestest.RunActivity[set.WriteResult](
		w,
		newActivities(w.Kube).CreateMachines,
		set.MachineCreation{Set: activitiestest.NewRef(s), Version: "900", Names: []string{"s-a", "s-b", "s-c"}},
	)
	require.NoError(t, err)

	t.Run("makes no machine a second time: locally it asks for patience", func(t *testing.T) {
		_, err := activitiestest.RunLocalActivity[set.Decision](
			w,
			newActivities(w.Kube).DecideSet,
			set.Input{ReadInput: kube.ReadInput{Ref: activitiestest.NewRef(s), Versions: made.Versions}},
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeCacheBehind, true)
	})
	t.Run("makes no machine a second time: with patience it reads live", func(t *testing.T) {
		d, err := activitiestest.RunActivity[set.Decision](
			w,
			newActivities(w.Kube).DecideSet,
			set.Input{ReadInput: kube.ReadInput{Ref: activitiestest.NewRef(s), Versions: made.Versions}},
		)
		require.NoError(t, err)
		assert.Empty(t, d.Scale.Create)
	})
	t.Run("what was read live says how far the caches must be before they are read again", func(t *testing.T) {
		d, err := activitiestest.RunLocalActivity[set.Decision](
			w,
			newActivities(w.Kube).DecideSet,
			set.Input{ReadInput: activitiestest.NewLiveReadInput(s)},
		)
		require.NoError(t, err)
		assert.Equal(t, made.Versions[cache.MachinesResource], d.Seen[cache.MachinesResource])
		assert.Equal(t, w.MachineSet("s").ResourceVersion, d.Seen[cache.SetsResource])
	})
}

func TestCreateMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2, func(s *v1alpha1.MachineSet) {
		s.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: "7m", "note": "not for machines"}
		s.Spec.Template.Spec.ProviderID = "fake:///of-the-machine-that-was-copied"
	})
	w := activitiestest.NewWorld(t, s)
	versions := activitiestest.RunActivityTwice[set.WriteResult](
		w,
		newActivities(w.Kube).CreateMachines,
		activitiestest.NewMachineCreation(s, "s-a", "s-b"),
	)
	m := w.Machine("s-b")
	require.NotNil(t, m)
	assert.Equal(t, map[string]string{"app": "web"}, m.Labels)
	assert.Equal(t, map[string]string{"team": "shop", v1alpha1.AnnotationEffectiveCreationTimeout: "7m"}, m.Annotations)
	assert.Equal(
		t,
		[]string{activitiestest.BackupFinalizer, v1alpha1.FinalizerMachine},
		m.Finalizers,
		"on from the first moment",
	)
	assert.Equal(t, "small", m.Spec.Class.Name)
	assert.Empty(t, m.Spec.ProviderID, "no instance is that of two machines")
	require.Len(t, m.OwnerReferences, 1)
	owner := m.OwnerReferences[0]
	assert.Equal(
		t,
		[]string{"machine.sapcloud.io/v1alpha1", "MachineSet", "s", "uid-s"},
		[]string{owner.APIVersion, owner.Kind, owner.Name, string(owner.UID)},
	)
	assert.True(t, *owner.Controller && *owner.BlockOwnerDeletion)

	newest := max(m.ResourceVersion, w.Machine("s-a").ResourceVersion)
	assert.Equal(
		t,
		set.WriteResult{Versions: kube.MinVersions{cache.MachinesResource: newest}},
		versions,
		"the newest of what was made",
	)
	assert.ElementsMatch(
		t,
		[]string{"Normal SuccessfulCreate Created Machine: s-a", "Normal SuccessfulCreate Created Machine: s-b"},
		w.TakeNewEvents(),
	)
}

func TestCreateMachinesCreatesFiftyMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 50)
	w := activitiestest.NewWorld(t, s)
	var batch []string
	for i := range 50 {
		batch = append(batch, fmt.Sprintf("s-%02d", i))
	}
	versions := activitiestest.RunActivityTwice[set.WriteResult](
		w,
		newActivities(w.Kube).CreateMachines,
		activitiestest.NewMachineCreation(s, batch...),
	)
	assert.Len(t, w.Cluster.MachinesOfOwner("uid-s"), 50)
	assert.Equal(t, "1050", versions.Versions[cache.MachinesResource])
	assert.Len(t, w.TakeNewEvents(), 50)
}

func TestCreateMachinesStopsWhenTheSpecChanges(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 50)
	for name, change := range map[string]map[string]any{
		"another size": {"metadata": map[string]any{"generation": 7}, "spec": map[string]any{"replicas": 0}},
		"its deletion": {"metadata": map[string]any{"deletionTimestamp": metav1.Now()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, s)
			created := 0
			w.MachineClient.PrependReactor("create", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
				if created++; created == 1 { // the first machine is created alone
					w.EditObject(cache.SetsResource, "s", change)
					w.AwaitCaches()
				}
				return false, nil, nil
			})
			var batch []string
			for i := range 50 {
				batch = append(batch, fmt.Sprintf("s-%02d", i))
			}
			done, err := activitiestest.RunActivity[set.WriteResult](
				w,
				newActivities(w.Kube).CreateMachines,
				activitiestest.NewMachineCreation(s, batch...),
			)
			require.NoError(t, err)
			assert.True(t, done.Unseen, "the next decision reads live")
			assert.Equal(t, 1, created)
		})
	}
}

func TestRetriedCreateMachinesCreatesNoMachineTwice(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 4)
	w := activitiestest.NewWorld(t, s)
	activitiestest.FailRequests(w.MachineClient, "create", "machines", 1, apierrors.NewInternalError(assert.AnError), nil)
	names := activitiestest.NewMachineCreation(s, "s-a", "s-b", "s-c", "s-d")
	_, err := activitiestest.RunActivity[set.WriteResult](w, newActivities(w.Kube).CreateMachines, names)
	_, retryable := activitiestest.FailureTypeOf(t, err)
	assert.True(t, retryable)
	w.AwaitCaches()
	activitiestest.RunActivityTwice[set.WriteResult](w, newActivities(w.Kube).CreateMachines, names)
	assert.Len(t, w.Cluster.MachinesOfOwner("uid-s"), 4, "the same names, so no machine twice")
	assert.Len(t, w.TakeNewEvents(), 4)
}

func TestCreateMachinesRefusesOutdatedDecision(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1)
	t.Run("a decision about another set", func(t *testing.T) {
		in := activitiestest.NewMachineCreation(s, "s-a")
		in.Set = activitiestest.NewFormerObjectRef(s)
		w := activitiestest.NewWorld(t, s)
		_, err := activitiestest.RunActivity[set.WriteResult](w, newActivities(w.Kube).CreateMachines, in)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
	t.Run("a decision about a set that is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		_, err := activitiestest.RunActivity[set.WriteResult](
			w,
			newActivities(w.Kube).CreateMachines,
			activitiestest.NewMachineCreation(s, "s-a"),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
	t.Run("a decision that is out of date", func(t *testing.T) {
		w := activitiestest.NewWorld(t, s)
		w.EditObject(cache.SetsResource, "s", map[string]any{"spec": map[string]any{"replicas": 0}})
		_, err := activitiestest.RunActivity[set.WriteResult](
			w,
			newActivities(w.Kube).CreateMachines,
			activitiestest.NewMachineCreation(s, "s-a"),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Nil(t, w.Machine("s-a"))
	})
	t.Run("the name of a stranger", func(t *testing.T) {
		w := activitiestest.NewWorld(t, s, activitiestest.NewMachine("s-a"))
		_, err := activitiestest.RunActivity[set.WriteResult](
			w,
			newActivities(w.Kube).CreateMachines,
			activitiestest.NewMachineCreation(s, "s-a"),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.Machine("s-a").OwnerReferences)
	})
	t.Run("a name that was taken and is free again: the set itself is not gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t, s)
		activitiestest.FailRequests(
			w.MachineClient,
			"create",
			"machines",
			1,
			apierrors.NewAlreadyExists(schema.GroupResource{}, "s-a"),
			nil,
		)
		_, err := activitiestest.RunActivity[set.WriteResult](
			w,
			newActivities(w.Kube).CreateMachines,
			activitiestest.NewMachineCreation(s, "s-a"),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	})
}

func TestCreateMachinesStopsAfterRefusedWrite(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 50)
	w := activitiestest.NewWorld(t, s)
	long := strings.Repeat("x", 5000)
	activitiestest.FailRequests(
		w.MachineClient,
		"create",
		"machines",
		-1,
		apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "s-a", fmt.Errorf("exceeded quota %s", long)),
		nil,
	)
	w.ForgetRequests()
	done, err := activitiestest.RunActivity[set.WriteResult](
		w,
		newActivities(w.Kube).CreateMachines,
		activitiestest.NewMachineCreation(s, "s-a", "s-b", "s-c", "s-d", "s-e"),
	)
	require.NoError(t, err)
	assert.Contains(t, done.Failure.Message, "exceeded quota")
	assert.Less(t, len(done.Failure.Message), 1100, "an answer that would not fit a history is cut")
	assert.Len(t, w.MutatingRequests(), 1, "what fails for one is not tried for all")
	events := w.TakeNewEvents()
	require.Len(t, events, 1, "people are told")
	assert.Contains(t, events[0], "Warning FailedCreate Error creating: create machine s-a: ")
	assert.Less(t, len(events[0]), 1100)
}

// slowClientset is a client that creates machines slowly and stops if the context ends; the fakes ignore contexts.
// slowClientset rejects the machine s-bad once the creations of s-a and s-b are in progress.
type slowClientset struct {
	versioned.Interface
	creationsInProgress *sync.WaitGroup
}

type slowV1alpha1Client struct {
	typed.MachineV1alpha1Interface
	creationsInProgress *sync.WaitGroup
}

type slowMachineClient struct {
	typed.MachineInterface
	creationsInProgress *sync.WaitGroup
}

func (c slowClientset) MachineV1alpha1() typed.MachineV1alpha1Interface {
	return slowV1alpha1Client{c.Interface.MachineV1alpha1(), c.creationsInProgress}
}

func (c slowV1alpha1Client) Machines(namespace string) typed.MachineInterface {
	return slowMachineClient{c.MachineV1alpha1Interface.Machines(namespace), c.creationsInProgress}
}

func (c slowMachineClient) Create(
	ctx context.Context,
	m *v1alpha1.Machine,
	options metav1.CreateOptions,
) (*v1alpha1.Machine, error) {
	switch m.Name {
	case "s-bad":
		c.creationsInProgress.Wait()
		return nil, apierrors.NewInternalError(assert.AnError)
	case "s-a", "s-b":
		c.creationsInProgress.Done()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return c.MachineInterface.Create(ctx, m, options)
	}
}

func TestCreateMachinesWaitsForRunningCreations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 4)
		w := activitiestest.NewWorld(t, s)
		var underWay sync.WaitGroup
		underWay.Add(2)
		cluster, err := cache.NewCluster(slowClientset{w.MachineClient, &underWay}, w.TargetClient, nil)
		require.NoError(t, err)
		w.Kube = &kube.Kube{Cluster: cluster, Recorder: w.Recorder}
		_, err = activitiestest.RunActivity[set.WriteResult](
			w,
			newActivities(w.Kube).CreateMachines,
			activitiestest.NewMachineCreation(s, "s-a", "s-b", "s-bad", "s-c"),
		)
		require.Error(t, err)
		for _, name := range []string{"s-a", "s-b"} {
			assert.NotNil(
				t,
				w.Machine(name),
				"what is under way is there when the failure is known, so that the next look misses nothing",
			)
		}
	})
}

// withOrphanFinalizer puts a set into the state after kubectl delete --cascade=orphan, before the garbage collector
// removes the owner references.
func withOrphanFinalizer(s *v1alpha1.MachineSet) {
	activitiestest.WithDeletionTimestamp(s)
	s.Finalizers = append(s.Finalizers, metav1.FinalizerOrphanDependents)
}

func TestCascadeOrphanKeepsTheMachines(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 2, withOrphanFinalizer)
	all := machineSetWithMachines(s, 3)
	all[3].(*v1alpha1.Machine).Labels["app"] = "other"
	w := activitiestest.NewWorld(t, append(all, activitiestest.NewMachine("stray"))...)
	for _, live := range []bool{false, true} {
		d := decideSet(w, kube.ReadInput{Ref: activitiestest.NewRef(s), Live: live})
		assert.False(
			t,
			d.Scale.HasListEntries(),
			"nothing below the set is deleted, released, adopted or changed: %+v",
			d.Scale,
		)
		assert.False(t, d.Free)
		assert.Equal(t, attention.NeedDeletion, d.Pending.Need, "the run waits for the garbage collector")
		assert.Contains(t, d.Pending.Why, "--cascade=orphan")
	}
	t.Run("without machines our finalizer waits for the garbage collector, too", func(t *testing.T) {
		assert.False(t, decideSet(activitiestest.NewWorld(t, s), activitiestest.NewReadInput(s)).Free)
	})
	t.Run("foreground deletion deletes the machines", func(t *testing.T) {
		s := activitiestest.NewMachineSet("s", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet])
		s.Finalizers = append(s.Finalizers, metav1.FinalizerDeleteDependents)
		assert.Len(
			t,
			decideSet(
				activitiestest.NewWorld(t, machineSetWithMachines(s, 2)...),
				activitiestest.NewReadInput(s),
			).Scale.Delete,
			2,
		)
	})
}
