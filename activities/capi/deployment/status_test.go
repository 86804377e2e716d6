package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi/deployment"
	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	requests "millwright/activities/request"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	observed "millwright/observe/capi/deployment"
)

// The status counts the machines that were read. The rollout record and the current operation are in annotations. The
// status and the annotations are each written once.
func TestReportIsSavedFormattedAndCompared(t *testing.T) {
	d, objects := newDeploymentInRollout()
	w, a := newWorld(t, objects...)
	in := activities.Report{
		Input:  newDecisionInput(d, true),
		Record: &rollout.Progress{Revision: 2, Step: 1, Failed: []string{"c"}},
		Step: &kube.Step{
			WorkflowID: "rollout-1",
			RolloutOf:  string(d.UID),
			Name:       "roll",
			Since:      time.Now(),
			Cause:      "it takes time",
		},
	}
	in.WorkflowID = "rollout-1"
	reportDeploymentTwice(w, a, d, in)
	after := w.ClusterAPIDeployment("d")
	assert.Equal(
		t,
		[]int32{3, 3, 3, 1},
		[]int32{
			*after.Status.Replicas,
			*after.Status.ReadyReplicas,
			*after.Status.AvailableReplicas,
			*after.Status.UpToDateReplicas,
		},
	)
	assert.EqualValues(t, 1, after.Status.ObservedGeneration)
	assert.Equal(
		t,
		&v1alpha1.RolloutStatus{Revision: 2, Step: 1, Steps: []v1alpha1.RolloutStep{}, FailedMachines: []string{"c"}},
		observed.RecordedRollout(after),
	)
	assert.Equal(t, "rollout-1", observed.CurrentRolloutID(after))
	assert.Equal(t, "it takes time", observed.CurrentOperation(after).WaitsFor)
	assert.Equal(t, []string{"patch machinedeployments", "patch machinedeployments/status"}, w.MutatingRequests())
	for _, kind := range []string{"Available", "Progressing", "RollingOut", "MachinesReady", "Deleting", "Paused"} {
		assert.NotEmpty(t, capi.ConditionOfType(after.Status.Conditions, kind).Type, kind)
	}

	t.Run("another workflow must not write while a rollout is named", func(t *testing.T) {
		_, err := activitiestest.RunActivity[string](
			w,
			a.ReportClusterAPIDeployment,
			activities.Report{Input: newDecisionInput(d, true)},
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	})
	t.Run("it may once the rollout is over", func(t *testing.T) {
		in := activities.Report{Input: newDecisionInput(d, true)}
		in.Over = "rollout-1"
		reportDeploymentTwice(w, a, d, in)
		assert.Nil(t, observed.CurrentOperation(w.ClusterAPIDeployment("d")))
		assert.NotNil(t, observed.RecordedRollout(w.ClusterAPIDeployment("d")), "the record stays")
	})
}

func TestReportOfGoneDeploymentWritesNothing(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	for name, has := range map[string][]runtime.Object{"gone": nil, "handed over": {capitest.NewPreparedDeployment(3, withOtherController)}} {
		w, a := newWorld(t, has...)
		_, err := activitiestest.RunActivity[string](
			w,
			a.ReportClusterAPIDeployment,
			activities.Report{Input: newDecisionInput(d, true)},
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
		assert.Empty(t, w.MutatingRequests(), name)
	}
}

// If the API server refuses to create a set, the condition Progressing reports the refusal, and the deployment is
// Blocked.
func TestReportShowsRefusedSetCreation(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	w, a := newWorld(t, d)
	reportDeploymentTwice(w, a, d, activities.Report{Input: newDecisionInput(d, true), NoSet: "quota"})
	c := capi.ConditionOfType(w.ClusterAPIDeployment("d").Status.Conditions, "Progressing")
	assert.Equal(t, []string{"False", "MachineSetCreateError", "quota"}, []string{string(c.Status), c.Reason, c.Message})
	assert.Equal(t, "Refused", capi.ConditionOfType(w.ClusterAPIDeployment("d").Status.Conditions, "Blocked").Reason)
}

func finalizeDeployment(w *activitiestest.World, d *clusterv1.MachineDeployment) (string, error) {
	w.T.Helper()
	a := &deployment.Activities{Kube: w.Kube, Cache: w.ClusterAPICache}
	return activitiestest.RunActivity[string](w, a.FinalizeClusterAPIDeployment, newDecisionInput(d, true).ReadInput)
}

func TestFinalizeClusterAPIDeployment(t *testing.T) {
	t.Run("a new one is prepared", func(t *testing.T) {
		d := capitest.NewPreparedDeployment(3, func(d *clusterv1.MachineDeployment) {
			d.Finalizers, d.OwnerReferences = []string{clusterv1.MachineDeploymentFinalizer}, nil
		}, capitest.WithPausedCondition[*clusterv1.MachineDeployment])
		w, a := newWorld(t, d)
		activitiestest.RunActivityTwice[string](w, a.FinalizeClusterAPIDeployment, newDecisionInput(d, true).ReadInput)
		after := w.ClusterAPIDeployment("d")
		assert.Equal(t, []string{capi.Finalizer}, after.Finalizers)
		assert.Equal(t, capitest.NewPreparedDeployment(3).OwnerReferences, after.OwnerReferences)
	})
	t.Run("one that is being deleted keeps it while a set is left", func(t *testing.T) {
		d := capitest.NewPreparedDeployment(3, capitest.AsDeletingObject[*clusterv1.MachineDeployment])
		w, _ := newWorld(t, d, capitest.NewSetOfDeployment(d, "s", 0, 1))
		_, err := finalizeDeployment(w, d)
		require.NoError(t, err)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("and loses it then", func(t *testing.T) {
		d := capitest.NewPreparedDeployment(3, capitest.AsDeletingObject[*clusterv1.MachineDeployment])
		w, _ := newWorld(t, d)
		_, err := finalizeDeployment(w, d)
		require.NoError(t, err)
		assert.Nil(t, w.ClusterAPIDeployment("d"))
	})
	t.Run("one that was handed over gives its sets its new label first", func(t *testing.T) {
		d := capitest.NewPreparedDeployment(
			3,
			withOtherController,
			capitest.WithAnnotation[*clusterv1.MachineDeployment](v1alpha1.AnnotationOperation, `{"step":"roll"}`),
		)
		other := capitest.NewSetOfDeployment(d, "other", 1, 1, capitest.WithoutOwner[*clusterv1.MachineSet])
		w, a := newWorld(
			t,
			d,
			capitest.NewSetOfDeployment(d, "s", 1, 1),
			capitest.NewSetOfDeployment(d, "r", 0, 1, func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "mine" }),
			other,
		)
		_, err := activitiestest.RunActivity[string](w, a.FinalizeClusterAPIDeployment, newDecisionInput(d, true).ReadInput)
		require.NoError(t, err)
		assert.Equal(t, []string{"patch machinesets", "patch machinedeployments"}, w.MutatingRequests())
		assert.Equal(t, "theirs", w.ClusterAPISet("s").Labels[clusterv1.WatchLabel])
		assert.NotContains(t, w.ClusterAPISet("s").Annotations, v1alpha1.AnnotationFormerReplicas)
		assert.Equal(t, "mine", w.ClusterAPISet("r").Labels[clusterv1.WatchLabel], "another value stays")
		assert.Equal(t, other, w.ClusterAPISet("other"))
		after := w.ClusterAPIDeployment("d")
		assert.Empty(t, after.Finalizers)
		assert.NotContains(t, after.Annotations, v1alpha1.AnnotationOperation)
		assert.Equal(t, d.Spec, after.Spec)
	})
	t.Run("one without the label takes it away", func(t *testing.T) {
		d := capitest.NewPreparedDeployment(
			3,
			func(d *clusterv1.MachineDeployment) { delete(d.Labels, clusterv1.WatchLabel) },
		)
		w, _ := newWorld(t, d, capitest.NewSetOfDeployment(d, "s", 1, 1))
		_, err := finalizeDeployment(w, d)
		require.NoError(t, err)
		assert.NotContains(t, w.ClusterAPISet("s").Labels, clusterv1.WatchLabel)
	})
}

// A rollback restores a former template in one write, and only if the templates of the former set exist.
func TestRollBackClusterAPIDeployment(t *testing.T) {
	asked := capitest.WithAnnotation[*clusterv1.MachineDeployment](v1alpha1.AnnotationRollbackTo, "1")
	d, objects := newDeploymentInRollout(asked)
	former := objects[1].(*clusterv1.MachineSet)
	order := func(set *rollout.ObjectTarget, reason string) activities.RollbackInput {
		return activities.RollbackInput{
			Deployment: activitiestest.NewRef(d),
			Version:    d.ResourceVersion,
			Rollback:   rollout.Rollback{Set: set, Revision: 1, Reason: reason, Why: "because"},
		}
	}
	t.Run("it returns", func(t *testing.T) {
		w, a := newWorld(t, objects...)
		activitiestest.RunActivityTwice[kube.MinVersions](
			w,
			a.RollBackClusterAPIDeployment,
			order(new(newSetTarget(former)), "DeploymentRollback"),
		)
		after := w.ClusterAPIDeployment("d")
		assert.Equal(t, "v1.30.0", after.Spec.Template.Spec.Version)
		assert.NotContains(t, after.Annotations, v1alpha1.AnnotationRollbackTo)
		assert.Equal(t, []string{"patch machinedeployments"}, w.MutatingRequests())
		assert.Equal(t, []string{"Normal DeploymentRollback because"}, w.TakeNewEvents())
	})
	t.Run("there is nothing to return to", func(t *testing.T) {
		w, a := newWorld(t, objects...)
		activitiestest.RunActivityTwice[kube.MinVersions](
			w,
			a.RollBackClusterAPIDeployment,
			order(nil, "DeploymentRollbackTemplateNotFound"),
		)
		assert.Equal(t, d.Spec, w.ClusterAPIDeployment("d").Spec)
		assert.NotContains(t, w.ClusterAPIDeployment("d").Annotations, v1alpha1.AnnotationRollbackTo)
		assert.Equal(t, []string{"Warning DeploymentRollbackTemplateNotFound because"}, w.TakeNewEvents())
	})
	t.Run("a template went away since the decision", func(t *testing.T) {
		gone := former.DeepCopy()
		gone.Spec.Template.Spec.InfrastructureRef.Name = "gone"
		w, a := newWorld(t, d, gone)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			a.RollBackClusterAPIDeployment,
			order(new(newSetTarget(gone)), "DeploymentRollback"),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests())
		next := decideDeployment(w, d)
		require.NotNil(t, next.Rollout.Rollback)
		assert.Equal(
			t,
			"revision 1 cannot return: ExampleMachineTemplate shop/gone does not exist any more",
			next.Rollout.Rollback.Why,
		)
		assert.Nil(t, next.Rollout.Rollback.Set)
	})
	t.Run("the set goes", func(t *testing.T) {
		going := former.DeepCopy()
		capitest.AsDeletingObject(going)
		w, a := newWorld(t, d, going)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			a.RollBackClusterAPIDeployment,
			order(new(newSetTarget(going)), "DeploymentRollback"),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
		assert.Empty(t, w.MutatingRequests())
	})
}

// A request is written once and recorded as an event. If the activity refuses the request, the result contains the
// refusal, and the activity returns no error.
func TestApplyClusterAPIRequest(t *testing.T) {
	for _, row := range []struct {
		name  string
		order request.CommandOrder
		says  string
		check func(*testing.T, *clusterv1.MachineDeployment)
	}{
		{"pause", request.CommandOrder{Command: request.Pause, Actor: "ann"}, "deployment shop/d is paused", func(t *testing.T, d *clusterv1.MachineDeployment) {
			assert.True(t, capi.ValueOrZero(d.Spec.Paused))
		}},
		{"start", request.CommandOrder{Command: request.Start, Actor: "ann"}, "wrote 2100-03-01T12:00:00Z into spec.rollout.after of deployment shop/d: all its machines are replaced", func(t *testing.T, d *clusterv1.MachineDeployment) {
			assert.Equal(t, "2100-03-01T12:00:00Z", d.Spec.Rollout.After.UTC().Format(time.RFC3339))
		}},
		{"cancel", request.CommandOrder{Command: request.Cancel, Actor: "ann", Reason: "bad"}, "the rollout of revision 2 of deployment shop/d is held where it is", func(t *testing.T, d *clusterv1.MachineDeployment) {
			assert.Equal(t, "2 ann: bad", d.Annotations[v1alpha1.AnnotationRolloutHold])
		}},
		{"undo", request.CommandOrder{Command: request.Undo, Actor: "ann"}, "deployment shop/d returns from revision 2 to revision 1", func(t *testing.T, d *clusterv1.MachineDeployment) {
			assert.Equal(t, "1", d.Annotations[v1alpha1.AnnotationRollbackTo])
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, objects := newDeploymentInRollout()
			w, a := newWorld(t, objects...)
			answer := activitiestest.RunActivityTwice[requests.Answer](
				w,
				a.ApplyClusterAPIRequest,
				activitiestest.NewClusterAPIRequest(d, row.order),
			)
			after := w.ClusterAPIDeployment("d")
			row.check(t, after)
			assert.Equal(t, requests.Answer{Applied: true, Message: row.says, Version: after.ResourceVersion}, answer)
			assert.Equal(t, "2100-03-01T12:00:00.5Z "+row.order.Summary(), after.Annotations[v1alpha1.AnnotationLastRequest])
			assert.Equal(t, []string{"patch machinedeployments"}, w.MutatingRequests())
			assert.Equal(t, []string{"Normal RequestApplied " + row.order.Summary() + "; " + row.says}, w.TakeNewEvents())
		})
	}
	t.Run("refused", func(t *testing.T) {
		d, objects := newDeploymentInRollout()
		objects[1].(*clusterv1.MachineSet).Spec.Template.Spec.InfrastructureRef.Name = "gone"
		w, a := newWorld(t, objects...)
		answer, err := activitiestest.RunActivity[requests.Answer](
			w,
			a.ApplyClusterAPIRequest,
			activitiestest.NewClusterAPIRequest(d, request.CommandOrder{Command: request.Undo}),
		)
		require.NoError(t, err)
		assert.Equal(
			t,
			requests.Answer{
				Message: "revision 1 of deployment shop/d cannot return: ExampleMachineTemplate shop/gone does not exist any more",
			},
			answer,
		)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("of a deployment that is not Millwright's", func(t *testing.T) {
		d := capitest.NewPreparedDeployment(3, withOtherController, withoutFinalizers)
		w, a := newWorld(t, d)
		answer, err := activitiestest.RunActivity[requests.Answer](
			w,
			a.ApplyClusterAPIRequest,
			activitiestest.NewClusterAPIRequest(d, request.CommandOrder{Command: request.Pause}),
		)
		require.NoError(t, err)
		assert.Equal(t, requests.Answer{Message: "object shop/d is gone"}, answer)
		assert.Empty(t, w.MutatingRequests())
	})
}

// Neither a decision nor a report changes a cached object.
func TestNoActivityChangesACachedObject(t *testing.T) {
	d, objects := newDeploymentInRollout(
		capitest.WithAnnotation[*clusterv1.MachineDeployment](v1alpha1.AnnotationRollbackTo, "1"),
		func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.MinReadySeconds = new(int32(7))
		},
	)
	w, a := newWorld(t, objects...)
	decideDeployment(w, d) // starts the informers of the templates
	before := w.CachedObjects()
	require.NotEmpty(t, before)
	w.HoldEvents()
	_, err := activitiestest.RunActivity[activities.Decision](w, a.DecideClusterAPIDeployment, newDecisionInput(d, false))
	require.NoError(t, err)
	_, err = activitiestest.RunActivity[string](
		w,
		a.ReportClusterAPIDeployment,
		activities.Report{Input: newDecisionInput(d, false)},
	)
	require.NoError(t, err)
	for was, is := range before {
		assert.Equal(t, was, is)
	}
}
