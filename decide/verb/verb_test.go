package verb_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/verb"
)

// now is when all verbs are given.
var now = time.Date(2026, 11, 21, 14, 6, 7, 0, time.UTC)

func in(d time.Duration) time.Time { return now.Add(d) }

// going is a machine that is to go; running is one that is not.
func going(change ...func(*verb.Facts)) verb.Facts {
	return with(verb.Facts{Machine: "shop/m-1", UID: "u-1", Phase: "Terminating", Deleting: true, Stage: deletion.Drain, Now: now, Keeps: 96 * time.Hour, Node: "n-1"}, change)
}

func running(change ...func(*verb.Facts)) verb.Facts {
	return with(verb.Facts{Machine: "shop/m-1", UID: "u-1", Phase: "Running", Now: now, Keeps: 96 * time.Hour, Node: "n-1"}, change)
}

func with(f verb.Facts, change []func(*verb.Facts)) verb.Facts {
	f.Said = map[verb.Verb]string{}
	for _, c := range change {
		c(&f)
	}
	return f
}

// emptied makes a machine one whose node is emptied although it is to stay.
func emptied(f *verb.Facts) { f.Emptying, f.Means = true, drain.Evict }

func said(v verb.Verb, text string) func(*verb.Facts) {
	return func(f *verb.Facts) { f.Said[v] = text }
}

func deadline(t time.Time) func(*verb.Facts) {
	return func(f *verb.Facts) { f.Deadline, f.Means = t, drain.Evict }
}

func means(m drain.Means) func(*verb.Facts) { return func(f *verb.Facts) { f.Means = m } }

func drained(stage deletion.Stage) func(*verb.Facts) {
	return func(f *verb.Facts) { f.Stage, f.DrainOver = stage, true }
}

// order is what ann wants, because of a reason.
func order(v verb.Verb, change ...func(*verb.Order)) verb.Order {
	o := verb.Order{Verb: v, Actor: "ann", Reason: "why"}
	for _, c := range change {
		c(&o)
	}
	return o
}

func by(d string) func(*verb.Order)    { return func(o *verb.Order) { o.For = d } }
func until(t string) func(*verb.Order) { return func(o *verb.Order) { o.Until = t } }
func inAdvance(o *verb.Order)          { o.InAdvance = true }
func asked(o *verb.Order)              { o.Asked = now }
func nameless(o *verb.Order)           { o.Actor, o.Reason = "", "" }

