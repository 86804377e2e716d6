package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// recordedFor is a grant in a deployment's status, of a machine that need not be there any more.
func recordedFor(name string) v1alpha1.MachineReplacement {
	return v1alpha1.MachineReplacement{UID: types.UID("uid-" + name), Name: name, Reason: "HealthTimeout", GrantedAt: longAgo}
}

func TestU120_AGrantIsUsedUntilItsSubstituteIsThere(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change []func(*v1alpha1.Machine) // of the machine d-1, which is the substitute or the machine itself
		holds  bool
	}{
		"U120: new":                        {[]func(*v1alpha1.Machine){phase("")}, true},
		"U120: Pending":                    {[]func(*v1alpha1.Machine){phase(v1alpha1.MachinePending)}, true},
		"U120: CrashLoopBackOff":           {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineCrashLoopBackOff)}, true},
		"U173: Running: the grant is over": {[]func(*v1alpha1.Machine){phase(v1alpha1.MachineRunning)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment("d", 0)
			d.Status.Replacements = []v1alpha1.MachineReplacement{recordedFor("gone")}
			objects := troubled(d, 1, 1)
			with(objects[4].(*v1alpha1.Machine), row.change)
			w := newWorld(t, objects...)
			grant(w, read(d))
			if row.holds {
				assert.Equal(t, []string{"gone"}, w.replacements())
				assert.Empty(t, w.writes())
				return
			}
			assert.Equal(t, []string{"d-0"}, w.replacements(), "U173: released, and given to the next")
			assert.Equal(t, []string{"d-0"}, w.marked())
		})
	}
	t.Run("U120: Terminating", func(t *testing.T) {
		d := deployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{recordedFor("d-0")}
		objects := troubled(d, 2, 1)
		with(objects[3].(*v1alpha1.Machine), []func(*v1alpha1.Machine){granted, going[*v1alpha1.Machine], phase(v1alpha1.MachineTerminating)})
		w := newWorld(t, objects...)
		grant(w, read(d))
		assert.Empty(t, w.writes())
	})
	t.Run("U173: the last one is released too", func(t *testing.T) {
		d := deployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{recordedFor("gone")}
		w := newWorld(t, troubled(d, 0, 2)...)
		granted := grant(w, read(d))
		assert.Empty(t, w.replacements())
		assert.Equal(t, activities.Gate{observe.Deployments: w.deployment("d").ResourceVersion}, granted.Versions)
		assert.Empty(t, w.told())
	})
	t.Run("U173: one that a person marked is registered", func(t *testing.T) {
		d := deployment("d", 0)
		objects := troubled(d, 2, 0)
		with(objects[4].(*v1alpha1.Machine), []func(*v1alpha1.Machine){granted})
		w := newWorld(t, objects...)
		grant(w, read(d))
		assert.Equal(t, []string{"d-1"}, w.replacements(), "it uses the budget")
		assert.Equal(t, []string{"d-1"}, w.marked())
	})
	t.Run("U121: no grant ends by time", func(t *testing.T) {
		d := deployment("d", 0)
		d.Status.Replacements = []v1alpha1.MachineReplacement{recordedFor("d-0")} // long ago
		objects := troubled(d, 2, 0)
		with(objects[3].(*v1alpha1.Machine), []func(*v1alpha1.Machine){granted})
		w := newWorld(t, objects...)
		grant(w, read(d))
		assert.Empty(t, w.writes())
	})
}
