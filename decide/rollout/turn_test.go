package rollout_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/decidetest"
	"millwright/decide/rollout"
)

// A test of turns has deployments in one of these states.
func notRolledOut(n int) rollout.Facts { return rollingUpdateDeployment(n, 1, 0, oldSet(1, n, n, n)) }

func inRollout() rollout.Facts {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 1, 1, 0))
	return withTurn(o, epochPlus(-time.Minute))
}

func rolledOut(n int, ended time.Time) rollout.Facts {
	o := rollingUpdateDeployment(n, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, n, n, n))
	o.Progress.Turn = rollout.Turn{Since: epochPlus(-time.Hour), Ended: ended}
	return o
}

func rolledBack() rollout.Facts {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))
	o.Progress = rollout.Progress{
		Revision: 2,
		Set:      "ms2",
		Pin:      &rollout.Pin{Set: "ms1", Revision: 1, Since: epoch, Why: "2 machines of it failed, 1 allowed"},
	}
	return o
}

func withTurn(o rollout.Facts, since time.Time) rollout.Facts {
	o.Progress.Turn = rollout.Turn{Since: since}
	return o
}

func whilePaused(o rollout.Facts) rollout.Facts {
	o.Paused, o.PausedBy = true, "ann: lunch"
	return o
}

func with(o rollout.Facts, change func(*rollout.Facts)) rollout.Facts {
	change(&o)
	return o
}

// asSibling returns the facts as another deployment reads them: without machines.
func asSibling(name string, earlier bool, o rollout.Facts) rollout.Sibling {
	o = o.SortedCopy()
	for i := range o.Sets {
		o.Sets[i].StatusMachineCount, o.Sets[i].Machines = len(o.Sets[i].Machines), nil
	}
	o.Turns = rollout.Turns{}
	return rollout.Sibling{Name: name, Earlier: earlier, Facts: o}
}

// withSiblings limits the rollouts of the deployment and of the siblings to one at a time.
func withSiblings(o rollout.Facts, siblings ...rollout.Sibling) rollout.Facts {
	o.Turns = rollout.Turns{Policy: "fleet", MaxConcurrent: 1, PauseBetween: 10 * time.Minute, Siblings: siblings}
	return o
}

const takesTurn = "take the turn that RolloutPolicy fleet gives"

