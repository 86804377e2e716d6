package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/rollout"
)

// What an extension may say.
var (
	possible   = rollout.Answer{Possible: true}
	impossible = rollout.Answer{Why: "DockerMachineTemplate differs in spec"}
	failing    = rollout.Answer{Failed: true, Why: "no answer within 10 s"}
)

// byExtension is a rolling update in place: the extension has answered about all former sets for the current one.
func byExtension(a rollout.Answer, o rollout.Observed) rollout.Observed {
	o.ClusterAPI.Extension, o.Sets = true, slices.Clone(o.Sets)
	current := slices.IndexFunc(o.Sets, func(s rollout.Set) bool { return s.Current })
	for i := range o.Sets {
		if !o.Sets[i].Current && a != (rollout.Answer{}) {
			o.Sets[i].ClusterAPI.Answer = a
			o.Sets[i].ClusterAPI.Answer.Set, o.Sets[i].ClusterAPI.Answer.At = o.Sets[current].UID, epoch
		}
	}
	return o
}

// sent is a set that hands its surplus over to set ms2.
func sent(s rollout.Set) rollout.Set { s.ClusterAPI.Transfer.To = "ms2"; return s }

// taking is a set that gets the surplus of others, and counts these machines.
func taking(s rollout.Set, from, acknowledged string) rollout.Set {
	s.ClusterAPI.Transfer.From, s.ClusterAPI.Transfer.Acknowledged = from, acknowledged
	return s
}

// arrived was moved to its set, which does not count it yet; acknowledged is one that it counts.
func arrived(m *rollout.Member) {
	updating(m)
	m.MCM.Candidate, m.MCM.UpdateLabels, m.ClusterAPI.Unacknowledged, m.ClusterAPI.Moved = false, false, true, true
}
func acknowledged(m *rollout.Member) { arrived(m); m.ClusterAPI.Unacknowledged = false }

func transfers(d rollout.Decision) map[string]rollout.Transfer {
	m := map[string]rollout.Transfer{}
	for _, r := range d.Resize {
		m[r.Name] = r.Transfer
	}
	return m
}

