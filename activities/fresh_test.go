package activities_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/observe"
)

func decideMachine(w *world, in activities.Read) activities.MachineDecision {
	w.t.Helper()
	return twice[activities.MachineDecision](w, w.DecideMachine, in)
}

func TestDecideMachineOfANewMachine(t *testing.T) {
	t.Parallel()
	m := machine("m", bare)
	w := newWorld(t, m, class())
	d := decideMachine(w, read(m))
	createBy := m.CreationTimestamp.Add(20 * time.Minute).In(d.CreateBy.Location())
	assert.Equal(t, activities.MachineDecision{
		Need: attention.Instance, Why: "new: not yet taken care of", Version: "900", Class: "small", Provider: "fake",
		Prepare: true, Target: true, NeverTried: true, CreateBy: createBy,
		Health: &health.Verdict{Deadline: createBy, Why: "the provider has not made its instance"},
	}, d)
	assert.Empty(t, w.requests(), "all of it is in the caches")

	t.Run("needs a bootstrap token when its class says what it boots with", func(t *testing.T) {
		assert.True(t, decideMachine(newWorld(t, m, withSecrets("a", "")), read(m)).Token)
		assert.False(t, decideMachine(newWorld(t, m, withSecrets("", "a")), read(m)).Token)
	})
}

// While the cloud makes fifty machines of a set, further ones let those of other sets pass.
func TestDecideMachineOfOneOfVeryMany(t *testing.T) {
	t.Parallel()
	huge, small := set("huge", 60), set("small", 60)
	yields := func(set *v1alpha1.MachineSet, others int) bool {
		m := machine("m", bare, ownedBy[*v1alpha1.Machine](set))
		objects := []runtime.Object{class(), huge, small, m}
		for i := range others {
			objects = append(objects, machine(fmt.Sprint("m-", i), ownedBy[*v1alpha1.Machine](huge), func(m *v1alpha1.Machine) {
				m.Spec.ProviderID = ""
				m.Status.LastOperation.Type, m.Status.LastOperation.State = v1alpha1.MachineOperationCreate, v1alpha1.MachineStateProcessing
			}))
		}
		w := newWorld(t, objects...)
		w.FairCalls = 50
		return decideMachine(w, read(m)).Yields
	}
	assert.Equal(t, []bool{false, true, false}, []bool{yields(huge, 49), yields(huge, 50), yields(small, 50)})
}

// calm returns a world in which all is done for a machine that runs on the node n.
func calm(t *testing.T, m *v1alpha1.Machine, objects ...runtime.Object) *world {
	t.Helper()
	w := newWorld(t, append(objects, m, node())...)
	twice[activities.Gate](w, w.SyncNode, read(m))
	twice[string](w, w.ReportMachine, activities.MachineReport{Read: read(m), Phase: "Running"})
	w.forget()
	return w
}

func TestDecideMachineOfAMachineInUse(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	m.Status.LastKnownState, m.Status.LastOperation.Type = "state-7", v1alpha1.MachineOperationCreate
	d := decideMachine(calm(t, m, class()), read(m))
	assert.Equal(t, attention.Nothing, d.Need)
	assert.Equal(t, "Running", d.Phase)
	assert.Equal(t, []string{"fake:///n", "n", "state-7"}, []string{d.ProviderID, d.NodeName, d.LastKnownState})
	assert.False(t, d.NeverTried)
	assert.False(t, d.Prepare)
	assert.Nil(t, d.Problem)
	assert.Nil(t, d.Health)
}

func TestDecideMachineGone(t *testing.T) {
	t.Parallel()
	m := machine("m")
	w := newWorld(t, m, class())
	for name, in := range map[string]activities.Read{
		"no such object":                         {Ref: activities.Ref{Namespace: shop, Name: "x", UID: "uid-x"}},
		"no such object, read live":              {Ref: activities.Ref{Namespace: shop, Name: "x", UID: "uid-x"}, Live: true},
		"another object has its name":            {Ref: stranger(m)},
		"another object has its name, read live": {Ref: stranger(m), Live: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, activities.MachineDecision{Gone: true, Why: "the object is gone"}, decideMachine(w, in))
		})
	}
}