// The table has what a deployment does that has not begun its rollout: it waits, takes its turn, returns its turn, or
// begins.
func TestTurns(t *testing.T) {
	waiting, claimed := notRolledOut(3), withTurn(notRolledOut(3), epoch)
	both := func(o rollout.Facts) rollout.Facts {
		return with(o, func(o *rollout.Facts) { o.Turns.MaxConcurrent = 2 })
	}
	for _, row := range []struct {
		name  string
		o     rollout.Facts
		waits string // empty: the rollout begins
		turn  rollout.Turn
	}{
		{"no sibling", withSiblings(waiting), takesTurn, rollout.Turn{Since: epoch}},
		{"it has its turn", withSiblings(claimed), "", rollout.Turn{Since: epoch}},
		{
			"a sibling is rolled out", withSiblings(waiting, asSibling("b", false, inRollout())),
			"MachineDeployment b is rolled out first: RolloutPolicy fleet allows 1 rollout at a time",
			rollout.Turn{},
		},
		{
			"a sibling is paused in the middle", withSiblings(waiting, asSibling("b", false, whilePaused(inRollout()))),
			"MachineDeployment b is rolled out first (paused by ann (lunch)): RolloutPolicy fleet allows 1 rollout at a time",
			rollout.Turn{},
		},
		{"a sibling is rolled out, and two may be", both(withSiblings(waiting, asSibling("b", false, inRollout()))), takesTurn, rollout.Turn{Since: epoch}},
		{
			"an earlier sibling waits", withSiblings(waiting, asSibling("a", true, notRolledOut(3))),
			"MachineDeployment a is next: RolloutPolicy fleet allows 1 rollout at a time",
			rollout.Turn{},
		},
		{"a later sibling waits", withSiblings(waiting, asSibling("c", false, notRolledOut(3))), takesTurn, rollout.Turn{Since: epoch}},
		{"an earlier sibling is paused", withSiblings(waiting, asSibling("a", true, whilePaused(notRolledOut(3)))), takesTurn, rollout.Turn{Since: epoch}},
		{"an earlier sibling is frozen", withSiblings(waiting, asSibling("a", true, with(notRolledOut(3), func(o *rollout.Facts) { o.MCM.Frozen = true }))), takesTurn, rollout.Turn{Since: epoch}},
		{"an earlier sibling is invalid", withSiblings(waiting, asSibling("a", true, with(notRolledOut(3), func(o *rollout.Facts) { o.InvalidReason = "no" }))), takesTurn, rollout.Turn{Since: epoch}},
		{"an earlier sibling cannot begin", withSiblings(waiting, asSibling("a", true, with(notRolledOut(3), func(o *rollout.Facts) {
			o.ReportedStatus.Conditions = []rollout.Condition{{Type: "Progressing", Status: "False", Reason: "MachineSetCreateError"}}
		}))), takesTurn, rollout.Turn{Since: epoch}},
		{"an earlier sibling has the strategy OnDelete", withSiblings(waiting, asSibling("a", true, with(notRolledOut(3), func(o *rollout.Facts) { o.Strategy = rollout.OnDelete }))), takesTurn, rollout.Turn{Since: epoch}},
		{"a sibling is deleted in the middle", withSiblings(waiting, asSibling("a", true, with(inRollout(), func(o *rollout.Facts) { o.Deleting = true }))), takesTurn, rollout.Turn{Since: epoch}},
		{
			"a sibling failed", withSiblings(waiting, asSibling("c", false, rolledBack())),
			"the rollout of MachineDeployment c failed: RolloutPolicy fleet begins no other rollout",
			rollout.Turn{},
		},
		{"a sibling failed, and its template has changed", withSiblings(waiting, asSibling("c", false, with(rolledBack(), func(o *rollout.Facts) {
			o.Sets[1].Current = false
		}))), takesTurn, rollout.Turn{Since: epoch}},
		{"a person pinned a sibling", withSiblings(waiting, asSibling("c", false, with(rolledBack(), func(o *rollout.Facts) {
			o.Progress.Pin = &rollout.Pin{Set: "ms1", Revision: 1, By: "ann: slow"}
		}))), takesTurn, rollout.Turn{Since: epoch}},
		{
			"a sibling was rolled out just now", withSiblings(waiting, asSibling("a", true, rolledOut(3, epochPlus(-time.Minute)))),
			"RolloutPolicy fleet pauses for 10m after each rollout",
			rollout.Turn{},
		},
		{"a sibling was rolled out earlier", withSiblings(waiting, asSibling("a", true, rolledOut(3, epochPlus(-time.Hour)))), takesTurn, rollout.Turn{Since: epoch}},
		{
			"a later sibling took its turn at the same time", withSiblings(claimed, asSibling("c", false, withTurn(notRolledOut(3), epoch))),
			"MachineDeployment c is rolled out first: RolloutPolicy fleet allows 1 rollout at a time",
			rollout.Turn{Since: epoch},
		},
		{
			"a later sibling took its turn at the same time, and has begun", withSiblings(claimed, asSibling("c", false, inRollout())),
			"MachineDeployment c is rolled out first: RolloutPolicy fleet allows 1 rollout at a time",
			rollout.Turn{},
		},
		{
			"an earlier sibling took its turn at the same time", withSiblings(claimed, asSibling("a", true, withTurn(notRolledOut(3), epoch))),
			"MachineDeployment a is rolled out first: RolloutPolicy fleet allows 1 rollout at a time",
			rollout.Turn{},
		},
		{"it is paused before it begins", withSiblings(whilePaused(claimed)), "paused by ann (lunch)", rollout.Turn{}},
		{"it is frozen", withSiblings(with(waiting, func(o *rollout.Facts) { o.MCM.Frozen = true })), "no rollout begins while the label freeze is set", rollout.Turn{}},
		{"it is invalid before it begins", withSiblings(with(claimed, func(o *rollout.Facts) { o.InvalidReason = "no" })), "no", rollout.Turn{}},
		{"it has begun", withSiblings(inRollout(), asSibling("a", true, inRollout())), "", rollout.Turn{Since: epochPlus(-time.Minute)}},
		{"it had begun before the policy limited it", withSiblings(with(inRollout(), func(o *rollout.Facts) { o.Progress.Turn = rollout.Turn{} }),
			asSibling("a", true, inRollout())), "", rollout.Turn{Since: epoch}},
		{"it returns to an earlier revision", withSiblings(rolledBack(), asSibling("a", true, inRollout())), "", rollout.Turn{}},
		{"people delete its machines", withSiblings(with(notRolledOut(3), func(o *rollout.Facts) { o.Strategy = rollout.OnDelete }), asSibling("a", true, inRollout())), "", rollout.Turn{}},
		{"it has no machines", withSiblings(rollingUpdateDeployment(3, 1, 0), asSibling("a", true, inRollout())), "", rollout.Turn{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.o.Now = epoch
			d := rollout.Decide(row.o)
			recorded := row.o.Progress
			if d.Record != nil {
				recorded = recorded.MergedWith(*d.Record)
			}
			assert.Equal(t, row.turn, recorded.Turn, d.Why)
			if row.waits == "" {
				assert.NotContains(t, []string{rollout.HeldByTurn, rollout.HeldByPause}, d.HoldBy)
				return
			}
			assert.Equal(t, row.waits, cmp.Or(d.Hold, d.Why))
			assert.Nil(t, d.Create)
			assert.Empty(t, d.Resize)
		})
	}
}

