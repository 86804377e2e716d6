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

// TestAnUpdateNeverReturnsToAnEarlierReason simulates rollout, person and agent with random actions. The machine's
// workflow executes each step.
func TestAnUpdateNeverReturnsToAnEarlierReason(t *testing.T) {
	order := []string{reasonCandidate, reasonSelected, reasonDrainSuccessful, reasonReady, reasonSuccessful, reasonFailed}
	dice := rand.New(rand.NewSource(1))
	reached, rounds := map[string]int{}, decidetest.RandomRunCount(50_000)
	n, phase, held := inplace.Node{}, "Running", false // held is true while pods stay on the node
	for range rounds {
		switch dice.Intn(7) {
		case 0:
			n.Candidate = dice.Intn(4) > 0
		case 1:
			n.Selected = dice.Intn(3) > 0
		case 2:
			n.Cordoned = dice.Intn(2) == 0
		case 3:
			held = held || !n.Cordoned // pods are scheduled to a node without a cordon
		case 4:
			if n.Reason == reasonReady && phase == "InPlaceUpdating" {
				n.Result = []string{"successful", "failed"}[dice.Intn(2)]
			}
		case 5: // the rollout removes its labels, or a person starts a second attempt
			if n.Reason == reasonSuccessful || n.Reason == reasonFailed {
				if n.Reason == reasonFailed {
					n.Reason = reasonSuccessful
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
		case inplace.StepNothing:
			require.Empty(t, d.Reason)
		case inplace.StepSetUpdatingPhase:
			require.True(t, n.Cordoned && (n.Reason == reasonDrainSuccessful || n.Reason == reasonReady), "%+v", n)
			phase = "InPlaceUpdating"
		case inplace.StepDrain:
			if n.Cordoned = true; !held {
				n.Reason = d.Reason
			}
		case inplace.StepStartAgent:
			require.True(t, n.Cordoned && n.Reason == reasonDrainSuccessful && phase == "InPlaceUpdating", "%+v", n)
			n.Reason = d.Reason
		case inplace.StepWriteCondition:
			require.NotEqual(t, n.Reason, d.Reason)
			n.Reason, n.Message = d.Reason, d.Message
		}
		require.Equal(t, d.Step == inplace.StepNothing || d.Step == inplace.StepSetUpdatingPhase, d.Reason == "", "%+v", d)
		require.True(t, d.Step == inplace.StepNothing || d.Why != "")
		if was.Reason != reasonSuccessful && n.Result == "" {
			require.GreaterOrEqual(t, slices.Index(order, n.Reason), slices.Index(order, was.Reason), "%+v", was)
		}
		reached[n.Reason]++
	}
	for _, reason := range order {
		assert.Greater(t, reached[reason], rounds/100, reason)
	}
}
