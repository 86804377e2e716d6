//go:build integration

package rollouts

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// In one write, the cluster autoscaler marks three machines for deletion and lowers the replicas by three. The
// deployment deletes exactly these three machines.
func TestTheAutoscalerChoosesMachinesOfADeployment(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "scaled", 8, withRollingUpdate(1, 0))
	var chosen []string
	for _, m := range f.Machines(t)[2:5] {
		chosen = append(chosen, m.Name)
	}
	at := time.Now().UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			v1alpha1.AnnotationTriggerDeletion: chosen[0] + "~" + at + "," + chosen[1] + "~" + at + "," + chosen[2] + "~" + at,
		}},
		"spec": map[string]any{"replicas": 5},
	})
	require.NoError(t, err)
	f.Patch(t, string(patch))
	f.AwaitRunningMachines(t, 5)
	for _, m := range f.Machines(t) {
		require.NotContains(t, chosen, m.Name)
	}
	rig.Eventually(t, "the annotation is gone with them", func() (bool, any) {
		value, there := f.Deployment(t).Annotations[v1alpha1.AnnotationTriggerDeletion]
		return !there || value == "", value
	})
	f.Delete(t)
	f.AwaitPoolGone(t)
}
