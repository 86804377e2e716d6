package rollout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/rollout"
)

// newFailingRollout returns a rollout of revision 3 in which `failures` new machines have failed. The rollout of
// revision 2 is complete.
func newFailingRollout(failures int, policy rollout.AutoRollback) rollout.Facts {
	o := rollingUpdateDeployment(5, 2, 0, oldSet(1, 0, 0, 0), oldSet(2, 5, 5, 5), currentSet(3, 2, 2, 0))
	for i := range failures {
		o.Sets[2] = withChangedMachine(o.Sets[2], i, asFailedMachine)
	}
	o.RollbackPolicy = policy
	o.Progress = rollout.Progress{Revision: 3, Set: "ms3", Good: "ms2"}
	return o
}

// withPassedDeadline returns the rollout after its progress deadline of one minute has passed.
func withPassedDeadline(o rollout.Facts) rollout.Facts {
	o.ProgressDeadline = new(time.Minute)
	o.ReportedStatus.Counts = rollout.PlannedStatus(o).Counts
	o.ReportedStatus.Conditions = []rollout.Condition{
		{Type: "Progressing", Status: "True", Reason: "MachineSetUpdated", LastUpdateTime: epochPlus(-time.Minute)},
	}
	return o
}

// withRecordedProgress returns the facts after the decision's record was written.
func withRecordedProgress(o rollout.Facts) rollout.Facts {
	if record := rollout.Decide(o).Record; record != nil {
		o.Progress = o.Progress.MergedWith(*record)
	}
	return o
}

// deploymentAfterRollback returns a rollout with the recorded pin of an automatic rollback.
func deploymentAfterRollback() rollout.Facts {
	return withRecordedProgress(newFailingRollout(2, rollout.AutoRollback{HasMaxFailed: true, MaxFailed: 1}))
}

// rolloutBeforeDeadline returns the rollout one second before its deadline passes.
func rolloutBeforeDeadline(o rollout.Facts) rollout.Facts {
	o.Now = o.Now.Add(-time.Second)
	return o
}

func recordedPin(o rollout.Facts) *rollout.Pin {
	if record := rollout.Decide(o).Record; record != nil {
		return record.Pin
	}
	return nil
}

func plannedCondition(o rollout.Facts, kind string) rollout.Condition {
	for _, c := range rollout.PlannedStatus(o).Conditions {
		if c.Type == kind {
			return c
		}
	}
	return rollout.Condition{}
}

func TestAutomaticRollbackPinsTheLastGoodRevision(t *testing.T) {
	o := newFailingRollout(2, rollout.AutoRollback{HasMaxFailed: true, MaxFailed: 1})
	d := rollout.Decide(o)
	pin := &rollout.Pin{
		Set:      "ms2",
		Revision: 2,
		Since:    o.Now,
		Why:      "2 machines of it failed, 1 allowed",
	}
	assert.Equal(t, rollout.Decision{
		Revision: 3,
		Record:   &rollout.Progress{Revision: 3, Set: "ms3", Failed: []string{"ms3-00", "ms3-01"}, Good: "ms2", Pin: pin},
		Why:      d.Why,
	}, d, "the pin and the names of the failed machines are one write, and no size changes with it")
	assert.True(t, d.BeginsPin())
	assert.Equal(
		t,
		"revision 3 failed (2 machines of it failed, 1 allowed): back on revision 2 since "+clockText(o.Now),
		d.Why,
	)

	o = withRecordedProgress(o)
	d = rollout.Decide(o)
	assert.Equal(t, pin, d.Pin)
	assert.Equal(t, int64(3), d.Revision, "that of the template stays")
	assert.Equal(t, int64(2), d.TargetRevision())
	assert.True(t, d.Rolling)
	assert.Nil(t, d.Record, "once is enough")
	assert.Nil(t, d.Revise)
	for _, r := range d.Resize {
		assert.Equal(t, "ms3", r.Name, "ms2 has all its machines")
		assert.Less(t, r.To, r.From)
	}
	assert.NotEmpty(t, d.Resize)
	degraded, stalled := plannedCondition(o, "Degraded"), plannedCondition(o, "Stalled")
	assert.Equal(t, "RolledBack", degraded.Reason)
	assert.Equal(
		t,
		"revision 3 failed (2 machines of it failed, 1 allowed): back on revision 2 since "+clockText(o.Now),
		degraded.Message,
	)
	assert.Equal(t, degraded.Message, stalled.Message)
	assert.Empty(t, plannedCondition(o, "Reconciling").Type)
}

