package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
)

// Progressing has the status Unknown during a waiting step and during a hold. If a hold follows a waiting step, the
// transition time stays the start of the step.
func TestStartTimeOfARolloutHold(t *testing.T) {
	step := time.Date(2026, 11, 25, 1, 58, 57, 0, time.UTC)
	hold, now := step.Add(10*time.Minute), step.Add(20*time.Minute)
	for name, row := range map[string]struct {
		was     string // old reason of the condition
		updated time.Time
		want    time.Time
	}{
		"it is held since then":    {vocabulary.ReasonRolloutHeld, hold, hold},
		"it is held now":           {vocabulary.ReasonRolloutWaiting, now, now},
		"an older status had none": {vocabulary.ReasonRolloutHeld, time.Time{}, step},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			d.Spec.Replicas = 4
			d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{
				{
					Type:               v1alpha1.MachineDeploymentProgressing,
					Status:             "Unknown",
					Reason:             row.was,
					LastTransitionTime: metav1.NewTime(step),
					LastUpdateTime:     metav1.NewTime(step),
				},
			}
			var plan rollout.PlanResult
			plan.Status.Conditions = []rollout.Condition{
				{
					Type:           vocabulary.ConditionProgressing,
					Status:         "Unknown",
					Reason:         vocabulary.ReasonRolloutHeld,
					Message:        "held by ann (bad)",
					LastUpdateTime: row.updated,
				},
			}
			blocked := deployment.ExplanationFacts(deployment.ObjectTree{Deployment: d}, plan, "", now).BlockedSummary(now)
			assert.Equal(t, "Hold", blocked.Reason)
			assert.Equal(t, row.want, blocked.Since)
		})
	}
}
