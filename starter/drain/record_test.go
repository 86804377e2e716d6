package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/observe/drain"
)

func TestNextDeadlineOfADrain(t *testing.T) {
	unready := func(since time.Duration) machineEdit {
		return func(m *v1alpha1.Machine) {
			m.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since))},
			}
		}
	}
	for name, c := range map[string]struct {
		machine *v1alpha1.Machine
		want    time.Time
	}{
		"drainTimeout": {newDeletedMachine(withRemovalMeans("Evict")), lastChangeTime.Add(2 * time.Hour)},
		"maxEvictRetries": {newDeletedMachine(withRemovalMeans("Evict"), func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MaxEvictRetries: new(int32(60))}
		}), lastChangeTime.Add(20 * time.Minute)},
		"extended":                        {newDeletedMachine(withRemovalMeans("Evict"), withAnnotation(v1alpha1.AnnotationExtend, "2026-11-21T18:00:00Z ann")), time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)},
		"deleting in order":               {newDeletedMachine(withRemovalMeans("DeleteInOrder"), withStep("delete-in-order"), withDeadline(time.Second)), lastChangeTime.Add(2 * time.Hour)},
		"the status is older than that":   {newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods), withDeadline(time.Second)), lastChangeTime.Add(2 * time.Hour)},
		"the node is not ready":           {newDeletedMachine(withRemovalMeans("Evict"), unready(time.Minute)), now.Add(4 * time.Minute)},
		"the node was not ready long ago": {newDeletedMachine(withRemovalMeans("Evict"), unready(time.Hour)), lastChangeTime.Add(2 * time.Hour)},
		"force is wanted":                 {newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods), withDeadline(time.Second), withAnnotation(v1alpha1.AnnotationForce, "ann")), now.Add(time.Second)},
		"deleting":                        {newDeletedMachine(withRemovalMeans("Delete"), withStep("delete"), withDeadline(time.Second)), now.Add(time.Second)},
		"not begun":                       {newDeletedMachine(withStage(v1alpha1.MachineDeletionDrain)), time.Time{}},
		"from before the deletion":        {newDeletedMachine(withStep("await-node"), withDeadline(time.Second)), time.Time{}},
	} {
		assert.WithinDuration(t, c.want, drain.DeadlineFacts(c.machine, now).NextDeadline(), 0, name)
	}
}
