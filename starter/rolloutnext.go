package main

import (
	"fmt"
	"slices"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// advice is what a person can do now about a rollout, a line each, what is most likely wanted first. None when it is complete.
func (s stand) advice() []string {
	o, d := s.facts, s.next
	switch {
	case o.Deleting:
		return []string{"To see why its machines are still there: starter drain list -n " + s.family.Deployment.Namespace}
	case o.Invalid != "":
		return []string{fmt.Sprintf("To put it right: kubectl edit machinedeployment -n %s %s", s.family.Deployment.Namespace, s.family.Deployment.Name)}
	case d.Complete:
		return nil
	case o.Paused:
		return []string{"To go on: starter rollout resume " + s.key()}
	}
	var list []string
	switch {
	case o.Held != "":
		list = append(list, "To go on: starter rollout resume "+s.key())
	case d.Gate != nil:
		list = append(list, "To pass the stage: starter rollout approve "+s.key()+" "+giveReason)
	default:
		list = append(list, s.help()...)
		if d.Rolling {
			list = append(list, "To stop it where it is: starter rollout pause "+s.key())
		}
	}
	if len(o.Sets) > 1 && d.Rollback == nil {
		list = append(list, "To go back: starter rollout undo "+s.key()+" "+giveReason)
	}
	return list
}

// follow is how a rollout is followed that goes on; nothing for others.
func (s stand) follow() []string {
	o := s.facts
	if o.Deleting || o.Invalid != "" || o.Paused || o.Held != "" || s.next.Complete {
		return nil
	}
	return []string{"To follow it: starter rollout watch " + s.key()}
}

// help is what lets a rollout go on that waits for machines or for people.
func (s stand) help() []string {
	var list []string
	for _, m := range s.awaited() {
		if m.DeletionTimestamp != nil {
			list = append(list, fmt.Sprintf("To see why machine %s is still there: starter drain explain %s", m.Name, keyOf(m)))
			break
		}
	}
	m := s.oldMachine()
	switch {
	case m == nil:
	case s.facts.Strategy == rollout.OnDelete:
		list = append(list, fmt.Sprintf("To let an old machine go: kubectl delete machine -n %s %s", m.Namespace, m.Name))
	case s.facts.Strategy == rollout.InPlaceManual && m.Labels[v1alpha1.LabelNode] != "":
		list = append(list, fmt.Sprintf("To select a node, in its own cluster: kubectl label node %s %s=%s",
			m.Labels[v1alpha1.LabelNode], v1alpha1.LabelSelectedForUpdate, v1alpha1.ValueLowerTrue))
	}
	return list
}

// oldMachine is one that a person may let go or select next: of another set than the current one, and neither on its way out nor
// under update; nil when there is none.
func (s stand) oldMachine() *v1alpha1.Machine {
	for i, set := range s.facts.Sets {
		if i == s.current() {
			continue
		}
		for _, m := range s.family.Members {
			if slices.ContainsFunc(set.Machines, func(f rollout.Member) bool { return f.UID == string(m.UID) && !f.Deleting && !f.Updating }) {
				return m
			}
		}
	}
	return nil
}
