package activities_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/generated/clientset/versioned"
	typed "millwright/api/generated/clientset/versioned/typed/api/v1alpha1"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
)

// members returns machines of a set, named s-1, s-2 and so on.
func members(s *v1alpha1.MachineSet, n int, change ...func(*v1alpha1.Machine)) []runtime.Object {
	objects := []runtime.Object{s}
	for i := range n {
		m := machine(fmt.Sprintf("%s-%d", s.Name, i+1), append(change, ownedBy[*v1alpha1.Machine](s))...)
		m.ResourceVersion = fmt.Sprint(900 + i)
		observe.FollowTemplate(m, s)
		objects = append(objects, m)
	}
	return objects
}

func setRead(s *v1alpha1.MachineSet) activities.SetRead { return activities.SetRead{Read: read(s)} }

func decideScale(w *world, in activities.Read) activities.SetDecision {
	w.t.Helper()
	return twice[activities.SetDecision](w, w.DecideScale, activities.SetRead{Read: in})
}

func TestDecideScale(t *testing.T) {
	t.Parallel()
	t.Run("U40: creates what is missing", func(t *testing.T) {
		s := set("s", 3)
		d := decideScale(newWorld(t, append(members(s, 1), class())...), read(s))
		assert.Len(t, d.Create, 2)
		assert.Equal(t, "create 2 machines: 3 wanted, 1 there", d.Decision.Why)
		assert.Equal(t, attention.Scale, d.Need)
		assert.Equal(t, "900", d.Version)
		assert.True(t, d.Report)
	})
	t.Run("deletes what is too many, as it was seen", func(t *testing.T) {
		s := set("s", 1)
		d := decideScale(newWorld(t, members(s, 2)...), read(s))
		require.Len(t, d.Delete, 1)
		assert.Contains(t, []string{"uid-s-1 900", "uid-s-2 901"}, d.Delete[0].UID+" "+d.Delete[0].Version)
	})
	t.Run("U43: a set that has what it wants, and says so, is calm", func(t *testing.T) {
		s := set("s", 2)
		w := newWorld(t, members(s, 2, phase(v1alpha1.MachineRunning))...)
		reportSet(w, activities.SetReport{SetRead: setRead(s)})
		d := decideScale(w, read(s))
		assert.Equal(t, attention.Nothing, d.Need)
		assert.False(t, d.Report || d.Prepare || d.Free)
		assert.Empty(t, d.Create)
		assert.Empty(t, d.Delete)
	})
	t.Run("an operation that was left in the status of a calm set is worth a report", func(t *testing.T) {
		s := set("s", 2)
		w := newWorld(t, members(s, 2, phase(v1alpha1.MachineRunning))...)
		reportSet(w, activities.SetReport{SetRead: setRead(s)})
		s = w.set("s").DeepCopy()
		s.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "machineset/shop/s"}
		w.rewrite(s)
		d := decideScale(w, read(s))
		assert.Equal(t, attention.Nothing, d.Need)
		assert.True(t, d.Report)
	})
	t.Run("a new set lacks our finalizer", func(t *testing.T) {
		s := set("s", 0, bare)
		assert.True(t, decideScale(newWorld(t, s), read(s)).Prepare)
	})
	t.Run("U50: a set that is to go deletes its machines, and is released when none is left", func(t *testing.T) {
		s := set("s", 5, going[*v1alpha1.MachineSet])
		d := decideScale(newWorld(t, members(s, 2)...), read(s))
		assert.Len(t, d.Delete, 2)
		assert.False(t, d.Free)
		assert.True(t, decideScale(newWorld(t, s), read(s)).Free)
	})
	t.Run("is gone, also when another set has its name", func(t *testing.T) {
		w := newWorld(t, set("s", 5))
		for _, live := range []bool{false, true} {
			assert.True(t, decideScale(w, activities.Read{Ref: stranger(set("s", 5)), Live: live}).Gone)
			assert.True(t, decideScale(w, activities.Read{Ref: ref(set("x", 5)), Live: live}).Gone)
		}
	})
	t.Run("never asks for more than a batch", func(t *testing.T) {
		s := set("s", 1000)
		assert.Len(t, decideScale(newWorld(t, s, class()), read(s)).Create, 50)
	})
}

// counted returns a set whose status says what is there.
func counted(s *v1alpha1.MachineSet, replicas, ready int32) *v1alpha1.MachineSet {
	s.Status = v1alpha1.MachineSetStatus{
		ObservedGeneration: s.Generation, Replicas: replicas, FullyLabeledReplicas: replicas, ReadyReplicas: ready, AvailableReplicas: ready, Selector: "app=web",
	}
	return s
}

