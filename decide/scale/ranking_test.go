package scale_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/scale"
)

const day = 24 * time.Hour

// deletedMachineNames returns the names of the machines that a set with tooMany surplus machines deletes. Machines that
// are already being deleted are part of the surplus.
func deletedMachineNames(order scale.DeletionOrder, tooMany int, members ...scale.Member) []string {
	o := newSet(max(len(members)-tooMany, 0), members...)
	o.DeletionOrder = order
	return targetNames(scale.Decide(o).Delete)
}

func TestOrderOfDeletion(t *testing.T) {
	plain := func(name string, changes ...memberChange) scale.Member {
		return newMember(name, 0, append(changes, withoutCreationTime)...)
	}
	h1, h2, going1, going2 := plain(
		"h1",
	), plain(
		"h2",
	), plain(
		"going1",
		asDeletingMachine,
	), plain(
		"going2",
		asDeletingMachine,
	)
	bad1, bad2, bad3 := plain(
		"bad1",
		withUnhealthyNode,
	), plain(
		"bad2",
		withUnhealthyNode,
	), plain(
		"bad3",
		withUnhealthyNode,
	)

	going := newMember("going", 0, asDeletingMachine)
	newest, second := newMember("newest", day), newMember("second", 5*day)
	third, oldest := newMember("third", 10*day), newMember("oldest", 11*day)
	ages := func(more ...scale.Member) []scale.Member {
		return append([]scale.Member{second, oldest, third, newest}, more...)
	}
	empty := newMember("empty", 0, withoutCreationTime)
	old := func(name string, changes ...memberChange) scale.Member { return newMember(name, 10*day, changes...) }

	for _, row := range []struct {
		name    string
		order   scale.DeletionOrder
		tooMany int
		members []scale.Member
		want    []string
	}{
		{"Random, none too many", scale.RandomOrder, 0, []scale.Member{h1}, nil},
		{"Random, more than there are", scale.RandomOrder, 2, []scale.Member{h1}, []string{"h1"}},
		{"Random, an unhealthy one, then a healthy one", scale.RandomOrder, 2, []scale.Member{h1, bad1, h2}, []string{"bad1", "h1"}},
		{"Random, unhealthy ones only", scale.RandomOrder, 2, []scale.Member{h1, bad1, bad2, bad3}, []string{"bad1", "bad2"}},
		{"Random, those that go are enough", scale.RandomOrder, 2, []scale.Member{h1, going1, bad1, going2}, nil},
		{"Random, one goes, then an unhealthy one", scale.RandomOrder, 2, []scale.Member{h1, going1, h2, bad1}, []string{"bad1"}},
		{"Random, one goes, then a healthy one", scale.RandomOrder, 2, []scale.Member{h1, going1, h2}, []string{"h1"}},
		{"Random, unhealthy ones run out", scale.RandomOrder, 2, []scale.Member{h2, bad1, h1}, []string{"bad1", "h1"}},
		{"Random, annotated", scale.RandomOrder, 1, []scale.Member{bad1, plain("x", asMachineToDeleteFirst), bad2, plain("u", asUpdatingMachine)}, []string{"x"}},
		{"Random, under update", scale.RandomOrder, 1, []scale.Member{bad1, plain("u", asUpdatingMachine), bad2}, []string{"u"}},
		{"Random, without a node", scale.RandomOrder, 1, []scale.Member{h1, plain("x", withoutNode), h2}, []string{"x"}},
		{"Random, node unhealthy", scale.RandomOrder, 1, []scale.Member{h1, bad1, h2}, []string{"bad1"}},
		{"Random, node unknown: the name decides", scale.RandomOrder, 1, []scale.Member{plain("h1", withUnknownNode), plain("x")}, []string{"x"}},
		{"Random, node unknown, the other way round", scale.RandomOrder, 1, []scale.Member{h1, plain("x", withUnknownNode)}, []string{"x"}},
		{"Random, health check failed", scale.RandomOrder, 1, []scale.Member{h1, plain("x", asUnhealthyMachine), h2}, []string{"x"}},
		{"Random, health check unknown: the name decides", scale.RandomOrder, 1, []scale.Member{plain("h1", withUnknownHealth), plain("x")}, []string{"x"}},
		{"Random, health check unknown, the other way round", scale.RandomOrder, 1, []scale.Member{h1, plain("x", withUnknownHealth)}, []string{"x"}},

		{"Newest, one that goes counts", scale.NewestFirst, 1, ages(going), nil},
		{"Newest, then the newest", scale.NewestFirst, 2, ages(going), []string{"newest"}},
		{"Newest, then the second newest", scale.NewestFirst, 3, ages(going), []string{"newest", "second"}},
		{"Newest, annotated", scale.NewestFirst, 1, ages(old("x", asMachineToDeleteFirst), old("u", asUpdatingMachine)), []string{"x"}},
		{"Newest, under update", scale.NewestFirst, 1, ages(old("u", asUpdatingMachine)), []string{"u"}},
		{"Newest, without a node", scale.NewestFirst, 1, ages(old("x", withoutNode)), []string{"x"}},
		{"Newest, unhealthy", scale.NewestFirst, 1, ages(old("x", asUnhealthyMachine)), []string{"x"}},
		{"Newest, node unhealthy", scale.NewestFirst, 1, ages(old("x", withUnhealthyNode)), []string{"x"}},
		{"Newest, node unknown", scale.NewestFirst, 1, ages(old("x", withUnknownNode)), []string{"newest"}},
		{"Newest is the default", "", 1, ages(old("x", withUnknownNode)), []string{"newest"}},

		{"Oldest, the oldest", scale.OldestFirst, 1, ages(empty), []string{"oldest"}},
		{"Oldest, then the second oldest", scale.OldestFirst, 2, ages(empty), []string{"oldest", "third"}},
		{"Oldest, then the next", scale.OldestFirst, 3, ages(empty), []string{"oldest", "third", "second"}},
		{"Oldest, one without a time stays last", scale.OldestFirst, 4, ages(empty), []string{"oldest", "third", "second", "newest"}},
		{"Oldest, annotated", scale.OldestFirst, 1, ages(empty, newMember("x", day, asMachineToDeleteFirst), old("u", asUpdatingMachine)), []string{"x"}},
		{"Oldest, under update", scale.OldestFirst, 1, ages(empty, newMember("u", day, asUpdatingMachine)), []string{"u"}},
		{"Oldest, without a node", scale.OldestFirst, 1, ages(empty, newMember("x", day, withoutNode)), []string{"x"}},
		{"Oldest, unhealthy", scale.OldestFirst, 1, ages(empty, newMember("x", day, asUnhealthyMachine)), []string{"x"}},
		{"Oldest, node unhealthy", scale.OldestFirst, 1, ages(empty, newMember("x", day, withUnhealthyNode)), []string{"x"}},
		{"Oldest, node unknown", scale.OldestFirst, 1, ages(empty, newMember("x", day, withUnknownNode)), []string{"oldest"}},
		{"Oldest, one that goes counts before an unhealthy a", scale.OldestFirst, 1, ages(empty, newMember("b", 0, asDeletingMachine), old("a", withUnhealthyNode)), nil},
		{"Oldest, one that goes counts before an unhealthy z", scale.OldestFirst, 1, ages(empty, newMember("b", 0, asDeletingMachine), old("z", withUnhealthyNode)), nil},

		{"without a node, unhealthy", scale.NewestFirst, 1, []scale.Member{newest, old("x", withoutNode)}, []string{"x"}},
		{"node unhealthy, unhealthy", scale.NewestFirst, 1, []scale.Member{newest, old("x", withUnhealthyNode)}, []string{"x"}},
		{"node unknown, healthy", scale.NewestFirst, 1, []scale.Member{newest, old("x", withUnknownNode)}, []string{"newest"}},
		{"all in order, healthy", scale.NewestFirst, 1, []scale.Member{newest, old("x")}, []string{"newest"}},

		{"without a cluster to join, no node is needed", scale.NewestFirst, 1, []scale.Member{newest, old("x", withoutNode, func(m *scale.Member) { m.MCM.ServesWithoutNode = true })}, []string{"newest"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, deletedMachineNames(row.order, row.tooMany, row.members...))
			slices.Reverse(row.members)
			assert.Equal(t, row.want, deletedMachineNames(row.order, row.tooMany, row.members...), "listed in another order")
		})
	}
}

