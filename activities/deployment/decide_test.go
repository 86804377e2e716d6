package deployment_test

import (
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	observedeployment "millwright/observe/deployment"
)

// withRevision gives a deployment or set its revision.
func withRevision[T metav1.Object](revision string) func(T) {
	return func(o T) {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationRevision] = revision
		o.SetAnnotations(annotations)
	}
}

// newSettledSet returns a set that has reached its desired size and has the annotations that its deployment writes.
func newSettledSet(
	d *v1alpha1.MachineDeployment,
	name string,
	replicas int32,
	change ...func(*v1alpha1.MachineSet),
) *v1alpha1.MachineSet {
	s := activitiestest.WithSetCounts(activitiestest.NewOwnedSet(d, name, replicas), replicas, replicas)
	s.Status.ObservedReplicas = replicas
	observedeployment.CopyDeploymentFields(s, d)
	withRevision[*v1alpha1.MachineSet](d.Annotations[v1alpha1.AnnotationRevision])(s)
	s.Annotations[v1alpha1.AnnotationDesiredReplicas] = strconv.Itoa(int(d.Spec.Replicas))
	s.Annotations[v1alpha1.AnnotationMaxReplicas] = strconv.Itoa(int(d.Spec.Replicas) + 1)
	return activitiestest.ApplyChanges(s, change)
}

// recordRolloutCompletion records that the rollout to the deployment's set was complete.
func recordRolloutCompletion(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) {
	d.Status.Rollout = &v1alpha1.RolloutStatus{
		Revision: max(
			observedeployment.Revision(set),
			1,
		),
		CompletedAt: &activitiestest.OldTime,
		Set:         set.Name,
		LastGoodSet: set.Name,
		Steps:       []v1alpha1.RolloutStep{},
	}
}

// machineSetWithMachines returns a set with its running machines: set-0, set-1 and so on.
func machineSetWithMachines(s *v1alpha1.MachineSet, change ...func(*v1alpha1.Machine)) []runtime.Object {
	objects := []runtime.Object{s}
	for i := range s.Spec.Replicas {
		m := activitiestest.NewMachine(
			fmt.Sprintf("%s-%d", s.Name, i),
			activitiestest.WithOwner[*v1alpha1.Machine](s),
			activitiestest.WithPhase(v1alpha1.MachineRunning),
		)
		objects = append(objects, activitiestest.ApplyChanges(m, change))
	}
	return objects
}

// newWorldWithIdleDeployment returns a world with an idle deployment of the given size and its set d-1.
func newWorldWithIdleDeployment(t *testing.T, replicas int32) (*activitiestest.World, *v1alpha1.MachineDeployment) {
	t.Helper()
	d := activitiestest.NewDeployment("d", replicas, withRevision[*v1alpha1.MachineDeployment]("1"))
	s := newSettledSet(d, "d-1", replicas)
	recordRolloutCompletion(d, s)
	w := activitiestest.NewWorld(t, append(machineSetWithMachines(s), d)...)
	activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
	w.ForgetRequests()
	return w, d
}

