package request_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	activities "millwright/activities/request"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/observe/cache"
)

// machineSetAndItsMachine returns a set of a deployment with the given revision and one machine.
func machineSetAndItsMachine(d *v1alpha1.MachineDeployment, name, class, revision string) []runtime.Object {
	s := activitiestest.NewMachineSet(
		name,
		1,
		activitiestest.WithOwner[*v1alpha1.MachineSet](d),
		func(s *v1alpha1.MachineSet) {
			s.Annotations = map[string]string{
				v1alpha1.AnnotationRevision: revision, v1alpha1.AnnotationDesiredReplicas: "2", v1alpha1.AnnotationMaxReplicas: "3",
			}
			s.Spec.Template.Spec.Class.Name = class
			s.Status.Replicas, s.Status.ObservedReplicas = 1, 1
		},
	)
	return []runtime.Object{
		s,
		activitiestest.NewMachine(
			name+"-a",
			activitiestest.WithPhase(v1alpha1.MachineRunning),
			activitiestest.WithOwner[*v1alpha1.Machine](s),
		),
	}
}

// deploymentInRolloutWithObjects returns a deployment in a rollout from revision 1 to 2. The rollout waits for the
// approval of its only step.
func deploymentInRolloutWithObjects(
	change ...func(*v1alpha1.MachineDeployment),
) (*v1alpha1.MachineDeployment, []runtime.Object) {
	d := activitiestest.NewDeployment(
		"d",
		2,
		append([]func(*v1alpha1.MachineDeployment){func(d *v1alpha1.MachineDeployment) {
			d.Annotations = map[string]string{v1alpha1.AnnotationRevision: "2"}
			d.Status.Rollout = &v1alpha1.RolloutStatus{
				Revision: 2,
				Steps:    []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}},
			}
		}}, change...)...)
	former := activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Name, c.UID = "former", "uid-former" })
	objects := append(
		[]runtime.Object{d, former, activitiestest.NewClass()},
		machineSetAndItsMachine(d, "d-1", "former", "1")...)
	return d, append(objects, machineSetAndItsMachine(d, "d-2", "small", "2")...)
}

func withDeploymentAnnotation(key, value string) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) { d.Annotations[key] = value }
}

func TestRequestForADeploymentIsWrittenAndRecordedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		as    func(*v1alpha1.MachineDeployment)
		order request.CommandOrder
		told  string
		check func(*testing.T, *v1alpha1.MachineDeployment)
	}{
		{
			"start", nil,
			request.CommandOrder{Command: request.Start, Actor: "ann", Reason: "new\n image"},
			"ann requested start: new image; wrote 2100-03-01T12:00:00Z into the template of deployment shop/d: all its machines are replaced",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, map[string]string{"team": "shop", v1alpha1.AnnotationRestartedAt: "2100-03-01T12:00:00Z"}, d.Spec.Template.Annotations)
				assert.Equal(t, "started by ann: new image", d.Annotations[v1alpha1.AnnotationChangeCause])
			},
		},
		{
			"pause", nil,
			request.CommandOrder{Command: request.Pause, Actor: "ann"},
			"ann requested pause; deployment shop/d is paused",
			func(t *testing.T, d *v1alpha1.MachineDeployment) { assert.True(t, d.Spec.Paused) },
		},
		{
			"resume", func(d *v1alpha1.MachineDeployment) {
				d.Spec.Paused = true
				withDeploymentAnnotation(v1alpha1.AnnotationRolloutHold, "2 bob: wait")(d)
			},
			request.CommandOrder{Command: request.Resume, Actor: "ann"},
			"ann requested resume; deployment shop/d is no longer paused, and the rollout of revision 2 of deployment shop/d is no longer held (former hold: bob: wait)",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.False(t, d.Spec.Paused)
				assert.NotContains(t, d.Annotations, v1alpha1.AnnotationRolloutHold)
			},
		},
		{
			"cancel", nil,
			request.CommandOrder{Command: request.Cancel, Actor: "ann", Reason: "it burns"},
			"ann requested cancel: it burns; the rollout of revision 2 of deployment shop/d is held where it is",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, "2 ann: it burns", d.Annotations[v1alpha1.AnnotationRolloutHold])
			},
		},
		{
			"cancel and return", nil,
			request.CommandOrder{Command: request.Cancel, Actor: "ann", Reason: "it burns", RollsBack: true},
			"ann requested cancel and return: it burns; deployment shop/d returns from revision 2 to revision 1",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, &v1alpha1.RollbackConfig{Revision: 1}, d.Spec.RollbackTo)
				assert.NotContains(t, d.Annotations, v1alpha1.AnnotationRolloutHold)
			},
		},
		{
			"undo", withDeploymentAnnotation(v1alpha1.AnnotationRolloutHold, "2 bob: wait"),
			request.CommandOrder{Command: request.Undo, Actor: "ann", Revision: new(int64(1))},
			"ann requested undo (revision 1); deployment shop/d returns from revision 2 to revision 1",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, &v1alpha1.RollbackConfig{Revision: 1}, d.Spec.RollbackTo)
			},
		},
		{
			"approve", nil,
			request.CommandOrder{Command: request.Approve, Actor: "ann", Reason: "well"},
			"ann requested approve: well; the rollout of revision 2 of deployment shop/d passes step 1 of 1",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, "2/1 ann: well", d.Annotations[v1alpha1.AnnotationRolloutApprove])
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var change []func(*v1alpha1.MachineDeployment)
			if c.as != nil {
				change = append(change, c.as)
			}
			d, objects := deploymentInRolloutWithObjects(change...)
			w := activitiestest.NewWorld(t, objects...)
			answer := activitiestest.RunActivityTwice[activities.Answer](
				w,
				newActivities(w.Kube).ApplyRequest,
				activitiestest.NewDeploymentRequest(d, c.order),
			)
			d = w.Deployment("d")
			c.check(t, d)
			assert.Equal(t, "2100-03-01T12:00:00.5Z "+c.order.Summary(), d.Annotations[v1alpha1.AnnotationLastRequest])
			assert.Equal(t, []string{"Normal RequestApplied " + c.told}, w.TakeNewEvents())
			assert.Equal(t, []string{"patch machinedeployments"}, w.MutatingRequests())
			assert.True(t, answer.Applied)
			assert.Equal(t, c.told, c.order.Summary()+"; "+answer.Message)
			assert.Equal(t, d.ResourceVersion, answer.Version)
		})
	}
}

