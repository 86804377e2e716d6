package main

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"millwright/observe"
)

// journey is what a watch remembers from look to look.
type journey struct {
	keep bool // only the end of all ends it

	began    time.Time
	uid      types.UID         // of the deployment; empty before the first look
	revision int64             // that is watched; zero: not known yet
	former   map[string]bool   // UIDs of sets that were seen as those of another template
	home     map[string]string // UIDs of machines, and of the set that each was first seen in
	due      string            // step that is due
	dueSince time.Time
}

// note takes in what one look has seen, and returns what is news beside how the rollout stands; empty when nothing is. It tells the
// look, too, when nobody takes the step that is due.
func (j *journey) note(s *stand) (news string) {
	if j.uid == "" {
		j.began, j.uid = s.now, s.family.Deployment.UID
		j.former, j.home = map[string]bool{}, map[string]string{}
	}
	j.doubt(s)
	if now := s.next.Revision; now != 0 && !s.undoing() && now != j.revision && !j.back(*s) {
		if j.revision != 0 {
			news = fmt.Sprintf("%s: revision %d takes the place of revision %d", s.key(), now, j.revision)
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
	return news
}

// undoing reports whether somebody asked for another revision than the one that the template says.
func (s stand) undoing() bool { return s.next.Rollback != nil && !s.next.Rollback.Automatic }

// doubt remembers since when the same step is due.
func (j *journey) doubt(s *stand) {
	due := ""
	if moves(s.next) {
		due = s.next.Why
	}
	if due != j.due {
		j.due, j.dueSince = due, s.now
	}
	if due != "" && s.now.Sub(j.dueSince) > observe.Overdue {
		s.idle = j.dueSince
	}
}

// back reports whether a template has returned that gave way to the revision that is watched.
func (j *journey) back(s stand) bool {
	i := s.current()
	return i >= 0 && j.revision != 0 && s.next.Revision > j.revision && j.former[s.facts.Sets[i].UID]
}

// end returns the last line of a watch that has come to its end, or why the rollout did not come about; neither while it goes on.
func (j *journey) end(s stand) (string, error) {
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
		return fails("revision %d was rolled back: revision %d has the template of set %s again", j.revision, d.Revision, o.Sets[s.current()].Name)
	case d.Complete:
		return fmt.Sprintf("%s: %s is complete; %s", s.key(), s.revision(), j.passed(s)), nil
	case j.keep:
		return "", nil
	case o.Paused:
		return fails("it is paused: %s", s.reached())
	case o.Held != "":
		return fails("revision %d is held (%s): %s", d.Revision, o.Held, s.reached())
	case d.Late:
		return fails("revision %d made no progress for %s, and its progress deadline has passed", d.Revision, *o.Deadline)
	default:
		return "", nil
	}
}

// passed is what happened since the watch began.
func (j *journey) passed(s stand) string {
	word := "replaced"
	if s.inPlace() {
		word = "updated or replaced"
	}
	return fmt.Sprintf("watched for %s: %s %s", duration.HumanDuration(s.now.Sub(j.began)), machineCount(j.replaced(s)), word)
}

// replaced counts the machines that were first seen with another template than the present one, and are gone or have it now.
func (j *journey) replaced(s stand) int {
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
