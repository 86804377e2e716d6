package drain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func newQueueEntry(name string, changes ...func(*drain.QueueEntry)) drain.QueueEntry {
	t := drain.QueueEntry{UID: "uid-" + name, Namespace: "shop", Name: name, Priority: 3, DeletedAt: epoch, Queued: true}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func TestTheOrderInWhichNodesAreDrained(t *testing.T) {
	running := func(t *drain.QueueEntry) { t.Started, t.Queued = epoch.Add(time.Minute), false }
	first := func(t *drain.QueueEntry) { t.Priority = 1 }
	early := func(t *drain.QueueEntry) { t.DeletedAt = epoch.Add(-time.Minute) }
	turns := []drain.QueueEntry{
		newQueueEntry("b"),
		newQueueEntry("a"),
		newQueueEntry("old", early),
		newQueueEntry("wanted", first),
		newQueueEntry("running", running),
	}
	order := []string{"running", "wanted", "old", "a", "b"}
	for i, name := range order {
		for most := range len(order) + 2 {
			may, why := drain.MayDrainNow(turns, "uid-"+name, most)
			assert.Equal(t, most == 0 || i < most, may, "%s with %d at a time", name, most)
			assert.Equal(t, may, why == "")
		}
	}
	_, why := drain.MayDrainNow(turns, "uid-b", 2)
	assert.Equal(t, "queued: place 3 of 3; 2 nodes are drained at a time", why)
	var next []string
	for _, t := range drain.NextQueuedMachines(turns, 2) {
		next = append(next, t.Name)
	}
	assert.Equal(t, []string{"wanted", "old"}, next)
	assert.Len(t, drain.NextQueuedMachines(turns, 9), 4)
}

// A rollout of 30 machines uses all places, and the rest of its machines wait. A second deployment that drains one node
// gets the next free place. After this place, the two deployments alternate. A drain that has begun keeps its place.
func TestALargeRolloutDoesNotDelayOtherDeployments(t *testing.T) {
	var turns []drain.QueueEntry
	of := func(group string) func(*drain.QueueEntry) { return func(t *drain.QueueEntry) { t.Group = group } }
	running := func(t *drain.QueueEntry) { t.Started, t.Queued = epoch.Add(time.Minute), false }
	late := func(t *drain.QueueEntry) { t.DeletedAt = epoch.Add(time.Hour) }
	for i := range 30 {
		changes := []func(*drain.QueueEntry){of("huge")}
		if i < 3 {
			changes = append(changes, running)
		}
		turns = append(turns, newQueueEntry(fmt.Sprintf("huge-%02d", i), changes...))
	}
	turns = append(
		turns,
		newQueueEntry("small-a", of("small"), late),
		newQueueEntry("small-b", of("small"), late),
		newQueueEntry("lone", of("other"), late),
	)
	var next []string
	for _, t := range drain.NextQueuedMachines(turns, 6) {
		next = append(next, t.Name)
	}
	assert.Equal(t, []string{"lone", "small-a", "small-b", "huge-03", "huge-04", "huge-05"}, next)
	for i := range 3 {
		may, _ := drain.MayDrainNow(turns, fmt.Sprintf("uid-huge-%02d", i), 3)
		assert.True(t, may, "what runs keeps its place")
	}
	may, _ := drain.MayDrainNow(turns, "uid-small-a", 5)
	assert.True(t, may)
	may, _ = drain.MayDrainNow(turns, "uid-huge-03", 5)
	assert.False(t, may)
}

func TestAMachineOutsideTheQueueMayDrain(t *testing.T) {
	may, _ := drain.MayDrainNow([]drain.QueueEntry{newQueueEntry("a"), newQueueEntry("b")}, "uid-c", 1)
	assert.True(t, may, "the caches are behind: it is a rank, and no lock")
}

func TestMayDrainNowReturnsPlaceInQueue(t *testing.T) {
	var turns []drain.QueueEntry
	for i := range 124 {
		turns = append(turns, newQueueEntry(fmt.Sprintf("m-%03d", i)))
	}
	for _, place := range []int{1, 2, 123} {
		_, why := drain.MayDrainNow(turns, fmt.Sprintf("uid-m-%03d", place), 1)
		assert.Equal(t, fmt.Sprintf("queued: place %d of 123; 1 node is drained at a time", place), why)
	}
	slices.Reverse(turns)
	_, why := drain.MayDrainNow(turns, "uid-m-001", 1)
	assert.Contains(t, why, "place 1 of", "in whatever order they stand")
}
