package observe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/verb"
	"millwright/observe"
)

// begun is when the drains of these tests began, and asked when somebody gives a verb.
var (
	begun = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	asked = begun.Add(time.Hour)
)

// evicting is a machine whose node is drained since begun, by these means.
func evicting(means drain.Means) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		goingMachine(m)
		onNode("n")(m)
		m.Annotations = map[string]string{}
		m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
		m.Status.Deletion = &v1alpha1.MachineDeletion{
			Stage: v1alpha1.MachineDeletionDrain, Since: metav1.NewTime(begun),
			Drain: &v1alpha1.MachineDrain{StartedAt: metav1.NewTime(begun), Means: string(means), MeansSince: new(metav1.NewTime(begun))},
		}
	}
}

func TestVerbFactsOfADrain(t *testing.T) {
	m := machine("m", evicting(drain.Evict), func(m *v1alpha1.Machine) {
		m.Annotations[v1alpha1.AnnotationHold] = "bob: wait"
		m.Annotations[v1alpha1.AnnotationExtend] = "2026-11-21T15:00:00Z bob"
		m.Annotations[v1alpha1.AnnotationRelease] = ""
	})
	assert.Equal(t, verb.Facts{
		Machine: "shop/m", UID: "uid-m", Phase: "Terminating", Now: asked, Deleting: true, Stage: deletion.Drain, Means: drain.Evict,
		Said:     map[verb.Verb]string{verb.Hold: "bob: wait", verb.Resume: "bob: wait", verb.Extend: "2026-11-21T15:00:00Z bob", verb.Release: ""},
		Deadline: begun.Add(3 * time.Hour), Extended: begun.Add(3 * time.Hour), Node: "n", Keeps: 96 * time.Hour,
	}, observe.VerbFacts(m, asked), "an empty value counts, too")
}

func TestVerbFactsOfAMachineThatStays(t *testing.T) {
	end := metav1.NewTime(asked)
	m := machine("m", func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationPreserve: "when-failed", v1alpha1.AnnotationLastAppliedPreserve: "now"}
		m.Status.CurrentStatus.PreserveExpiryTime = &end
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachinePreserveTimeout: &metav1.Duration{Duration: time.Minute}}
	})
	assert.Equal(t, verb.Facts{
		Machine: "shop/m", UID: "uid-m", Phase: "new", Now: asked, NodeSays: "now", Keeps: time.Minute, KeptTill: end.Time,
		Said: map[verb.Verb]string{verb.Preserve: "when-failed", verb.Unpreserve: "when-failed"},
	}, observe.VerbFacts(m, asked))
}

// staying is a machine that is not to go, and whose node is emptied since begun for its in-place update or its preservation.
func staying(purpose v1alpha1.DrainPurpose, means drain.Means) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		onNode("n")(m)
		m.Annotations = map[string]string{}
		occasion := metav1.NewTime(begun.Add(-time.Second))
		m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonSelectedForUpdate, LastTransitionTime: occasion}}
		if purpose == v1alpha1.DrainForPreservation {
			m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, PreserveExpiryTime: &occasion}
		}
		m.Status.Drain = &v1alpha1.StayingDrain{Purpose: purpose, Occasion: occasion, MachineDrain: v1alpha1.MachineDrain{
			StartedAt: metav1.NewTime(begun), Means: string(means), MeansSince: new(metav1.NewTime(begun)),
		}}
		m.Status.CurrentOperation = &v1alpha1.Operation{Step: "evict", Deadline: new(metav1.NewTime(asked.Add(time.Minute)))}
	}
}

