package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func TestAGrantIsUsedUntilItsSubstituteIsThere(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change []func(*v1alpha1.Machine) // changes machine d-1, which is the substitute or the granted machine
		holds  bool
	}{
		"new":                        {[]func(*v1alpha1.Machine){activitiestest.Phase("")}, true},
		"Pending":                    {[]func(*v1alpha1.Machine){activitiestest.Phase(v1alpha1.MachinePending)}, true},
		"CrashLoopBackOff":           {[]func(*v1alpha1.Machine){activitiestest.Phase(v1alpha1.MachineCrashLoopBackOff)}, true},
		"Running: the grant is over": {[]func(*v1alpha1.Machine){activitiestest.Phase(v1alpha1.MachineRunning)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := activitiestest.Deployment("d", 0)
			d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.RecordedFor("gone")}
			objects := deploymentWithDueMachines(d, 1, 1)
			activitiestest.With(objects[4].(*v1alpha1.Machine), row.change)
			w := activitiestest.NewWorld(t, objects...)
			grantReplacements(w, activitiestest.Read(d))
			if row.holds {
				assert.Equal(t, []string{"gone"}, w.Replacements())
				assert.Empty(t, w.Writes())
				return
			}
			assert.Equal(t, []string{"d-0"}, w.Replacements(), "released, and given to the next")
			assert.Equal(t, []string{"d-0"}, w.Marked())
		})
	}
	t.Run("Terminating", func(t *testing.T) {
		d := activitiestest.Deployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.RecordedFor("d-0")}
		objects := deploymentWithDueMachines(d, 2, 1)
		activitiestest.With(
			objects[3].(*v1alpha1.Machine),
			[]func(*v1alpha1.Machine){
				activitiestest.Granted,
				activitiestest.Going[*v1alpha1.Machine],
				activitiestest.Phase(v1alpha1.MachineTerminating),
			},
		)
		w := activitiestest.NewWorld(t, objects...)
		grantReplacements(w, activitiestest.Read(d))
		assert.Empty(t, w.Writes())
	})
	t.Run("the last one is released too", func(t *testing.T) {
		d := activitiestest.Deployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.RecordedFor("gone")}
		w := activitiestest.NewWorld(t, deploymentWithDueMachines(d, 0, 2)...)
		granted := grantReplacements(w, activitiestest.Read(d))
		assert.Empty(t, w.Replacements())
		assert.Equal(t, kube.MinVersions{cache.Deployments: w.Deployment("d").ResourceVersion}, granted.Versions)
		assert.Empty(t, w.NewEvents())
	})
	t.Run("one that a person marked is registered", func(t *testing.T) {
		d := activitiestest.Deployment("d", 0)
		objects := deploymentWithDueMachines(d, 2, 0)
		activitiestest.With(objects[4].(*v1alpha1.Machine), []func(*v1alpha1.Machine){activitiestest.Granted})
		w := activitiestest.NewWorld(t, objects...)
		grantReplacements(w, activitiestest.Read(d))
		assert.Equal(t, []string{"d-1"}, w.Replacements(), "it uses the budget")
		assert.Equal(t, []string{"d-1"}, w.Marked())
	})
	t.Run("no grant ends by time", func(t *testing.T) {
		d := activitiestest.Deployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.RecordedFor("d-0")} // granted long ago
		objects := deploymentWithDueMachines(d, 2, 0)
		activitiestest.With(objects[3].(*v1alpha1.Machine), []func(*v1alpha1.Machine){activitiestest.Granted})
		w := activitiestest.NewWorld(t, objects...)
		grantReplacements(w, activitiestest.Read(d))
		assert.Empty(t, w.Writes())
	})
}
