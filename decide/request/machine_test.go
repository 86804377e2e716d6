package request_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/request"
)

func TestRequestsWriteTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		order request.Order
		facts request.MachineFacts
		want  request.Decision
	}{
		"force":                            {order(request.Force), going(), wrote("ann: why")},
		"force in advance":                 {order(request.Force, inAdvance), running(), wrote("ann: why")},
		"force, in several lines":          {order(request.Force, func(o *request.Order) { o.Reason = " it\n burns\t" }), going(), wrote("ann: it burns")},
		"force, once more":                 {order(request.Force), going(says("ann: why")), already("ann: why")},
		"force, by another one":            {order(request.Force), going(says("bob: why")), wrote("ann: why", "bob: why")},
		"skip":                             {order(request.Skip), going(), wrote("ann: why")},
		"hold":                             {order(request.Hold), going(), wrote("ann: why")},
		"hold in a later stage":            {order(request.Hold), going(drained(deletion.Instance)), wrote("ann: why")},
		"resume":                           {order(request.Resume), going(says("bob: wait")), removed("bob: wait")},
		"resume of what is not deleted":    {order(request.Resume, nameless), running(says("")), removed("")},
		"retry":                            {order(request.Retry), going(), wrote("2026-11-21T14:06:07Z ann: why")},
		"retry, by nobody":                 {order(request.Retry, nameless), going(), wrote("2026-11-21T14:06:07Z somebody")},
		"retry, in a later stage":          {order(request.Retry), going(drained(deletion.Instance)), wrote("2026-11-21T14:06:07Z ann: why")},
		"abandon":                          {order(request.AbandonInstance), going(), wrote("ann: why")},
		"abandon when it is time":          {order(request.AbandonInstance), going(drained(deletion.Instance)), wrote("ann: why")},
		"abandon of what is left":          {order(request.AbandonInstance), going(drained(deletion.Node)), wrote("ann: why")},
		"abandon at the very end":          {order(request.AbandonInstance), going(drained(deletion.Release)), wrote("ann: why")},
		"force of a node that is emptied":  {order(request.Force), running(emptied), wrote("ann: why")},
		"skip of a node that is emptied":   {order(request.Skip), running(emptied), wrote("ann: why")},
		"hold of a node that is emptied":   {order(request.Hold), running(emptied), wrote("ann: why")},
		"resume of such a drain":           {order(request.Resume), running(emptied, says("bob: wait")), removed("bob: wait")},
		"retry of such a drain":            {order(request.Retry), running(emptied), wrote("2026-11-21T14:06:07Z ann: why")},
		"extend such a drain":              {order(request.Extend, by("1h")), running(emptied, deadline(in(time.Hour))), wrote("2026-11-21T16:06:07Z ann: why")},
		"preserve while it is emptied":     {order(request.Preserve), running(emptied), wrote("now")},
		"extend by":                        {order(request.Extend, by("1h")), going(), wrote("2026-11-21T15:06:07Z ann: why")},
		"extend the deadline":              {order(request.Extend, by("1h")), going(deadline(in(time.Hour))), wrote("2026-11-21T16:06:07Z ann: why")},
		"extend what somebody extended":    {order(request.Extend, by("1h")), going(func(f *request.MachineFacts) { f.Extended = in(2 * time.Hour) }), wrote("2026-11-21T17:06:07Z ann: why")},
		"extend a deadline that passed":    {order(request.Extend, by("90m")), going(deadline(in(-time.Hour))), wrote("2026-11-21T15:36:07Z ann: why")},
		"extend until, in another zone":    {order(request.Extend, until("2026-11-21T19:00:00+01:00")), going(), wrote("2026-11-21T18:00:00Z ann: why")},
		"extend in advance":                {order(request.Extend, by("1h"), inAdvance), running(), wrote("2026-11-21T15:06:07Z ann: why")},
		"preserve":                         {order(request.Preserve), running(), wrote("now")},
		"preserve without a reason":        {order(request.Preserve, nameless), running(), wrote("now")},
		"preserve what is preserved":       {order(request.Preserve), running(says("now"), func(f *request.MachineFacts) { f.KeptTill = in(time.Hour) }), already("now")},
		"preserve what its set preserved":  {order(request.Preserve), running(says("auto-preserved"), func(f *request.MachineFacts) { f.KeptTill = in(time.Hour) }), wrote("now", "auto-preserved")},
		"preserve when the node is gone":   {order(request.Preserve), running(func(f *request.MachineFacts) { f.Node, f.NodeSays = "", "now" }), wrote("now")},
		"unpreserve":                       {order(request.Unpreserve), running(says("now")), wrote("false", "now")},
		"unpreserve what nobody preserves": {order(request.Unpreserve), running(func(f *request.MachineFacts) { f.Keeps = 0 }), wrote("false")},
		"for the machine that is meant":    {order(request.Retry, func(o *request.Order) { o.UID = "u-1" }), going(), wrote("2026-11-21T14:06:07Z ann: why")},
		"resume, the second time":          {order(request.Resume, asked), going(), request.Decision{Same: true, Says: "key is not there: nothing was removed"}},
		"skip, when it has acted":          {order(request.Skip, asked), going(drained(deletion.Instance), says("ann: why")), already("ann: why")},
		"extend by, at that time":          {order(request.Extend, by("1h"), asked), going(), wrote("2026-11-21T15:06:07Z ann (at 2026-11-21T14:06:07.5Z): why")},
		"extend until, when it is over":    {order(request.Extend, until("2026-11-21T18:00:00Z"), asked), going(says("2026-11-21T18:00:00Z ann: why"), means(drain.Delete)), already("2026-11-21T18:00:00Z ann: why")},
	} {
		assert.Equal(t, c.want, request.Decide(c.order, c.facts), name)
	}
}

