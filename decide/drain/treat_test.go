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
		{"most pods are drained", pod("a"), drain.Treatment{Do: drain.Drain}},
		{"terminating ones too", pod("a", terminating(epoch)), drain.Treatment{Do: drain.Drain}},
		{"a pod of a DaemonSet is skipped", pod("a", daemonSet), drain.Treatment{Do: drain.Skip}},
		{"a finished one too: its controller would make the next one", pod("a", daemonSet, finished), drain.Treatment{Do: drain.Skip}},
		{"a rule does not make it go", pod("a", daemonSet, ruled("Drain", 3)), drain.Treatment{Do: drain.Skip}},
		{"a static pod is skipped", pod("a", mirror), drain.Treatment{Do: drain.Skip}},
		{"a finished one too", pod("a", mirror, finished), drain.Treatment{Do: drain.Skip}},
		{"a finished pod goes first", pod("a", finished), drain.Treatment{Do: drain.Drain, Order: math.MinInt32}},
		{"also one with an order", pod("a", finished, ruled("Drain", 7)), drain.Treatment{Do: drain.Drain, Order: math.MinInt32}},
		{"a finished pod that opted out stays", pod("a", finished, labelled("skip")), drain.Treatment{Do: drain.Skip}},
		{"one that was to complete is done", pod("a", finished, labelled("wait-completed")), drain.Treatment{Do: drain.Skip}},
		{"also by a rule", pod("a", finished, ruled("WaitCompleted", 0)), drain.Treatment{Do: drain.Skip}},
		{"label skip", pod("a", labelled("skip")), drain.Treatment{Do: drain.Skip}},
		{"label Skip", pod("a", labelled("Skip")), drain.Treatment{Do: drain.Skip}},
		{"label wait-completed", pod("a", labelled("wait-completed")), drain.Treatment{Do: drain.WaitCompleted}},
		{"label Wait-Completed", pod("a", labelled("Wait-Completed")), drain.Treatment{Do: drain.WaitCompleted}},
		{"any other label says nothing", pod("a", labelled("no"), ruled("Skip", 0)), drain.Treatment{Do: drain.Skip}},
		{"the label beats a rule", pod("a", labelled("wait-completed"), ruled("Drain", 5)), drain.Treatment{Do: drain.WaitCompleted}},
		{"rule Drain with its order", pod("a", ruled("Drain", 5)), drain.Treatment{Do: drain.Drain, Order: 5}},
		{"rule Skip", pod("a", ruled("Skip", 5)), drain.Treatment{Do: drain.Skip}},
		{"rule WaitCompleted has no order", pod("a", ruled("WaitCompleted", 5)), drain.Treatment{Do: drain.WaitCompleted}},
		{"an unknown behavior drains", pod("a", ruled("skip", 5)), drain.Treatment{Do: drain.Drain}},
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
		{"no annotation", pod("a"), false, time.Time{}},
		{"true, for ever", pod("a", protected("true")), true, time.Time{}},
		{"true, not started", pod("a", protected("true"), notStarted), true, time.Time{}},
		{"a duration that goes on", pod("a", protected("90m")), true, at(30 * time.Minute)},
		{"a duration that ends now", pod("a", protected("60m")), false, epoch},
		{"a duration of a pod that has not started", pod("a", protected("1s"), notStarted), true, time.Time{}},
		{"no time at all", pod("a", protected("0s"), notStarted), false, time.Time{}},
		{"less than that", pod("a", protected("-2h")), false, time.Time{}},
		{"false", pod("a", protected("false")), false, time.Time{}},
		{"True is not the value", pod("a", protected("True")), false, time.Time{}},
		{"a number without unit", pod("a", protected("90")), false, time.Time{}},
		{"finished", pod("a", protected("true"), finished), false, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			is, until := drain.Protected(row.pod, epoch)
			assert.Equal(t, row.want, is)
			assert.Equal(t, row.until, until)
		})
	}
}
