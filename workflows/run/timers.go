package run

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/decide/phrase"
)

// timer is a durable timer with the time at which it fires.
type timer struct {
	fireTime    time.Time
	Future      workflow.Future
	cancelTimer workflow.CancelFunc
}

// TimerLabel is the label of a timer in Temporal's timeline. The label must not read as if the timer had fired, so it
// always ends with the time at which the timer fires. All labels are made by the functions below.
type TimerLabel struct {
	waits string // what the workflow waits for, a clause; empty: the label has only then
	then  string // what the workflow does when the timer fires, without the time
}

// CreationTimeoutLabel is the label of the creation timeout, for example with "making the instance".
func CreationTimeoutLabel(doing string) TimerLabel {
	return TimerLabel{then: "creation timeout: gives up " + doing}
}

// HealthTimeoutLabel is the label of the health timeout of a node.
func HealthTimeoutLabel(node string) TimerLabel {
	return TimerLabel{then: "health timeout: gives up waiting for " + phrase.NodeText(node) + " to recover"}
}

// PreservationLabel is the label of the end of a machine's preservation.
func PreservationLabel() TimerLabel {
	return TimerLabel{"the machine is preserved", "the preservation ends"}
}

// BlockedLabel is the label of a wait for a person who must solve a problem.
func BlockedLabel(reason, message string) TimerLabel {
	return RecheckLabel("blocked by " + reason + ": " + message)
}

// ApprovalLabel is the label of the wait for the approval of a rollout step.
func ApprovalLabel(reached string) TimerLabel { return RecheckLabel("waits for approval: " + reached) }

// RecheckLabel is the label of a wait after which the workflow decides again.
func RecheckLabel(waits string) TimerLabel { return TimerLabel{waits, "looks again"} }

// RetryLabel is the label of the wait before a refused write is tried again.
func RetryLabel(refusal string) TimerLabel { return TimerLabel{refusal, "tries again"} }

// TargetRetryLabel is the label of the wait for a target cluster that does not answer.
func TargetRetryLabel() TimerLabel {
	return TimerLabel{"the cluster does not answer", "asks it again"}
}

// NodeMarksLabel is the label of the wait before nodes are marked that could not be marked.
func NodeMarksLabel() TimerLabel { return TimerLabel{"nodes could not be marked", "tries again"} }

// ReportLabel is the label of the wait between two status writes.
func ReportLabel() TimerLabel { return TimerLabel{"", "writes the status"} }

// DrainRestartLabel is the label of the wait before another drain begins.
func DrainRestartLabel(waits string) TimerLabel { return TimerLabel{waits, "begins another drain"} }

// RolloutRestartLabel is the label of the wait before a rollout that was terminated or has failed starts again.
func RolloutRestartLabel() TimerLabel {
	return TimerLabel{"the rollout was terminated or has failed", "starts it again"}
}

// FollowLabel is the label of the wait for the end of a rollout that an earlier run started.
func FollowLabel(waits string) TimerLabel {
	return TimerLabel{waits, "looks whether the rollout is still open"}
}

// HoldWriteLabel is the label of the wait for the hold that a cancelled rollout writes.
func HoldWriteLabel() TimerLabel {
	return TimerLabel{"waits for the hold of the cancelled rollout", "gives up"}
}

// SettledLabel is the label of the wait before a run with nothing left to do continues as new.
func SettledLabel() TimerLabel {
	return TimerLabel{"nothing is left to do", "the run continues as new"}
}

// CalmLabel is the label of the wait before a run with nothing left to do ends.
func CalmLabel() TimerLabel { return TimerLabel{"nothing is left to do", "the run ends"} }

// text returns the label of a timer that fires at a time. A text that is too long for a summary loses the end of what
// the workflow waits for, and keeps the time.
func (l TimerLabel) text(at, now time.Time) string {
	then := l.then + " at " + phrase.ClockText(at, now)
	if l.waits == "" {
		return ShortenSummary(then)
	}
	then = "; " + then
	return phrase.TruncateText(l.waits, maxSummaryBytes-len(then)) + then
}

// EnsureTimer returns the timer with this name. If the timer does not exist, EnsureTimer starts it. If the timer's time
// has changed, EnsureTimer restarts the timer. Temporal's timeline shows the label of the call that started the timer.
func (o *WorkflowState) EnsureTimer(ctx workflow.Context, name string, label TimerLabel, at time.Time) workflow.Future {
	if t := o.Timers[name]; t != nil {
		if t.fireTime.Equal(at) {
			return t.Future
		}
		t.cancelTimer()
	}
	ctx, cancel := workflow.WithCancel(ctx)
	now := workflow.Now(ctx)
	t := &timer{
		fireTime:    at,
		cancelTimer: cancel,
		Future: workflow.NewTimerWithOptions(
			ctx, max(at.Sub(now), 0), workflow.TimerOptions{Summary: label.text(at, now)},
		),
	}
	o.Timers[name] = t
	return t.Future
}

// CancelTimer cancels and removes the timer with this name, if it exists.
func (o *WorkflowState) CancelTimer(name string) {
	if t := o.Timers[name]; t != nil {
		t.cancelTimer()
		delete(o.Timers, name)
	}
}
