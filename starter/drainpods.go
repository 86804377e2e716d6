package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe"
)

// emptying tells of the drain.
func (s sight) emptying() string {
	m, d := s.machine, observe.Draining(s.machine)
	patience := m.Spec.EffectiveDrainTimeout()
	switch {
	case queued(m):
		return s.say([]string{s.verb(force, giveReason), s.verb(skip, giveReason)}, "since %s it waits for its turn to be drained (%s); its drainTimeout of %s begins then",
			s.sinceStage(), m.Status.LastOperation.Description, patience)
	case observe.DrainOver(m):
		return s.say(nil, "the drain of node %s has ended (%s), and the next stage is about to begin", s.node(), m.Status.Deletion.Drain.Result)
	case d == nil:
		return s.say(nil, "since %s node %s is to be emptied, and no pod was asked to go yet; its drainTimeout of %s begins with the first that is",
			s.sinceStage(), s.node(), patience)
	}
	began, at := d.StartedAt.Time, observe.StepDeadline(m, s.now)
	if d.MeansSince != nil {
		began = d.MeansSince.Time
	}
	switch observe.DrainMeans(m) {
	case drain.Kill:
		return s.say(nil, "%s; since %s pods are deleted without a grace period%s", s.waits(), since(began, s.now),
			s.then(at, "what is left stays behind and the "+s.rest()+" goes on"))
	case drain.Delete:
		return s.say([]string{s.verb(force, giveReason)}, "%s; since %s pods are deleted with their own grace periods, whatever blocks them%s",
			s.waits(), since(began, s.now), s.then(at, "they are deleted without"))
	default:
		return s.evicting(began, at)
	}
}

// rest is what follows a drain.
func (s sight) rest() string {
	if staying(s.machine) {
		return goal(s.machine)
	}
	return "deletion"
}

func (s sight) evicting(began, at time.Time) string {
	how, commands := "with their own grace periods", s.remedies()
	if _, then := observe.Evictions(s.machine, s.now); then == drain.Kill {
		how = "without a grace period, because their node is not well"
	} else {
		commands = append(commands, s.verb(extend, "--for 1h", giveReason))
	}
	return s.say(append(commands, s.verb(force, giveReason)), "%s; since %s pods are evicted%s", s.waits(), since(began, s.now),
		s.then(at, "those that are left are deleted "+how+", whatever blocks them"))
}

// then tells what a deadline brings.
func (s sight) then(at time.Time, what string) string {
	switch {
	case at.IsZero():
		return ""
	case late(s.machine, s.now):
		return fmt.Sprintf(", and what should have followed at %s did not%s", when(at, s.now), s.doubtIfLate())
	default:
		return fmt.Sprintf(", and at %s %s", when(at, s.now), what)
	}
}

// waits says what the drain waits for: as it sees it, else as its condition says it.
func (s sight) waits() string {
	if s.picture != nil && s.picture.Why != "" {
		return s.picture.Why
	}
	return cmp.Or(condition(s.machine, v1alpha1.MachineDrained).Message, "node "+s.node()+" is being emptied")
}

// mostRemedies is how many commands against blockers are named; the others follow when those are gone. Source: what fits
// beside the verbs in a line that is read.
const mostRemedies = 2

// remedies are the commands that take away what blocks a drain, the first ones of them. Pods and budgets are in the cluster
// of the node.
func (s sight) remedies() []string {
	var lines []string
	add := func(line string) {
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, key := range s.budgets() {
		namespace, name, _ := strings.Cut(key, "/")
		if s.misconfigured(key) {
			add(fmt.Sprintf("kubectl edit pdb -n %s %s", namespace, name))
		}
	}
	if s.picture != nil {
		for _, row := range s.picture.Rows {
			add(remedy(row))
		}
	}
	return lines[:min(len(lines), mostRemedies)]
}

// remedy is the command that frees one pod from what blocks it alone; empty when that is not known.
func remedy(row drain.Row) string {
	namespace, name, _ := strings.Cut(row.Pod, "/")
	switch row.BlockedBy {
	case drain.BlockedByProtection:
		return fmt.Sprintf("kubectl annotate pod -n %s %s %s-", namespace, name, v1alpha1.AnnotationDoNotDisrupt)
	case drain.BlockedByEnding, drain.BlockedByError, drain.BlockedByBudget:
		return fmt.Sprintf("kubectl describe pod -n %s %s", namespace, name)
	case drain.BlockedByNamespace:
		return "kubectl describe namespace " + namespace
	default:
		return ""
	}
}

// budgets are the disruption budgets that block a drain, as namespace/name, sorted.
func (s sight) budgets() []string {
	var keys []string
	if s.picture != nil {
		for _, row := range s.picture.Rows {
			if row.State == drain.Blocked && strings.Contains(row.BlockedBy, "/") { // of all blockers, only budgets have such names
				keys = append(keys, strings.Split(row.BlockedBy, " and ")...)
			}
		}
	} else {
		for _, blocker := range blockers(s.machine) {
			if names, isBudget := strings.CutPrefix(blocker, drain.BlockedByBudget+" "); isBudget {
				keys = append(keys, strings.Split(names, " and ")...)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// misconfigured reports whether a budget allows nothing as it stands. The drain tells so in words alone; a picture with other
// words leads to no hint, and to nothing worse.
func (s sight) misconfigured(key string) bool {
	for part := range strings.SplitSeq(s.waits(), "; ") {
		never := strings.Contains(part, " "+key+" allows none of its ")
		several := strings.Contains(part, " select the same pods") && strings.Contains(part+" ", " "+key+" ")
		if never || several {
			return true
		}
	}
	return false
}
