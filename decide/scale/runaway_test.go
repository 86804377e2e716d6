package scale_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

// If machines lose their labels as fast as the set creates them, the set stops at 2 * replicas + 2 machines. Both
// members and released machines count. With a limit of 2 * replicas + 1, a set of one machine could not replace a
// second released machine. A limit of 2 * replicas + 3 would allow one more machine without an owner.
func TestReleasedMachinesLimitNewCreations(t *testing.T) {
	for _, row := range []struct {
		replicas, active, released int
		creates                    int
	}{
		{3, 0, 7, 3},
		{3, 0, 8, 0},
		{3, 2, 5, 1},
		{3, 2, 6, 0},
		{1, 0, 3, 1},
		{1, 0, 4, 0},
		{0, 0, 9, 0},
	} {
		t.Run(fmt.Sprintf("%d wanted, %d there, %d released", row.replicas, row.active, row.released), func(t *testing.T) {
			o := newSet(row.replicas, runningMembers(row.active)...)
			o.ReleasedMachineCount = row.released
			assert.Len(t, scale.Decide(o).Create, row.creates)
		})
	}
}
