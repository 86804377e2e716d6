package deployment_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

// conditionsOf returns the conditions of a status as type, status and reason.
func conditionsOf(status v1alpha1.MachineDeploymentStatus) []string {
	list := []string{}
	for _, c := range status.Conditions {
		list = append(list, string(c.Type)+" "+string(c.Status)+" "+c.Reason)
	}
	return list
}

func TestReportDeployment(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 1, withRevision[*v1alpha1.MachineDeployment]("1"))
	w := activitiestest.NewWorld(t, append(machineSetWithMachines(newSettledSet(d, "s", 1)), d)...)
	status := activitiestest.ReportDeployment(w, deployment.Report{
		Input:  activitiestest.NewDeploymentInput(d),
		Step:   &kube.Step{WorkflowID: "machinedeployment/shop/d"},
		Record: &rollout.Progress{Revision: 1, Set: "s", Completed: activitiestest.OldTime.Time, Good: "s"},
	})
	t.Run("one machine is wanted and there: exactly two conditions", func(t *testing.T) {
		assert.Equal(
			t,
			[]string{"Available True MinimumReplicasAvailable", "Progressing True NewMachineSetAvailable"},
			conditionsOf(status),
		)
		assert.Equal(t, int32(1), status.AvailableReplicas)
	})
	assert.Equal(
		t,
		[]int32{1, 1, 1, 0},
		[]int32{status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.UnavailableReplicas},
	)
	assert.Equal(t, int64(1), status.ObservedGeneration)
	assert.Equal(t, "app=web", status.Selector)
	assert.Nil(t, status.CurrentOperation, "the report was all that there was to do")
	assert.Equal(t, []string{"update machinedeployments/status"}, w.MutatingRequests())
	assert.Empty(t, w.TakeNewEvents())

	t.Run("says the same again without a write", func(t *testing.T) {
		w.ForgetRequests()
		activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("times of a condition move with what they stand for", func(t *testing.T) {
		w.EditObject(cache.DeploymentsResource, "d", map[string]any{"spec": map[string]any{"replicas": 2}})
		w.WriteStatus(withOldConditionTimes(w.Deployment("d")))
		status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
		assert.Equal(
			t,
			[]string{
				"Available False MinimumReplicasUnavailable", "Progressing True NewMachineSetAvailable", "Reconciling True Scaling",
			},
			conditionsOf(status),
		)
		assert.False(t, status.Conditions[0].LastTransitionTime.Equal(&activitiestest.OldTime), "Available is another now")
		assert.False(t, status.Conditions[0].LastUpdateTime.Equal(&activitiestest.OldTime), "and says something else")
		assert.True(
			t,
			status.Conditions[1].LastTransitionTime.Equal(&activitiestest.OldTime),
			"Progressing is True as before",
		)
		assert.Contains(t, status.Conditions[1].Message, "1 of 2 machines")
		assert.True(
			t,
			status.Conditions[1].LastUpdateTime.Equal(&activitiestest.OldTime),
			"and the last progress is as long ago: another number is no rollout",
		)

		w.EditObject(cache.DeploymentsResource, "d", classPatch())
		w.WriteStatus(withOldConditionTimes(w.Deployment("d")))
		status = activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
		assert.Equal(t, "Progressing True MachineSetUpdated", conditionsOf(status)[1])
		assert.True(t, status.Conditions[1].LastTransitionTime.Equal(&activitiestest.OldTime), "True as before")
		assert.False(
			t,
			status.Conditions[1].LastUpdateTime.Equal(&activitiestest.OldTime),
			"a rollout has its time from the start",
		)
	})
}

// The annotation "unfreeze" of a deployment also ends the freeze of the deployment's sets.
func TestAnUnfrozenDeploymentUnfreezesItsSets(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 1, withRevision[*v1alpha1.MachineDeployment]("1"))
	w := activitiestest.NewWorld(t, append(machineSetWithMachines(newSettledSet(d, "s", 1)), d)...)
	freeze := map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelFreeze: "True"}}}
	w.EditObject(cache.DeploymentsResource, "d", freeze)
	w.EditObject(cache.SetsResource, "s", freeze)
	status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	assert.Contains(t, conditionsOf(status), "Frozen True MachineDeploymentStateSync")
	w.EditObject(
		cache.DeploymentsResource,
		"d",
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationUnfreeze: "now"}}},
	)
	activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	assert.NotContains(t, w.Deployment("d").Labels, v1alpha1.LabelFreeze)
	assert.NotContains(t, w.Deployment("d").Annotations, v1alpha1.AnnotationUnfreeze)
	assert.Equal(
		t,
		"now",
		w.MachineSet("s").Annotations[v1alpha1.AnnotationUnfreeze],
		"its own workflow removes its label",
	)
}

