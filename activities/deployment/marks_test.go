package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

const (
	triggerAnnotation  = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	priorityAnnotation = "machinepriority.machine.sapcloud.io"
	markedAtAnnotation = "machine.sapcloud.io/marked-for-deletion-time"
	noonTimestamp      = "2026-03-01T12:00:00Z"
	onePMTimestamp     = "2026-03-01T13:00:00Z"
)

// newWorldWithChosenMachines returns a world with machines that the cluster autoscaler has chosen for deletion.
func newWorldWithChosenMachines(
	t *testing.T,
	trigger string,
	machines ...*v1alpha1.Machine,
) (*activitiestest.World, *v1alpha1.MachineDeployment) {
	t.Helper()
	d := activitiestest.NewDeployment("d", 3)
	d.Annotations = map[string]string{triggerAnnotation: trigger, "team": "shop"}
	w := activitiestest.NewWorld(t, d)
	for _, m := range machines {
		w.CreateObjects(m)
	}
	w.AwaitCaches()
	w.ForgetRequests()
	return w, d
}

func newMachineMarks(
	d *v1alpha1.MachineDeployment,
	trigger *rollout.TriggerAnnotationUpdate,
	machines ...*v1alpha1.Machine,
) deployment.MachineMarks {
	in := deployment.MachineMarks{Deployment: activitiestest.NewRef(d), Version: d.ResourceVersion, Trigger: trigger}
	for _, t := range targetsOf(machines...) {
		in.Mark = append(in.Mark, rollout.ChoiceMark{ObjectTarget: t, At: noonTimestamp})
	}
	return in
}

func withAnnotations(pairs map[string]string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Annotations = pairs }
}

func TestMarkMachines(t *testing.T) {
	t.Parallel()
	t.Run("what is named goes first, and the list takes the new form afterwards", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(
			t,
			"m",
			activitiestest.NewMachine("m", withAnnotations(map[string]string{priorityAnnotation: "3", "note": "x"})),
		)
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMachineMarks(d, &rollout.TriggerAnnotationUpdate{At: noonTimestamp}, w.Machine("m")),
		)
		require.NoError(t, err)
		m, after := w.Machine("m"), w.Deployment("d")
		assert.Equal(
			t,
			map[string]string{priorityAnnotation: "1", markedAtAnnotation: noonTimestamp, "note": "x"},
			m.Annotations,
		)
		assert.Equal(t, map[string]string{triggerAnnotation: "m~" + noonTimestamp, "team": "shop"}, after.Annotations)
		assert.Equal(
			t,
			kube.MinVersions{cache.MachinesResource: m.ResourceVersion, cache.DeploymentsResource: after.ResourceVersion},
			versions,
		)
		assert.Equal(t, []string{"update machines", "patch machinedeployments"}, w.MutatingRequests())
	})
	t.Run("what is done is not done again, and an empty list goes", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(
			t,
			"gone~"+noonTimestamp,
			activitiestest.NewMachine(
				"m",
				withAnnotations(map[string]string{priorityAnnotation: "1", markedAtAnnotation: noonTimestamp}),
			),
		)
		in := newMachineMarks(d, &rollout.TriggerAnnotationUpdate{Drop: []string{"gone"}}, w.Machine("m"))
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "shop"}, w.Deployment("d").Annotations)
		assert.Equal(t, []string{"patch machinedeployments"}, w.MutatingRequests())
		in.Trigger = nil
		activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
	})
	t.Run("one with the priority alone gets the time", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(
			t,
			"m~"+noonTimestamp,
			activitiestest.NewMachine("m", withAnnotations(map[string]string{priorityAnnotation: "1"})),
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMachineMarks(d, nil, w.Machine("m")),
		)
		require.NoError(t, err)
		assert.Equal(
			t,
			map[string]string{priorityAnnotation: "1", markedAtAnnotation: noonTimestamp},
			w.Machine("m").Annotations,
		)
	})
	t.Run("what is named no more is let off, and no trace is left", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(
			t,
			"",
			activitiestest.NewMachine(
				"m",
				withAnnotations(map[string]string{priorityAnnotation: "1", markedAtAnnotation: noonTimestamp, "note": "x"}),
			),
		)
		in := deployment.MachineMarks{
			Deployment: activitiestest.NewRef(d),
			Version:    d.ResourceVersion,
			Unmark:     targetsOf(w.Machine("m")),
		}
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"note": "x"}, w.Machine("m").Annotations)
		in.Unmark = targetsOf(w.Machine("m"))
		activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		assert.Equal(t, []string{"update machines"}, w.MutatingRequests())
	})
	t.Run("a machine that is gone is passed over", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(t, "gone~"+noonTimestamp)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMachineMarks(d, &rollout.TriggerAnnotationUpdate{Drop: []string{"gone"}}, activitiestest.NewMachine("gone")),
		)
		require.NoError(t, err)
		assert.NotContains(t, w.Deployment("d").Annotations, triggerAnnotation)
	})
}

