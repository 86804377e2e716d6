package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func inPlace(replicas, surge, unavailable int, sets ...rollout.Set) rollout.Observed {
	return by(rollout.InPlaceAuto, rolling(replicas, surge, unavailable, sets...))
}

// ready is an old set in which every node waits to be selected.
func ready(s rollout.Set) rollout.Set { return closed(all(s, candidate)) }

func TestInPlaceSizes(t *testing.T) {
	for _, row := range []struct {
		name string
		in   rollout.Observed
		want map[string]int
	}{
		{"handed machines raise the new set, the old set is lowered", inPlace(3, 0, 1, ready(old(1, 3, 2, 2)), with(now(2, 0, 1, 1), 0, handed)), map[string]int{"ms1": 2, "ms2": 1}},
		{"no more than the label says", inPlace(6, 0, 1, ready(old(1, 4, 4, 4)), with(now(2, 0, 2, 2), 0, handed)), map[string]int{"ms2": 1}},
		{"handed machines of a template that was changed meanwhile are not too many", inPlace(3, 0, 1, closed(with(with(old(1, 0, 2, 2), 0, handed), 1, handed)), now(2, 1, 1, 1)), map[string]int{"ms1": 2}},
		{"and stay its when the strategy is another one meanwhile", rolling(3, 0, 1, closed(old(1, 2, 2, 2)), with(now(2, 0, 1, 1), 0, handed)), map[string]int{"ms2": 1}},
		{"those of a former template, too", rolling(4, 0, 1, closed(with(old(1, 0, 1, 1), 0, handed)), old(2, 1, 1, 1), now(3, 2, 2, 2)), map[string]int{"ms1": 1}},
		{"equal", inPlace(3, 0, 1, now(2, 3, 3, 3)), map[string]int{}},
		{"lower", inPlace(2, 0, 1, now(2, 3, 3, 3)), map[string]int{"ms2": 2}},
		{"without old machines", inPlace(3, 0, 1, old(1, 0, 0, 0), now(2, 0, 0, 0)), map[string]int{"ms2": 3}},
		{"what is missing comes new", inPlace(5, 0, 1, ready(old(1, 2, 2, 2)), now(2, 1, 1, 1)), map[string]int{"ms2": 3}},
		{"without replicas", inPlace(0, 0, 1, ready(old(1, 2, 2, 2)), now(2, 0, 0, 0)), map[string]int{"ms1": 0}},
		{"scaled out on the way", inPlace(6, 0, 1, ready(old(1, 2, 2, 2)), now(2, 1, 1, 1)), map[string]int{"ms2": 4}},
		{"scaled in on the way", inPlace(2, 0, 1, ready(old(1, 2, 2, 2)), now(2, 1, 1, 1)), map[string]int{"ms1": 1}},
		{"the surge is the old set's end", inPlace(3, 1, 0, ready(old(1, 1, 1, 1)), now(2, 3, 3, 3)), map[string]int{"ms1": 0}},
		{"Auto, surge reached", inPlace(3, 1, 0, ready(old(1, 3, 3, 3)), now(2, 1, 1, 0)), map[string]int{}},
		{"Manual", by(rollout.InPlaceManual, inPlace(3, 1, 0, ready(old(1, 3, 3, 3)), now(2, 0, 0, 0))), map[string]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, sizes(rollout.Decide(row.in)))
		})
	}
}

