// Package nodesync decides what a node lacks, and what it has that it should no longer have, compared with its
// machine's node template and with the virtual capacity of its class. Like MCM, it compares three sides: what is
// wanted, what the node has, and what was applied last. So a manual change of a wanted key is undone, a key that was
// removed from the template is removed from the node, and keys of others stay.
package nodesync

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Taint is a taint of a node. Key and effect are its identity.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

type identity struct{ key, effect string }

func (t Taint) identity() identity { return identity{t.Key, t.Effect} }

func (t Taint) String() string { return t.Key + ":" + t.Effect }

// Wanted is what a node should have.
type Wanted struct {
	MachineName string
	MachineUID  string
	Labels      map[string]string // labels, annotations and taints come from the machine's node template
	Annotations map[string]string
	Taints      []Taint           // of two taints with the same key and effect the later counts
	Capacity    map[string]string // virtual capacity of the class, quantities as text; nil: not known, no change
}

// Node is what a node has. Two of its annotations record what was applied last.
type Node struct {
	Labels, Annotations map[string]string
	Taints              []Taint
	Capacity            map[string]string // quantities as text, in the same form as the wanted ones
	Finalizer           bool              // it has our finalizer
	Deleting            bool              // metadata.deletionTimestamp is set
}

// Decide returns the changes that a node needs. After these changes it returns none.
func Decide(wanted Wanted, node Node) Changes {
	d := &differ{}
	want := newTemplate(wanted.Labels, wanted.Annotations, wanted.Taints)
	recorded, readable := read[template](node.Annotations[vocabulary.AnnotationLastAppliedTemplate])
	applied := newTemplate(recorded.Metadata.Labels, recorded.Metadata.Annotations, recorded.Spec.Taints)
	labels := maps.Clone(want.Metadata.Labels)
	labels[vocabulary.LabelMachineName] = wanted.MachineName
	annotations := maps.Clone(want.Metadata.Annotations)
	if wanted.MachineUID != "" {
		annotations[vocabulary.AnnotationMachineUID] = wanted.MachineUID
	}
	changes := Changes{
		Labels: d.keys("label", "template", labels, applied.Metadata.Labels, node.Labels),
		Annotations: d.keys(
			"annotation",
			"template",
			annotations,
			applied.Metadata.Annotations,
			node.Annotations,
		),
		Taints: d.taints(want.Spec.Taints, applied.Spec.Taints, node.Taints),
	}
	if !readable || !want.equal(applied) {
		d.record(
			"template",
			&changes.Annotations,
			vocabulary.AnnotationLastAppliedTemplate,
			text(want.equal(template{}), want),
			node.Annotations,
		)
	}
	if wanted.Capacity != nil {
		applied, readable := read[map[string]string](node.Annotations[vocabulary.AnnotationLastAppliedVirtualCapacity])
		changes.Capacity = d.keys("capacity", "class", wanted.Capacity, applied, node.Capacity)
		if !readable || !maps.Equal(wanted.Capacity, applied) {
			record := text(len(wanted.Capacity) == 0, wanted.Capacity)
			d.record(
				"virtual capacity",
				&changes.Annotations,
				vocabulary.AnnotationLastAppliedVirtualCapacity,
				record,
				node.Annotations,
			)
		}
	}
	if _, marked := node.Annotations[vocabulary.AnnotationNotManaged]; marked {
		changes.Annotations.Drop(vocabulary.AnnotationNotManaged)
		d.because("is marked as a node without a machine")
	}
	if !node.Finalizer && !node.Deleting { // the API server rejects a new finalizer on an object that is being deleted
		changes.Finalizer = true
		d.because("lacks our finalizer")
	}
	changes.Reasons = d.reasons
	return changes
}

// differ collects the reasons for changes.
type differ struct{ reasons []string }

func (d *differ) because(reason string) { d.reasons = append(d.reasons, reason) }

// keys compares maps. Only keys that were applied before are removed; other keys belong to others.
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

