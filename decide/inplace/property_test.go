package inplace_test

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/inplace"
)

// TestTheUpdateGoesForward plays rollout, person and agent with dice, and the machine's workflow as it should be.
func TestTheUpdateGoesForward(t *testing.T) {
	order := []string{candidate, selected, drained, ready, successful, failed}
	dice := rand.New(rand.NewSource(1))
	reached, rounds := map[string]int{}, decidetest.Seeds(50_000)
	n, phase, held := inplace.Node{}, "Running", false // held: by pods
	for range rounds {
		switch dice.Intn(7) {
		case 0:
			n.Candidate = dice.Intn(4) > 0
		case 1:
			n.Selected = dice.Intn(3) > 0
		case 2:
			n.Cordoned = dice.Intn(2) == 0
		case 3:
			held = held || !n.Cordoned // pods come to a node without a cordon
		case 4:
			if n.Reason == ready && phase == "InPlaceUpdating" {
				n.Result = []string{"successful", "failed"}[dice.Intn(2)]
			}
		case 5: // the rollout takes its labels away; or a person gives it another try
			if n.Reason == successful || n.Reason == failed {
				if n.Reason == failed {
					n.Reason = successful
				}
				n.Candidate, n.Selected, n.Result, phase = false, false, "", "Running"
			}
		case 6:
			held = false
		}
		d := inplace.Decide(n, phase)
		require.Equal(t, d, inplace.Decide(n, phase), "the same facts, the same answer")
		was := n
		switch d.Step {
		case inplace.Nothing:
			require.Empty(t, d.Reason)
		case inplace.Update:
			require.True(t, n.Cordoned && (n.Reason == drained || n.Reason == ready), "%+v", n)
			phase = "InPlaceUpdating"
		case inplace.Drain:
			if n.Cordoned = true; !held {
				n.Reason = d.Reason
			}
		case inplace.Ready:
			require.True(t, n.Cordoned && n.Reason == drained && phase == "InPlaceUpdating", "%+v", n)
			n.Reason = d.Reason
		case inplace.Condition:
			require.NotEqual(t, n.Reason, d.Reason)
			n.Reason, n.Message = d.Reason, d.Message
		}
		require.Equal(t, d.Step == inplace.Nothing || d.Step == inplace.Update, d.Reason == "", "%+v", d)
		require.True(t, d.Step == inplace.Nothing || d.Why != "")
		if was.Reason != successful && n.Result == "" {
			require.GreaterOrEqual(t, slices.Index(order, n.Reason), slices.Index(order, was.Reason), "%+v", was)
		}
		reached[n.Reason]++
	}
	for _, reason := range order {
		assert.Greater(t, reached[reason], rounds/100, reason)
	}
}
