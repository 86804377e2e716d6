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

// drainStatement returns one sentence about the progress of the drain.
func (s snapshot) drainStatement() statement {
	m, d := s.machine, observe.ActiveRecord(s.machine)
	switch {
	case isQueued(m):
		return s.newStatement(
			[]string{
				s.requestCommandLine(request.Force, kubecli.ExampleReasonFlag),
				s.requestCommandLine(request.Skip, kubecli.ExampleReasonFlag),
			},
			"since %s it waits for its turn to be drained (%s); %s",
			s.stageStartText(),
			m.Status.LastOperation.Description,
			evictionTimeLimitText(m, "then"),
		)
	case observe.IsDrainOver(m):
		return s.newStatement(
			nil,
			"the drain of node %s has ended (%s), and the next stage is about to begin",
			s.nodeName(),
			m.Status.Deletion.Drain.Result,
		)
	case d == nil:
		return s.newStatement(nil, "since %s node %s waits to be emptied; no pod was evicted yet, and %s",
			s.stageStartText(), s.nodeName(), evictionTimeLimitText(m, "with the first eviction"))
	}
	began, at := d.StartedAt.Time, observe.DeadlineFacts(m, s.now).NextDeadline()
	if d.MeansSince != nil {
		began = d.MeansSince.Time
	}
	switch observe.CurrentRemovalMeans(m) {
	case drain.MeansKill:
		return s.newStatement(
			nil,
			"%s; since %s pods are deleted without a grace period%s",
			s.waitText(),
			kubecli.TimeWithAgeText(began, s.now),
			s.deadlineText(at, "the remaining pods stay and the "+s.operationAfterDrain()+" continues"),
		)
	case drain.MeansDelete:
		return s.newStatement(
			[]string{s.requestCommandLine(request.Force, kubecli.ExampleReasonFlag)},
			"%s; since %s pods are deleted with their own grace periods, whatever blocks them%s",
			s.waitText(),
			kubecli.TimeWithAgeText(began, s.now),
			s.deadlineText(at, "they are deleted without"),
		)
	default:
		return s.evictionStatement(began, at)
	}
}

// operationAfterDrain names the operation that continues after the drain: the deletion, the in-place update or the
// preservation.
func (s snapshot) operationAfterDrain() string {
	if isDrainedWithoutDeletion(s.machine) {
		return drainPurpose(s.machine)
	}
	return "deletion"
}

func (s snapshot) evictionStatement(began, at time.Time) statement {
	how, commands, does := "with their own grace periods", s.remedies(), "are evicted"
	if observe.CurrentRemovalMeans(s.machine) == drain.MeansDeleteInOrder {
		does, how = "are deleted in order, because the cluster cannot evict", "all at once"
	}
	if _, then := observe.DeadlineFacts(s.machine, s.now).EvictionDeadline(); then == drain.MeansKill {
		how = "without a grace period, because their node is not well"
	} else if !hasNoDeadline(s.machine) {
		commands = append(commands, s.requestCommandLine(request.Extend, "--for 1h", kubecli.ExampleReasonFlag))
	}
	return s.newStatement(
		append(commands, s.requestCommandLine(request.Force, kubecli.ExampleReasonFlag)),
		"%s; since %s pods %s%s",
		s.waitText(),
		kubecli.TimeWithAgeText(began, s.now),
		does,
		s.deadlineText(at, "the remaining pods are deleted "+how+", whatever blocks them"),
	)
}

// deadlineText describes what happens at the deadline; empty if there is no deadline.
func (s snapshot) deadlineText(at time.Time, what string) string {
	switch {
	case at.IsZero():
		return ""
	case isOverdue(s.machine, s.now):
		return fmt.Sprintf(
			", and the next step was due at %s but did not follow%s",
			phrase.TimeText(at, s.now),
			s.overdueHint(),
		)
	default:
		return fmt.Sprintf(", and at %s %s", phrase.TimeText(at, s.now), what)
	}
}

// waitText describes what the drain waits for. The text comes from the pods of the drain, or else from the condition
// Drained.
func (s snapshot) waitText() string {
	if s.podOverview != nil && s.podOverview.Why != "" {
		return s.podOverview.Why
	}
	for _, c := range s.machine.Status.Conditions {
		if c.Type == v1alpha1.MachineDrained && c.Message != "" {
			return c.Message
		}
	}
	return "node " + s.nodeName() + " is being emptied"
}

// maxRemedies is the maximum number of commands against blockers in one sentence. When the first blockers are gone, the
// next commands are shown. Two commands and the request commands fit into a readable line.
const maxRemedies = 2

// remedies returns commands that show or remove the blockers of a drain, misconfigured budgets first. The commands are
// for the target cluster, which has the pods and budgets.
func (s snapshot) remedies() []string {
	var lines []string
	add := func(line string) {
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if s.podOverview == nil { // the Machine does not contain the names of the misconfigured budgets
		for _, blocker := range blockers(s.machine) {
			if names, isBudget := strings.CutPrefix(blocker, drain.BlockedByBudget+" "); isBudget {
				for name := range strings.SplitSeq(names, " and ") {
					namespace, name, _ := strings.Cut(name, "/")
					add(fmt.Sprintf("kubectl describe pdb -n %s %s", namespace, name))
				}
			}
		}
		return lines[:min(len(lines), maxRemedies)]
	}
	for _, row := range s.podOverview.Rows {
		for _, key := range row.Budgets {
			if namespace, name, _ := strings.Cut(key, "/"); row.Bad {
				add(fmt.Sprintf("kubectl edit pdb -n %s %s", namespace, name))
			}
		}
	}
	for _, row := range s.podOverview.Rows {
		add(remedyForPod(row))
	}
	return lines[:min(len(lines), maxRemedies)]
}

// remedyForPod returns the command that shows or removes the blocker of one pod; empty if no such command exists.
func remedyForPod(row drain.PodRow) string {
	namespace, name, _ := strings.Cut(row.Pod, "/")
	switch row.BlockedBy {
	case drain.BlockedByProtection:
		return fmt.Sprintf("kubectl annotate pod -n %s %s %s-", namespace, name, v1alpha1.AnnotationDoNotDisrupt)
	case drain.BlockedByTermination, drain.BlockedByError, drain.BlockedByBudget:
		return fmt.Sprintf("kubectl describe pod -n %s %s", namespace, name)
	case drain.BlockedByNamespace:
		return "kubectl describe namespace " + namespace
	default:
		return ""
	}
}
