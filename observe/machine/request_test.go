package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/request"
	observedrain "millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

// withDrain gives a machine a drain that has run since Begun, with these means.
func withDrain(means drain.RemovalMeans) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		observetest.AsDeletingMachine(m)
		observetest.WithNodeLabel("n")(m)
		m.Annotations = map[string]string{}
		m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
		m.Status.Deletion = &v1alpha1.MachineDeletion{
			Stage: v1alpha1.MachineDeletionDrain,
			Since: metav1.NewTime(observetest.DrainStart),
			Drain: &v1alpha1.MachineDrain{
				StartedAt:  metav1.NewTime(observetest.DrainStart),
				Means:      string(means),
				MeansSince: new(metav1.NewTime(observetest.DrainStart)),
			},
		}
	}
}

func TestRequestFactsOfADrainingMachine(t *testing.T) {
	m := observetest.NewMachine("m", withDrain(drain.MeansEvict), func(m *v1alpha1.Machine) {
		m.Annotations[v1alpha1.AnnotationHold] = "bob: wait"
		m.Annotations[v1alpha1.AnnotationExtend] = "2026-11-21T15:00:00Z bob"
		m.Annotations[v1alpha1.AnnotationAbandonInstance] = ""
	})
	facts := request.MachineFacts{
		Name:                 "shop/m",
		UID:                  "uid-m",
		Phase:                "Terminating",
		Now:                  observetest.RequestTime,
		Deleting:             true,
		Stage:                deletion.StageDrain,
		RemovalMeans:         drain.MeansEvict,
		Deadlines:            observedrain.DeadlineFacts(m, observetest.RequestTime),
		ExtendedUntil:        observetest.DrainStart.Add(3 * time.Hour),
		NodeName:             "n",
		PreservationDuration: 96 * time.Hour,
	}
	for command, value := range map[request.Command]*string{
		request.Hold: new("bob: wait"), request.Resume: new("bob: wait"), request.Extend: new("2026-11-21T15:00:00Z bob"), request.Retry: nil,
		request.AbandonInstance: new(""), // an annotation with an empty value is set
	} {
		facts.AnnotationKey, facts.AnnotationValue = machine.RequestAnnotationKey(request.KindMachine, command), value
		assert.Equal(t, facts, machine.RequestFacts(m, command, observetest.RequestTime))
	}
}

func TestRequestFactsOfAMachineThatIsNotDeleted(t *testing.T) {
	end := metav1.NewTime(observetest.RequestTime)
	m := observetest.NewMachine("m", func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{
			v1alpha1.AnnotationPreserve:            "when-failed",
			v1alpha1.AnnotationLastAppliedPreserve: "now",
		}
		m.Status.CurrentStatus.PreserveExpiryTime = &end
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachinePreserveTimeout: &metav1.Duration{Duration: time.Minute},
		}
	})
	for _, command := range []request.Command{request.Preserve, request.Unpreserve} {
		assert.Equal(t, request.MachineFacts{
			Name:                 "shop/m",
			UID:                  "uid-m",
			Phase:                "new",
			Now:                  observetest.RequestTime,
			NodePreserveValue:    "now",
			PreservationDuration: time.Minute,
			PreservedUntil:       end.Time,
			AnnotationKey:        v1alpha1.AnnotationPreserve,
			AnnotationValue:      new("when-failed"),
		}, machine.RequestFacts(m, command, observetest.RequestTime))
	}
}

