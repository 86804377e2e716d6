package rollout

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/drain"
	"millwright/decide/phrase"
)

// watchState is what a watch remembers between two reads.
type watchState struct {
	keep bool // the watch continues when the rollout stops before it is complete

	began    time.Time
	uid      types.UID         // UID of the deployment; empty before the first read
	revision int64             // the revision that is watched; zero: not known yet
	former   map[string]bool   // UIDs of sets that were old sets at some read
	home     map[string]string // UID of a machine: UID of the set in which it was first seen
	due      string            // the sentence of the decision that moves the rollout on; empty: none does
	dueSince time.Time         // the first read at which that decision was due
}

// note adds a snapshot to the state. It returns a line if another revision than before is rolled out; otherwise empty.
// If a decision has been due for too long, it also sets idle of the snapshot.
func (j *watchState) note(s *snapshot) (change string) {
	if j.uid == "" {
		j.began, j.uid = s.now, s.tree.object.GetUID()
		j.former, j.home = map[string]bool{}, map[string]string{}
	}
	j.noteDue(s)
	if now := s.next.Revision; now != 0 && !s.undoing() && now != j.revision && !j.back(*s) {
		if j.revision != 0 {
			change = fmt.Sprintf("%s: revision %d takes the place of revision %d", s.key(), now, j.revision)
		}
		j.revision = now
	}
	for i, set := range s.facts.Sets {
		if i != s.current() {
			j.former[set.UID] = true
		}
		for _, m := range set.Machines {
			if j.home[m.UID] == "" {
				j.home[m.UID] = set.UID
			}
		}
	}
	return change
}

// undoing reports whether an undo was requested and is not carried out yet.
func (s snapshot) undoing() bool { return s.next.Rollback != nil && !s.next.Rollback.Automatic }

// noteDue records since when the same decision has been due.
func (j *watchState) noteDue(s *snapshot) {
	due := ""
	if moves(s.next) {
		due = s.next.Why
	}
	if due != j.due {
		j.due, j.dueSince = due, s.now
	}
	if due != "" && s.now.Sub(j.dueSince) > drain.Overdue {
		s.idle = j.dueSince
	}
}

// back reports whether the watched revision was replaced by the template of a former set.
func (j *watchState) back(s snapshot) bool {
	i := s.current()
	return i >= 0 && j.revision != 0 && s.next.Revision > j.revision && j.former[s.facts.Sets[i].UID]
}

// end returns the last line of the watch if the rollout is complete, or an error with the reason why the rollout
// stopped. It returns neither while the watch continues.
func (j *watchState) end(s snapshot) (string, error) {
	fails := func(format string, args ...any) (string, error) {
		return "", errors.New(s.key() + ": " + fmt.Sprintf(format, args...) + "; " + j.passed(s))
	}
	o, d := s.facts, s.next
	switch {
	case o.Deleting:
		return fails("it is being deleted, and its rollout was not complete")
	case o.Invalid != "":
		return fails("nothing can be done with it: %s", o.Invalid)
	case j.back(s) && !j.keep:
		return fails(
			"revision %d was rolled back: revision %d has the template of set %s again",
			j.revision,
			d.Revision,
			o.Sets[s.current()].Name,
		)
	case d.Complete:
		return fmt.Sprintf("%s: %s is complete; %s", s.key(), s.revision(), j.passed(s)), nil
	case j.keep:
		return "", nil
	case o.Paused:
		return fails("it is paused%s: %s", phrase.By(o.PausedBy), s.reached())
	case o.Held != "":
		return fails("revision %d is held%s: %s", d.Revision, phrase.By(o.Held), s.reached())
	case d.Late:
		return fails(
			"revision %d made no progress for %s, and its progress deadline has passed",
			d.Revision,
			phrase.Length(*o.Deadline),
		)
	default:
		return "", nil
	}
}

// passed sums up the watch: its time, and the machines replaced.
func (j *watchState) passed(s snapshot) string {
	word := "replaced"
	if s.inPlace() {
		word = "updated or replaced"
	}
	return fmt.Sprintf(
		"watched for %s: %s %s",
		phrase.Span(s.now.Sub(j.began)),
		phrase.Count(j.replaced(s), "machine"),
		word,
	)
}

// replaced counts the machines that were first seen in an old set, and are now gone or in the current set.
func (j *watchState) replaced(s snapshot) int {
	now, left := "", map[string]bool{}
	for i, set := range s.facts.Sets {
		if i == s.current() {
			now = set.UID
			continue
		}
		for _, m := range set.Machines {
			left[m.UID] = true
		}
	}
	n := 0
	for uid, set := range j.home {
		if set != now && !left[uid] {
			n++
		}
	}
	return n
}
