// Package nodesync answers what a node lacks and what it has too much, compared with its machine's node template and with
// the virtual capacity of its class. It compares three sides, as MCM does: what is wanted, what the node has, and what was
// applied last. So a manual edit of a wanted key is undone, a key that left the template goes, and keys of others stay.
package nodesync

import (
	"maps"
	"slices"
)

// Keys on nodes that are ours, or that have a rule of their own. They are those of api/v1alpha1, which decide does not know.
const (
	labelMachineName   = "node.gardener.cloud/machine-name"
	annotationTemplate = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	annotationCapacity = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	annotationUnowned  = "node.machine.sapcloud.io/not-managed-by-mcm"
	taintCritical      = "node.gardener.cloud/critical-components-not-ready"
)

// Taint is a taint of a node. Key and effect are its identity: the same key with another effect is another taint.
type Taint struct{ Key, Value, Effect string }

type identity struct{ key, effect string }

func (t Taint) identity() identity { return identity{t.Key, t.Effect} }

func (t Taint) String() string { return t.Key + ":" + t.Effect }

// Wanted is what a node shall carry.
type Wanted struct {
	MachineName string
	Labels      map[string]string // of the machine's node template, as are annotations and taints
	Annotations map[string]string
	Taints      []Taint           // of two with the same key and effect the later one counts
	Capacity    map[string]string // virtual capacity of the class, quantities as text; nil means not known, and leaves it as it is
}

// Node is what a node carries. What was applied last stands in two of its annotations.
type Node struct {
	Labels      map[string]string
	Annotations map[string]string
	Taints      []Taint
	Capacity    map[string]string // quantities as text, written the same way as those that are wanted
	Finalizer   bool              // ours is on
	Deleting    bool              // metadata.deletionTimestamp is set
}

// Decide says what is to change on a node. A node that took these changes needs none.
func Decide(wanted Wanted, node Node) Changes {
	d := &differ{}
	want := cleaned(template{wanted.Labels, wanted.Annotations, wanted.Taints})
	applied, readable := readTemplate(node.Annotations[annotationTemplate])
	labels := maps.Clone(want.labels)
	labels[labelMachineName] = wanted.MachineName
	changes := Changes{
		Labels:      d.keys("label", "template", labels, applied.labels, node.Labels),
		Annotations: d.keys("annotation", "template", want.annotations, applied.annotations, node.Annotations),
		Taints:      d.taints(want.taints, applied.taints, node.Taints),
	}
	if !readable || !want.equal(applied) {
		d.record("template", &changes.Annotations, annotationTemplate, want.text(), node.Annotations)
	}
	if wanted.Capacity != nil {
		applied, readable := readCapacity(node.Annotations[annotationCapacity])
		changes.Capacity = d.keys("capacity", "class", wanted.Capacity, applied, node.Capacity)
		if !readable || !maps.Equal(wanted.Capacity, applied) {
			d.record("virtual capacity", &changes.Annotations, annotationCapacity, capacityText(wanted.Capacity), node.Annotations)
		}
	}
	if _, marked := node.Annotations[annotationUnowned]; marked {
		changes.Annotations.remove(annotationUnowned)
		d.because("is marked as a node without a machine")
	}
	if !node.Finalizer && !node.Deleting { // an object that is being deleted takes no new finalizer
		changes.Finalizer = true
		d.because("lacks our finalizer")
	}
	changes.Reasons = d.reasons
	return changes
}

// differ compares the parts of a node and notes why they are to change.
type differ struct{ reasons []string }

func (d *differ) because(reason string) { d.reasons = append(d.reasons, reason) }

// keys compares maps. Only what was applied before is removed: all else belongs to others.
func (d *differ) keys(what, source string, wanted, applied, has map[string]string) Edit {
	var edit Edit
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		value, there := has[key]
		switch {
		case !there:
			d.because("lacks " + what + " " + key)
		case value != wanted[key]:
			d.because("has another value of " + what + " " + key)
		default:
			continue
		}
		edit.set(key, wanted[key])
	}
	for _, key := range slices.Sorted(maps.Keys(applied)) {
		_, stays := wanted[key]
		if _, there := has[key]; there && !stays {
			edit.remove(key)
			d.because("has " + what + " " + key + " that left the " + source)
		}
	}
	return edit
}

// taints compares taints, wanted and applied ones without doubles. The taint for critical components is put on once: others
// take it off when the components run, and to put it back would keep the node from ever getting ready.
func (d *differ) taints(wanted, applied, has []Taint) TaintEdit {
	var edit TaintEdit
	want, was, on := indexed(wanted), indexed(applied), indexed(has)
	for _, t := range wanted {
		old, there := on[t.identity()]
		_, before := was[t.identity()]
		switch {
		case !there && before && t.Key == taintCritical:
			continue
		case !there:
			d.because("lacks taint " + t.String())
		case old.Value != t.Value:
			d.because("has another value of taint " + t.String())
		default:
			continue
		}
		edit.Set = append(edit.Set, t)
	}
	for _, t := range applied {
		_, stays := want[t.identity()]
		if _, there := on[t.identity()]; there && !stays {
			edit.Remove = append(edit.Remove, Taint{Key: t.Key, Effect: t.Effect})
			d.because("has taint " + t.String() + " that left the template")
		}
	}
	return edit
}

// record brings a record of what was applied up to date. Where nothing is wanted no record is kept.
func (d *differ) record(of string, edit *Edit, key, text string, has map[string]string) {
	if text != "" {
		edit.set(key, text)
	} else if _, there := has[key]; there {
		edit.remove(key)
	}
	d.because("has no current record of the " + of)
}

func indexed(taints []Taint) map[identity]Taint {
	index := make(map[identity]Taint, len(taints))
	for _, t := range taints {
		index[t.identity()] = t
	}
	return index
}