func TestMachinesOfEqualRankAreDeletedByName(t *testing.T) {
	var names []string
	var members []scale.Member
	for i := range 10 {
		names = append(names, fmt.Sprintf("machine-%d", i))
		members = append(members, newMember(names[i], 0, asMachineToDeleteFirst, withoutCreationTime, withoutNode))
	}
	throws := randomSource(11)
	for _, row := range []struct {
		name    string
		order   scale.DeletionOrder
		tooMany int
	}{
		{"Oldest, 1", scale.OldestFirst, 1},
		{"Oldest, 5", scale.OldestFirst, 5},
		{"Oldest, any number", scale.OldestFirst, throws.randomIntBelow(11)},
		{"Random, 1", scale.RandomOrder, 1},
		{"Random, 5", scale.RandomOrder, 5},
		{"Random, any number", scale.RandomOrder, throws.randomIntBelow(11)},
		{"Newest, 1", scale.NewestFirst, 1},
		{"Newest, 5", scale.NewestFirst, 5},
		{"Newest, any number", scale.NewestFirst, throws.randomIntBelow(11)},
		{"the default, 1", "", 1},
		{"the default, 5", "", 5},
		{"the default, any number", "", throws.randomIntBelow(11)},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 20 {
				got := deletedMachineNames(row.order, row.tooMany, shuffledItems(&throws, members)...)
				require.Equal(t, names[:row.tooMany], append([]string{}, got...))
			}
		})
	}
}

