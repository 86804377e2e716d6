package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestAProtectedPodIsNotEvicted(t *testing.T) {
	o := newFacts(newPod("a", withProtection("90m")), newPod("b"))
	d := drain.Decide(o)
	assert.Equal(t, []string{"b"}, requestedPodNames(d))
	assert.Equal(t, epochPlus(30*time.Minute), d.Look, "the end of the protection")
	assert.Equal(
		t,
		[]drain.Blocker{{Kind: "DoNotDisrupt", Pods: 1, Why: "shop/a is not to be disrupted before 12:30:00 UTC"}},
		d.Blockers,
	)
	assert.Equal(
		t,
		drain.PodRow{Pod: "shop/a", State: "Blocked", BlockedBy: "DoNotDisrupt", Next: epochPlus(30 * time.Minute)},
		rowOfPod(d, "a"),
	)

	o.Now = epochPlus(30 * time.Minute)
	assert.Equal(t, []string{"a", "b"}, requestedPodNames(drain.Decide(o)), "it has ended")
}

func TestProtectedPodsShareOneBlocker(t *testing.T) {
	d := drain.Decide(
		newFacts(
			newPod("a", withProtection("true")),
			newPod("b", withProtection("90m")),
			newPod("c", withProtection("2h")),
			newPod("d", withProtection("true")),
		),
	)
	assert.Empty(t, d.Act)
	assert.Equal(t, epochPlus(30*time.Minute), d.Look, "the first that ends")
	assert.Equal(t, []drain.Blocker{{
		Kind: "DoNotDisrupt", Pods: 4, Why: "shop/a, shop/b, shop/c and 1 more are not to be disrupted",
	}}, d.Blockers)
	assert.Zero(t, drain.Decide(newFacts(newPod("a", withProtection("true")))).Look, "nothing ends by itself")
}

func TestDeletionIgnoresDoNotDisrupt(t *testing.T) {
	for _, means := range []drain.RemovalMeans{drain.MeansDelete, drain.MeansKill} {
		d := drain.Decide(withMeans(means, newFacts(newPod("a", withProtection("true")))))
		assert.Equal(t, []drain.Action{{UID: "uid-a", Means: means}}, d.Act)
		assert.Empty(t, d.Blockers)
	}
}
