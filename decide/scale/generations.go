package scale

import (
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// GenerationRecord is the set's record about generations of failed machines. A generation is a group of machines that
// failed before they joined and that the set deletes together.
type GenerationRecord struct {
	Failed int       // number of consecutive generations in which no machine joined
	Last   time.Time // time at which the last generation was deleted, in whole seconds
}

// RetryPolicy says when the next generation of failed machines is replaced.
type RetryPolicy struct {
	// Backoff is the wait time before the deletion of the second consecutive generation that never joined. The wait
	// time doubles with each further generation, up to MaxBackoff. If Backoff is zero, there is no wait time.
	Backoff     time.Duration
	MaxBackoff  time.Duration // maximum wait time; zero: no maximum
	HasMaxRetry bool          // MaxRetry applies; if false, there is no limit
	MaxRetry    int           // number of generations that are replaced after the first failed generation
}

// HoldsMachine reports whether a machine is not replaced because the last retry has failed. A machine of a generation
// that is recorded already is replaced: the retry was for its substitute.
func (p RetryPolicy) HoldsMachine(r GenerationRecord, joined bool, createdAt time.Time) bool {
	return p.HasMaxRetry && r.Failed > p.MaxRetry && (joined || r.precedes(createdAt))
}

// HoldText returns the sentence about machines for which HoldsMachine returns true.
func (p RetryPolicy) HoldText(r GenerationRecord) string {
	return fmt.Sprintf(
		"%s (spec.remediation.maxRetry of the RolloutPolicy is %d); annotate a Machine with %s to try again",
		r.text(),
		p.MaxRetry,
		vocabulary.AnnotationRemediateMachine,
	)
}

// precedes reports whether a machine was created after the last failed generation.
func (r GenerationRecord) precedes(createdAt time.Time) bool {
	return !createdAt.Before(r.Last.Add(-maxClockSkew))
}

func (r GenerationRecord) text() string {
	return phrase.CountText(r.Failed, "generation") + " of machines failed in a row before they had joined"
}

// usesRecord reports whether the policy needs the record of failed generations.
func (p RetryPolicy) usesRecord() bool { return p.Backoff > 0 || p.HasMaxRetry }

// retryHoldReason returns why a machine that needs a replacement is not deleted now, as the reason of the condition
// ReplacementHeld; empty: it may be deleted. The next generation consists of the machines that were created after the
// last generation failed and that never joined. The next generation is deleted after a back-off, so that a class whose
// machines never join causes fewer and fewer creations. When the last retry has failed, no machine is deleted, because
// its substitute would fail, too. The rest of a generation that was recorded already is deleted at once, and so is a
// machine whose replacement an operator requested.
func retryHoldReason(o *planner, m Member) string {
	switch {
	case failedGenerationCount(o) == 0 || m.Urgent:
		return ""
	case o.Remediation.HoldsMachine(o.Generations, m.Joined, m.CreatedAt):
		return vocabulary.ReasonMaxRetryReached
	case belongsToNewGeneration(o, m) && o.Now.Before(nextGenerationDeletionTime(o)):
		return vocabulary.ReasonRemediationBackoff
	default:
		return ""
	}
}

// belongsToNewGeneration reports whether a machine belongs to a generation that is not recorded yet.
func belongsToNewGeneration(o *planner, m Member) bool {
	return !m.Joined && (failedGenerationCount(o) == 0 || o.Generations.precedes(m.CreatedAt))
}

// failedGenerationCount returns the number of consecutive failed generations. failedGenerationCount returns 0 if a
// machine that was created after the last generation has joined.
func failedGenerationCount(o *planner) int {
	if o.hasJoinedAfterFailure {
		return 0
	}
	return o.Generations.Failed
}

// nextGenerationDeletionTime returns the earliest time at which the next generation may be deleted.
func nextGenerationDeletionTime(o *planner) time.Time {
	pause, most := o.Remediation.Backoff, o.Remediation.MaxBackoff
	if most <= 0 {
		most = 365 * 24 * time.Hour // prevents an overflow when pause is doubled
	}
	for range failedGenerationCount(o) - 1 {
		if pause *= 2; pause >= most {
			break
		}
	}
	return o.Generations.Last.Add(min(pause, most))
}

// generationsToRecord returns the record to write before the given machines are deleted, or nil if the record does not
// change. If an operator requested the replacement of a machine of the generation, the count begins again. The record
// does not change twice for the same machines, because a deletion that is repeated finds them in a recorded generation.
func generationsToRecord(o *planner, deleted []Member) *GenerationRecord {
	failed := list.Filter(deleted, func(m Member) bool { return belongsToNewGeneration(o, m) })
	if !o.Remediation.usesRecord() || len(failed) == 0 {
		return nil
	}
	before := failedGenerationCount(o)
	if slices.ContainsFunc(failed, func(m Member) bool { return m.Urgent }) {
		before = 0
	}
	return &GenerationRecord{Failed: before + 1, Last: generationEnd(o, failed)}
}

// generationEnd returns the time to record for a generation that is deleted now. A machine that fails within
// maxClockSkew of its creation must not count as a machine of the next generation when its deletion is repeated.
func generationEnd(o *planner, failed []Member) time.Time {
	end := o.Now.Truncate(time.Second)
	for _, m := range failed {
		end = phrase.LaterTime(end, m.CreatedAt.Add(maxClockSkew+time.Second))
	}
	return end
}

// retryHoldText returns the sentence about a reason of retryHoldReason; empty for an empty reason.
func retryHoldText(o *planner, reason string) string {
	switch reason {
	case vocabulary.ReasonRemediationBackoff:
		until := phrase.ClockText(nextGenerationDeletionTime(o), o.Now)
		return "Waiting until " + until + " because " + o.Generations.text()
	case vocabulary.ReasonMaxRetryReached:
		return "Machine won't be remediated because " + o.Remediation.HoldText(o.Generations)
	default:
		return ""
	}
}

// mustClearGenerationRecord reports whether a machine has joined since the recorded generations failed, so that the
// record must be cleared.
func mustClearGenerationRecord(o *planner) bool {
	return o.Generations.Failed != 0 && failedGenerationCount(o) <= 0
}

// wasCreatedAfterFailure reports whether a machine was created after the last failed generation.
func (o *planner) wasCreatedAfterFailure(m Member) bool {
	return m.CreatedAt.After(o.Generations.Last)
}

// replacementHeldCondition names the machines whose replacement waits for a retry, and the reason. An empty Reason means
// that none waits.
func replacementHeldCondition(o *planner) Condition {
	for _, reason := range []string{vocabulary.ReasonMaxRetryReached, vocabulary.ReasonRemediationBackoff} {
		text := retryHoldText(o, reason)
		var names []string
		for _, s := range o.postponedMembers {
			if s.message == text {
				names = append(names, s.name)
			}
		}
		if len(names) > 0 {
			message := machineNamesText(names) + ": " + text
			return Condition{vocabulary.ConditionReplacementHeld, ConditionTrue, reason, message}
		}
	}
	return Condition{}
}