// If the result of the first run is lost, the second run must not revert the undo.
func TestRepeatedUndoRequestDoesNotUndoItself(t *testing.T) {
	t.Parallel()
	d, objects := deploymentInRolloutWithObjects()
	w := activitiestest.NewWorld(t, objects...)
	in := activitiestest.NewDeploymentRequest(d, request.CommandOrder{Command: request.Undo, Actor: "ann"})
	_, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
	require.NoError(t, err)
	require.EqualValues(t, 1, w.Deployment("d").Spec.RollbackTo.Revision)
	w.EditObject(cache.DeploymentsResource, "d", map[string]any{"spec": map[string]any{
		"rollbackTo": nil, "template": map[string]any{"spec": map[string]any{"class": map[string]any{"name": "former"}}},
	}})
	w.EditObject(cache.SetsResource, "d-1", activitiestest.NewAnnotationPatch(v1alpha1.AnnotationRevision, "3"))
	w.TakeNewEvents()
	answer, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
	require.NoError(t, err)
	assert.True(t, answer.Applied)
	assert.Nil(t, w.Deployment("d").Spec.RollbackTo)
	assert.Empty(t, w.TakeNewEvents())

	in.Order.RequestedAt = in.Order.RequestedAt.Add(time.Second)
	_, err = activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
	require.NoError(t, err)
	assert.EqualValues(t, 2, w.Deployment("d").Spec.RollbackTo.Revision, "another one is another one")
}

func TestWhichDeploymentRequestsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order   request.CommandOrder
		unheard bool
		message string
		told    []string
	}{
		"and the answer says so": {
			request.CommandOrder{Command: request.Approve, ApprovedStepCount: 2}, false, "there is no step 2: the rollout of revision 2 of deployment shop/d has 1 in all", []string{},
		},
		"and an event says so": {
			request.CommandOrder{Command: request.Undo, Actor: "ann", Reason: "it burns", Revision: new(int64(9))},
			true,
			"deployment shop/d has no set of revision 9: it can go back to 1",
			[]string{"Warning RequestRefused ann requested undo (revision 9): it burns; refused: deployment shop/d has no set of revision 9: it can go back to 1"},
		},
		"as it makes no sense": {
			request.CommandOrder{Command: "burn"},
			true, `there is no command "burn": the commands are start, pause, resume, cancel, undo, retry, approve`,
			[]string{`Warning RequestRefused somebody requested burn; refused: there is no command "burn": the commands are start, pause, resume, cancel, undo, retry, approve`},
		},
		"as it is for another deployment": {
			request.CommandOrder{Command: request.Pause, UID: "uid-other"}, false, "the request is for a deployment with UID uid-other, and this one has UID uid-d", []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, objects := deploymentInRolloutWithObjects()
			w := activitiestest.NewWorld(t, objects...)
			in := activitiestest.NewDeploymentRequest(d, c.order)
			in.Unheard = c.unheard
			answer, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
			require.NoError(t, err)
			assert.Equal(t, activities.Answer{Message: c.message}, answer)
			assert.Empty(t, w.MutatingRequests())
			assert.Equal(t, c.told, w.TakeNewEvents())
		})
	}
}