// The rows IP of Cluster API: when machines move, and how many are new.
func TestMachinesMoveWhereAnExtensionCanUpdateThem(t *testing.T) {
	to := rollout.Transfer{To: "ms2"}
	from := rollout.Transfer{From: "ms1"}
	for name, test := range map[string]struct {
		o         rollout.Observed
		sizes     map[string]int
		transfers map[string]rollout.Transfer
		why       string
	}{
		"one is lent at the start, of a surge of three": {
			o:     byExtension(possible, rolling(6, 3, 0, old(1, 6, 6, 6), now(2, 0, 0, 0))),
			sizes: map[string]int{"ms2": 1}, transfers: map[string]rollout.Transfer{"ms1": to, "ms2": from},
		},
		"none is lent if machines may be unavailable": {
			o:     byExtension(possible, rolling(6, 3, 1, old(1, 6, 6, 6), now(2, 0, 0, 0))),
			sizes: map[string]int{"ms1": 5}, transfers: map[string]rollout.Transfer{"ms1": to, "ms2": from},
		},
		"the lent one makes a move possible": {
			o:     byExtension(possible, rolling(3, 1, 0, sent(old(1, 3, 3, 3)), taking(now(2, 1, 1, 1), "ms1", ""))),
			sizes: map[string]int{"ms1": 2}, transfers: map[string]rollout.Transfer{"ms1": to},
		},
		"the lent one is not available yet": {
			o:   byExtension(possible, rolling(3, 1, 0, sent(old(1, 3, 3, 3)), taking(now(2, 1, 1, 0), "ms1", ""))),
			why: "1 new machine is not available yet: 3 are available, 3 are needed",
		},
		"a machine that has moved is counted": {
			o:     byExtension(possible, rolling(3, 1, 0, sent(old(1, 2, 2, 2)), with(taking(now(2, 1, 2, 2), "ms1", ""), 1, arrived))),
			sizes: map[string]int{"ms2": 2}, transfers: map[string]rollout.Transfer{"ms2": {From: "ms1", Acknowledged: "ms2-01"}},
		},
		"it is counted once": {
			o:   byExtension(possible, rolling(3, 1, 0, sent(old(1, 2, 2, 2)), with(taking(now(2, 2, 2, 2), "ms1", "ms2-01"), 1, acknowledged))),
			why: "1 machine is updated in place: 3 available, 3 needed",
		},
		"its name goes once its update has begun": {
			o:         byExtension(possible, rolling(3, 1, 0, sent(old(1, 2, 2, 2)), with(taking(now(2, 2, 2, 2), "ms1", "ms2-01"), 1, updating))),
			transfers: map[string]rollout.Transfer{"ms2": from},
		},
		"no machine is lent while one is updated": {
			o:   byExtension(possible, rolling(6, 1, 1, sent(old(1, 5, 5, 5)), with(taking(now(2, 1, 1, 1), "ms1", ""), 0, updating))),
			why: "1 machine is updated in place: 5 available, 5 needed",
		},
		"no machine is lent while one moves": {
			o: byExtension(possible, rolling(6, 1, 1, sent(old(1, 5, 6, 6)), taking(now(2, 0, 0, 0), "ms1", ""))),
		},
		"the last one is deleted: all wanted ones are there": {
			o:     byExtension(possible, rolling(3, 1, 0, sent(old(1, 1, 1, 1)), taking(now(2, 3, 3, 3), "ms1", ""))),
			sizes: map[string]int{"ms1": 0}, transfers: map[string]rollout.Transfer{"ms1": {}, "ms2": {}},
		},
		"no more move than there are places": {
			o:     byExtension(possible, rolling(4, 1, 2, sent(old(1, 2, 2, 2)), taking(now(2, 3, 3, 3), "ms1", ""))),
			sizes: map[string]int{"ms1": 1}, transfers: map[string]rollout.Transfer{"ms1": to},
		},
		"it cannot: machines are replaced": {
			o:     byExtension(impossible, rolling(3, 1, 0, old(1, 3, 3, 3), now(2, 0, 0, 0))),
			sizes: map[string]int{"ms2": 1}, transfers: map[string]rollout.Transfer{"ms2": {}},
		},
		"a scale-up beside it is not dropped": {
			o:     byExtension(possible, rolling(6, 1, 0, sent(old(1, 3, 3, 3)), taking(now(2, 1, 1, 1), "ms1", ""))),
			sizes: map[string]int{"ms2": 3}, transfers: map[string]rollout.Transfer{"ms2": from},
		},
		"nobody asked for it": {
			o: func() rollout.Observed {
				o := byExtension(possible, rolling(3, 1, 0, sent(old(1, 3, 3, 3)), taking(now(2, 0, 0, 0), "ms1", "")))
				o.ClusterAPI.Extension = false
				return o
			}(),
			sizes: map[string]int{"ms2": 1}, transfers: map[string]rollout.Transfer{"ms1": {}, "ms2": {}},
		},
		"OnDelete": {
			o:         byExtension(possible, by(rollout.OnDelete, rolling(3, 1, 0, closed(sent(old(1, 3, 3, 3))), taking(now(2, 0, 0, 0), "ms1", "")))),
			transfers: map[string]rollout.Transfer{"ms1": {}, "ms2": {}},
			why:       "3 machines of old templates stay until somebody deletes them",
		},
		"a former set that got machines counts them": {
			o:     byExtension(possible, rolling(3, 1, 0, with(taking(old(1, 2, 3, 3), "ms0", ""), 2, arrived), now(2, 1, 1, 1))),
			sizes: map[string]int{"ms1": 3}, transfers: map[string]rollout.Transfer{"ms1": {To: "ms2", Acknowledged: "ms1-02"}, "ms2": from},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := rollout.Decide(test.o)
			assert.Empty(t, d.Ask)
			if assert.Equal(t, cmpMap(test.sizes), sizes(d), d.Why); test.transfers != nil {
				for set, want := range test.transfers {
					assert.Equal(t, want, transfers(d)[set], set)
				}
			}
			if test.why != "" {
				assert.Equal(t, test.why, d.Hold)
			}
		})
	}
	d := rollout.Decide(byExtension(possible, rolling(6, 3, 1, old(1, 6, 6, 6), now(2, 0, 0, 0))))
	assert.Equal(
		t,
		[]string{"ms2", "ms1"},
		[]string{d.Resize[0].Name, d.Resize[1].Name},
		"who takes machines says so first",
	)
}

