package rollout

import (
	"cmp"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
)

// Mark records that the cluster autoscaler chose a machine, and when.
type Mark struct {
	Target
	At string // RFC 3339, as the autoscaler wrote it
}

// Trigger updates the deployment's annotation trigger-deletion-by-mcm.
type Trigger struct {
	Drop []string // names to remove: of machines that are gone, being deleted or Failed
	At   string   // time for entries without one, as in the old form
}

// Apply returns the new value of the annotation; empty: remove it. It drops entries that cannot be read, and converts
// the old form to the new one. It is safe to apply twice.
func (t Trigger) Apply(annotation string) string {
	return t.keep(scaleDownRequests(annotation, t.At))
}

// keep returns the annotation with these entries, without those to drop.
func (t Trigger) keep(requests []scaleDownRequest) string {
	drop := list.Set(t.Drop, list.Identity)
	kept := list.Where(requests, func(r scaleDownRequest) bool { return !drop[r.name] })
	return strings.Join(list.Map(kept, func(r scaleDownRequest) string { return r.name + "~" + r.at }), ",")
}

// scaleDownRequest is an entry of the annotation trigger-deletion-by-mcm.
type scaleDownRequest struct{ name, at string }

// scaleDownRequests parses the annotation: name~time,name~time. In the old form, name,name, all entries have the time
// of the last change of the size. Entries that cannot be read are dropped, as in MCM.
func scaleDownRequests(annotation, last string) []scaleDownRequest {
	var requests []scaleDownRequest
	known := make(map[string]bool, strings.Count(annotation, ",")+1)
	for entry := range strings.SplitSeq(annotation, ",") {
		name, at, found := strings.Cut(strings.TrimSpace(entry), "~")
		if !found {
			at = last
		}
		if _, err := time.Parse(time.RFC3339, at); err == nil && name != "" && !known[name] {
			known[name] = true
			requests = append(requests, scaleDownRequest{name, at})
		}
	}
	return requests
}

// scaler marks the machines that the autoscaler names, unmarks those that it no longer names, and drops from the
// annotation machines that are gone, being deleted or Failed. It is safe to repeat.
func (o Observed) scaler(d *Decision) {
	t := Trigger{At: cmp.Or(o.MCM.Scaled, o.Now.UTC().Format(time.RFC3339))}
	requests := scaleDownRequests(o.MCM.Trigger, t.At)
	named, serving := make(map[string]string, len(requests)), map[string]bool{}
	for _, w := range requests {
		named[w.name] = w.at
	}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			m.mark(d, named[m.Name])
			serving[m.Name] = serving[m.Name] || !m.Deleting && !m.Failed
		}
	}
	over := list.Where(requests, func(r scaleDownRequest) bool { return !serving[r.name] })
	t.Drop = list.Map(over, func(r scaleDownRequest) string { return r.name })
	if t.keep(requests) != o.MCM.Trigger {
		d.Trigger = &t
	}
}

// mark marks a machine as chosen at this time, or unmarks it if the time is empty. The time of its first choice stays.
func (m Member) mark(d *Decision, at string) {
	chosen := m.Priority == vocabulary.PriorityChosen && m.MCM.MarkedAt != ""
	switch {
	case m.Deleting || m.Failed:
	case at != "" && !chosen:
		add(&d.Mark, Mark{m.target("the cluster autoscaler chose it"), cmp.Or(m.MCM.MarkedAt, at)})
	case at == "" && chosen:
		add(&d.Unmark, m.target("the cluster autoscaler does not name it any more"))
	}
}

// chosen reports whether the autoscaler chose a machine.
func (m Member) chosen() bool { return m.Priority <= vocabulary.PriorityChosen && m.MCM.MarkedAt != "" }

// leaves reports whether the autoscaler chose a machine no later than it changed the size last: its set deletes it.
func (o Observed) leaves(m Member) bool {
	at, err := time.Parse(time.RFC3339, m.MCM.MarkedAt)
	last, none := time.Parse(time.RFC3339, o.MCM.Scaled)
	return m.Priority == vocabulary.PriorityChosen && err == nil && none == nil && !at.After(last)
}
