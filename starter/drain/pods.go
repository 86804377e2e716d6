package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/decide/request"
	observe "millwright/observe/drain"
	"millwright/starter/kubecli"
)

// evictions says in one sentence how far the drain has come.
func (s snapshot) evictions() string {
	m, d := s.machine, observe.Draining(s.machine)
	switch {
	case queued(m):
		return s.say(
			[]string{s.command(request.Force, kubecli.GiveReason), s.command(request.Skip, kubecli.GiveReason)},
			"since %s it waits for its turn to be drained (%s); %s",
			s.sinceStage(),
			m.Status.LastOperation.Description,
			begins(m, "then"),
		)
	case observe.IsOver(m):
		return s.say(
			nil,
			"the drain of node %s has ended (%s), and the next stage is about to begin",
			s.node(),
			m.Status.Deletion.Drain.Result,
		)
	case d == nil:
		return s.say(nil, "since %s node %s waits to be emptied; no pod was evicted yet, and %s",
			s.sinceStage(), s.node(), begins(m, "with the first eviction"))
	}
	began, at := d.StartedAt.Time, observe.Deadlines(m, s.now).Next()
	if d.MeansSince != nil {
		began = d.MeansSince.Time
	}
	switch observe.Means(m) {
	case drain.Kill:
		return s.say(nil, "%s; since %s pods are deleted without a grace period%s", s.waits(), kubecli.Since(began, s.now),
			s.then(at, "the remaining pods stay and the "+s.rest()+" continues"))
	case drain.Delete:
		return s.say(
			[]string{s.command(request.Force, kubecli.GiveReason)},
			"%s; since %s pods are deleted with their own grace periods, whatever blocks them%s",
			s.waits(),
			kubecli.Since(began, s.now),
			s.then(at, "they are deleted without"),
		)
	default:
		return s.evicting(began, at)
	}
}

// rest names what continues after the drain: the deletion, or the reason for which a machine that stays is drained.
func (s snapshot) rest() string {
	if staying(s.machine) {
		return goal(s.machine)
	}
	return "deletion"
}

func (s snapshot) evicting(began, at time.Time) string {
	how, commands, does := "with their own grace periods", s.remedies(), "are evicted"
	if observe.Means(s.machine) == drain.DeleteInOrder {
		does, how = "are deleted in order, because the cluster cannot evict", "all at once"
	}
	if _, then := observe.Deadlines(s.machine, s.now).EvictUntil(); then == drain.Kill {
		how = "without a grace period, because their node is not well"
	} else if !endless(s.machine) {
		commands = append(commands, s.command(request.Extend, "--for 1h", kubecli.GiveReason))
	}
	return s.say(
		append(commands, s.command(request.Force, kubecli.GiveReason)),
		"%s; since %s pods %s%s",
		s.waits(),
		kubecli.Since(began, s.now),
		does,
		s.then(at, "the remaining pods are deleted "+how+", whatever blocks them"),
	)
}

// then says what happens at a deadline.
func (s snapshot) then(at time.Time, what string) string {
	switch {
	case at.IsZero():
		return ""
	case late(s.machine, s.now):
		return fmt.Sprintf(", and the next step was due at %s but did not follow%s", phrase.When(at, s.now), s.checkIfLate())
	default:
		return fmt.Sprintf(", and at %s %s", phrase.When(at, s.now), what)
	}
}

// waits says what the drain waits for: from its pods, else from the condition.
func (s snapshot) waits() string {
	if s.picture != nil && s.picture.Why != "" {
		return s.picture.Why
	}
	for _, c := range s.machine.Status.Conditions {
		if c.Type == v1alpha1.MachineDrained && c.Message != "" {
			return c.Message
		}
	}
	return "node " + s.node() + " is being emptied"
}

// mostRemedies is the maximum number of commands against blockers in a sentence; the others are shown when these
// blockers are gone. Source: two commands and the commands for requests still fit into a readable line.
const mostRemedies = 2

// remedies are commands that remove what blocks a drain, misconfigured budgets first. Pods and budgets are in the
// target cluster.
func (s snapshot) remedies() []string {
	var lines []string
	add := func(line string) {
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if s.picture == nil { // the Machine does not say which budgets are misconfigured
		for _, blocker := range blockers(s.machine) {
			if names, isBudget := strings.CutPrefix(blocker, drain.BlockedByBudget+" "); isBudget {
				for name := range strings.SplitSeq(names, " and ") {
					namespace, name, _ := strings.Cut(name, "/")
					add(fmt.Sprintf("kubectl describe pdb -n %s %s", namespace, name))
				}
			}
		}
		return lines[:min(len(lines), mostRemedies)]
	}
	for _, row := range s.picture.Rows {
		for _, key := range row.Budgets {
			if namespace, name, _ := strings.Cut(key, "/"); row.Bad {
				add(fmt.Sprintf("kubectl edit pdb -n %s %s", namespace, name))
			}
		}
	}
	for _, row := range s.picture.Rows {
		add(remedy(row))
	}
	return lines[:min(len(lines), mostRemedies)]
}

// remedy is the command that shows or removes the blocker of one pod; empty if there is no such command.
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
