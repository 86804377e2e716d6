package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/observe/cache"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

// withJoinedNode gives a machine the node n. The machine was created an hour before noon and entered its phase half an
// hour before noon.
func withJoinedNode(m *v1alpha1.Machine) {
	m.Finalizers, m.Spec.ProviderID, m.Labels[v1alpha1.LabelNode] = []string{v1alpha1.FinalizerMachine}, "fake:///i-1", "n"
	m.CreationTimestamp, m.Status.CurrentStatus.LastUpdateTime = observetest.MinutesBeforeNoon(
		60,
	), observetest.MinutesBeforeNoon(
		30,
	)
}

// planMachine returns the plan for a machine at noon.
func planMachine(m *v1alpha1.Machine, related machine.RelatedObjects) attention.MachinePlan {
	return attention.PlanMachine(machine.Facts(m, related, observetest.Noon))
}

// The reason describes the state of the node, and not other pending writes.
func TestPlanReasonDescribesTheNode(t *testing.T) {
	n := observetest.NewNode(observetest.NewNodeCondition("Ready", "False"))
	for name, edit := range map[string]func(*v1alpha1.Machine){
		"conditions to copy, and labels to set": func(*v1alpha1.Machine) {},
		"due":                                   observetest.WithReplacementDue,
		"granted":                               observetest.WithReplacementGrant,
	} {
		t.Run(name, func(t *testing.T) {
			m := observetest.NewMachine(
				"m",
				withJoinedNode,
				observetest.WithNodeTemplate,
				observetest.WithPhase(v1alpha1.MachineUnknown),
				edit,
			)
			related := machine.RelatedObjects{Node: n, Set: observetest.NewSet("s", observetest.WithDeploymentOwner)}
			require.True(t, machine.Facts(m, related, observetest.Noon).Uncopied)
			why := planMachine(m, related).Health.Why
			assert.Contains(t, why, "node n: Ready is False (Because)")
			assert.NotContains(t, why, "copy")
			assert.NotContains(t, why, "lacks")
		})
	}
}

func TestUnhealthySinceUsesTheMachinesNodeConditions(t *testing.T) {
	ready, pressure := observetest.NewNodeCondition(
		"Ready",
		"False",
	), observetest.NewNodeCondition(
		"MemoryPressure",
		"True",
	)
	ready.LastTransitionTime, pressure.LastTransitionTime = observetest.MinutesBeforeNoon(
		1,
	), observetest.MinutesBeforeNoon(
		5,
	)
	m := observetest.NewMachine("m", withJoinedNode, observetest.WithPhase(v1alpha1.MachineRunning))
	related := machine.RelatedObjects{Node: observetest.NewNode(ready, pressure)}
	assert.Equal(t, observetest.MinutesBeforeNoon(1).Time, planMachine(m, related).Health.Clock.UnhealthySince)
	m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: new("MemoryPressure")}
	assert.Equal(t, observetest.MinutesBeforeNoon(5).Time, planMachine(m, related).Health.Clock.UnhealthySince)
	assert.Equal(
		t,
		observetest.Noon,
		planMachine(m, machine.RelatedObjects{}).Health.Clock.UnhealthySince,
		"no node tells",
	)
}

func TestCreationDeadline(t *testing.T) {
	since, future := observetest.MinutesBeforeNoon(10), observetest.MinutesBeforeNoon(-10)
	for _, row := range []struct {
		name       string
		timeout    *metav1.Duration
		annotation string
		stopped    *v1alpha1.CreationStopped
		end        time.Time
	}{
		{"the default, from the creation of the object on", nil, "", nil, observetest.Noon.Add(-40 * time.Minute)},
		{"as the spec says", &metav1.Duration{Duration: time.Hour}, "", nil, observetest.Noon},
		{"at once", &metav1.Duration{}, "", nil, observetest.Noon.Add(-time.Hour)},
		{"the annotation comes first", &metav1.Duration{Duration: time.Hour}, "90m", nil, observetest.Noon.Add(30 * time.Minute)},
		{"it waited before", nil, "", &v1alpha1.CreationStopped{Total: metav1.Duration{Duration: 15 * time.Minute}}, observetest.Noon.Add(-25 * time.Minute)},
		{"it waits for ten minutes", nil, "", &v1alpha1.CreationStopped{Since: &since}, observetest.Noon.Add(-30 * time.Minute)},
		{"it waits again", nil, "", &v1alpha1.CreationStopped{Since: &since, Total: metav1.Duration{Duration: 15 * time.Minute}}, observetest.Noon.Add(-15 * time.Minute)},
		{"it waits since a moment that our clock has not reached", nil, "", &v1alpha1.CreationStopped{Since: &future}, observetest.Noon.Add(-40 * time.Minute)},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := observetest.NewMachine("m", withJoinedNode)
			m.Status.CurrentStatus.LastUpdateTime = observetest.MinutesBeforeNoon(0)
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: row.timeout}
			m.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: row.annotation}
			m.Status.CreationStopped = row.stopped
			assert.Equal(t, row.end, machine.CreationDeadline(m, nil, observetest.Noon))
		})
	}
	t.Run("a clock that stands still never comes to its end", func(t *testing.T) {
		m := observetest.NewMachine("m", withJoinedNode, observetest.WithPhase(v1alpha1.MachineCrashLoopBackOff))
		since := observetest.MinutesBeforeNoon(41) // one minute before the end of the creation timeout
		m.Status.CreationStopped = &v1alpha1.CreationStopped{Since: &since}
		for days := range 30 {
			at := observetest.Noon.AddDate(0, 0, days)
			assert.Equal(t, at.Add(time.Minute), machine.CreationDeadline(m, nil, at))
			assert.Nil(t, attention.PlanMachine(machine.Facts(m, machine.RelatedObjects{}, at)).Health.Change)
		}
	})
}