func TestDecideScaleWithACacheThatIsBehind(t *testing.T) {
	t.Parallel()
	s := set("s", 3)
	w := newWorld(t, s)
	w.hold()
	made, err := run[activities.Written](w, w.CreateMachines, activities.Creation{Set: ref(s), Version: "900", Names: []string{"s-a", "s-b", "s-c"}})
	require.NoError(t, err)

	t.Run("D11: makes no machine a second time: locally it asks for patience", func(t *testing.T) {
		_, err := local[activities.SetDecision](w, w.DecideScale, activities.SetRead{Read: activities.Read{Ref: ref(s), Gate: made.Versions}})
		assertFailure(t, err, activities.TypeCacheBehind, true)
	})
	t.Run("D11: makes no machine a second time: with patience it reads live", func(t *testing.T) {
		d, err := run[activities.SetDecision](w, w.DecideScale, activities.SetRead{Read: activities.Read{Ref: ref(s), Gate: made.Versions}})
		require.NoError(t, err)
		assert.Empty(t, d.Create)
	})
	t.Run("what was read live says how far the caches must be before they are read again", func(t *testing.T) {
		d, err := local[activities.SetDecision](w, w.DecideScale, activities.SetRead{Read: live(s)})
		require.NoError(t, err)
		assert.Equal(t, made.Versions[observe.Machines], d.Seen[observe.Machines])
		assert.Equal(t, w.set("s").ResourceVersion, d.Seen[observe.Sets])
	})
}

func create(s *v1alpha1.MachineSet, names ...string) activities.Creation {
	return activities.Creation{Set: ref(s), Version: s.ResourceVersion, Names: names}
}

func TestCreateMachines(t *testing.T) {
	t.Parallel()
	s := set("s", 2, func(s *v1alpha1.MachineSet) {
		s.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: "7m", "note": "not for machines"}
	})
	w := newWorld(t, s)
	gate := twice[activities.Written](w, w.CreateMachines, create(s, "s-a", "s-b"))
	m := w.machine("s-b")
	require.NotNil(t, m)
	assert.Equal(t, map[string]string{"app": "web"}, m.Labels)
	assert.Equal(t, map[string]string{"team": "shop", v1alpha1.AnnotationEffectiveCreationTimeout: "7m"}, m.Annotations)
	assert.Equal(t, []string{backup, v1alpha1.FinalizerMachine}, m.Finalizers, "on from the first moment")
	assert.Equal(t, "small", m.Spec.Class.Name)
	require.Len(t, m.OwnerReferences, 1)
	owner := m.OwnerReferences[0]
	assert.Equal(t, []string{"machine.sapcloud.io/v1alpha1", "MachineSet", "s", "uid-s"}, []string{owner.APIVersion, owner.Kind, owner.Name, string(owner.UID)})
	assert.True(t, *owner.Controller && *owner.BlockOwnerDeletion)

	newest := w.machine("s-a").ResourceVersion
	if m.ResourceVersion > newest {
		newest = m.ResourceVersion
	}
	assert.Equal(t, activities.Written{Versions: activities.Gate{observe.Machines: newest}}, gate, "the newest of what was made")
	assert.ElementsMatch(t, []string{"Normal SuccessfulCreate Created Machine: s-a", "Normal SuccessfulCreate Created Machine: s-b"}, w.told())
}

func TestCreateMachinesFiftyAtOnce(t *testing.T) {
	t.Parallel()
	s := set("s", 50)
	w := newWorld(t, s)
	var batch []string
	for i := range 50 {
		batch = append(batch, fmt.Sprintf("s-%02d", i))
	}
	gate := twice[activities.Written](w, w.CreateMachines, create(s, batch...))
	assert.Len(t, w.Cluster.MachinesOf("uid-s"), 50)
	assert.Equal(t, "1050", gate.Versions[observe.Machines])
	assert.Len(t, w.told(), 50)
}

func TestCreateMachinesAfterAFailure(t *testing.T) {
	t.Parallel()
	s := set("s", 4)
	w := newWorld(t, s)
	failing(w.machines, "create", "machines", 1, apierrors.NewInternalError(assert.AnError), nil)
	names := create(s, "s-a", "s-b", "s-c", "s-d")
	_, err := run[activities.Written](w, w.CreateMachines, names)
	_, retryable := failure(t, err)
	assert.True(t, retryable)
	w.settle()
	twice[activities.Written](w, w.CreateMachines, names)
	assert.Len(t, w.Cluster.MachinesOf("uid-s"), 4, "the same names, so no machine twice")
	assert.Len(t, w.told(), 4)
}

