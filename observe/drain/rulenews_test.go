package drain_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	observe "millwright/observe/drain"
	"millwright/observe/observetest"
)

// A drain that waits for a pod notices at once when an operator writes a rule that skips the pod. Without that news the
// drain would only notice with its next heartbeat.
func TestDrainNewsOfRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, _ := observetest.Watching(t)
		synctest.Wait() // until the fake's watches have begun
		news, stop, err := observe.Subscribe(observe.SourcesOf(cluster), "uid-m", concerned)
		require.NoError(t, err)
		defer stop()
		heard(news)

		r := rule("skip")
		rules := cluster.Client().MachineV1alpha1().MachineDrainRules(r.Namespace)
		r, err = rules.Create(t.Context(), r, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.True(t, heard(news), "there is a rule")
		r = r.DeepCopy()
		r.ResourceVersion, r.Spec.Drain.Behavior = "901", v1alpha1.MachineDrainRuleBehaviorDrain
		require.NoError(t, second(rules.Update(t.Context(), r, metav1.UpdateOptions{})))
		assert.True(t, heard(news), "the rule changes")
		require.NoError(t, rules.Delete(t.Context(), r.Name, metav1.DeleteOptions{}))
		assert.True(t, heard(news), "the rule goes")
	})
}