func TestRandomOrderIgnoresAgeAndName(t *testing.T) {
	got := deletedMachineNames(scale.RandomOrder, 9, runningMembers(9)...)
	byName := slices.Sorted(slices.Values(got))
	require.Len(t, got, 9)
	assert.NotEqual(t, byName, got)
	slices.Reverse(byName)
	assert.NotEqual(t, byName, got)
	assert.Equal(
		t,
		got,
		deletedMachineNames(scale.RandomOrder, 9, runningMembers(9)...),
		"and gives the same answer each time",
	)
}

// Each machine is deleted before all machines after it in the list.
func TestRankingOfMachinesForDeletion(t *testing.T) {
	order := []scale.Member{
		newMember("annotated", 2*day, asMachineToDeleteFirst, withPriority(9)),
		newMember("cheap", 2*day, withPriority(0)),
		newMember("chosen-early", 2*day, withChoiceTime(epochPlus(-2*time.Hour))),
		newMember("chosen-late", day, withChoiceTime(epochPlus(-time.Hour))),
		newMember("priority-1", day, withPriority(1)),
		newMember("failed", 2*day, asFailedMachine, asUnreplaceableMachine),
		newMember("crashing", 2*day, asMachineWithFailingCreation),
		newMember("updating", 2*day, asUpdatingMachine),
		newMember("fresh", 0, asFreshMachine),
		newMember("pending", 2*day, asPendingMachine),
		newMember("node-unhealthy", 2*day, withUnhealthyNode),
		newMember("young", day),
		newMember("old-a", 2*day),
		newMember("old-b", 2*day),
		newMember("dear", day, withPriority(4), asFailedMachine, asUnreplaceableMachine),
		newMember(
			"kept",
			day,
			asFailedMachine,
			asAutoPreservedMachine,
			func(m *scale.Member) { m.MCM.PreservedUntil = epochPlus(9 * day) },
		),
		newMember("preserved-soon", day, asMachineToDeleteFirst, withPreservationEnd(epochPlus(day))),
		newMember("preserved-long", day, withPriority(0), withPreservationEnd(epochPlus(2*day))),
	}
	var names []string
	for _, m := range order {
		names = append(names, m.Name)
	}
	for seed := range 50 {
		throws := randomSource(seed)
		got := deletedMachineNames(scale.NewestFirst, len(order), shuffledItems(&throws, order)...)
		require.Equal(t, names, got)
	}
}

func TestAFailedMachineIsDeletedBeforeANewOrUpdatingOne(t *testing.T) {
	for _, valuable := range []memberChange{asFreshMachine, asUpdatingMachine} {
		for _, worthless := range []memberChange{asFailedMachine, asMachineWithFailingCreation} {
			assert.Equal(
				t,
				[]string{"z"},
				deletedMachineNames(
					scale.NewestFirst,
					1,
					newMember("a", 0, valuable),
					newMember("z", 9*day, worthless, asUnreplaceableMachine),
				),
			)
		}
	}
}