func TestDecideMachineWithoutAUsableClass(t *testing.T) {
	t.Parallel()
	m := machine("m")
	for name, row := range map[string]struct {
		w       *world
		reason  string
		message string
	}{
		"U171: it does not exist": {newWorld(t, m), "ClassNotFound", "MachineClass small does not exist in namespace shop"},
		"it names no provider": {
			newWorld(t, m, class(func(c *v1alpha1.MachineClass) { c.Provider = "" })),
			"ClassInvalid", "MachineClass small cannot be used: name of provider is empty",
		},
	} {
		for way, in := range map[string]activities.Read{"cached": read(m), "live": live(m)} {
			t.Run(name+", "+way, func(t *testing.T) {
				d := decideMachine(row.w, in)
				require.NotNil(t, d.Problem)
				assert.Equal(t, activities.Problem{Reason: row.reason, Message: row.message, React: activities.UntilCredential}, *d.Problem)
				assert.Empty(t, d.Provider)
				assert.Equal(t, attention.Instance, d.Need, "what it needs does not change")
			})
		}
	}
}

func TestCachesThatAreBehind(t *testing.T) {
	t.Parallel()
	m := machine("m")
	w := newWorld(t, m, class())
	w.hold()
	w.edit(observe.Machines, "m", annotated("note", "new"))
	in := activities.Read{Ref: ref(m), Gate: activities.Gate{observe.Machines: w.machine("m").ResourceVersion}}
	w.forget()

	t.Run("a local activity gives up early and says so", func(t *testing.T) {
		t.Parallel()
		begun := time.Now()
		_, err := local[activities.MachineDecision](w, w.DecideMachine, in)
		assertFailure(t, err, activities.TypeCacheBehind, true)
		assert.Less(t, time.Since(begun), 2*time.Second, "a local activity has two seconds")
	})
	t.Run("a regular one reads live", func(t *testing.T) {
		t.Parallel()
		d, err := run[activities.MachineDecision](w, w.DecideMachine, in)
		require.NoError(t, err)
		assert.Equal(t, in.Gate[observe.Machines], d.Version)
	})
	t.Run("a live read waits for no cache, in a local activity too", func(t *testing.T) {
		t.Parallel()
		in := activities.Read{Ref: in.Ref, Gate: in.Gate, Live: true}
		d, err := local[activities.MachineDecision](w, w.DecideMachine, in)
		require.NoError(t, err)
		assert.Equal(t, in.Gate[observe.Machines], d.Version)
	})
}

func TestALiveReadIsLiveThroughout(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachinePending))
	w := newWorld(t, m)
	w.hold() // the node that woke us and the class are in no cache
	w.create(node(), class())
	in := activities.Read{Ref: ref(m), Gate: activities.Gate{observe.Nodes: w.node().ResourceVersion}}
	d, err := run[activities.MachineDecision](w, w.DecideMachine, in)
	require.NoError(t, err)
	assert.Equal(t, attention.Health, d.Need, "the node has joined: nobody tells us a second time")
	assert.Equal(t, "fake", d.Provider)
}

func TestAReadWaitsForWhatWokeIt(t *testing.T) {
	t.Parallel()
	m := machine("m")
	w := newWorld(t, m, class())
	release := w.hold()
	w.edit(observe.Machines, "m", annotated("note", "new"))
	in := activities.Read{Ref: ref(m), Gate: activities.Gate{observe.Machines: w.machine("m").ResourceVersion}}
	w.forget()
	time.AfterFunc(20*time.Millisecond, release)
	d, err := run[activities.MachineDecision](w, w.DecideMachine, in)
	require.NoError(t, err)
	assert.Equal(t, in.Gate[observe.Machines], d.Version)
	assert.Empty(t, w.requests(), "waiting costs the API server nothing")
}
