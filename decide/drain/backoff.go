package drain

import "time"

// How long a pod is left alone after an answer. Whoever sends requests adds jitter.
const (
	// A budget refused it. The budget's own status decides when it is tried again; this only bounds what happens when status
	// and answer differ. Source: the API server's Retry-After for a budget that it is still counting, 10 s.
	refusedPause = 10 * time.Second
	// Several budgets select it. Somebody has to change one of them, and that is seen.
	severalPause = time.Minute
	// The API server was busy and did not say for how long, or for less. Source: kubectl drain's pause after a 429.
	throttledPause = 5 * time.Second
	// Its namespace is being deleted. That takes the pod along; trying again only notices when it does not.
	goingPause = 30 * time.Second
	// Failures in a row, doubled from the first to the last. Source: MCM looks again after 5 s; one minute is short compared
	// with any drain timeout.
	firstFailedPause   = 5 * time.Second
	longestFailedPause = time.Minute
)

// Answer is how a request for a pod ended.
type Answer struct {
	Means      Means // with which it was sent
	Result     Result
	Message    string        // for people
	RetryAfter time.Duration // what the API server asked for; zero when it asked for nothing
}

// After returns the tries with one more, which was answered now.
func After(t Tries, a Answer, now time.Time) Tries {
	if t.Means != a.Means || a.Result != Failed {
		t.Failures = 0
	}
	t.Attempts++
	t.Last, t.Means, t.Result, t.Message, t.Next = now, a.Means, a.Result, a.Message, time.Time{}
	switch a.Result {
	case Accepted:
		t.Accepted = true
	case Refused:
		t.Next = now.Add(refusedPause)
	case Several:
		t.Next = now.Add(severalPause)
	case Throttled:
		t.Next = now.Add(max(a.RetryAfter, throttledPause))
	case Going:
		t.Next = now.Add(goingPause)
	case Failed:
		t.Failures++
		t.Next = now.Add(failedPause(t.Failures))
	case Gone, NotTried:
	}
	return t
}

func failedPause(failures int) time.Duration {
	pause := firstFailedPause
	for range failures - 1 {
		if pause *= 2; pause >= longestFailedPause {
			return longestFailedPause
		}
	}
	return pause
}

// Woken returns the tries of a pod of which a budget has changed, in its status or because it came or went: what the
// budgets decided before does not hold any more.
func Woken(t Tries) Tries {
	if t.Result == Refused || t.Result == Several {
		t.Next = time.Time{}
	}
	return t
}
