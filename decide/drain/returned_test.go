package drain_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// A pod that was scheduled again to the cordoned node stays, whatever its label or drain rule says. The drain does not
// wait for such a pod, because each eviction would only create the next pod on this node.
func TestPodsThatComeBackToACordonedNodeStay(t *testing.T) {
	returned := func(p *drain.Pod) { p.Returned = true }
	for name, change := range map[string]func(*drain.Pod){
		"without a rule":          func(*drain.Pod) {},
		"a rule drains it":        withDrainRule("Drain", 3),
		"it is to complete":       withDrainLabel("wait-completed"),
		"a rule lets it complete": withDrainRule("WaitCompleted", 0),
		"it has finished":         asFinishedPod,
		"with a volume":           withVolumes("pv"),
	} {
		t.Run(name, func(t *testing.T) {
			back := newPod("back", change, returned)
			assert.Equal(t, drain.PodTreatment{Behavior: drain.BehaviorSkip}, drain.TreatmentOfPod(back))
			for _, means := range []drain.RemovalMeans{drain.MeansEvict, drain.MeansDelete, drain.MeansKill} {
				d := drain.Decide(drain.Facts{Pods: []drain.Pod{back}, Means: means, Now: epoch})
				assert.Empty(t, d.Act, means)
				assert.True(t, d.Done, means)
			}
		})
	}
}
