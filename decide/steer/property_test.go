package steer_test

import (
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/steer"
)

// everything calls a test with each verb, given in many ways to many deployments.
func everything(test func(steer.Order, steer.Facts)) {
	for _, v := range append(steer.Names(), "", "burn") {
		for _, o := range []steer.Order{
			order(v), order(v, nameless), order(v, back), order(v, back, revision(3)), order(v, revision(0)), order(v, revision(5)), order(v, revision(7)),
			order(v, revision(-1)), order(v, revision(99)), order(v, stages(1)), order(v, stages(2)), order(v, stages(3)), order(v, stages(9)),
		} {
			deployments(func(f steer.Facts) { test(o, f) })
		}
	}
}

// deployments calls a test with facts that differ in up to three of the things that verbs look at.
func deployments(test func(steer.Facts)) {
	switches := []func(*steer.Facts){
		deleting, invalid, paused, held("bob: wait"), returning(5), unmade, alone, gateless, approved(2), onDelete,
		func(f *steer.Facts) { f.Rolling = false }, func(f *steer.Facts) { f.Stages, f.Gate = 0, nil },
	}
	for set := range uint(1) << len(switches) {
		if bits.OnesCount(set) > 3 {
			continue
		}
		f := rolling()
		for i, change := range switches {
			if set>>i&1 == 1 {
				change(&f)
			}
		}
		test(f)
	}
}

func TestDecisionsAreOfOneKind(t *testing.T) {
	given, same, refused := map[steer.Verb]int{}, map[steer.Verb]int{}, map[steer.Verb]int{}
	everything(func(o steer.Order, f steer.Facts) {
		d := steer.Decide(o, f)
		switch {
		case d.Refused != "":
			refused[o.Verb]++
			require.Equal(t, steer.Decision{Refused: d.Refused}, d)
		case d.Same:
			same[o.Verb]++
			require.Equal(t, steer.Decision{Same: true, Says: d.Says}, d)
			require.NotEmpty(t, d.Says)
		default:
			given[o.Verb]++
			require.NotEmpty(t, d.Says)
			require.NotEmpty(t, d.Last)
			require.Contains(t, d.Says, f.Deployment, "it says which deployment")
		}
		if steer.Check(o) != "" {
			require.Equal(t, steer.Check(o), d.Refused)
		}
		require.False(t, strings.HasSuffix(d.Refused+d.Says, "."), d.Refused+d.Says)
	})
	assert.Len(t, given, len(steer.Names()), "each verb is of use")
	assert.Len(t, refused, len(steer.Names())+2, "and can be refused")
	assert.NotEmpty(t, same)
}

func TestNoOrderWritesOnAnotherDeployment(t *testing.T) {
	meant := 0
	everything(func(o steer.Order, f steer.Facts) {
		free := steer.Decide(o, f)
		o.UID = "u-1"
		require.Equal(t, free, steer.Decide(o, f), "whichever has the name is this one")
		if writes(free) {
			meant++
		}
		o.UID = "u-2"
		require.NotEmpty(t, steer.Meant(o, f.UID))
		d := steer.Decide(o, f)
		require.Equal(t, steer.Decision{Refused: d.Refused}, d, "%+v", o)
		require.NotEmpty(t, d.Refused)
	})
	assert.Positive(t, meant)
}

// Carried out again, an order writes nothing, whether what it asked for has come about by then or not.
func TestOrderThatIsCarriedOutTwiceWritesOnce(t *testing.T) {
	tried := map[steer.Verb]int{}
	everything(func(o steer.Order, f steer.Facts) {
		o.Asked = now
		first := steer.Decide(o, f)
		if first.Refused != "" || first.Same {
			return
		}
		for _, done := range []bool{false, true} {
			after := carriedOut(f, o, first, done)
			after.Now = now.Add(time.Minute)
			second := steer.Decide(o, after)
			require.Empty(t, second.Refused, "%+v %+v", o, after)
			require.True(t, second.Same)
			require.False(t, writes(second))
			after.Deleting = true
			require.True(t, steer.Decide(o, after).Same, "and not when somebody deletes it meanwhile")
		}
		tried[o.Verb]++
	})
	assert.Len(t, tried, len(steer.Names()))
}

// An undo must not undo itself, and two orders that ask for different things are two.
func TestOrdersAreToldApart(t *testing.T) {
	first := steer.Decide(order(steer.Undo, asked), calm())
	done := carriedOut(calm(), order(steer.Undo), first, true)
	assert.True(t, steer.Decide(order(steer.Undo, asked), done).Same)
	for name, o := range map[string]steer.Order{
		"later":     order(steer.Undo, func(o *steer.Order) { o.Asked = now.Add(time.Nanosecond) }),
		"by bob":    order(steer.Undo, asked, func(o *steer.Order) { o.Actor = "bob" }),
		"elsewhere": order(steer.Undo, asked, revision(5)),
		"why not":   order(steer.Undo, asked, func(o *steer.Order) { o.Reason = "why not" }),
		"not twice": order(steer.Undo),
	} {
		d := steer.Decide(o, done)
		assert.False(t, d.Same, name)
		assert.NotNil(t, d.RollbackTo, name)
	}
}

// Nothing is written that could not come about.
func TestWhatIsWrittenIsOfUse(t *testing.T) {
	everything(func(o steer.Order, f steer.Facts) {
		d := steer.Decide(o, f)
		if !writes(d) {
			return
		}
		require.False(t, f.Deleting)
		if d.RollbackTo != nil {
			require.False(t, f.Paused || f.Invalid != "", "it would not be carried out")
			require.Contains(t, f.Revisions, *d.RollbackTo)
			require.NotEqual(t, f.Revision, *d.RollbackTo)
		}
		if d.RestartedAt != nil {
			require.False(t, f.Paused || f.Held != "" || f.Invalid != "" || f.RollbackTo != nil)
			at, err := time.Parse(time.RFC3339, *d.RestartedAt)
			require.NoError(t, err)
			require.Equal(t, now.Truncate(time.Second), at)
		}
		if d.Approve != nil || d.Hold != nil && *d.Hold != "" {
			require.True(t, f.Rolling && f.Revision == 7)
		}
		if d.Approve != nil {
			require.True(t, strings.HasPrefix(*d.Approve, "7/"))
			require.Positive(t, f.Stages)
		}
	})
}
