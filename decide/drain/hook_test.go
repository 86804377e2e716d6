package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestNextStepOfAHook(t *testing.T) {
	at := func(change func(*drain.HookFacts)) drain.HookFacts {
		h := drain.HookFacts{HasHook: true, Deleting: true, ClusterAPIWaits: true, NodeName: "n"}
		change(&h)
		return h
	}
	for name, row := range map[string]struct {
		hook drain.HookFacts
		step drain.HookStep
		why  string
	}{
		"Cluster API waits":                        {at(func(*drain.HookFacts) {}), drain.HookDrain, ""},
		"no hook":                                  {at(func(h *drain.HookFacts) { h.HasHook = false }), drain.HookNothing, "the machine has no hook of Millwright"},
		"not deleted":                              {at(func(h *drain.HookFacts) { h.Deleting = false }), drain.HookNothing, "the machine is not being deleted"},
		"a person wants no drain":                  {at(func(h *drain.HookFacts) { h.SkipDrainReason = "annotation skip" }), drain.HookDrainEnded, "annotation skip"},
		"a skip does not wait for Cluster API":     {at(func(h *drain.HookFacts) { h.SkipDrainReason, h.ClusterAPIWaits = "annotation skip", false }), drain.HookDrainEnded, "annotation skip"},
		"a skip counts without a node":             {at(func(h *drain.HookFacts) { h.SkipDrainReason, h.NodeName = "annotation skip", "" }), drain.HookDrainEnded, "annotation skip"},
		"Cluster API would not drain":              {at(func(h *drain.HookFacts) { h.NoDrainReason = "it is gone" }), drain.HookNotNeeded, "it is gone"},
		"no node":                                  {at(func(h *drain.HookFacts) { h.NodeName = "" }), drain.HookNotNeeded, "the machine has no node"},
		"Cluster API has not come to the hook yet": {at(func(h *drain.HookFacts) { h.ClusterAPIWaits = false }), drain.HookNotReached, "Cluster API has not come to the pre-drain hooks of the machine yet"},
		"the node is gone":                         {at(func(h *drain.HookFacts) { h.NodeGone = true }), drain.HookDrainEnded, "there is no node n"},
		"the cluster does not answer":              {at(func(h *drain.HookFacts) { h.UnknownNodeReason, h.NodeGone = "no answer", true }), drain.HookNodeUnknown, "no answer"},
		"paused, whatever else":                    {at(func(h *drain.HookFacts) { h.PauseReason, h.DrainResult = "Cluster c is paused", "Drained" }), drain.HookPaused, "Cluster c is paused"},
		"it has ended":                             {at(func(h *drain.HookFacts) { h.DrainResult, h.NoDrainReason = "Forced", "gone" }), drain.HookDrainEnded, "the drain has already ended"},
	} {
		t.Run(name, func(t *testing.T) {
			step, why := row.hook.Decide()
			assert.Equal(t, row.step, step)
			assert.Equal(t, row.why, why)
		})
	}
}

func TestReasonWhyClusterAPIWouldNotDrain(t *testing.T) {
	for name, row := range map[string]struct {
		related drain.RelatedObjects
		why     string
	}{
		"all is there":                 {drain.RelatedObjects{ClusterName: "c"}, ""},
		"the Cluster is deleted":       {drain.RelatedObjects{ClusterName: "c", ClusterGone: true, ReachedPreTerminateHooks: true}, "Cluster c is being deleted, and its nodes are not drained"},
		"the control plane is deleted": {drain.RelatedObjects{ClusterName: "c", DeletingControlPlane: "KubeadmControlPlane cp"}, "KubeadmControlPlane cp is being deleted, and the nodes of its Cluster are not drained"},
		"the infrastructure is gone":   {drain.RelatedObjects{ClusterName: "c", GoneInfrastructure: "DevMachine m"}, "DevMachine m is gone or being deleted, and the node is not drained"},
		"the pre-terminate hooks":      {drain.RelatedObjects{ClusterName: "c", ReachedPreTerminateHooks: true}, "the deletion is past its drain"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.why, row.related.NoDrainReason()) })
	}
}

// An endless drain evicts without a deadline. An endless drain changes its means only if it is forced, if the node is
// unusable, or if a later means is recorded.
func TestEndlessDrainEvictsWithoutDeadline(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	endless := func(change func(*drain.EscalationFacts)) drain.EscalationFacts {
		l := drain.EscalationFacts{
			Now:       began.Add(1000 * time.Hour),
			Started:   began,
			Endless:   true,
			Setting:   "nodeDrainTimeoutSeconds",
			Reached:   drain.MeansEvict,
			ReachedAt: began,
		}
		change(&l)
		return l
	}
	for name, row := range map[string]struct {
		ladder drain.EscalationFacts
		means  drain.RemovalMeans
		until  time.Time
		why    string
	}{
		"after six weeks":        {endless(func(*drain.EscalationFacts) {}), drain.MeansEvict, time.Time{}, "evicts for as long as it takes (nodeDrainTimeoutSeconds is not set)"},
		"before its first pass":  {endless(func(l *drain.EscalationFacts) { l.Started, l.Reached = time.Time{}, "" }), drain.MeansEvict, time.Time{}, "evicts for as long as it takes (nodeDrainTimeoutSeconds is not set)"},
		"an extension is no end": {endless(func(l *drain.EscalationFacts) { l.Extended = began.Add(time.Hour) }), drain.MeansEvict, time.Time{}, "evicts for as long as it takes (nodeDrainTimeoutSeconds is not set)"},
		"retries are no end":     {endless(func(l *drain.EscalationFacts) { l.Retries = new(int32(1)) }), drain.MeansEvict, time.Time{}, "evicts for as long as it takes (nodeDrainTimeoutSeconds is not set)"},
		"without evictions": {
			endless(func(l *drain.EscalationFacts) { l.NoEviction = "it serves none" }), drain.MeansDeleteInOrder,
			time.Time{},
			"deletes in order for as long as it takes (nodeDrainTimeoutSeconds is not set); it cannot evict: it serves none",
		},
		"force": {
			endless(func(l *drain.EscalationFacts) { l.Force = "annotation force" }), drain.MeansKill, began.Add(1000*time.Hour + 30*time.Second),
			"kills since 04:00:00 UTC, until 04:00:30 UTC, then leaves the remaining pods: annotation force",
		},
		"the timeout was taken away after it had passed": {
			endless(func(l *drain.EscalationFacts) {
				l.Reached, l.ReachedAt, l.Grace = drain.MeansDelete, l.Now, time.Minute
			}), drain.MeansDelete, began.Add(1000*time.Hour + 90*time.Second),
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			step := drain.DecideStep(row.ladder)
			assert.Equal(t, row.means, step.Means)
			assert.Equal(t, row.until, step.Until)
			assert.False(t, step.Over)
			if row.why != "" {
				assert.Equal(t, row.why, step.Why)
			}
			if row.means.KeepsPodOrder() {
				until, then := drain.Deadlines{Escalation: &row.ladder}.EvictionDeadline()
				assert.Zero(t, until)
				assert.Empty(t, then)
			}
		})
	}
	timed := drain.DecideStep(
		drain.EscalationFacts{
			Now:       began,
			Started:   began,
			Timeout:   time.Minute,
			Setting:   "nodeDrainTimeoutSeconds",
			Reached:   drain.MeansEvict,
			ReachedAt: began,
		},
	)
	assert.Contains(t, timed.Why, "(nodeDrainTimeoutSeconds 1m), then deletes")
}
