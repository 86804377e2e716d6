package run

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/api/vocabulary"
	"millwright/decide/explain"
)

// The page of a workflow says that a person has to act only if nothing happens by itself: the first line says what
// does.
func TestThePageSaysThatAPersonHasToActOnlyIfNothingHappensByItself(t *testing.T) {
	const line = "**stuck**: nothing moves until somebody changes what blocks it"
	for _, row := range []struct {
		name     string
		blockers []string
		deadline time.Time
		says     bool
	}{
		{"the credentials are refused: it is tried again", []string{"Unauthenticated"}, time.Time{}, false},
		{"the API server refuses: it is tried again", []string{vocabulary.BlockedRefused}, time.Time{}, false},
		{"a call that is repeated", []string{vocabulary.BlockedCall}, time.Time{}, false},
		{"a preflight check", []string{vocabulary.ReasonPreflightCheckFailed}, time.Time{}, false},
		{"the budget of replacements is used", []string{vocabulary.ConditionReplacementHeld}, time.Time{}, false},
		{"one of two is tried again", []string{vocabulary.BlockedPaused, "Unauthenticated"}, time.Time{}, false},
		{"a person has stopped it", []string{vocabulary.BlockedHold}, time.Time{}, true},
		{"it ends by itself", []string{vocabulary.BlockedHold}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), false},
		{"paused", []string{vocabulary.BlockedPaused}, time.Time{}, true},
		{"to be approved", []string{vocabulary.BlockedApproval}, time.Time{}, true},
		{"the class does not exist", []string{vocabulary.ReasonTemplateNotFound, vocabulary.ReasonClassNotFound}, time.Time{}, true},
		{"the Secret lacks a key", []string{vocabulary.ReasonSecretInvalid}, time.Time{}, true},
		{"nothing is known", nil, time.Time{}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := Step{}.Explained(explain.Summary{Blockers: row.blockers, Reason: "R", Message: "m", At: row.deadline})
			assert.Equal(t, row.says, strings.Contains(s.markdown(), line), s.markdown())
		})
	}
}
