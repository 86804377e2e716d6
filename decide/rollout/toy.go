package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// toy is a cluster in which everything goes well: decisions are carried out, machines come and go after fixed times. Plan and
// Ideal look into the future with it.
type toy struct {
	o      Observed
	create time.Duration // until a machine is available
	remove time.Duration // until one that is deleted is gone
	ready  map[string]time.Time
	gone   map[string]time.Time
	made   int
}

func newToy(o Observed, create, remove time.Duration) *toy {
	t := &toy{o: o.sorted(), create: create, remove: remove, ready: map[string]time.Time{}, gone: map[string]time.Time{}}
	for i := range t.o.Sets {
		s := &t.o.Sets[i]
		s.Seen, s.Counted, s.Drift = s.Replicas, 0, false
		for _, m := range s.Machines {
			switch {
			case m.Deleting:
				t.gone[m.UID] = o.Now.Add(remove)
			case !m.Available:
				t.ready[m.UID] = o.Now.Add(create)
			}
		}
	}
	t.live()
	return t
}

// do carries a decision out.
func (t *toy) do(d Decision) {
	if d.Create != nil {
		t.made++
		id, created := "set-"+strconv.Itoa(t.made), t.o.Now
		for _, s := range t.o.Sets {
			if !s.Created.Before(created) {
				created = s.Created.Add(1)
			}
		}
		t.o.Sets = append(t.o.Sets, Set{
			Name: "(new)", UID: id, Created: created, Current: true, Replicas: d.Create.Replicas,
			Seen: d.Create.Replicas, Revision: d.Create.Revision, Desired: d.Create.Desired, Max: d.Create.Max,
		})
	}
	for i := range t.o.Sets {
		s := &t.o.Sets[i]
		for _, r := range d.Resize {
			if r.UID == s.UID {
				s.Replicas, s.Seen, s.Desired, s.Max = r.To, r.To, r.Desired, r.Max
			}
		}
		s.NoScaleUp = s.NoScaleUp && !has(d.Open, s.UID) || has(d.Close, s.UID)
		s.Drift = s.Drift && !has(d.Sync, s.UID)
		if d.Revise != nil && d.Revise.UID == s.UID {
			s.Revision, s.History = d.Revise.Revision, d.Revise.History
		}
	}
	t.o.Sets = slices.DeleteFunc(t.o.Sets, func(s Set) bool { return has(d.Delete, s.UID) })
	if d.Record != nil {
		t.o.Progress = t.o.Progress.Recorded(*d.Record)
	}
	if d.Trigger != nil {
		t.o.Trigger = d.Trigger.Apply(t.o.Trigger)
	}
	t.handOver(d)
	t.live()
}

func has(list []Target, uid string) bool {
	return slices.ContainsFunc(list, func(t Target) bool { return t.UID == uid })
}

// handOver does what a decision says about machines and their nodes.
func (t *toy) handOver(d Decision) {
	moves := func(m Member) bool {
		return slices.ContainsFunc(d.Move, func(move Move) bool { return move.Machine.UID == m.UID })
	}
	var moved []Member
	for i := range t.o.Sets {
		s := &t.o.Sets[i]
		for j := range s.Machines {
			m := &s.Machines[j]
			t.touch(d, m)
			if moves(*m) {
				m.Handed = true
				moved = append(moved, *m)
			}
		}
		s.Machines = slices.DeleteFunc(s.Machines, moves)
	}
	for i := range t.o.Sets {
		if s := &t.o.Sets[i]; len(d.Move) > 0 && s.UID == d.Move[0].ToUID {
			s.Machines = append(s.Machines, moved...)
		}
	}
}

// touch does what a decision says about one machine and its node.
func (t *toy) touch(d Decision, m *Member) {
	m.Candidate = m.Candidate || has(d.Candidates, m.UID)
	m.Tainted = (m.Tainted || has(d.Taint, m.UID)) && !has(d.Untaint, m.UID)
	m.Handed = m.Handed && !has(d.Accept, m.UID)
	for _, mark := range d.Mark {
		if mark.UID == m.UID {
			m.Priority, m.MarkedAt = priorityChosen, mark.At
		}
	}
	if has(d.Unmark, m.UID) {
		m.Priority, m.MarkedAt = priorityDefault, ""
	}
	switch {
	case has(d.Guard, m.UID):
		m.Guard, m.Guarded = valueTrue, true
	case has(d.Unguard, m.UID):
		m.Guard, m.Guarded = "", false
	}
	switch {
	case has(d.Settle, m.UID), has(d.Strip, m.UID):
		m.Marks, m.Updated, m.Candidate = false, false, false
	case has(d.Select, m.UID):
		m.Updating, m.Available, m.Marks = true, false, true
		t.ready[m.UID] = t.o.Now.Add(t.create)
	}
}

// live lets machines and sets do what they do by themselves at this moment.
func (t *toy) live() {
	for i := range t.o.Sets {
		s := &t.o.Sets[i]
		s.Machines = slices.DeleteFunc(s.Machines, func(m Member) bool { return m.Deleting && !t.o.Now.Before(t.gone[m.UID]) })
		t.scale(s)
		for j := range s.Machines {
			m := &s.Machines[j]
			if at, waits := t.ready[m.UID]; waits && !m.Deleting && !t.o.Now.Before(at) {
				m.Available, m.Ready, m.Sick, m.Failed = true, true, false, false
				if m.Updating {
					m.Updating, m.Updated = false, true
				}
				delete(t.ready, m.UID)
			}
		}
		s.Machines = slices.DeleteFunc(s.Machines, func(m Member) bool { return m.Deleting && !t.o.Now.Before(t.gone[m.UID]) })
	}
}

// scale makes or deletes machines of a set: those that are not available first, then the youngest.
func (t *toy) scale(s *Set) {
	var live []*Member
	for i := range s.Machines {
		if m := &s.Machines[i]; !m.Deleting {
			live = append(live, m)
		}
	}
	slices.SortStableFunc(live, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(rank(a.Available), rank(b.Available)), cmp.Compare(rank(a.Handed), rank(b.Handed)), b.Created.Compare(a.Created))
	})
	for _, m := range live[:max(len(live)-s.Replicas, 0)] {
		m.Deleting, m.Available, m.Ready = true, false, false
		t.gone[m.UID] = t.o.Now.Add(t.remove)
	}
	for n := len(live); n < s.Replicas && !s.NoScaleUp; n++ {
		t.made++
		id := "machine-" + strconv.Itoa(t.made)
		s.Machines = append(s.Machines, Member{
			Name: id, UID: id, Node: id, Priority: priorityDefault, Sick: true, Created: t.o.Now.Add(time.Duration(t.made)),
		})
		t.ready[id] = t.o.Now.Add(t.create)
	}
}

// next lets time pass until something happens by itself, or until a moment, where that is earlier and not zero. It reports
// whether there is anything to wait for.
func (t *toy) next(until time.Time) bool {
	for _, times := range []map[string]time.Time{t.ready, t.gone} {
		for _, at := range times {
			if at.After(t.o.Now) && (until.IsZero() || at.Before(until)) {
				until = at
			}
		}
	}
	if until.IsZero() {
		return false
	}
	if until.After(t.o.Now) {
		t.o.Now = until
	}
	t.live()
	return true
}
