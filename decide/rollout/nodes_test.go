package rollout_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestNodesOfOldMachinesAreTainted(t *testing.T) {
	bare := func(m *rollout.Member) { m.MCM.NodeTainted = false }
	t.Run("nodes of old sets, also of those that joined late", func(t *testing.T) {
		o := rollingUpdateDeployment(
			3,
			1,
			0,
			withChangedMachine(withChangedMachine(oldSet(1, 3, 3, 3), 1, bare), 2, bare, withoutNode),
			currentSet(2, 1, 1, 0),
		)
		assert.Equal(t, []string{"ms1-01"}, targetNames(rollout.Decide(o).Taint))
		assert.Equal(t, "node-ms1-01", rollout.Decide(o).Taint[0].Node)
	})
	t.Run("the taint goes when the set is the current one again", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, withChangedMachine(currentSet(1, 3, 3, 3), 1, withTaintedNode))
		assert.Equal(t, []string{"ms1-01"}, targetNames(rollout.Decide(o).Untaint))
		assert.Equal(t, []string{"ms1-01"}, targetNames(rollout.Decide(withPause(o)).Untaint))
	})
	t.Run("not while paused, and not for Recreate", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, withChangedMachine(oldSet(1, 3, 3, 3), 1, bare), currentSet(2, 1, 1, 0))
		assert.Empty(t, rollout.Decide(withPause(o)).Taint)
		assert.Empty(t, rollout.Decide(withStrategy(rollout.Recreate, o)).Taint)
	})
}

func TestNodesAreProtectedFromTheAutoscalerDuringARollout(t *testing.T) {
	own := func(value string) func(*rollout.Member) {
		return func(m *rollout.Member) { m.MCM.ScaleDownDisabledValue = value }
	}
	mixed := func(changes ...func(*rollout.Member)) rollout.Facts {
		o := rollingUpdateDeployment(
			2,
			1,
			0,
			withAllMachinesChanged(oldSet(1, 2, 2, 2), withScaleDownDisabledNode),
			withChangedMachine(currentSet(2, 1, 1, 0), 0, changes...),
		)
		o.MCM.ProtectsNodesFromAutoscaler = true
		return o
	}
	for _, row := range []struct {
		name string
		in   rollout.Facts
		want []string
	}{
		{"no annotation yet", mixed(), []string{"ms2-00"}},
		{"the same is there", mixed(withScaleDownDisabledNode), nil},
		{"the same is there, from somebody else", mixed(own("true")), nil},
		{"another value", mixed(own("false")), []string{"ms2-00"}},
		{"no node", mixed(withoutNode), nil},
		{"paused", withPause(mixed()), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := rollout.Decide(row.in)
			assert.Equal(t, row.want, targetNames(d.ProtectFromAutoscaler))
			assert.Empty(t, d.UnprotectFromAutoscaler)
		})
	}
	t.Run("taken away where our marker stands, and not from a preserved machine", func(t *testing.T) {
		s := withChangedMachine(
			withChangedMachine(withChangedMachine(currentSet(1, 3, 3, 3), 0, withScaleDownDisabledNode), 1, own("true")),
			2,
			withScaleDownDisabledNode,
			asPreservedMachine,
		)
		o := rollingUpdateDeployment(3, 1, 0, s)
		o.MCM.ProtectsNodesFromAutoscaler = true
		assert.Equal(t, []string{"ms1-00"}, targetNames(rollout.Decide(o).UnprotectFromAutoscaler))
		o.MCM.ProtectsNodesFromAutoscaler = false
		assert.Equal(t, []string{"ms1-00"}, targetNames(rollout.Decide(o).UnprotectFromAutoscaler))
	})
}

