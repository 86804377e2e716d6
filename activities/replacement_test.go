package activities_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// troubled returns a deployment with its set and so many machines, m-0, m-1 and so on: those that are due come first.
func troubled(d *v1alpha1.MachineDeployment, due, well int, change ...func(*v1alpha1.Machine)) []runtime.Object {
	d.Spec.Replicas = int32(due + well)
	revised[*v1alpha1.MachineDeployment]("1")(d)
	s := settled(d, d.Name+"-s", int32(due+well))
	objects := []runtime.Object{d, s, class()}
	for i := range due + well {
		m := machine(fmt.Sprintf("%s-%d", d.Name, i), ownedBy[*v1alpha1.Machine](s), phase(v1alpha1.MachineRunning))
		if i < due {
			m = with(m, []func(*v1alpha1.Machine){phase(v1alpha1.MachineFailed), dueFor("CreationTimeout")})
		}
		objects = append(objects, with(m, change))
	}
	return objects
}

func budgetOf(n intstr.IntOrString) *v1alpha1.MachineDeployment {
	d := deployment("d", 0)
	d.Spec.MaxReplacements = &n
	return d
}

// marked returns the names of the machines with the mark.
func (w *world) marked() []string {
	w.t.Helper()
	list, err := w.machines.MachineV1alpha1().Machines(shop).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	names := []string{}
	for _, m := range list.Items {
		if m.Annotations[v1alpha1.AnnotationReplacementGranted] != "" {
			names = append(names, m.Name)
		}
	}
	return names
}

func (w *world) replacements() []string {
	names := []string{}
	for _, r := range w.deployment("d").Status.Replacements {
		names = append(names, r.Name)
	}
	return names
}

func grant(w *world, in activities.Read) activities.Granted {
	w.t.Helper()
	return twice[activities.Granted](w, w.GrantReplacements, in)
}

func TestU119_OfTwoUnhealthyMachinesOneIsReplaced(t *testing.T) {
	t.Parallel()
	d := deployment("d", 0)
	w := newWorld(t, troubled(d, 2, 3, func(m *v1alpha1.Machine) {
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed { // here the node is unhealthy
			m.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"topology.kubernetes.io/zone": "a"}
		}
	})...)
	for i := 2; i < 5; i++ {
		name := fmt.Sprintf("d-%d", i)
		n := node()
		n.Name = name
		w.create(n)
		w.edit(observe.Machines, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"node": name}}})
	}
	w.settle()
	w.forget()
	granted := grant(w, read(d))
	assert.Equal(t, []string{"update machinedeployments/status", "patch machines"}, w.writes(), "first it is on record, then the machine is told")
	assert.Equal(t, []string{"d-0"}, w.marked(), "U119: one only")
	require.Len(t, w.deployment("d").Status.Replacements, 1)
	r := w.deployment("d").Status.Replacements[0]
	assert.Equal(t, []string{"d-0", "uid-d-0", "a", "CreationTimeout"}, []string{r.Name, string(r.UID), r.FailureDomain, r.Reason})
	assert.False(t, r.GrantedAt.IsZero())
	mark, err := time.Parse(time.RFC3339, w.machine("d-0").Annotations[v1alpha1.AnnotationReplacementGranted])
	require.NoError(t, err)
	assert.False(t, mark.Before(r.GrantedAt.Time))
	assert.Equal(t, activities.Gate{
		observe.Deployments: w.deployment("d").ResourceVersion, observe.Machines: w.machine("d-0").ResourceVersion,
	}, granted.Versions, "the versions to wait for")
	assert.Contains(t, granted.Why, "grant replacement of machine d-0: CreationTimeout (1 of 1 in zone a)")
	assert.Contains(t, granted.Why, "1 machine is due; the replacement budget of zone a (1) is used by machine d-0")
	assert.Equal(t, []string{"Normal ReplacementGranted Machine d-0 is replaced: CreationTimeout"}, w.told())

	t.Run("U119: the machine hears of it by its mark", func(t *testing.T) {
		assert.True(t, failed(decideMachine(w, read(w.machine("d-0")))))
		assert.False(t, failed(decideMachine(w, read(w.machine("d-1")))))
	})
}

func TestU118_DeploymentsAreIndependent(t *testing.T) {
	t.Parallel()
	d, e := deployment("d", 0), deployment("e", 0)
	w := newWorld(t, append(troubled(d, 2, 0), slices.Delete(troubled(e, 2, 0), 2, 3)...)...) // one class is enough
	grant(w, read(d))
	grant(w, live(e))
	assert.Equal(t, []string{"d-0", "e-0"}, w.marked())
}

