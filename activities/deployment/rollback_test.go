package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	observeset "millwright/observe/set"
)

func withRollbackRequest(d *v1alpha1.MachineDeployment) {
	d.Spec.RollbackTo = &v1alpha1.RollbackConfig{Revision: 1}
	d.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
	d.Spec.Template.Annotations = map[string]string{"team": "shop", "version": "2"}
	d.Spec.Template.Spec.Class.Name = "large"
	d.Annotations = map[string]string{v1alpha1.AnnotationRevision: "2"}
}

func newRollbackInput(d *v1alpha1.MachineDeployment, s *v1alpha1.MachineSet) deployment.RollbackInput {
	return deployment.RollbackInput{
		Deployment: activitiestest.NewRef(d),
		Version:    d.ResourceVersion,
		Rollback: rollout.Rollback{
			Set: &rollout.ObjectTarget{Name: s.Name, UID: string(s.UID), Version: s.ResourceVersion}, Revision: 1,
			Reason: "DeploymentRollback", Why: "return to revision 1, set " + s.Name,
		},
	}
}

func TestRollBackDeployment(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3, withRollbackRequest)
	former := activitiestest.NewMachineSet(
		"d-1",
		0,
		activitiestest.WithOwner[*v1alpha1.MachineSet](d),
		withTemplate("111", "small"),
	)
	t.Run("the template returns, all in one write", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, former)
		versions := activitiestest.RunActivityTwice[kube.MinVersions](
			w,
			newActivities(w.Kube).RollBackDeployment,
			newRollbackInput(d, former),
		)
		got := w.Deployment("d")
		assert.Equal(t, kube.MinVersions{cache.DeploymentsResource: got.ResourceVersion}, versions)
		assert.Nil(t, got.Spec.RollbackTo)
		assert.Equal(
			t,
			activitiestest.NewMachineTemplate(),
			got.Spec.Template,
			"labels and annotations that it had not are gone, and so is the hash",
		)
		assert.True(t, observeset.IsSameTemplate(&former.Spec.Template, &got.Spec.Template))
		assert.Equal(t, []string{"patch machinedeployments"}, w.MutatingRequests())
		assert.Equal(t, []string{"Normal DeploymentRollback return to revision 1, set d-1"}, w.TakeNewEvents())
		assert.Equal(t, former.Spec, w.MachineSet("d-1").Spec)
	})
	t.Run("also when the status of the set changed", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, former)
		w.EditObject(cache.SetsResource, "d-1", activitiestest.NewAnnotationPatch("x", "y"))
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).RollBackDeployment,
			newRollbackInput(d, former),
		)
		require.NoError(t, err)
		assert.Equal(t, "small", w.Deployment("d").Spec.Template.Spec.Class.Name)
	})
	for _, reason := range []string{"DeploymentRollbackRevisionNotFound", "DeploymentRollbackTemplateUnchanged"} {
		t.Run("nothing to return to: "+reason, func(t *testing.T) {
			w := activitiestest.NewWorld(t, d, former)
			in := deployment.RollbackInput{
				Deployment: activitiestest.NewRef(d),
				Version:    d.ResourceVersion,
				Rollback:   rollout.Rollback{Revision: 1, Reason: reason, Why: "so it is"},
			}
			activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).RollBackDeployment, in)
			got := w.Deployment("d")
			assert.Nil(t, got.Spec.RollbackTo)
			assert.Equal(t, d.Spec.Template, got.Spec.Template)
			assert.Equal(t, d.Annotations, got.Annotations)
			assert.Equal(t, []string{"Warning " + reason + " so it is"}, w.TakeNewEvents())
		})
	}
}

func TestRollBackDeploymentIsRefused(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3, withRollbackRequest)
	former := activitiestest.NewMachineSet(
		"d-1",
		0,
		activitiestest.WithOwner[*v1alpha1.MachineSet](d),
		withTemplate("111", "small"),
	)
	for name, row := range map[string]struct {
		deployment *v1alpha1.MachineDeployment
		set        *v1alpha1.MachineSet
		before     func(*activitiestest.World)
		kind       string
	}{
		"the deployment changed": {d, former, func(w *activitiestest.World) {
			w.EditObject(cache.DeploymentsResource, "d", map[string]any{"spec": map[string]any{"replicas": 5}})
		}, kube.FailureTypeConflict},
		"the deployment is going": {activitiestest.NewDeployment("d", 3, withRollbackRequest, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment]), former, nil, kube.FailureTypeConflict},
		"the deployment is gone":  {activitiestest.NewDeployment("other", 3, withRollbackRequest), former, nil, kube.FailureTypeObjectGone},
		"the set is going":        {d, activitiestest.NewMachineSet("d-1", 0, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet]), nil, kube.FailureTypeConflict},
		"the set is gone":         {d, activitiestest.NewMachineSet("d-2", 0), nil, kube.FailureTypeConflict},
		"another set has its name": {
			d, activitiestest.NewMachineSet("d-1", 0, func(s *v1alpha1.MachineSet) { s.UID = "uid-other" }), nil, kube.FailureTypeConflict,
		},
		"admission refuses it": {d, former, func(w *activitiestest.World) {
			activitiestest.FailRequests(w.MachineClient, "patch", "machinedeployments", 1, apierrors.NewForbidden(schema.GroupResource{Resource: "machinedeployments"}, "d", nil), nil)
		}, kube.FailureTypeRefused},
		"the deployment changes at the last moment": {d, former, func(w *activitiestest.World) {
			activitiestest.FailRequests(w.MachineClient, "patch", "machinedeployments", 1, nil, func() { w.EditObject(cache.DeploymentsResource, "d", activitiestest.NewAnnotationPatch("x", "y")) })
		}, kube.FailureTypeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, row.deployment, row.set)
			if row.before != nil {
				row.before(w)
			}
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).RollBackDeployment,
				newRollbackInput(d, former),
			)
			activitiestest.AssertFailure(t, err, row.kind, false)
			assert.Empty(t, w.TakeNewEvents())
			assert.NotNil(t, w.Deployment(row.deployment.Name).Spec.RollbackTo, "it is still asked for")
			assert.Equal(t, "large", w.Deployment(row.deployment.Name).Spec.Template.Spec.Class.Name)
		})
	}
	t.Run("the set cannot be read for now", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, former)
		activitiestest.FailRequests(w.MachineClient, "get", "machinesets", 1, apierrors.NewTooManyRequests("later", 1), nil)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).RollBackDeployment,
			newRollbackInput(d, former),
		)
		require.ErrorContains(t, err, "get set shop/d-1: later")
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("somebody took the wish back", func(t *testing.T) {
		w := activitiestest.NewWorld(t, d, former)
		w.EditObject(cache.DeploymentsResource, "d", map[string]any{"spec": map[string]any{"rollbackTo": nil}})
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).RollBackDeployment,
			newRollbackInput(d, former),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests())
		assert.Empty(t, w.TakeNewEvents())
	})
}