func clockText(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

func TestAPinnedDeploymentKeepsToItsFormerRevision(t *testing.T) {
	back := func() rollout.Facts {
		o := deploymentAfterRollback()
		o.Sets[1], o.Sets[2] = currentSet(2, 5, 5, 5), currentSet(3, 0, 0, 0)
		o.Sets[1].Current = false
		return withCorrectAnnotations(o)
	}
	t.Run("complete, without machines of the template", func(t *testing.T) {
		d := rollout.Decide(back())
		assert.True(t, d.Complete)
		assert.False(t, d.HasActions())
		report := rollout.PlannedStatus(back())
		assert.Equal(t, 0, report.Counts.Updated, "whoever waits for the template must not be told that it is there")
		assert.Equal(t, "5 of 5 machines back on revision 2, 5 available", plannedCondition(back(), "Progressing").Message)
		assert.Equal(t, "Stalled", plannedCondition(back(), "Stalled").Type)
	})
	t.Run("a larger number is followed by the former set", func(t *testing.T) {
		o := back()
		o.Replicas = 8
		require.Len(t, rollout.Decide(o).Resize, 1)
		assert.Equal(t, "ms2", rollout.Decide(o).Resize[0].Name)
		assert.Equal(t, 8, rollout.Decide(o).Resize[0].To)
	})
	t.Run("rollout steps are skipped", func(t *testing.T) {
		o := deploymentAfterRollback()
		o.Steps = []rollout.Step{{Size: countValue(1), NeedsApproval: true}}
		assert.Nil(t, rollout.Decide(o).Pause)
		assert.NotEmpty(t, rollout.Decide(o).Resize)
	})
	t.Run("failures of the former revision count for nothing", func(t *testing.T) {
		o := back()
		o.Sets[1] = withChangedMachine(withChangedMachine(o.Sets[1], 0, asFailedMachine), 1, asFailedMachine)
		assert.Nil(t, rollout.Decide(o).Record)
	})
	t.Run("neither set is cleaned up", func(t *testing.T) {
		o := back()
		o.HistoryLimit = new(0)
		assert.Equal(t, []string{"ms1"}, targetNames(rollout.Decide(o).Delete))
	})
	t.Run("a person may stop the way back", func(t *testing.T) {
		o := deploymentAfterRollback()
		o.HoldReason = "ann"
		assert.Empty(t, rollout.Decide(o).Resize)
	})
	t.Run("a changed template ends the pin, and a second bad one goes back to the good one", func(t *testing.T) {
		o := back()
		o.Sets[2].Current = false
		o.Sets = append(o.Sets, currentSet(4, 2, 2, 0))
		d := rollout.Decide(o)
		assert.Nil(t, d.Pin)
		assert.Equal(t, &rollout.Progress{Revision: 4, Set: "ms4", Good: "ms2"}, d.Record)
		o = withRecordedProgress(o)
		o.Sets[3] = withChangedMachine(withChangedMachine(o.Sets[3], 0, asFailedMachine), 1, asFailedMachine)
		assert.Equal(t, "ms2", recordedPin(o).Set, "and not to the newest former one")
	})
	t.Run("the former template, written into the spec, ends the pin", func(t *testing.T) {
		o := back()
		o.Sets[1].Current, o.Sets[2].Current = true, false
		d := rollout.Decide(o)
		assert.Nil(t, d.Pin)
		assert.Equal(t, int64(4), d.Revise.Revision)
		o.Sets[1].Revision = 4
		assert.Empty(t, plannedCondition(withRecordedProgress(o), "Degraded").Type)
	})
	t.Run("a retry ends the pin once, and a second failure pins again", func(t *testing.T) {
		o := back()
		o.RetryCount = 1
		d := rollout.Decide(o)
		assert.Nil(t, d.Pin)
		assert.Equal(
			t,
			&rollout.Progress{Revision: 3, Set: "ms3", Attempt: 1, Good: "ms2"},
			d.Record,
			"what failed before is forgotten",
		)
		o = withRecordedProgress(o)
		assert.Equal(t, d.Record, &o.Progress)
		o.Sets[2] = withAdditionalMachines(
			withAdditionalMachines(currentSet(3, 2, 0, 0), newMachine("ms3-x", asFailedMachine)),
			newMachine("ms3-y", asFailedMachine),
		)
		assert.NotNil(t, recordedPin(o))
		o = withRecordedProgress(o)
		assert.NotNil(t, rollout.Decide(o).Pin, "the same request does not retry for ever")
		o.RetryCount = 2
		assert.Nil(t, rollout.Decide(o).Pin)
	})
	t.Run("a pin to a set that is gone ends", func(t *testing.T) {
		o := back()
		o.Sets = []rollout.MachineSet{o.Sets[0], o.Sets[2]}
		assert.Nil(t, rollout.Decide(o).Pin)
	})
	t.Run("an undo by a person is an edit, as ever", func(t *testing.T) {
		o := deploymentAfterRollback()
		o.RollbackTo = new(int64(2))
		assert.Equal(t, "ms2", rollout.Decide(o).Rollback.Set.Name)
	})
}

func TestAPersonPinsAFormerRevision(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), oldSet(2, 0, 0, 0), currentSet(3, 3, 3, 3))
	o.Progress = rollout.Progress{Revision: 3, Set: "ms3", Completed: epochPlus(-time.Hour), Good: "ms3"}
	o.PinRevision, o.PinRequestedBy = 1, "ann: v3 is slow"
	pin := recordedPin(o)
	assert.Equal(t, &rollout.Pin{Set: "ms1", Revision: 1, Since: o.Now, By: "ann: v3 is slow"}, pin)
	o = withRecordedProgress(o)
	assert.Equal(t, "Pinned", plannedCondition(o, "Degraded").Reason)
	assert.Equal(
		t,
		"revision 3 is pinned by ann (v3 is slow): back on revision 1 since "+clockText(o.Now),
		plannedCondition(o, "Degraded").Message,
	)
	assert.Equal(t, "ms1", rollout.Decide(o).Resize[0].Name)
	o.PinRevision = 2
	assert.Equal(t, "ms2", recordedPin(o).Set, "another revision")
	o.PinRevision = 9
	assert.Nil(t, rollout.Decide(o).Record, "none that does not exist")
	assert.NotNil(t, rollout.Decide(o).Pin)
}