func TestVerbFactsOfANodeThatIsEmptiedAlthoughItsMachineStays(t *testing.T) {
	for _, purpose := range []v1alpha1.DrainPurpose{v1alpha1.DrainForUpdate, v1alpha1.DrainForPreservation} {
		t.Run(string(purpose), func(t *testing.T) {
			f := observe.VerbFacts(machine("m", staying(purpose, drain.Evict)), asked)
			assert.True(t, f.Emptying)
			assert.False(t, f.Deleting || f.DrainOver)
			assert.Equal(t, drain.Evict, f.Means)
			assert.Equal(t, begun.Add(2*time.Hour), f.Deadline, "by its own record")

			f = observe.VerbFacts(machine("m", staying(purpose, drain.Evict), func(m *v1alpha1.Machine) {
				m.Annotations[v1alpha1.AnnotationExtend] = "2026-11-21T15:00:00Z bob"
			}), asked)
			assert.Equal(t, begun.Add(3*time.Hour), f.Deadline)

			f = observe.VerbFacts(machine("m", staying(purpose, drain.Delete)), asked)
			assert.Equal(t, drain.Delete, f.Means)
			assert.Equal(t, asked.Add(time.Minute), f.Deadline, "as the status has it")

			for name, change := range map[string]func(*v1alpha1.Machine){
				"it has ended":            func(m *v1alpha1.Machine) { m.Status.Drain.Result = "Drained" },
				"it is for another time":  func(m *v1alpha1.Machine) { m.Status.Drain.Occasion = metav1.NewTime(begun.Add(-time.Hour)) },
				"nothing is in motion":    func(m *v1alpha1.Machine) { m.Status.CurrentOperation = nil },
				"nobody wants it anymore": func(m *v1alpha1.Machine) { m.Status.Conditions, m.Status.CurrentStatus = nil, v1alpha1.CurrentStatus{} },
				"the machine is to go":    goingMachine,
			} {
				m := machine("m", staying(purpose, drain.Evict), change)
				f := observe.VerbFacts(m, asked)
				assert.False(t, f.Emptying, name)
				assert.Empty(t, f.Means, name)
				assert.Zero(t, f.Deadline, name)
				assert.Nil(t, observe.Draining(m), name)
			}
		})
	}
	assert.Nil(t, observe.Staying(machine("m")))
}

func TestDrainIsOver(t *testing.T) {
	ended := machine("m", evicting(drain.Evict), func(m *v1alpha1.Machine) { m.Status.Deletion.Drain.Result = "Drained" })
	later := machine("m", evicting(drain.Kill), func(m *v1alpha1.Machine) { m.Status.Deletion.Stage = v1alpha1.MachineDeletionDetach })
	for _, m := range []*v1alpha1.Machine{ended, later} {
		f := observe.VerbFacts(m, asked)
		assert.True(t, f.DrainOver)
		assert.Empty(t, f.Means)
		assert.Zero(t, f.Deadline)
	}
	hooked := machine("m", goingMachine, func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionPreDrainHooks}
	})
	assert.False(t, observe.DrainOver(hooked))
	assert.False(t, observe.DrainOver(machine("m")))
}

func TestEvictionsOfANodeThatIsNotWell(t *testing.T) {
	m := machine("m", evicting(drain.Evict), func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(asked)}}
	})
	until, then := observe.Evictions(m, asked)
	assert.Equal(t, asked.Add(5*time.Minute), until)
	assert.Equal(t, drain.Kill, then)
	until, then = observe.Evictions(m, asked.Add(5*time.Minute+observe.Overdue+1))
	assert.Equal(t, begun.Add(2*time.Hour), until, "nobody has killed anything: it is well again")
	assert.Equal(t, drain.Delete, then)
}

func TestEachVerbHasItsAnnotation(t *testing.T) {
	of := map[string][]verb.Verb{}
	for _, v := range verb.Names() {
		key := observe.VerbAnnotation(v)
		of[key] = append(of[key], v)
	}
	assert.Equal(t, map[string][]verb.Verb{
		v1alpha1.AnnotationExtend: {verb.Extend}, v1alpha1.AnnotationRetry: {verb.Retry}, v1alpha1.AnnotationForce: {verb.Force},
		v1alpha1.AnnotationSkipDrain: {verb.Skip}, v1alpha1.AnnotationRelease: {verb.Release},
		v1alpha1.AnnotationHold: {verb.Hold, verb.Resume}, v1alpha1.AnnotationPreserve: {verb.Preserve, verb.Unpreserve},
	}, of)
	assert.Empty(t, observe.VerbAnnotation("burn"))
}

// decide/verb cannot know the API's words for preservation.
func TestWishForPreservationIsInTheWordsOfTheAPI(t *testing.T) {
	for v, want := range map[verb.Verb]string{verb.Preserve: v1alpha1.ValuePreserveNow, verb.Unpreserve: v1alpha1.ValuePreserveFalse} {
		assert.Equal(t, want, verb.Decide(verb.Order{Verb: v}, observe.VerbFacts(machine("m"), asked)).Value)
	}
}
