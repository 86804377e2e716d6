package rollout

import "time"

// longestPlan bounds the steps of a plan.
const longestPlan = 500

// Foreseen is a step that would be taken.
type Foreseen struct {
	Step  string // what would be done, in a sentence
	Sizes []Size // afterwards, from the oldest set to the newest; sets without machines left out
}

// Size is how many machines a set would want.
type Size struct {
	Set      string
	Replicas int
	Current  bool
}

// Plan returns the steps that would be taken from here, and takes none: Decide in a cluster in which every machine comes and
// goes at once. Pause and hold are looked past, and said. People pass every stage that waits for them. It ends when nothing
// is left to do.
func Plan(o Observed) []Foreseen {
	var plan []Foreseen
	if why := o.stopped(); why != "" {
		plan = append(plan, Foreseen{Step: why + "; these steps follow once it goes on"})
	}
	o.Paused, o.Held, o.Automatic, o.Deadline = false, "", AutoRollback{}, nil
	t := newToy(o, 0, 0)
	for range longestPlan {
		d := next(t.o)
		switch {
		case d.Rollback != nil:
			return append(plan, Foreseen{Step: d.Why})
		case d.Acts():
			t.do(d)
		case d.Gate != nil:
			t.pass(d.Gate)
		default:
			return plan
		}
		if told := d.Create != nil || len(d.Move)+len(d.Select)+len(d.Delete) > 0 || changes(d) || !d.Acts(); told {
			plan = append(plan, Foreseen{Step: d.Why, Sizes: t.sizes()})
		}
	}
	return plan
}

// changes reports whether a size changes.
func changes(d Decision) bool {
	for _, r := range d.Resize {
		if r.From != r.To {
			return true
		}
	}
	return false
}

// pass ends a stage.
func (t *toy) pass(g *Gate) {
	if g.Approve {
		t.o.Approved = g.Step + 1
		return
	}
	t.o.Now = g.Until
}

func (t *toy) sizes() []Size {
	var list []Size
	for _, s := range t.o.sorted().Sets {
		if s.Replicas > 0 {
			list = append(list, Size{s.Name, s.Replicas, s.Current})
		}
	}
	return list
}

// Ideal returns how long a rollout takes in which every decision costs nothing: machines need create to become available and
// remove to be gone, and nothing else waits. It is what no system can be faster than under the same promises: the critical
// path. Stages that wait for people are passed at once. The second result is false where it does not end.
func Ideal(o Observed, create, remove time.Duration) (time.Duration, bool) {
	o.Automatic, o.Deadline = AutoRollback{}, nil
	t := newToy(o, create, remove)
	complete, stuck := false, false
	for i := 0; i < 100*longestPlan && !complete && !stuck; i++ {
		d := next(t.o)
		switch {
		case d.Complete:
			complete = true
		case d.Acts():
			t.do(d)
		case d.Gate != nil && d.Gate.Approve:
			t.pass(d.Gate)
		default:
			stuck = !t.next(d.Recheck)
		}
	}
	return t.o.Now.Sub(o.Now), complete
}
