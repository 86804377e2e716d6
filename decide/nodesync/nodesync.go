// Package nodesync answers what a node lacks and what it has too much, compared with its machine's node template and with
// the virtual capacity of its class. It compares three sides, as MCM does: what is wanted, what the node has, and what was
// applied last. So a manual edit of a wanted key is undone, a key that left the template goes, and keys of others stay.
package nodesync

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	Labels, Annotations map[string]string
	Taints              []Taint
	Capacity            map[string]string // quantities as text, written the same way as those that are wanted
	Finalizer           bool              // ours is on
	Deleting            bool              // metadata.deletionTimestamp is set
}

// Decide says what is to change on a node. A node that took these changes needs none.
func Decide(wanted Wanted, node Node) Changes {
	d := &differ{}
	want := cleaned(template{wanted.Labels, wanted.Annotations, wanted.Taints})
	recorded, readable := read[templateJSON](node.Annotations[annotationTemplate])
	applied := recorded.template()
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
		applied, readable := read[map[string]string](node.Annotations[annotationCapacity])
		changes.Capacity = d.keys("capacity", "class", wanted.Capacity, applied, node.Capacity)
		if !readable || !maps.Equal(wanted.Capacity, applied) {
			d.record("virtual capacity", &changes.Annotations, annotationCapacity, text(len(wanted.Capacity) == 0, wanted.Capacity), node.Annotations)
		}
	}
	if _, marked := node.Annotations[annotationUnowned]; marked {
		changes.Annotations.Drop(annotationUnowned)
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
		edit.Put(key, wanted[key])
	}
	for _, key := range slices.Sorted(maps.Keys(applied)) {
		_, stays := wanted[key]
		if _, there := has[key]; there && !stays {
			edit.Drop(key)
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
		edit.Put(key, text)
	} else if _, there := has[key]; there {
		edit.Drop(key)
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

// Changes is what is to change on a node. The zero value means that the node is as it should be.
type Changes struct {
	Labels      Edit
	Annotations Edit // those of the template, the records of what was applied, and the mark of a node without a machine
	Taints      TaintEdit
	Capacity    Edit     // of status.capacity, quantities as text
	Finalizer   bool     // ours is to be put on
	Reasons     []string // one for each key, without values; see Why
}

// Edit is what changes in a map. What it does not name stays.
type Edit struct {
	Set    map[string]string // keys to add or to overwrite
	Remove []string          // sorted
}

// TaintEdit is what changes in a list of taints, each known by key and effect. What it does not name stays.
type TaintEdit struct {
	Set    []Taint // to add or to overwrite; sorted
	Remove []Taint // without values; sorted
}

// Empty reports whether there is nothing to change.
func (c Changes) Empty() bool {
	return c.Labels.Empty() && c.Annotations.Empty() && c.Taints.Empty() && c.Capacity.Empty() && !c.Finalizer
}

// Empty reports whether there is nothing to change.
func (e Edit) Empty() bool { return len(e.Set) == 0 && len(e.Remove) == 0 }

// Empty reports whether there is nothing to change.
func (e TaintEdit) Empty() bool { return len(e.Set) == 0 && len(e.Remove) == 0 }

// mostNamed is how many keys Why names. Source: as many as a drain names pods; it must stay readable in a status.
const mostNamed = 20

// Why says in one sentence what is not as it should be, by keys and never by values: "node lacks label a, has taint
// b:NoSchedule that left the template". It is empty when there is nothing to change.
func (c Changes) Why() string {
	if len(c.Reasons) == 0 {
		return ""
	}
	text := "node " + strings.Join(c.Reasons[:min(mostNamed, len(c.Reasons))], ", ")
	if more := len(c.Reasons) - mostNamed; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// Apply returns a map with the changes made; it leaves the one given as it is.
func (e Edit) Apply(to map[string]string) map[string]string {
	result := except(to, e.Remove...)
	maps.Copy(result, e.Set)
	return result
}

// Put adds or overwrites a key.
func (e *Edit) Put(key, value string) {
	if e.Set == nil {
		e.Set = map[string]string{}
	}
	e.Set[key] = value
}

// Drop removes a key.
func (e *Edit) Drop(key string) {
	e.Remove = append(e.Remove, key)
	slices.Sort(e.Remove)
}

// template is what a node template asks for, or what was applied of it.
type template struct {
	labels, annotations map[string]string
	taints              []Taint
}

// templateJSON is the form of a template in its annotation: that of the API's node template, as MCM writes it too.
type templateJSON struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Taints []taintJSON `json:"taints,omitempty"`
	} `json:"spec"`
}

type taintJSON struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// template is the record without what only we write.
func (from templateJSON) template() template {
	t := template{labels: from.Metadata.Labels, annotations: from.Metadata.Annotations}
	for _, taint := range from.Spec.Taints {
		t.taints = append(t.taints, Taint(taint))
	}
	return cleaned(t)
}

// text returns the record of a template; empty when it asks for nothing.
func (t template) text() string {
	var to templateJSON
	to.Metadata.Labels, to.Metadata.Annotations = t.labels, t.annotations
	for _, taint := range t.taints {
		to.Spec.Taints = append(to.Spec.Taints, taintJSON(taint))
	}
	return text(t.equal(template{}), to)
}

// equal compares meanings, not texts: a record that MCM wrote with other fields and in another order is current, too.
func (t template) equal(other template) bool {
	return maps.Equal(t.labels, other.labels) && maps.Equal(t.annotations, other.annotations) && slices.Equal(t.taints, other.taints)
}

// cleaned returns a copy without the keys that only we write: a template can neither set nor remove them. Its taints are
// sorted and without doubles.
func cleaned(t template) template {
	return template{
		labels:      except(t.labels, labelMachineName),
		annotations: except(t.annotations, annotationTemplate, annotationCapacity, annotationUnowned),
		taints: slices.SortedFunc(maps.Values(indexed(t.taints)), func(a, b Taint) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
		}),
	}
}

func except(from map[string]string, keys ...string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, from)
	for _, key := range keys {
		delete(result, key)
	}
	return result
}

// read returns what was applied last; no text means nothing. What cannot be read counts as nothing applied: keys that left the
// template then stay on the node, which is better than to stop here because somebody edited an annotation.
func read[T any](text string) (applied T, readable bool) {
	if text != "" && json.Unmarshal([]byte(text), &applied) != nil {
		return *new(T), false
	}
	return applied, true
}

// text returns the record of something; empty when there is nothing in it.
func text(empty bool, of any) string {
	if empty {
		return ""
	}
	text, _ := json.Marshal(of) // never fails: all of it is text
	return string(text)
}