func TestDecideDeployment(t *testing.T) {
	t.Parallel()
	t.Run("makes a set where there is none", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3)
		decision := activitiestest.DecideDeployment(activitiestest.NewWorld(t, d), activitiestest.NewReadInput(d))
		assert.Equal(t, &rollout.SetCreation{Replicas: 3, Revision: 1, Desired: 3, Max: 4}, decision.Rollout.Create)
		assert.Equal(t, attention.NeedScaling, decision.Pending.Need)
		assert.Equal(t, "900", decision.Version)
		assert.Equal(t, "create a set of 3 machines for revision 1: the template has none", decision.Rollout.Why)
		assert.False(t, decision.Rollout.Rolling, "nothing gives way")
	})
	t.Run("gives its set its size", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3, withRevision[*v1alpha1.MachineDeployment]("1"))
		decision := activitiestest.DecideDeployment(
			activitiestest.NewWorld(t, append(machineSetWithMachines(newSettledSet(d, "d-1", 1)), d)...),
			activitiestest.NewReadInput(d),
		)
		require.Len(t, decision.Rollout.Resize, 1)
		decision.Rollout.Resize[0].Why = ""
		assert.Equal(
			t,
			[]rollout.SetResize{{Name: "d-1", UID: "uid-d-1", Version: "900", From: 1, To: 3, ActedOn: 1, Desired: 3, Max: 4}},
			decision.Rollout.Resize,
		)
	})
	t.Run("does nothing where there is nothing to do", func(t *testing.T) {
		w, d := newWorldWithIdleDeployment(t, 3)
		decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
		assert.Equal(t, attention.NeedNothing, decision.Pending.Need)
		assert.True(t, decision.Rollout.Complete)
		assert.False(
			t,
			decision.Rollout.HasActions() || decision.Rollout.NoSet || decision.Report || decision.Prepare || decision.Release,
		)
	})
	t.Run("a changed template gets its set, and the other gives way", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3, withRevision[*v1alpha1.MachineDeployment]("1"))
		decision := activitiestest.DecideDeployment(
			activitiestest.NewWorld(
				t,
				append(machineSetWithMachines(newSettledSet(d, "d-1", 3, activitiestest.WithFormerTemplate)), d)...),
			activitiestest.NewReadInput(d),
		)
		assert.Equal(
			t,
			&rollout.SetCreation{Replicas: 1, Revision: 2, Desired: 3, Max: 4},
			decision.Rollout.Create,
			"as many as the surge",
		)
		assert.True(t, decision.Rollout.Rolling)
		assert.False(t, decision.Rollout.NoSet)
		assert.Equal(t, attention.NeedScaling, decision.Pending.Need)
	})
	t.Run("one that is paused keeps the old template", func(t *testing.T) {
		d := activitiestest.NewDeployment(
			"d",
			3,
			withRevision[*v1alpha1.MachineDeployment]("1"),
			func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true },
		)
		decision := activitiestest.DecideDeployment(
			activitiestest.NewWorld(
				t,
				append(machineSetWithMachines(newSettledSet(d, "d-1", 3, activitiestest.WithFormerTemplate)), d)...),
			activitiestest.NewReadInput(d),
		)
		assert.True(t, decision.Rollout.NoSet)
		assert.Nil(t, decision.Rollout.Create)
		assert.Equal(t, "Paused", decision.Rollout.HoldBy)
	})
	t.Run("one that is being deleted deletes its sets", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment])
		decision := activitiestest.DecideDeployment(
			activitiestest.NewWorld(t, d, activitiestest.NewOwnedSet(d, "d-1", 3), activitiestest.NewOwnedSet(d, "d-2", 0)),
			activitiestest.NewReadInput(d),
		)
		assert.Len(t, decision.Rollout.Delete, 2)
		assert.False(t, decision.Release)
	})
	t.Run("and is released when none is left", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment])
		assert.True(
			t,
			activitiestest.DecideDeployment(
				activitiestest.NewWorld(t, d, activitiestest.NewMachineSet("foreign", 1)),
				activitiestest.NewReadInput(d),
			).Release,
		)
	})
	t.Run("is gone, also when another one has its name", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewDeployment("d", 3))
		for _, live := range []bool{false, true} {
			assert.True(
				t,
				activitiestest.DecideDeployment(
					w,
					kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewDeployment("d", 3)), Live: live},
				).Gone,
			)
			assert.True(
				t,
				activitiestest.DecideDeployment(
					w,
					kube.ReadInput{Ref: activitiestest.NewRef(activitiestest.NewDeployment("x", 3)), Live: live},
				).Gone,
			)
		}
	})
	t.Run("says what was read", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 3)
		w := activitiestest.NewWorld(t, append(machineSetWithMachines(activitiestest.NewOwnedSet(d, "d-1", 1)), d)...)
		for _, in := range []kube.ReadInput{activitiestest.NewReadInput(d), activitiestest.NewLiveReadInput(d)} {
			assert.Equal(
				t,
				kube.MinVersions{cache.DeploymentsResource: "900", cache.SetsResource: "900", cache.MachinesResource: "900"},
				activitiestest.DecideDeployment(w, in).Seen,
			)
		}
	})
}

func TestFinalizeDeployment(t *testing.T) {
	t.Parallel()
	t.Run("puts our finalizer on", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 2, activitiestest.WithoutFinalizers)
		w := activitiestest.NewWorld(t, d)
		assert.Equal(
			t,
			"1001",
			activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinalizeDeployment, activitiestest.NewReadInput(d)),
		)
		assert.Equal(t, []string{v1alpha1.FinalizerMachine}, w.Deployment("d").Finalizers)
	})
	t.Run("takes it off when no set is left", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment])
		d.Finalizers = append(d.Finalizers, activitiestest.BackupFinalizer)
		w := activitiestest.NewWorld(t, d, activitiestest.NewMachineSet("foreign", 1))
		activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinalizeDeployment, activitiestest.NewReadInput(d))
		assert.Equal(t, []string{activitiestest.BackupFinalizer}, w.Deployment("d").Finalizers)
	})
	t.Run("keeps it until then", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment])
		w := activitiestest.NewWorld(
			t,
			d,
			activitiestest.NewOwnedSet(d, "s", 0, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet]),
		)
		activitiestest.RunActivityTwice[string](w, newActivities(w.Kube).FinalizeDeployment, activitiestest.NewReadInput(d))
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("leaves the decision to be made again when somebody was faster", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 2, activitiestest.WithoutFinalizers)
		w := activitiestest.NewWorld(t, d)
		w.HoldEvents()
		w.EditObject(cache.DeploymentsResource, "d", activitiestest.NewAnnotationPatch("note", "new"))
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).FinalizeDeployment,
			activitiestest.NewReadInput(d),
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	})
	t.Run("knows when the deployment is gone", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewDeployment("d", 2))
		_, err := activitiestest.RunActivity[string](
			w,
			newActivities(w.Kube).FinalizeDeployment,
			kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(activitiestest.NewDeployment("d", 2))},
		)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
}

func TestDeletionWithCascadeOrphanKeepsTheSets(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 2, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment])
	d.Finalizers = append(d.Finalizers, metav1.FinalizerOrphanDependents)
	w := activitiestest.NewWorld(
		t,
		d,
		activitiestest.NewOwnedSet(d, "s", 2),
		activitiestest.NewOwnedSet(d, "former", 0, activitiestest.WithFormerTemplate),
	)
	for _, live := range []bool{false, true} {
		decision := activitiestest.DecideDeployment(w, kube.ReadInput{Ref: activitiestest.NewRef(d), Live: live})
		assert.False(t, decision.Rollout.HasActions(), "no set is deleted or changed: %+v", decision.Rollout)
		assert.False(t, decision.Release)
		assert.Equal(t, attention.NeedDeletion, decision.Pending.Need, "the run waits for the garbage collector")
		assert.Contains(t, decision.Pending.Why, "--cascade=orphan")
	}
}
