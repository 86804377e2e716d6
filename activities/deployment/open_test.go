package deployment_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// newWorldWithCurrentOperation returns a world with a deployment in a rollout. The deployment's status names the given
// operation.
func newWorldWithCurrentOperation(
	t *testing.T,
	o v1alpha1.Operation,
) (*activitiestest.World, *v1alpha1.MachineDeployment) {
	t.Helper()
	w, d := newRolloutWorld(t)
	is := w.Deployment("d")
	is.Status.CurrentOperation = &o
	w.WriteStatus(is)
	w.ForgetRequests()
	return w, d
}

const (
	rolloutWorkflowID    = "rollout/shop/d/uid-d/2"
	deploymentWorkflowID = "machinedeployment/shop/d/uid-d"
)

// The decision must contain the rollout that the status names, because the rollout of an earlier run may still be open.
func TestDecideDeploymentReturnsTheRolloutOfTheStatus(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		operation v1alpha1.Operation
		want      string
	}{
		{v1alpha1.Operation{WorkflowID: rolloutWorkflowID, RolloutOf: "uid-d"}, rolloutWorkflowID},
		{v1alpha1.Operation{WorkflowID: deploymentWorkflowID}, ""},
		{v1alpha1.Operation{WorkflowID: "rollout/shop/d/uid-other/2", RolloutOf: "uid-other"}, ""},
		{v1alpha1.Operation{}, ""},
	} {
		w, d := newWorldWithCurrentOperation(t, row.operation)
		assert.Equal(
			t,
			row.want,
			activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Operation,
			row.operation.WorkflowID,
		)
	}
}

// The bridge signals the rollout that the status names, so the status must always name an open rollout.
func TestReportDeploymentKeepsTheNameOfARollout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		in       deployment.Input
		conflict bool
	}{
		{"nobody knows that it has ended", deployment.Input{}, true},
		{"another one has", deployment.Input{Over: "rollout/shop/d/uid-d/1"}, true},
		{"it has", deployment.Input{Over: rolloutWorkflowID}, false},
		{"it says so itself", deployment.Input{WorkflowID: rolloutWorkflowID}, false},
		{"the next one says so", deployment.Input{WorkflowID: "rollout/shop/d/uid-d/3"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, d := newWorldWithCurrentOperation(t, v1alpha1.Operation{WorkflowID: rolloutWorkflowID, RolloutOf: "uid-d"})
			row.in.ReadInput = activitiestest.NewReadInput(d)
			in := deployment.Report{Input: row.in, Step: &kube.Step{WorkflowID: deploymentWorkflowID}}
			if row.conflict {
				_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).ReportDeployment, in)
				activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
				assert.Empty(t, w.MutatingRequests())
				return
			}
			assert.Equal(t, deploymentWorkflowID, activitiestest.ReportDeployment(w, in).CurrentOperation.WorkflowID)
		})
	}
}

// A decision names the failed machines that are not recorded yet.
func TestReportDeploymentRecordsFailedMachines(t *testing.T) {
	t.Parallel()
	w, d := newRolloutWorld(t)
	says := func(revision int64, failed ...string) []string {
		record := &rollout.Progress{Revision: revision, Failed: failed}
		return activitiestest.ReportDeployment(
			w,
			deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: record},
		).Rollout.FailedMachines
	}
	assert.Equal(t, []string{"b"}, says(2, "b"))
	assert.Equal(t, []string{"a", "b", "c"}, says(2, "c", "a"))
	assert.Equal(t, []string{"x"}, says(3, "x"), "another revision has its own")
}

// Temporal's history contains each decision, so the size of a decision is limited for any fleet.
func TestDecisionOfHugeDeploymentHasLimitedSize(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 5000, withRevision[*v1alpha1.MachineDeployment]("200"))
	objects := []runtime.Object{d}
	var named []string
	for n := range 200 {
		name, change := strings.Repeat("s", 57)+fmt.Sprintf("-%05d", n), activitiestest.WithFormerTemplate
		if n == 199 {
			change = func(*v1alpha1.MachineSet) {}
		}
		s := newSettledSet(
			d,
			name,
			24,
			change,
			withRevision[*v1alpha1.MachineSet](strconv.Itoa(n+1)),
			func(s *v1alpha1.MachineSet) {
				s.Annotations[v1alpha1.AnnotationDesiredReplicas] = "7"
			},
		)
		s.UID = types.UID(fmt.Sprintf("0d9ad1a5-2f8e-4b7a-9a0e-%012d", n))
		for i, o := range machineSetWithMachines(s) {
			if m, ok := o.(*v1alpha1.Machine); ok {
				m.UID = types.UID(fmt.Sprintf("1d9ad1a5-2f8e-4b7a-%04d-%012d", n, i))
				named = append(named, m.Name, "gone-"+m.Name)
			}
			objects = append(objects, o)
		}
	}
	bounded := func() deployment.Decision {
		w := activitiestest.NewWorld(t, objects...)
		decision, err := activitiestest.RunActivity[deployment.Decision](
			w,
			newActivities(w.Kube).DecideDeployment,
			activitiestest.NewDeploymentInput(d),
		)
		require.NoError(t, err)
		text, err := json.Marshal(decision)
		require.NoError(t, err)
		require.Less(t, len(text), 16<<10, "%s", text)
		return decision
	}
	assert.NotEmpty(t, bounded().Rollout.Resize)
	d.Annotations[v1alpha1.AnnotationTriggerDeletion] = strings.Join(named, ",")
	decision := bounded()
	require.NotNil(t, decision.Rollout.Trigger)
	assert.NotEmpty(t, decision.Rollout.Trigger.Drop)
}
