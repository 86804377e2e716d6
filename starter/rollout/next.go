package rollout

import (
	"fmt"
	"slices"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/starter/kubecli"
)

// advice lists what a person can do now about a rollout, one line each, the most likely first; nil when it is complete.
func (s snapshot) advice() []string {
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
	case d.Pause != nil:
		list = append(list, "To pass the step: starter rollout approve "+s.key()+" "+kubecli.GiveReason)
	default:
		list = append(list, s.help()...)
		if d.Rolling {
			list = append(list, "To stop it where it is: starter rollout pause "+s.key())
		}
	}
	if len(o.Sets) > 1 && d.Rollback == nil {
		list = append(list, "To go back: starter rollout undo "+s.key()+" "+kubecli.GiveReason)
	}
	return list
}

// follow returns the command that watches a rollout; nil if the rollout is complete or cannot continue.
func (s snapshot) follow() []string {
	o := s.facts
	if o.Deleting || o.Invalid != "" || o.Paused || o.Held != "" || s.next.Complete {
		return nil
	}
	return []string{"To follow it: starter rollout watch " + s.key()}
}

// help lists commands with which a rollout continues that waits for machines or for people.
func (s snapshot) help() []string {
	var list []string
	for _, m := range s.awaited() {
		if m.DeletionTimestamp != nil {
			list = append(list, fmt.Sprintf("To see why machine %s is still there: starter drain explain %s", m.Name, kubecli.KeyOf(m)))
			break
		}
	}
	m := s.oldMachine()
	switch {
	case m == nil:
	case s.facts.Strategy == rollout.OnDelete:
		list = append(list, fmt.Sprintf("To let an old machine go: kubectl delete machine -n %s %s", m.Namespace, m.Name))
	case s.facts.Strategy == rollout.InPlaceManual && cache.NodeNameOf(m) != "":
		list = append(list, fmt.Sprintf("To select a node, in its own cluster: kubectl label node %s %s=%s",
			cache.NodeNameOf(m), v1alpha1.LabelSelectedForUpdate, v1alpha1.ValueLowerTrue))
	}
	return list
}

// oldMachine returns a machine that a person may delete or select next: of an old set, and neither being deleted nor updated;
// nil if there is none.
func (s snapshot) oldMachine() *v1alpha1.Machine {
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
