package scale

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/phrase"
)

// Generations is the status's record of machines that failed before they had joined.
type Generations struct {
	Failed int       // number of generations in a row without a machine that joined
	Last   time.Time // when the last of them was deleted; in whole seconds, like all times of a status
}

// ripe reports whether a machine that is to be replaced may be deleted now. A machine that never joined, and that was
// created after the last generation failed, is the next generation. It waits for the pause after that failure, so that
// a class whose machines never join costs less and less. All other machines are deleted at once.
func ripe(o *planner, m Member) bool {
	return failures(o) == 0 || !newest(o, m) || !o.Now.Before(nextGeneration(o))
}

// newest reports whether a machine belongs to a generation that is not recorded yet.
func newest(o *planner, m Member) bool {
	return !m.Joined && (failures(o) == 0 || !m.Created.Before(o.MCM.Generations.Last.Add(-clockSlack)))
}

// failures returns how many generations in a row failed. It is zero once a machine created after the last of them has
// joined.
func failures(o *planner) int {
	if o.joined {
		return 0
	}
	return o.MCM.Generations.Failed
}

// nextGeneration returns when the next generation may be deleted.
func nextGeneration(o *planner) time.Time {
	pause, most := o.Remediation.Backoff, o.Remediation.MaxBackoff
	if most <= 0 {
		most = 365 * 24 * time.Hour // keeps the doubling from overflowing
	}
	for range failures(o) - 1 {
		if pause *= 2; pause >= most {
			break
		}
	}
	return o.MCM.Generations.Last.Add(min(pause, most))
}

// record returns the Generations to record before these machines are deleted; nil: the record stays.
func record(o *planner, deleted []Member) *Generations {
	if o.Remediation.Backoff <= 0 || !slices.ContainsFunc(deleted, func(m Member) bool { return newest(o, m) }) {
		return nil
	}
	return &Generations{Failed: failures(o) + 1, Last: o.Now.Truncate(time.Second)}
}

// notYet says why the next generation waits.
func notYet(o *planner) string {
	until, n := phrase.Clock(nextGeneration(o), o.Now), phrase.Count(failures(o), "generation")
	return fmt.Sprintf("Waiting until %s because %s of machines failed in a row before they had joined", until, n)
}

// recovered reports whether a machine has joined since the recorded generations failed, so that the record has to be
// cleared.
func recovered(o *planner) bool { return o.MCM.Generations.Failed != 0 && failures(o) <= 0 }

// follows reports whether a machine was created after the last failed generation.
func (o *planner) follows(m Member) bool { return m.Created.After(o.MCM.Generations.Last) }