// withStayingDrain gives a machine that is not being deleted a drain for an in-place update or for preservation. The
// drain has run since Begun.
func withStayingDrain(purpose v1alpha1.DrainPurpose, means drain.RemovalMeans) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		observetest.WithNodeLabel("n")(m)
		m.Annotations = map[string]string{}
		occasion := metav1.NewTime(observetest.DrainStart.Add(-time.Second))
		m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		m.Status.Conditions = []corev1.NodeCondition{
			{
				Type:               v1alpha1.NodeInPlaceUpdate,
				Status:             corev1.ConditionTrue,
				Reason:             v1alpha1.ReasonSelectedForUpdate,
				LastTransitionTime: occasion,
			},
		}
		if purpose == v1alpha1.DrainForPreservation {
			m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, PreserveExpiryTime: &occasion}
		}
		m.Status.Drain = &v1alpha1.StayingDrain{Purpose: purpose, Occasion: occasion, MachineDrain: v1alpha1.MachineDrain{
			StartedAt:  metav1.NewTime(observetest.DrainStart),
			Means:      string(means),
			MeansSince: new(metav1.NewTime(observetest.DrainStart)),
		}}
		m.Status.CurrentOperation = &v1alpha1.Operation{
			Step:     vocabulary.StepEvictPods,
			Deadline: new(metav1.NewTime(observetest.RequestTime.Add(time.Minute))),
		}
	}
}

func TestRequestFactsOfADrainWithoutADeletion(t *testing.T) {
	for _, purpose := range []v1alpha1.DrainPurpose{v1alpha1.DrainForUpdate, v1alpha1.DrainForPreservation} {
		t.Run(string(purpose), func(t *testing.T) {
			f := machine.RequestFacts(
				observetest.NewMachine("m", withStayingDrain(purpose, drain.MeansEvict)),
				request.Extend,
				observetest.RequestTime,
			)
			assert.True(t, f.NodeDraining)
			assert.False(t, f.Deleting || f.DrainEnded)
			assert.Equal(t, drain.MeansEvict, f.RemovalMeans)
			assert.Equal(t, observetest.DrainStart.Add(2*time.Hour), f.Deadlines.NextDeadline(), "by its own record")

			f = machine.RequestFacts(
				observetest.NewMachine("m", withStayingDrain(purpose, drain.MeansEvict), func(m *v1alpha1.Machine) {
					m.Annotations[v1alpha1.AnnotationExtend] = "2026-11-21T15:00:00Z bob"
				}),
				request.Extend,
				observetest.RequestTime,
			)
			assert.Equal(t, observetest.DrainStart.Add(3*time.Hour), f.Deadlines.NextDeadline())

			f = machine.RequestFacts(
				observetest.NewMachine("m", withStayingDrain(purpose, drain.MeansDelete)),
				request.Extend,
				observetest.RequestTime,
			)
			assert.Equal(t, drain.MeansDelete, f.RemovalMeans)
			assert.Equal(t, observetest.RequestTime.Add(time.Minute), f.Deadlines.NextDeadline(), "as the status has it")

			for name, change := range map[string]func(*v1alpha1.Machine){
				"it has ended": func(m *v1alpha1.Machine) { m.Status.Drain.Result = "Drained" },
				"it is for another time": func(m *v1alpha1.Machine) {
					m.Status.Drain.Occasion = metav1.NewTime(observetest.DrainStart.Add(-time.Hour))
				},
				"nothing is in motion":         func(m *v1alpha1.Machine) { m.Status.CurrentOperation = nil },
				"nobody wants it anymore":      func(m *v1alpha1.Machine) { m.Status.Conditions, m.Status.CurrentStatus = nil, v1alpha1.CurrentStatus{} },
				"the machine is being deleted": observetest.AsDeletingMachine,
			} {
				m := observetest.NewMachine("m", withStayingDrain(purpose, drain.MeansEvict), change)
				f := machine.RequestFacts(m, request.Extend, observetest.RequestTime)
				assert.False(t, f.NodeDraining, name)
				assert.Empty(t, f.RemovalMeans, name)
				assert.Zero(t, f.Deadlines.NextDeadline(), name)
				assert.Nil(t, observedrain.ActiveRecord(m), name)
			}
		})
	}
	assert.Nil(t, observedrain.ActiveStayingDrain(observetest.NewMachine("m")))
}

