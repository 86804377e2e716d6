package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// writeStatus writes the report into the machine's status.
func (d *nodeDrain) writeStatus(ctx workflow.Context, summary string, report machine.Report) error {
	return run.ReportMachineStatus(ctx, d.WorkflowState, summary, d.reportDrain, report)
}

// reportEviction reports the result of the last eviction. An event reports blockers, or that none is left.
func (d *nodeDrain) reportEviction(ctx workflow.Context, next activities.Decision, wasBlocked bool) error {
	seen := d.lastEvictionResult
	d.showStep(ctx, next)
	reason := vocabulary.ReasonDraining
	event := kube.Event{Reason: vocabulary.ReasonDrainUnblocked, Message: "node " + d.NodeName + ": " + seen.Picture.Why}
	if len(seen.Blockers) > 0 {
		reason = vocabulary.ReasonBlocked
		event.Warning, event.Reason = true, vocabulary.ReasonDrainBlocked
	}
	if !next.Step.Means.KeepsPodOrder() {
		reason = vocabulary.ReasonForcing
	}
	report := d.newReport(ctx, reason, seen.Picture.Why)
	if len(seen.Blockers) > 0 || wasBlocked {
		report.Event = &event
	}
	return d.writeStatus(ctx, seen.Picture.Why, report)
}

// reportUnansweredCluster reports that the node's cluster does not answer, and later that it answers again.
func (d *nodeDrain) reportUnansweredCluster(ctx workflow.Context, next activities.Decision) (err error) {
	switch unanswered := next.Unanswered != ""; {
	case unanswered == d.Unanswered:
		return nil
	case unanswered:
		d.showStep(ctx, next)
		err = d.writeStatus(ctx, next.Why, d.newReport(ctx, vocabulary.ReasonBlocked, next.Why))
	default:
		err = d.reportEviction(ctx, next, false)
	}
	if err == nil {
		d.Unanswered = !d.Unanswered
	}
	return err
}

// maxMessageCauses is the maximum number of causes in the machine's status message. Two causes fit into the 80 columns
// of a terminal.
const maxMessageCauses = 2

func (d *nodeDrain) showStep(ctx workflow.Context, next activities.Decision) {
	s := run.Step{
		Name:     stepName(next.Step.Means),
		Why:      next.Why,
		Phase:    d.machinePhase(),
		Node:     d.NodeName,
		Deadline: next.Step.Until,
	}
	if p := d.lastEvictionResult.Picture; p.Why != "" {
		s.Why, s.Table = p.Why+"; "+next.Why, formatPodTable(p, workflow.Now(ctx))
	}
	var names, causes []string
	var volumes time.Time // earliest end of a wait for a volume, if only volumes block the drain; otherwise zero
	for i, b := range d.lastEvictionResult.Blockers {
		if i == 0 || b.Until.Before(volumes) {
			volumes = b.Until
		}
		names, causes = append(names, strings.TrimSpace(b.Kind+" "+b.Name)), append(causes, b.Why)
	}
	s.Stuck = len(names) > 0
	if !volumes.IsZero() && volumes.Before(s.Deadline) {
		s.Deadline = volumes
	}
	s.Cause = cmp.Or(
		phrase.JoinNames(causes, maxMessageCauses, "; "),
		d.lastEvictionResult.Picture.Why,
		describeRemovalMeans(next.Step.Means),
	)
	s.BlockedBy = names
	if next.Unanswered != "" {
		s.Why, s.Cause, s.Stuck, s.BlockedBy = next.Why, next.Why, true, []string{vocabulary.BlockedByUnavailableTarget}
	}
	d.ShowStep(ctx, s)
}

// describeRemovalMeans describes the work of a drain that has not read its pods yet.
func describeRemovalMeans(means drain.RemovalMeans) string {
	switch means {
	case drain.MeansDeleteInOrder:
		return "deletes the pods of its node in order"
	case drain.MeansDelete:
		return "deletes the pods of its node"
	case drain.MeansKill:
		return "kills the pods of its node"
	default:
		return "evicts the pods of its node"
	}
}

// stepName returns the name of the step that removes pods by these means.
func stepName(means drain.RemovalMeans) string {
	switch means {
	case drain.MeansDeleteInOrder:
		return vocabulary.StepDeleteInOrder
	case drain.MeansDelete:
		return vocabulary.StepDeletePods
	case drain.MeansKill:
		return vocabulary.StepKillPods
	default:
		return vocabulary.StepEvictPods
	}
}

func formatPodTable(p drain.Overview, now time.Time) string {
	if len(p.Rows) == 0 {
		return ""
	}
	rows := [][]string{{"POD", "STATE", "SINCE", "ATTEMPTS", "BLOCKED BY", "NEXT TRY"}}
	for _, r := range p.Rows {
		rows = append(
			rows,
			[]string{
				r.Pod,
				r.State,
				formatClockTime(r.Since, now),
				strconv.Itoa(r.Attempts),
				r.BlockedBy,
				formatClockTime(r.Next, now),
			},
		)
	}
	c := p.Counts
	return run.FormatTable(rows) +
		fmt.Sprintf(
			"\n\n%d gone, %d terminating, %d blocked, %d waiting for their turn, %d stay",
			c.Gone,
			c.Terminating,
			c.Blocked,
			c.Waiting,
			c.Skipped,
		)
}

func formatClockTime(t, now time.Time) string {
	return phrase.TextIf(!t.IsZero(), "%s", phrase.ClockText(t, now))
}

func (d *nodeDrain) newReport(ctx workflow.Context, reason, message string) machine.Report {
	report := machine.Report{
		Read: d.NewReadInput(ctx), Step: d.StatusStep(),
		Conditions: []machine.Condition{{Type: vocabulary.ConditionDrained, Reason: reason, Message: message}},
	}
	if d.Purpose == "" {
		report.Operation = &machine.LastOperation{
			Type:        vocabulary.OperationDelete,
			State:       vocabulary.StateProcessing,
			Description: drainInitiatedDescription,
		}
		if d.isShownAsFailed(reason) {
			report.Operation.State, report.Operation.Description = vocabulary.StateFailed, message
		}
	}
	return report
}

// drainInitiatedDescription describes a deletion during its drain with the words of machine-controller-manager.
const drainInitiatedDescription = "Initiate node drain"

// isShownAsFailed reports whether lastOperation must show the drain as Failed, because a person must remove a blocker,
// because the cluster does not answer, or because pods remain after the deadline. machine-controller-manager also shows
// Failed while it retries.
func (d *nodeDrain) isShownAsFailed(reason string) bool {
	bad := func(b drain.Blocker) bool { return b.Bad || reason == vocabulary.ReasonForcing }
	return d.lastDecision.Unanswered != "" || (reason == vocabulary.ReasonBlocked || reason == vocabulary.ReasonForcing) &&
		slices.ContainsFunc(d.lastEvictionResult.Blockers, bad)
}

// addProgress adds the progress of the drain to a report.
func (d *nodeDrain) addProgress(report *machine.Report, means, result string, left []string) {
	if d.Purpose == "" {
		report.Deletion = &machine.DeletionProgress{Means: means, Result: result, LeftBehind: left}
		return
	}
	report.Drain = &machine.DrainProgress{Purpose: d.lastDecision.Purpose, Means: means, Result: result, LeftBehind: left}
}