func TestRequestsForAMachineAreRefused(t *testing.T) {
	for _, c := range []struct {
		order request.Order
		facts request.MachineFacts
		want  string
	}{
		{order(request.Extend, until("2026-11-21T14:06:07Z")), going(), "extend until 14:06:07 UTC is not in the future: it is 14:06:07 UTC"},
		{order(request.Extend, until("2026-11-21T15:06:07Z")), going(deadline(in(time.Hour))), "extend until 15:06:07 UTC is not later than the present deadline of machine shop/m-1, 15:06:07 UTC (in 1h): extend only gives more time"},
		{order(request.Extend, by("1h")), going(means(drain.Delete)), "the deadline of machine shop/m-1 has passed, its pods are deleted, and nothing is evicted again: extend comes too late"},
		{order(request.Extend, by("1h")), going(means(drain.Kill)), "extend comes too late"},
		{order(request.Retry), running(), "machine shop/m-1 is not being deleted: its phase is Running"},
		{order(request.AbandonInstance), running(), "machine shop/m-1 is not being deleted: its phase is Running"},
		{order(request.Extend, by("1h")), running(), "machine shop/m-1 is not being deleted: its phase is Running; with inAdvance, extend waits for its deletion"},
		{order(request.Hold, flags), running(), "with --in-advance, hold waits for its deletion"},
		{order(request.Resume), going(), "machine shop/m-1 is not held: there is nothing to resume"},
		{order(request.Force), going(drained(deletion.Instance)), "the drain of machine shop/m-1 is over, and its deletion is in stage Instance: force would change nothing"},
		{order(request.Force), going(drained(deletion.Instance), says("ann: why")), "the drain of machine shop/m-1 is over"},
		{order(request.Skip), going(drained(deletion.Detach)), "the drain of machine shop/m-1 is over"},
		{order(request.Extend, by("1h")), running(emptied, means(drain.Delete)), "extend comes too late"},
		{order(request.AbandonInstance), running(emptied), "machine shop/m-1 is not being deleted: its phase is Running"},
		{order(request.Preserve), going(), "machine shop/m-1 is being deleted: preserve would change nothing"},
		{order(request.Unpreserve), going(), "machine shop/m-1 is being deleted: unpreserve would change nothing"},
		{order(request.Preserve), running(func(f *request.MachineFacts) { f.NodeSays = "false" }), `node n-1 says "false" for machine shop/m-1, which counts as long as the node is there: annotate the node instead`},
		{order(request.Preserve), running(func(f *request.MachineFacts) { f.Keeps = 0 }), "machine shop/m-1 cannot be preserved: its machinePreserveTimeout is 0s"},
		{order(request.Preserve), running(func(f *request.MachineFacts) { f.KeptTill = now }), "the preservation of machine shop/m-1 has ended at 14:06:07 UTC, and is being removed: try again when it is removed"},
	} {
		d := request.Decide(c.order, c.facts)
		assert.Contains(t, d.Refused, c.want)
		assert.Equal(t, request.Decision{Refused: d.Refused}, d, "what is refused writes nothing")
	}
}

func TestADeadlineOfAnotherDayIsNamedWithItsDay(t *testing.T) {
	late := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	d := request.Decide(order(request.Extend, until("2026-11-22T00:00:00Z")), going(deadline(late)))
	assert.Contains(
		t,
		d.Refused,
		"extend until 2026-11-22 00:00:00 UTC is not later than the present deadline of machine shop/m-1, "+
			"2026-11-23 01:00:00 UTC (in 34h53m52s)",
	)
}
