package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

func asksBack(d *v1alpha1.MachineDeployment) {
	d.Spec.RollbackTo = &v1alpha1.RollbackConfig{Revision: 1}
	d.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
	d.Spec.Template.Annotations = map[string]string{"team": "shop", "version": "2"}
	d.Spec.Template.Spec.Class.Name = "large"
	d.Annotations = map[string]string{v1alpha1.AnnotationRevision: "2"}
}

func backTo(d *v1alpha1.MachineDeployment, s *v1alpha1.MachineSet) activities.RollBack {
	return activities.RollBack{Deployment: ref(d), Version: d.ResourceVersion, Rollback: rollout.Rollback{
		Set: &rollout.Target{Name: s.Name, UID: string(s.UID), Version: s.ResourceVersion}, Revision: 1,
		Reason: "DeploymentRollback", Why: "return to revision 1, set " + s.Name,
	}}
}

func TestU11_RollBackDeployment(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3, asksBack)
	former := set("d-1", 0, ownedBy[*v1alpha1.MachineSet](d), ofTemplate("111", "small"))
	t.Run("the template returns, all in one write", func(t *testing.T) {
		w := newWorld(t, d, former)
		gate := twice[activities.Gate](w, w.RollBackDeployment, backTo(d, former))
		got := w.deployment("d")
		assert.Equal(t, activities.Gate{observe.Deployments: got.ResourceVersion}, gate)
		assert.Nil(t, got.Spec.RollbackTo)
		assert.Equal(t, template(), got.Spec.Template, "labels and annotations that it had not are gone, and so is the hash")
		assert.True(t, observe.SameTemplate(&former.Spec.Template, &got.Spec.Template))
		assert.Equal(t, []string{"update machinedeployments"}, w.writes())
		assert.Equal(t, []string{"Normal DeploymentRollback return to revision 1, set d-1"}, w.told())
		assert.Equal(t, former.Spec, w.set("d-1").Spec)
	})
	t.Run("also when the status of the set changed", func(t *testing.T) {
		w := newWorld(t, d, former)
		w.edit(observe.Sets, "d-1", annotated("x", "y"))
		_, err := run[activities.Gate](w, w.RollBackDeployment, backTo(d, former))
		require.NoError(t, err)
		assert.Equal(t, "small", w.deployment("d").Spec.Template.Spec.Class.Name)
	})
	t.Run("one that nobody asked for returns once", func(t *testing.T) {
		silent := deployment("d", 3, asksBack, func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = nil })
		w := newWorld(t, silent, former)
		in := backTo(silent, former)
		in.Rollback.Automatic = true
		_, err := run[activities.Gate](w, w.RollBackDeployment, in)
		require.NoError(t, err)
		assert.Equal(t, "small", w.deployment("d").Spec.Template.Spec.Class.Name)
		gate, err := run[activities.Gate](w, w.RollBackDeployment, in)
		require.NoError(t, err, "it is done already")
		assert.Equal(t, activities.Gate{observe.Deployments: w.deployment("d").ResourceVersion}, gate)
		assert.Len(t, w.told(), 1)
		assert.Len(t, w.writes(), 1)
	})
	for _, reason := range []string{"DeploymentRollbackRevisionNotFound", "DeploymentRollbackTemplateUnchanged"} {
		t.Run("nothing to return to: "+reason, func(t *testing.T) {
			w := newWorld(t, d, former)
			in := activities.RollBack{Deployment: ref(d), Version: d.ResourceVersion, Rollback: rollout.Rollback{Revision: 1, Reason: reason, Why: "so it is"}}
			twice[activities.Gate](w, w.RollBackDeployment, in)
			got := w.deployment("d")
			assert.Nil(t, got.Spec.RollbackTo)
			assert.Equal(t, d.Spec.Template, got.Spec.Template)
			assert.Equal(t, d.Annotations, got.Annotations)
			assert.Equal(t, []string{"Warning " + reason + " so it is"}, w.told())
		})
	}
}

