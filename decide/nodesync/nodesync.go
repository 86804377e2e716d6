// Package nodesync compares a node with its machine's node template and with its class's virtual capacity. Package
// nodesync decides what the node lacks, and what has to be removed from the node. Like MCM, nodesync compares three
// states: wanted, present, and last applied. A manual change of a wanted key is undone, and a key that was removed from
// the template is removed from the node. Keys of other parties stay.
package nodesync

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Taint is a taint of a node. Key and effect identify the taint.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

type taintIdentity struct{ key, effect string }

func (t Taint) identity() taintIdentity { return taintIdentity{t.Key, t.Effect} }

func (t Taint) String() string { return t.Key + ":" + t.Effect }

// WantedState is the wanted state of a node.
type WantedState struct {
	MachineName string
	MachineUID  string
	Labels      map[string]string // the labels, annotations and taints come from the machine's node template
	Annotations map[string]string
	Taints      []Taint // of two taints with the same key and effect, the later one applies
	// virtual capacity of the class, quantities as text; nil: the capacity is not known, and does not change
	Capacity map[string]string
}

// Node is the current state of a node. Two of the node's annotations record what was applied last.
type Node struct {
	Labels, Annotations map[string]string
	Taints              []Taint
	Capacity            map[string]string // quantities as text, in the same form as WantedState.Capacity
	Finalizer           bool              // the node has Millwright's finalizer
	Deleting            bool              // the node has a metadata.deletionTimestamp
}

// Decide returns the changes that a node needs. After all changes were applied, Decide returns no change.
func Decide(wanted WantedState, node Node) Changes {
	d := &reasonCollector{}
	want := newNodeTemplate(wanted.Labels, wanted.Annotations, wanted.Taints)
	recorded, readable := parseRecord[nodeTemplate](node.Annotations[vocabulary.AnnotationLastAppliedTemplate])
	applied := newNodeTemplate(recorded.Metadata.Labels, recorded.Metadata.Annotations, recorded.Spec.Taints)
	labels := maps.Clone(want.Metadata.Labels)
	labels[vocabulary.LabelMachineName] = wanted.MachineName
	annotations := maps.Clone(want.Metadata.Annotations)
	if wanted.MachineUID != "" {
		annotations[vocabulary.AnnotationMachineUID] = wanted.MachineUID
	}
	changes := Changes{
		Labels: d.diffMaps("label", "template", labels, applied.Metadata.Labels, node.Labels),
		Annotations: d.diffMaps(
			"annotation",
			"template",
			annotations,
			applied.Metadata.Annotations,
			node.Annotations,
		),
		Taints: d.diffTaints(want.Spec.Taints, applied.Spec.Taints, node.Taints),
	}
	if !readable || !want.hasEqualContents(applied) {
		d.updateAppliedRecord(
			"template",
			&changes.Annotations,
			vocabulary.AnnotationLastAppliedTemplate,
			formatRecord(want.hasEqualContents(nodeTemplate{}), want),
			node.Annotations,
		)
	}
	if wanted.Capacity != nil {
		applied, readable := parseRecord[map[string]string](node.Annotations[vocabulary.AnnotationLastAppliedVirtualCapacity])
		changes.Capacity = d.diffMaps("capacity", "class", wanted.Capacity, applied, node.Capacity)
		if !readable || !maps.Equal(wanted.Capacity, applied) {
			record := formatRecord(len(wanted.Capacity) == 0, wanted.Capacity)
			d.updateAppliedRecord(
				"virtual capacity",
				&changes.Annotations,
				vocabulary.AnnotationLastAppliedVirtualCapacity,
				record,
				node.Annotations,
			)
		}
	}
	if _, marked := node.Annotations[vocabulary.AnnotationNotManaged]; marked {
		changes.Annotations.RemoveKey(vocabulary.AnnotationNotManaged)
		d.addReason("is marked as a node without a machine")
	}
	if !node.Finalizer && !node.Deleting { // the API server rejects a new finalizer on an object that is being deleted
		changes.Finalizer = true
		d.addReason("lacks our finalizer")
	}
	changes.Reasons = d.reasons
	return changes
}

