package rollout_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/rollout"
)

var update = flag.Bool("update", false, "rewrite the golden traces; read the difference as prose")

// golden compares a trace with the recorded one.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".trace")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// sequence is a whole rollout of the table, from all old to all new.
type sequence struct {
	name                         string
	strategy                     rollout.Strategy
	replicas, surge, unavailable int
	scale                        int  // what is wanted on the way; 0: the same
	edit                         bool // another template on the way
	delete                       int  // machines that a person deletes at a time
	asCAPI                       bool // the sets are those of Cluster API
}

func table() []sequence {
	rolls, inPlace, onDelete := rollout.RollingUpdate, rollout.InPlaceAuto, rollout.OnDelete
	return []sequence{
		{name: "rolling, 3 replicas, surge 1, unavailable 0", strategy: rolls, replicas: 3, surge: 1},
		{name: "rolling, 3 replicas, surge 0, unavailable 1", strategy: rolls, replicas: 3, unavailable: 1},
		{name: "rolling, 6 replicas, surge 3, unavailable 1", strategy: rolls, replicas: 6, surge: 3, unavailable: 1},
		{name: "rolling, 6 replicas, surge 1, unavailable 3", strategy: rolls, replicas: 6, surge: 1, unavailable: 3},
		{name: "rolling, 6 replicas, surge 10, unavailable 0", strategy: rolls, replicas: 6, surge: 10},
		{name: "rolling, 6 replicas, surge 0, unavailable 10", strategy: rolls, replicas: 6, unavailable: 10},
		{
			name:        "rolling, 6 replicas, surge 3, unavailable 1, scaled to 12 on the way",
			strategy:    rolls,
			replicas:    6,
			surge:       3,
			unavailable: 1,
			scale:       12,
		},
		{
			name:        "rolling, 12 replicas, surge 3, unavailable 1, scaled to 6 on the way",
			strategy:    rolls,
			replicas:    12,
			surge:       3,
			unavailable: 1,
			scale:       6,
		},
		{
			name:        "rolling, 6 replicas, surge 3, unavailable 1, another template on the way",
			strategy:    rolls,
			replicas:    6,
			surge:       3,
			unavailable: 1,
			edit:        true,
		},
		{name: "in place, 3 replicas, surge 1, unavailable 0", strategy: inPlace, replicas: 3, surge: 1},
		{name: "in place, 3 replicas, surge 0, unavailable 1", strategy: inPlace, replicas: 3, unavailable: 1},
		{name: "in place, 6 replicas, surge 3, unavailable 1", strategy: inPlace, replicas: 6, surge: 3, unavailable: 1},
		{name: "in place, 6 replicas, surge 1, unavailable 3", strategy: inPlace, replicas: 6, surge: 1, unavailable: 3},
		{name: "in place, 6 replicas, surge 10, unavailable 0", strategy: inPlace, replicas: 6, surge: 10},
		{name: "in place, 6 replicas, surge 0, unavailable 10", strategy: inPlace, replicas: 6, unavailable: 10},
		{
			name:        "in place, 6 replicas, surge 3, unavailable 1, scaled to 12 on the way",
			strategy:    inPlace,
			replicas:    6,
			surge:       3,
			unavailable: 1,
			scale:       12,
		},
		{
			name:        "in place, 12 replicas, surge 3, unavailable 1, scaled to 6 on the way",
			strategy:    inPlace,
			replicas:    12,
			surge:       3,
			unavailable: 1,
			scale:       6,
		},
		{
			name:        "in place, 6 replicas, surge 3, unavailable 1, another template on the way",
			strategy:    inPlace,
			replicas:    6,
			surge:       3,
			unavailable: 1,
			edit:        true,
		},
		{name: "OnDelete, 3 replicas, 1 deleted at a time", strategy: onDelete, replicas: 3, delete: 1},
		{name: "OnDelete, 6 replicas, 2 deleted at a time", strategy: onDelete, replicas: 6, delete: 2},
		{
			name:     "OnDelete, 6 replicas, 1 deleted at a time, scaled to 9 on the way",
			strategy: onDelete,
			replicas: 6,
			delete:   1,
			scale:    9,
		},
		{
			name:     "OnDelete, 12 replicas, 1 deleted at a time, scaled to 6 on the way",
			strategy: onDelete,
			replicas: 12,
			delete:   1,
			scale:    6,
		},
		{
			name:     "OnDelete, 6 replicas, 1 deleted at a time, another template on the way",
			strategy: onDelete,
			replicas: 6,
			delete:   1,
			edit:     true,
		},
	}
}