func TestReportDeploymentShowsRefusedSetCreation(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 1)
	w := activitiestest.NewWorld(t, d)
	step := &kube.Step{WorkflowID: "machinedeployment/shop/d", Name: "refused", BlockedBy: []string{"Refused"}}
	status := activitiestest.ReportDeployment(
		w,
		deployment.Report{Input: activitiestest.NewDeploymentInput(d), Step: step, NoSet: "quota exceeded"},
	)
	assert.Equal(t, "Progressing False MachineSetCreateError", conditionsOf(status)[1])
	assert.Equal(t, "quota exceeded", status.Conditions[1].Message)
	require.NotNil(t, status.CurrentOperation)
	assert.Equal(t, "refused", status.CurrentOperation.Step)
	assert.Equal(t, []string{"Refused"}, status.CurrentOperation.BlockedBy)
}

// withOldConditionTimes sets the times of a deployment's conditions to OldTime.
func withOldConditionTimes(d *v1alpha1.MachineDeployment) *v1alpha1.MachineDeployment {
	for i := range d.Status.Conditions {
		d.Status.Conditions[i].LastTransitionTime = activitiestest.OldTime
		d.Status.Conditions[i].LastUpdateTime = activitiestest.OldTime
	}
	return d
}

func TestReportDeploymentSumsMachineCounts(t *testing.T) {
	t.Parallel()
	failing := func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed }
	d := activitiestest.NewDeployment("d", 5)
	now := newSettledSet(d, "a", 3)
	old := newSettledSet(d, "b", 2, activitiestest.WithFormerTemplate)
	foreign := activitiestest.WithSetCounts(activitiestest.NewMachineSet("foreign", 9), 9, 9)
	of := activitiestest.WithOwner[*v1alpha1.Machine]
	w := activitiestest.NewWorld(
		t,
		d,
		now,
		old,
		foreign,
		activitiestest.NewMachine("f", of(foreign), activitiestest.WithPhase(v1alpha1.MachineRunning), failing),
		activitiestest.NewMachine(
			"n",
			of(now),
			activitiestest.WithPhase(v1alpha1.MachineRunning),
		),
		activitiestest.NewMachine("y", of(now), activitiestest.WithPhase(v1alpha1.MachineCrashLoopBackOff), failing),
		activitiestest.NewMachine("x", of(now), activitiestest.WithPhase(v1alpha1.MachineRunning), failing),
		activitiestest.NewMachine(
			"o",
			of(old),
			activitiestest.WithPhase(v1alpha1.MachineRunning),
		),
		activitiestest.NewMachine("a", of(old), activitiestest.WithPhase(v1alpha1.MachineCrashLoopBackOff), failing),
	)
	step := &kube.Step{WorkflowID: "machinedeployment/shop/d", Name: "await"}
	status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	assert.Equal(t, []int32{5, 3, 3, 3, 2}, []int32{
		status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas, status.UnavailableReplicas,
	}, "whatever the statuses of sets say")
	require.Len(t, status.FailedMachines, 3)
	assert.Equal(
		t,
		[]string{"a", "b"},
		[]string{status.FailedMachines[0].Name, status.FailedMachines[0].OwnerRef},
		"by name",
	)

	w.EditObject(cache.DeploymentsResource, "d", map[string]any{"spec": map[string]any{"replicas": 6}})
	w.AwaitCaches()
	assert.Equal(
		t,
		"await",
		activitiestest.ReportDeployment(
			w,
			deployment.Report{Input: activitiestest.NewDeploymentInput(d), Step: step},
		).CurrentOperation.Step,
		"there is more to do",
	)
}

func TestReportDeploymentShowsTemplateChange(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*v1alpha1.MachineDeployment)
		says   []string
		words  string
	}{
		"that is rolled out": {func(*v1alpha1.MachineDeployment) {}, []string{"Progressing True MachineSetUpdated", "Reconciling True MachineSetUpdated"}, "0 of 1 machine up to date, 1 available"},
		"that waits: paused": {
			func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }, []string{"Progressing Unknown DeploymentPaused", "Reconciling True DeploymentPaused", "Blocked True Paused"}, "the template is not rolled out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := activitiestest.NewDeployment("d", 1, row.change)
			w := activitiestest.NewWorld(
				t,
				append(machineSetWithMachines(newSettledSet(d, "s", 1, activitiestest.WithFormerTemplate)), d)...)
			status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
			assert.Equal(t, append([]string{"Available True MinimumReplicasAvailable"}, row.says...), conditionsOf(status))
			assert.Contains(t, status.Conditions[1].Message, row.words)
			assert.Zero(t, status.UpdatedReplicas)
		})
	}
}