func TestWhichFailuresCauseRollback(t *testing.T) {
	count, deadline := rollout.AutoRollback{HasMaxFailed: true}, rollout.AutoRollback{RollsBackOnDeadline: true}
	denied := func(d rollout.DenialReason) func(*rollout.Member) {
		return func(m *rollout.Member) { m.Failed, m.DenialReason = true, d }
	}
	joined := func(m *rollout.Member) { m.Joined = true }
	asked := func(m *rollout.Member) { m.RemovalRequested = true }
	sources := func(was, is rollout.InstanceSource) func(*rollout.Facts) {
		return func(o *rollout.Facts) { o.Sets[1].Source, o.Sets[2].Source = was, is }
	}
	small, large := rollout.InstanceSource{
		Account:      "a",
		InstanceType: "small",
	}, rollout.InstanceSource{
		Account:      "a",
		InstanceType: "large",
	}
	foreign := rollout.InstanceSource{Account: "b", InstanceType: "small"}
	completed := func(before time.Duration) func(*rollout.Facts) {
		return func(o *rollout.Facts) {
			o.Progress.Completed, o.Progress.Good, o.Progress.FormerGood = epochPlus(-before), "ms3", "ms2"
		}
	}
	bake := func(d time.Duration) func(*rollout.Facts) {
		return func(o *rollout.Facts) { o.RollbackPolicy.BakeTime = d }
	}
	for name, c := range map[string]struct {
		of     rollout.AutoRollback
		member func(*rollout.Member)
		change []func(*rollout.Facts)
		want   bool
	}{
		"a new machine that never joined":                      {count, asFailedMachine, nil, true},
		"none without a policy":                                {rollout.AutoRollback{}, asFailedMachine, nil, false},
		"a machine that a person replaced":                     {count, asked, nil, false},
		"a node lost after it was healthy":                     {count, joined, nil, false},
		"after the rollout was complete":                       {count, asFailedMachine, []func(*rollout.Facts){completed(time.Minute)}, false},
		"in the bake time":                                     {count, asFailedMachine, []func(*rollout.Facts){completed(time.Minute), bake(time.Hour)}, true},
		"a node lost in the bake time":                         {count, joined, []func(*rollout.Facts){completed(time.Minute), bake(time.Hour)}, true},
		"a person's replacement in the bake time":              {count, asked, []func(*rollout.Facts){completed(time.Minute), bake(time.Hour)}, false},
		"after the bake time":                                  {count, asFailedMachine, []func(*rollout.Facts){completed(time.Hour), bake(time.Hour)}, false},
		"the cloud cannot be reached":                          {count, denied(rollout.DeniedByNetwork), []func(*rollout.Facts){sources(small, foreign)}, false},
		"a quota of the type that the former revision has":     {count, denied(rollout.DeniedByQuota), []func(*rollout.Facts){sources(small, small)}, false},
		"a quota of another type":                              {count, denied(rollout.DeniedByQuota), []func(*rollout.Facts){sources(small, large)}, true},
		"a quota, where no type is known":                      {count, denied(rollout.DeniedByQuota), nil, false},
		"credentials of the former revision":                   {count, denied(rollout.DeniedByCredentials), []func(*rollout.Facts){sources(small, large)}, false},
		"other credentials":                                    {count, denied(rollout.DeniedByCredentials), []func(*rollout.Facts){sources(small, foreign)}, true},
		"the deadline, with a new machine that does not join":  {deadline, func(*rollout.Member) {}, nil, true},
		"the deadline, with one that a person replaces":        {deadline, asked, nil, false},
		"the deadline, with one that was lost":                 {deadline, joined, nil, false},
		"the deadline, while the cloud has no room for either": {deadline, denied(rollout.DeniedByQuota), []func(*rollout.Facts){sources(small, small)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := rollingUpdateDeployment(5, 2, 0, oldSet(1, 0, 0, 0), oldSet(2, 4, 4, 4), currentSet(3, 1, 1, 0))
			o.RollbackPolicy, o.Progress = c.of, rollout.Progress{Revision: 3, Set: "ms3", Good: "ms2"}
			if c.of.RollsBackOnDeadline {
				o.Sets[2] = withChangedMachine(o.Sets[2], 0, c.member)
			} else {
				o.Sets[2] = withChangedMachine(o.Sets[2], 0, asFailedMachine, c.member)
			}
			for _, change := range c.change {
				change(&o)
			}
			if c.of.RollsBackOnDeadline {
				o = withPassedDeadline(o)
				assert.Nil(t, recordedPin(rolloutBeforeDeadline(o)), "not before the deadline")
			}
			assert.Equal(t, c.want, recordedPin(o) != nil)
			o.HoldReason = "ann"
			assert.Nil(t, recordedPin(o), "a person who holds the rollout decides")
		})
	}
	t.Run("a budget that blocks the drain of an old machine rolls nothing back", func(t *testing.T) {
		o := withPassedDeadline(rollingUpdateDeployment(5, 1, 0, oldSet(2, 5, 5, 5), currentSet(3, 1, 1, 1)))
		o.RollbackPolicy, o.Progress = deadline, rollout.Progress{Revision: 3, Set: "ms3", Good: "ms2"}
		o.Sets[0] = withChangedMachine(o.Sets[0], 0, asDeletingMachine)
		o.ReportedStatus.Counts = rollout.PlannedStatus(o).Counts
		require.True(t, rollout.Decide(o).Late)
		assert.Nil(t, recordedPin(o))
	})
	t.Run("nor does a drain before the first new machine", func(t *testing.T) {
		o := withPassedDeadline(rollingUpdateDeployment(5, 0, 1, oldSet(2, 4, 5, 4), currentSet(3, 0, 0, 0)))
		o.RollbackPolicy, o.Progress = deadline, rollout.Progress{Revision: 3, Set: "ms3", Good: "ms2"}
		o.ReportedStatus.Counts = rollout.PlannedStatus(o).Counts
		assert.Nil(t, recordedPin(o))
	})
}

