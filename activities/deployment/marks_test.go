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
	noon               = "2026-03-01T12:00:00Z"
	onePM              = "2026-03-01T13:00:00Z"
)

// newChosenWorld returns a world with machines that the cluster autoscaler has chosen for deletion.
func newChosenWorld(
	t *testing.T,
	trigger string,
	machines ...*v1alpha1.Machine,
) (*activitiestest.World, *v1alpha1.MachineDeployment) {
	t.Helper()
	d := activitiestest.Deployment("d", 3)
	d.Annotations = map[string]string{triggerAnnotation: trigger, "team": "shop"}
	w := activitiestest.NewWorld(t, d)
	for _, m := range machines {
		w.Create(m)
	}
	w.Settle()
	w.Forget()
	return w, d
}

func newMarks(d *v1alpha1.MachineDeployment, trigger *rollout.Trigger, machines ...*v1alpha1.Machine) deployment.Marks {
	in := deployment.Marks{Deployment: activitiestest.Ref(d), Version: d.ResourceVersion, Trigger: trigger}
	for _, t := range targetsOf(machines...) {
		in.Mark = append(in.Mark, rollout.Mark{Target: t, At: noon})
	}
	return in
}

func withAnnotations(pairs map[string]string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Annotations = pairs }
}

func TestMarkMachines(t *testing.T) {
	t.Parallel()
	t.Run("what is named goes first, and the list takes the new form afterwards", func(t *testing.T) {
		w, d := newChosenWorld(
			t,
			"m",
			activitiestest.Machine("m", withAnnotations(map[string]string{priorityAnnotation: "3", "note": "x"})),
		)
		versions, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMarks(d, &rollout.Trigger{At: noon}, w.Machine("m")),
		)
		require.NoError(t, err)
		m, after := w.Machine("m"), w.Deployment("d")
		assert.Equal(t, map[string]string{priorityAnnotation: "1", markedAtAnnotation: noon, "note": "x"}, m.Annotations)
		assert.Equal(t, map[string]string{triggerAnnotation: "m~" + noon, "team": "shop"}, after.Annotations)
		assert.Equal(
			t,
			kube.MinVersions{cache.Machines: m.ResourceVersion, cache.Deployments: after.ResourceVersion},
			versions,
		)
		assert.Equal(t, []string{"update machines", "patch machinedeployments"}, w.Writes())
	})
	t.Run("what is done is not done again, and an empty list goes", func(t *testing.T) {
		w, d := newChosenWorld(
			t,
			"gone~"+noon,
			activitiestest.Machine("m", withAnnotations(map[string]string{priorityAnnotation: "1", markedAtAnnotation: noon})),
		)
		in := newMarks(d, &rollout.Trigger{Drop: []string{"gone"}}, w.Machine("m"))
		_, err := activitiestest.Run[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "shop"}, w.Deployment("d").Annotations)
		assert.Equal(t, []string{"patch machinedeployments"}, w.Writes())
		in.Trigger = nil
		activitiestest.Twice[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
	})
	t.Run("one with the priority alone gets the time", func(t *testing.T) {
		w, d := newChosenWorld(
			t,
			"m~"+noon,
			activitiestest.Machine("m", withAnnotations(map[string]string{priorityAnnotation: "1"})),
		)
		_, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMarks(d, nil, w.Machine("m")),
		)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{priorityAnnotation: "1", markedAtAnnotation: noon}, w.Machine("m").Annotations)
	})
	t.Run("what is named no more is let off, and no trace is left", func(t *testing.T) {
		w, d := newChosenWorld(
			t,
			"",
			activitiestest.Machine(
				"m",
				withAnnotations(map[string]string{priorityAnnotation: "1", markedAtAnnotation: noon, "note": "x"}),
			),
		)
		in := deployment.Marks{
			Deployment: activitiestest.Ref(d),
			Version:    d.ResourceVersion,
			Unmark:     targetsOf(w.Machine("m")),
		}
		_, err := activitiestest.Run[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"note": "x"}, w.Machine("m").Annotations)
		in.Unmark = targetsOf(w.Machine("m"))
		activitiestest.Twice[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		assert.Equal(t, []string{"update machines"}, w.Writes())
	})
	t.Run("a machine that is gone is passed over", func(t *testing.T) {
		w, d := newChosenWorld(t, "gone~"+noon)
		_, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMarks(d, &rollout.Trigger{Drop: []string{"gone"}}, activitiestest.Machine("gone")),
		)
		require.NoError(t, err)
		assert.NotContains(t, w.Deployment("d").Annotations, triggerAnnotation)
	})
}

