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

// deletions decides on a set that has so many machines too many; those that are being deleted are part of the number.
func deletions(order scale.Order, tooMany int, members ...scale.Member) []string {
	o := set(max(len(members)-tooMany, 0), members...)
	o.Order = order
	return targets(scale.Decide(o).Delete)
}

func TestOrderOfDeletion(t *testing.T) {
	plain := func(name string, changes ...change) scale.Member { return member(name, 0, append(changes, ageless)...) }
	h1, h2, going1, going2 := plain("h1"), plain("h2"), plain("going1", deleting), plain("going2", deleting)
	bad1, bad2, bad3 := plain("bad1", nodeUnhealthy), plain("bad2", nodeUnhealthy), plain("bad3", nodeUnhealthy)

	going := member("going", 0, deleting)
	newest, second := member("newest", day), member("second", 5*day)
	third, oldest := member("third", 10*day), member("oldest", 11*day)
	ages := func(more ...scale.Member) []scale.Member {
		return append([]scale.Member{second, oldest, third, newest}, more...)
	}
	empty := member("empty", 0, ageless)
	old := func(name string, changes ...change) scale.Member { return member(name, 10*day, changes...) }

	for _, row := range []struct {
		name    string
		order   scale.Order
		tooMany int
		members []scale.Member
		want    []string
	}{
		{"Random, none too many", scale.Random, 0, []scale.Member{h1}, nil},
		{"Random, more than there are", scale.Random, 2, []scale.Member{h1}, []string{"h1"}},
		{"Random, an unhealthy one, then a healthy one", scale.Random, 2, []scale.Member{h1, bad1, h2}, []string{"bad1", "h1"}},
		{"Random, unhealthy ones only", scale.Random, 2, []scale.Member{h1, bad1, bad2, bad3}, []string{"bad1", "bad2"}},
		{"Random, those that go are enough", scale.Random, 2, []scale.Member{h1, going1, bad1, going2}, nil},
		{"Random, one goes, then an unhealthy one", scale.Random, 2, []scale.Member{h1, going1, h2, bad1}, []string{"bad1"}},
		{"Random, one goes, then a healthy one", scale.Random, 2, []scale.Member{h1, going1, h2}, []string{"h1"}},
		{"Random, unhealthy ones run out", scale.Random, 2, []scale.Member{h2, bad1, h1}, []string{"bad1", "h1"}},
		{"Random, annotated", scale.Random, 1, []scale.Member{bad1, plain("x", annotated), bad2, plain("u", updating)}, []string{"x"}},
		{"Random, under update", scale.Random, 1, []scale.Member{bad1, plain("u", updating), bad2}, []string{"u"}},
		{"Random, without a node", scale.Random, 1, []scale.Member{h1, plain("x", noNode), h2}, []string{"x"}},
		{"Random, node unhealthy", scale.Random, 1, []scale.Member{h1, bad1, h2}, []string{"bad1"}},
		{"Random, node unknown: the name decides", scale.Random, 1, []scale.Member{plain("h1", nodeUnknown), plain("x")}, []string{"x"}},
		{"Random, node unknown, the other way round", scale.Random, 1, []scale.Member{h1, plain("x", nodeUnknown)}, []string{"x"}},
		{"Random, health check failed", scale.Random, 1, []scale.Member{h1, plain("x", unhealthy), h2}, []string{"x"}},
		{"Random, health check unknown: the name decides", scale.Random, 1, []scale.Member{plain("h1", unchecked), plain("x")}, []string{"x"}},
		{"Random, health check unknown, the other way round", scale.Random, 1, []scale.Member{h1, plain("x", unchecked)}, []string{"x"}},

		{"Newest, one that goes counts", scale.Newest, 1, ages(going), nil},
		{"Newest, then the newest", scale.Newest, 2, ages(going), []string{"newest"}},
		{"Newest, then the second newest", scale.Newest, 3, ages(going), []string{"newest", "second"}},
		{"Newest, annotated", scale.Newest, 1, ages(old("x", annotated), old("u", updating)), []string{"x"}},
		{"Newest, under update", scale.Newest, 1, ages(old("u", updating)), []string{"u"}},
		{"Newest, without a node", scale.Newest, 1, ages(old("x", noNode)), []string{"x"}},
		{"Newest, unhealthy", scale.Newest, 1, ages(old("x", unhealthy)), []string{"x"}},
		{"Newest, node unhealthy", scale.Newest, 1, ages(old("x", nodeUnhealthy)), []string{"x"}},
		{"Newest, node unknown", scale.Newest, 1, ages(old("x", nodeUnknown)), []string{"newest"}},
		{"Newest is the default", "", 1, ages(old("x", nodeUnknown)), []string{"newest"}},

		{"Oldest, the oldest", scale.Oldest, 1, ages(empty), []string{"oldest"}},
		{"Oldest, then the second oldest", scale.Oldest, 2, ages(empty), []string{"oldest", "third"}},
		{"Oldest, then the next", scale.Oldest, 3, ages(empty), []string{"oldest", "third", "second"}},
		{"Oldest, one without a time stays last", scale.Oldest, 4, ages(empty), []string{"oldest", "third", "second", "newest"}},
		{"Oldest, annotated", scale.Oldest, 1, ages(empty, member("x", day, annotated), old("u", updating)), []string{"x"}},
		{"Oldest, under update", scale.Oldest, 1, ages(empty, member("u", day, updating)), []string{"u"}},
		{"Oldest, without a node", scale.Oldest, 1, ages(empty, member("x", day, noNode)), []string{"x"}},
		{"Oldest, unhealthy", scale.Oldest, 1, ages(empty, member("x", day, unhealthy)), []string{"x"}},
		{"Oldest, node unhealthy", scale.Oldest, 1, ages(empty, member("x", day, nodeUnhealthy)), []string{"x"}},
		{"Oldest, node unknown", scale.Oldest, 1, ages(empty, member("x", day, nodeUnknown)), []string{"oldest"}},
		{"Oldest, one that goes counts before an unhealthy a", scale.Oldest, 1, ages(empty, member("b", 0, deleting), old("a", nodeUnhealthy)), nil},
		{"Oldest, one that goes counts before an unhealthy z", scale.Oldest, 1, ages(empty, member("b", 0, deleting), old("z", nodeUnhealthy)), nil},

		{"without a node, unhealthy", scale.Newest, 1, []scale.Member{newest, old("x", noNode)}, []string{"x"}},
		{"node unhealthy, unhealthy", scale.Newest, 1, []scale.Member{newest, old("x", nodeUnhealthy)}, []string{"x"}},
		{"node unknown, healthy", scale.Newest, 1, []scale.Member{newest, old("x", nodeUnknown)}, []string{"newest"}},
		{"all in order, healthy", scale.Newest, 1, []scale.Member{newest, old("x")}, []string{"newest"}},

		{"without a cluster to join, no node is needed", scale.Newest, 1, []scale.Member{newest, old("x", noNode, func(m *scale.Member) { m.MCM.Serves = true })}, []string{"newest"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, deletions(row.order, row.tooMany, row.members...))
			slices.Reverse(row.members)
			assert.Equal(t, row.want, deletions(row.order, row.tooMany, row.members...), "listed in another order")
		})
	}
}

