package rollout

import "time"

// Play carries decisions out until one finds nothing left to do, in a cluster in which machines come and go at once, and shows each
// to look. It reports whether that came within so many steps.
func Play(o Observed, most int, look func(Decision)) bool {
	t := newToy(o, time.Nanosecond, time.Nanosecond)
	for range most {
		d := next(t.o)
		look(d)
		if d.Complete && !d.Acts() {
			return true
		}
		if d.Acts() {
			t.do(d)
		}
		t.next(time.Time{})
	}
	return false
}

// MaxSentence is the longest sentence of a step.
const MaxSentence = maxSentence
