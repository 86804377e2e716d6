package activities_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

func reportDeployment(w *world, in activities.DeploymentReport) v1alpha1.MachineDeploymentStatus {
	w.t.Helper()
	version := twice[string](w, w.ReportDeployment, in)
	d := w.deployment(in.Read.Ref.Name)
	assert.Equal(w.t, d.ResourceVersion, version, "the version to wait for")
	return d.Status
}

// said returns a status's conditions as type, status and reason.
func said(status v1alpha1.MachineDeploymentStatus) []string {
	list := []string{}
	for _, c := range status.Conditions {
		list = append(list, string(c.Type)+" "+string(c.Status)+" "+c.Reason)
	}
	return list
}

func TestReportDeployment(t *testing.T) {
	t.Parallel()
	d := deployment("d", 1)
	w := newWorld(t, d, counted(owned(d, "s", 1), 1, 1))
	status := reportDeployment(w, activities.DeploymentReport{Read: read(d), Step: &activities.Step{WorkflowID: "machinedeployment/shop/d"}})
	t.Run("I5: one machine is wanted and there: exactly two conditions", func(t *testing.T) {
		assert.Equal(t, []string{"Available True MinimumReplicasAvailable", "Progressing True NewMachineSetAvailable"}, said(status))
		assert.Equal(t, int32(1), status.AvailableReplicas)
	})
	assert.Equal(t, []int32{1, 1, 1, 0}, []int32{status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.UnavailableReplicas})
	assert.Equal(t, int64(1), status.ObservedGeneration)
	assert.Equal(t, "app=web", status.Selector)
	assert.Nil(t, status.CurrentOperation, "the report was all that there was to do")
	assert.Equal(t, []string{"update machinedeployments/status"}, w.writes())
	assert.Empty(t, w.told())

	t.Run("says the same again without a write", func(t *testing.T) {
		w.forget()
		reportDeployment(w, activities.DeploymentReport{Read: read(d)})
		assert.Empty(t, w.writes())
	})
	t.Run("times of a condition move with what they stand for", func(t *testing.T) {
		w.edit(observe.Deployments, "d", map[string]any{"spec": map[string]any{"replicas": 2}})
		old := w.deployment("d")
		for i := range old.Status.Conditions {
			old.Status.Conditions[i].LastTransitionTime, old.Status.Conditions[i].LastUpdateTime = longAgo, longAgo
		}
		w.rewrite(old)
		status := reportDeployment(w, activities.DeploymentReport{Read: read(d)})
		assert.Equal(t, []string{"Available False MinimumReplicasUnavailable", "Progressing True MachineSetUpdated"}, said(status))
		assert.False(t, status.Conditions[0].LastTransitionTime.Equal(&longAgo), "Available is another now")
		assert.True(t, status.Conditions[1].LastTransitionTime.Equal(&longAgo), "Progressing is True as before")
		assert.False(t, status.Conditions[1].LastUpdateTime.Equal(&longAgo), "and says something else")
	})
}

func TestReportDeploymentAddsUpItsSets(t *testing.T) {
	t.Parallel()
	failed := func(names ...string) func(*v1alpha1.MachineSet) {
		return func(s *v1alpha1.MachineSet) {
			for _, name := range names {
				s.Status.FailedMachines = append(s.Status.FailedMachines, v1alpha1.MachineSummary{Name: name, OwnerRef: s.Name})
			}
		}
	}
	d := deployment("d", 5)
	old := func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }
	w := newWorld(t, d, counted(owned(d, "a", 3), 3, 2), counted(owned(d, "b", 2, old), 2, 1), counted(set("foreign", 9), 9, 9))
	for name, names := range map[string][]string{"a": {"y", "x"}, "b": {"a"}} {
		s := w.set(name)
		failed(names...)(s)
		w.rewrite(s)
	}
	step := &activities.Step{WorkflowID: "machinedeployment/shop/d", Name: "await"}
	status := reportDeployment(w, activities.DeploymentReport{Read: read(d)})
	assert.Equal(t, []int32{5, 3, 3, 3, 2}, []int32{
		status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas, status.UnavailableReplicas,
	})
	require.Len(t, status.FailedMachines, 3)
	assert.Equal(t, "a", status.FailedMachines[0].Name, "by name")

	w.edit(observe.Deployments, "d", map[string]any{"spec": map[string]any{"replicas": 6}})
	w.settle()
	assert.Equal(t, "await", reportDeployment(w, activities.DeploymentReport{Read: read(d), Step: step}).CurrentOperation.Step, "there is more to do")
}