func TestVerbsWrite(t *testing.T) {
	for name, c := range map[string]struct {
		order verb.Order
		facts verb.Facts
		want  verb.Decision
	}{
		"force":                            {order(verb.Force), going(), verb.Decision{Value: "ann: why"}},
		"force in advance":                 {order(verb.Force, inAdvance), running(), verb.Decision{Value: "ann: why"}},
		"force, in several lines":          {order(verb.Force, func(o *verb.Order) { o.Reason = " it\n burns\t" }), going(), verb.Decision{Value: "ann: it burns"}},
		"force, once more":                 {order(verb.Force), going(said(verb.Force, "ann: why")), verb.Decision{Value: "ann: why", Same: true}},
		"force, by another one":            {order(verb.Force), going(said(verb.Force, "bob: why")), verb.Decision{Value: "ann: why"}},
		"skip":                             {order(verb.Skip), going(), verb.Decision{Value: "ann: why"}},
		"hold":                             {order(verb.Hold), going(), verb.Decision{Value: "ann: why"}},
		"hold in a later stage":            {order(verb.Hold), going(drained(deletion.Instance)), verb.Decision{Value: "ann: why"}},
		"resume":                           {order(verb.Resume), going(said(verb.Resume, "bob: wait")), verb.Decision{Remove: true}},
		"resume of what is not deleted":    {order(verb.Resume, nameless), running(said(verb.Resume, "")), verb.Decision{Remove: true}},
		"retry":                            {order(verb.Retry), going(), verb.Decision{Value: "2026-11-21T14:06:07Z ann: why"}},
		"retry, by nobody":                 {order(verb.Retry, nameless), going(), verb.Decision{Value: "2026-11-21T14:06:07Z somebody"}},
		"retry, in a later stage":          {order(verb.Retry), going(drained(deletion.Instance)), verb.Decision{Value: "2026-11-21T14:06:07Z ann: why"}},
		"release":                          {order(verb.Release), going(), verb.Decision{Value: "ann: why"}},
		"release when it is time":          {order(verb.Release), going(drained(deletion.Instance)), verb.Decision{Value: "ann: why"}},
		"release of what is left":          {order(verb.Release), going(drained(deletion.Node)), verb.Decision{Value: "ann: why"}},
		"release at the very end":          {order(verb.Release), going(drained(deletion.Release)), verb.Decision{Value: "ann: why"}},
		"force of a node that is emptied":  {order(verb.Force), running(emptied), verb.Decision{Value: "ann: why"}},
		"skip of a node that is emptied":   {order(verb.Skip), running(emptied), verb.Decision{Value: "ann: why"}},
		"hold of a node that is emptied":   {order(verb.Hold), running(emptied), verb.Decision{Value: "ann: why"}},
		"resume of such a drain":           {order(verb.Resume), running(emptied, said(verb.Resume, "bob: wait")), verb.Decision{Remove: true}},
		"retry of such a drain":            {order(verb.Retry), running(emptied), verb.Decision{Value: "2026-11-21T14:06:07Z ann: why"}},
		"extend such a drain":              {order(verb.Extend, by("1h")), running(emptied, deadline(in(time.Hour))), verb.Decision{Value: "2026-11-21T16:06:07Z ann: why"}},
		"preserve while it is emptied":     {order(verb.Preserve), running(emptied), verb.Decision{Value: "now"}},
		"extend by":                        {order(verb.Extend, by("1h")), going(), verb.Decision{Value: "2026-11-21T15:06:07Z ann: why"}},
		"extend the deadline":              {order(verb.Extend, by("1h")), going(deadline(in(time.Hour))), verb.Decision{Value: "2026-11-21T16:06:07Z ann: why"}},
		"extend what somebody extended":    {order(verb.Extend, by("1h")), going(func(f *verb.Facts) { f.Extended = in(2 * time.Hour) }), verb.Decision{Value: "2026-11-21T17:06:07Z ann: why"}},
		"extend a deadline that passed":    {order(verb.Extend, by("90m")), going(deadline(in(-time.Hour))), verb.Decision{Value: "2026-11-21T15:36:07Z ann: why"}},
		"extend until, in another zone":    {order(verb.Extend, until("2026-11-21T19:00:00+01:00")), going(), verb.Decision{Value: "2026-11-21T18:00:00Z ann: why"}},
		"extend in advance":                {order(verb.Extend, by("1h"), inAdvance), running(), verb.Decision{Value: "2026-11-21T15:06:07Z ann: why"}},
		"preserve":                         {order(verb.Preserve), running(), verb.Decision{Value: "now"}},
		"preserve without a reason":        {order(verb.Preserve, nameless), running(), verb.Decision{Value: "now"}},
		"preserve what is preserved":       {order(verb.Preserve), running(said(verb.Preserve, "now"), func(f *verb.Facts) { f.KeptTill = in(time.Hour) }), verb.Decision{Value: "now", Same: true}},
		"preserve what its set preserved":  {order(verb.Preserve), running(said(verb.Preserve, "auto-preserved"), func(f *verb.Facts) { f.KeptTill = in(time.Hour) }), verb.Decision{Value: "now"}},
		"preserve when the node is gone":   {order(verb.Preserve), running(func(f *verb.Facts) { f.Node, f.NodeSays = "", "now" }), verb.Decision{Value: "now"}},
		"unpreserve":                       {order(verb.Unpreserve), running(said(verb.Unpreserve, "now")), verb.Decision{Value: "false"}},
		"unpreserve what nobody preserves": {order(verb.Unpreserve), running(func(f *verb.Facts) { f.Keeps = 0 }), verb.Decision{Value: "false"}},
		"for the machine that is meant":    {order(verb.Retry, func(o *verb.Order) { o.UID = "u-1" }), going(), verb.Decision{Value: "2026-11-21T14:06:07Z ann: why"}},
		"resume, the second time":          {order(verb.Resume, asked), going(), verb.Decision{Remove: true, Same: true}},
		"skip, when it has acted":          {order(verb.Skip, asked), going(drained(deletion.Instance), said(verb.Skip, "ann: why")), verb.Decision{Value: "ann: why", Same: true}},
		"extend by, at that time":          {order(verb.Extend, by("1h"), asked), going(), verb.Decision{Value: "2026-11-21T15:06:07Z ann (at 2026-11-21T14:06:07Z): why"}},
		"extend until, when it is over":    {order(verb.Extend, until("2026-11-21T18:00:00Z"), asked), going(said(verb.Extend, "2026-11-21T18:00:00Z ann: why"), means(drain.Delete)), verb.Decision{Value: "2026-11-21T18:00:00Z ann: why", Same: true}},
	} {
		assert.Equal(t, c.want, verb.Decide(c.order, c.facts), name)
	}
}

