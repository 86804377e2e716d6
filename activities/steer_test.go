package activities_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/steer"
	"millwright/observe"
)

func steered(d metav1.Object, o steer.Order) activities.SteerOrder {
	return activities.SteerOrder{Deployment: ref(d), Order: o, At: verbAt}
}

// numbered is a set of a deployment that has a revision and a machine.
func numbered(d *v1alpha1.MachineDeployment, name, class, revision string) []runtime.Object {
	s := set(name, 1, ownedBy[*v1alpha1.MachineSet](d), func(s *v1alpha1.MachineSet) {
		s.Annotations = map[string]string{
			v1alpha1.AnnotationRevision: revision, v1alpha1.AnnotationDesiredReplicas: "2", v1alpha1.AnnotationMaxReplicas: "3",
		}
		s.Spec.Template.Spec.Class.Name = class
		s.Status.Replicas, s.Status.ObservedReplicas = 1, 1
	})
	return []runtime.Object{s, machine(name+"-a", phase(v1alpha1.MachineRunning), ownedBy[*v1alpha1.Machine](s))}
}

// halfway is a deployment on its way from revision 1 to 2, which waits at its only stage.
func halfway(change ...func(*v1alpha1.MachineDeployment)) (*v1alpha1.MachineDeployment, []runtime.Object) {
	d := deployment("d", 2, append([]func(*v1alpha1.MachineDeployment){func(d *v1alpha1.MachineDeployment) {
		d.Annotations = map[string]string{v1alpha1.AnnotationRevision: "2"}
		d.Spec.Rollout = &v1alpha1.RolloutPolicy{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}}
	}}, change...)...)
	objects := append([]runtime.Object{d}, numbered(d, "d-1", "former", "1")...)
	return d, append(objects, numbered(d, "d-2", "small", "2")...)
}

func noted(key, value string) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) { d.Annotations[key] = value }
}

func TestSteeringIsWrittenOnceAndTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		as    func(*v1alpha1.MachineDeployment)
		order steer.Order
		told  string
		check func(*testing.T, *v1alpha1.MachineDeployment)
	}{
		{
			"start", nil,
			steer.Order{Verb: steer.Start, Actor: "ann", Reason: "new\n image"},
			"ann wants start: new image; wrote 2100-03-01T12:00:00Z into the template of deployment shop/d: all its machines are made anew",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, map[string]string{"team": "shop", v1alpha1.AnnotationRestartedAt: "2100-03-01T12:00:00Z"}, d.Spec.Template.Annotations)
				assert.Equal(t, "started by ann: new image", d.Annotations[v1alpha1.AnnotationChangeCause])
			},
		},
		{
			"pause", nil,
			steer.Order{Verb: steer.Pause, Actor: "ann"},
			"ann wants pause; deployment shop/d is paused",
			func(t *testing.T, d *v1alpha1.MachineDeployment) { assert.True(t, d.Spec.Paused) },
		},
		{
			"resume", func(d *v1alpha1.MachineDeployment) {
				d.Spec.Paused = true
				noted(v1alpha1.AnnotationRolloutHold, "2 bob: wait")(d)
			},
			steer.Order{Verb: steer.Resume, Actor: "ann"},
			"ann wants resume; deployment shop/d is not paused any more, and the rollout of revision 2 not held (it was by bob: wait)",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.False(t, d.Spec.Paused)
				assert.NotContains(t, d.Annotations, v1alpha1.AnnotationRolloutHold)
			},
		},
		{
			"cancel", nil,
			steer.Order{Verb: steer.Cancel, Actor: "ann", Reason: "it burns"},
			"ann wants cancel: it burns; the rollout of revision 2 of deployment shop/d is held where it is",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, "2 ann: it burns", d.Annotations[v1alpha1.AnnotationRolloutHold])
			},
		},
		{
			"cancel and return", nil,
			steer.Order{Verb: steer.Cancel, Actor: "ann", Reason: "it burns", Back: true},
			"ann wants cancel and return: it burns; deployment shop/d returns from revision 2 to revision 1",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, &v1alpha1.RollbackConfig{Revision: 1}, d.Spec.RollbackTo)
				assert.NotContains(t, d.Annotations, v1alpha1.AnnotationRolloutHold)
			},
		},
		{
			"undo", noted(v1alpha1.AnnotationRolloutHold, "2 bob: wait"),
			steer.Order{Verb: steer.Undo, Actor: "ann", Revision: new(int64(1))},
			"ann wants undo (revision 1); deployment shop/d returns from revision 2 to revision 1",
			func(t *testing.T, d *v1alpha1.MachineDeployment) {
				assert.Equal(t, &v1alpha1.RollbackConfig{Revision: 1}, d.Spec.RollbackTo)
			},
		},
		{
			"approve", nil,
			steer.Order{Verb: steer.Approve, Actor: "ann", Reason: "well"},
			"ann wants approve: well; the rollout of revision 2 of deployment shop/d passes 1 stage of 1",
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
			d, objects := halfway(change...)
			w := newWorld(t, objects...)
			answer := twice[activities.VerbAnswer](w, w.GiveSteer, steered(d, c.order))
			d = w.deployment("d")
			c.check(t, d)
			assert.Equal(t, "2100-03-01T12:00:00.5Z "+c.order.Wish(), d.Annotations[v1alpha1.AnnotationRolloutVerb])
			assert.Equal(t, []string{"Normal VerbGiven " + c.told}, w.told())
			assert.Equal(t, []string{"patch machinedeployments"}, w.writes())
			assert.True(t, answer.Given)
			assert.Equal(t, c.told, c.order.Wish()+"; "+answer.Message)
			assert.Equal(t, d.ResourceVersion, answer.Version)
		})
	}
}