// reasonCollector collects the reasons for changes.
type reasonCollector struct{ reasons []string }

func (d *reasonCollector) addReason(reason string) { d.reasons = append(d.reasons, reason) }

// diffMaps returns the edit that changes the map `has` into wanted. Only keys that were applied before are removed;
// all other keys belong to other parties.
func (d *reasonCollector) diffMaps(what, source string, wanted, applied, has map[string]string) MapEdit {
	var edit MapEdit
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		value, there := has[key]
		switch {
		case !there:
			d.addReason("lacks " + what + " " + key)
		case value != wanted[key]:
			d.addReason("has another value of " + what + " " + key)
		default:
			continue
		}
		edit.SetKey(key, wanted[key])
	}
	for _, key := range slices.Sorted(maps.Keys(applied)) {
		_, stays := wanted[key]
		if _, there := has[key]; there && !stays {
			edit.RemoveKey(key)
			d.addReason("has " + what + " " + key + " that left the " + source)
		}
	}
	return edit
}

// diffTaints returns the edit of the taints. wanted and applied have no duplicates. The taint for critical
// components is added only once. Another controller removes the taint when the components run, and a second taint would
// keep the node from becoming ready.
func (d *reasonCollector) diffTaints(wanted, applied, has []Taint) TaintEdit {
	var edit TaintEdit
	want, was, on := taintsByIdentity(wanted), taintsByIdentity(applied), taintsByIdentity(has)
	for _, t := range wanted {
		old, there := on[t.identity()]
		_, before := was[t.identity()]
		switch {
		case !there && before && t.Key == vocabulary.TaintCriticalComponentsNotReady:
			continue
		case !there:
			d.addReason("lacks taint " + t.String())
		case old.Value != t.Value:
			d.addReason("has another value of taint " + t.String())
		default:
			continue
		}
		edit.Set = append(edit.Set, t)
	}
	for _, t := range applied {
		_, stays := want[t.identity()]
		if _, there := on[t.identity()]; there && !stays {
			edit.Remove = append(edit.Remove, Taint{Key: t.Key, Effect: t.Effect})
			d.addReason("has taint " + t.String() + " that left the template")
		}
	}
	return edit
}

// updateAppliedRecord updates a record of what was applied. If nothing is wanted, updateAppliedRecord removes the
// annotation.
func (d *reasonCollector) updateAppliedRecord(of string, edit *MapEdit, key, text string, has map[string]string) {
	if text != "" {
		edit.SetKey(key, text)
	} else if _, there := has[key]; there {
		edit.RemoveKey(key)
	}
	d.addReason("has no current record of the " + of)
}

func taintsByIdentity(taints []Taint) map[taintIdentity]Taint {
	index := make(map[taintIdentity]Taint, len(taints))
	for _, t := range taints {
		index[t.identity()] = t
	}
	return index
}

// Changes holds the changes that a node needs. The zero value means no change.
type Changes struct {
	Labels      MapEdit
	Annotations MapEdit // annotations of the template, records of what was applied, and not-managed-by-mcm
	Taints      TaintEdit
	Capacity    MapEdit  // changes of status.capacity, quantities as text
	Finalizer   bool     // Millwright's finalizer has to be added to the node
	Reasons     []string // one reason per key, without values; see Why
}

// MapEdit is the change of a map. A MapEdit does not change keys that it does not name.
type MapEdit struct {
	Set    map[string]string // keys to add or to overwrite
	Remove []string          // sorted keys to remove
}

// TaintEdit is the change of a list of taints, identified by key and effect. A TaintEdit does not change taints that
// it does not name.
type TaintEdit struct {
	Set    []Taint // taints to add or to overwrite; sorted
	Remove []Taint // taints to remove, without values; sorted
}

