package activities_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
)

// terminating returns the condition of a node whose machine is to go; nil when there is none.
func terminating(n *corev1.Node) *corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeTerminating {
			return &c
		}
	}
	return nil
}

// saysTerminating makes a node say since long that its machine is to go, or that it is not.
func saysTerminating(status corev1.ConditionStatus, reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.NodeTerminating, Status: status, Reason: reason, Message: "so be it", LastTransitionTime: longAgo,
		})
	}
}

func TestAnnounceTermination(t *testing.T) {
	t.Parallel()
	recovered := func(m *v1alpha1.Machine) {
		dueFor("HealthTimeout")(m)
		m.Status.Conditions[len(m.Status.Conditions)-1].Status = corev1.ConditionFalse
	}
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		node    []func(*corev1.Node)
		reason  string // empty: nothing is written
		message string
	}{
		"scaled down":                    {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineRunning)}, nil, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"scaled down, and known to go":   {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineTerminating)}, nil, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"D36: it has failed":             {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineFailed)}, nil, "Unhealthy", v1alpha1.MessageTerminatingUnhealthy},
		"D36: it had failed":             {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineTerminating), dueFor("HealthTimeout")}, nil, "Unhealthy", v1alpha1.MessageTerminatingUnhealthy},
		"it had failed and is well":      {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineTerminating), recovered}, nil, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"the node said that it stays":    {nil, []func(*corev1.Node){saysTerminating("False", "Recovered")}, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"D36: it says why":               {nil, []func(*corev1.Node){saysTerminating("True", "Unhealthy")}, "", ""},
		"D36: it says why, in own words": {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineFailed)}, []func(*corev1.Node){saysTerminating("True", "ScaleDown")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", append(row.machine, onNode, going[*v1alpha1.Machine])...)
			w := newWorld(t, m, node(append([]func(*corev1.Node){lived}, row.node...)...))
			before := w.node()
			gate := twice[activities.Gate](w, w.AnnounceTermination, read(m))
			assert.Equal(t, w.current(), gate)
			if row.reason == "" {
				assert.Empty(t, w.writes())
				assert.Equal(t, before, w.node(), "with its own reason, and since when")
				return
			}
			assert.Equal(t, []string{"patch nodes/status"}, w.writes())
			c := terminating(w.node())
			require.NotNil(t, c)
			assert.Equal(t, []string{"True", row.reason, row.message}, []string{string(c.Status), c.Reason, c.Message})
			assert.WithinDuration(t, time.Now(), c.LastTransitionTime.Time, time.Minute)
			assert.Contains(t, w.node().Status.Conditions, before.Status.Conditions[0], "those of others stay")
			assert.Equal(t, before.Spec, w.node().Spec)
			assert.Equal(t, before.Labels, w.node().Labels)
		})
	}
}

func TestNoTerminationIsAnnounced(t *testing.T) {
	t.Parallel()
	m, early := machine("m", onNode, going[*v1alpha1.Machine]), machine("m", going[*v1alpha1.Machine])
	stays := machine("m", onNode)
	for name, row := range map[string]struct {
		in     activities.Read
		around []runtime.Object
	}{
		"of a machine that stays":           {read(stays), []runtime.Object{stays, node()}},
		"U84: of one without a node":        {read(early), []runtime.Object{early, node()}},
		"U98: of one whose node is gone":    {read(m), []runtime.Object{m}},
		"of one that shares its node":       {read(m), []runtime.Object{m, machine("other", onNode), node()}},
		"of one that is gone":               {read(m), []runtime.Object{node()}},
		"of one of another object's name":   {activities.Read{Ref: stranger(m)}, []runtime.Object{m, node()}},
		"on a node that goes while we look": {read(m), []runtime.Object{m, node()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.around...)
			if name == "on a node that goes while we look" {
				failing(w.target, "patch", "nodes", 1, nil, func() {
					require.NoError(t, w.target.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n"))
				})
			}
			gate, err := run[activities.Gate](w, w.AnnounceTermination, row.in)
			require.NoError(t, err)
			assert.Empty(t, gate)
			if n := w.node(); n != nil {
				assert.Nil(t, terminating(n))
			}
		})
	}
}