// Other machines may leave than those that were expected: a set hands over machines with a node, the available ones.
func TestASetThatHandsOverKeepsAvailableMachines(t *testing.T) {
	creating := sent(old(1, 8, 4, 4)) // its workflow may create four more, and then hands over available ones
	d := rollout.Decide(byExtension(possible, rolling(8, 4, 4, creating, taking(now(2, 1, 1, 1), "ms1", ""))))
	assert.Equal(t, map[string]int{"ms1": 7}, sizes(d), "5 are available, 4 needed")

	deleting := old(1, 3, 11, 5) // six that are not available are to be deleted
	deleting.ActedOn = 11
	o := byExtension(possible, rolling(6, 0, 2, deleting, now(2, 1, 1, 1)))
	d = rollout.Decide(o)
	assert.Empty(t, transfers(d)["ms1"].To, "it would hand over the five that are available")
	assert.Empty(t, sizes(d))
	o.Sets[0] = byExtension(possible, rolling(6, 0, 2, old(1, 3, 3, 3), now(2, 1, 1, 1))).Sets[0]
	assert.Equal(t, "ms2", transfers(rollout.Decide(o))["ms1"].To, "they are gone")
}

// While it is paused, nothing more is updated in place, and what is on its way is neither made again nor deleted.
func TestAPauseWhileMachinesMove(t *testing.T) {
	paused := func(replicas int, sets ...rollout.Set) rollout.Decision {
		o := byExtension(possible, rolling(replicas, 1, 1, sets...))
		o.Paused = true
		return rollout.Decide(o)
	}
	calm, taker := sent(old(1, 6, 6, 6)), taking(now(2, 0, 0, 0), "ms1", "")
	d := paused(4, calm, taker)
	assert.Equal(t, map[string]int{"ms1": 4}, sizes(d))
	assert.Equal(t, map[string]rollout.Transfer{"ms1": {}, "ms2": {}}, transfers(d), "the surplus is deleted")

	moving := sent(old(1, 4, 6, 6))
	assert.Empty(t, paused(6, moving, taker).Resize, "two of six are on their way")
	assert.Empty(t, paused(4, moving, taker).Resize, "a smaller number waits until they have moved")
	refused := taking(now(2, 0, 2, 2), "ms1", "") // its workflow may act on a larger size, so that its size cannot grow
	refused.ActedOn = 3
	assert.Empty(
		t,
		sizes(paused(6, sent(old(1, 4, 4, 4)), with(with(refused, 0, arrived), 1, arrived))),
		"two of six have moved",
	)
	assert.Equal(t, map[string]int{"ms1": 6}, sizes(paused(8, moving, taker)), "a larger number is followed")
}

// An annotation names the machines that are counted: no more than a batch at a time.
func TestFewMachinesAreCountedAtATime(t *testing.T) {
	s := taking(now(2, 10, 90, 90), "ms1", "ms2-10,ms2-11")
	for i := 10; i < 90; i++ {
		s = with(s, i, arrived)
	}
	s = with(with(s, 10, acknowledged), 11, acknowledged)
	s.Replicas, s.ActedOn = 12, 12
	d := rollout.Decide(byExtension(possible, rolling(200, 1, 100, sent(old(1, 100, 100, 100)), s)))
	assert.Equal(t, 60, sizes(d)["ms2"])
	assert.Len(t, strings.Split(transfers(d)["ms2"].Acknowledged, ","), rollout.MaxBatch)
}

func cmpMap(m map[string]int) map[string]int {
	if m == nil {
		return map[string]int{}
	}
	return m
}

// Nothing moves and nothing is replaced before the extension has answered. The number of machines is followed while it
// gives no answer.
func TestAnExtensionIsAskedFirst(t *testing.T) {
	o := rolling(3, 1, 0, old(1, 3, 3, 3))
	o.ClusterAPI.Extension = true
	d := rollout.Decide(o)
	require.NotNil(t, d.Create)
	assert.Zero(t, d.Create.Replicas)

	o = byExtension(rollout.Answer{}, rolling(3, 1, 0, old(1, 3, 3, 3), now(2, 0, 0, 0)))
	d = rollout.Decide(o)
	assert.Equal(t, []string{"ms1"}, names(d.Ask))
	assert.Empty(t, sizes(d))
	assert.Equal(t, "ask a runtime extension whether it can update the machines of 1 set in place", d.Why)
	assert.True(t, d.Acts())

	other := byExtension(possible, o)
	other.Sets[0].ClusterAPI.Answer.Set = "uid-ms0"
	assert.Equal(t, []string{"ms1"}, names(rollout.Decide(other).Ask), "it was asked about another template")

	more := byExtension(rollout.Answer{}, rolling(5, 1, 0, old(1, 3, 3, 3), now(2, 0, 0, 0)))
	assert.Empty(t, sizes(rollout.Decide(more)), "the answer comes within seconds")
	more = byExtension(failing, more)
	assert.Equal(t, map[string]int{"ms1": 5}, sizes(rollout.Decide(more)))
	fewer := byExtension(failing, rolling(2, 1, 0, old(1, 3, 3, 3), now(2, 0, 0, 0)))
	assert.Equal(t, map[string]int{"ms1": 2}, sizes(rollout.Decide(fewer)))

	o.Paused = true
	assert.Empty(t, rollout.Decide(o).Ask)

	same := byExtension(rollout.Answer{}, rolling(3, 1, 0, old(1, 3, 3, 3), now(2, 0, 0, 0)))
	same.Sets[0].ClusterAPI.Twin = true
	d = rollout.Decide(same)
	assert.Empty(t, d.Ask, "the machines of the same template are to be replaced")
	assert.Equal(t, map[string]int{"ms2": 1}, sizes(d))
}

