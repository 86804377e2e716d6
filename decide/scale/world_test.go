package scale_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/scale"
)

// world is a small world in which decisions are carried out. Each step lasts one minute: a new machine is Pending after
// one and Running after two, a deleted one is gone after two.
type world struct {
	scale.Observed
	doomed  func(name string) bool // machines that fail instead of joining; nil: none
	refuse  func(nth int) bool     // creations that the API server refuses, by number; nil: none
	made    int                    // machines that were ever created
	asked   int                    // creations that were asked for
	deleted []string               // in the order of their deletion
	log     strings.Builder
	said    map[string]string
}

func newWorld(o scale.Observed) *world { return &world{Observed: o, said: map[string]string{}} }

// run takes so many steps.
func (w *world) run(steps int) *world {
	for range steps {
		w.step()
	}
	return w
}

// step lets time pass, then carries decisions out until nothing is left to do.
func (w *world) step() {
	w.Now = w.Now.Add(time.Minute)
	w.live()
	w.act()
}

// act carries decisions out until nothing is left to do now, and writes what is said meanwhile.
func (w *world) act() {
	for range 100 {
		d := scale.Decide(w.Observed)
		w.tell("", d.Why)
		complete := w.carryOut(d)
		w.report()
		if idle(d) || !complete {
			return
		}
	}
}

// live is what machines do by themselves.
func (w *world) live() {
	w.Members = slices.DeleteFunc(w.Members, func(m scale.Member) bool {
		return m.Deleting && !w.Now.Before(m.DeletingSince.Add(2*time.Minute))
	})
	for i := range w.Members {
		m := &w.Members[i]
		switch {
		case m.Deleting || m.MCM.Failed:
		case m.Phase == "":
			m.Phase, m.Ready = "Pending", scale.False
		case m.Phase == "Pending" && w.doomed != nil && w.doomed(m.Name):
			stillborn(m)
		case m.Phase == "Pending":
			m.Phase, m.Joined, m.Node, m.Ready, m.ReadyFrom = "Running", true, scale.NodeHealthy, scale.True, w.Now
		}
	}
}

// carryOut does what was decided, and reports whether all of it was done.
func (w *world) carryOut(d scale.Decision) bool {
	w.Seed++
	if d.Generations != nil {
		w.MCM.Generations = *d.Generations
	}
	for _, target := range d.Release {
		w.remove(target)
		w.Released++
	}
	for _, target := range d.Adopt {
		w.Orphans = slices.DeleteFunc(w.Orphans, func(m scale.Orphan) bool { return m.UID == target.UID })
		w.Members = append(w.Members, member(target.Name, 0, ageless))
		w.Members[len(w.Members)-1].Created = w.Now.Add(-time.Hour)
	}
	for _, target := range d.Keep {
		kept(w.find(target))
	}
	for _, target := range d.Unmark {
		w.find(target).Marked = false
	}
	for _, target := range d.Sync {
		w.find(target).Drift = ""
	}
	for _, target := range slices.Concat(d.Remediate, d.Delete) {
		m := w.find(target)
		m.Deleting, m.DeletingSince, m.Phase = true, w.Now, "Terminating"
		w.deleted = append(w.deleted, m.Name)
	}
	return w.create(d.Create)
}

// create makes machines in batches, and stops at the first batch with an error. A name that exists is no error: it was
// made by an earlier run of the same decision.
func (w *world) create(names []string) bool {
	w.LastFailure = scale.Failure{}
	for _, size := range scale.BatchSizes(len(names)) {
		for _, name := range names[:size] {
			w.asked++
			switch {
			case w.refuse != nil && w.refuse(w.asked):
				w.LastFailure.Message = fmt.Sprintf("create machine %d: refused", w.asked)
			case !slices.ContainsFunc(w.Members, func(m scale.Member) bool { return m.Name == name }):
				m := member(name, 0, fresh)
				m.Created = w.Now
				w.Members = append(w.Members, m)
				w.made++
			}
		}
		if names = names[size:]; w.LastFailure.Message != "" {
			return false
		}
	}
	return true
}

func (w *world) find(target scale.Target) *scale.Member {
	i := slices.IndexFunc(
		w.Members,
		func(m scale.Member) bool { return m.UID == target.UID && m.Version == target.Version },
	)
	return &w.Members[i]
}

func (w *world) remove(target scale.Target) {
	w.Members = slices.DeleteFunc(w.Members, func(m scale.Member) bool { return m.UID == target.UID })
}

// report writes the status, and tells of each condition that changed.
func (w *world) report() {
	s := scale.Plan(w.Observed).Status
	w.Reported.Peak, w.Reported.ActedOn = s.Peak, s.ActedOn
	for _, c := range s.Conditions {
		w.tell(c.Type, fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
	}
}

func (w *world) tell(topic, text string) {
	if w.said[topic] == text {
		return
	}
	first := w.said[topic] == ""
	w.said[topic] = text
	if topic != "" && first &&
		(strings.HasPrefix(text, "False") || strings.HasPrefix(text, "True NoReplicas") || topic == "MachinesCreated" && strings.HasPrefix(text, "True")) {
		return // nothing has happened yet
	}
	if topic != "" {
		topic = "  " + topic + ": "
	}
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", " / ")
	fmt.Fprintf(&w.log, "%5s %s%s\n", w.Now.Sub(epoch).Truncate(time.Second).String(), topic, text)
}

// note writes what somebody else does.
func (w *world) note(text string) *world {
	fmt.Fprintf(&w.log, "%5s -- %s\n", w.Now.Sub(epoch).String(), text)
	return w
}

// alive returns the machines that are not being deleted.
func (w *world) alive() int {
	n := 0
	for _, m := range w.Members {
		if !m.Deleting {
			n++
		}
	}
	return n
}
