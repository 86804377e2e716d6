package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/capi/capitest"
	observed "millwright/observe/capi/deployment"
)

// Two deployments of Cluster API took the same turn, and the caches are old. The first one in the order keeps its turn,
// the other one gives it back, and then the first one begins. Deployments of other controllers take no turns.
func TestDeploymentsOfClusterAPITakeTurns(t *testing.T) {
	named := func(name string) capitest.DeploymentChange {
		return func(d *clusterv1.MachineDeployment) {
			d.Name, d.UID = name, types.UID("uid-"+name)
			d.Annotations[clusterv1.RevisionAnnotation] = "1"
		}
	}
	d, e := capitest.NewPreparedDeployment(1, named("d")), capitest.NewPreparedDeployment(1, named("e"))
	foreign := capitest.NewPreparedDeployment(1, named("a"), withOtherController, withoutFinalizers)
	w, a := newWorld(
		t, d, e, foreign,
		capitest.NewSetOfDeployment(d, "d-1", 1, 1, capitest.AsSetReplacedByRevisionTwo),
		capitest.NewSetOfDeployment(e, "e-1", 1, 1, capitest.AsSetReplacedByRevisionTwo),
		capitest.NewSetOfDeployment(foreign, "a-1", 1, 1, capitest.AsSetReplacedByRevisionTwo),
	)
	policy := &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: capitest.Namespace, Name: "fleet", ResourceVersion: "1"},
		Spec:       v1alpha1.RolloutPolicySpec{Turns: &v1alpha1.RolloutTurns{MaxConcurrent: 1}},
	}
	_, err := w.MachineClient.MachineV1alpha1().RolloutPolicies(capitest.Namespace).
		Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	w.AwaitCaches()
	decide := func(d *clusterv1.MachineDeployment) activities.Decision {
		t.Helper()
		decision, err := activitiestest.RunActivity[activities.Decision](
			w,
			a.DecideClusterAPIDeployment,
			newDecisionInput(d, false),
		)
		require.NoError(t, err)
		return decision
	}
	report := func(d *clusterv1.MachineDeployment, record *rollout.Progress) {
		t.Helper()
		require.NotNil(t, record)
		_, err := activitiestest.RunActivity[string](
			w,
			a.ReportClusterAPIDeployment,
			activities.Report{Input: newDecisionInput(d, true), Record: record, Step: &kube.Step{}},
		)
		require.NoError(t, err)
	}
	first, second := decide(d), decide(e)
	require.NotNil(t, first.Rollout.Record, first.Rollout.Why)
	require.Equal(t, "MachineDeployment d is next: RolloutPolicy fleet allows 1 rollout at a time", second.Rollout.Hold)

	// e took its turn from old caches
	report(e, &rollout.Progress{Turn: first.Rollout.Record.Turn})
	w.AwaitCaches()
	release := w.HoldEvents()
	report(d, first.Rollout.Record)
	late := decide(e)
	assert.Equal(t, "d", late.Rollout.Turn.Sibling, "e reads d from the API server")
	require.NotNil(t, late.Rollout.Record)
	assert.Zero(t, late.Rollout.Record.Turn, "e gives its turn back")
	release()
	w.AwaitCaches()
	waits := decide(d)
	assert.Equal(t, rollout.HeldByTurn, waits.Rollout.HoldBy)
	assert.Nil(t, waits.Rollout.Record, "d keeps its turn")
	report(e, late.Rollout.Record)
	assert.Nil(t, observed.RecordedRollout(w.ClusterAPIDeployment("e")).Turn)
	w.AwaitCaches()
	assert.NotNil(t, decide(d).Rollout.Create)
	assert.Equal(
		t,
		"MachineDeployment d is rolled out first: RolloutPolicy fleet allows 1 rollout at a time",
		decide(e).Rollout.Hold,
	)
}