// An answer that is lost must not make an undo that was carried out meanwhile undo itself.
func TestUndoThatIsCarriedOutIsNotUndoneWhenItIsAskedAgain(t *testing.T) {
	t.Parallel()
	d, objects := halfway()
	w := newWorld(t, objects...)
	in := steered(d, steer.Order{Verb: steer.Undo, Actor: "ann"})
	_, err := run[activities.VerbAnswer](w, w.GiveSteer, in)
	require.NoError(t, err)
	require.EqualValues(t, 1, w.deployment("d").Spec.RollbackTo.Revision)
	w.edit(observe.Deployments, "d", map[string]any{"spec": map[string]any{
		"rollbackTo": nil, "template": map[string]any{"spec": map[string]any{"class": map[string]any{"name": "former"}}},
	}})
	w.edit(observe.Sets, "d-1", annotated(v1alpha1.AnnotationRevision, "3"))
	w.told()
	answer, err := run[activities.VerbAnswer](w, w.GiveSteer, in)
	require.NoError(t, err)
	assert.True(t, answer.Given)
	assert.Nil(t, w.deployment("d").Spec.RollbackTo)
	assert.Empty(t, w.told())

	in.At = in.At.Add(time.Second)
	_, err = run[activities.VerbAnswer](w, w.GiveSteer, in)
	require.NoError(t, err)
	assert.EqualValues(t, 2, w.deployment("d").Spec.RollbackTo.Revision, "another one is another one")
}

func TestSteeringIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order   steer.Order
		unheard bool
		message string
		told    []string
	}{
		"and the answer says so": {
			steer.Order{Verb: steer.Approve, Stages: 2}, false, "the rollout of revision 2 of deployment shop/d has 1 stage, and not 2", []string{},
		},
		"and an event says so": {
			steer.Order{Verb: steer.Undo, Actor: "ann", Reason: "it burns", Revision: new(int64(9))},
			true,
			"deployment shop/d has no set of revision 9: it can go back to 1",
			[]string{"Warning VerbRefused ann wants undo (revision 9): it burns; refused: deployment shop/d has no set of revision 9: it can go back to 1"},
		},
		"as it makes no sense": {
			steer.Order{Verb: "burn"},
			true, `there is no verb "burn": the verbs are start, pause, resume, cancel, undo, approve`,
			[]string{`Warning VerbRefused somebody wants burn; refused: there is no verb "burn": the verbs are start, pause, resume, cancel, undo, approve`},
		},
		"as it is for another deployment": {
			steer.Order{Verb: steer.Pause, UID: "uid-other"}, false, "the order is for a deployment with UID uid-other, and this one has UID uid-d", []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, objects := halfway()
			w := newWorld(t, objects...)
			in := steered(d, c.order)
			in.Unheard = c.unheard
			answer, err := run[activities.VerbAnswer](w, w.GiveSteer, in)
			require.NoError(t, err)
			assert.Equal(t, activities.VerbAnswer{Message: c.message}, answer)
			assert.Empty(t, w.writes())
			assert.Equal(t, c.told, w.told())
		})
	}
}

