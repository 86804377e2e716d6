package request_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/request"
)

func TestWritesOfMachineRequests(t *testing.T) {
	for name, c := range map[string]struct {
		order request.CommandOrder
		facts request.MachineFacts
		want  request.Decision
	}{
		"force":                            {newOrder(request.Force), deletingMachine(), annotationWriteDecision("ann: why")},
		"force in advance":                 {newOrder(request.Force, asOrderInAdvance), runningMachine(), annotationWriteDecision("ann: why")},
		"force, in several lines":          {newOrder(request.Force, func(o *request.CommandOrder) { o.Reason = " it\n burns\t" }), deletingMachine(), annotationWriteDecision("ann: it burns")},
		"force, once more":                 {newOrder(request.Force), deletingMachine(withAnnotation("ann: why")), alreadySetDecision("ann: why")},
		"force, by another one":            {newOrder(request.Force), deletingMachine(withAnnotation("bob: why")), annotationWriteDecision("ann: why", "bob: why")},
		"skip":                             {newOrder(request.Skip), deletingMachine(), annotationWriteDecision("ann: why")},
		"hold":                             {newOrder(request.Hold), deletingMachine(), annotationWriteDecision("ann: why")},
		"hold in a later stage":            {newOrder(request.Hold), deletingMachine(withEndedDrain(deletion.StageDeleteInstance)), annotationWriteDecision("ann: why")},
		"resume":                           {newOrder(request.Resume), deletingMachine(withAnnotation("bob: wait")), annotationRemovalDecision("bob: wait")},
		"resume of what is not deleted":    {newOrder(request.Resume, withoutActorAndReason), runningMachine(withAnnotation("")), annotationRemovalDecision("")},
		"retry":                            {newOrder(request.Retry), deletingMachine(), annotationWriteDecision("2026-11-21T14:06:07Z ann: why")},
		"retry, by nobody":                 {newOrder(request.Retry, withoutActorAndReason), deletingMachine(), annotationWriteDecision("2026-11-21T14:06:07Z somebody")},
		"retry, in a later stage":          {newOrder(request.Retry), deletingMachine(withEndedDrain(deletion.StageDeleteInstance)), annotationWriteDecision("2026-11-21T14:06:07Z ann: why")},
		"abandon":                          {newOrder(request.AbandonInstance), deletingMachine(), annotationWriteDecision("ann: why")},
		"abandon when it is time":          {newOrder(request.AbandonInstance), deletingMachine(withEndedDrain(deletion.StageDeleteInstance)), annotationWriteDecision("ann: why")},
		"abandon of what is left":          {newOrder(request.AbandonInstance), deletingMachine(withEndedDrain(deletion.StageDeleteNode)), annotationWriteDecision("ann: why")},
		"abandon at the very end":          {newOrder(request.AbandonInstance), deletingMachine(withEndedDrain(deletion.StageRemoveFinalizer)), annotationWriteDecision("ann: why")},
		"force of a node that is emptied":  {newOrder(request.Force), runningMachine(withDrainingNode), annotationWriteDecision("ann: why")},
		"skip of a node that is emptied":   {newOrder(request.Skip), runningMachine(withDrainingNode), annotationWriteDecision("ann: why")},
		"hold of a node that is emptied":   {newOrder(request.Hold), runningMachine(withDrainingNode), annotationWriteDecision("ann: why")},
		"resume of such a drain":           {newOrder(request.Resume), runningMachine(withDrainingNode, withAnnotation("bob: wait")), annotationRemovalDecision("bob: wait")},
		"retry of such a drain":            {newOrder(request.Retry), runningMachine(withDrainingNode), annotationWriteDecision("2026-11-21T14:06:07Z ann: why")},
		"extend such a drain":              {newOrder(request.Extend, withExtendFor("1h")), runningMachine(withDrainingNode, withDeadline(nowPlus(time.Hour))), annotationWriteDecision("2026-11-21T16:06:07Z ann: why")},
		"preserve while it is emptied":     {newOrder(request.Preserve), runningMachine(withDrainingNode), annotationWriteDecision("now")},
		"extend by":                        {newOrder(request.Extend, withExtendFor("1h")), deletingMachine(), annotationWriteDecision("2026-11-21T15:06:07Z ann: why")},
		"extend the deadline":              {newOrder(request.Extend, withExtendFor("1h")), deletingMachine(withDeadline(nowPlus(time.Hour))), annotationWriteDecision("2026-11-21T16:06:07Z ann: why")},
		"extend what somebody extended":    {newOrder(request.Extend, withExtendFor("1h")), deletingMachine(func(f *request.MachineFacts) { f.ExtendedUntil = nowPlus(2 * time.Hour) }), annotationWriteDecision("2026-11-21T17:06:07Z ann: why")},
		"extend a deadline that passed":    {newOrder(request.Extend, withExtendFor("90m")), deletingMachine(withDeadline(nowPlus(-time.Hour))), annotationWriteDecision("2026-11-21T15:36:07Z ann: why")},
		"extend until, in another zone":    {newOrder(request.Extend, withExtendUntil("2026-11-21T19:00:00+01:00")), deletingMachine(), annotationWriteDecision("2026-11-21T18:00:00Z ann: why")},
		"extend in advance":                {newOrder(request.Extend, withExtendFor("1h"), asOrderInAdvance), runningMachine(), annotationWriteDecision("2026-11-21T15:06:07Z ann: why")},
		"preserve":                         {newOrder(request.Preserve), runningMachine(), annotationWriteDecision("now")},
		"preserve without a reason":        {newOrder(request.Preserve, withoutActorAndReason), runningMachine(), annotationWriteDecision("now")},
		"preserve what is preserved":       {newOrder(request.Preserve), runningMachine(withAnnotation("now"), func(f *request.MachineFacts) { f.PreservedUntil = nowPlus(time.Hour) }), alreadySetDecision("now")},
		"preserve what its set preserved":  {newOrder(request.Preserve), runningMachine(withAnnotation("auto-preserved"), func(f *request.MachineFacts) { f.PreservedUntil = nowPlus(time.Hour) }), annotationWriteDecision("now", "auto-preserved")},
		"preserve when the node is gone":   {newOrder(request.Preserve), runningMachine(func(f *request.MachineFacts) { f.NodeName, f.NodePreserveValue = "", "now" }), annotationWriteDecision("now")},
		"unpreserve":                       {newOrder(request.Unpreserve), runningMachine(withAnnotation("now")), annotationWriteDecision("false", "now")},
		"unpreserve what nobody preserves": {newOrder(request.Unpreserve), runningMachine(func(f *request.MachineFacts) { f.PreservationDuration = 0 }), annotationWriteDecision("false")},
		"for the machine that is meant":    {newOrder(request.Retry, func(o *request.CommandOrder) { o.UID = "u-1" }), deletingMachine(), annotationWriteDecision("2026-11-21T14:06:07Z ann: why")},
		"resume, the second time":          {newOrder(request.Resume, withRequestTime), deletingMachine(), request.Decision{Repeated: true, Message: "key is not there: nothing was removed"}},
		"skip, when it has acted":          {newOrder(request.Skip, withRequestTime), deletingMachine(withEndedDrain(deletion.StageDeleteInstance), withAnnotation("ann: why")), alreadySetDecision("ann: why")},
		"extend by, at that time":          {newOrder(request.Extend, withExtendFor("1h"), withRequestTime), deletingMachine(), annotationWriteDecision("2026-11-21T15:06:07Z ann (at 2026-11-21T14:06:07.5Z): why")},
		"extend until, when it is over":    {newOrder(request.Extend, withExtendUntil("2026-11-21T18:00:00Z"), withRequestTime), deletingMachine(withAnnotation("2026-11-21T18:00:00Z ann: why"), withRemovalMeans(drain.MeansDelete)), alreadySetDecision("2026-11-21T18:00:00Z ann: why")},
	} {
		assert.Equal(t, c.want, request.Decide(c.order, c.facts), name)
	}
}