// forEachMachineState calls check with machines in every phase and state, and with their related objects.
func forEachMachineState(check func(*v1alpha1.Machine, machine.RelatedObjects, string)) {
	copied := func(m *v1alpha1.Machine, n *corev1.Node) {
		if n != nil {
			m.Status.Conditions = append(m.Status.Conditions, machine.CopiedConditions(n)...)
		}
	}
	for _, p := range []v1alpha1.MachinePhase{
		"", v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachinePending, v1alpha1.MachineAvailable, v1alpha1.MachineRunning,
		v1alpha1.MachineUnknown, v1alpha1.MachineFailed, v1alpha1.MachineTerminating,
	} {
		for i, n := range []*corev1.Node{
			nil, syncedNode(), syncedNode(asDeletingNode), syncedNode(observetest.WithCriticalTaint), syncedNode(makeNodeUnready), syncedNode(makeNodeUnready, asDeletingNode), syncedNode(func(n *corev1.Node) { n.Labels = nil }),
		} {
			for bits := range 1 << 7 {
				is := func(bit int) bool { return bits>>bit&1 == 1 }
				m := observetest.NewMachine("m", observetest.WithNodeTemplate, withJoinedNode, observetest.WithPhase(p))
				related, breaker := machine.RelatedObjects{Node: n, Class: classWithDongles("2")}, ""
				if is(0) {
					related.Set = observetest.NewSet("s", observetest.WithDeploymentOwner)
				}
				if is(1) {
					observetest.WithReplacementGrant(m)
				}
				if is(2) {
					m.CreationTimestamp = observetest.MinutesBeforeNoon(1)
				}
				if is(3) {
					m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: observetest.MinutesBeforeNoon(20)}
					observetest.WithReplacementDue(m)
				}
				if is(4) {
					breaker = "8 of 10 nodes look dead at once"
				}
				if is(5) {
					copied(m, n)
				}
				if is(6) && i == 0 {
					related.NoTargetCluster = true
				}
				check(m, related, breaker)
			}
		}
	}
}

func makeNodeUnready(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{observetest.NewNodeCondition("Ready", "Unknown")}
}

// healthVerdict returns the health verdict for a machine at noon; a non-empty breaker is the breaker's reason.
func healthVerdict(m *v1alpha1.Machine, related machine.RelatedObjects, breaker string) health.Verdict {
	f := machine.Facts(m, related, observetest.Noon)
	f.Instance, f.Breaker = f.ProviderID != "", breaker
	if f.NodeExists {
		f.Healthy, _ = health.DecideNodeHealth(f.Conditions, f.Bad)
		f.BadSince = health.BadConditionStart(f.Conditions, f.Bad)
	}
	return health.Decide(f.Facts)
}

// The bridge and the workflow act on the plan of package attention; the workflow writes the verdict of package health.
// If the two differed, a change would wait until the next reconcile, or a workflow would reconcile without end.
func TestPlanAndHealthVerdictAgree(t *testing.T) {
	forEachMachineState(func(m *v1alpha1.Machine, related machine.RelatedObjects, breaker string) {
		facts := machine.Facts(m, related, time.Time{})
		d, v := attention.PlanMachine(facts), healthVerdict(m, related, breaker)
		must := func(holds bool, otherwise string) {
			if !holds {
				require.Fail(t, otherwise, "%+v\n%+v\n%+v", facts, d, v)
			}
		}
		changes := v.Change != nil && v.Change.Phase != facts.Phase
		if d.NeedsNothing() {
			must(!changes, "a change, and nobody looks")
		}
		if d.Need == attention.NeedStatusUpdate {
			must(changes || v.Due != nil || facts.Uncopied, "nothing to write")
		}
		if d.Need == attention.NeedNodeJoin || d.Need == attention.NeedRecovery {
			must(v.Change != nil || v.Due != nil || !v.Deadline.IsZero(), "no end to wait for")
		}
		if facts.Phase == "Failed" {
			must(d.NeedsNothing() && v == health.Verdict{}, "a failed machine is not left alone")
		}
	})
}