func TestACompleteRolloutIsRecorded(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), currentSet(2, 3, 3, 3))
	o.Progress = rollout.Progress{Revision: 2, Set: "ms2", Good: "ms1"}
	record := &rollout.Progress{Revision: 2, Set: "ms2", Completed: o.Now, Good: "ms2", FormerGood: "ms1"}
	assert.Equal(t, record, rollout.Decide(o).Record)
	assert.Nil(t, rollout.Decide(withRecordedProgress(o)).Record, "once")
	pinned := *record
	pinned.Pin = &rollout.Pin{Set: "ms1", Revision: 1}
	stale := rollout.Progress{Revision: 2, Set: "ms2", Good: "ms1", Failed: []string{"ms2-00"}}
	pinned.Failed = stale.Failed
	assert.Equal(t, pinned, pinned.MergedWith(stale), "an attempt loses neither its completion nor its pin")
	o.Replicas, o.Sets[1] = 0, currentSet(2, 0, 0, 0)
	assert.Nil(t, rollout.Decide(o).Record, "no machine proves nothing about a template")
}

func TestServingRevisionCountsAsGoodIfNoRolloutWasComplete(t *testing.T) {
	o := newFailingRollout(1, rollout.AutoRollback{HasMaxFailed: true})
	o.Progress.Good = ""
	assert.Equal(t, "ms2", recordedPin(o).Set)
	o.Sets[1] = oldSet(2, 5, 5, 0)
	assert.Nil(t, recordedPin(o), "nothing is known to be good")
	o = newFailingRollout(1, rollout.AutoRollback{HasMaxFailed: true})
	o.Progress.Good = "ms3"
	assert.Nil(t, recordedPin(o), "the revision was complete before")
}