func TestCreateMachinesRefuses(t *testing.T) {
	t.Parallel()
	s := set("s", 1)
	t.Run("a decision about another set", func(t *testing.T) {
		in := create(s, "s-a")
		in.Set = stranger(s)
		w := newWorld(t, s)
		_, err := run[activities.Written](w, w.CreateMachines, in)
		assertFailure(t, err, activities.TypeObjectGone, false)
	})
	t.Run("a decision about a set that is gone", func(t *testing.T) {
		w := newWorld(t)
		_, err := run[activities.Written](w, w.CreateMachines, create(s, "s-a"))
		assertFailure(t, err, activities.TypeObjectGone, false)
	})
	t.Run("a decision that is out of date", func(t *testing.T) {
		w := newWorld(t, s)
		w.edit(observe.Sets, "s", map[string]any{"spec": map[string]any{"replicas": 0}})
		_, err := run[activities.Written](w, w.CreateMachines, create(s, "s-a"))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Nil(t, w.machine("s-a"))
	})
	t.Run("the name of a stranger", func(t *testing.T) {
		w := newWorld(t, s, machine("s-a"))
		_, err := run[activities.Written](w, w.CreateMachines, create(s, "s-a"))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Empty(t, w.machine("s-a").OwnerReferences)
	})
	t.Run("a name that was taken and is free again: the set itself is not gone", func(t *testing.T) {
		w := newWorld(t, s)
		failing(w.machines, "create", "machines", 1, apierrors.NewAlreadyExists(schema.GroupResource{}, "s-a"), nil)
		_, err := run[activities.Written](w, w.CreateMachines, create(s, "s-a"))
		assertFailure(t, err, activities.TypeConflict, false)
	})
}

func TestU54_MS27_CreateMachinesThatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	s := set("s", 50)
	w := newWorld(t, s)
	long := strings.Repeat("x", 5000)
	failing(w.machines, "create", "machines", -1, apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "s-a", fmt.Errorf("exceeded quota %s", long)), nil)
	w.forget()
	done, err := run[activities.Written](w, w.CreateMachines, create(s, "s-a", "s-b", "s-c", "s-d", "s-e"))
	require.NoError(t, err)
	assert.Contains(t, done.Failure.Message, "exceeded quota")
	assert.Less(t, len(done.Failure.Message), 1100, "an answer that would not fit a history is cut")
	assert.Len(t, w.writes(), 1, "what fails for one is not tried for all")
	events := w.told()
	require.Len(t, events, 1, "people are told")
	assert.Contains(t, events[0], "Warning FailedCreate Error creating: create machine s-a: ")
	assert.Less(t, len(events[0]), 1100)
}

// slow is a client whose creations of machines take a moment, unless their context ends first (the fakes know no context),
// and which refuses s-bad once s-a and s-b are under way.
type slow struct {
	versioned.Interface
	underWay *sync.WaitGroup
}

type slowGroup struct {
	typed.MachineV1alpha1Interface
	underWay *sync.WaitGroup
}

type slowMachines struct {
	typed.MachineInterface
	underWay *sync.WaitGroup
}

func (c slow) MachineV1alpha1() typed.MachineV1alpha1Interface {
	return slowGroup{c.Interface.MachineV1alpha1(), c.underWay}
}

func (c slowGroup) Machines(namespace string) typed.MachineInterface {
	return slowMachines{c.MachineV1alpha1Interface.Machines(namespace), c.underWay}
}

func (c slowMachines) Create(ctx context.Context, m *v1alpha1.Machine, options metav1.CreateOptions) (*v1alpha1.Machine, error) {
	switch m.Name {
	case "s-bad":
		c.underWay.Wait()
		return nil, apierrors.NewInternalError(assert.AnError)
	case "s-a", "s-b":
		c.underWay.Done()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return c.MachineInterface.Create(ctx, m, options)
	}
}

func TestMS27_CreateMachinesCutsNothingShort(t *testing.T) {
	t.Parallel()
	s := set("s", 4)
	w := newWorld(t, s)
	var underWay sync.WaitGroup
	underWay.Add(2)
	cluster, err := observe.NewCluster(slow{w.machines, &underWay}, w.target, nil)
	require.NoError(t, err)
	w.Activities = &activities.Activities{Cluster: cluster, Recorder: w.recorder}
	_, err = run[activities.Written](w, w.CreateMachines, create(s, "s-a", "s-b", "s-bad", "s-c"))
	require.Error(t, err)
	for _, name := range []string{"s-a", "s-b"} {
		assert.NotNil(t, w.machine(name), "what is under way is there when the failure is known, so that the next look misses nothing")
	}
}
