package nodesync

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// template is what a node template asks for, or what was applied of it.
type template struct {
	labels      map[string]string
	annotations map[string]string
	taints      []Taint
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

// readTemplate returns what was applied last; no text means nothing. What cannot be read counts as nothing applied: keys
// that left the template then stay on the node, which is better than to stop here because somebody edited an annotation.
func readTemplate(text string) (applied template, readable bool) {
	if text == "" {
		return template{}, true
	}
	var from templateJSON
	if err := json.Unmarshal([]byte(text), &from); err != nil {
		return template{}, false
	}
	t := template{labels: from.Metadata.Labels, annotations: from.Metadata.Annotations}
	for _, taint := range from.Spec.Taints {
		t.taints = append(t.taints, Taint(taint))
	}
	return cleaned(t), true
}

// text returns the record of a template; empty when it asks for nothing.
func (t template) text() string {
	if t.equal(template{}) {
		return ""
	}
	var to templateJSON
	to.Metadata.Labels, to.Metadata.Annotations = t.labels, t.annotations
	for _, taint := range t.taints {
		to.Spec.Taints = append(to.Spec.Taints, taintJSON(taint))
	}
	text, _ := json.Marshal(to) // never fails: all of it is text
	return string(text)
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
	result := make(map[string]string, len(from))
	for key, value := range from {
		if !slices.Contains(keys, key) {
			result[key] = value
		}
	}
	return result
}

// readCapacity returns the virtual capacity that was applied last, under the rules of readTemplate.
func readCapacity(text string) (applied map[string]string, readable bool) {
	if text == "" {
		return nil, true
	}
	if err := json.Unmarshal([]byte(text), &applied); err != nil {
		return nil, false
	}
	return applied, true
}

// capacityText returns the record of a virtual capacity; empty when there is none.
func capacityText(capacity map[string]string) string {
	if len(capacity) == 0 {
		return ""
	}
	text, _ := json.Marshal(capacity) // never fails: all of it is text
	return string(text)
}
