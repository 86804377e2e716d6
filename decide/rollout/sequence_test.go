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

var updateGolden = flag.Bool("update", false, "rewrite the golden traces; read the difference as prose")

// compareWithGoldenTrace compares a trace with the recorded trace.
func compareWithGoldenTrace(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".trace")
	if *updateGolden {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// rolloutScenario is a rollout from the first template to the last.
type rolloutScenario struct {
	name                               string
	strategy                           rollout.Strategy
	replicas, maxSurge, maxUnavailable int
	newReplicas                        int  // spec.replicas from turn 5 on; 0: unchanged
	changesTemplate                    bool // the template changes again in turn 5
	machinesDeletedAtATime             int  // number of machines that a person deletes at a time
	isClusterAPI                       bool // the sets are Cluster API sets
}

func rolloutScenarios() []rolloutScenario {
	rolls, inPlace, onDelete := rollout.RollingUpdate, rollout.InPlaceAuto, rollout.OnDelete
	return []rolloutScenario{
		{name: "rolling, 3 replicas, surge 1, unavailable 0", strategy: rolls, replicas: 3, maxSurge: 1},
		{name: "rolling, 3 replicas, surge 0, unavailable 1", strategy: rolls, replicas: 3, maxUnavailable: 1},
		{name: "rolling, 6 replicas, surge 3, unavailable 1", strategy: rolls, replicas: 6, maxSurge: 3, maxUnavailable: 1},
		{name: "rolling, 6 replicas, surge 1, unavailable 3", strategy: rolls, replicas: 6, maxSurge: 1, maxUnavailable: 3},
		{name: "rolling, 6 replicas, surge 10, unavailable 0", strategy: rolls, replicas: 6, maxSurge: 10},
		{name: "rolling, 6 replicas, surge 0, unavailable 10", strategy: rolls, replicas: 6, maxUnavailable: 10},
		{
			name:           "rolling, 6 replicas, surge 3, unavailable 1, scaled to 12 on the way",
			strategy:       rolls,
			replicas:       6,
			maxSurge:       3,
			maxUnavailable: 1,
			newReplicas:    12,
		},
		{
			name:           "rolling, 12 replicas, surge 3, unavailable 1, scaled to 6 on the way",
			strategy:       rolls,
			replicas:       12,
			maxSurge:       3,
			maxUnavailable: 1,
			newReplicas:    6,
		},
		{
			name:            "rolling, 6 replicas, surge 3, unavailable 1, another template on the way",
			strategy:        rolls,
			replicas:        6,
			maxSurge:        3,
			maxUnavailable:  1,
			changesTemplate: true,
		},
		{name: "in place, 3 replicas, surge 1, unavailable 0", strategy: inPlace, replicas: 3, maxSurge: 1},
		{name: "in place, 3 replicas, surge 0, unavailable 1", strategy: inPlace, replicas: 3, maxUnavailable: 1},
		{
			name:           "in place, 6 replicas, surge 3, unavailable 1",
			strategy:       inPlace,
			replicas:       6,
			maxSurge:       3,
			maxUnavailable: 1,
		},
		{
			name:           "in place, 6 replicas, surge 1, unavailable 3",
			strategy:       inPlace,
			replicas:       6,
			maxSurge:       1,
			maxUnavailable: 3,
		},
		{name: "in place, 6 replicas, surge 10, unavailable 0", strategy: inPlace, replicas: 6, maxSurge: 10},
		{name: "in place, 6 replicas, surge 0, unavailable 10", strategy: inPlace, replicas: 6, maxUnavailable: 10},
		{
			name:           "in place, 6 replicas, surge 3, unavailable 1, scaled to 12 on the way",
			strategy:       inPlace,
			replicas:       6,
			maxSurge:       3,
			maxUnavailable: 1,
			newReplicas:    12,
		},
		{
			name:           "in place, 12 replicas, surge 3, unavailable 1, scaled to 6 on the way",
			strategy:       inPlace,
			replicas:       12,
			maxSurge:       3,
			maxUnavailable: 1,
			newReplicas:    6,
		},
		{
			name:            "in place, 6 replicas, surge 3, unavailable 1, another template on the way",
			strategy:        inPlace,
			replicas:        6,
			maxSurge:        3,
			maxUnavailable:  1,
			changesTemplate: true,
		},
		{name: "OnDelete, 3 replicas, 1 deleted at a time", strategy: onDelete, replicas: 3, machinesDeletedAtATime: 1},
		{name: "OnDelete, 6 replicas, 2 deleted at a time", strategy: onDelete, replicas: 6, machinesDeletedAtATime: 2},
		{
			name:                   "OnDelete, 6 replicas, 1 deleted at a time, scaled to 9 on the way",
			strategy:               onDelete,
			replicas:               6,
			machinesDeletedAtATime: 1,
			newReplicas:            9,
		},
		{
			name:                   "OnDelete, 12 replicas, 1 deleted at a time, scaled to 6 on the way",
			strategy:               onDelete,
			replicas:               12,
			machinesDeletedAtATime: 1,
			newReplicas:            6,
		},
		{
			name:                   "OnDelete, 6 replicas, 1 deleted at a time, another template on the way",
			strategy:               onDelete,
			replicas:               6,
			machinesDeletedAtATime: 1,
			changesTemplate:        true,
		},
	}
}

// run runs a sequence. The trace has one line for each turn in which the world changed.
func (s rolloutScenario) run(t *testing.T, seed uint64, random bool) (*rolloutSimulation, string) {
	t.Helper()
	w := newSimulation(
		seed,
		rollout.Facts{
			Settings: rollout.Settings{
				Replicas:       s.replicas,
				Strategy:       s.strategy,
				MaxSurge:       countValue(s.maxSurge),
				MaxUnavailable: countValue(s.maxUnavailable),
			},
		},
	)
	w.isClusterAPI = s.isClusterAPI
	w.creationDuration, w.deletionDuration = func() time.Duration { return time.Second }, func() time.Duration { return time.Second }
	w.rollOutFirstTemplate(t)
	var trace strings.Builder
	fmt.Fprintf(&trace, "%s\n%34s\n", s.name, strings.TrimSpace(w.stateLine()))
	w.template, w.turnTexts = "v2", nil
	before := ""
	for turn := range 400 {
		if turn == 5 && (s.newReplicas > 0 || s.changesTemplate) {
			s.changeSpec(w)
		}
		if s.machinesDeletedAtATime > 0 && turn%6 == 3 {
			w.deleteOldMachines(s.machinesDeletedAtATime)
		}
		w.runTurn(random)
		if line := fmt.Sprintf(
			"%-52s %s",
			strings.Join(w.turnTexts, ", "),
			strings.TrimSpace(w.stateLine()),
		); len(
			w.turnTexts,
		) > 0 ||
			w.stateLine() != before {
			fmt.Fprintf(&trace, "%4d  %s\n", turn, line)
		}
		w.turnTexts, before = nil, w.stateLine()
		if turn > 5 && w.isRolloutDone() {
			return w, trace.String()
		}
	}
	t.Fatalf("%s does not end:%s %s", s.name, w.stateLine(), w.lastDecision.Why)
	return nil, ""
}

func (s rolloutScenario) changeSpec(w *rolloutSimulation) {
	w.editCount++
	if s.changesTemplate {
		w.template = "v3"
		w.appendTrace("another template")
		return
	}
	w.spec.Replicas = s.newReplicas
	w.appendTrace("scale to %d", s.newReplicas)
	w.updateBounds()
}

// deleteOldMachines acts as a person who deletes n machines of old templates.
func (w *rolloutSimulation) deleteOldMachines(n int) {
	for _, g := range w.sets {
		for _, u := range sortedMachines(g.machines) {
			if n > 0 && g.template != w.template && g.ScaleUpDisabled && !u.Deleting {
				n--
				w.deleteMachineByHand(g, u)
				w.appendTrace("a person deletes %s", u.Name)
			}
		}
	}
}

func TestRolloutScenarios(t *testing.T) {
	for _, s := range rolloutScenarios() {
		t.Run(s.name, func(t *testing.T) {
			w, trace := s.run(t, 1, false)
			assert.Empty(t, w.brokenInvariant)
			assert.Zero(t, w.forcedResizeCount)
			compareWithGoldenTrace(t, strings.NewReplacer(", ", "-", " ", "-").Replace(s.name), trace)
			for seed := range uint64(decidetest.RandomRunCount(20)) {
				w, _ := s.run(t, seed, true)
				require.Empty(t, w.brokenInvariant, "seed %d", seed)
			}
		})
	}
}

// Rollouts of Cluster API objects also keep the bounds.
func TestClusterAPIRolloutScenarios(t *testing.T) {
	for _, s := range rolloutScenarios() {
		if s.strategy == rollout.InPlaceAuto {
			continue
		}
		s.isClusterAPI = true
		t.Run(s.name, func(t *testing.T) {
			for seed := range uint64(decidetest.RandomRunCount(40)) {
				w, _ := s.run(t, seed, seed > 0)
				require.Empty(t, w.brokenInvariant, "seed %d", seed)
				require.Zero(t, w.forcedResizeCount, "seed %d", seed)
			}
		})
	}
}