func TestRequestForGoneDeploymentIsRefused(t *testing.T) {
	t.Parallel()
	d, objects := deploymentInRolloutWithObjects()
	w := activitiestest.NewWorld(t, objects...)
	in := activitiestest.NewDeploymentRequest(d, request.CommandOrder{Command: request.Pause})
	in.Object, in.Unheard = activitiestest.NewFormerObjectRef(d), true
	answer, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
	require.NoError(t, err)
	assert.Equal(t, activities.Answer{Message: "object shop/d is gone"}, answer)
	assert.Empty(t, w.MutatingRequests())
	assert.Empty(t, w.TakeNewEvents())
}

func newDeploymentConflictError() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "machinedeployments"}, "d", errors.New("changed"))
}

// Each write requires the resource version that was read. If the deployment has changed since the read, the request is
// decided again.
func TestRequestForADeploymentIsDecidedAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	d, objects := deploymentInRolloutWithObjects()
	w := activitiestest.NewWorld(t, objects...)
	activitiestest.FailRequests(w.MachineClient, "patch", "machinedeployments", 1, newDeploymentConflictError(), func() {
		w.EditObject(cache.DeploymentsResource, "d", map[string]any{"spec": map[string]any{"paused": true}})
	})
	answer, err := activitiestest.RunActivity[activities.Answer](
		w,
		newActivities(w.Kube).ApplyRequest,
		activitiestest.NewDeploymentRequest(d, request.CommandOrder{Command: request.Undo}),
	)
	require.NoError(t, err)
	assert.Equal(
		t,
		"deployment shop/d is paused, and neither a new template nor a former one is rolled out: resume it first",
		answer.Message,
	)
	assert.Nil(t, w.Deployment("d").Spec.RollbackTo)
}

func TestRequestForADeploymentFailsAfterRepeatedConflicts(t *testing.T) {
	t.Parallel()
	d, objects := deploymentInRolloutWithObjects()
	w := activitiestest.NewWorld(t, objects...)
	activitiestest.FailRequests(w.MachineClient, "patch", "machinedeployments", 100, newDeploymentConflictError(), nil)
	_, err := activitiestest.RunActivity[activities.Answer](
		w,
		newActivities(w.Kube).ApplyRequest,
		activitiestest.NewDeploymentRequest(d, request.CommandOrder{Command: request.Pause}),
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, true)
	assert.Len(t, w.MutatingRequests(), 3)
	assert.Empty(t, w.TakeNewEvents())
}

func TestAnswerIfTheAPIServerRejectsADeploymentRequest(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "machinedeployments"}, "d", errors.New("no"))
	for name, c := range map[string]struct {
		verb, resource string
		fails          error
		answer         string // empty: the activity fails and is retried
	}{
		"it is away":                {"patch", "machinedeployments", apierrors.NewServiceUnavailable("away"), ""},
		"it does not say what is":   {"get", "machinedeployments", apierrors.NewServiceUnavailable("away"), ""},
		"nor what is below":         {"list", "machinesets", apierrors.NewServiceUnavailable("away"), ""},
		"it will not do":            {"patch", "machinedeployments", forbidden, forbidden.Error()},
		"the deployment went by it": {"patch", "machinedeployments", apierrors.NewNotFound(schema.GroupResource{}, "d"), "object shop/d is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, objects := deploymentInRolloutWithObjects()
			w := activitiestest.NewWorld(t, objects...)
			activitiestest.FailRequests(w.MachineClient, c.verb, c.resource, 1, c.fails, nil)
			in := activitiestest.NewDeploymentRequest(d, request.CommandOrder{Command: request.Pause, Actor: "ann"})
			in.Unheard = true
			answer, err := activitiestest.RunActivity[activities.Answer](w, newActivities(w.Kube).ApplyRequest, in)
			if c.answer == "" {
				require.Error(t, err)
				assert.Empty(t, w.TakeNewEvents())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, activities.Answer{Message: c.answer}, answer)
			assert.Equal(t, []string{"Warning RequestRefused ann requested pause; refused: " + c.answer}, w.TakeNewEvents())
		})
	}
}

// All objects are read live, because a stale cache could cause a wrong refusal.
func TestRequestForADeploymentIsDecidedFromTheAPIServer(t *testing.T) {
	t.Parallel()
	d, objects := deploymentInRolloutWithObjects()
	w := activitiestest.NewWorld(t, objects...)
	w.HoldEvents()
	for _, o := range []request.CommandOrder{{Command: request.Pause}, {Command: request.Resume}, {Command: request.Cancel, Reason: "wait"}} {
		answer, err := activitiestest.RunActivity[activities.Answer](
			w,
			newActivities(w.Kube).ApplyRequest,
			activitiestest.NewDeploymentRequest(d, o),
		)
		require.NoError(t, err)
		require.True(t, answer.Applied, answer.Message)
	}
	assert.False(t, w.Deployment("d").Spec.Paused)
	assert.Contains(t, w.Deployment("d").Annotations, v1alpha1.AnnotationRolloutHold)
}
