package scale

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/phrase"
)

// GenerationRecord is the record in the status about generations of failed machines. A generation is a group of
// machines that failed before they joined and that the set deletes together.
type GenerationRecord struct {
	Failed int       // number of consecutive generations in which no machine joined
	Last   time.Time // time at which the last generation was deleted, in whole seconds
}

// mayBeDeletedNow reports whether a machine that needs a replacement may be deleted now. The next generation consists
// of the machines that were created after the last generation failed and that never joined. The next generation is
// deleted after a back-off, so that a class whose machines never join causes fewer and fewer creations. All other
// machines may be deleted at once.
func mayBeDeletedNow(o *planner, m Member) bool {
	return failedGenerationCount(o) == 0 || !belongsToNewGeneration(o, m) || !o.Now.Before(nextGenerationDeletionTime(o))
}

// belongsToNewGeneration reports whether a machine belongs to a generation that is not recorded yet.
func belongsToNewGeneration(o *planner, m Member) bool {
	return !m.Joined && (failedGenerationCount(o) == 0 || !m.CreatedAt.Before(o.MCM.Generations.Last.Add(-maxClockSkew)))
}

// failedGenerationCount returns the number of consecutive failed generations. failedGenerationCount returns 0 if a
// machine that was created after the last generation has joined.
func failedGenerationCount(o *planner) int {
	if o.hasJoinedAfterFailure {
		return 0
	}
	return o.MCM.Generations.Failed
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
	return o.MCM.Generations.Last.Add(min(pause, most))
}

// generationsToRecord returns the record to write before the given machines are deleted, or nil if the record does not
// change.
func generationsToRecord(o *planner, deleted []Member) *GenerationRecord {
	if o.Remediation.Backoff <= 0 ||
		!slices.ContainsFunc(deleted, func(m Member) bool { return belongsToNewGeneration(o, m) }) {
		return nil
	}
	return &GenerationRecord{Failed: failedGenerationCount(o) + 1, Last: o.Now.Truncate(time.Second)}
}

// generationWaitReason returns the reason why the next generation waits.
func generationWaitReason(o *planner) string {
	until, n := phrase.ClockText(
		nextGenerationDeletionTime(o),
		o.Now,
	), phrase.CountText(
		failedGenerationCount(o),
		"generation",
	)
	return fmt.Sprintf("Waiting until %s because %s of machines failed in a row before they had joined", until, n)
}

// mustClearGenerationRecord reports whether a machine has joined since the recorded generations failed, so that the
// record must be cleared.
func mustClearGenerationRecord(o *planner) bool {
	return o.MCM.Generations.Failed != 0 && failedGenerationCount(o) <= 0
}

// wasCreatedAfterFailure reports whether a machine was created after the last failed generation.
func (o *planner) wasCreatedAfterFailure(m Member) bool {
	return m.CreatedAt.After(o.MCM.Generations.Last)
}
