package observe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/observe"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// ago returns a time so many minutes before noon.
func ago(minutes int) metav1.Time {
	return metav1.NewTime(noon.Add(-time.Duration(minutes) * time.Minute))
}

// joined is a machine of node n that was created an hour before noon and is in its phase for 30 minutes.
func joined(m *v1alpha1.Machine) {
	m.Finalizers, m.Spec.ProviderID, m.Labels[v1alpha1.LabelNode] = []string{v1alpha1.FinalizerMachine}, "fake:///i-1", "n"
	m.CreationTimestamp, m.Status.CurrentStatus.LastUpdateTime = ago(60), ago(30)
}

func TestHealthFacts(t *testing.T) {
	gone, recovered := ago(1), ago(2)
	m := machine("m", joined, phase(v1alpha1.MachineUnknown), isDue)
	m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
		MachineHealthTimeout: &metav1.Duration{Duration: 7 * time.Minute}, DisableHealthTimeout: new(true),
		MachineCreationTimeout: &metav1.Duration{Duration: 40 * time.Minute},
	}
	m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: ago(3), RecoveredAt: &recovered, InstanceGoneAt: &gone}
	silent := condition("Ready", "Unknown")
	silent.LastTransitionTime = ago(4)
	n := node(silent)
	goingNode(n)
	critical(n)
	facts := observe.HealthFacts(m, observe.Around{Node: n, Set: set("s", ofDeployment)}, "8 of 10 nodes look dead at once", noon)
	assert.Equal(t, health.Facts{
		Name: "m", Phase: "Unknown", Instance: true, NodeName: "n", NodeGoing: true, NodeHeld: true,
		Why: "node n is being deleted", BadSince: ago(4).Time,
		Created: ago(60).Time, CreateBy: ago(20).Time,
		Since: ago(30).Time, UnhealthySince: ago(3).Time, RecoveredAt: ago(2).Time, InstanceGoneAt: ago(1).Time,
		Timeout: 7 * time.Minute, NoTimeout: true, UpdateTimeout: 20 * time.Minute,
		Due: true, Breaker: "8 of 10 nodes look dead at once", Now: noon,
	}, facts)
}

func TestHealthFactsOfANewMachine(t *testing.T) {
	m := machine("m", isGranted)
	m.CreationTimestamp = ago(1)
	assert.Equal(t, health.Facts{
		Name: "m", NoTarget: true, Why: "new: not yet taken care of", Created: ago(1).Time, CreateBy: noon.Add(19 * time.Minute),
		Timeout: 10 * time.Minute, UpdateTimeout: 20 * time.Minute, Granted: true, Alone: true, Now: noon,
	}, observe.HealthFacts(m, observe.Around{NoTarget: true}, "", noon))
}

// What happens to a machine is told with the state of its node, and not with what has to be written as well.
func TestTheReasonIsTheStateOfTheNode(t *testing.T) {
	n := node(condition("Ready", "False"))
	for name, edit := range map[string]func(*v1alpha1.Machine){
		"conditions to copy, and labels to set": func(*v1alpha1.Machine) {},
		"due":                                   isDue,
		"granted":                               isGranted,
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", joined, templated, phase(v1alpha1.MachineUnknown), edit)
			facts := observe.MachineFacts(m, observe.Around{Node: n}, time.Time{})
			require.True(t, facts.Uncopied)
			require.NotEmpty(t, facts.Unsynced)
			assert.Equal(t, "node n: Ready is False (Because)", observe.HealthFacts(m, observe.Around{Node: n}, "", noon).Why)
		})
	}
}

func TestBadSinceLooksAtWhatTheMachineWatches(t *testing.T) {
	ready, pressure := condition("Ready", "False"), condition("MemoryPressure", "True")
	ready.LastTransitionTime, pressure.LastTransitionTime = ago(1), ago(5)
	m := machine("m", joined, phase(v1alpha1.MachineRunning))
	around := observe.Around{Node: node(ready, pressure)}
	assert.Equal(t, ago(1).Time, observe.HealthFacts(m, around, "", noon).BadSince)
	m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: new("MemoryPressure")}
	assert.Equal(t, ago(5).Time, observe.HealthFacts(m, around, "", noon).BadSince)
	assert.Zero(t, observe.HealthFacts(m, observe.Around{}, "", noon).BadSince, "no node tells")
}