func TestReportDeploymentShowsNewCurrentSet(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 1)
	w := activitiestest.NewWorld(
		t,
		append(
			machineSetWithMachines(newSettledSet(d, "s", 1, activitiestest.WithFormerTemplate)),
			d,
			newSettledSet(d, "new", 0, withRevision[*v1alpha1.MachineSet]("2")),
		)...)
	status := activitiestest.ReportDeployment(
		w,
		deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: &rollout.Progress{Revision: 2}},
	)
	assert.Equal(t, "Progressing True NewMachineSetCreated", conditionsOf(status)[1])
	assert.Equal(t, "set new is now the current one; 0 of 1 machine up to date, 1 available", status.Conditions[1].Message)

	w.AwaitCaches()
	w.ForgetRequests()
	status = activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	assert.Equal(t, "Progressing True NewMachineSetCreated", conditionsOf(status)[1], "there was no progress")
	assert.Empty(t, w.MutatingRequests())
}

// One changed count is enough to write the status.
func TestAPreservedMachineIsReported(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 2, withRevision[*v1alpha1.MachineDeployment]("1"))
	objects := machineSetWithMachines(
		newSettledSet(d, "s", 2),
		changeMachineNamed("s-0", activitiestest.WithPhase(v1alpha1.MachineFailed)),
	)
	w := activitiestest.NewWorld(t, append(objects, d)...)
	before := activitiestest.ReportDeployment(w, newCountsReport(d))
	assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
	w.ChangeMachineStatus(
		"s-0",
		func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &activitiestest.OldTime },
	)
	assert.True(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
	after := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	assert.Equal(t, []int32{0, 1}, []int32{before.PreservedFailedReplicas, after.PreservedFailedReplicas})
	assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
}

func changeMachineNamed(name string, change func(*v1alpha1.Machine)) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		if m.Name == name {
			change(m)
		}
	}
}

func TestReportDeploymentWhoseSelectorOverlaps(t *testing.T) {
	t.Parallel()
	d, a, b := activitiestest.NewDeployment(
		"d",
		0,
	), activitiestest.NewDeployment(
		"a",
		0,
	), activitiestest.NewDeployment(
		"b",
		0,
	)
	w := activitiestest.NewWorld(t, d, a, b, activitiestest.NewOwnedSet(d, "s", 0))
	status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	assert.Contains(t, conditionsOf(status), "SelectorOverlap True SelectorOverlap")
	t.Run("what admission cannot see is told once", func(t *testing.T) {
		assert.Equal(
			t,
			[]string{"Warning SelectorOverlap the selector of a, b matches the machines of this deployment"},
			w.TakeNewEvents(),
		)
	})
	t.Run("and is taken back when it is mended", func(t *testing.T) {
		for _, other := range []string{"a", "b"} {
			w.EditObject(
				cache.DeploymentsResource,
				other,
				map[string]any{"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "api"}}}},
			)
		}
		w.AwaitCaches()
		status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
		assert.Len(t, status.Conditions, 2)
		assert.Empty(t, w.TakeNewEvents())
	})
}

func TestReportDeploymentWarnsOfIgnoredClassKind(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment(
		"d",
		0,
		func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Kind = "AWSMachineClass" },
	)
	w := activitiestest.NewWorld(t, d, activitiestest.NewOwnedSet(d, "s", 0))
	const message = `class.kind "AWSMachineClass" has no effect: the only kind is MachineClass, and the one named small is used`
	// only the first report records the event
	for _, told := range [][]string{{"Warning ClassKindIgnored " + message}, {}} {
		status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
		assert.Contains(t, conditionsOf(status), "ClassKindIgnored True ClassKindIgnored")
		assert.Equal(t, told, w.TakeNewEvents())
		w.AwaitCaches()
	}
	w.EditObject(
		cache.DeploymentsResource,
		"d",
		map[string]any{
			"spec": map[string]any{
				"template": map[string]any{"spec": map[string]any{"class": map[string]any{"kind": "MachineClass"}}},
			},
		},
	)
	w.AwaitCaches()
	status := activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	assert.NotContains(t, conditionsOf(status), "ClassKindIgnored True ClassKindIgnored", "it is mended")
	assert.Empty(t, w.TakeNewEvents())
}

func TestReportDeploymentThatIsGone(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(t, activitiestest.NewDeployment("d", 1))
	_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).ReportDeployment, deployment.Report{
		Input: deployment.Input{
			ReadInput: kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewDeployment("d", 1))},
		},
	})
	activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
}