// IsEmpty reports whether there is no change.
func (c Changes) IsEmpty() bool {
	return c.Labels.IsEmpty() && c.Annotations.IsEmpty() && c.Taints.IsEmpty() && c.Capacity.IsEmpty() && !c.Finalizer
}

// IsEmpty reports whether there is no change.
func (e MapEdit) IsEmpty() bool { return len(e.Set) == 0 && len(e.Remove) == 0 }

// IsEmpty reports whether there is no change.
func (e TaintEdit) IsEmpty() bool { return len(e.Set) == 0 && len(e.Remove) == 0 }

// maxListedReasons is the largest number of reasons that Sentence lists. Source of maxListedReasons: a drain also lists
// 20 pods, and a status must stay readable.
const maxListedReasons = 20

// Sentence describes the changes in one sentence, by keys and without values: "node lacks label a, has taint
// b:NoSchedule that left the template". Sentence is empty if there is no change.
func (c Changes) Sentence() string {
	if len(c.Reasons) == 0 {
		return ""
	}
	return "node " + phrase.JoinNames(c.Reasons, maxListedReasons, ", ")
}

// Apply returns a changed copy of a map.
func (e MapEdit) Apply(to map[string]string) map[string]string {
	result := withoutKeys(to, e.Remove...)
	maps.Copy(result, e.Set)
	return result
}

// SetKey adds or overwrites a key.
func (e *MapEdit) SetKey(key, value string) {
	if e.Set == nil {
		e.Set = map[string]string{}
	}
	e.Set[key] = value
}

// RemoveKey adds a key to the keys to remove.
func (e *MapEdit) RemoveKey(key string) {
	e.Remove = append(e.Remove, key)
	slices.Sort(e.Remove)
}

// nodeTemplate is a node template, or the record of an applied node template. The JSON of nodeTemplate has the format
// of the API's node template, in which MCM writes the annotation.
type nodeTemplate struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Taints []Taint `json:"taints,omitempty"`
	} `json:"spec"`
}

// newNodeTemplate returns a template without the keys that only Millwright writes, because a template can neither set
// nor remove these keys. The template's taints are sorted and without duplicates.
func newNodeTemplate(labels, annotations map[string]string, taints []Taint) (t nodeTemplate) {
	t.Metadata.Labels = withoutKeys(labels, vocabulary.LabelMachineName)
	t.Metadata.Annotations = withoutKeys(annotations, vocabulary.AnnotationLastAppliedTemplate,
		vocabulary.AnnotationLastAppliedVirtualCapacity, vocabulary.AnnotationNotManaged)
	t.Spec.Taints = slices.SortedFunc(maps.Values(taintsByIdentity(taints)), func(a, b Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	return t
}

// hasEqualContents compares contents, not texts, because a record that MCM wrote with more fields or in another order
// is up to date.
func (t nodeTemplate) hasEqualContents(other nodeTemplate) bool {
	return maps.Equal(t.Metadata.Labels, other.Metadata.Labels) &&
		maps.Equal(t.Metadata.Annotations, other.Metadata.Annotations) &&
		slices.Equal(t.Spec.Taints, other.Spec.Taints)
}

func withoutKeys(from map[string]string, keys ...string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, from)
	for _, key := range keys {
		delete(result, key)
	}
	return result
}

// parseRecord parses the record of what was applied last; an empty text means that nothing was applied. A record that
// cannot be parsed also counts as empty. After an unreadable record, keys that left the template stay on the node, and
// the reconciliation continues.
func parseRecord[T any](text string) (applied T, readable bool) {
	if text != "" && json.Unmarshal([]byte(text), &applied) != nil {
		return *new(T), false
	}
	return applied, true
}

// formatRecord returns a value as the text of a record; if empty is true, formatRecord returns an empty string.
func formatRecord(empty bool, of any) string {
	if empty {
		return ""
	}
	text, _ := json.Marshal(of) // json.Marshal never fails, because all parts are strings
	return string(text)
}