func TestD15_ReportOfTheStageOfADeletion(t *testing.T) {
	t.Parallel()
	all := []deletion.Stage{"", deletion.PreDrainHooks, deletion.Drain, deletion.Detach, deletion.PreTerminateHooks, deletion.Instance, deletion.Node, deletion.Release}
	for i, recorded := range all {
		for j, told := range all {
			m := inUse()
			if recorded != "" {
				m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionStage(recorded), Since: longAgo}
			}
			got := reportMachine(newWorld(t, m), activities.MachineReport{Read: read(m), Deletion: &activities.DeletionProgress{Stage: told}}).Deletion
			if i+j == 0 {
				continue
			}
			require.NotNil(t, got, "%s, told %s", recorded, told)
			assert.Equal(t, string(all[max(i, j)]), string(got.Stage), "%s, told %s: it never goes back", recorded, told)
			assert.Equal(t, j <= i, got.Since.Equal(&longAgo), "%s, told %s: its time moves with it", recorded, told)
			assert.Nil(t, got.Drain)
		}
	}
	t.Run("D15: a report of something else leaves it", func(t *testing.T) {
		m := inUse()
		draining(time.Hour, drain.Delete)(m)
		m.DeletionTimestamp = nil
		w := newWorld(t, m)
		assert.Equal(t, m.Status.Deletion, reportMachine(w, activities.MachineReport{Read: read(m), Phase: "Terminating"}).Deletion)
		m.Status.Deletion = nil
		assert.Nil(t, reportMachine(newWorld(t, m), activities.MachineReport{Read: read(m), Phase: "Unknown"}).Deletion)
	})
}

func TestReportOfADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := inUse()
		w := newWorld(t, m)
		clock := func() metav1.Time { return metav1.Now().Rfc3339Copy() }
		report := func(p activities.DeletionProgress) *v1alpha1.MachineDeletion {
			t.Helper()
			after(time.Minute)
			return reportMachine(w, activities.MachineReport{Read: read(m), Deletion: &p}).Deletion
		}
		want := v1alpha1.MachineDeletion{}
		check := func(got *v1alpha1.MachineDeletion, message string) {
			t.Helper()
			assert.Equal(t, asStored(t, &want), asStored(t, got), message)
		}

		got := report(activities.DeletionProgress{Stage: deletion.Drain})
		want.Stage, want.Since = v1alpha1.MachineDeletionDrain, clock()
		check(got, "the stage alone starts no clock of a drain")

		got = report(activities.DeletionProgress{Means: "Evict"})
		want.Drain = &v1alpha1.MachineDrain{StartedAt: clock(), Means: "Evict", MeansSince: new(clock())}
		check(got, "the first means does")
		check(report(activities.DeletionProgress{Means: "Evict"}), "the same again is no news")
		check(report(activities.DeletionProgress{Stage: deletion.PreDrainHooks, Means: "Evict"}), "D15: nor is an earlier stage")

		got = report(activities.DeletionProgress{Means: "Delete"})
		want.Drain.Means, want.Drain.MeansSince = "Delete", new(clock())
		check(got, "another means has its own time; the drain began when it began")

		got = report(activities.DeletionProgress{Result: "Forced", LeftBehind: []string{"web/a"}})
		want.Drain.Result, want.Drain.LeftBehind = "Forced", []string{"web/a"}
		check(got, "its end")
		check(report(activities.DeletionProgress{Result: "Drained"}), "D42: what ended stays ended")
		check(report(activities.DeletionProgress{Means: "Evict"}), "D42: and does not begin anew")
		check(report(activities.DeletionProgress{Result: "Skipped", LeftBehind: []string{"web/b"}}), "D42")

		got = report(activities.DeletionProgress{Stage: deletion.Instance, Result: "Skipped"})
		want.Stage, want.Since = v1alpha1.MachineDeletionInstance, clock()
		check(got, "the stage goes on")
	})
	t.Run("U84: one that is skipped says so with the stage", func(t *testing.T) {
		m := inUse()
		got := reportMachine(newWorld(t, m), activities.MachineReport{Read: read(m), Deletion: &activities.DeletionProgress{Stage: deletion.Instance, Result: "Skipped"}}).Deletion
		assert.Equal(t, v1alpha1.MachineDeletionInstance, got.Stage)
		require.NotNil(t, got.Drain)
		assert.Equal(t, []string{"", "Skipped"}, []string{got.Drain.Means, got.Drain.Result})
		assert.False(t, got.Drain.StartedAt.IsZero())
		assert.Nil(t, got.Drain.MeansSince)
	})
}

// asStored is a record as it stands in the API server.
func asStored(t *testing.T, d *v1alpha1.MachineDeletion) map[string]any {
	t.Helper()
	m := &v1alpha1.Machine{}
	m.Status.Deletion = d
	return encode(m)["status"].(map[string]any)["deletion"].(map[string]any)
}
