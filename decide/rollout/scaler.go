package rollout

import (
	"cmp"
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

// Trigger brings the deployment's annotation trigger-deletion-by-mcm up to date.
type Trigger struct {
	Drop []string // names to take off: of machines that are gone, going or failed
	At   string   // time of entries that have none, as in the old form
}

// Apply returns the annotation that follows from another one; empty: it goes. What cannot be read is dropped, and the old form becomes
// the new one. Applying it twice changes nothing.
func (t Trigger) Apply(annotation string) string {
	var kept []string
	dropped := map[string]bool{}
	for _, name := range t.Drop {
		dropped[name] = true
	}
	for _, w := range wishes(annotation, t.At) {
		if !dropped[w.name] {
			kept = append(kept, w.name+"~"+w.at)
		}
	}
	return strings.Join(kept, ",")
}

// wish is an entry of that annotation.
type wish struct{ name, at string }

// wishes reads the annotation: name~time,name~time, or name,name in the old form, where the time is that of the last change
// of the size. What cannot be read is dropped, as in MCM.
func wishes(annotation, last string) []wish {
	var list []wish
	known := map[string]bool{}
	for entry := range strings.SplitSeq(annotation, ",") {
		name, at, found := strings.Cut(strings.TrimSpace(entry), "~")
		if !found {
			at = last
		}
		if _, err := time.Parse(time.RFC3339, at); err == nil && name != "" && !known[name] {
			known[name] = true
			list = append(list, wish{name, at})
		}
	}
	return list
}

// scaler marks what the autoscaler names, and takes a mark off that it does not name any more. Machines that are gone, going or
// failed are dropped from the list. Marking one twice changes nothing.
func (o Observed) scaler(d *Decision) {
	t := Trigger{At: cmp.Or(o.Scaled, o.Now.UTC().Format(time.RFC3339))}
	serving, named := o.serving(), map[string]string{}
	for _, w := range wishes(o.Trigger, t.At) {
		if serving[w.name] {
			named[w.name] = w.at
		} else {
			t.Drop = append(t.Drop, w.name)
		}
	}
	if t.Apply(o.Trigger) != o.Trigger {
		d.Trigger = &t
	}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			m.mark(d, named[m.Name])
		}
	}
}

// serving returns the names of machines that may be chosen.
func (o Observed) serving() map[string]bool {
	names := map[string]bool{}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			if !m.Deleting && !m.Failed {
				names[m.Name] = true
			}
		}
	}
	return names
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