func TestMarkMachinesFails(t *testing.T) {
	t.Parallel()
	list := &rollout.Trigger{At: noon}
	t.Run("a machine changed: the other is marked, and the list still says what is to be done", func(t *testing.T) {
		w, d := newChosenWorld(t, "a,b", activitiestest.Machine("a"), activitiestest.Machine("b"))
		in := newMarks(d, list, w.Machine("a"), w.Machine("b"))
		w.Edit(cache.Machines, "a", activitiestest.Annotated("x", "y"))
		_, err := activitiestest.Run[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
		assert.NotContains(t, w.Machine("a").Annotations, priorityAnnotation)
		assert.Equal(t, "1", w.Machine("b").Annotations[priorityAnnotation])
		assert.Equal(t, "a,b", w.Deployment("d").Annotations[triggerAnnotation])
		_, err = activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMarks(d, list, w.Machine("a"), w.Machine("b")),
		)
		require.NoError(t, err)
		assert.Equal(t, noon, w.Machine("a").Annotations[markedAtAnnotation])
		assert.Equal(t, "a~"+noon+",b~"+noon, w.Deployment("d").Annotations[triggerAnnotation])
	})
	t.Run("the autoscaler named others meanwhile", func(t *testing.T) {
		w, d := newChosenWorld(t, "a", activitiestest.Machine("a"), activitiestest.Machine("b"))
		in := newMarks(d, &rollout.Trigger{At: noon}, w.Machine("a"))
		w.Edit(cache.Deployments, "d", activitiestest.Annotated(triggerAnnotation, "b~"+onePM))
		_, err := activitiestest.Run[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
		assert.Equal(t, "b~"+onePM, w.Deployment("d").Annotations[triggerAnnotation])
	})
	t.Run("the deployment is gone, or another one has its name", func(t *testing.T) {
		w, d := newChosenWorld(t, "a", activitiestest.Machine("a"))
		in := newMarks(activitiestest.Deployment("other", 1), list)
		_, err := activitiestest.Run[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.TypeObjectGone, false)
		in = newMarks(d, list)
		in.Deployment = activitiestest.Stranger(d)
		_, err = activitiestest.Run[kube.MinVersions](w, newActivities(w.Kube).MarkMachines, in)
		activitiestest.AssertFailure(t, err, kube.TypeObjectGone, false)
		assert.Equal(t, "a", w.Deployment("d").Annotations[triggerAnnotation])
	})
	t.Run("the list cannot be written for now: the marks stay", func(t *testing.T) {
		w, d := newChosenWorld(t, "a", activitiestest.Machine("a"))
		activitiestest.Failing(w.Machines, "patch", "machinedeployments", 1, apierrors.NewTooManyRequests("later", 1), nil)
		_, err := activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMarks(d, list, w.Machine("a")),
		)
		require.ErrorContains(t, err, "later")
		assert.Equal(t, "1", w.Machine("a").Annotations[priorityAnnotation])
		_, err = activitiestest.Run[kube.MinVersions](
			w,
			newActivities(w.Kube).MarkMachines,
			newMarks(d, list, w.Machine("a")),
		)
		require.NoError(t, err)
	})
}