// If machines fail after the rollout is complete, a rollback in the bake time needs the earlier set. The history limit
// does not delete the earlier set.
func TestRollbackDuringTheBakeTimeUsesTheFormerGoodSet(t *testing.T) {
	o := rollingUpdateDeployment(3, 1, 0, oldSet(1, 0, 0, 0), oldSet(2, 0, 0, 0), currentSet(3, 3, 3, 3))
	o.RollbackPolicy = rollout.AutoRollback{HasMaxFailed: true, BakeTime: time.Hour}
	o.Progress = rollout.Progress{Revision: 3, Set: "ms3", Good: "ms1"}
	o.HistoryLimit = new(0)
	assert.Equal(t, []string{"ms2"}, targetNames(rollout.Decide(o).Delete))
	o = withRecordedProgress(o)
	require.False(t, o.Progress.Completed.IsZero())
	o.Now = o.Now.Add(time.Minute)
	assert.Equal(t, []string{"ms2"}, targetNames(rollout.Decide(o).Delete))
	failed := o
	failed.Sets = slices.Clone(o.Sets)
	failed.Sets[2] = withChangedMachine(o.Sets[2], 0, asFailedMachine, func(m *rollout.Member) { m.Joined = true })
	require.NotNil(t, recordedPin(failed))
	assert.Equal(t, "ms1", recordedPin(failed).Set)
	o.Now = o.Now.Add(time.Hour)
	assert.Equal(t, []string{"ms1", "ms2"}, targetNames(rollout.Decide(o).Delete), "the bake time is over")
	failed.Now = o.Now
	assert.Nil(t, recordedPin(failed))
}

// After a person deleted the failed set, a set of another template may get the revision of the failed set.
func TestAReusedRevisionInheritsNoFailure(t *testing.T) {
	o := deploymentAfterRollback()
	o.Sets[2] = currentSet(3, 1, 1, 0)
	o.Sets[2].Name, o.Sets[2].UID = "other", "uid-other"
	d := rollout.Decide(o)
	assert.Nil(t, d.Pin)
	assert.Equal(t, &rollout.Progress{Revision: 3, Set: "other", Attempt: 1, Good: "ms2"}, d.Record)
	assert.Nil(t, rollout.Decide(withRecordedProgress(o)).Record, "once")
}

