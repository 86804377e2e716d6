package rollout

import (
	"fmt"
	"slices"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/starter/kubecli"
)

// advice lists what a person can do now about a rollout, one line each, the most likely first; nil when it is complete.
func (s snapshot) advice() []string {
	o, d := s.facts, s.next
	switch {
	case o.Deleting:
		return []string{"To see why its machines are still there: " + s.tree.leaving}
	case o.Invalid != "":
		return []string{
			fmt.Sprintf(
				"To put it right: kubectl edit %s -n %s %s",
				s.tree.resource,
				s.tree.object.GetNamespace(),
				s.tree.object.GetName(),
			),
		}
	case d.Complete:
		return nil
	case o.Paused:
		return []string{"To go on: millwright rollout resume " + s.tree.arg}
	}
	var list []string
	switch {
	case o.Held != "":
		list = append(list, "To go on: millwright rollout resume "+s.tree.arg)
	case d.Pause != nil:
		list = append(list, "To pass the step: millwright rollout approve "+s.tree.arg+" "+kubecli.GiveReason)
	default:
		list = append(list, s.help()...)
		if d.Rolling {
			list = append(list, "To stop it where it is: millwright rollout pause "+s.tree.arg)
		}
	}
	if len(o.Sets) > 1 && d.Rollback == nil {
		list = append(list, "To go back: millwright rollout undo "+s.tree.arg+" "+kubecli.GiveReason)
	}
	return list
}

// follow returns the command that watches a rollout; nil if the rollout is complete or cannot continue.
func (s snapshot) follow() []string {
	o := s.facts
	if o.Deleting || o.Invalid != "" || o.Paused || o.Held != "" || s.next.Complete {
		return nil
	}
	return []string{"To follow it: millwright rollout watch " + s.tree.arg}
}

// help lists commands for a rollout that waits for machines or for people.
func (s snapshot) help() []string {
	var list []string
	for _, m := range s.awaited() {
		if m.deleting {
			list = append(list, fmt.Sprintf("To see why machine %s is still there: %s", m.name, m.look))
			break
		}
	}
	m := s.oldMachine()
	switch {
	case m == nil:
	case s.facts.Strategy == rollout.OnDelete:
		list = append(
			list,
			fmt.Sprintf(
				"To let an old machine go: kubectl delete %s -n %s %s",
				s.tree.machines,
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

// oldMachine returns a machine that a person may delete or select next: a machine of an old set that is neither being
// deleted nor updated; nil if there is none.
func (s snapshot) oldMachine() *member {
	for i, set := range s.facts.Sets {
		if i == s.current() {
			continue
		}
		for _, m := range s.tree.Members {
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