func TestRollBackDeploymentIsRefused(t *testing.T) {
	t.Parallel()
	d := deployment("d", 3, asksBack)
	former := set("d-1", 0, ownedBy[*v1alpha1.MachineSet](d), ofTemplate("111", "small"))
	for name, row := range map[string]struct {
		deployment *v1alpha1.MachineDeployment
		set        *v1alpha1.MachineSet
		before     func(*world)
		kind       string
	}{
		"the deployment changed": {d, former, func(w *world) {
			w.edit(observe.Deployments, "d", map[string]any{"spec": map[string]any{"replicas": 5}})
		}, activities.TypeConflict},
		"the deployment is going": {deployment("d", 3, asksBack, going[*v1alpha1.MachineDeployment]), former, nil, activities.TypeConflict},
		"the deployment is gone":  {deployment("other", 3, asksBack), former, nil, activities.TypeObjectGone},
		"the set is going":        {d, set("d-1", 0, going[*v1alpha1.MachineSet]), nil, activities.TypeConflict},
		"the set is gone":         {d, set("d-2", 0), nil, activities.TypeConflict},
		"another set has its name": {
			d, set("d-1", 0, func(s *v1alpha1.MachineSet) { s.UID = "uid-other" }), nil, activities.TypeConflict,
		},
		"admission refuses it": {d, former, func(w *world) {
			failing(w.machines, "update", "machinedeployments", 1, apierrors.NewForbidden(schema.GroupResource{Resource: "machinedeployments"}, "d", nil), nil)
		}, activities.TypeRefused},
		"the deployment changes at the last moment": {d, former, func(w *world) {
			failing(w.machines, "update", "machinedeployments", 1, nil, func() { w.edit(observe.Deployments, "d", annotated("x", "y")) })
		}, activities.TypeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.deployment, row.set)
			if row.before != nil {
				row.before(w)
			}
			_, err := run[activities.Gate](w, w.RollBackDeployment, backTo(d, former))
			assertFailure(t, err, row.kind, false)
			assert.Empty(t, w.told())
			assert.NotNil(t, w.deployment(row.deployment.Name).Spec.RollbackTo, "it is still asked for")
			assert.Equal(t, "large", w.deployment(row.deployment.Name).Spec.Template.Spec.Class.Name)
		})
	}
	t.Run("the set cannot be read for now", func(t *testing.T) {
		w := newWorld(t, d, former)
		failing(w.machines, "get", "machinesets", 1, apierrors.NewTooManyRequests("later", 1), nil)
		_, err := run[activities.Gate](w, w.RollBackDeployment, backTo(d, former))
		require.ErrorContains(t, err, "get set shop/d-1: later")
		assert.Empty(t, w.writes())
	})
	t.Run("somebody wants something else than an automatic one", func(t *testing.T) {
		silent := deployment("d", 3, asksBack, func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = nil })
		in := backTo(silent, former)
		in.Rollback.Automatic = true
		for _, change := range []map[string]any{
			anotherClass(), {"spec": map[string]any{"paused": true}}, {"spec": map[string]any{"rollbackTo": map[string]any{"revision": 0}}}, annotated("hold", "7"),
		} {
			w := newWorld(t, silent, former)
			w.edit(observe.Deployments, "d", change)
			w.forget()
			_, err := run[activities.Gate](w, w.RollBackDeployment, in)
			assertFailure(t, err, activities.TypeConflict, false)
			assert.Empty(t, w.writes())
		}
	})
	t.Run("somebody took the wish back", func(t *testing.T) {
		w := newWorld(t, d, former)
		w.edit(observe.Deployments, "d", map[string]any{"spec": map[string]any{"rollbackTo": nil}})
		_, err := run[activities.Gate](w, w.RollBackDeployment, backTo(d, former))
		assertFailure(t, err, activities.TypeConflict, false)
		assert.Empty(t, w.writes())
		assert.Empty(t, w.told())
	})
}
