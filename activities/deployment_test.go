package activities_test

import (
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/observe"
)

func decideDeployment(w *world, in activities.Read) activities.DeploymentDecision {
	w.t.Helper()
	return twice[activities.DeploymentDecision](w, w.DecideDeployment, activities.DeploymentRead{Read: in})
}

func deploymentRead(o metav1.Object) activities.DeploymentRead {
	return activities.DeploymentRead{Read: read(o)}
}

// owned returns a set of a deployment.
func owned(d *v1alpha1.MachineDeployment, name string, replicas int32, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	return set(name, replicas, append(change, ownedBy[*v1alpha1.MachineSet](d))...)
}

// revised gives a deployment or set its revision.
func revised[T metav1.Object](revision string) func(T) {
	return func(o T) {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationRevision] = revision
		o.SetAnnotations(annotations)
	}
}

// settled returns a set of a deployment that did what its size asks for, and says of it what its deployment wants said.
func settled(d *v1alpha1.MachineDeployment, name string, replicas int32, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	s := counted(owned(d, name, replicas), replicas, replicas)
	s.Status.ObservedReplicas = replicas
	observe.FollowDeployment(s, d)
	revised[*v1alpha1.MachineSet](d.Annotations[v1alpha1.AnnotationRevision])(s)
	s.Annotations[v1alpha1.AnnotationDesiredReplicas] = strconv.Itoa(int(d.Spec.Replicas))
	s.Annotations[v1alpha1.AnnotationMaxReplicas] = strconv.Itoa(int(d.Spec.Replicas) + 1)
	return with(s, change)
}

// staffed returns a set with its machines, which run: set-0, set-1 and so on.
func staffed(s *v1alpha1.MachineSet, change ...func(*v1alpha1.Machine)) []runtime.Object {
	objects := []runtime.Object{s}
	for i := range s.Spec.Replicas {
		m := machine(fmt.Sprintf("%s-%d", s.Name, i), ownedBy[*v1alpha1.Machine](s), phase(v1alpha1.MachineRunning))
		objects = append(objects, with(m, change))
	}
	return objects
}

func former(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }

// calmDeployment returns a world in which all is done for a deployment of so many machines and its set d-1.
func calmDeployment(t *testing.T, replicas int32) (*world, *v1alpha1.MachineDeployment) {
	t.Helper()
	d := deployment("d", replicas, revised[*v1alpha1.MachineDeployment]("1"))
	w := newWorld(t, append(staffed(settled(d, "d-1", replicas)), d)...)
	reportDeployment(w, activities.DeploymentReport{DeploymentRead: deploymentRead(d), Record: &rollout.Progress{Revision: 1}})
	w.forget()
	return w, d
}

