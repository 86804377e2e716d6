package seeds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestASeedGivesOnePlan(t *testing.T) {
	l := lengths{loads: 7, faults: 4, time: time.Minute}
	kinds := map[string]bool{}
	for seed := range uint64(300) {
		p := newPlan(seed, l)
		assert.Equal(t, p, newPlan(seed, l))
		for _, s := range append(p.loads, p.faults...) {
			kinds[s.What] = true
			assert.Less(t, s.At, l.time)
		}
	}
	assert.Len(t, kinds, 23, "each load and each fault is in some plan")
}
