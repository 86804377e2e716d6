package drain_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestTreatmentOfPods(t *testing.T) {
	for _, row := range []struct {
		name string
		pod  drain.Pod
		want drain.PodTreatment
	}{
		{"most pods are drained", newPod("a"), drain.PodTreatment{Behavior: drain.BehaviorDrain}},
		{"terminating ones too", newPod("a", withDeletionTime(epoch)), drain.PodTreatment{Behavior: drain.BehaviorDrain}},
		{"a pod of a DaemonSet is skipped", newPod("a", asDaemonSetPod), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"a finished one too: its controller would make the next one", newPod("a", asDaemonSetPod, asFinishedPod), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"a rule does not make it go", newPod("a", asDaemonSetPod, withDrainRule("Drain", 3)), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"a static pod is skipped", newPod("a", asMirrorPod), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"a finished one too", newPod("a", asMirrorPod, asFinishedPod), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"a finished pod goes first", newPod("a", asFinishedPod), drain.PodTreatment{Behavior: drain.BehaviorDrain, Order: math.MinInt32}},
		{"also one with an order", newPod("a", asFinishedPod, withDrainRule("Drain", 7)), drain.PodTreatment{Behavior: drain.BehaviorDrain, Order: math.MinInt32}},
		{"a finished pod that opted out stays", newPod("a", asFinishedPod, withDrainLabel("skip")), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"one that was to complete is done", newPod("a", asFinishedPod, withDrainLabel("wait-completed")), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"also by a rule", newPod("a", asFinishedPod, withDrainRule("WaitCompleted", 0)), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"label skip", newPod("a", withDrainLabel("skip")), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"label Skip", newPod("a", withDrainLabel("Skip")), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"label wait-completed", newPod("a", withDrainLabel("wait-completed")), drain.PodTreatment{Behavior: drain.BehaviorWaitCompleted}},
		{"label Wait-Completed", newPod("a", withDrainLabel("Wait-Completed")), drain.PodTreatment{Behavior: drain.BehaviorWaitCompleted}},
		{"any other label says nothing", newPod("a", withDrainLabel("no"), withDrainRule("Skip", 0)), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"the label beats a rule", newPod("a", withDrainLabel("wait-completed"), withDrainRule("Drain", 5)), drain.PodTreatment{Behavior: drain.BehaviorWaitCompleted}},
		{"rule Drain with its order", newPod("a", withDrainRule("Drain", 5)), drain.PodTreatment{Behavior: drain.BehaviorDrain, Order: 5}},
		{"rule Skip", newPod("a", withDrainRule("Skip", 5)), drain.PodTreatment{Behavior: drain.BehaviorSkip}},
		{"rule WaitCompleted has no order", newPod("a", withDrainRule("WaitCompleted", 5)), drain.PodTreatment{Behavior: drain.BehaviorWaitCompleted}},
		{"an unknown behavior drains", newPod("a", withDrainRule("skip", 5)), drain.PodTreatment{Behavior: drain.BehaviorDrain}},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, drain.TreatmentOfPod(row.pod)) })
	}
}

func TestDoNotDisruptProtectsPods(t *testing.T) {
	notStarted := func(p *drain.Pod) { p.Started = time.Time{} }
	for _, row := range []struct {
		name  string
		pod   drain.Pod
		want  bool
		until time.Time
	}{
		{"no annotation", newPod("a"), false, time.Time{}},
		{"true, for ever", newPod("a", withProtection("true")), true, time.Time{}},
		{"true, not started", newPod("a", withProtection("true"), notStarted), true, time.Time{}},
		{"a duration that goes on", newPod("a", withProtection("90m")), true, epochPlus(30 * time.Minute)},
		{"a duration that ends now", newPod("a", withProtection("60m")), false, epoch},
		{"a duration of a pod that has not started", newPod("a", withProtection("1s"), notStarted), true, time.Time{}},
		{"no time at all", newPod("a", withProtection("0s"), notStarted), false, time.Time{}},
		{"less than that", newPod("a", withProtection("-2h")), false, time.Time{}},
		{"false", newPod("a", withProtection("false")), false, time.Time{}},
		{"True is not the value", newPod("a", withProtection("True")), false, time.Time{}},
		{"a number without unit", newPod("a", withProtection("90")), false, time.Time{}},
		{"finished", newPod("a", withProtection("true"), asFinishedPod), false, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			is, until := drain.IsProtected(row.pod, epoch)
			assert.Equal(t, row.want, is)
			assert.Equal(t, row.until, until)
		})
	}
}
