package rollout

import (
	"fmt"
	"slices"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/starter/kubecli"
)

// advice returns the commands that a person can use for a rollout now, one line each, the most likely first; nil if the
// rollout is complete.
func (s snapshot) advice() []string {
	o, d := s.facts, s.decision
	switch {
	case o.Deleting:
		return []string{"To see why its machines are still there: " + s.tree.listDeletionsCommand}
	case o.InvalidReason != "":
		return []string{
			fmt.Sprintf(
				"To put it right: kubectl edit %s -n %s %s",
				s.tree.resource,
				s.tree.object.GetNamespace(),
				s.tree.object.GetName(),
			),
		}
	case d.Complete && d.Pin == nil:
		return nil
	case o.Paused:
		return []string{"To go on: millwright rollout resume " + s.tree.argument}
	}
	var list []string
	switch {
	case o.HoldReason != "":
		list = append(list, "To go on: millwright rollout resume "+s.tree.argument)
	case d.Pause != nil:
		list = append(list, "To pass the step: millwright rollout approve "+s.tree.argument+" "+kubecli.ExampleReasonFlag)
	default:
		list = append(list, s.unblockCommands()...)
		if d.Rolling {
			list = append(list, "To stop it where it is: millwright rollout pause "+s.tree.argument)
		}
	}
	switch {
	case d.Pin != nil:
		list = append(
			list,
			"To roll the template out again: millwright rollout retry "+s.tree.argument+" "+kubecli.ExampleReasonFlag,
		)
	case len(o.Sets) > 1 && d.Rollback == nil && !d.BeginsPin():
		list = append(list, "To go back: millwright rollout undo "+s.tree.argument+" "+kubecli.ExampleReasonFlag)
	}
	return list
}

// followCommands returns the command that watches a rollout; nil if the rollout is complete or cannot continue.
func (s snapshot) followCommands() []string {
	o := s.facts
	if o.Deleting || o.InvalidReason != "" || o.Paused || o.HoldReason != "" || s.decision.Complete {
		return nil
	}
	return []string{"To follow it: millwright rollout watch " + s.tree.argument}
}

// unblockCommands returns commands for a rollout that waits for machines or for people.
func (s snapshot) unblockCommands() []string {
	var list []string
	for _, m := range s.awaitedMachines() {
		if m.isBeingDeleted {
			list = append(list, fmt.Sprintf("To see why machine %s is still there: %s", m.name, m.explainCommand))
			break
		}
	}
	m := s.nextOldMachine()
	switch {
	case m == nil:
	case s.facts.Strategy == rollout.OnDelete:
		list = append(
			list,
			fmt.Sprintf(
				"To let an old machine go: kubectl delete %s -n %s %s",
				s.tree.machineResource,
				s.tree.object.GetNamespace(),
				m.name,
			),
		)
	case s.facts.Strategy == rollout.InPlaceManual && m.node != "":
		list = append(list, fmt.Sprintf("To select a node, in its own cluster: kubectl label node %s %s=%s",
			m.node, v1alpha1.LabelSelectedForUpdate, v1alpha1.ValueLowerTrue))
	}
	return list
}

// nextOldMachine returns a machine of an old set that an operator may delete or select next; nil if there is none. The
// machine is not being deleted or updated yet.
func (s snapshot) nextOldMachine() *treeMachine {
	for i, set := range s.facts.Sets {
		if i == s.currentSetIndex() {
			continue
		}
		for _, m := range s.tree.Machines {
			if slices.ContainsFunc(
				set.Machines,
				func(f rollout.Member) bool { return f.UID == m.uid && !f.Deleting && !f.Updating },
			) {
				return &m
			}
		}
	}
	return nil
}
