package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
)

// newTurnWorld returns a world with the deployments d and e, which take turns. Their templates have no sets yet.
func newTurnWorld(t *testing.T) (w *activitiestest.World, d, e *v1alpha1.MachineDeployment) {
	t.Helper()
	d = activitiestest.NewDeployment("d", 1, withRevision[*v1alpha1.MachineDeployment]("1"))
	e = activitiestest.NewDeployment("e", 1, withRevision[*v1alpha1.MachineDeployment]("1"))
	policy := activitiestest.NewRolloutPolicy(v1alpha1.RolloutPolicySpec{Turns: &v1alpha1.RolloutTurns{MaxConcurrent: 1}})
	w = activitiestest.NewWorld(
		t,
		d,
		e,
		policy,
		newSettledSet(
			d,
			"d-1",
			1,
			activitiestest.WithFormerTemplate,
		),
		newSettledSet(e, "e-1", 1, activitiestest.WithFormerTemplate),
	)
	return w, d, e
}

func withTurn(d *v1alpha1.MachineDeployment) {
	d.Status.Rollout = &v1alpha1.RolloutStatus{
		Revision: 1, Set: d.Name + "-1", CompletedAt: &activitiestest.OldTime, Steps: []v1alpha1.RolloutStep{},
		Turn: &v1alpha1.RolloutTurn{Since: activitiestest.OldTime},
	}
}

// A deployment takes its turn before it changes a set. The record names the turn.
func TestDeploymentTakesItsTurnBeforeItsRollout(t *testing.T) {
	w, d, _ := newTurnWorld(t)
	decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
	assert.Nil(t, decision.Rollout.Create)
	require.NotNil(t, decision.Rollout.Record)
	status := activitiestest.ReportDeployment(
		w,
		deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: decision.Rollout.Record, Step: &kube.Step{}},
	)
	require.NotNil(t, status.Rollout)
	require.NotNil(t, status.Rollout.Turn)
	assert.Nil(t, status.Rollout.Turn.EndedAt)
	w.AwaitCaches()
	next := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(w.Deployment("d")))
	assert.NotNil(t, next.Rollout.Create, next.Rollout.Why)
}

// Two deployments took the same turn, and the caches of both workers are old. Each reads the other from the API server
// before its first change, so only the first one in the order begins.
func TestOnlyOneOfTwoDeploymentsWithTheSameTurnBegins(t *testing.T) {
	for name, begins := range map[string]bool{"d": true, "e": false} {
		t.Run(name, func(t *testing.T) {
			w, d, e := newTurnWorld(t)
			own, other := d, e
			if name == "e" {
				own, other = e, d
			}
			withTurn(own)
			writeStatus(t, w, own)
			w.AwaitCaches()
			release := w.HoldEvents()
			t.Cleanup(release)
			withTurn(other)
			writeStatus(t, w, other)
			w.ForgetRequests()
			decision, err := activitiestest.RunActivity[deployment.Decision](
				w, (&deployment.Activities{Kube: w.Kube}).DecideDeployment, activitiestest.NewDeploymentInput(own),
			)
			require.NoError(t, err)
			assert.Contains(t, w.Requests(), "list machinedeployments")
			assert.Nil(t, decision.Rollout.Create, "the other one has taken its turn, too")
			assert.Equal(t, other.Name, decision.Rollout.Turn.Sibling)
			assert.Equal(
				t,
				!begins,
				decision.Rollout.Record != nil,
				"the later one gives its turn back: %s",
				decision.Rollout.Why,
			)
		})
	}
}

func writeStatus(t *testing.T, w *activitiestest.World, d *v1alpha1.MachineDeployment) {
	t.Helper()
	_, err := w.MachineClient.MachineV1alpha1().MachineDeployments(d.Namespace).
		UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
}