// A machine that failed in one decision stays Failed if its node is healthy in the next decision.
func TestAFailedMachineStaysFailedWhenItsNodeRecovers(t *testing.T) {
	m := observetest.NewMachine(
		"m",
		observetest.WithNodeTemplate,
		withJoinedNode,
		observetest.WithPhase(v1alpha1.MachineUnknown),
	)
	m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: observetest.MinutesBeforeNoon(20)}
	related := machine.RelatedObjects{Node: syncedNode(makeNodeUnready), Class: classWithDongles("2")}
	v := healthVerdict(m, related, "")
	require.NotNil(t, v.Change)
	require.Equal(t, "Failed", v.Change.Phase)

	m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
	related.Node = syncedNode()
	assert.True(t, attention.PlanMachine(machine.Facts(m, related, time.Time{})).NeedsNothing())
	assert.Equal(t, health.Verdict{}, healthVerdict(m, related, ""))
}

// A node cannot report its recovery while its API server does not answer.
func TestOutagesOfTheTargetExtendTheHealthTimeout(t *testing.T) {
	target := observetest.NewTarget(t, "cluster-1")
	target.AddAbsence(cache.WorkerAbsence{
		From: observetest.MinutesBeforeNoon(25).Time, To: observetest.MinutesBeforeNoon(5).Time,
	})
	cluster, _ := observetest.StartCaches(t, nil)
	cluster.SetTargetSource(observetest.Targets{"shop": target})
	cluster.StoreWorkerAbsences(cache.WorkerAbsences{
		{From: observetest.MinutesBeforeNoon(40).Time, To: observetest.MinutesBeforeNoon(2).Time},
	})
	sick := observetest.NewMachine("m", withJoinedNode, observetest.WithPhase(v1alpha1.MachineUnknown))
	for name, row := range map[string]struct {
		since  int // minutes before noon
		absent time.Duration
	}{
		"sick before the outage": {30, 20 * time.Minute},
		"sick during the outage": {15, 10 * time.Minute},
		"sick after the outage":  {4, 0},
	} {
		sick.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: observetest.MinutesBeforeNoon(row.since)}
		facts := machine.Facts(sick, machine.ReadRelatedObjects(cluster, sick), observetest.Noon)
		assert.Equal(t, row.absent, facts.TargetAbsent, name)
	}
	failed := observetest.NewMachine("m", withJoinedNode, observetest.WithPhase(v1alpha1.MachineInPlaceUpdateFailed))
	failed.Status.CurrentStatus.LastUpdateTime = observetest.MinutesBeforeNoon(10)
	facts := machine.Facts(failed, machine.ReadRelatedObjects(cluster, failed), observetest.Noon)
	assert.Equal(t, 5*time.Minute, facts.TargetAbsent, "the phase is the start")
}

// Time without a running worker does not use up the timeouts of a machine.
func TestWorkerAbsencesExtendMachineTimeouts(t *testing.T) {
	away := cache.WorkerAbsences{
		{From: observetest.MinutesBeforeNoon(90).Time, To: observetest.MinutesBeforeNoon(50).Time},
		{From: observetest.MinutesBeforeNoon(20).Time, To: observetest.MinutesBeforeNoon(10).Time},
	}
	m := observetest.NewMachine("m", withJoinedNode) // the machine was created an hour before noon
	assert.Equal(t, observetest.Noon.Add((-60+20+10+10)*time.Minute), machine.CreationDeadline(m, away, observetest.Noon))

	since := observetest.MinutesBeforeNoon(30)
	m.Status.CreationStopped = &v1alpha1.CreationStopped{Since: &since}
	assert.Equal(
		t,
		observetest.Noon.Add((-60+20+10+30)*time.Minute),
		machine.CreationDeadline(m, away, observetest.Noon),
		"an absence while the clock stands still counts once",
	)

	updating := observetest.NewMachine("m", withJoinedNode, observetest.WithPhase(v1alpha1.MachineInPlaceUpdating))
	updating.Status.CurrentStatus.LastUpdateTime = observetest.MinutesBeforeNoon(15)
	facts := machine.Facts(updating, machine.RelatedObjects{Absences: away}, observetest.Noon)
	assert.Equal(t, updating.Spec.EffectiveInPlaceUpdateTimeout()+5*time.Minute, facts.UpdateTimeout)
}