func TestVerbsAreRefused(t *testing.T) {
	flags := func(o *verb.Order) { o.Door = verb.CommandLine }
	for _, c := range []struct {
		order verb.Order
		facts verb.Facts
		want  string
	}{
		{order(""), going(), `there is no verb "": the verbs are extend, retry, hold, resume, force, skip, release, preserve, unpreserve`},
		{order("Force"), going(), `there is no verb "Force"`},
		{verb.Order{Unread: "it is no JSON"}, going(), "the order cannot be read: it is no JSON"},
		{order(verb.Force, nameless), going(), "force needs a reason for those who come after you: reason TEXT"},
		{order(verb.Force, nameless, flags), going(), "force needs a reason for those who come after you: --reason TEXT"},
		{order(verb.Release, func(o *verb.Order) { o.Reason = " \n" }), going(), "release needs a reason"},
		{order(verb.Force, by("1h")), going(), "force takes no time: for and until are for extend"},
		{order(verb.Preserve, until("2026-11-21T18:00:00Z")), running(), "preserve takes no time"},
		{order(verb.Extend), going(), "extend needs either for DURATION or until TIME"},
		{order(verb.Extend, by("0s")), going(), "extend needs either for DURATION or until TIME"},
		{order(verb.Extend, by("1h"), until("2026-11-21T18:00:00Z"), flags), going(), "extend needs either --for DURATION or --until TIME"},
		{order(verb.Extend, by("-1h")), going(), "for -1h0m0s would shorten; extend only gives more time"},
		{order(verb.Extend, by("an hour")), going(), "for is no duration, such as 1h30m: "},
		{order(verb.Extend, until("tomorrow")), going(), "until is no RFC 3339 time, such as 2026-11-21T18:00:00Z: "},
		{order(verb.Extend, until("2026-11-21T14:06:07Z")), going(), "extend until 14:06:07 UTC is not in the future: it is 14:06:07 UTC"},
		{order(verb.Extend, until("2026-11-21T15:06:07Z")), going(deadline(in(time.Hour))), "extend until 15:06:07 UTC is not later than the present deadline of machine shop/m-1, 15:06:07 UTC (in 60m): extend only gives more time"},
		{order(verb.Extend, by("1h")), going(means(drain.Delete)), "the deadline of machine shop/m-1 has passed, its pods are deleted, and nothing is evicted again: extend comes too late"},
		{order(verb.Extend, by("1h")), going(means(drain.Kill)), "extend comes too late"},
		{order(verb.Extend, by("1h")), running(), "machine shop/m-1 is not being deleted: its phase is Running; with inAdvance, extend waits for its deletion"},
		{order(verb.Hold, flags), running(), "with --in-advance, hold waits for its deletion"},
		{order(verb.Retry, inAdvance), running(), "machine shop/m-1 is not being deleted: its phase is Running"},
		{order(verb.Release, inAdvance), running(), "machine shop/m-1 is not being deleted: its phase is Running"},
		{order(verb.Resume), going(), "machine shop/m-1 is not held: there is nothing to resume"},
		{order(verb.Force), going(drained(deletion.Instance)), "the drain of machine shop/m-1 is over, and its deletion is in stage Instance: force would change nothing"},
		{order(verb.Force), going(drained(deletion.Instance), said(verb.Force, "ann: why")), "the drain of machine shop/m-1 is over"},
		{order(verb.Skip), going(drained(deletion.Detach)), "the drain of machine shop/m-1 is over"},
		{order(verb.Extend, by("1h")), running(emptied, means(drain.Delete)), "extend comes too late"},
		{order(verb.Release), running(emptied), "machine shop/m-1 is not being deleted: its phase is Running"},
		{order(verb.Preserve), going(), "machine shop/m-1 is being deleted: preserve would change nothing"},
		{order(verb.Unpreserve), going(), "machine shop/m-1 is being deleted: unpreserve would change nothing"},
		{order(verb.Preserve), running(func(f *verb.Facts) { f.NodeSays = "false" }), `node n-1 says "false" for machine shop/m-1, and its word counts as long as it is there: annotate the node instead`},
		{order(verb.Preserve), running(func(f *verb.Facts) { f.Keeps = 0 }), "machine shop/m-1 is kept for no time: its machinePreserveTimeout is 0s"},
		{order(verb.Preserve), running(func(f *verb.Facts) { f.KeptTill = now }), "the preservation of machine shop/m-1 has ended at 14:06:07 UTC, and is being taken back"},
		{order(verb.Retry, func(o *verb.Order) { o.UID = "u-2" }), going(), "the order is for a machine with UID u-2, and this one has UID u-1"},
	} {
		d := verb.Decide(c.order, c.facts)
		assert.Contains(t, d.Refused, c.want)
		assert.Equal(t, verb.Decision{Refused: d.Refused}, d, "what is refused writes nothing")
	}
}

