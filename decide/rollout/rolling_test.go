package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestARollingUpdateSizesTheCurrentSet(t *testing.T) {
	for _, row := range []struct {
		name string
		in   rollout.Observed
		want map[string]int
	}{
		{"0 to 2", rolling(2, 2, 0, now(1, 0, 0, 0)), map[string]int{"ms1": 2}},
		{"2 to 0", rolling(0, 2, 0, now(1, 2, 2, 2)), map[string]int{"ms1": 0}},
		{"not above 3 and 2", rolling(3, 2, 0, old(1, 3, 3, 3), now(2, 1, 0, 0)), map[string]int{"ms2": 2}},
		{
			"machines on their way out count",
			rolling(1, 0, 0, plus(old(1, 0, 0, 0), machine("out", deleting)), now(2, 0, 0, 0)),
			map[string]int{},
		},
		{
			"unless they are not to",
			free(rolling(1, 0, 0, plus(old(1, 0, 0, 0), machine("out", deleting)), now(2, 0, 0, 0))),
			map[string]int{"ms2": 1},
		},
		{
			"what a set is about to make counts, and what it says that it has",
			rolling(3, 2, 0, counted(old(1, 3, 3, 3), 4), now(2, 1, 0, 0)),
			map[string]int{},
		},
		{
			"a set that has not seen its size may still make machines",
			rolling(4, 2, 0, unseen(old(1, 3, 3, 3), 5), now(2, 1, 1, 1)),
			map[string]int{},
		},
		{
			"machines of a set that is being deleted count",
			rolling(3, 1, 0, going(old(1, 0, 2, 2)), now(2, 0, 0, 0)),
			map[string]int{"ms2": 2},
		},
		{"scaling out goes to the new set only", rolling(8, 1, 0, old(1, 3, 3, 3), now(2, 1, 1, 1)), map[string]int{"ms2": 6}},
		{"the size is right", rolling(3, 1, 0, now(1, 3, 3, 3)), map[string]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, sizes(rollout.Decide(row.in)))
		})
	}
	t.Run("the mark that forbids creation goes, before anything else", func(t *testing.T) {
		d := rollout.Decide(rolling(2, 0, 0, closed(now(1, 2, 0, 0))))
		assert.Equal(t, []string{"ms1"}, names(d.AllowScaleUp))
		assert.Empty(t, d.Resize)
	})
}

func free(o rollout.Observed) rollout.Observed         { o.FreeWhenDeleting = true; return o }
func counted(s rollout.Set, n int) rollout.Set         { s.Counted = n; return s }
func unseen(s rollout.Set, n int) rollout.Set          { s.ActedOn = n; return s }
func going(s rollout.Set) rollout.Set                  { s.Deleting = true; return s }
func sets(s ...rollout.Set) []rollout.Set              { return s }
func md(r, s, u int, l []rollout.Set) rollout.Observed { return rolling(r, s, u, l...) }
func all(s rollout.Set, f func(*rollout.Member)) rollout.Set {
	for i := range s.Machines {
		s = with(s, i, f)
	}
	return s
}