func TestReplacementBudgetOfASpec(t *testing.T) {
	t.Parallel()
	zone := func(m *v1alpha1.Machine) {
		zone := map[bool]string{true: "a", false: "b"}[m.Name < "d-2"]
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"topology.kubernetes.io/zone": zone}
	}
	kept := func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.Now()) }
	for name, row := range map[string]struct {
		budget intstr.IntOrString
		change func(*v1alpha1.Machine)
		want   []string
	}{
		"two":                           {intstr.FromInt32(2), nil, []string{"d-0", "d-1"}},
		"none":                          {intstr.FromInt32(0), nil, []string{}},
		"a percentage is rounded up":    {intstr.FromString("41%"), nil, []string{"d-0", "d-1", "d-2"}},
		"of each zone":                  {intstr.FromInt32(1), zone, []string{"d-0", "d-2"}},
		"a machine on purpose kept":     {intstr.FromInt32(5), kept, []string{}},
		"more than there are to do":     {intstr.FromInt32(50), nil, []string{"d-0", "d-1", "d-2", "d-3"}},
		"one that is going needs none":  {intstr.FromInt32(5), going[*v1alpha1.Machine], []string{}},
		"nor one that recovered before": {intstr.FromInt32(5), func(m *v1alpha1.Machine) { m.Status = v1alpha1.MachineStatus{} }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			d := budgetOf(row.budget)
			objects := troubled(d, 4, 1)
			for _, o := range objects[3:] {
				if row.change != nil {
					row.change(o.(*v1alpha1.Machine))
				}
			}
			w := newWorld(t, objects...)
			grant(w, read(d))
			assert.Equal(t, row.want, w.marked())
			assert.Equal(t, row.want, w.replacements())
			assert.Len(t, w.told(), len(row.want))
		})
	}
}

func TestAMarkThatWasLostIsWrittenByTheNextRun(t *testing.T) {
	t.Parallel()
	d := budgetOf(intstr.FromInt32(2))
	w := newWorld(t, troubled(d, 3, 0)...)
	failing(w.machines, "patch", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
	_, err := run[activities.Granted](w, w.GrantReplacements, read(d))
	require.Error(t, err)
	_, retryable := failure(t, err)
	assert.True(t, retryable)
	assert.Equal(t, []string{"d-0", "d-1"}, w.replacements())
	assert.NotSubset(t, w.marked(), []string{"d-0", "d-1"})
	version := w.deployment("d").ResourceVersion

	w.settle()
	assert.True(t, decideDeployment(w, read(d)).Replace, "a run that was ended in between is seen to be so")
	grant(w, read(d))
	assert.Equal(t, []string{"d-0", "d-1"}, w.marked())
	assert.Equal(t, version, w.deployment("d").ResourceVersion, "nothing is granted twice")
	assert.Len(t, w.told(), 2, "nor told twice")
}

func TestGrantReplacementsOfADeploymentThatChanged(t *testing.T) {
	t.Parallel()
	d := deployment("d", 0)
	w := newWorld(t, troubled(d, 2, 0)...)
	release := w.hold()
	w.edit(observe.Deployments, "d", annotated("note", "new"))
	_, err := run[activities.Granted](w, w.GrantReplacements, read(d))
	assertFailure(t, err, activities.TypeConflict, false)
	assert.Empty(t, w.marked(), "no machine is told what is not on record")
	assert.Empty(t, w.told())
	release()
	grant(w, live(d))
	assert.Equal(t, []string{"d-0"}, w.marked())

	t.Run("or that is gone", func(t *testing.T) {
		for _, in := range []activities.Read{{Ref: stranger(d)}, {Ref: stranger(d), Live: true}} {
			_, err := run[activities.Granted](w, w.GrantReplacements, in)
			assertFailure(t, err, activities.TypeObjectGone, false)
		}
	})
}

func TestAMachineThatNeedsNoReplacementAnyMoreIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(w *world){
		"it recovered": func(w *world) {
			m := w.machine("d-0").DeepCopy()
			m.Status = v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning}}
			_, err := w.machines.MachineV1alpha1().Machines(shop).UpdateStatus(w.t.Context(), m, metav1.UpdateOptions{})
			require.NoError(w.t, err)
		},
		"it is gone": func(w *world) {
			require.NoError(w.t, w.machines.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("machines"), shop, "d-0"))
		},
		"it is another": func(w *world) { w.impostor("d-0") },
		"it was told before": func(w *world) {
			w.edit(observe.Machines, "d-0", annotated(v1alpha1.AnnotationReplacementGranted, "now"))
		},
		"it is going": func(w *world) {
			require.NoError(w.t, w.machines.MachineV1alpha1().Machines(shop).Delete(w.t.Context(), "d-0", metav1.DeleteOptions{}))
		},
	} {
		t.Run(name+", and the cache has not heard of it", func(t *testing.T) {
			d := budgetOf(intstr.FromInt32(2))
			w := newWorld(t, troubled(d, 2, 0)...)
			w.hold()
			happens(w)
			_, err := run[activities.Granted](w, w.GrantReplacements, read(d))
			require.NoError(t, err)
			assert.Equal(t, []string{"Normal ReplacementGranted Machine d-1 is replaced: CreationTimeout"}, w.told(), "the other one is told, and of this one nobody")
			if name == "it was told before" {
				assert.Equal(t, "now", w.machine("d-0").Annotations[v1alpha1.AnnotationReplacementGranted])
				return
			}
			assert.Equal(t, []string{"d-1"}, w.marked())
		})
	}
}

func TestD5_NothingIsGrantedWhileHalfOfTheNodesAreDead(t *testing.T) {
	t.Parallel()
	d := deployment("d", 0)
	w := newWorld(t, append(troubled(d, 2, 0), dead(3, 3)...)...)
	granted := grant(w, read(d))
	assert.Contains(t, granted.Why, "3 of 6 nodes look dead at once")
	assert.Empty(t, w.writes())
	assert.Empty(t, w.told())
}
