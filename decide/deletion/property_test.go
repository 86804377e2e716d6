package deletion_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/deletion"
)

// forAllFacts calls test with all combinations of facts.
func forAllFacts(test func(deletion.Facts)) {
	stages := append([]deletion.Stage{""}, stageOrder...)
	choices := []int{len(stages), len(stages), 5, 2, 4, 2, 2, 2, 2, 2, 2}
	hooks := [][]string{nil, {"b", "a"}}
	at := make([]int, len(choices))
	for {
		f := deletion.Facts{
			RecordedStage: stages[at[0]], CompletedStage: stages[at[1]],
			SkipDrainReason: []string{"", "excluded"}[at[3]], DrainResult: []string{"", "Drained", "Forced", "Skipped"}[at[4]],
			AttachedVolumeCount: at[5], SkipDetachReason: []string{"", "excluded"}[at[6]],
			PreDrainHooks: hooks[at[7]], PreTerminateHooks: hooks[at[8]],
			HoldReason: []string{"", "somebody"}[at[9]], AbandonReason: []string{"", "somebody"}[at[10]],
		}
		if at[2] > 0 {
			f.NodeName, f.HasNode, f.NodeUnknown = "n", at[2] == 2, at[2] >= 3
		}
		if at[2] == 4 {
			f.NodeName = "" // only the provider ID identifies the node
		}
		test(f)
		i := 0
		for ; i < len(at) && at[i] == choices[i]-1; i++ {
			at[i] = 0
		}
		if i == len(at) {
			return
		}
		at[i]++
	}
}

func stageIndex(s deletion.Stage) int { return slices.Index(stageOrder, s) }

func TestDeletionNeverReturnsToAnEarlierStage(t *testing.T) {
	reached := map[deletion.Stage]int{}
	count := 0
	forAllFacts(func(f deletion.Facts) {
		s := deletion.Decide(f)
		require.NotEqual(t, -1, stageIndex(s.Stage), "%+v", f)
		require.GreaterOrEqual(t, stageIndex(s.Stage), stageIndex(f.RecordedStage), "%+v", f)
		if f.CompletedStage != "" && f.CompletedStage != deletion.StageRemoveFinalizer {
			require.Greater(t, stageIndex(s.Stage), stageIndex(f.CompletedStage), "%+v", f)
		}
		if f.DrainResult != "" {
			require.NotEqual(t, deletion.StageDrain, s.Stage, "it is drained once: %+v", f)
		}
		reached[s.Stage]++
		count++
	})
	assert.Len(t, reached, len(stageOrder))
	assert.Equal(t, 8*8*5*2*4*2*2*2*2*2*2, count)
}

func TestInvariantsOfDeletionSteps(t *testing.T) {
	forAllFacts(func(f deletion.Facts) {
		s := deletion.Decide(f)
		require.Equal(t, s, deletion.Decide(f), "the same facts, the same answer")
		require.NotEmpty(t, s.Why, "%+v", f)
		require.Equal(t, s.Stage != f.RecordedStage, s.Record, "%+v", f)
		require.Equal(
			t,
			f.HasNode &&
				(s.Stage == deletion.StageDrain && !s.Record || s.Stage != deletion.StageDrain && f.RecordedStage == "" && f.CompletedStage == ""),
			s.Announce,
			"%+v",
			f,
		)
		hooked := s.Stage == deletion.StagePreDrainHooks || s.Stage == deletion.StagePreTerminateHooks
		require.Equal(
			t,
			hooked || f.HoldReason != "",
			s.BlockedBy != nil,
			"nothing but hooks and people is waited for here: %+v",
			f,
		)
		require.Equal(t, f.HoldReason != "", s.IsHeld(), "%+v", f)
		require.False(t, f.AbandonReason != "" && s.Stage == deletion.StageDeleteInstance, "%+v", f)
		require.False(t, s.Empty && s.Skipped != "", "%+v", f)
		if s.Skipped != "" || s.Empty {
			require.Empty(t, f.DrainResult, "%+v", f)
			require.Greater(t, stageIndex(s.Stage), stageIndex(deletion.StageDrain), "%+v", f)
		}
		if !f.HasNode && !f.NodeUnknown {
			require.NotContains(
				t,
				[]deletion.Stage{deletion.StagePreDrainHooks, deletion.StageDrain, deletion.StageDetachVolumes},
				s.Stage,
				"%+v",
				f,
			)
		}
		if s.Stage == deletion.StageDetachVolumes {
			require.Equal(t, "Drained", f.DrainResult, "%+v", f)
			require.Positive(t, f.AttachedVolumeCount, "%+v", f)
		}
	})
}

// A deletion ends if each step is executed. Only hooks and people can block a deletion forever.
func TestEveryDeletionEnds(t *testing.T) {
	forAllFacts(func(f deletion.Facts) {
		f.PreDrainHooks, f.PreTerminateHooks, f.HoldReason = nil, nil, ""
		for range stageOrder {
			s := deletion.Decide(f)
			if s.Stage == deletion.StageRemoveFinalizer {
				return
			}
			f.RecordedStage, f.CompletedStage = s.Stage, s.Stage
			if s.Skipped != "" {
				f.DrainResult = "Skipped"
			}
		}
		require.Fail(t, "it goes on and on", "%+v", f)
	})
}

// Facts contains neither the text of lastOperation, nor a provider's message, nor the class. The texts in Facts are
// reasons for people, so their wording does not change the stage.
func TestWordingOfReasonsDoesNotChangeTheStage(t *testing.T) {
	forAllFacts(func(f deletion.Facts) {
		was := deletion.Decide(f)
		for _, text := range []*string{&f.SkipDrainReason, &f.SkipDetachReason, &f.HoldReason, &f.AbandonReason} {
			if *text != "" {
				*text = "Initiate node drain"
			}
		}
		s := deletion.Decide(f)
		require.Equal(
			t,
			[]any{was.Stage, was.Record, was.Announce, was.BlockedBy, was.Empty},
			[]any{s.Stage, s.Record, s.Announce, s.BlockedBy, s.Empty},
			"%+v",
			f,
		)
		require.Equal(t, was.Skipped != "", s.Skipped != "", "%+v", f)
		require.Equal(t, was.Abandoned != "", s.Abandoned != "", "%+v", f)
	})
}