func TestARollingUpdateSizesOldSets(t *testing.T) {
	held := map[string]int{}
	for _, row := range []struct {
		name string
		in   rollout.Observed
		want map[string]int
	}{
		{"no replicas", md(10, 1, 0, sets(old(1, 0, 0, 0), now(2, 10, 10, 10))), held},
		{"exactly as many available as needed", md(3, 1, 0, sets(old(1, 2, 2, 2), now(2, 2, 2, 1))), held},
		{"fewer available than needed", md(3, 1, 0, sets(old(1, 2, 2, 1), now(2, 2, 1, 1))), held},
		{"being scaled down already", md(3, 1, 0, sets(old(1, 2, 3, 3), now(2, 1, 1, 1))), held},
		{"a machine under in-place update", md(3, 1, 0, sets(old(1, 2, 2, 2), with(old(2, 1, 1, 1), 0, updating), now(3, 1, 1, 1))), held},
		{"another one is being scaled down", md(6, 3, 1, sets(old(1, 2, 3, 3), old(2, 3, 3, 3), now(3, 3, 0, 0))), held},
		{"all unavailable, surge 1", md(3, 1, 0, sets(old(1, 3, 3, 0), now(2, 1, 1, 0))), held},
		{"all unavailable, surge 0", md(3, 0, 1, sets(old(1, 2, 2, 0), now(2, 1, 1, 0))), held},
		{"this round takes from the new set", md(3, 1, 0, sets(old(1, 1, 1, 1), now(2, 4, 4, 3))), map[string]int{"ms2": 3}},
		{"this round takes from an old set", md(3, 1, 0, sets(old(1, 2, 2, 2), old(2, 1, 1, 1), now(3, 1, 1, 1))), map[string]int{"ms1": 1}},
		{"the new set has unavailable ones", md(3, 1, 0, sets(old(1, 3, 3, 3), now(2, 1, 1, 0))), held},
		{"all available", md(3, 1, 0, sets(old(1, 3, 3, 3), now(2, 1, 1, 1))), map[string]int{"ms1": 2}},
		{
			"unavailable ones first",
			md(3, 1, 0, sets(old(1, 2, 2, 2), old(2, 1, 1, 0), old(3, 2, 2, 0), now(4, 1, 1, 1))),
			map[string]int{"ms2": 0, "ms3": 0},
		},
		{
			"then available ones",
			md(3, 1, 0, sets(old(1, 3, 3, 3), old(2, 1, 1, 0), old(3, 2, 2, 0), now(4, 1, 1, 1))),
			map[string]int{"ms2": 0, "ms3": 0, "ms1": 2},
		},
		{
			"not misled by replicas without machine",
			md(3, 1, 0, sets(old(1, 4, 3, 3), old(2, 2, 1, 0), old(3, 5, 2, 0), now(4, 1, 1, 1))),
			map[string]int{"ms2": 0, "ms3": 0, "ms1": 2},
		},
		{
			"stops before too few are available",
			md(3, 1, 0, sets(old(1, 1, 1, 1), old(2, 1, 1, 0), old(3, 2, 2, 1), now(4, 1, 1, 1))),
			map[string]int{"ms2": 0},
		},
		{
			"stops in time, not misled",
			md(3, 1, 0, sets(old(1, 2, 1, 1), old(2, 3, 1, 0), old(3, 3, 2, 1), now(4, 1, 1, 1))),
			map[string]int{"ms1": 1, "ms2": 0, "ms3": 2},
		},
		{"an earlier scale-down is counted", md(3, 1, 0, sets(old(1, 3, 4, 4), now(2, 2, 2, 2))), map[string]int{"ms1": 1}},
		{"a scale-down of the new set is counted", md(3, 1, 0, sets(old(1, 3, 3, 3), now(2, 4, 4, 4))), map[string]int{"ms1": 0, "ms2": 3}},
		{"a scale-down of an old set is counted", md(3, 1, 0, sets(old(1, 1, 1, 0), old(2, 3, 3, 3), now(3, 2, 2, 2))), map[string]int{"ms1": 0, "ms2": 1}},
		{
			"a sick machine goes first for sure: nothing is risked",
			md(3, 1, 0, sets(with(old(1, 3, 3, 3), 2, sick), now(2, 1, 1, 1))),
			map[string]int{"ms1": 2},
		},
		{
			"but not where a person chose an available one",
			md(3, 1, 0, sets(with(with(old(1, 3, 3, 3), 2, sick), 0, func(m *rollout.Member) { m.First = true }), now(2, 2, 2, 1))), held,
		},
		{
			"a failed machine that is preserved is not waited for",
			md(3, 1, 0, sets(old(1, 1, 1, 1), with(now(2, 3, 3, 3), 0, failed, preserved))),
			map[string]int{"ms1": 0},
		},
		{
			"fewer wanted: new machines that are not available go before a bound is broken for long",
			md(6, 3, 1, sets(old(1, 6, 6, 6), all(now(2, 6, 6, 0), sick))),
			map[string]int{"ms1": 5, "ms2": 4},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(row.in)
			assert.Equal(t, row.want, sizes(d))
			assert.Empty(t, forced(d))
			if len(row.want) == 0 && !d.Complete {
				assert.NotEmpty(t, d.Hold)
				assert.Equal(t, d.Hold, d.Why)
			}
		})
	}
	t.Run("the old set has unavailable ones, and might take an available one: only to end a deadlock", func(t *testing.T) {
		d := rollout.Decide(rolling(3, 1, 0, old(1, 3, 3, 2), now(2, 1, 1, 1)))
		assert.Equal(t, []string{"ms1"}, forced(d))
		d = rollout.Decide(rolling(3, 1, 0, old(1, 3, 3, 2), plus(now(2, 1, 1, 1), machine("out", deleting))))
		assert.Empty(t, sizes(d))
	})
}