func TestInPlaceSelection(t *testing.T) {
	busy := func(n int, s rollout.Set) rollout.Set {
		for i := range n {
			s = with(s, i, updating)
		}
		return s
	}
	for _, row := range []struct {
		name string
		in   rollout.Observed
		want []string
	}{
		{"one at a time", inPlace(3, 0, 1, ready(old(1, 3, 3, 3)), now(2, 0, 0, 0)), []string{"ms1-00"}},
		{"the new one is not available yet", inPlace(3, 0, 1, ready(old(1, 2, 2, 2)), now(2, 1, 1, 0)), nil},
		{"those under way count", inPlace(6, 0, 3, ready(old(1, 6, 6, 6)), now(2, 0, 0, 0)), []string{"ms1-00", "ms1-01", "ms1-02"}},
		{"two are under way", inPlace(6, 0, 3, busy(2, ready(old(1, 6, 6, 6))), now(2, 0, 0, 0)), []string{"ms1-02"}},
		{"all that may are under way", inPlace(6, 0, 3, busy(3, ready(old(1, 6, 6, 6))), now(2, 0, 0, 0)), nil},
		{"nothing to do", inPlace(3, 0, 1, now(2, 3, 3, 3)), nil},
		{"all", inPlace(2, 0, 2, ready(old(1, 2, 2, 2)), now(2, 0, 0, 0)), []string{"ms1-00", "ms1-01"}},
		{"the only one", inPlace(3, 0, 3, with(closed(old(1, 3, 3, 3)), 1, candidate), now(2, 0, 0, 0)), []string{"ms1-01"}},
		{"all are selected already", inPlace(2, 0, 2, busy(2, ready(old(1, 2, 2, 2))), now(2, 0, 0, 0)), nil},
		{"none is labelled", inPlace(3, 0, 1, closed(old(1, 3, 3, 3)), now(2, 0, 0, 0)), nil},
		{"no more than the new set wants", inPlace(3, 0, 3, ready(old(1, 1, 1, 1)), now(2, 2, 2, 2)), []string{"ms1-00"}},
		{"the unhealthy first, they cost nothing", inPlace(3, 0, 1, with(ready(old(1, 3, 3, 3)), 2, unavailable), now(2, 0, 0, 0)), []string{"ms1-02"}},
		{"Manual: a person does that", by(rollout.InPlaceManual, inPlace(3, 0, 1, ready(old(1, 3, 3, 3)), now(2, 0, 0, 0))), nil},
		{"the oldest set first", inPlace(4, 0, 1, ready(old(1, 2, 2, 2)), ready(old(2, 2, 2, 2)), now(3, 0, 0, 0)), []string{"ms1-00"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(row.in)
			assert.Equal(t, row.want, names(d.Select))
		})
	}
}