// run plays a sequence, one line per turn in which something happened.
func (s sequence) run(t *testing.T, seed uint64, random bool) (*world, string) {
	t.Helper()
	w := newWorld(
		seed,
		rollout.Observed{
			Settings: rollout.Settings{
				Replicas:    s.replicas,
				Strategy:    s.strategy,
				Surge:       count(s.surge),
				Unavailable: count(s.unavailable),
			},
		},
	)
	w.asCAPI = s.asCAPI
	w.create, w.remove = func() time.Duration { return time.Second }, func() time.Duration { return time.Second }
	w.start(t)
	var trace strings.Builder
	fmt.Fprintf(&trace, "%s\n%34s\n", s.name, strings.TrimSpace(w.state()))
	w.template, w.said = "v2", nil
	before := ""
	for turn := range 400 {
		if turn == 5 && (s.scale > 0 || s.edit) {
			s.disturb(w)
		}
		if s.delete > 0 && turn%6 == 3 {
			w.deleteOld(s.delete)
		}
		w.turn(random)
		if line := fmt.Sprintf("%-52s %s", strings.Join(w.said, ", "), strings.TrimSpace(w.state())); len(w.said) > 0 ||
			w.state() != before {
			fmt.Fprintf(&trace, "%4d  %s\n", turn, line)
		}
		w.said, before = nil, w.state()
		if turn > 5 && w.done() {
			return w, trace.String()
		}
	}
	t.Fatalf("%s does not end:%s %s", s.name, w.state(), w.last.Why)
	return nil, ""
}

func (s sequence) disturb(w *world) {
	w.edited++
	if s.edit {
		w.template = "v3"
		w.tell("another template")
		return
	}
	w.spec.Replicas = s.scale
	w.tell("scale to %d", s.scale)
	w.bound()
}

// deleteOld is a person who deletes machines of old templates.
func (w *world) deleteOld(n int) {
	for _, g := range w.sets {
		for _, u := range sorted(g.units) {
			if n > 0 && g.template != w.template && g.NoScaleUp && !u.Deleting {
				n--
				w.deleteByHand(g, u)
				w.tell("a person deletes %s", u.Name)
			}
		}
	}
}

func TestSequences(t *testing.T) {
	for _, s := range table() {
		t.Run(s.name, func(t *testing.T) {
			w, trace := s.run(t, 1, false)
			assert.Empty(t, w.broken)
			assert.Zero(t, w.forced)
			golden(t, strings.NewReplacer(", ", "-", " ", "-").Replace(s.name), trace)
			for seed := range uint64(decidetest.Seeds(20)) {
				w, _ := s.run(t, seed, true)
				require.Empty(t, w.broken, "seed %d", seed)
			}
		})
	}
}

// The sequences of Cluster API hold with the facts that its objects have.
func TestSequencesOfClusterAPI(t *testing.T) {
	for _, s := range table() {
		if s.strategy == rollout.InPlaceAuto {
			continue
		}
		s.asCAPI = true
		t.Run(s.name, func(t *testing.T) {
			for seed := range uint64(decidetest.Seeds(40)) {
				w, _ := s.run(t, seed, seed > 0)
				require.Empty(t, w.broken, "seed %d", seed)
				require.Zero(t, w.forced, "seed %d", seed)
			}
		})
	}
}