func TestADeadlockIsBroken(t *testing.T) {
	none := []string(nil)
	for _, row := range []struct {
		name string
		in   rollout.Observed
		want []string
	}{
		{"no replicas in old sets", rolling(10, 1, 0, old(1, 0, 0, 0), now(2, 10, 10, 10)), none},
		{"all of old sets are available", rolling(9, 1, 0, old(1, 5, 5, 5), now(2, 5, 5, 5)), none},
		{"the new set is still scaling", rolling(10, 1, 0, old(1, 5, 5, 4), now(2, 6, 5, 5)), none},
		{"an old set is still scaling", rolling(10, 1, 0, old(1, 5, 6, 4), now(2, 5, 5, 5)), none},
		{"this round scales the new set", rolling(10, 1, 0, old(1, 5, 5, 4), now(2, 5, 5, 5)), none},
		{"this round scales an old set", rolling(8, 1, 0, old(1, 5, 5, 4), now(2, 5, 5, 5)), none},
		{"the new set has unavailable machines", rolling(9, 1, 0, old(1, 5, 5, 4), now(2, 5, 5, 3)), none},
		{"nothing else can move", rolling(9, 1, 0, old(1, 5, 5, 4), now(2, 5, 5, 5)), []string{"ms1"}},
		{"nor while a machine is under update", rolling(9, 1, 0, with(old(1, 5, 5, 5), 0, updating), now(2, 5, 5, 5)), none},
		{"the oldest one that can", rolling(9, 1, 0, old(1, 2, 2, 2), old(2, 3, 3, 2), now(3, 5, 5, 5)), []string{"ms2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, forced(rollout.Decide(row.in)))
		})
	}
}

// A set that has not said that it has seen its new size may still make machines. They take places, but they are not
// there.
func TestTheReasonWhyNoMachineIsAddedSaysWhatIsThere(t *testing.T) {
	gone := func(s rollout.Set) rollout.Set { return plus(s, machine("out", deleting)) }
	for _, row := range []struct {
		name, want string
		old        rollout.Set
	}{
		{"all are there", "3 machines existing or being deleted, 3 allowed", gone(old(1, 1, 1, 1))},
		{
			"the set has not said that it has seen its size", "3 machines existing or being deleted, 3 allowed; 1 more may exist or be created",
			unseen(gone(old(1, 1, 1, 1)), 2),
		},
		{
			"the set counts one that was not read", "2 machines existing or being deleted, 3 allowed; 1 more may exist or be created",
			counted(old(1, 1, 1, 1), 2),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(rolling(2, 1, 0, row.old, now(2, 1, 1, 1)))
			assert.Empty(t, sizes(d))
			assert.Equal(t, row.want, d.Why)
		})
	}
}
