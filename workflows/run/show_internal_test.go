package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"millwright/api/vocabulary"
	"millwright/decide/explain"
)

// The workflow's page asks a person to act only if the workflow cannot continue without a person. The first line of the
// page says what will happen next.
func TestPageAsksAPersonToActOnlyIfNothingHappensByItself(t *testing.T) {
	const line = "**stuck**: nothing moves until somebody changes what blocks it"
	for _, row := range []struct {
		name     string
		blockers []string
		deadline time.Time
		says     bool
	}{
		{"the credentials are refused: it is tried again", []string{"Unauthenticated"}, time.Time{}, false},
		{"the API server refuses: it is tried again", []string{vocabulary.BlockedByRefusedWrite}, time.Time{}, false},
		{"a call that is repeated", []string{vocabulary.BlockedByProviderCall}, time.Time{}, false},
		{"a preflight check", []string{vocabulary.ReasonPreflightCheckFailed}, time.Time{}, false},
		{"the budget of replacements is used", []string{vocabulary.ConditionReplacementHeld}, time.Time{}, false},
		{"one of two is tried again", []string{vocabulary.BlockedByPause, "Unauthenticated"}, time.Time{}, false},
		{"a person has stopped it", []string{vocabulary.BlockedByHold}, time.Time{}, true},
		{"it ends by itself", []string{vocabulary.BlockedByHold}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), false},
		{"paused", []string{vocabulary.BlockedByPause}, time.Time{}, true},
		{"to be approved", []string{vocabulary.BlockedByMissingApproval}, time.Time{}, true},
		{"the class does not exist", []string{vocabulary.ReasonTemplateNotFound, vocabulary.ReasonClassNotFound}, time.Time{}, true},
		{"the Secret lacks a key", []string{vocabulary.ReasonSecretInvalid}, time.Time{}, true},
		{"the Secret does not allow it", []string{vocabulary.ReasonSecretNotAllowed}, time.Time{}, true},
		{"nothing is known", nil, time.Time{}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := Step{}.WithBlockers(explain.Summary{Blockers: row.blockers, Reason: "R", Message: "m", At: row.deadline})
			assert.Equal(t, row.says, strings.Contains(s.markdown(), line), s.markdown())
		})
	}
}

// Temporal fails a workflow task whose search attribute has more than 2 KiB. Temporal's SQL stores do not index a
// keyword of more than 255 characters.
func TestNoSearchAttributeIsTooLarge(t *testing.T) {
	long := strings.Repeat("x", 3000)
	many := func(name string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(i, name))
		}
		return all
	}
	for name, s := range map[string]Step{
		"forty names of 110 bytes":             {BlockedBy: many(strings.Repeat("x", 108), 40)},
		"five names that JSON writes six-fold": {BlockedBy: many(strings.Repeat("<", 250), 5)},
		"a name that is too long":              {BlockedBy: []string{long}},
		"a name of other characters":           {BlockedBy: many(strings.Repeat("é\u2028", 200), 9)},
		"a thousand short names":               {BlockedBy: many("", 1000)},
		"words that are too long":              {Name: long, Phase: long, Node: long},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := temporal.NewSearchAttributes(s.attributeUpdates(Step{})...)
			require.NotZero(t, attributes.Size())
			for key, value := range attributes.GetUntypedValues() {
				text, err := json.Marshal(value)
				require.NoError(t, err)
				assert.LessOrEqual(t, len(text), 2048, key.GetName())
				words, isList := value.([]string)
				if word, isWord := value.(string); isWord {
					words = []string{word}
				}
				assert.NotEmpty(t, words, key.GetName())
				for i, word := range words {
					assert.LessOrEqual(t, len(word), 255, key.GetName())
					if isList {
						assert.True(t, strings.HasPrefix(s.BlockedBy[i], strings.TrimSuffix(word, "…")), "the first ones, in their order")
					}
				}
			}
		})
	}
}

func TestNoStartAttributeIsTooLarge(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for key, value := range StartSearchAttributes(long, ParentNames{long, long, long, long, long}).GetUntypedValues() {
		assert.LessOrEqual(t, len(value.(string)), 255, key.GetName())
	}
}
