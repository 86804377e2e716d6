package set_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
)

// movedForUpdate marks a machine as moved to its set for an in-place update.
func movedForUpdate(m *clusterv1.Machine) {
	markedForUpdate(m)
	capitest.Annotated[*clusterv1.Machine](clusterv1.PendingAcknowledgeMoveAnnotation, "")(m)
}

// markedForUpdate marks a machine as being updated in place.
func markedForUpdate(m *clusterv1.Machine) {
	capitest.Annotated[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, "")(m)
}

// The test rows come from Cluster API: the machines whose in-place update is due.
func TestWhenAnUpdateInPlaceIsDue(t *testing.T) {
	hooked := capitest.Annotated[*clusterv1.Machine](runtimev1.PendingHooksAnnotation, "Other,"+capiset.UpdateMachineHook)
	otherHook := capitest.Annotated[*clusterv1.Machine](runtimev1.PendingHooksAnnotation, "Other")
	acknowledged := capitest.Annotated[*clusterv1.MachineSet](clusterv1.AcknowledgedMoveAnnotation, "a,m")
	another := capitest.Annotated[*clusterv1.MachineSet](clusterv1.AcknowledgedMoveAnnotation, "mm")
	for name, test := range map[string]struct {
		machine []capitest.OnMachine
		set     []capitest.OnSet
		due     bool
	}{
		"no update":                         {},
		"its set counts it":                 {[]capitest.OnMachine{movedForUpdate}, []capitest.OnSet{capitest.OfDeployment, acknowledged}, true},
		"its set does not count it":         {[]capitest.OnMachine{movedForUpdate}, []capitest.OnSet{capitest.OfDeployment, another}, false},
		"its set has no deployment":         {[]capitest.OnMachine{movedForUpdate}, nil, true},
		"it was counted before":             {[]capitest.OnMachine{markedForUpdate}, []capitest.OnSet{capitest.OfDeployment}, true},
		"core updates it already":           {[]capitest.OnMachine{markedForUpdate, hooked}, []capitest.OnSet{capitest.OfDeployment}, false},
		"core ends it":                      {[]capitest.OnMachine{hooked}, nil, false},
		"core waits for another hook of it": {[]capitest.OnMachine{markedForUpdate, otherHook}, []capitest.OnSet{capitest.OfDeployment}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := capitest.Set("s", 1, test.set...)
			m := capitest.Machine("m", s, test.machine...)
			assert.Equal(t, test.due, capiset.UpdateDue(m, s))
			o := capiset.Observed(
				capitest.Facts(capitest.Settings, cache.Preflight{}),
				s,
				capi.Related{Members: []*clusterv1.Machine{m}, Cluster: capitest.Cluster()},
				capitest.Noon,
				0,
			)
			assert.Equal(t, test.due, o.Members[0].ClusterAPI.UpdateDue)
			updating := len(test.machine) > 0
			_, handed := m.Annotations[clusterv1.PendingAcknowledgeMoveAnnotation]
			assert.Equal(t, []bool{updating, handed}, []bool{o.Members[0].Updating, o.Members[0].Updated})
		})
	}
}

// The test rows come from Cluster API: a set moves its surplus machines only to a set that accepts them.
func TestNoMove(t *testing.T) {
	takes := capitest.Annotated[*clusterv1.MachineSet](clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation, "r,s")
	hash := func(s *clusterv1.MachineSet) { s.Labels[clusterv1.MachineDeploymentUniqueLabel] = "next" }
	s := capitest.Set(
		"s",
		1,
		capitest.Annotated[*clusterv1.MachineSet](clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
	)
	for why, receiver := range map[string]*clusterv1.MachineSet{
		"it does not exist":   nil,
		"it is being deleted": capitest.Set("next", 1, takes, hash, capitest.Going),
		"it has no label " + clusterv1.MachineDeploymentUniqueLabel: capitest.Set("next", 1, takes),
		"it takes no machines of this set":                          capitest.Set("next", 1, hash),
		"":                                                          capitest.Set("next", 1, takes, hash),
	} {
		o := capiset.Observed(
			capitest.Facts(capitest.Settings, cache.Preflight{}),
			s,
			capi.Related{Cluster: capitest.Cluster(), Receiver: receiver},
			capitest.Noon,
			0,
		)
		assert.Equal(t, []string{"next", why}, []string{o.ClusterAPI.MoveTo, o.ClusterAPI.NoMove})
	}
	o := capiset.Observed(
		capitest.Facts(capitest.Settings, cache.Preflight{}),
		capitest.Set("s", 1),
		capi.Related{Cluster: capitest.Cluster()},
		capitest.Noon,
		0,
	)
	assert.Equal(t, []string{"", ""}, []string{o.ClusterAPI.MoveTo, o.ClusterAPI.NoMove})
}
