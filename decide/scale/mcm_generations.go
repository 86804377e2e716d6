package scale

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/phrase"
)

// GenerationRecord is the record of failed generations in the status. A generation is a group of machines that never
// joined, failed, and were deleted together.
type GenerationRecord struct {
	Failed int       // number of generations in a row without a machine that joined
	Last   time.Time // when the last generation was deleted, in whole seconds like all status times
}

// mayBeDeletedNow reports whether a machine that needs replacement may be deleted now. The next generation is the
// machines that never joined, and that were created after the last generation failed. The next generation waits for the
// back-off after that failure, so that a class whose machines never join costs less and less. All other machines are
// deleted at once.
func mayBeDeletedNow(o *planner, m Member) bool {
	return failedGenerations(o) == 0 || !isNewGeneration(o, m) || !o.Now.Before(nextDeletionTime(o))
}

// isNewGeneration reports whether a machine belongs to a generation that is not recorded yet.
func isNewGeneration(o *planner, m Member) bool {
	return !m.Joined && (failedGenerations(o) == 0 || !m.Created.Before(o.MCM.Generations.Last.Add(-clockSlack)))
}

// failedGenerations returns how many generations in a row failed. failedGenerations is 0 once a machine created after
// the last generation has joined.
func failedGenerations(o *planner) int {
	if o.hasJoinedAfterFailure {
		return 0
	}
	return o.MCM.Generations.Failed
}

// nextDeletionTime returns the time from which the next generation may be deleted.
func nextDeletionTime(o *planner) time.Time {
	pause, most := o.Remediation.Backoff, o.Remediation.MaxBackoff
	if most <= 0 {
		most = 365 * 24 * time.Hour // prevents an overflow when pause is doubled
	}
	for range failedGenerations(o) - 1 {
		if pause *= 2; pause >= most {
			break
		}
	}
	return o.MCM.Generations.Last.Add(min(pause, most))
}

// generationsToRecord returns the generations to record before the given machines are deleted; nil: the record stays.
func generationsToRecord(o *planner, deleted []Member) *GenerationRecord {
	if o.Remediation.Backoff <= 0 || !slices.ContainsFunc(deleted, func(m Member) bool { return isNewGeneration(o, m) }) {
		return nil
	}
	return &GenerationRecord{Failed: failedGenerations(o) + 1, Last: o.Now.Truncate(time.Second)}
}

// generationWaitReason returns the reason why the next generation waits.
func generationWaitReason(o *planner) string {
	until, n := phrase.ClockText(nextDeletionTime(o), o.Now), phrase.CountText(failedGenerations(o), "generation")
	return fmt.Sprintf("Waiting until %s because %s of machines failed in a row before they had joined", until, n)
}

// hasRecovered reports whether a machine has joined since the recorded generations failed, so that the record must be
// cleared.
func hasRecovered(o *planner) bool { return o.MCM.Generations.Failed != 0 && failedGenerations(o) <= 0 }

// isAfterFailure reports whether a machine was created after the last failed generation.
func (o *planner) isAfterFailure(m Member) bool { return m.Created.After(o.MCM.Generations.Last) }