func TestEqualRanks(t *testing.T) {
	var names []string
	var members []scale.Member
	for i := range 10 {
		names = append(names, fmt.Sprintf("machine-%d", i))
		members = append(members, member(names[i], 0, annotated, ageless, noNode))
	}
	throws := dice(11)
	for _, row := range []struct {
		name    string
		order   scale.Order
		tooMany int
	}{
		{"Oldest, 1", scale.Oldest, 1},
		{"Oldest, 5", scale.Oldest, 5},
		{"Oldest, any number", scale.Oldest, throws.below(11)},
		{"Random, 1", scale.Random, 1},
		{"Random, 5", scale.Random, 5},
		{"Random, any number", scale.Random, throws.below(11)},
		{"Newest, 1", scale.Newest, 1},
		{"Newest, 5", scale.Newest, 5},
		{"Newest, any number", scale.Newest, throws.below(11)},
		{"the default, 1", "", 1},
		{"the default, 5", "", 5},
		{"the default, any number", "", throws.below(11)},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 20 {
				got := deletions(row.order, row.tooMany, shuffle(&throws, members)...)
				require.Equal(t, names[:row.tooMany], append([]string{}, got...))
			}
		})
	}
}

func TestRandomMixesAgesAndNames(t *testing.T) {
	got := deletions(scale.Random, 9, running(9)...)
	byName := slices.Sorted(slices.Values(got))
	require.Len(t, got, 9)
	assert.NotEqual(t, byName, got)
	slices.Reverse(byName)
	assert.NotEqual(t, byName, got)
	assert.Equal(t, got, deletions(scale.Random, 9, running(9)...), "and gives the same answer each time")
}

// Each machine goes before all that stand behind it.
func TestRankingOfMachinesForDeletion(t *testing.T) {
	order := []scale.Member{
		member("annotated", 2*day, annotated, priority(9)),
		member("cheap", 2*day, priority(0)),
		member("chosen-early", 2*day, chosen(at(-2*time.Hour))),
		member("chosen-late", day, chosen(at(-time.Hour))),
		member("priority-1", day, priority(1)),
		member("failed", 2*day, failed, notGranted),
		member("crashing", 2*day, crashing),
		member("updating", 2*day, updating),
		member("fresh", 0, fresh),
		member("pending", 2*day, pending),
		member("node-unhealthy", 2*day, nodeUnhealthy),
		member("young", day),
		member("old-a", 2*day),
		member("old-b", 2*day),
		member("dear", day, priority(4), failed, notGranted),
		member("kept", day, failed, kept, func(m *scale.Member) { m.MCM.PreservedUntil = at(9 * day) }),
		member("preserved-soon", day, annotated, preservedUntil(at(day))),
		member("preserved-long", day, priority(0), preservedUntil(at(2*day))),
	}
	var names []string
	for _, m := range order {
		names = append(names, m.Name)
	}
	for seed := range 50 {
		throws := dice(seed)
		got := deletions(scale.Newest, len(order), shuffle(&throws, order)...)
		require.Equal(t, names, got)
	}
}

func TestNeitherFreshNorUpdatingGoesFirst(t *testing.T) {
	for _, valuable := range []change{fresh, updating} {
		for _, worthless := range []change{failed, crashing} {
			assert.Equal(
				t,
				[]string{"z"},
				deletions(scale.Newest, 1, member("a", 0, valuable), member("z", 9*day, worthless, notGranted)),
			)
		}
	}
}
