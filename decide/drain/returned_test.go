package drain_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// A pod that came back to the cordoned node stays, whatever its label or rule wants, and nobody waits for it: each
// eviction would only bring the next one.
func TestPodsThatComeBackToACordonedNodeStay(t *testing.T) {
	returned := func(p *drain.Pod) { p.Returned = true }
	for name, change := range map[string]func(*drain.Pod){
		"without a rule":          func(*drain.Pod) {},
		"a rule drains it":        ruled("Drain", 3),
		"it is to complete":       labelled("wait-completed"),
		"a rule lets it complete": ruled("WaitCompleted", 0),
		"it has finished":         finished,
		"with a volume":           volumes("pv"),
	} {
		t.Run(name, func(t *testing.T) {
			back := pod("back", change, returned)
			assert.Equal(t, drain.Treatment{Do: drain.Skip}, drain.Treat(back))
			for _, means := range []drain.Means{drain.Evict, drain.Delete, drain.Kill} {
				d := drain.Decide(drain.Observed{Pods: []drain.Pod{back}, Means: means, Now: epoch})
				assert.Empty(t, d.Act, means)
				assert.True(t, d.Done, means)
			}
		})
	}
}
