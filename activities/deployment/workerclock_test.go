package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// worldOnWorker runs the decision and the report of deployment d on one worker, at a given time of the server's clock.
type worldOnWorker struct {
	*activitiestest.World
	worker     activitiestest.Worker
	serverTime time.Time
}

func (o worldOnWorker) decisionInput(after time.Duration) deployment.Input {
	in := deployment.Input{ReadInput: o.worker.NewReadInput(o.Deployment("d"))}
	in.At = o.serverTime.Add(after)
	return in
}

func (o worldOnWorker) decideRollout(after time.Duration) rollout.Decision {
	o.T.Helper()
	d, err := activitiestest.RunActivityOnWorker[deployment.Decision](
		o.World,
		o.worker,
		newActivities(o.Kube).DecideDeployment,
		o.decisionInput(after),
	)
	require.NoError(o.T, err)
	return d.Rollout
}

func (o worldOnWorker) writeReport(record rollout.Progress) {
	o.T.Helper()
	_, err := activitiestest.RunActivityOnWorker[string](
		o.World,
		o.worker,
		newActivities(o.Kube).ReportDeployment,
		deployment.Report{Input: o.decisionInput(0), Record: &record},
	)
	require.NoError(o.T, err)
	for _, c := range o.Deployment("d").Status.Conditions {
		assert.WithinDuration(o.T, o.serverTime, c.LastTransitionTime.Time, activitiestest.TimestampTolerance, c.Type)
		assert.WithinDuration(o.T, o.serverTime, c.LastUpdateTime.Time, activitiestest.TimestampTolerance, c.Type)
	}
	o.AwaitCaches()
}

// The progress deadline, which may cause an automatic rollback, is compared with the workflow's time.
func TestTheClockOfAWorkerDoesNotEndAProgressDeadline(t *testing.T) {
	t.Parallel()
	activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
		w, d := newRolloutWorld(t)
		w.EditObject("machinedeployments", d.Name, map[string]any{"spec": map[string]any{"progressDeadlineSeconds": 300}})
		o := worldOnWorker{w, k, k.ServerTime()}
		o.writeReport(rollout.Progress{Revision: 2, Set: "d-2"})
		assert.False(t, o.decideRollout(4*time.Minute).Late)
		assert.True(t, o.decideRollout(6*time.Minute).Late)
	})
}

// The workflow's clock decides when the timed wait of a step ends.
func TestTheClockOfAWorkerDoesNotEndAStep(t *testing.T) {
	t.Parallel()
	activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
		w, _ := newRolloutWorld(t)
		careful := activitiestest.NewRolloutPolicy(v1alpha1.RolloutPolicySpec{
			Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Wait: activitiestest.NewDuration(5 * time.Minute)}},
		})
		_, err := w.MachineClient.MachineV1alpha1().
			RolloutPolicies(activitiestest.TestNamespace).
			Create(t.Context(), careful, metav1.CreateOptions{})
		require.NoError(t, err)
		o := worldOnWorker{w, k, k.ServerTime()}
		o.writeReport(rollout.Progress{Revision: 2, Set: "d-2", Reached: o.serverTime})
		require.NotNil(t, o.decideRollout(4*time.Minute).Pause)
		assert.Nil(t, o.decideRollout(6*time.Minute).Pause)
	})
}

// The time of a grant is compared with the creation time of the substitute machine.
func TestGrantTimeFollowsServerClock(t *testing.T) {
	t.Parallel()
	activitiestest.ForEachWorkerClock(t, func(t *testing.T, k activitiestest.Worker) {
		d := activitiestest.NewDeployment("d", 0)
		w := activitiestest.NewWorld(t, objectsWithMachinesDueForReplacement(d, 2, 0)...)
		_, err := activitiestest.RunActivityOnWorker[deployment.GrantResult](
			w,
			k,
			newActivities(w.Kube).GrantReplacements,
			k.NewReadInput(d),
		)
		require.NoError(t, err)
		require.Len(t, w.Deployment("d").Status.Replacements, 1)
		assert.WithinDuration(
			t,
			k.ServerTime(),
			w.Deployment("d").Status.Replacements[0].GrantedAt.Time,
			activitiestest.TimestampTolerance,
		)
		mark, err := time.Parse(time.RFC3339, w.Machine("d-0").Annotations[v1alpha1.AnnotationReplacementGranted])
		require.NoError(t, err)
		assert.WithinDuration(t, k.ServerTime(), mark, activitiestest.TimestampTolerance)
	})
}
