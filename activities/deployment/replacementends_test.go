package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func TestGrantIsInUseUntilSubstituteRuns(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change []func(*v1alpha1.Machine) // changes machine d-1, which is the substitute or the granted machine
		holds  bool
	}{
		"new":                        {[]func(*v1alpha1.Machine){activitiestest.WithPhase("")}, true},
		"Pending":                    {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachinePending)}, true},
		"CrashLoopBackOff":           {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineCrashLoopBackOff)}, true},
		"Running: the grant is over": {[]func(*v1alpha1.Machine){activitiestest.WithPhase(v1alpha1.MachineRunning)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := activitiestest.NewDeployment("d", 0)
			d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.NewReplacementRecord("gone")}
			objects := objectsWithMachinesDueForReplacement(d, 1, 1)
			activitiestest.ApplyChanges(objects[4].(*v1alpha1.Machine), row.change)
			w := activitiestest.NewWorld(t, objects...)
			grantReplacements(w, activitiestest.NewReadInput(d))
			if row.holds {
				assert.Equal(t, []string{"gone"}, w.RecordedReplacementNames())
				assert.Empty(t, w.MutatingRequests())
				return
			}
			assert.Equal(t, []string{"d-0"}, w.RecordedReplacementNames(), "released, and given to the next")
			assert.Equal(t, []string{"d-0"}, w.NamesOfMachinesWithReplacementGrant())
		})
	}
	t.Run("Terminating", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.NewReplacementRecord("d-0")}
		objects := objectsWithMachinesDueForReplacement(d, 2, 1)
		activitiestest.ApplyChanges(
			objects[3].(*v1alpha1.Machine),
			[]func(*v1alpha1.Machine){
				activitiestest.WithReplacementGrant,
				activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
				activitiestest.WithPhase(v1alpha1.MachineTerminating),
			},
		)
		w := activitiestest.NewWorld(t, objects...)
		grantReplacements(w, activitiestest.NewReadInput(d))
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("the last one is released too", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.NewReplacementRecord("gone")}
		w := activitiestest.NewWorld(t, objectsWithMachinesDueForReplacement(d, 0, 2)...)
		granted := grantReplacements(w, activitiestest.NewReadInput(d))
		assert.Empty(t, w.RecordedReplacementNames())
		assert.Equal(t, kube.MinVersions{cache.DeploymentsResource: w.Deployment("d").ResourceVersion}, granted.Versions)
		assert.Empty(t, w.TakeNewEvents())
	})
	t.Run("one that a person marked is registered", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 0)
		objects := objectsWithMachinesDueForReplacement(d, 2, 0)
		activitiestest.ApplyChanges(
			objects[4].(*v1alpha1.Machine),
			[]func(*v1alpha1.Machine){activitiestest.WithReplacementGrant},
		)
		w := activitiestest.NewWorld(t, objects...)
		grantReplacements(w, activitiestest.NewReadInput(d))
		assert.Equal(t, []string{"d-1"}, w.RecordedReplacementNames(), "it uses the budget")
		assert.Equal(t, []string{"d-1"}, w.NamesOfMachinesWithReplacementGrant())
	})
	t.Run("no grant ends by time", func(t *testing.T) {
		d := activitiestest.NewDeployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{activitiestest.NewReplacementRecord("d-0")} // granted long ago
		objects := objectsWithMachinesDueForReplacement(d, 2, 0)
		activitiestest.ApplyChanges(
			objects[3].(*v1alpha1.Machine),
			[]func(*v1alpha1.Machine){activitiestest.WithReplacementGrant},
		)
		w := activitiestest.NewWorld(t, objects...)
		grantReplacements(w, activitiestest.NewReadInput(d))
		assert.Empty(t, w.MutatingRequests())
	})
}
