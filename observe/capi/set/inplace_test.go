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

// asMovedMachine marks a machine as moved to its set for an in-place update.
func asMovedMachine(m *clusterv1.Machine) {
	asUpdatingMachine(m)
	capitest.WithAnnotation[*clusterv1.Machine](clusterv1.PendingAcknowledgeMoveAnnotation, "")(m)
}

// asUpdatingMachine marks a machine as being updated in place.
func asUpdatingMachine(m *clusterv1.Machine) {
	capitest.WithAnnotation[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, "")(m)
}

// The test rows come from Cluster API's tests. Each row has a machine and a set, and whether the set must start an
// in-place update of the machine.
func TestIsInPlaceUpdateDue(t *testing.T) {
	hooked := capitest.WithAnnotation[*clusterv1.Machine](
		runtimev1.PendingHooksAnnotation,
		"Other,"+capiset.UpdateMachineHook,
	)
	otherHook := capitest.WithAnnotation[*clusterv1.Machine](runtimev1.PendingHooksAnnotation, "Other")
	acknowledged := capitest.WithAnnotation[*clusterv1.MachineSet](clusterv1.AcknowledgedMoveAnnotation, "a,m")
	another := capitest.WithAnnotation[*clusterv1.MachineSet](clusterv1.AcknowledgedMoveAnnotation, "mm")
	for name, test := range map[string]struct {
		machine []capitest.MachineChange
		set     []capitest.SetChange
		due     bool
	}{
		"no update":                         {},
		"its set counts it":                 {[]capitest.MachineChange{asMovedMachine}, []capitest.SetChange{capitest.WithDeploymentOwner, acknowledged}, true},
		"its set does not count it":         {[]capitest.MachineChange{asMovedMachine}, []capitest.SetChange{capitest.WithDeploymentOwner, another}, false},
		"its set has no deployment":         {[]capitest.MachineChange{asMovedMachine}, nil, true},
		"it was counted before":             {[]capitest.MachineChange{asUpdatingMachine}, []capitest.SetChange{capitest.WithDeploymentOwner}, true},
		"core updates it already":           {[]capitest.MachineChange{asUpdatingMachine, hooked}, []capitest.SetChange{capitest.WithDeploymentOwner}, false},
		"core ends it":                      {[]capitest.MachineChange{hooked}, nil, false},
		"core waits for another hook of it": {[]capitest.MachineChange{asUpdatingMachine, otherHook}, []capitest.SetChange{capitest.WithDeploymentOwner}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := capitest.NewSet("s", 1, test.set...)
			m := capitest.NewMachine("m", s, test.machine...)
			assert.Equal(t, test.due, capiset.IsInPlaceUpdateDue(m, s))
			o := capiset.ScaleFacts(
				capitest.NewOfflineCache(capitest.DefaultSettings, cache.PreflightConfig{}),
				s,
				capi.RelatedObjects{Members: []*clusterv1.Machine{m}, Cluster: capitest.NewCluster()},
				capitest.Noon,
				0,
			)
			assert.Equal(t, test.due, o.Members[0].ClusterAPI.UpdateDue)
			updating := len(test.machine) > 0
			_, handed := m.Annotations[clusterv1.PendingAcknowledgeMoveAnnotation]
			assert.Equal(t, []bool{updating, handed}, []bool{o.Members[0].Updating, o.Members[0].MovedForUpdate})
		})
	}
}

// The test rows come from Cluster API: a set moves its surplus machines only to a set that accepts them.
func TestMoveRejectionReason(t *testing.T) {
	takes := capitest.WithAnnotation[*clusterv1.MachineSet](
		clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation,
		"r,s",
	)
	hash := func(s *clusterv1.MachineSet) { s.Labels[clusterv1.MachineDeploymentUniqueLabel] = "next" }
	s := capitest.NewSet(
		"s",
		1,
		capitest.WithAnnotation[*clusterv1.MachineSet](clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
	)
	for why, receiver := range map[string]*clusterv1.MachineSet{
		"it does not exist":   nil,
		"it is being deleted": capitest.NewSet("next", 1, takes, hash, capitest.AsDeletingObject),
		"it has no label " + clusterv1.MachineDeploymentUniqueLabel: capitest.NewSet("next", 1, takes),
		"it takes no machines of this set":                          capitest.NewSet("next", 1, hash),
		"":                                                          capitest.NewSet("next", 1, takes, hash),
	} {
		o := capiset.ScaleFacts(
			capitest.NewOfflineCache(capitest.DefaultSettings, cache.PreflightConfig{}),
			s,
			capi.RelatedObjects{Cluster: capitest.NewCluster(), Receiver: receiver},
			capitest.Noon,
			0,
		)
		assert.Equal(t, []string{"next", why}, []string{o.ClusterAPI.MoveTarget, o.ClusterAPI.NoMoveReason})
	}
	o := capiset.ScaleFacts(
		capitest.NewOfflineCache(capitest.DefaultSettings, cache.PreflightConfig{}),
		capitest.NewSet("s", 1),
		capi.RelatedObjects{Cluster: capitest.NewCluster()},
		capitest.Noon,
		0,
	)
	assert.Equal(t, []string{"", ""}, []string{o.ClusterAPI.MoveTarget, o.ClusterAPI.NoMoveReason})
}