func TestMachinesNamedByTheAutoscalerAreMarked(t *testing.T) {
	const at1, at2 = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"
	marked := func(at string) func(*rollout.Member) {
		return func(m *rollout.Member) { m.Priority, m.MCM.MarkedAt = 1, at }
	}
	named := func(trigger string, set rollout.MachineSet) rollout.Decision {
		o := rollingUpdateDeployment(3, 1, 0, set)
		o.MCM.TriggerAnnotation, o.MCM.AutoscaledAt = trigger, at2
		return rollout.Decide(o)
	}
	drop := func(names ...string) *rollout.TriggerAnnotationUpdate {
		return &rollout.TriggerAnnotationUpdate{Drop: names, At: at2}
	}
	for _, row := range []struct {
		name    string
		in      rollout.Decision
		mark    map[string]string
		trigger *rollout.TriggerAnnotationUpdate
		unmark  []string
	}{
		{"a named machine is marked", named("ms1-00~"+at1, currentSet(1, 3, 3, 3)), map[string]string{"ms1-00": at1}, nil, nil},
		{"nothing changed", named("ms1-00~"+at1, withChangedMachine(currentSet(1, 3, 3, 3), 0, marked(at1))), map[string]string{}, nil, nil},
		{"a machine that is gone is dropped", named("ms1-00~"+at1+",x~"+at1, withChangedMachine(currentSet(1, 3, 3, 3), 0, marked(at1))), map[string]string{}, drop("x"), nil},
		{"the old form gets the time of the last change", named("ms1-00,ms1-01~"+at1, currentSet(1, 3, 3, 3)), map[string]string{"ms1-00": at2, "ms1-01": at1}, drop(), nil},
		{"nonsense is dropped, and the annotation goes", named("ms1-00~soon,,~"+at1, currentSet(1, 3, 3, 3)), map[string]string{}, drop(), nil},
		{"failed and going ones are dropped", named("ms1-00~"+at1+",ms1-01~"+at1, withChangedMachine(withChangedMachine(currentSet(1, 3, 3, 3), 0, asFailedMachine), 1, asDeletingMachine)), map[string]string{}, drop("ms1-00", "ms1-01"), nil},
		{"one that is not named any more is let off", named("", withChangedMachine(currentSet(1, 3, 3, 3), 0, marked(at1))), map[string]string{}, nil, []string{"ms1-00"}},
		{"a time that stands is kept", named("ms1-00~"+at2, withChangedMachine(currentSet(1, 3, 3, 3), 0, func(m *rollout.Member) { m.MCM.MarkedAt = at1 })), map[string]string{"ms1-00": at1}, nil, nil},
		{"a priority that a person gave is left alone", named("", withChangedMachine(currentSet(1, 3, 3, 3), 0, func(m *rollout.Member) { m.Priority = 1 })), map[string]string{}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := map[string]string{}
			for _, m := range row.in.Mark {
				got[m.Name] = m.At
			}
			assert.Equal(t, row.mark, got)
			assert.Equal(t, row.trigger, row.in.Trigger)
			assert.Equal(t, row.unmark, targetNames(row.in.Unmark))
		})
	}
	t.Run("without such a time it is now", func(t *testing.T) {
		o := rollingUpdateDeployment(3, 1, 0, currentSet(1, 3, 3, 3))
		o.MCM.TriggerAnnotation = "ms1-00"
		assert.Equal(t, "2026-01-01T00:00:00Z", rollout.Decide(o).Mark[0].At)
	})
	t.Run("marks stand before a size changes", func(t *testing.T) {
		o := rollingUpdateDeployment(2, 1, 0, currentSet(1, 3, 3, 3))
		o.MCM.TriggerAnnotation = "ms1-00~" + at1
		assert.Empty(t, rollout.Decide(o).Resize)
		o.Sets[0] = withChangedMachine(o.Sets[0], 0, marked(at1))
		assert.Equal(t, map[string]int{"ms1": 2}, changedSizes(rollout.Decide(o)))
	})
}

// If the autoscaler chooses a new machine during a rollout, the new set deletes this machine even if its size does not
// require it. The smaller size of the new set therefore does not allow the deletion of an old machine.
func TestAutoscalerChoiceOfNewMachineDeletesNoOldMachine(t *testing.T) {
	const before, scaled, later = "2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"
	marked := func(at string) func(*rollout.Member) {
		return func(m *rollout.Member) { m.Priority, m.MCM.MarkedAt = 1, at }
	}
	decide := func(at string, replicas int, oldOnes, newOnes rollout.MachineSet) map[string]int {
		o := rollingUpdateDeployment(replicas, 1, 0, oldOnes, newOnes)
		o.MCM.AutoscaledAt = at
		var requests []string
		for _, set := range o.Sets {
			for _, m := range set.Machines {
				if m.MCM.MarkedAt != "" {
					requests = append(requests, m.Name+"~"+m.MCM.MarkedAt)
				}
			}
		}
		o.MCM.TriggerAnnotation = strings.Join(requests, ",")
		return changedSizes(rollout.Decide(o))
	}
	one := currentSet(2, 1, 1, 1)
	assert.Equal(t, map[string]int{"ms1": 3}, decide(scaled, 4, oldSet(1, 4, 4, 4), one), "without a choice")
	assert.Empty(t, decide(scaled, 4, oldSet(1, 4, 4, 4), withChangedMachine(one, 0, marked(scaled))))
	assert.Empty(t, decide(scaled, 4, oldSet(1, 4, 4, 4), withChangedMachine(one, 0, marked(before))))
	assert.Equal(
		t,
		map[string]int{"ms1": 3},
		decide(scaled, 4, oldSet(1, 4, 4, 4), withChangedMachine(one, 0, marked(later))),
		"a choice that its set does not follow yet",
	)
	assert.Equal(
		t,
		map[string]int{"ms1": 3},
		decide("", 4, oldSet(1, 4, 4, 4), withChangedMachine(one, 0, marked(before))),
	)
	assert.Equal(
		t,
		map[string]int{"ms1": 3},
		decide(scaled, 4, withChangedMachine(oldSet(1, 4, 4, 4), 0, marked(scaled)), one),
		"the chosen one is the old one that goes",
	)
	three := withChangedMachine(
		withChangedMachine(withChangedMachine(currentSet(2, 4, 4, 4), 0, marked(scaled)), 1, marked(scaled)),
		2,
		marked(scaled),
	)
	assert.Empty(t, decide(scaled, 5, oldSet(1, 4, 4, 4), three), "three at once")
}

func TestApplyTriggerAnnotationUpdate(t *testing.T) {
	const at1, at2 = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"
	for _, row := range []struct {
		name, list, want string
		drop             []string
	}{
		{"what is dropped goes", "a~" + at1 + ",b~" + at1, "b~" + at1, []string{"a", "c"}},
		{"nothing is left", "a~" + at1, "", []string{"a"}},
		{"the old form gets the time", "a,b~" + at1, "a~" + at2 + ",b~" + at1, nil},
		{"nonsense goes", "a~soon,,~" + at1 + ",b~" + at1 + ",b~" + at2, "b~" + at1, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			trigger := rollout.TriggerAnnotationUpdate{Drop: row.drop, At: at2}
			got := trigger.Apply(row.list)
			assert.Equal(t, row.want, got)
			assert.Equal(t, got, trigger.Apply(got))
		})
	}
}
