package attention_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/attention"
)

type setEdit func(*attention.SetFacts)

// calmSet returns the facts of a set that has what it wants, and says so.
func calmSet(edits ...setEdit) attention.SetFacts {
	f := attention.SetFacts{Finalizer: true, Generation: 2, ObservedGeneration: 2, Wanted: 3, Members: 3}
	for _, e := range edits {
		e(&f)
	}
	return f
}

func goingSet(f *attention.SetFacts)     { f.Deleting = true }
func bareSet(f *attention.SetFacts)      { f.Finalizer = false }
func unseenSet(f *attention.SetFacts)    { f.Generation = 3 }
func busySet(f *attention.SetFacts)      { f.Next = "create 1 machine: 3 wanted, 2 there" }
func unreported(f *attention.SetFacts)   { f.Unreported = true }
func recheckedSet(f *attention.SetFacts) { f.Recheck = true }

func TestMachineSet(t *testing.T) {
	more := func(f *attention.SetFacts) { f.Members = 4 }
	for _, row := range []struct {
		name  string
		facts attention.SetFacts
		need  attention.Need
		why   string
	}{
		{"U43: as many as wanted", calmSet(), attention.Nothing, "3 machines wanted, 3 there"},
		{"one is terminating, and the status says so", calmSet(more), attention.Nothing, "3 machines wanted, 4 there"},
		{"what is missing cannot be made now", calmSet(func(f *attention.SetFacts) { f.Members = 2 }), attention.Nothing, "3 machines wanted, 2 there"},
		{"no finalizer", calmSet(bareSet), attention.Scale, "new: not yet taken care of"},
		{"no finalizer comes before all else", calmSet(bareSet, unseenSet, busySet, unreported, recheckedSet), attention.Scale, "new: not yet taken care of"},
		{"spec changed", calmSet(unseenSet), attention.Scale, "generation 3 was not seen yet (last seen: 2)"},
		{"status of a spec that was", calmSet(func(f *attention.SetFacts) { f.ObservedGeneration = 1 }), attention.Scale, "generation 2 was not seen yet (last seen: 1)"},
		{"spec changed, and that shows", calmSet(unseenSet, busySet, unreported), attention.Scale, "generation 3 was not seen yet (last seen: 2)"},
		{"something to do", calmSet(busySet), attention.Scale, "create 1 machine: 3 wanted, 2 there"},
		{"something to do comes before what is to be told", calmSet(busySet, unreported, recheckedSet), attention.Scale, "create 1 machine: 3 wanted, 2 there"},
		{"status late", calmSet(unreported), attention.Scale, "status is out of date"},
		{"status late comes before the clock", calmSet(unreported, recheckedSet), attention.Scale, "status is out of date"},
		{"D12: the clock will say something else", calmSet(recheckedSet), attention.Scale, "3 machines wanted, 3 there; it waits for the time to pass"},
		{"U50: to be deleted", calmSet(goingSet), attention.Deletion, "deletion was asked for; 3 machines left"},
		{"U50: to be deleted, whatever else there is", calmSet(goingSet, unseenSet, busySet, unreported, recheckedSet), attention.Deletion, "deletion was asked for; 3 machines left"},
		{"MS-61: released", calmSet(goingSet, bareSet), attention.Nothing, "released: the API server removes it"},
		{"MS-61: released, whatever else there is", calmSet(goingSet, bareSet, unseenSet, busySet, unreported, recheckedSet), attention.Nothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, attention.MachineSet(row.facts))
		})
	}
}

func TestOnlyASetThatIsAsItShouldBeIsCalm(t *testing.T) {
	edits := []setEdit{goingSet, bareSet, unseenSet, busySet, unreported, recheckedSet}
	for bits := range 1 << len(edits) {
		f := calmSet()
		for i, e := range edits {
			if bits>>i&1 == 1 {
				e(&f)
			}
		}
		d := attention.MachineSet(f)
		gone := f.Deleting && !f.Finalizer
		require.Equal(t, bits == 0 || gone, d.Calm(), "%+v", f)
		require.Equal(t, f.Deleting && f.Finalizer, d.Need == attention.Deletion, "%+v", f)
		require.NotEmpty(t, d.Why, "%+v", f)
	}
}
