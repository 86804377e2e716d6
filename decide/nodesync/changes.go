package nodesync

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
	result := maps.Clone(to)
	if result == nil {
		result = map[string]string{}
	}
	for _, key := range e.Remove {
		delete(result, key)
	}
	maps.Copy(result, e.Set)
	return result
}

func (e *Edit) set(key, value string) {
	if e.Set == nil {
		e.Set = map[string]string{}
	}
	e.Set[key] = value
}

func (e *Edit) remove(key string) {
	e.Remove = append(e.Remove, key)
	slices.Sort(e.Remove)
}