func TestDecideDeployment(t *testing.T) {
	t.Parallel()
	t.Run("U2: makes a set where there is none", func(t *testing.T) {
		d := deployment("d", 3)
		decision := decideDeployment(newWorld(t, d), read(d))
		assert.Equal(t, &rollout.Creation{Replicas: 3, Revision: 1, Desired: 3, Max: 4}, decision.Create)
		assert.Equal(t, attention.Scale, decision.Need)
		assert.Equal(t, "900", decision.Version)
		assert.Equal(t, "create a set of 3 machines for revision 1: the template has none", decision.Decision.Why)
		assert.False(t, decision.Rolling, "nothing gives way")
	})
	t.Run("gives its set its size", func(t *testing.T) {
		d := deployment("d", 3, revised[*v1alpha1.MachineDeployment]("1"))
		decision := decideDeployment(newWorld(t, append(staffed(settled(d, "d-1", 1)), d)...), read(d))
		require.Len(t, decision.Resize, 1)
		decision.Resize[0].Why = ""
		assert.Equal(t, []rollout.Resize{{Name: "d-1", UID: "uid-d-1", Version: "900", From: 1, To: 3, Desired: 3, Max: 4}}, decision.Resize)
	})
	t.Run("U1: does nothing where there is nothing to do", func(t *testing.T) {
		w, d := calmDeployment(t, 3)
		decision := decideDeployment(w, read(d))
		assert.Equal(t, attention.Nothing, decision.Need)
		assert.True(t, decision.Complete)
		assert.False(t, decision.Acts() || decision.Pending || decision.Report || decision.Prepare || decision.Release)
	})
	t.Run("a changed template gets its set, and the other gives way", func(t *testing.T) {
		d := deployment("d", 3, revised[*v1alpha1.MachineDeployment]("1"))
		decision := decideDeployment(newWorld(t, append(staffed(settled(d, "d-1", 3, former)), d)...), read(d))
		assert.Equal(t, &rollout.Creation{Replicas: 1, Revision: 2, Desired: 3, Max: 4}, decision.Create, "as many as the surge")
		assert.True(t, decision.Rolling)
		assert.False(t, decision.Pending)
		assert.Equal(t, attention.Scale, decision.Need)
	})
	t.Run("one that is paused keeps the old template", func(t *testing.T) {
		d := deployment("d", 3, revised[*v1alpha1.MachineDeployment]("1"), func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true })
		decision := decideDeployment(newWorld(t, append(staffed(settled(d, "d-1", 3, former)), d)...), read(d))
		assert.True(t, decision.Pending)
		assert.Nil(t, decision.Create)
		assert.Equal(t, "Paused", decision.HoldBy)
	})
	t.Run("U15: one that is to go deletes its sets", func(t *testing.T) {
		d := deployment("d", 3, going[*v1alpha1.MachineDeployment])
		decision := decideDeployment(newWorld(t, d, owned(d, "d-1", 3), owned(d, "d-2", 0)), read(d))
		assert.Len(t, decision.Delete, 2)
		assert.False(t, decision.Release)
	})
	t.Run("U4: and is released when none is left", func(t *testing.T) {
		d := deployment("d", 3, going[*v1alpha1.MachineDeployment])
		assert.True(t, decideDeployment(newWorld(t, d, set("foreign", 1)), read(d)).Release)
	})
	t.Run("is gone, also when another one has its name", func(t *testing.T) {
		w := newWorld(t, deployment("d", 3))
		for _, live := range []bool{false, true} {
			assert.True(t, decideDeployment(w, activities.Read{Ref: stranger(deployment("d", 3)), Live: live}).Gone)
			assert.True(t, decideDeployment(w, activities.Read{Ref: ref(deployment("x", 3)), Live: live}).Gone)
		}
	})
	t.Run("says what was read", func(t *testing.T) {
		d := deployment("d", 3)
		w := newWorld(t, append(staffed(owned(d, "d-1", 1)), d)...)
		for _, in := range []activities.Read{read(d), live(d)} {
			assert.Equal(t, activities.Gate{observe.Deployments: "900", observe.Sets: "900", observe.Machines: "900"}, decideDeployment(w, in).Seen)
		}
	})
}

func TestFinalizeDeployment(t *testing.T) {
	t.Parallel()
	t.Run("puts our finalizer on", func(t *testing.T) {
		d := deployment("d", 2, bare)
		w := newWorld(t, d)
		assert.Equal(t, "1001", twice[string](w, w.FinalizeDeployment, read(d)))
		assert.Equal(t, []string{v1alpha1.FinalizerMachine}, w.deployment("d").Finalizers)
	})
	t.Run("U4: takes it off when no set is left", func(t *testing.T) {
		d := deployment("d", 2, going[*v1alpha1.MachineDeployment])
		d.Finalizers = append(d.Finalizers, backup)
		w := newWorld(t, d, set("foreign", 1))
		twice[string](w, w.FinalizeDeployment, read(d))
		assert.Equal(t, []string{backup}, w.deployment("d").Finalizers)
	})
	t.Run("keeps it until then", func(t *testing.T) {
		d := deployment("d", 2, going[*v1alpha1.MachineDeployment])
		w := newWorld(t, d, owned(d, "s", 0, going[*v1alpha1.MachineSet]))
		twice[string](w, w.FinalizeDeployment, read(d))
		assert.Empty(t, w.writes())
	})
	t.Run("leaves the decision to be made again when somebody was faster", func(t *testing.T) {
		d := deployment("d", 2, bare)
		w := newWorld(t, d)
		w.hold()
		w.edit(observe.Deployments, "d", annotated("note", "new"))
		_, err := run[string](w, w.FinalizeDeployment, read(d))
		assertFailure(t, err, activities.TypeConflict, false)
	})
	t.Run("knows when the deployment is gone", func(t *testing.T) {
		w := newWorld(t, deployment("d", 2))
		_, err := run[string](w, w.FinalizeDeployment, activities.Read{Ref: stranger(deployment("d", 2))})
		assertFailure(t, err, activities.TypeObjectGone, false)
	})
}
