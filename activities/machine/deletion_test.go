package machine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
)

// terminatingCondition returns the condition Terminating of a node; nil if the node has none.
func terminatingCondition(n *corev1.Node) *corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeTerminating {
			return &c
		}
	}
	return nil
}

// withTerminatingCondition gives a node an old condition Terminating with the given status.
func withTerminatingCondition(status corev1.ConditionStatus, reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type:               v1alpha1.NodeTerminating,
			Status:             status,
			Reason:             reason,
			Message:            "so be it",
			LastTransitionTime: activitiestest.OldTime,
		})
	}
}

func TestAnnounceTermination(t *testing.T) {
	t.Parallel()
	recovered := func(m *v1alpha1.Machine) {
		activitiestest.WithReplacementDue("HealthTimeout")(m)
		m.Status.Conditions[len(m.Status.Conditions)-1].Status = corev1.ConditionFalse
	}
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		node    []func(*corev1.Node)
		reason  string // reason of the condition; empty: the activity writes no condition
		message string
	}{
		"scaled down":                  {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineRunning)}, nil, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"scaled down, and known to go": {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineTerminating)}, nil, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"it has failed":                {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineFailed)}, nil, "Unhealthy", v1alpha1.MessageTerminatingUnhealthy},
		"it had failed":                {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineTerminating), activitiestest.WithReplacementDue("HealthTimeout")}, nil, "Unhealthy", v1alpha1.MessageTerminatingUnhealthy},
		"its replacement was granted":  {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineTerminating), activitiestest.WithReplacementGrant}, nil, "Unhealthy", v1alpha1.MessageTerminatingUnhealthy},
		"it had failed and is well":    {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineTerminating), recovered}, nil, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"the node said that it stays":  {nil, []func(*corev1.Node){withTerminatingCondition("False", "Recovered")}, "ScaleDown", v1alpha1.MessageTerminatingScaleDown},
		"it says why":                  {nil, []func(*corev1.Node){withTerminatingCondition("True", "Unhealthy")}, "", ""},
		"it says why, in own words":    {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineFailed)}, []func(*corev1.Node){withTerminatingCondition("True", "ScaleDown")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine(
					"m",
					append(row.machine, activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])...)
				w := activitiestest.NewWorld(
					t,
					m,
					activitiestest.NewNode(append([]func(*corev1.Node){activitiestest.WithForeignMetadata}, row.node...)...),
				)
				before := w.Node()
				versions := activitiestest.RunActivityTwice[kube.MinVersions](
					w,
					newActivities(w.Kube).AnnounceTermination,
					activitiestest.NewReadInput(m),
				)
				assert.Equal(t, w.NodeMinVersions(), versions)
				if row.reason == "" {
					assert.Empty(t, w.MutatingRequests())
					assert.Equal(t, before, w.Node(), "with its own reason, and since when")
					return
				}
				assert.Equal(t, []string{"patch nodes/status"}, w.MutatingRequests())
				c := terminatingCondition(w.Node())
				require.NotNil(t, c)
				assert.Equal(t, []string{"True", row.reason, row.message}, []string{string(c.Status), c.Reason, c.Message})
				assert.WithinDuration(t, time.Now(), c.LastTransitionTime.Time, activitiestest.TimestampTolerance)
				assert.Contains(t, w.Node().Status.Conditions, before.Status.Conditions[0], "those of others stay")
				assert.Equal(t, before.Spec, w.Node().Spec)
				assert.Equal(t, before.Labels, w.Node().Labels)
			})
		})
	}
}

func TestAnnounceTerminationWritesNothing(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	early := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	stays := activitiestest.NewMachine("m", activitiestest.WithNode)
	for name, row := range map[string]struct {
		in      kube.ReadInput
		related []runtime.Object
	}{
		"of a machine that stays":           {activitiestest.NewReadInput(stays), []runtime.Object{stays, activitiestest.NewNode()}},
		"of one without a node":             {activitiestest.NewReadInput(early), []runtime.Object{early, activitiestest.NewNode()}},
		"of one whose node is gone":         {activitiestest.NewReadInput(m), []runtime.Object{m}},
		"of one that shares its node":       {activitiestest.NewReadInput(m), []runtime.Object{m, activitiestest.NewMachine("other", activitiestest.WithNode), activitiestest.NewNode()}},
		"of one that is gone":               {activitiestest.NewReadInput(m), []runtime.Object{activitiestest.NewNode()}},
		"of one of another object's name":   {kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(m)}, []runtime.Object{m, activitiestest.NewNode()}},
		"on a node that goes while we look": {activitiestest.NewReadInput(m), []runtime.Object{m, activitiestest.NewNode()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, row.related...)
			if name == "on a node that goes while we look" {
				activitiestest.FailRequests(w.TargetClient, "patch", "nodes", 1, nil, func() {
					require.NoError(t, w.TargetClient.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n"))
				})
			}
			versions, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).AnnounceTermination, row.in)
			require.NoError(t, err)
			assert.Empty(t, versions)
			if n := w.Node(); n != nil {
				assert.Nil(t, terminatingCondition(n))
			}
		})
	}
}

