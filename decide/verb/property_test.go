package verb_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/verb"
)

// everything calls a test with each verb, given in many ways to many machines.
func everything(test func(verb.Order, verb.Facts)) {
	stages := []deletion.Stage{"", deletion.PreDrainHooks, deletion.Drain, deletion.Detach, deletion.Instance, deletion.Node}
	times := []time.Time{{}, in(-time.Hour), in(time.Hour)}
	for _, v := range verb.Names() {
		for _, o := range []verb.Order{
			order(v), order(v, nameless), order(v, inAdvance), order(v, asked), order(v, by("30m")), order(v, by("30m"), asked),
			order(v, until("2026-11-21T15:00:00Z")), order(v, until("2026-11-21T15:00:00Z"), asked, inAdvance), order(v, by("-1s")),
		} {
			for _, stage := range stages {
				for _, present := range times {
					for _, said := range []string{"", "bob: x", "2026-11-21T15:30:00Z bob", "now"} {
						f := going(deadline(present))
						f.Stage, f.DrainOver = stage, slices.Index(stages, stage) > 2
						f.Deleting, f.KeptTill = stage != "", present
						f.Emptying = !f.Deleting && said != "bob: x"
						if said != "" {
							f.Said[v] = said
						}
						test(o, f)
					}
				}
			}
		}
	}
}

func TestDecisionsAreOfOneKind(t *testing.T) {
	given := map[verb.Verb]int{}
	everything(func(o verb.Order, f verb.Facts) {
		d := verb.Decide(o, f)
		require.Equal(t, d, verb.Decide(o, f), "the same facts, the same answer")
		switch {
		case d.Refused != "":
			require.Equal(t, verb.Decision{Refused: d.Refused}, d)
		case d.Remove:
			require.Equal(t, verb.Resume, o.Verb)
			require.Empty(t, d.Value)
			given[o.Verb]++
		default:
			require.NotEmpty(t, d.Value)
			given[o.Verb]++
		}
		if verb.Check(o) != "" {
			require.Equal(t, verb.Check(o), d.Refused)
		}
	})
	assert.Len(t, given, len(verb.Names()), "each verb is of use")
}

// What an order wrote is there when it is carried out again, whatever it has brought about by then.
func TestOrderThatIsCarriedOutTwiceWritesOnce(t *testing.T) {
	tried := 0
	everything(func(o verb.Order, f verb.Facts) {
		o.Asked = now
		first := verb.Decide(o, f)
		if first.Refused != "" {
			return
		}
		f.Said[o.Verb] = first.Value
		if first.Remove {
			delete(f.Said, o.Verb)
		}
		if o.Verb == verb.Extend {
			f.Extended, _ = time.Parse(time.RFC3339, first.Value[:len("2026-11-21T15:30:00Z")])
		}
		f.Stage, f.DrainOver, f.Means = deletion.Node, true, drain.Kill
		if o.Verb == verb.Preserve || o.Verb == verb.Unpreserve {
			f.Deleting = true
		}
		second := verb.Decide(o, f)
		require.Equal(t, verb.Decision{Value: first.Value, Remove: first.Remove, Same: true}, second, "%+v", o)
		tried++
	})
	assert.Positive(t, tried)
}

// An extension is later than all that was said before, and than now.
func TestExtensionsOnlyGiveMoreTime(t *testing.T) {
	tried := 0
	everything(func(o verb.Order, f verb.Facts) {
		f.Extended = in(45 * time.Minute)
		d := verb.Decide(o, f)
		if o.Verb != verb.Extend || d.Refused != "" || d.Same {
			return
		}
		until, err := time.Parse(time.RFC3339, d.Value[:len("2026-11-21T15:30:00Z")])
		require.NoError(t, err)
		require.True(t, until.After(now) && until.After(f.Deadline) && until.After(f.Extended), "%s %+v", until, f)
		tried++
	})
	assert.Positive(t, tried)
}

// A deletion or a drain is never steered by accident before there is one, and never when it is too late.
func TestVerbsOfADeletionNeedOne(t *testing.T) {
	everything(func(o verb.Order, f verb.Facts) {
		d := verb.Decide(o, f)
		steers := !slices.Contains([]verb.Verb{verb.Resume, verb.Preserve, verb.Unpreserve}, o.Verb)
		if steers && d.Refused == "" && !d.Same {
			require.True(t, f.Deleting || f.Emptying || o.InAdvance, "%+v", o)
			require.True(t, f.Deleting || o.Verb != verb.Release, "%+v", o)
			require.False(t, f.DrainOver && slices.Contains([]verb.Verb{verb.Extend, verb.Force, verb.Skip}, o.Verb), "%+v", o)
		}
	})
}
