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

// A waiting drain gets a notification at once when an operator writes a rule that skips the pod. Without the
// notification, the drain would read the rule only at its next heartbeat.
func TestARuleChangeNotifiesADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, _ := observetest.StartCachesForDrains(t)
		synctest.Wait() // wait until the fake's watches are open
		news, stop, err := observe.SubscribeToChanges(newChangeSources(cluster), "uid-m", testChangeFilter)
		require.NoError(t, err)
		defer stop()
		wasNotified(news)

		r := newRule("skip")
		rules := cluster.Client().MachineV1alpha1().MachineDrainRules(r.Namespace)
		r, err = rules.Create(t.Context(), r, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.True(t, wasNotified(news), "there is a rule")
		r = r.DeepCopy()
		r.ResourceVersion, r.Spec.Drain.Behavior = "901", v1alpha1.MachineDrainRuleBehaviorDrain
		require.NoError(t, errorOfResult(rules.Update(t.Context(), r, metav1.UpdateOptions{})))
		assert.True(t, wasNotified(news), "the rule changes")
		require.NoError(t, rules.Delete(t.Context(), r.Name, metav1.DeleteOptions{}))
		assert.True(t, wasNotified(news), "the rule goes")
	})
}