func TestInPlaceSteps(t *testing.T) {
	t.Run("old sets are closed, then their nodes become candidates", func(t *testing.T) {
		o := inPlace(3, 0, 1, old(1, 3, 3, 3), now(2, 0, 0, 0))
		assert.Equal(t, []string{"ms1"}, names(rollout.Decide(o).ForbidScaleUp))
		o.Sets[0].NoScaleUp = true
		assert.Len(t, rollout.Decide(o).Candidates, 3)
	})
	t.Run("an updated machine is handed over before others are selected", func(t *testing.T) {
		d := rollout.Decide(inPlace(3, 0, 1, with(ready(old(1, 3, 3, 3)), 1, updated), now(2, 0, 0, 0)))
		assert.Equal(t, []rollout.Move{
			{
				Machine: rollout.Target{
					Name:    "ms1-01",
					UID:     "uid-ms1-01",
					Version: "7",
					Node:    "node-ms1-01",
					Why:     "it was updated in place",
				},
				From:  "ms1",
				To:    "ms2",
				ToUID: "uid-ms2",
			},
		}, d.Move)
		assert.Empty(t, d.Select)
		assert.Equal(t, "hand over 1 machine", d.Why)
	})
	t.Run("its node serves again, and only then goes the label that protects it", func(t *testing.T) {
		o := inPlace(3, 0, 1, ready(old(1, 2, 2, 2)), with(now(2, 1, 1, 1), 0, handed))
		d := rollout.Decide(o)
		assert.Equal(t, []string{"ms2-00"}, names(d.FinishUpdate))
		assert.Empty(t, d.ClearUpdateResult)
		o.Sets[1] = with(
			o.Sets[1],
			0,
			func(m *rollout.Member) { m.MCM.Updated, m.MCM.UpdateLabels, m.MCM.Candidate = false, false, false },
		)
		assert.Equal(t, []string{"ms2-00"}, names(rollout.Decide(o).ClearUpdateResult))
		o.Sets[1].ActedOn = 0
		assert.Empty(
			t,
			rollout.Decide(o).ClearUpdateResult,
			"the set may still act on its former size, for which the machine is one too many",
		)
	})
	t.Run("one whose label is to go is no candidate: it would keep it", func(t *testing.T) {
		o := inPlace(
			3,
			0,
			1,
			closed(with(old(1, 1, 1, 1), 0, func(m *rollout.Member) { m.MCM.HandedOver = true })),
			now(2, 2, 2, 2),
		)
		d := rollout.Decide(o)
		assert.Equal(t, []string{"ms1-00"}, names(d.ClearUpdateResult))
		assert.Empty(t, d.Candidates)
	})
	t.Run("one that was updated serves again when the strategy is another one meanwhile", func(t *testing.T) {
		o := closed(with(old(1, 3, 3, 3), 0, updated))
		assert.Empty(t, rollout.Decide(inPlace(3, 0, 1, o, now(2, 0, 0, 0))).FinishUpdate)
		assert.Equal(
			t,
			[]string{"ms1-00"},
			names(rollout.Decide(by(rollout.OnDelete, inPlace(3, 0, 1, o, now(2, 0, 0, 0)))).FinishUpdate),
		)
	})
	t.Run("whatever the strategy has become, none goes that has to serve", func(t *testing.T) {
		give := with(
			with(old(1, 0, 1, 1), 0, handed),
			0,
			func(m *rollout.Member) { m.MCM.Updated, m.MCM.UpdateLabels, m.MCM.Candidate = false, false, false },
		)
		o := rolling(3, 0, 1, closed(give), now(2, 1, 1, 1))
		assert.Empty(t, rollout.Decide(o).ClearUpdateResult)
		assert.Equal(
			t,
			[]string{"ms1-00"},
			names(rollout.Decide(by(rollout.Recreate, o)).ClearUpdateResult),
			"which promises nothing",
		)
		o.Sets[1] = now(2, 3, 3, 3)
		assert.Equal(t, []string{"ms1-00"}, names(rollout.Decide(o).ClearUpdateResult), "there are others")
	})
	t.Run("one that was handed over is no updated one for the template after", func(t *testing.T) {
		d := rollout.Decide(inPlace(3, 0, 1, with(ready(old(1, 3, 3, 3)), 0, handed), now(2, 0, 0, 0)))
		assert.Empty(t, d.Move)
		assert.Equal(t, []string{"ms1-00"}, names(d.FinishUpdate))
	})
	t.Run("a set that is the current one again may make machines, and its nodes are no candidates", func(t *testing.T) {
		o := inPlace(3, 0, 1, ready(now(1, 3, 3, 3)), old(2, 0, 0, 0))
		o.Sets[0].Revision = 3
		assert.Equal(t, []string{"ms1"}, names(rollout.Decide(o).AllowScaleUp))
		o.Sets[0].NoScaleUp = false
		assert.Len(t, rollout.Decide(o).ClearUpdateLabels, 3)
	})
	t.Run("it does not make again what it gave away", func(t *testing.T) {
		o := inPlace(3, 0, 1, ready(now(1, 3, 1, 1)), ready(old(2, 0, 2, 2)))
		o.Sets[0].Revision = 3
		d := rollout.Decide(o)
		assert.Equal(t, map[string]int{"ms1": 1}, sizes(d))
		assert.Empty(t, d.AllowScaleUp)
	})
	t.Run("what it waits for", func(t *testing.T) {
		busy := inPlace(3, 0, 1, with(ready(old(1, 3, 3, 3)), 0, updating), now(2, 0, 0, 0))
		assert.Equal(t, "1 machine being updated in place", rollout.Decide(busy).Hold)
		manual := by(rollout.InPlaceManual, inPlace(3, 0, 1, ready(old(1, 3, 3, 3)), now(2, 0, 0, 0)))
		assert.Equal(t, "a person has to select the next nodes", rollout.Decide(manual).Hold)
		ill := inPlace(3, 0, 1, with(ready(old(1, 3, 3, 3)), 0, failed), now(2, 0, 0, 0))
		assert.Equal(t, "2 available, 2 needed", rollout.Decide(ill).Hold)
	})
}