func TestSteeringOfADeploymentThatIsGone(t *testing.T) {
	t.Parallel()
	d, objects := halfway()
	w := newWorld(t, objects...)
	in := steered(d, steer.Order{Verb: steer.Pause})
	in.Deployment, in.Unheard = stranger(d), true
	answer, err := run[activities.VerbAnswer](w, w.GiveSteer, in)
	require.NoError(t, err)
	assert.Equal(t, activities.VerbAnswer{Message: "object shop/d is gone"}, answer)
	assert.Empty(t, w.writes())
	assert.Empty(t, w.told())
}

func deploymentConflict() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "machinedeployments"}, "d", errors.New("changed"))
}

// Each write holds only for the deployment that was seen: one that changed meanwhile is judged anew.
func TestSteeringIsDecidedAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	d, objects := halfway()
	w := newWorld(t, objects...)
	failing(w.machines, "patch", "machinedeployments", 1, deploymentConflict(), func() {
		w.edit(observe.Deployments, "d", map[string]any{"spec": map[string]any{"paused": true}})
	})
	answer, err := run[activities.VerbAnswer](w, w.GiveSteer, steered(d, steer.Order{Verb: steer.Undo}))
	require.NoError(t, err)
	assert.Equal(t, "deployment shop/d is paused, and neither a new template nor a former one is rolled out: resume it first", answer.Message)
	assert.Nil(t, w.deployment("d").Spec.RollbackTo)
}

func TestSteeringThatMeetsTooManyConflicts(t *testing.T) {
	t.Parallel()
	d, objects := halfway()
	w := newWorld(t, objects...)
	failing(w.machines, "patch", "machinedeployments", 100, deploymentConflict(), nil)
	_, err := run[activities.VerbAnswer](w, w.GiveSteer, steered(d, steer.Order{Verb: steer.Pause}))
	assertFailure(t, err, activities.TypeConflict, true)
	assert.Len(t, w.writes(), 3)
	assert.Empty(t, w.told())
}

func TestSteeringAndAnAPIServerThatDoesNotTakeIt(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "machinedeployments"}, "d", errors.New("no"))
	for name, c := range map[string]struct {
		verb, resource string
		fails          error
		answer         string // empty: it fails, and is tried again
	}{
		"it is away":                {"patch", "machinedeployments", apierrors.NewServiceUnavailable("away"), ""},
		"it does not say what is":   {"get", "machinedeployments", apierrors.NewServiceUnavailable("away"), ""},
		"nor what is below":         {"list", "machinesets", apierrors.NewServiceUnavailable("away"), ""},
		"it will not do":            {"patch", "machinedeployments", forbidden, forbidden.Error()},
		"the deployment went by it": {"patch", "machinedeployments", apierrors.NewNotFound(schema.GroupResource{}, "d"), "object shop/d is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, objects := halfway()
			w := newWorld(t, objects...)
			failing(w.machines, c.verb, c.resource, 1, c.fails, nil)
			in := steered(d, steer.Order{Verb: steer.Pause, Actor: "ann"})
			in.Unheard = true
			answer, err := run[activities.VerbAnswer](w, w.GiveSteer, in)
			if c.answer == "" {
				require.Error(t, err)
				assert.Empty(t, w.told())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, activities.VerbAnswer{Message: c.answer}, answer)
			assert.Equal(t, []string{"Warning VerbRefused ann wants pause; refused: " + c.answer}, w.told())
		})
	}
}

// All is read live: caches that are behind would refuse what makes sense by now.
func TestSteeringIsDecidedFromTheAPIServer(t *testing.T) {
	t.Parallel()
	d, objects := halfway()
	w := newWorld(t, objects...)
	w.hold()
	for _, o := range []steer.Order{{Verb: steer.Pause}, {Verb: steer.Resume}, {Verb: steer.Cancel, Reason: "wait"}} {
		answer, err := run[activities.VerbAnswer](w, w.GiveSteer, steered(d, o))
		require.NoError(t, err)
		require.True(t, answer.Given, answer.Message)
	}
	assert.False(t, w.deployment("d").Spec.Paused)
	assert.Contains(t, w.deployment("d").Annotations, v1alpha1.AnnotationRolloutHold)
}