func TestRefusalsOfMachineRequests(t *testing.T) {
	for _, c := range []struct {
		order request.CommandOrder
		facts request.MachineFacts
		want  string
	}{
		{newOrder(request.Extend, withExtendUntil("2026-11-21T14:06:07Z")), deletingMachine(), "extend until 14:06:07 UTC is not in the future: it is 14:06:07 UTC"},
		{newOrder(request.Extend, withExtendUntil("2026-11-21T15:06:07Z")), deletingMachine(withDeadline(nowPlus(time.Hour))), "extend until 15:06:07 UTC is not later than the present deadline of machine shop/m-1, 15:06:07 UTC (in 1h): extend only gives more time"},
		{newOrder(request.Extend, withExtendFor("1h")), deletingMachine(withRemovalMeans(drain.MeansDelete)), "the deadline of machine shop/m-1 has passed, its pods are deleted, and nothing is evicted again: extend comes too late"},
		{newOrder(request.Extend, withExtendFor("1h")), deletingMachine(withRemovalMeans(drain.MeansKill)), "extend comes too late"},
		{newOrder(request.Retry), runningMachine(), "machine shop/m-1 is not being deleted: its phase is Running"},
		{newOrder(request.AbandonInstance), runningMachine(), "machine shop/m-1 is not being deleted: its phase is Running"},
		{newOrder(request.Extend, withExtendFor("1h")), runningMachine(), "machine shop/m-1 is not being deleted: its phase is Running; with inAdvance, extend waits for its deletion"},
		{newOrder(request.Hold, asCommandLineOrder), runningMachine(), "with --in-advance, hold waits for its deletion"},
		{newOrder(request.Resume), deletingMachine(), "machine shop/m-1 is not held: there is nothing to resume"},
		{newOrder(request.Force), deletingMachine(withEndedDrain(deletion.StageDeleteInstance)), "the drain of machine shop/m-1 is over, and its deletion is in stage Instance: force would change nothing"},
		{newOrder(request.Force), deletingMachine(withEndedDrain(deletion.StageDeleteInstance), withAnnotation("ann: why")), "the drain of machine shop/m-1 is over"},
		{newOrder(request.Skip), deletingMachine(withEndedDrain(deletion.StageDetachVolumes)), "the drain of machine shop/m-1 is over"},
		{newOrder(request.Extend, withExtendFor("1h")), runningMachine(withDrainingNode, withRemovalMeans(drain.MeansDelete)), "extend comes too late"},
		{newOrder(request.AbandonInstance), runningMachine(withDrainingNode), "machine shop/m-1 is not being deleted: its phase is Running"},
		{newOrder(request.Preserve), deletingMachine(), "machine shop/m-1 is being deleted: preserve would change nothing"},
		{newOrder(request.Unpreserve), deletingMachine(), "machine shop/m-1 is being deleted: unpreserve would change nothing"},
		{newOrder(request.Preserve), runningMachine(func(f *request.MachineFacts) { f.NodePreserveValue = "false" }), `node n-1 says "false" for machine shop/m-1, which counts as long as the node is there: annotate the node instead`},
		{newOrder(request.Preserve), runningMachine(func(f *request.MachineFacts) { f.PreservationDuration = 0 }), "machine shop/m-1 cannot be preserved: its machinePreserveTimeout is 0s"},
		{newOrder(request.Preserve), runningMachine(func(f *request.MachineFacts) { f.PreservedUntil = now }), "the preservation of machine shop/m-1 has ended at 14:06:07 UTC, and is being removed: try again when it is removed"},
	} {
		d := request.Decide(c.order, c.facts)
		assert.Contains(t, d.RefusalReason, c.want)
		assert.Equal(t, request.Decision{RefusalReason: d.RefusalReason}, d, "what is refused writes nothing")
	}
}

func TestDeadlineOnAnotherDayIsShownWithItsDate(t *testing.T) {
	late := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	d := request.Decide(
		newOrder(request.Extend, withExtendUntil("2026-11-22T00:00:00Z")),
		deletingMachine(withDeadline(late)),
	)
	assert.Contains(
		t,
		d.RefusalReason,
		"extend until 2026-11-22 00:00:00 UTC is not later than the present deadline of machine shop/m-1, "+
			"2026-11-23 01:00:00 UTC (in 34h53m52s)",
	)
}