func TestTimesAreSaidAsElsewhere(t *testing.T) {
	for want, away := range map[string]time.Duration{
		"(in 119s)":  119 * time.Second,
		"(in 2m)":    2 * time.Minute,
		"(in 9m59s)": 10*time.Minute - time.Second,
		"(in 179m)":  3*time.Hour - time.Second,
		"(in 7h1m)":  7*time.Hour + 90*time.Second,
		"(in 8h)":    8 * time.Hour,
		"(in 47h)":   48*time.Hour - time.Second,
		"(in 2d)":    48 * time.Hour,
		"(in 2d1h)":  49 * time.Hour,
		"(in 8d)":    8*24*time.Hour + time.Hour,
	} {
		d := verb.Decide(order(verb.Extend, until(in(time.Second).Format(time.RFC3339))), going(deadline(in(away))))
		assert.Contains(t, d.Refused, want)
	}
	late := verb.Decide(order(verb.Extend, until("2026-11-22T00:00:00Z")), going(deadline(time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC))))
	assert.Contains(t, late.Refused, "extend until 2026-11-22 00:00:00 UTC is not later than", "another day is named")
}

func TestWhatWasWrittenIsTold(t *testing.T) {
	for want, d := range map[string]verb.Decision{
		`wrote key: "ann: why"; it said "before"`:       {Value: "ann: why"},
		`key says so already: "ann: why"`:               {Value: "ann: why", Same: true},
		`took key off; it said "before"`:                {Remove: true},
		"key is not there: nothing was to be taken off": {Remove: true, Same: true},
	} {
		assert.Equal(t, want, d.Written("key", "before"))
	}
	assert.Equal(t, `wrote key: "x"`, verb.Decision{Value: "x"}.Written("key", ""))
	assert.Equal(t, "ann wants force: why", order(verb.Force).Wish())
	assert.Equal(t, "somebody wants ?", verb.Order{}.Wish())
}

func TestWordsOfPeopleAreOneShortLine(t *testing.T) {
	long := strings.Repeat("ü ", 300) + "\xff"
	o := verb.Order{Verb: "x\ny", Actor: long, Reason: long, Unread: long}.Cleaned()
	assert.Equal(t, verb.Verb("x y"), o.Verb)
	for _, text := range []string{o.Actor, o.Reason, o.Unread} {
		assert.LessOrEqual(t, len(text), 200)
		assert.Greater(t, len(text), 190)
		assert.True(t, utf8.ValidString(text))
	}
	assert.Equal(t, o, o.Cleaned())
}
