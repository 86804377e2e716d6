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
		want drain.Treatment
	}{
		{"most pods are drained", newPod("a"), drain.Treatment{Do: drain.Drain}},
		{"terminating ones too", newPod("a", withDeletionTime(epoch)), drain.Treatment{Do: drain.Drain}},
		{"a pod of a DaemonSet is skipped", newPod("a", asDaemonSetPod), drain.Treatment{Do: drain.Skip}},
		{"a finished one too: its controller would make the next one", newPod("a", asDaemonSetPod, asFinishedPod), drain.Treatment{Do: drain.Skip}},
		{"a rule does not make it go", newPod("a", asDaemonSetPod, withRule("Drain", 3)), drain.Treatment{Do: drain.Skip}},
		{"a static pod is skipped", newPod("a", asMirrorPod), drain.Treatment{Do: drain.Skip}},
		{"a finished one too", newPod("a", asMirrorPod, asFinishedPod), drain.Treatment{Do: drain.Skip}},
		{"a finished pod goes first", newPod("a", asFinishedPod), drain.Treatment{Do: drain.Drain, Order: math.MinInt32}},
		{"also one with an order", newPod("a", asFinishedPod, withRule("Drain", 7)), drain.Treatment{Do: drain.Drain, Order: math.MinInt32}},
		{"a finished pod that opted out stays", newPod("a", asFinishedPod, withLabel("skip")), drain.Treatment{Do: drain.Skip}},
		{"one that was to complete is done", newPod("a", asFinishedPod, withLabel("wait-completed")), drain.Treatment{Do: drain.Skip}},
		{"also by a rule", newPod("a", asFinishedPod, withRule("WaitCompleted", 0)), drain.Treatment{Do: drain.Skip}},
		{"label skip", newPod("a", withLabel("skip")), drain.Treatment{Do: drain.Skip}},
		{"label Skip", newPod("a", withLabel("Skip")), drain.Treatment{Do: drain.Skip}},
		{"label wait-completed", newPod("a", withLabel("wait-completed")), drain.Treatment{Do: drain.WaitCompleted}},
		{"label Wait-Completed", newPod("a", withLabel("Wait-Completed")), drain.Treatment{Do: drain.WaitCompleted}},
		{"any other label says nothing", newPod("a", withLabel("no"), withRule("Skip", 0)), drain.Treatment{Do: drain.Skip}},
		{"the label beats a rule", newPod("a", withLabel("wait-completed"), withRule("Drain", 5)), drain.Treatment{Do: drain.WaitCompleted}},
		{"rule Drain with its order", newPod("a", withRule("Drain", 5)), drain.Treatment{Do: drain.Drain, Order: 5}},
		{"rule Skip", newPod("a", withRule("Skip", 5)), drain.Treatment{Do: drain.Skip}},
		{"rule WaitCompleted has no order", newPod("a", withRule("WaitCompleted", 5)), drain.Treatment{Do: drain.WaitCompleted}},
		{"an unknown behavior drains", newPod("a", withRule("skip", 5)), drain.Treatment{Do: drain.Drain}},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, drain.Treat(row.pod)) })
	}
}

func TestWhatDoNotDisruptProtects(t *testing.T) {
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
		{"a duration that goes on", newPod("a", withProtection("90m")), true, timeAt(30 * time.Minute)},
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
			is, until := drain.Protected(row.pod, epoch)
			assert.Equal(t, row.want, is)
			assert.Equal(t, row.until, until)
		})
	}
}