// While a deployment waits for its turn, its old set follows spec.replicas, and the status says why.
func TestWaitingForTurnScalesAndReports(t *testing.T) {
	o := withSiblings(notRolledOut(3), asSibling("a", true, inRollout()))
	o.Now = epoch
	o.Replicas = 4
	d := rollout.Decide(o)
	require.Len(t, d.Resize, 1)
	assert.Equal(t, []any{"ms1", 3, 4}, []any{d.Resize[0].Name, d.Resize[0].From, d.Resize[0].To})
	assert.Equal(t, rollout.HeldByTurn, d.HoldBy)
	assert.Equal(t, "a", d.Turn.Sibling)
	o.Replicas = 3
	o = withCurrentStatus(o)
	i := slices.IndexFunc(o.ReportedStatus.Conditions, func(c rollout.Condition) bool { return c.Type == "Progressing" })
	progressing := o.ReportedStatus.Conditions[i]
	assert.Equal(t, []string{"Unknown", vocabulary.ReasonWaitingForTurn}, []string{progressing.Status, progressing.Reason})
	assert.Contains(t, progressing.Message, "MachineDeployment a is rolled out first")
	pending := rollout.PlanDeployment(o).PendingWork
	assert.Equal(t, attention.NeedRollout, pending.Need, "the deployment is not calm")
	o.ProgressDeadline = new(time.Minute)
	o.Now = epochPlus(time.Hour)
	assert.False(t, rollout.Decide(o).Late, "the wait stops the progress deadline")
}

// The pause after a rollout ends without any change of an object.
func TestPauseBetweenRolloutsEndsByItself(t *testing.T) {
	o := withSiblings(notRolledOut(3), asSibling("a", true, rolledOut(3, epochPlus(-time.Minute))))
	o.Now = epoch
	d := rollout.Decide(o)
	assert.Equal(t, epochPlus(9*time.Minute), d.Recheck)
	o.Now = d.Recheck
	assert.Equal(t, takesTurn, rollout.Decide(o).Why)
}

// The turn ends when the rollout is complete, even if the policy has no limit any more.
func TestTurnEndsWithTheRollout(t *testing.T) {
	o := withTurn(rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 3, 3, 3)), epochPlus(-time.Minute))
	o.Now = epoch
	require.Equal(t, rollout.Turn{Since: epochPlus(-time.Minute), Ended: epoch}, rollout.Decide(o).Record.Turn)
	joining := withTurn(
		rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 3, 3, 2)),
		epochPlus(-time.Minute),
	)
	joining.Now = epoch
	require.Nil(t, rollout.Decide(joining).Record, "the last machine is not available yet")
}

// A person can pin a revision that waits for its turn.
func TestWaitingRevisionCanBePinned(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))
	o.Progress = rollout.Progress{Revision: 1, Set: "ms1", Good: "ms1", Completed: epoch}
	o.Now, o.PinRevision, o.PinRequestedBy = epoch, 1, "ann: slow"
	d := rollout.Decide(withSiblings(o, asSibling("a", true, inRollout())))
	require.True(t, d.BeginsPin())
	o.Progress = o.Progress.MergedWith(*d.Record)
	require.NotNil(t, rollout.Decide(withSiblings(o, asSibling("a", true, inRollout()))).Pin, "the pin is in force")
}

func TestOnlyATurnWithoutARolloutMustBeConfirmed(t *testing.T) {
	claimed := withSiblings(withTurn(notRolledOut(3), epoch))
	assert.True(t, rollout.MustConfirmTurn(claimed))
	assert.False(t, rollout.MustConfirmTurn(withSiblings(notRolledOut(3))))
	assert.False(t, rollout.MustConfirmTurn(withSiblings(inRollout())))
	claimed.Turns = rollout.Turns{}
	assert.False(t, rollout.MustConfirmTurn(claimed))
}

// turnWorld has deployments that take turns. Each has a workflow of its own, which reads its own deployment, older
// versions of the others, and, if it must confirm its turn, their present versions. Between the decision and its write
// other workflows decide and write.
type turnWorld struct {
	random      *rand.Rand
	limit       int
	deployments []*turnDeployment
	log         []string
}

type turnDeployment struct {
	name     string
	versions []rollout.Facts // all versions, the present version last
	seen     []int           // by deployment: the version that the workflow has seen
	decided  *rollout.Decision
	at       int // own version that the decision saw
}

