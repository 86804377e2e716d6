package activities_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/decide/verb"
)

// verbAt is when all verbs of the tests are given. It is neither a worker's time nor in whole seconds.
var verbAt = time.Date(2100, 3, 1, 12, 0, 0, 500_000_000, time.UTC)

func ordered(m metav1.Object, o verb.Order) activities.VerbOrder {
	return activities.VerbOrder{Machine: ref(m), Order: o, At: verbAt}
}

func wished(key, value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[key] = value
	}
}

func TestVerbIsWrittenOnceAndTold(t *testing.T) {
	t.Parallel()
	old := wished(v1alpha1.AnnotationHold, "bob: wait")
	for _, c := range []struct {
		name  string
		as    func(*v1alpha1.Machine)
		order verb.Order
		key   string
		value string // empty: it is not there
		told  string
	}{
		{
			"force", going[*v1alpha1.Machine],
			verb.Order{Verb: verb.Force, Actor: "ann", Reason: "it\n burns "},
			v1alpha1.AnnotationForce, "ann: it burns",
			`ann wants force: it burns; wrote drain.machine.sapcloud.io/force: "ann: it burns"`,
		},
		{
			"hold in advance", nil,
			verb.Order{Verb: verb.Hold, Actor: "ann", Reason: "look", InAdvance: true},
			v1alpha1.AnnotationHold, "ann: look",
			`ann wants hold: look; wrote drain.machine.sapcloud.io/hold: "ann: look"`,
		},
		{
			"resume", old,
			verb.Order{Verb: verb.Resume, Actor: "ann"},
			v1alpha1.AnnotationHold, "",
			`ann wants resume; took drain.machine.sapcloud.io/hold off; it said "bob: wait"`,
		},
		{
			"retry, at the time of the order", going[*v1alpha1.Machine],
			verb.Order{Verb: verb.Retry, Actor: "ann"},
			v1alpha1.AnnotationRetry, "2100-03-01T12:00:00Z ann",
			`ann wants retry; wrote drain.machine.sapcloud.io/retry: "2100-03-01T12:00:00Z ann"`,
		},
		{
			"extend until", going[*v1alpha1.Machine],
			verb.Order{Verb: verb.Extend, Actor: "ann", Until: "2100-03-01T15:00:00+01:00"},
			v1alpha1.AnnotationExtend, "2100-03-01T14:00:00Z ann",
			`ann wants extend; wrote drain.machine.sapcloud.io/extend-until: "2100-03-01T14:00:00Z ann"`,
		},
		{
			"extend by, which a second time must not add to", going[*v1alpha1.Machine],
			verb.Order{Verb: verb.Extend, Actor: "ann", Reason: "backup", For: "1h"},
			v1alpha1.AnnotationExtend, "2100-03-01T13:00:00Z ann (at 2100-03-01T12:00:00.5Z): backup",
			`ann wants extend: backup; wrote drain.machine.sapcloud.io/extend-until: "2100-03-01T13:00:00Z ann (at 2100-03-01T12:00:00.5Z): backup"`,
		},
		{
			"preserve", phase(v1alpha1.MachineFailed),
			verb.Order{Verb: verb.Preserve, Actor: "ann", Reason: "look"},
			v1alpha1.AnnotationPreserve, "now",
			`ann wants preserve: look; wrote node.machine.sapcloud.io/preserve: "now"`,
		},
		{
			"unpreserve", wished(v1alpha1.AnnotationPreserve, "now"),
			verb.Order{Verb: verb.Unpreserve, Actor: "ann"},
			v1alpha1.AnnotationPreserve, "false",
			`ann wants unpreserve; wrote node.machine.sapcloud.io/preserve: "false"; it said "now"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := machine("m")
			if c.as != nil {
				c.as(m)
			}
			w := newWorld(t, m)
			w.settle()
			w.forget()
			answer := twice[activities.VerbAnswer](w, w.GiveVerb, ordered(m, c.order))
			value, there := w.machine("m").Annotations[c.key]
			assert.Equal(t, c.value, value)
			assert.Equal(t, c.value != "", there)
			assert.Equal(t, []string{"Normal VerbGiven " + c.told}, w.told())
			assert.Equal(t, []string{"patch machines"}, w.writes())
			assert.True(t, answer.Given)
			assert.Contains(t, c.told, answer.Message)
			assert.Equal(t, w.machine("m").ResourceVersion, answer.Version)
		})
	}
}

// What a verb brings about must not make the second half of its own activity refuse it.
func TestVerbThatHasActedIsStillGivenWhenItIsAskedAgain(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, draining(time.Hour, drain.Evict), wished(v1alpha1.AnnotationSkipDrain, "ann: empty"))
	m.Status.Deletion.Drain.Result = activities.Skipped
	w := newWorld(t, m)
	answer, err := run[activities.VerbAnswer](w, w.GiveVerb, ordered(m, verb.Order{Verb: verb.Skip, Actor: "ann", Reason: "empty"}))
	require.NoError(t, err)
	assert.True(t, answer.Given)
	assert.Empty(t, w.told())
}

func TestVerbIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order   verb.Order
		unheard bool
		message string
		told    []string
	}{
		"and the answer says so": {
			verb.Order{Verb: verb.Retry}, false, "machine shop/m is not being deleted: its phase is Running", []string{},
		},
		"and an event says so": {
			verb.Order{Verb: verb.Force, Actor: "ann", Reason: "it burns"},
			true,
			"machine shop/m is not being deleted: its phase is Running; with inAdvance, force waits for its deletion",
			[]string{"Warning VerbRefused ann wants force: it burns; refused: machine shop/m is not being deleted: its phase is Running; with inAdvance, force waits for its deletion"},
		},
		"as it makes no sense": {
			verb.Order{Verb: "burn"},
			true, `there is no verb "burn": the verbs are extend, retry, hold, resume, force, skip, release, preserve, unpreserve`,
			[]string{`Warning VerbRefused somebody wants burn; refused: there is no verb "burn": the verbs are extend, retry, hold, resume, force, skip, release, preserve, unpreserve`},
		},
		"as it is for another machine": {
			verb.Order{Verb: verb.Preserve, UID: "uid-other"}, false, "the order is for a machine with UID uid-other, and this one has UID uid-m", []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine("m", phase(v1alpha1.MachineRunning))
			w := newWorld(t, m)
			in := ordered(m, c.order)
			in.Unheard = c.unheard
			answer, err := run[activities.VerbAnswer](w, w.GiveVerb, in)
			require.NoError(t, err)
			assert.Equal(t, activities.VerbAnswer{Message: c.message}, answer)
			assert.Empty(t, w.writes())
			assert.Equal(t, c.told, w.told())
		})
	}
}

func TestVerbForAMachineThatIsGone(t *testing.T) {
	t.Parallel()
	m := machine("m")
	w := newWorld(t, m)
	in := ordered(m, verb.Order{Verb: verb.Preserve})
	in.Machine, in.Unheard = stranger(m), true
	answer, err := run[activities.VerbAnswer](w, w.GiveVerb, in)
	require.NoError(t, err)
	assert.Equal(t, activities.VerbAnswer{Message: "object shop/m is gone"}, answer)
	assert.Empty(t, w.writes())
	assert.Empty(t, w.told())
}

// Each write holds only for the machine that was seen: one that changed meanwhile is judged anew.
func TestVerbIsDecidedAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	m := machine("m", going[*v1alpha1.Machine])
	w := newWorld(t, m)
	failing(w.machines, "patch", "machines", 1, apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "m", errors.New("changed")), func() {
		changed := w.machine("m")
		changed.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionNode}
		require.NoError(t, w.machines.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("machines"), changed, shop))
	})
	answer, err := run[activities.VerbAnswer](w, w.GiveVerb, ordered(m, verb.Order{Verb: verb.Skip, Reason: "gone"}))
	require.NoError(t, err)
	assert.Equal(t, "the drain of machine shop/m is over, and its deletion is in stage Node: skip would change nothing", answer.Message)
	assert.NotContains(t, w.machine("m").Annotations, v1alpha1.AnnotationSkipDrain)
}

func TestVerbAndAnAPIServerThatDoesNotTakeIt(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", errors.New("no"))
	for name, c := range map[string]struct {
		fails  error
		answer string // empty: it fails, and is tried again
	}{
		"it is away":     {apierrors.NewServiceUnavailable("away"), ""},
		"it will not do": {forbidden, forbidden.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine("m")
			w := newWorld(t, m)
			failing(w.machines, "patch", "machines", 1, c.fails, nil)
			in := ordered(m, verb.Order{Verb: verb.Preserve, Actor: "ann"})
			in.Unheard = true
			answer, err := run[activities.VerbAnswer](w, w.GiveVerb, in)
			if c.answer == "" {
				require.Error(t, err)
				assert.Empty(t, w.told())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, activities.VerbAnswer{Message: c.answer}, answer)
			assert.Equal(t, []string{"Warning VerbRefused ann wants preserve; refused: " + c.answer}, w.told())
		})
	}
}

// The machine is read live: a cache that is behind would refuse what makes sense by now.
func TestVerbIsDecidedFromTheAPIServer(t *testing.T) {
	t.Parallel()
	m := machine("m", going[*v1alpha1.Machine])
	w := newWorld(t, m)
	w.hold()
	_, err := run[activities.VerbAnswer](w, w.GiveVerb, ordered(m, verb.Order{Verb: verb.Hold, Reason: "wait"}))
	require.NoError(t, err)
	require.Contains(t, w.machine("m").Annotations, v1alpha1.AnnotationHold)
	_, err = run[activities.VerbAnswer](w, w.GiveVerb, ordered(m, verb.Order{Verb: verb.Resume}))
	require.NoError(t, err)
	assert.NotContains(t, w.machine("m").Annotations, v1alpha1.AnnotationHold)
}