func TestReportDeploymentWithAChangedTemplate(t *testing.T) {
	t.Parallel()
	d := deployment("d", 1)
	old := counted(owned(d, "s", 1, func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }), 1, 1)
	w := newWorld(t, d, old)
	status := reportDeployment(w, activities.DeploymentReport{Read: read(d), Pending: true})
	assert.Equal(t, []string{"Available True MinimumReplicasAvailable", "Progressing False RolloutPending"}, said(status))
	assert.Contains(t, status.Conditions[1].Message, "the template changed")
	assert.Zero(t, status.UpdatedReplicas)
}

func TestReportDeploymentWhoseSelectorOverlaps(t *testing.T) {
	t.Parallel()
	d, a, b := deployment("d", 0), deployment("a", 0), deployment("b", 0)
	w := newWorld(t, d, a, b, owned(d, "s", 0))
	status := reportDeployment(w, activities.DeploymentReport{Read: read(d)})
	assert.Contains(t, said(status), "SelectorOverlap True SelectorOverlap")
	t.Run("D19: what admission cannot see is told once", func(t *testing.T) {
		assert.Equal(t, []string{"Warning SelectorOverlap the selector of a, b matches the machines of this deployment"}, w.told())
	})
	t.Run("and is taken back when it is mended", func(t *testing.T) {
		for _, other := range []string{"a", "b"} {
			w.edit(observe.Deployments, other, map[string]any{"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "api"}}}})
		}
		w.settle()
		status := reportDeployment(w, activities.DeploymentReport{Read: read(d)})
		assert.Len(t, status.Conditions, 2)
		assert.Empty(t, w.told())
	})
}

func TestReportDeploymentGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, deployment("d", 1))
	_, err := run[string](w, w.ReportDeployment, activities.DeploymentReport{Read: activities.Read{Ref: stranger(deployment("d", 1))}})
	assertFailure(t, err, activities.TypeObjectGone, false)
}

// needed is the message of the condition Available, which says how many machines must be available, and the annotation that
// says how many there may be.
func TestHowManyMachinesMayBeMissingAndHowManyMayBeTooMany(t *testing.T) {
	t.Parallel()
	type strategy = v1alpha1.MachineDeploymentStrategy
	bounds := func(surge, unavailable string) v1alpha1.UpdateConfiguration {
		return v1alpha1.UpdateConfiguration{MaxSurge: new(intstr.Parse(surge)), MaxUnavailable: new(intstr.Parse(unavailable))}
	}
	rolling := func(surge, unavailable string) strategy {
		return strategy{Type: "RollingUpdate", RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: bounds(surge, unavailable)}}
	}
	inPlace := func(kind v1alpha1.OrchestrationType, surge, unavailable string) strategy {
		return strategy{Type: "InPlaceUpdate", InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{OrchestrationType: kind, UpdateConfiguration: bounds(surge, unavailable)}}
	}
	for name, row := range map[string]struct {
		strategy strategy
		replicas int32
		most     string // the annotation max-replicas
		needed   string
	}{
		"left out":                         {strategy{}, 5, "6", "5 needed"},
		"U25: recreate":                    {strategy{Type: "Recreate", RollingUpdate: rolling("1", "1").RollingUpdate}, 5, "5", "5 needed"},
		"U25: no replicas":                 {rolling("1", "1"), 0, "0", "0 needed"},
		"U25: 1 of 5":                      {rolling("0", "1"), 5, "5", "4 needed"},
		"U25: 10 of 5":                     {rolling("0", "10"), 5, "5", "0 needed"},
		"U25: both zero":                   {rolling("0", "0"), 5, "5", "4 needed"},
		"U25: in place, auto":              {inPlace("Auto", "2", "1"), 5, "5", "4 needed"},
		"U25: in place, manual, both zero": {inPlace("Manual", "0", "0"), 5, "5", "4 needed"},
		"U25: in place, manual: no surge":  {inPlace("Manual", "2", "0"), 5, "5", "4 needed"},
		"U25: in place, auto, surge helps": {inPlace("Auto", "2", "0"), 5, "5", "5 needed"},
		"percentages: up and down":         {rolling("30%", "30%"), 5, "7", "4 needed"},
		"a string without percent is one":  {strategy{RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: new(intstr.FromString("30"))}}}, 5, "7", "5 needed"},
		"more than can be counted":         {rolling("2147483647", "0"), 5, "2147483652", "5 needed"},
		"a percentage of more than that":   {rolling("999999999%", "999999999%"), math.MaxInt32, "4294967294", "0 needed"},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment("d", row.replicas)
			d.Spec.Strategy = row.strategy
			w := newWorld(t, d)
			_, err := run[activities.Gate](w, w.CreateSet, createSet(d))
			require.NoError(t, err)
			set, _ := nameOf(t, d, nil)
			assert.Equal(t, row.most, w.set(set).Annotations[v1alpha1.AnnotationMaxReplicas])
			assert.Contains(t, reportDeployment(w, activities.DeploymentReport{Read: read(d)}).Conditions[0].Message, row.needed)
		})
	}
}
