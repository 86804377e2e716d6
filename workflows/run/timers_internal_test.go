package run

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A label in Temporal's timeline says what happens at the end of the bar, with the time, and never reads as if it had
// happened already.
func TestTimerLabelsNameTheTimeAtWhichTheyFire(t *testing.T) {
	rows := map[string]struct {
		label TimerLabel
		want  string
	}{
		"CreationTimeoutLabel": {
			CreationTimeoutLabel("making the instance"),
			"creation timeout: gives up making the instance at 10:41:30 UTC",
		},
		"HealthTimeoutLabel": {
			HealthTimeoutLabel("pool-1"), "health timeout: gives up waiting for node pool-1 to recover at 10:41:30 UTC",
		},
		"PreservationLabel": {PreservationLabel(), "the machine is preserved; the preservation ends at 10:41:30 UTC"},
		"BlockedLabel": {
			BlockedLabel("SecretNotFound", "Secret default/pool does not exist"),
			"blocked by SecretNotFound: Secret default/pool does not exist; looks again at 10:41:30 UTC",
		},
		"ApprovalLabel": {
			ApprovalLabel("revision 8: step 1 of 1 done (2 of 10 machines)"),
			"waits for approval: revision 8: step 1 of 1 done (2 of 10 machines); looks again at 10:41:30 UTC",
		},
		"RecheckLabel": {
			RecheckLabel("2 of 3 machines available"),
			"2 of 3 machines available; looks again at 10:41:30 UTC",
		},
		"RetryLabel":       {RetryLabel("quota exceeded"), "quota exceeded; tries again at 10:41:30 UTC"},
		"TargetRetryLabel": {TargetRetryLabel(), "the cluster does not answer; asks it again at 10:41:30 UTC"},
		"NodeMarksLabel":   {NodeMarksLabel(), "nodes could not be marked; tries again at 10:41:30 UTC"},
		"ReportLabel":      {ReportLabel(), "writes the status at 10:41:30 UTC"},
		"DrainRestartLabel": {
			DrainRestartLabel("the drain has failed"),
			"the drain has failed; begins another drain at 10:41:30 UTC",
		},
		"RolloutRestartLabel": {
			RolloutRestartLabel(),
			"the rollout was terminated or has failed; starts it again at 10:41:30 UTC",
		},
		"FollowLabel": {
			FollowLabel("2 machines of former templates"),
			"2 machines of former templates; looks whether the rollout is still open at 10:41:30 UTC",
		},
		"HoldWriteLabel": {HoldWriteLabel(), "waits for the hold of the cancelled rollout; gives up at 10:41:30 UTC"},
		"SettledLabel":   {SettledLabel(), "nothing is left to do; the run continues as new at 10:41:30 UTC"},
		"CalmLabel":      {CalmLabel(), "nothing is left to do; the run ends at 10:41:30 UTC"},
	}
	now := time.Date(2026, 11, 27, 10, 21, 30, 0, time.UTC)
	for name, row := range rows {
		assert.Equal(t, row.want, row.label.text(now.Add(20*time.Minute), now), name)
	}
	assert.ElementsMatch(t, labelFunctions(t), slices.Collect(maps.Keys(rows)), "the table has each label")
}

// labelFunctions returns the names of the functions that make a TimerLabel.
func labelFunctions(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "timers.go", nil, 0)
	require.NoError(t, err)
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || f.Type.Results == nil {
			continue
		}
		if result, is := f.Type.Results.List[0].Type.(*ast.Ident); is && result.Name == "TimerLabel" {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

func TestLongTimerLabelKeepsItsTime(t *testing.T) {
	now := time.Date(2026, 11, 27, 23, 41, 30, 0, time.UTC)
	text := RetryLabel(strings.Repeat("no ", 300)).text(now.Add(time.Hour), now)
	assert.LessOrEqual(t, len(text), maxSummaryBytes)
	assert.Regexp(t, `^no no .*…; tries again at 2026-11-28 00:41:30 UTC$`, text)
}
