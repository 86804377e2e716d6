package activities_test

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

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// naming is a rolling deployment whose status names that operation.
func naming(t *testing.T, id string) (*world, *v1alpha1.MachineDeployment) {
	t.Helper()
	w, d := rolling(t)
	is := w.deployment("d")
	is.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: id}
	w.rewrite(is)
	w.forget()
	return w, d
}

const (
	openRollout  = "rollout/shop/d/uid-d/2"
	ofDeployment = "machinedeployment/shop/d/uid-d"
)

// A deployment's workflow has to know whether a rollout is open that a former run of it started.
func TestDecideDeploymentSaysWhichRolloutTheStatusNames(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		openRollout: openRollout, ofDeployment: "", "rollout/shop/d/uid-other/2": "", "": "",
	} {
		w, d := naming(t, id)
		assert.Equal(t, want, decideDeployment(w, read(d)).Operation, id)
	}
}

// The bridge signals the rollout that the status names: none may be made deaf.
func TestReportDeploymentKeepsTheNameOfARollout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		in       activities.DeploymentRead
		conflict bool
	}{
		{"nobody knows that it has ended", activities.DeploymentRead{}, true},
		{"another one has", activities.DeploymentRead{Over: "rollout/shop/d/uid-d/1"}, true},
		{"it has", activities.DeploymentRead{Over: openRollout}, false},
		{"it says so itself", activities.DeploymentRead{WorkflowID: openRollout}, false},
		{"the next one says so", activities.DeploymentRead{WorkflowID: "rollout/shop/d/uid-d/3"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, d := naming(t, openRollout)
			row.in.Read = read(d)
			in := activities.DeploymentReport{DeploymentRead: row.in, Step: &activities.Step{WorkflowID: ofDeployment}}
			if row.conflict {
				_, err := run[string](w, w.ReportDeployment, in)
				assertFailure(t, err, activities.TypeConflict, false)
				assert.Empty(t, w.writes())
				return
			}
			assert.Equal(t, ofDeployment, reportDeployment(w, in).CurrentOperation.WorkflowID)
		})
	}
}

// Of machines that failed, a decision names those that are not on record yet.
func TestReportDeploymentAddsToTheMachinesThatFailed(t *testing.T) {
	t.Parallel()
	w, d := rolling(t)
	says := func(revision int64, failed ...string) []string {
		record := &rollout.Progress{Revision: revision, Failed: failed}
		return reportDeployment(w, activities.DeploymentReport{DeploymentRead: deploymentRead(d), Record: record}).Rollout.FailedMachines
	}
	assert.Equal(t, []string{"b"}, says(2, "b"))
	assert.Equal(t, []string{"a", "b", "c"}, says(2, "c", "a"))
	assert.Equal(t, []string{"x"}, says(3, "x"), "another revision has its own")
}

// What a decision says stands in the history: it is bounded whatever the fleet.
func TestTheDecisionOfAHugeDeploymentIsBounded(t *testing.T) {
	t.Parallel()
	d := deployment("d", 5000, revised[*v1alpha1.MachineDeployment]("200"))
	objects := []runtime.Object{d}
	var named []string
	for n := range 200 {
		name, change := strings.Repeat("s", 57)+fmt.Sprintf("-%05d", n), former
		if n == 199 {
			change = func(*v1alpha1.MachineSet) {}
		}
		s := settled(d, name, 24, change, revised[*v1alpha1.MachineSet](strconv.Itoa(n+1)), func(s *v1alpha1.MachineSet) {
			s.Annotations[v1alpha1.AnnotationDesiredReplicas] = "7"
		})
		s.UID = types.UID(fmt.Sprintf("0d9ad1a5-2f8e-4b7a-9a0e-%012d", n))
		for i, o := range staffed(s) {
			if m, ok := o.(*v1alpha1.Machine); ok {
				m.UID = types.UID(fmt.Sprintf("1d9ad1a5-2f8e-4b7a-%04d-%012d", n, i))
				named = append(named, m.Name, "gone-"+m.Name)
			}
			objects = append(objects, o)
		}
	}
	bounded := func() activities.DeploymentDecision {
		w := newWorld(t, objects...)
		decision, err := run[activities.DeploymentDecision](w, w.DecideDeployment, deploymentRead(d))
		require.NoError(t, err)
		text, err := json.Marshal(decision)
		require.NoError(t, err)
		require.Less(t, len(text), 16<<10, "%s", text)
		return decision
	}
	assert.NotEmpty(t, bounded().Resize)
	d.Annotations[v1alpha1.AnnotationTriggerDeletion] = strings.Join(named, ",")
	decision := bounded()
	require.NotNil(t, decision.Trigger)
	assert.NotEmpty(t, decision.Trigger.Drop)
}
