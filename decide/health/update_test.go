package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

func TestAnInPlaceUpdateEndsBySuccessFailureOrTimeout(t *testing.T) {
	result := func(r string) factsEdit { return func(f *health.Facts) { f.UpdateResult = r } }
	updatingFor := func(d time.Duration) factsEdit {
		return func(f *health.Facts) { f.UpdateTimeout, f.Since = 20*time.Minute, f.Now.Add(-d) }
	}
	alone := func(f *health.Facts) { f.Alone = true }
	disabled := func(f *health.Facts) { f.NoTimeout = true }
	for _, row := range []struct {
		name  string
		phase string
		edits []factsEdit
		to    string
	}{
		{"the agent works", "InPlaceUpdating", []factsEdit{updatingFor(19 * time.Minute), withoutNode}, ""},
		{"it took too long", "InPlaceUpdating", []factsEdit{updatingFor(20 * time.Minute)}, "InPlaceUpdateFailed"},
		{"success", "InPlaceUpdating", []factsEdit{updatingFor(time.Minute), result("successful")}, "InPlaceUpdateSuccessful"},
		{"success, late", "InPlaceUpdating", []factsEdit{updatingFor(time.Hour), result("successful")}, "InPlaceUpdateSuccessful"},
		{"failure", "InPlaceUpdating", []factsEdit{updatingFor(time.Minute), result("failed")}, "InPlaceUpdateFailed"},
		{"a failure may still be mended", "InPlaceUpdateFailed", []factsEdit{updatingFor(time.Minute), result("failed"), alone}, ""},
		{"and is", "InPlaceUpdateFailed", []factsEdit{updatingFor(time.Minute), result("successful"), alone}, "InPlaceUpdateSuccessful"},
		{"failure becomes Failed", "InPlaceUpdateFailed", []factsEdit{updatingFor(time.Hour), result("failed"), alone}, "Failed"},
		{"not where the health timeout is disabled", "InPlaceUpdateFailed", []factsEdit{updatingFor(time.Hour), result("failed"), alone, disabled}, ""},
		{"updated, and healthy", "InPlaceUpdateSuccessful", []factsEdit{result("successful")}, "Running"},
		{"updated, and ill", "InPlaceUpdateSuccessful", []factsEdit{result("successful"), withoutNode}, "Unknown"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := health.Decide(newFacts(row.phase, row.edits...))
			if row.to == "" {
				assert.Nil(t, v.Change)
				return
			}
			require.NotNil(t, v.Change)
			assert.Equal(t, row.to, v.Change.Phase)
		})
	}
	t.Run("below a deployment it waits for its grant", func(t *testing.T) {
		v := health.Decide(newFacts("InPlaceUpdateFailed", updatingFor(time.Hour), result("failed"), withRequiredGrant))
		assert.Nil(t, v.Change)
		require.NotNil(t, v.Due)
		assert.True(t, v.Due.True)
	})
	t.Run("its deadline is told", func(t *testing.T) {
		f := newFacts("InPlaceUpdating", updatingFor(time.Minute))
		assert.Equal(t, f.Since.Add(20*time.Minute), health.Decide(f).Deadline)
	})
}
