package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Priorities of machines. Source: MCM.
const (
	priorityDefault = 3 // where nobody said
	priorityChosen  = 1 // of machines that the cluster autoscaler takes away
)

// Mark makes a machine one that the cluster autoscaler chose, from a time on.
type Mark struct {
	Target
	At string // RFC 3339, as the autoscaler wrote it
}

// Trigger is a new value of the deployment's annotation trigger-deletion-by-mcm.
type Trigger struct {
	Value string // empty: it goes
}

// wish is an entry of that annotation.
type wish struct{ name, at string }

// wishes reads the annotation: name~time,name~time, or name,name in the old form, where the time is that of the last change
// of the size. What cannot be read is dropped, as in MCM.
func (o Observed) wishes() []wish {
	var list []wish
	for entry := range strings.SplitSeq(o.Trigger, ",") {
		name, at, found := strings.Cut(strings.TrimSpace(entry), "~")
		if !found {
			at = o.Scaled
			if at == "" {
				at = o.Now.UTC().Format(time.RFC3339)
			}
		}
		_, err := time.Parse(time.RFC3339, at)
		if err == nil && name != "" && !slices.ContainsFunc(list, func(w wish) bool { return w.name == name }) {
			list = append(list, wish{name, at})
		}
	}
	return list
}

// scaler marks what the autoscaler names, and takes a mark off that it does not name any more. Machines that are gone, going or
// failed are dropped from the list. Marking one twice changes nothing.
func (o Observed) scaler(d *Decision) {
	var kept []string
	named := map[string]string{}
	for _, w := range o.wishes() {
		if m, found := o.machine(w.name); found && !m.Deleting && !m.Failed {
			kept = append(kept, w.name+"~"+w.at)
			named[w.name] = w.at
		}
	}
	if value := strings.Join(kept, ","); value != o.Trigger {
		d.Trigger = &Trigger{value}
	}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			m.mark(d, named[m.Name])
		}
	}
}

// mark makes a machine one that was chosen at a time, or one that was not where that is empty. The time of its first choice stays.
func (m Member) mark(d *Decision, at string) {
	chosen := m.Priority == priorityChosen && m.MarkedAt != ""
	switch {
	case m.Deleting || m.Failed:
	case at != "" && !chosen && len(d.Mark) < MaxBatch:
		d.Mark = append(d.Mark, Mark{m.target("the cluster autoscaler chose it"), cmp.Or(m.MarkedAt, at)})
	case at == "" && chosen:
		add(&d.Unmark, m.target("the cluster autoscaler does not name it any more"))
	}
}

func (o Observed) machine(name string) (Member, bool) {
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			if m.Name == name {
				return m, true
			}
		}
	}
	return Member{}, false
}
