package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

const (
	triggerOfScaler = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	priorityOf      = "machinepriority.machine.sapcloud.io"
	markedAt        = "machine.sapcloud.io/marked-for-deletion-time"
	noon            = "2026-03-01T12:00:00Z"
	one             = "2026-03-01T13:00:00Z"
)

// chosenWorld is one in which the cluster autoscaler has named machines.
func chosenWorld(t *testing.T, trigger string, machines ...*v1alpha1.Machine) (*world, *v1alpha1.MachineDeployment) {
	t.Helper()
	d := deployment("d", 3)
	d.Annotations = map[string]string{triggerOfScaler: trigger, "team": "shop"}
	w := newWorld(t, d)
	for _, m := range machines {
		w.create(m)
	}
	w.settle()
	w.forget()
	return w, d
}

func marks(d *v1alpha1.MachineDeployment, trigger *rollout.Trigger, machines ...*v1alpha1.Machine) activities.Marks {
	in := activities.Marks{Deployment: ref(d), Version: d.ResourceVersion, Trigger: trigger}
	for _, t := range aimed(machines...) {
		in.Mark = append(in.Mark, rollout.Mark{Target: t, At: noon})
	}
	return in
}

func annotatedWith(pairs map[string]string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Annotations = pairs }
}

func TestMarkMachines(t *testing.T) {
	t.Parallel()
	t.Run("U13, U17: what is named goes first, and the list takes the new form afterwards", func(t *testing.T) {
		w, d := chosenWorld(t, "m", machine("m", annotatedWith(map[string]string{priorityOf: "3", "note": "x"})))
		gate, err := run[activities.Gate](w, w.MarkMachines, marks(d, &rollout.Trigger{At: noon}, w.machine("m")))
		require.NoError(t, err)
		m, after := w.machine("m"), w.deployment("d")
		assert.Equal(t, map[string]string{priorityOf: "1", markedAt: noon, "note": "x"}, m.Annotations)
		assert.Equal(t, map[string]string{triggerOfScaler: "m~" + noon, "team": "shop"}, after.Annotations)
		assert.Equal(t, activities.Gate{observe.Machines: m.ResourceVersion, observe.Deployments: after.ResourceVersion}, gate)
		assert.Equal(t, []string{"update machines", "patch machinedeployments"}, w.writes())
	})
	t.Run("U16: what is done is not done again, and an empty list goes", func(t *testing.T) {
		w, d := chosenWorld(t, "gone~"+noon, machine("m", annotatedWith(map[string]string{priorityOf: "1", markedAt: noon})))
		in := marks(d, &rollout.Trigger{Drop: []string{"gone"}}, w.machine("m"))
		_, err := run[activities.Gate](w, w.MarkMachines, in)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "shop"}, w.deployment("d").Annotations)
		assert.Equal(t, []string{"patch machinedeployments"}, w.writes())
		in.Trigger = nil
		twice[activities.Gate](w, w.MarkMachines, in)
	})
	t.Run("U13: one with the priority alone gets the time", func(t *testing.T) {
		w, d := chosenWorld(t, "m~"+noon, machine("m", annotatedWith(map[string]string{priorityOf: "1"})))
		_, err := run[activities.Gate](w, w.MarkMachines, marks(d, nil, w.machine("m")))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{priorityOf: "1", markedAt: noon}, w.machine("m").Annotations)
	})
	t.Run("N19: what is named no more is let off, and no trace is left", func(t *testing.T) {
		w, d := chosenWorld(t, "", machine("m", annotatedWith(map[string]string{priorityOf: "1", markedAt: noon, "note": "x"})))
		in := activities.Marks{Deployment: ref(d), Version: d.ResourceVersion, Unmark: aimed(w.machine("m"))}
		_, err := run[activities.Gate](w, w.MarkMachines, in)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"note": "x"}, w.machine("m").Annotations)
		in.Unmark = aimed(w.machine("m"))
		twice[activities.Gate](w, w.MarkMachines, in)
		assert.Equal(t, []string{"update machines"}, w.writes())
	})
	t.Run("N19: a machine that is gone is passed over", func(t *testing.T) {
		w, d := chosenWorld(t, "gone~"+noon)
		_, err := run[activities.Gate](w, w.MarkMachines, marks(d, &rollout.Trigger{Drop: []string{"gone"}}, machine("gone")))
		require.NoError(t, err)
		assert.NotContains(t, w.deployment("d").Annotations, triggerOfScaler)
	})
}

func TestMarkMachinesFails(t *testing.T) {
	t.Parallel()
	list := &rollout.Trigger{At: noon}
	t.Run("a machine changed: the other is marked, and the list still says what is to be done", func(t *testing.T) {
		w, d := chosenWorld(t, "a,b", machine("a"), machine("b"))
		in := marks(d, list, w.machine("a"), w.machine("b"))
		w.edit(observe.Machines, "a", annotated("x", "y"))
		_, err := run[activities.Gate](w, w.MarkMachines, in)
		assertFailure(t, err, activities.TypeConflict, false)
		assert.NotContains(t, w.machine("a").Annotations, priorityOf)
		assert.Equal(t, "1", w.machine("b").Annotations[priorityOf])
		assert.Equal(t, "a,b", w.deployment("d").Annotations[triggerOfScaler])
		_, err = run[activities.Gate](w, w.MarkMachines, marks(d, list, w.machine("a"), w.machine("b")))
		require.NoError(t, err)
		assert.Equal(t, noon, w.machine("a").Annotations[markedAt])
		assert.Equal(t, "a~"+noon+",b~"+noon, w.deployment("d").Annotations[triggerOfScaler])
	})
	t.Run("the autoscaler named others meanwhile", func(t *testing.T) {
		w, d := chosenWorld(t, "a", machine("a"), machine("b"))
		in := marks(d, &rollout.Trigger{At: noon}, w.machine("a"))
		w.edit(observe.Deployments, "d", annotated(triggerOfScaler, "b~"+one))
		_, err := run[activities.Gate](w, w.MarkMachines, in)
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Equal(t, "b~"+one, w.deployment("d").Annotations[triggerOfScaler])
	})
	t.Run("the deployment is gone, or another one has its name", func(t *testing.T) {
		w, d := chosenWorld(t, "a", machine("a"))
		in := marks(deployment("other", 1), list)
		_, err := run[activities.Gate](w, w.MarkMachines, in)
		assertFailure(t, err, activities.TypeObjectGone, false)
		in = marks(d, list)
		in.Deployment = stranger(d)
		_, err = run[activities.Gate](w, w.MarkMachines, in)
		assertFailure(t, err, activities.TypeObjectGone, false)
		assert.Equal(t, "a", w.deployment("d").Annotations[triggerOfScaler])
	})
	t.Run("the list cannot be written for now: the marks stay", func(t *testing.T) {
		w, d := chosenWorld(t, "a", machine("a"))
		failing(w.machines, "patch", "machinedeployments", 1, apierrors.NewTooManyRequests("later", 1), nil)
		_, err := run[activities.Gate](w, w.MarkMachines, marks(d, list, w.machine("a")))
		require.ErrorContains(t, err, "later")
		assert.Equal(t, "1", w.machine("a").Annotations[priorityOf])
		_, err = run[activities.Gate](w, w.MarkMachines, marks(d, list, w.machine("a")))
		require.NoError(t, err)
	})
}
