package rollout

import (
	"cmp"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
)

// ChoiceMark marks a machine that the cluster autoscaler chose for deletion, with the time of the choice.
type ChoiceMark struct {
	ObjectTarget
	At string // time of the choice in RFC 3339, as the autoscaler wrote it
}

// TriggerAnnotationUpdate updates the deployment's annotation trigger-deletion-by-mcm.
type TriggerAnnotationUpdate struct {
	Drop []string // names to remove, because the machine is gone, being deleted or Failed
	At   string   // time for entries in the old form, which have no time
}

// Apply returns the new value of the annotation; if the value is empty, the annotation is removed. Apply drops invalid
// entries and converts entries of the old form. Apply is idempotent.
func (t TriggerAnnotationUpdate) Apply(annotation string) string {
	return t.formatKeptRequests(parseScaleDownRequests(annotation, t.At))
}

// formatKeptRequests returns the annotation value without the entries that Drop names.
func (t TriggerAnnotationUpdate) formatKeptRequests(requests []scaleDownRequest) string {
	drop := list.KeySet(t.Drop, list.Identity)
	kept := list.Filter(requests, func(r scaleDownRequest) bool { return !drop[r.name] })
	return strings.Join(list.Map(kept, func(r scaleDownRequest) string { return r.name + "~" + r.chosenAt }), ",")
}

// scaleDownRequest is one entry of the annotation trigger-deletion-by-mcm.
type scaleDownRequest struct{ name, chosenAt string }

// parseScaleDownRequests parses an annotation of the form name~time,name~time. In the old form name,name, all entries
// get the time of the last change of the size. Invalid entries are dropped, as in MCM.
func parseScaleDownRequests(annotation, last string) []scaleDownRequest {
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

// markChosenMachines marks the machines that the autoscaler's annotation names, and unmarks all other machines.
// markChosenMachines removes machines that are gone, being deleted or Failed from the annotation. markChosenMachines is
// idempotent.
func (o Facts) markChosenMachines(d *Decision) {
	t := TriggerAnnotationUpdate{At: cmp.Or(o.MCM.AutoscaledAt, o.Now.UTC().Format(time.RFC3339))}
	requests := parseScaleDownRequests(o.MCM.TriggerAnnotation, t.At)
	named, serving := make(map[string]string, len(requests)), map[string]bool{}
	for _, w := range requests {
		named[w.name] = w.chosenAt
	}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			m.updateChoiceMark(d, named[m.Name])
			serving[m.Name] = serving[m.Name] || !m.Deleting && !m.Failed
		}
	}
	over := list.Filter(requests, func(r scaleDownRequest) bool { return !serving[r.name] })
	t.Drop = list.Map(over, func(r scaleDownRequest) string { return r.name })
	if t.formatKeptRequests(requests) != o.MCM.TriggerAnnotation {
		d.Trigger = &t
	}
}

// updateChoiceMark marks a machine as chosen at the given time, or unmarks the machine if the time is empty. An
// existing time of the choice does not change.
func (m Member) updateChoiceMark(d *Decision, at string) {
	chosen := m.Priority == vocabulary.PriorityChosenByAutoscaler && m.MCM.MarkedAt != ""
	switch {
	case m.Deleting || m.Failed:
	case at != "" && !chosen:
		appendBounded(&d.Mark, ChoiceMark{m.asTarget("the cluster autoscaler chose it"), cmp.Or(m.MCM.MarkedAt, at)})
	case at == "" && chosen:
		appendBounded(&d.Unmark, m.asTarget("the cluster autoscaler does not name it any more"))
	}
}

// isChosen reports whether the autoscaler chose the machine.
func (m Member) isChosen() bool {
	return m.Priority <= vocabulary.PriorityChosenByAutoscaler && m.MCM.MarkedAt != ""
}

// isDeletedAtAnySize reports whether the set deletes the machine even if its size does not require it, because the
// autoscaler chose the machine before or at the time of its last change of the size.
func (o Facts) isDeletedAtAnySize(m Member) bool {
	at, err := time.Parse(time.RFC3339, m.MCM.MarkedAt)
	last, none := time.Parse(time.RFC3339, o.MCM.AutoscaledAt)
	return m.Priority == vocabulary.PriorityChosenByAutoscaler && err == nil && none == nil && !at.After(last)
}