func TestIsDrainOver(t *testing.T) {
	ended := observetest.NewMachine(
		"m",
		withDrain(drain.MeansEvict),
		func(m *v1alpha1.Machine) { m.Status.Deletion.Drain.Result = "Drained" },
	)
	later := observetest.NewMachine(
		"m",
		withDrain(drain.MeansKill),
		func(m *v1alpha1.Machine) { m.Status.Deletion.Stage = v1alpha1.MachineDeletionDetach },
	)
	for _, m := range []*v1alpha1.Machine{ended, later} {
		f := machine.RequestFacts(m, request.Extend, observetest.RequestTime)
		assert.True(t, f.DrainEnded)
		assert.Empty(t, f.RemovalMeans)
		assert.Zero(t, f.Deadlines.NextDeadline())
	}
	hooked := observetest.NewMachine("m", observetest.AsDeletingMachine, func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionPreDrainHooks}
	})
	assert.False(t, observedrain.IsDrainOver(hooked))
	assert.False(t, observedrain.IsDrainOver(observetest.NewMachine("m")))
}

func TestEvictionDeadlineOfAnUnreadyNode(t *testing.T) {
	m := observetest.NewMachine("m", withDrain(drain.MeansEvict), func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(observetest.RequestTime)},
		}
	})
	until, then := observedrain.DeadlineFacts(m, observetest.RequestTime).EvictionDeadline()
	assert.Equal(t, observetest.RequestTime.Add(5*time.Minute), until)
	assert.Equal(t, drain.MeansKill, then)
	until, then = observedrain.DeadlineFacts(m, observetest.RequestTime.Add(5*time.Minute+drain.StepOverdueAfter+1)).
		EvictionDeadline()
	assert.Equal(t, observetest.DrainStart.Add(2*time.Hour), until, "nobody has killed anything: it is well again")
	assert.Equal(t, drain.MeansDelete, then)
}

func TestEachCommandHasItsAnnotation(t *testing.T) {
	of := map[string][]request.Command{}
	for _, kind := range []request.Kind{request.KindMachine, request.KindMachineDeployment} {
		for _, s := range request.CommandSpecs(kind) {
			key := machine.RequestAnnotationKey(kind, s.Command)
			of[key] = append(of[key], s.Command)
		}
	}
	assert.Equal(t, map[string][]request.Command{
		v1alpha1.AnnotationExtend: {
			request.Extend,
		},
		v1alpha1.AnnotationRetry:           {request.Retry},
		v1alpha1.AnnotationForce:           {request.Force},
		v1alpha1.AnnotationSkipDrain:       {request.Skip},
		v1alpha1.AnnotationAbandonInstance: {request.AbandonInstance},
		v1alpha1.AnnotationHold:            {request.Hold, request.Resume},
		v1alpha1.AnnotationPreserve:        {request.Preserve, request.Unpreserve},
		v1alpha1.AnnotationChangeCause:     {request.Start},
		v1alpha1.AnnotationRolloutApprove:  {request.Approve},
		v1alpha1.AnnotationRolloutHold:     {request.Resume, request.Cancel},
		v1alpha1.AnnotationRolloutPausedBy: {request.Pause},
		v1alpha1.AnnotationRolloutRetry:    {request.Retry},
		v1alpha1.AnnotationRolloutUndoBy:   {request.Undo},
	}, of)
	assert.Empty(t, machine.RequestAnnotationKey(request.KindMachine, "burn"))
}

// decide/request does not import the API's values for preservation, so this test compares them.
func TestPreserveCommandsWriteTheValuesOfTheAPI(t *testing.T) {
	for c, want := range map[request.Command]string{request.Preserve: v1alpha1.ValuePreserveNow, request.Unpreserve: v1alpha1.ValuePreserveFalse} {
		d := request.Decide(
			request.CommandOrder{Command: c},
			machine.RequestFacts(observetest.NewMachine("m"), c, observetest.RequestTime),
		)
		assert.Equal(t, want, *d.AnnotationValue)
	}
}