func (d *turnDeployment) now() rollout.Facts { return d.versions[len(d.versions)-1] }

func (d *turnDeployment) write(o rollout.Facts) { d.versions = append(d.versions, o) }

// isBetween reports whether the rollout has begun and is not complete.
func (d *turnDeployment) isBetween() bool {
	o := d.now()
	return len(o.Sets) == 2 && o.Sets[0].Replicas > 0
}

func newTurnWorld(seed uint64, limit, count int) *turnWorld {
	w := &turnWorld{random: rand.New(rand.NewPCG(seed, 1)), limit: limit}
	for i := range count {
		d := &turnDeployment{name: string(rune('a' + i)), seen: make([]int, count)}
		d.write(with(notRolledOut(1), func(o *rollout.Facts) { o.HasFinalizer = true }))
		w.deployments = append(w.deployments, d)
	}
	return w
}

func (w *turnWorld) facts(i int, live, fresh bool) rollout.Facts {
	d := w.deployments[i]
	o := d.now()
	o.Now = epoch
	o.Turns = rollout.Turns{Policy: "fleet", MaxConcurrent: w.limit}
	for k, s := range w.deployments {
		if k == i {
			continue
		}
		if last := len(s.versions) - 1; fresh || w.random.IntN(5) == 0 {
			d.seen[k] = last
		}
		at := s.versions[d.seen[k]]
		if live {
			at = s.now()
		}
		o.Turns.Siblings = append(o.Turns.Siblings, asSibling(s.name, k < i, at))
	}
	return o
}

// step lets the workflow of one deployment decide, or write what it decided. The cloud completes rollouts at any time.
func (w *turnWorld) step(i int, pauses, fresh bool) {
	d := w.deployments[i]
	o := d.now()
	switch {
	case pauses && w.random.IntN(8) == 0:
		o.Paused = !o.Paused
		d.write(o)
		w.log = append(w.log, fmt.Sprint(d.name, " paused: ", o.Paused))
	case d.isBetween() && w.random.IntN(4) == 0:
		o.Sets = []rollout.MachineSet{oldSet(1, 0, 0, 0), currentSet(2, 1, 1, 1)}
		d.write(o)
		w.log = append(w.log, d.name+" is complete")
	case d.decided == nil:
		facts := w.facts(i, false, fresh)
		if rollout.MustConfirmTurn(facts) {
			facts = w.facts(i, true, fresh)
		}
		decision := rollout.Decide(facts)
		d.decided, d.at = &decision, len(d.versions)
		w.log = append(w.log, d.name+" decides: "+decision.Why)
	default:
		w.carryOut(d)
	}
}

// carryOut writes what was decided. A creation fails if the deployment has changed since.
func (w *turnWorld) carryOut(d *turnDeployment) {
	decision, o := *d.decided, d.now()
	d.decided = nil
	if decision.Record != nil {
		o.Progress = o.Progress.MergedWith(*decision.Record)
		d.write(o)
		w.log = append(w.log, fmt.Sprint(d.name, " writes turn ", o.Progress.Turn.Since, " ", o.Progress.Turn.Ended))
		return
	}
	if decision.Create != nil && d.at == len(d.versions) {
		o.Sets = []rollout.MachineSet{oldSet(1, 1, 1, 1), currentSet(2, 1, 1, 0)}
		d.write(o)
		w.log = append(w.log, d.name+" begins")
	}
}

// Whatever the caches of the workers show, and however decisions and writes interleave, never more deployments than
// allowed are in the middle of their rollouts. In the end each deployment is rolled out.
func TestTurnsHoldUnderStaleCachesAndRaces(t *testing.T) {
	for seed := range uint64(decidetest.RandomRunCount(150)) {
		limit, count := 1+int(seed%2), 3+int(seed%3)
		w := newTurnWorld(seed, limit, count)
		check := func() {
			between := 0
			for _, d := range w.deployments {
				if d.isBetween() {
					between++
				}
			}
			require.LessOrEqual(t, between, limit, "seed %d:\n%s", seed, strings.Join(w.log, "\n"))
		}
		for range 150 {
			w.step(w.random.IntN(count), true, false)
			check()
		}
		for _, d := range w.deployments {
			d.write(with(d.now(), func(o *rollout.Facts) { o.Paused = false }))
		}
		for range 150 * count {
			w.step(w.random.IntN(count), false, true)
			check()
		}
		for _, d := range w.deployments {
			require.True(
				t,
				!d.isBetween() && len(d.now().Sets) == 2,
				"seed %d: %s is not rolled out:\n%s",
				seed,
				d.name,
				strings.Join(w.log, "\n"),
			)
		}
	}
}
