package rollout

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/drain"
	"millwright/decide/phrase"
)

// watchState is the state that a watch keeps between two reads.
type watchState struct {
	continuesAfterStop bool // the watch continues if the rollout stops before it is complete

	startedAt     time.Time
	uid           types.UID         // UID of the deployment; empty before the first read
	revision      int64             // the watched revision; 0 if not known yet
	formerSetUIDs map[string]bool   // UIDs of the sets that were old sets in at least one read
	firstSetUIDs  map[string]string // UID of the set in which a machine was first seen, by UID of the machine
	// sentence of the decision that advances the rollout; empty if no decision advances it
	dueDecisionText  string
	dueDecisionSince time.Time // time of the first read with this decision
}

// recordSnapshot adds a snapshot to the state. If the rolled-out revision is not the same as at the last read,
// recordSnapshot returns a line about the change; otherwise, the line is empty. If a decision has been due for longer
// than drain.StepOverdueAfter, recordSnapshot sets overdueSince of the snapshot.
func (j *watchState) recordSnapshot(s *snapshot) (change string) {
	if j.uid == "" {
		j.startedAt, j.uid = s.now, s.tree.object.GetUID()
		j.formerSetUIDs, j.firstSetUIDs = map[string]bool{}, map[string]string{}
	}
	j.recordDueDecision(s)
	if now := s.decision.Revision; now != 0 && !s.isUndoPending() && now != j.revision && !j.isRolledBack(*s) {
		if j.revision != 0 {
			change = fmt.Sprintf("%s: revision %d takes the place of revision %d", s.key(), now, j.revision)
		}
		j.revision = now
	}
	for i, set := range s.facts.Sets {
		if i != s.currentSetIndex() {
			j.formerSetUIDs[set.UID] = true
		}
		for _, m := range set.Machines {
			if j.firstSetUIDs[m.UID] == "" {
				j.firstSetUIDs[m.UID] = set.UID
			}
		}
	}
	return change
}

// isUndoPending reports whether an undo was requested and not executed yet.
func (s snapshot) isUndoPending() bool {
	return s.decision.Rollback != nil
}

// recordDueDecision records since when the current decision is due.
func (j *watchState) recordDueDecision(s *snapshot) {
	due := ""
	if advancesRollout(s.decision) {
		due = s.decision.Why
	}
	if due != j.dueDecisionText {
		j.dueDecisionText, j.dueDecisionSince = due, s.now
	}
	if due != "" && s.now.Sub(j.dueDecisionSince) > drain.StepOverdueAfter {
		s.overdueSince = j.dueDecisionSince
	}
}

// isRolledBack reports whether the watched revision was replaced by the template of a former set.
func (j *watchState) isRolledBack(s snapshot) bool {
	i := s.currentSetIndex()
	return i >= 0 && j.revision != 0 && s.decision.Revision > j.revision && j.formerSetUIDs[s.facts.Sets[i].UID]
}

// finalLine returns the last line of the watch if the rollout is complete, or an error with the reason if the rollout
// has stopped. While the watch continues, finalLine returns an empty text and nil.
func (j *watchState) finalLine(s snapshot) (string, error) {
	fails := func(format string, args ...any) (string, error) {
		return "", errors.New(s.key() + ": " + fmt.Sprintf(format, args...) + "; " + j.watchDurationText(s))
	}
	o, d := s.facts, s.decision
	switch {
	case o.Deleting:
		return fails("it is being deleted, and its rollout was not complete")
	case o.InvalidReason != "":
		return fails("nothing can be done with it: %s", o.InvalidReason)
	case j.isRolledBack(s) && !j.continuesAfterStop:
		return fails(
			"revision %d was rolled back: revision %d has the template of set %s again",
			j.revision,
			d.Revision,
			o.Sets[s.currentSetIndex()].Name,
		)
	case d.Pin != nil && d.Pin.By == "" && !j.continuesAfterStop:
		return fails("%s", d.Pin.SentenceWithoutTime(d.Revision))
	case s.isRequestFulfilled():
		return fmt.Sprintf("%s: %s; %s", s.key(), s.completionText(), j.watchDurationText(s)), nil
	case j.continuesAfterStop:
		return "", nil
	case o.Paused:
		return fails("it is paused%s: %s", phrase.ActorText(o.PausedBy), s.updatedMachinesText())
	case o.HoldReason != "":
		return fails("revision %d is held%s: %s", d.Revision, phrase.ActorText(o.HoldReason), s.updatedMachinesText())
	case d.Late:
		return fails(
			"revision %d made no progress for %s, and its progress deadline has passed",
			d.Revision,
			phrase.DurationText(*o.ProgressDeadline),
		)
	default:
		return "", nil
	}
}

// isRequestFulfilled reports whether all machines are in the state that the operator wants: they have the template or,
// if an operator has pinned them, the pinned revision.
func (s snapshot) isRequestFulfilled() bool {
	pin := s.decision.Pin
	return s.decision.Complete && (pin == nil || pin.By != "")
}

// completionText names the revision that all machines have.
func (s snapshot) completionText() string {
	if pin := s.decision.Pin; pin != nil {
		return pin.SentenceWithoutTime(s.decision.Revision)
	}
	return s.revisionText() + " is complete"
}

// watchDurationText reports how long the watch took, and how many machines were replaced during the watch.
func (j *watchState) watchDurationText(s snapshot) string {
	word := "replaced"
	if s.isInPlace() {
		word = "updated or replaced"
	}
	return fmt.Sprintf(
		"watched for %s: %s %s",
		phrase.AgeText(s.now.Sub(j.startedAt)),
		phrase.CountText(j.countReplacedMachines(s), "machine"),
		word,
	)
}

// countReplacedMachines returns how many of the machines that were first seen in an old set no longer exist, or are now
// in the current set.
func (j *watchState) countReplacedMachines(s snapshot) int {
	now, left := "", map[string]bool{}
	for i, set := range s.facts.Sets {
		if i == s.currentSetIndex() {
			now = set.UID
			continue
		}
		for _, m := range set.Machines {
			left[m.UID] = true
		}
	}
	n := 0
	for uid, set := range j.firstSetUIDs {
		if set != now && !left[uid] {
			n++
		}
	}
	return n
}