func TestReportRecordsTheStageOfADeletion(t *testing.T) {
	t.Parallel()
	all := []deletion.Stage{
		"",
		deletion.StagePreDrainHooks,
		deletion.StageDrain,
		deletion.StageDetachVolumes,
		deletion.StagePreTerminateHooks,
		deletion.StageDeleteInstance,
		deletion.StageDeleteNode,
		deletion.StageRemoveFinalizer,
	}
	for i, recorded := range all {
		for j, told := range all {
			m := runningMachine()
			if recorded != "" {
				m.Status.Deletion = &v1alpha1.MachineDeletion{
					Stage: v1alpha1.MachineDeletionStage(recorded),
					Since: activitiestest.OldTime,
				}
			}
			got := reportMachine(
				activitiestest.NewWorld(t, m),
				machine.Report{Read: activitiestest.NewReadInput(m), Deletion: &machine.DeletionProgress{Stage: told}},
			).Deletion
			if i+j == 0 {
				continue
			}
			require.NotNil(t, got, "%s, told %s", recorded, told)
			assert.Equal(t, string(all[max(i, j)]), string(got.Stage), "%s, told %s: it never goes back", recorded, told)
			assert.Equal(
				t,
				j <= i,
				got.Since.Equal(&activitiestest.OldTime),
				"%s, told %s: its time moves with it",
				recorded,
				told,
			)
			assert.Nil(t, got.Drain)
		}
	}
	t.Run("a report of something else leaves it", func(t *testing.T) {
		m := runningMachine()
		activitiestest.WithDrain(time.Hour, drain.MeansDelete)(m)
		m.DeletionTimestamp = nil
		w := activitiestest.NewWorld(t, m)
		assert.Equal(
			t,
			m.Status.Deletion,
			reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Terminating"}).Deletion,
		)
		m.Status.Deletion = nil
		assert.Nil(
			t,
			reportMachine(
				activitiestest.NewWorld(t, m),
				machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Unknown"},
			).Deletion,
		)
	})
}

func TestReportRecordsADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := runningMachine()
		w := activitiestest.NewWorld(t, m)
		clock := func() metav1.Time { return metav1.Now().Rfc3339Copy() }
		report := func(p machine.DeletionProgress) *v1alpha1.MachineDeletion {
			t.Helper()
			activitiestest.AdvanceTime(time.Minute)
			return reportMachine(w, machine.Report{Read: activitiestest.NewReadInput(m), Deletion: &p}).Deletion
		}
		want := v1alpha1.MachineDeletion{}
		check := func(got *v1alpha1.MachineDeletion, message string) {
			t.Helper()
			assert.Equal(t, encodeDeletionAsStored(t, &want), encodeDeletionAsStored(t, got), message)
		}

		got := report(machine.DeletionProgress{Stage: deletion.StageDrain})
		want.Stage, want.Since = v1alpha1.MachineDeletionDrain, clock()
		check(got, "the stage alone starts no clock of a drain")

		got = report(machine.DeletionProgress{Means: "Evict"})
		want.Drain = &v1alpha1.MachineDrain{StartedAt: clock(), Means: "Evict", MeansSince: new(clock())}
		check(got, "the first means does")
		check(report(machine.DeletionProgress{Means: "Evict"}), "the same again is no news")
		check(report(machine.DeletionProgress{Stage: deletion.StagePreDrainHooks, Means: "Evict"}), "nor is an earlier stage")

		got = report(machine.DeletionProgress{Means: "Delete"})
		want.Drain.Means, want.Drain.MeansSince = "Delete", new(clock())
		check(got, "another means has its own time; the drain began when it began")

		got = report(machine.DeletionProgress{Result: "Forced", LeftBehind: []string{"web/a"}})
		want.Drain.Result, want.Drain.LeftBehind = "Forced", []string{"web/a"}
		check(got, "its end")
		check(report(machine.DeletionProgress{Result: "Drained"}), "what ended stays ended")
		check(report(machine.DeletionProgress{Means: "Evict"}), "and does not begin anew")
		check(
			report(machine.DeletionProgress{Result: "Skipped", LeftBehind: []string{"web/b"}}),
			"nor is it skipped afterwards",
		)

		got = report(machine.DeletionProgress{Stage: deletion.StageDeleteInstance, Result: "Skipped"})
		want.Stage, want.Since = v1alpha1.MachineDeletionInstance, clock()
		check(got, "the stage goes on")
	})
	t.Run("one that is skipped says so with the stage", func(t *testing.T) {
		m := runningMachine()
		got := reportMachine(
			activitiestest.NewWorld(t, m),
			machine.Report{
				Read:     activitiestest.NewReadInput(m),
				Deletion: &machine.DeletionProgress{Stage: deletion.StageDeleteInstance, Result: "Skipped"},
			},
		).Deletion
		assert.Equal(t, v1alpha1.MachineDeletionInstance, got.Stage)
		require.NotNil(t, got.Drain)
		assert.Equal(t, []string{"", "Skipped"}, []string{got.Drain.Means, got.Drain.Result})
		assert.False(t, got.Drain.StartedAt.IsZero())
		assert.Nil(t, got.Drain.MeansSince)
	})
}

// encodeDeletionAsStored encodes the record of a deletion as the API server stores it.
func encodeDeletionAsStored(t *testing.T, d *v1alpha1.MachineDeletion) map[string]any {
	t.Helper()
	m := &v1alpha1.Machine{}
	m.Status.Deletion = d
	return activitiestest.EncodeObject(m)["status"].(map[string]any)["deletion"].(map[string]any)
}
