package scale_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/scale"
)

// The test rows describe a Cluster API set that moves its surplus to another set.
func TestASetMovesItsSurplus(t *testing.T) {
	moving := func(o *scale.Facts) { o.ClusterAPI.MoveTarget = "next" }
	sick := func(m *scale.Member) { asMarkedMachine(m); asUnhealthyMachine(m) }
	hurt := func(members []scale.Member, name string, c memberChange) []scale.Member {
		for i := range members {
			if members[i].Name == name {
				c(&members[i])
			}
		}
		return members
	}
	for name, test := range map[string]struct {
		replicas      int
		members       []scale.Member
		refused       string
		moved, purged []string
	}{
		"no surplus":                               {replicas: 3, members: runningMembers(3)},
		"the surplus, in the order of deletion":    {replicas: 1, members: runningMembers(3), moved: []string{"m-3", "m-2"}},
		"a machine that a person chose goes first": {replicas: 2, members: hurt(runningMembers(3), "m-1", asMachineToDeleteFirst), moved: []string{"m-1"}},
		"one that is being deleted counts":         {replicas: 2, members: hurt(runningMembers(3), "m-3", asDeletingMachine)},
		"one that is updated stays, another goes":  {replicas: 2, members: hurt(runningMembers(3), "m-3", asUpdatingMachine), moved: []string{"m-2"}},
		"all are updated":                          {replicas: 0, members: runningMembers(2, asUpdatingMachine)},
		"one without a node stays, another goes":   {replicas: 2, members: hurt(runningMembers(3), "m-3", asFreshMachine), moved: []string{"m-2"}},
		"nothing to update without a node":         {replicas: 1, members: runningMembers(2, asFreshMachine), purged: []string{"m-2"}},
		"a marked machine is deleted":              {replicas: 1, members: hurt(runningMembers(3), "m-2", sick), purged: []string{"m-2"}},
		"no more marked machines than the surplus": {replicas: 2, members: runningMembers(3, sick), purged: []string{"m-3"}},
		"the other set takes none":                 {replicas: 1, members: runningMembers(3), refused: "it does not exist"},
		"one that another set handed over stays":   {replicas: 1, members: hurt(runningMembers(2), "m-2", asMovedMachine)},
	} {
		t.Run(name, func(t *testing.T) {
			o := withChange(newSet(test.replicas, test.members...), func(o *scale.Facts) {
				moving(o)
				o.ClusterAPI.NoMoveReason, o.Remediation.SetIsOutdated = test.refused, true
			})
			d := scale.Decide(o)
			assert.Equal(t, test.moved, targetNames(d.Move))
			assert.Equal(t, test.purged, targetNames(d.Delete))
			assert.Empty(t, d.Remediate)
			if test.refused != "" {
				assert.Equal(t, "2 machines to be moved to MachineSet next wait: it does not exist", d.Hold)
			}
		})
	}
	d := scale.Decide(withChange(newSet(1, runningMembers(3)...), moving))
	assert.Equal(t, "move 2 machines to MachineSet next, which updates them in place: 1 wanted, 3 there", d.Why)
	assert.Equal(t, "surplus: MachineSet next updates it in place", d.Move[0].Why)
}

// The test rows describe a Cluster API set that receives machines to update.
func TestASetBeginsUpdatesInPlace(t *testing.T) {
	due := func(m *scale.Member) { asUpdatingMachine(m); m.ClusterAPI.UpdateDue = true }
	handed := func(m *scale.Member) { asUpdatingMachine(m); asMovedMachine(m) }
	o := newSet(2, append(runningMembers(1), newMember("m-8", 0, handed), newMember("m-9", 0, due))...)
	d := scale.Decide(o)
	assert.Equal(t, []string{"m-9"}, targetNames(d.Update))
	assert.Equal(t, "begin the update in place of 1 machine", d.Why)
	assert.True(
		t,
		isIdleDecision(
			scale.Decide(withChange(o, func(o *scale.Facts) { o.MissingObjectKinds = []string{"DockerMachineTemplate"} })),
		),
		"there is no template to update to",
	)
	assert.True(
		t,
		isIdleDecision(scale.Decide(newSet(1, append(runningMembers(1), newMember("m-9", 0, handed))...))),
		"a machine that the size does not count yet is no surplus",
	)
	assert.Len(t, scale.Decide(newSet(1, append(runningMembers(3), newMember("m-9", 0, handed))...)).Delete, 2)

	var many []scale.Member
	for i := range scale.MaxBatchSize + 1 {
		many = append(many, newMember(fmt.Sprintf("m-%d", i), 0, due))
	}
	assert.Len(t, scale.Decide(newSet(len(many), many...)).Update, scale.MaxBatchSize)
}