func TestMarkMachinesReturnsErrors(t *testing.T) {
	t.Parallel()
	list := &rollout.TriggerAnnotationUpdate{At: noonTimestamp}
	t.Run("a machine changed: the other is marked, and the list still says what is to be done", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(t, "a,b", activitiestest.NewMachine("a"), activitiestest.NewMachine("b"))
		in := newMachineMarks(d, list, w.Machine("a"), w.Machine("b"))
		w.EditObject(cache.MachinesResource, "a", activitiestest.NewAnnotationPatch("x", "y"))
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.NotContains(t, w.Machine("a").Annotations, priorityAnnotation)
		assert.Equal(t, "1", w.Machine("b").Annotations[priorityAnnotation])
		assert.Equal(t, "a,b", w.Deployment("d").Annotations[triggerAnnotation])
		_, err = activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMachineMarks(d, list, w.Machine("a"), w.Machine("b")),
		)
		require.NoError(t, err)
		assert.Equal(t, noonTimestamp, w.Machine("a").Annotations[markedAtAnnotation])
		assert.Equal(t, "a~"+noonTimestamp+",b~"+noonTimestamp, w.Deployment("d").Annotations[triggerAnnotation])
	})
	t.Run("the autoscaler named others meanwhile", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(t, "a", activitiestest.NewMachine("a"), activitiestest.NewMachine("b"))
		in := newMachineMarks(d, &rollout.TriggerAnnotationUpdate{At: noonTimestamp}, w.Machine("a"))
		w.EditObject(
			cache.DeploymentsResource,
			"d",
			activitiestest.NewAnnotationPatch(triggerAnnotation, "b~"+onePMTimestamp),
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Equal(t, "b~"+onePMTimestamp, w.Deployment("d").Annotations[triggerAnnotation])
	})
	t.Run("the deployment is gone, or another one has its name", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(t, "a", activitiestest.NewMachine("a"))
		in := newMachineMarks(activitiestest.NewDeployment("other", 1), list)
		_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
		in = newMachineMarks(d, list)
		in.Deployment = activitiestest.NewFormerObjectRef(d)
		_, err = activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
		assert.Equal(t, "a", w.Deployment("d").Annotations[triggerAnnotation])
	})
	t.Run("the list cannot be written for now: the marks stay", func(t *testing.T) {
		w, d := newWorldWithChosenMachines(t, "a", activitiestest.NewMachine("a"))
		activitiestest.FailRequests(
			w.MachineClient,
			"patch",
			"machinedeployments",
			1,
			apierrors.NewTooManyRequests("later", 1),
			nil,
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMachineMarks(d, list, w.Machine("a")),
		)
		require.ErrorContains(t, err, "later")
		assert.Equal(t, "1", w.Machine("a").Annotations[priorityAnnotation])
		_, err = activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMachineMarks(d, list, w.Machine("a")),
		)
		require.NoError(t, err)
	})
}
