package scale

import (
	"fmt"
	"time"
)

// clockSlack is how much the worker's clock, which Generations is dated by, may be ahead of the API server's, which
// machines are. Source: as for the replacement budget. A machine that is made so shortly before only waits longer.
const clockSlack = 10 * time.Second

// ripe reports whether a machine that is to be replaced may be given up now. One that never joined, and that was made
// after the last generation was given up, is the next generation: it waits, so that a class that makes no usable machine
// costs less and less. All others go at once.
func ripe(o Observed, m Member) bool {
	return failures(o) == 0 || !newest(o, m) || !o.Now.Before(nextGeneration(o))
}

// newest reports whether a machine belongs to a generation that no record counts yet.
func newest(o Observed, m Member) bool {
	return !m.Joined && (failures(o) == 0 || !m.Created.Before(o.Generations.Last.Add(-clockSlack)))
}

// failures is how many generations in a row failed: none, once a machine has joined that was made after the last of them.
func failures(o Observed) int {
	for _, m := range o.Members {
		if m.Joined && m.Created.After(o.Generations.Last) {
			return 0
		}
	}
	return o.Generations.Failed
}

// nextGeneration is when the next generation may be given up.
func nextGeneration(o Observed) time.Time {
	pause, most := o.Remediation.Backoff, o.Remediation.MaxBackoff
	if most <= 0 {
		most = 365 * 24 * time.Hour // keeps the doubling from overflowing
	}
	for range failures(o) - 1 {
		if pause *= 2; pause >= most {
			break
		}
	}
	return o.Generations.Last.Add(min(pause, most))
}

// forget returns an empty record once the recorded failures are over; nil when there is nothing to forget. Without it the
// proof would go with the machine that joined.
func forget(o Observed) *Generations {
	if o.Generations.Failed == 0 || failures(o) > 0 {
		return nil
	}
	return &Generations{}
}

// record returns what the status shall say when these machines are given up; nil when it does.
func record(o Observed, given []Member) *Generations {
	if o.Remediation.Backoff <= 0 {
		return nil
	}
	for _, m := range given {
		if newest(o, m) {
			return &Generations{Failed: failures(o) + 1, Last: o.Now.Truncate(time.Second)}
		}
	}
	return nil
}

// notYet says why the next generation waits.
func notYet(o Observed) string {
	n := "1 generation of machines"
	if f := failures(o); f > 1 {
		n = fmt.Sprintf("%d generations of machines", f)
	}
	return fmt.Sprintf("Waiting until %s because %s failed in a row before they had joined", nextGeneration(o).UTC().Format(time.RFC3339), n)
}
