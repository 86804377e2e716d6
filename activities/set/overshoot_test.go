package set_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
)

// Each set counts and reports its own surplus of machines. The test has deployments of both strategies, and the sets
// report in two orders.
func TestEachSetReportsItsOwnSurplus(t *testing.T) {
	t.Parallel()
	var objects []runtime.Object
	sets := map[string]*v1alpha1.MachineSet{}
	add := func(name string, strategy v1alpha1.MachineDeploymentStrategyType, wanted, there int32) {
		d := activitiestest.NewDeployment(name, wanted)
		d.Spec.Strategy.Type = strategy
		s := activitiestest.NewOwnedSet(d, name+"-s", wanted)
		s.Status.PeakReplicas = wanted
		sets[name] = s
		objects = append(objects, d, s)
		for i := range there {
			objects = append(
				objects,
				activitiestest.NewMachine(
					fmt.Sprintf("%s-%d", name, i),
					activitiestest.WithOwner[*v1alpha1.Machine](s),
					activitiestest.WithPhase(v1alpha1.MachineRunning),
				),
			)
		}
	}
	add("a", v1alpha1.RecreateMachineDeploymentStrategyType, 2, 2)
	add("b", v1alpha1.RollingUpdateMachineDeploymentStrategyType, 2, 5)
	add("c", v1alpha1.RecreateMachineDeploymentStrategyType, 1, 3)
	add("d", v1alpha1.RollingUpdateMachineDeploymentStrategyType, 3, 3)
	w := activitiestest.NewWorld(t, objects...)
	for _, order := range [][]string{{"a", "b", "c", "d"}, {"d", "c", "b", "a"}} {
		seen := map[string]int32{}
		for _, name := range order {
			seen[name] = reportSet(w, set.Report{Input: activitiestest.NewSetInput(sets[name])}).Overshoot
		}
		assert.Equal(t, map[string]int32{"a": 0, "b": 3, "c": 2, "d": 0}, seen)
	}
}