func TestARetryDoesNotCountFormerMachines(t *testing.T) {
	o := deploymentAfterRollback()
	former := epochPlus(-time.Minute)
	leaving := func(m *rollout.Member) { m.Deleting, m.Failed, m.CreatedAt = true, true, former }
	o.Sets[2] = withChangedMachine(withChangedMachine(currentSet(3, 0, 2, 0), 0, leaving), 1, leaving)
	o.RetryCount = 1
	record := rollout.Decide(o).Record
	assert.Equal(t, &rollout.Progress{Revision: 3, Set: "ms3", Attempt: 1, Good: "ms2", FormerMachines: former}, record)
	o = withRecordedProgress(o)
	assert.Nil(t, recordedPin(o))
	newer := func(m *rollout.Member) { m.CreatedAt = epoch }
	o.Sets[2] = withChangedMachine(
		withChangedMachine(currentSet(3, 2, 2, 0), 0, asFailedMachine, newer),
		1,
		asFailedMachine,
		newer,
	)
	assert.NotNil(t, recordedPin(o))
}

// MCM derives the name of a set from its template.
func TestAPinOutlivesTheDeletionOfTheFailedSet(t *testing.T) {
	o := deploymentAfterRollback()
	o.Sets = o.Sets[:2]
	d := rollout.Decide(o)
	require.NotNil(t, d.Create)
	assert.Equal(t, 0, d.Create.Replicas, "only the name of the set shows whether the pin holds")
	o.Sets = append(slices.Clone(o.Sets), currentSet(3, 0, 0, 0))
	assert.NotNil(t, rollout.Decide(o).Pin)
	o.Sets[2].Name = "other"
	assert.Nil(t, rollout.Decide(o).Pin)
}

// A restored namespace has the same names but other UIDs, and an adopted set may raise the revision of the template's
// set.
func TestAPinOutlivesARestoreAndAnAdoption(t *testing.T) {
	o := deploymentAfterRollback()
	o.Sets = slices.Clone(o.Sets)
	for i := range o.Sets {
		o.Sets[i].UID += "-restored"
	}
	assert.NotNil(t, rollout.Decide(o).Pin)
	adopted := oldSet(7, 0, 0, 0)
	adopted.Name = "adopted"
	o.Sets = append(o.Sets, adopted)
	d := rollout.Decide(o)
	require.NotNil(t, d.Revise)
	assert.Equal(t, int64(8), d.Revise.Revision)
	assert.NotNil(t, d.Pin)
}

func TestConditionsForKstatus(t *testing.T) {
	of := func(o rollout.Facts) (kinds []string) {
		for _, c := range rollout.PlannedStatus(o).Conditions {
			if c.Type == "Reconciling" || c.Type == "Stalled" || c.Type == "Degraded" {
				kinds = append(kinds, c.Type+" "+c.Reason)
			}
		}
		return kinds
	}
	calm := rollingUpdateDeployment(3, 1, 0, currentSet(2, 3, 3, 3))
	assert.Empty(t, of(calm))
	assert.Empty(t, of(withPause(calm)), "paused and complete")
	assert.Equal(
		t,
		[]string{"Reconciling MachineSetUpdated"},
		of(
			rolloutBeforeDeadline(
				withPassedDeadline(rollingUpdateDeployment(5, 2, 0, oldSet(1, 4, 4, 4), currentSet(2, 2, 2, 0))),
			),
		),
		"rolling",
	)
	assert.Equal(
		t,
		[]string{"Stalled ProgressDeadlineExceeded"},
		of(withPassedDeadline(rollingUpdateDeployment(5, 2, 0, oldSet(1, 4, 4, 4), currentSet(2, 2, 2, 0)))),
	)
	assert.Equal(
		t,
		[]string{"Reconciling DeploymentPaused"},
		of(withPause(rollingUpdateDeployment(5, 2, 0, oldSet(1, 5, 5, 5), currentSet(2, 1, 1, 1)))),
	)
	assert.Equal(t, []string{"Degraded RolledBack", "Stalled RolledBack"}, of(deploymentAfterRollback()))
	invalid := calm
	invalid.InvalidReason = "the selector is empty"
	assert.Equal(t, []string{"Stalled Invalid"}, of(invalid))
	leaving := deploymentAfterRollback()
	leaving.Deleting = true
	assert.NotContains(t, of(leaving), "Reconciling")
	onDelete := rollingUpdateDeployment(3, 0, 0, oldSet(1, 3, 3, 3), currentSet(2, 0, 0, 0))
	onDelete.Strategy = rollout.OnDelete
	assert.Empty(t, of(onDelete), "people delete the old machines")
}