// The condition Available reports how many machines must be available. The annotation max-replicas has the largest
// number of machines that may exist.
func TestMaxUnavailableAndMaxSurgeLimitMachines(t *testing.T) {
	t.Parallel()
	type strategy = v1alpha1.MachineDeploymentStrategy
	bounds := func(surge, unavailable string) v1alpha1.UpdateConfiguration {
		return v1alpha1.UpdateConfiguration{
			MaxSurge:       new(intstr.Parse(surge)),
			MaxUnavailable: new(intstr.Parse(unavailable)),
		}
	}
	rolling := func(surge, unavailable string) strategy {
		return strategy{
			Type:          "RollingUpdate",
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: bounds(surge, unavailable)},
		}
	}
	inPlace := func(kind v1alpha1.OrchestrationType, surge, unavailable string) strategy {
		return strategy{
			Type: "InPlaceUpdate",
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
				OrchestrationType:   kind,
				UpdateConfiguration: bounds(surge, unavailable),
			},
		}
	}
	for name, row := range map[string]struct {
		strategy strategy
		replicas int32
		most     string // the annotation max-replicas
		needed   string
	}{
		"left out":                        {strategy{}, 5, "6", "5 needed"},
		"recreate":                        {strategy{Type: "Recreate", RollingUpdate: rolling("1", "1").RollingUpdate}, 5, "5", "5 needed"},
		"no replicas":                     {rolling("1", "1"), 0, "0", "0 needed"},
		"1 of 5":                          {rolling("0", "1"), 5, "5", "4 needed"},
		"10 of 5":                         {rolling("0", "10"), 5, "5", "0 needed"},
		"both zero":                       {rolling("0", "0"), 5, "5", "4 needed"},
		"in place, auto":                  {inPlace("Auto", "2", "1"), 5, "5", "4 needed"},
		"in place, manual, both zero":     {inPlace("Manual", "0", "0"), 5, "5", "4 needed"},
		"in place, manual: no surge":      {inPlace("Manual", "2", "0"), 5, "5", "4 needed"},
		"in place, auto, surge helps":     {inPlace("Auto", "2", "0"), 5, "5", "5 needed"},
		"percentages: up and down":        {rolling("30%", "30%"), 5, "7", "4 needed"},
		"a string without percent is one": {strategy{RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: new(intstr.FromString("30"))}}}, 5, "7", "5 needed"},
		"more than can be counted":        {rolling("2147483647", "0"), 5, "2147483652", "5 needed"},
		"a percentage of more than that":  {rolling("999999999%", "999999999%"), math.MaxInt32, "21474838596008811", "0 needed"},
	} {
		t.Run(name, func(t *testing.T) {
			d := activitiestest.NewDeployment("d", row.replicas)
			d.Spec.Strategy = row.strategy
			w := activitiestest.NewWorld(t, d)
			creation := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout.Create
			require.NotNil(t, creation)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).CreateSet,
				deployment.SetCreation{Deployment: activitiestest.NewRef(d), Version: d.ResourceVersion, SetCreation: *creation},
			)
			require.NoError(t, err)
			set, _ := nameAndHashOfSet(t, d, nil)
			assert.Equal(t, row.most, w.MachineSet(set).Annotations[v1alpha1.AnnotationMaxReplicas])
			assert.Contains(
				t,
				activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)}).Conditions[0].Message,
				row.needed,
			)
		})
	}
}

func TestDeploymentStatusHasLimitedSize(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 1300)
	s := activitiestest.NewOwnedSet(d, "s", 1300)
	objects := []runtime.Object{d, s}
	for i := range 1300 {
		objects = append(
			objects,
			activitiestest.NewMachine(
				fmt.Sprintf("m-%04d", i),
				activitiestest.WithOwner[*v1alpha1.Machine](s),
				func(m *v1alpha1.Machine) {
					m.Status.LastOperation = v1alpha1.LastOperation{
						Type:        "Create",
						State:       "Failed",
						Description: strings.Repeat("x", 1000),
					}
					m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
				},
			),
		)
	}
	status := activitiestest.ReportDeployment(
		activitiestest.NewWorld(t, objects...),
		deployment.Report{Input: activitiestest.NewDeploymentInput(d)},
	)
	text, err := json.Marshal(status)
	require.NoError(t, err)
	assert.Less(t, len(text), 64<<10)
	require.Len(t, status.FailedMachines, 50)
	assert.Equal(t, "m-0000", status.FailedMachines[0].Name)
	assert.Contains(t, status.Conditions[0].Message, "1300 machines whose last operation failed; failedMachines names 50")
}