// taints compares taints; wanted and applied have no duplicates. The taint for critical components is added only once:
// others remove it when the components run, and the node would never become ready if it were added again.
func (d *differ) taints(wanted, applied, has []Taint) TaintEdit {
	var edit TaintEdit
	want, was, on := indexed(wanted), indexed(applied), indexed(has)
	for _, t := range wanted {
		old, there := on[t.identity()]
		_, before := was[t.identity()]
		switch {
		case !there && before && t.Key == vocabulary.TaintCriticalComponentsNotReady:
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

// record updates a record of what was applied. If nothing is wanted, it removes the record.
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

// Changes are the changes that a node needs. The zero value: none.
type Changes struct {
	Labels      Edit
	Annotations Edit // those of the template, the records of what was applied, and not-managed-by-mcm
	Taints      TaintEdit
	Capacity    Edit     // of status.capacity, quantities as text
	Finalizer   bool     // add our finalizer
	Reasons     []string // one for each key, without values; see Why
}

// Edit is the change of a map. Keys that it does not name stay.
type Edit struct {
	Set    map[string]string // keys to add or to overwrite
	Remove []string          // sorted
}

// TaintEdit is the change of a list of taints, which are identified by key and effect. Taints that it does not name
// stay.
type TaintEdit struct {
	Set    []Taint // to add or to overwrite; sorted
	Remove []Taint // without values; sorted
}

// Empty reports whether there is no change.
func (c Changes) Empty() bool {
	return c.Labels.Empty() && c.Annotations.Empty() && c.Taints.Empty() && c.Capacity.Empty() && !c.Finalizer
}

// Empty reports whether there is no change.
func (e Edit) Empty() bool { return len(e.Set) == 0 && len(e.Remove) == 0 }

// Empty reports whether there is no change.
func (e TaintEdit) Empty() bool { return len(e.Set) == 0 && len(e.Remove) == 0 }

// mostNamed is how many reasons Why lists. Source: a drain lists as many pods; the text must stay readable in a status.
const mostNamed = 20

// Why describes the changes in one sentence, by keys and without values: "node lacks label a, has taint b:NoSchedule
// that left the template". It is empty if there is no change.
func (c Changes) Why() string {
	if len(c.Reasons) == 0 {
		return ""
	}
	return "node " + phrase.List(c.Reasons, mostNamed, ", ")
}

// Apply returns a changed copy of a map.
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

// template is a node template, or the record of one that was applied. Its JSON has the form that MCM writes into the
// annotation: that of the API's node template.
type template struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Taints []Taint `json:"taints,omitempty"`
	} `json:"spec"`
}

// newTemplate returns a template without the keys that only Millwright writes: a template can neither set nor remove
// them. Its taints are sorted and without duplicates.
func newTemplate(labels, annotations map[string]string, taints []Taint) (t template) {
	t.Metadata.Labels = except(labels, vocabulary.LabelMachineName)
	t.Metadata.Annotations = except(annotations, vocabulary.AnnotationLastAppliedTemplate,
		vocabulary.AnnotationLastAppliedVirtualCapacity, vocabulary.AnnotationNotManaged)
	t.Spec.Taints = slices.SortedFunc(maps.Values(indexed(taints)), func(a, b Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	return t
}

// equal compares meanings, not texts: a record that MCM wrote with more fields and in another order is up to date.
func (t template) equal(other template) bool {
	return maps.Equal(t.Metadata.Labels, other.Metadata.Labels) &&
		maps.Equal(t.Metadata.Annotations, other.Metadata.Annotations) &&
		slices.Equal(t.Spec.Taints, other.Spec.Taints)
}

func except(from map[string]string, keys ...string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, from)
	for _, key := range keys {
		delete(result, key)
	}
	return result
}

// read parses the record of what was applied last; an empty text means nothing. If it cannot be parsed, nothing counts
// as applied: keys that left the template then stay on the node, which is better than a failure because somebody
// changed an annotation.
func read[T any](text string) (applied T, readable bool) {
	if text != "" && json.Unmarshal([]byte(text), &applied) != nil {
		return *new(T), false
	}
	return applied, true
}

// text returns a value as the text of a record; an empty text if empty is true.
func text(empty bool, of any) string {
	if empty {
		return ""
	}
	text, _ := json.Marshal(of) // never fails: all of it is text
	return string(text)
}