func TestU111_N16_CreateBy(t *testing.T) {
	since, future := ago(10), ago(-10)
	for _, row := range []struct {
		name       string
		timeout    *metav1.Duration
		annotation string
		stopped    *v1alpha1.CreationStopped
		end        time.Time
	}{
		{"U111: the default, from the creation of the object on", nil, "", nil, noon.Add(-40 * time.Minute)},
		{"U111: as the spec says", &metav1.Duration{Duration: time.Hour}, "", nil, noon},
		{"U111: at once", &metav1.Duration{}, "", nil, noon.Add(-time.Hour)},
		{"U111: the annotation comes first", &metav1.Duration{Duration: time.Hour}, "90m", nil, noon.Add(30 * time.Minute)},
		{"N16: it waited before", nil, "", &v1alpha1.CreationStopped{Total: metav1.Duration{Duration: 15 * time.Minute}}, noon.Add(-25 * time.Minute)},
		{"N16: it waits for ten minutes", nil, "", &v1alpha1.CreationStopped{Since: &since}, noon.Add(-30 * time.Minute)},
		{"N16: it waits again", nil, "", &v1alpha1.CreationStopped{Since: &since, Total: metav1.Duration{Duration: 15 * time.Minute}}, noon.Add(-15 * time.Minute)},
		{"N16: it waits since a moment that our clock has not reached", nil, "", &v1alpha1.CreationStopped{Since: &future}, noon.Add(-40 * time.Minute)},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := machine("m", joined)
			m.Status.CurrentStatus.LastUpdateTime = ago(0)
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: row.timeout}
			m.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: row.annotation}
			m.Status.CreationStopped = row.stopped
			assert.Equal(t, row.end, observe.CreateBy(m, noon))
		})
	}
	t.Run("N16: a clock that stands still never comes to its end", func(t *testing.T) {
		m := machine("m", joined, phase(v1alpha1.MachineCrashLoopBackOff))
		since := ago(41) // with a minute left
		m.Status.CreationStopped = &v1alpha1.CreationStopped{Since: &since}
		for days := range 30 {
			at := noon.AddDate(0, 0, days)
			assert.Equal(t, at.Add(time.Minute), observe.CreateBy(m, at))
			assert.Nil(t, health.Next(observe.HealthFacts(m, observe.Around{}, "", at)).Change)
		}
	})
}

// each calls check with machines in every phase and state, and what stands around them.
func each(check func(*v1alpha1.Machine, observe.Around, string)) {
	copied := func(m *v1alpha1.Machine, n *corev1.Node) {
		if n != nil {
			m.Status.Conditions = append(m.Status.Conditions, observe.CopiedConditions(n)...)
		}
	}
	for _, p := range []v1alpha1.MachinePhase{
		"", v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachinePending, v1alpha1.MachineAvailable, v1alpha1.MachineRunning,
		v1alpha1.MachineUnknown, v1alpha1.MachineFailed, v1alpha1.MachineTerminating,
	} {
		for i, n := range []*corev1.Node{
			nil, inSync(), inSync(goingNode), inSync(critical), inSync(nodeSick), inSync(nodeSick, goingNode), inSync(func(n *corev1.Node) { n.Labels = nil }),
		} {
			for bits := range 1 << 7 {
				is := func(bit int) bool { return bits>>bit&1 == 1 }
				m := machine("m", templated, joined, phase(p))
				around, breaker := observe.Around{Node: n, Class: withDongles("2")}, ""
				if is(0) {
					around.Set = set("s", ofDeployment)
				}
				if is(1) {
					isGranted(m)
				}
				if is(2) {
					m.CreationTimestamp = ago(1)
				}
				if is(3) {
					m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: ago(20)}
					isDue(m)
				}
				if is(4) {
					breaker = "8 of 10 nodes look dead at once"
				}
				if is(5) {
					copied(m, n)
				}
				if is(6) && i == 0 {
					around.NoTarget = true
				}
				check(m, around, breaker)
			}
		}
	}
}

func nodeSick(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{condition("Ready", "Unknown")}
}

// The bridge and the workflow go by what attention says, and the workflow writes what health says. Were they of two minds,
// a change would wait for the next look, or a workflow would look again and again.
func TestAttentionAndHealthAgree(t *testing.T) {
	each(func(m *v1alpha1.Machine, around observe.Around, breaker string) {
		facts := observe.MachineFacts(m, around, time.Time{})
		d, v := attention.Machine(facts), health.Next(observe.HealthFacts(m, around, breaker, noon))
		what := fmt.Sprintf("%+v\n%+v\n%+v", facts, d, v)
		changes := v.Change != nil && v.Change.Phase != facts.Phase
		if d.Calm() {
			require.False(t, changes, "a change, and nobody looks: %s", what)
		}
		if d.Need == attention.Health {
			require.True(t, changes || v.Due != nil || facts.Uncopied, "nothing to write: %s", what)
		}
		if d.Need == attention.Node || d.Need == attention.Recovery {
			require.True(t, v.Change != nil || v.Due != nil || !v.Deadline.IsZero(), "no end to wait for: %s", what)
		}
		if facts.Phase == "Failed" {
			require.True(t, d.Calm() && v == health.Verdict{}, "D27: %s", what)
		}
	})
}

// A machine that fails in one decision and whose node is well in the next one stays Failed.
func TestD27_FailedIsNotTakenBackWhenTheNodeComesBack(t *testing.T) {
	m := machine("m", templated, joined, phase(v1alpha1.MachineUnknown))
	m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: ago(20)}
	around := observe.Around{Node: inSync(nodeSick), Class: withDongles("2")}
	v := health.Next(observe.HealthFacts(m, around, "", noon))
	require.NotNil(t, v.Change)
	require.Equal(t, "Failed", v.Change.Phase)

	m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	around.Node = inSync()
	assert.True(t, attention.Machine(observe.MachineFacts(m, around, time.Time{})).Calm())
	assert.Equal(t, health.Verdict{}, health.Next(observe.HealthFacts(m, around, "", noon)))
}