// An extension that gives no answer is asked again after half a minute, and the rollout says what it waits for.
func TestAnExtensionThatGivesNoAnswer(t *testing.T) {
	o := byExtension(failing, rolling(3, 1, 0, old(1, 3, 3, 3), now(2, 0, 0, 0)))
	d := rollout.Decide(o)
	assert.Empty(t, d.Ask)
	assert.Empty(t, sizes(d))
	assert.Equal(
		t,
		"no runtime extension says whether the machines of set ms1 can be updated in place: no answer within 10 s",
		d.Hold,
	)
	assert.Equal(t, rollout.HeldByMachines, d.HoldBy)
	assert.Equal(t, epoch.Add(30*time.Second), d.Recheck)
	o.Progress.Revision = 1 // the set has just been created
	progressing := rollout.Report(o).Conditions[1]
	assert.Equal(
		t,
		[]string{"Progressing", "False", "ExtensionFailed", d.Hold},
		[]string{progressing.Type, progressing.Status, progressing.Reason, progressing.Message},
	)

	o.Now = epoch.Add(30 * time.Second)
	assert.Equal(t, []string{"ms1"}, names(rollout.Decide(o).Ask))
}

// A person's step limits how many machines move.
func TestMachinesMoveOnlyAsFarAsTheStep(t *testing.T) {
	o := byExtension(possible, rolling(6, 1, 0, sent(old(1, 5, 5, 5)), taking(now(2, 2, 2, 2), "ms1", "")))
	o.Steps = []rollout.Step{{Size: count(2), Approve: true}}
	d := rollout.Decide(o)
	assert.Equal(t, map[string]int{"ms1": 4}, sizes(d), "the surplus goes")
	assert.Equal(t, map[string]rollout.Transfer{"ms1": {}, "ms2": {}}, transfers(d))
}

// The sequences in place of Cluster API: machines keep their names, apart from the one that is lent.
func TestSequencesOfRolloutsInPlace(t *testing.T) {
	for _, row := range []struct{ replicas, surge, unavailable, kept int }{
		{3, 1, 0, 2},
		{6, 1, 0, 5},
		{12, 1, 0, 11},
		{3, 0, 1, 3},
		{6, 0, 1, 6},
		{12, 0, 1, 12},
		{6, 3, 1, 6},
		{12, 3, 1, 12},
		{6, 1, 3, 6},
		{12, 1, 3, 12},
		{6, 10, 0, 5},
		{12, 0, 10, 12},
	} {
		for seed := range uint64(decidetest.Seeds(40)) {
			spec := rollout.Observed{
				Settings: rollout.Settings{
					Replicas:    row.replicas,
					Strategy:    rollout.RollingUpdate,
					Surge:       count(row.surge),
					Unavailable: count(row.unavailable),
				},
				ClusterAPI: rollout.ClusterAPIDeployment{Extension: true},
			}
			w := newWorld(seed, spec)
			w.asCAPI, w.answers = true, func() rollout.Answer { return possible }
			w.start(t)
			before := map[string]bool{}
			for _, name := range w.everybody() {
				before[name] = true
			}
			w.template = "v2"
			require.True(t, w.finish(seed > 0, 5000), "%v seed %d: does not end:%s; %s", row, seed, w.state(), w.last.Why)
			require.Empty(t, w.broken, "%v seed %d", row, seed)
			kept := len(slices.DeleteFunc(w.everybody(), func(name string) bool { return !before[name] }))
			require.Equal(t, row.kept, kept, "%v seed %d: %v", row, seed, w.said)
		}
	}
}

// everybody returns the names of all machines.
func (w *world) everybody() (names []string) {
	for _, g := range w.sets {
		for _, u := range g.units {
			names = append(names, u.Name)
		}
	}
	return names
}
