package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

// missingClassReport returns the workflow's report about a machine whose class is missing.
func missingClassReport(m *v1alpha1.Machine, operation string) machine.Report {
	return machine.Report{
		Read:  activitiestest.NewLiveReadInput(m),
		Phase: "CrashLoopBackOff",
		Operation: &machine.LastOperation{
			Type:        operation,
			State:       "Failed",
			Description: "Cloud provider message - MachineClass small does not exist",
			ErrorCode:   v1alpha1.ReasonClassNotFound,
		},
	}
}

// decideMachineBeingDeleted returns the decision about a machine after somebody has deleted it.
func decideMachineBeingDeleted(t *testing.T, m *v1alpha1.Machine) machine.Decision {
	t.Helper()
	m = m.DeepCopy()
	activitiestest.WithDeletionTimestamp(m)
	d := activitiestest.DecideMachine(activitiestest.NewWorld(t, m), activitiestest.NewReadInput(m))
	require.Equal(t, attention.NeedDeletion, d.Need)
	require.NotNil(t, d.Problem)
	return d
}

func TestMachineWhoseClassNeverExistedCanBeDeleted(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	w := activitiestest.NewWorld(t, m)
	for _, operation := range []string{"Create", "Create", "Delete"} {
		// two reports say that the class is missing for the creation, and a third says that it is missing for the
		// deletion
		_, err := activitiestest.RunActivity[kube.ReportResult](
			w,
			newActivities(w.Kube).ReportMachine,
			missingClassReport(m, operation),
		)
		require.NoError(t, err)
		assert.Equal(
			t,
			v1alpha1.MachineOperationType(operation),
			w.Machine("m").Status.LastOperation.Type,
			"people see the operation",
		)
		assert.True(
			t,
			decideMachineBeingDeleted(t, w.Machine("m")).NeverTried,
			"no create call was begun: its provider has nothing to delete",
		)
	}

	begun, err := activitiestest.RunActivity[machine.CreateIntentResult](
		w,
		newActivities(w.Kube).RecordCreateIntent,
		machine.Report{Read: activitiestest.NewLiveReadInput(m)},
	)
	require.NoError(t, err)
	assert.True(t, begun.NeverTried, "what was reported before was no creation")
	assert.False(t, decideMachineBeingDeleted(t, w.Machine("m")).NeverTried)
	_, err = activitiestest.RunActivity[kube.ReportResult](
		w,
		newActivities(w.Kube).ReportMachine,
		missingClassReport(m, "Create"),
	)
	require.NoError(t, err)
	assert.False(t, decideMachineBeingDeleted(t, w.Machine("m")).NeverTried, "no report takes the mark away")
}

// MCM and old versions of Millwright write a lastOperation but no creation intent.
func TestMachineOfOtherControllerMayHaveAnInstance(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.Machine){
		"being created":                       activitiestest.WithCreateAttempt,
		"being deleted":                       func(m *v1alpha1.Machine) { m.Status.LastOperation.Type = v1alpha1.MachineOperationDelete },
		"restored without its status":         func(m *v1alpha1.Machine) { m.Spec.ProviderID = "fake:///i-1" },
		"restored, with the name of its node": func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode] = "n" },
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", change)
			w := activitiestest.NewWorld(t, m)
			assert.False(t, decideMachineBeingDeleted(t, m).NeverTried)
			_, err := activitiestest.RunActivity[kube.ReportResult](
				w,
				newActivities(w.Kube).ReportMachine,
				missingClassReport(m, "Create"),
			)
			require.NoError(t, err)
			assert.False(
				t,
				decideMachineBeingDeleted(t, w.Machine("m")).NeverTried,
				"a report says nothing about the time before",
			)
			begun, err := activitiestest.RunActivity[machine.CreateIntentResult](
				w,
				newActivities(w.Kube).RecordCreateIntent,
				machine.Report{Read: activitiestest.NewLiveReadInput(m)},
			)
			require.NoError(t, err)
			assert.False(t, begun.NeverTried)
		})
	}
}

// An API server that was restored to an older state may have lost the record of a create call.
func TestCreateIntentOfOldMachineDoesNotExcludeEarlierCreateCall(t *testing.T) {
	t.Parallel()
	for age, never := range map[time.Duration]bool{time.Minute: true, 3 * time.Minute: false} {
		m := activitiestest.NewMachine("m", withAge(age))
		w := activitiestest.NewWorld(t, m)
		begun, err := activitiestest.RunActivity[machine.CreateIntentResult](
			w,
			newActivities(w.Kube).RecordCreateIntent,
			newCreationReport(m),
		)
		require.NoError(t, err)
		assert.Equal(t, never, begun.NeverTried, "%s", age)
	}
}
