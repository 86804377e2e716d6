package capi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// MachineFieldManagers returns the field managers of the controllers that write the template of a MachineSet on its
// machines and their clones: Millwright's, and those of Cluster API, which may have had the set before. Source: Cluster
// API.
func MachineFieldManagers() []string {
	return []string{MachineSetFieldManager, upstreamSetFieldManager, upstreamMetadataFieldManager}
}

// SetFieldManagers returns the field managers of the controllers that write a MachineDeployment on its MachineSets. See
// MachineFieldManagers.
func SetFieldManagers() []string {
	return []string{DeploymentFieldManager, upstreamDeploymentFieldManager}
}

// OwnedFields are fields of an object that some field managers own. The zero value contains no field.
type OwnedFields struct {
	set fieldpath.Set
	all bool // every field is owned
}

// AllFields contains every field.
func AllFields() OwnedFields { return OwnedFields{all: true} }

// FieldsOwnedBy returns the fields that some field managers own on an object. FieldsOwnedBy ignores the ownership of
// the status, and entries that do not parse.
func FieldsOwnedBy(o metav1.Object, managers []string) OwnedFields {
	all := fieldpath.NewSet()
	for _, entry := range o.GetManagedFields() {
		if slices.Contains(managers, entry.Manager) && entry.Subresource == "" {
			if fields, err := fieldsOfEntry(entry); err == nil {
				all = all.Union(fields)
			}
		}
	}
	return OwnedFields{set: *all}
}

func fieldsOfEntry(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 == nil {
		return fields, nil
	}
	if err := fields.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("parse fields of field manager %s: %w", entry.Manager, err)
	}
	return fields, nil
}

// Within returns the fields below the field with this path.
func (f OwnedFields) Within(path ...string) OwnedFields {
	for _, name := range path {
		f = f.withinElement(fieldpath.FieldNameElement(name))
	}
	return f
}

func (f OwnedFields) withinElement(element fieldpath.PathElement) OwnedFields {
	return OwnedFields{*f.set.WithPrefix(element), f.all}
}

// Has reports whether the field with this name is owned.
func (f OwnedFields) Has(name string) bool { return f.hasElement(fieldpath.FieldNameElement(name)) }

func (f OwnedFields) hasElement(element fieldpath.PathElement) bool {
	return f.all || f.set.Members.Has(element)
}

// Names returns the names of the owned fields, without the fields below them. For a map, these are the keys.
func (f OwnedFields) Names() (names []string) {
	for element := range f.set.Members.All() {
		if element.FieldName != nil {
			names = append(names, *element.FieldName)
		}
	}
	return names
}

// AppliedKeys returns the keys of the labels and annotations that the owned fields contain.
func (f OwnedFields) AppliedKeys() (labels, annotations []string) {
	metadata := f.Within("metadata")
	return metadata.Within("labels").Names(), metadata.Within("annotations").Names()
}

// CopyInPlaceFields copies the fields that change existing machines in place from a template to the spec of a machine
// or of another template. The spec keeps the fields and the list items that the template lacks and that are not among
// the owned fields: another client or a webhook has added them, as with a server-side apply. The owned fields are
// relative to the spec.
func CopyInPlaceFields(to, template *clusterv1.MachineSpec, owned OwnedFields) {
	from, deletion := template.DeepCopy(), owned.Within("deletion")
	CopyOwnedValue(&to.MinReadySeconds, from.MinReadySeconds, owned.Has("minReadySeconds"))
	CopyOwnedValue(
		&to.Deletion.NodeDrainTimeoutSeconds,
		from.Deletion.NodeDrainTimeoutSeconds,
		deletion.Has("nodeDrainTimeoutSeconds"),
	)
	CopyOwnedValue(
		&to.Deletion.NodeVolumeDetachTimeoutSeconds,
		from.Deletion.NodeVolumeDetachTimeoutSeconds,
		deletion.Has("nodeVolumeDetachTimeoutSeconds"),
	)
	CopyOwnedValue(
		&to.Deletion.NodeDeletionTimeoutSeconds,
		from.Deletion.NodeDeletionTimeoutSeconds,
		deletion.Has("nodeDeletionTimeoutSeconds"),
	)
	to.ReadinessGates = mergeOwnedItems(to.ReadinessGates, from.ReadinessGates, owned.Within("readinessGates"),
		func(g clusterv1.MachineReadinessGate) fieldpath.PathElement {
			return fieldpath.KeyElementByFields("conditionType", g.ConditionType)
		},
		func(to *clusterv1.MachineReadinessGate, from clusterv1.MachineReadinessGate, owned OwnedFields) {
			CopyOwnedValue(&to.Polarity, from.Polarity, owned.Has("polarity"))
		},
	)
	to.Taints = mergeOwnedItems(to.Taints, from.Taints, owned.Within("taints"),
		func(t clusterv1.MachineTaint) fieldpath.PathElement {
			return fieldpath.KeyElementByFields("key", t.Key, "effect", string(t.Effect))
		},
		func(to *clusterv1.MachineTaint, from clusterv1.MachineTaint, owned OwnedFields) {
			CopyOwnedValue(&to.Value, from.Value, owned.Has("value"))
			CopyOwnedValue(&to.Propagation, from.Propagation, owned.Has("propagation"))
		},
	)
}

// CopyOwnedValue copies a value. If the value is empty, CopyOwnedValue removes only a value that is owned.
func CopyOwnedValue[T comparable](to *T, from T, owned bool) {
	var empty T
	if from != empty || owned {
		*to = from
	}
}

// mergeOwnedItems copies the items of a list that has keys. The parameter merge copies the fields of an item except its
// key. Items keep their order; new items are at the end. If all fields are owned, the list has the new order.
func mergeOwnedItems[T any](
	to, from []T,
	owned OwnedFields,
	key func(T) fieldpath.PathElement,
	merge func(to *T, from T, owned OwnedFields),
) (merged []T) {
	if owned.all {
		return from
	}
	indexOf := func(items []T, of T) int {
		return slices.IndexFunc(items, func(item T) bool { return key(item).Equals(key(of)) })
	}
	for _, item := range to {
		i := indexOf(from, item)
		switch {
		case i >= 0:
			merge(&item, from[i], owned.withinElement(key(item)))
		case owned.hasElement(key(item)):
			continue
		}
		merged = append(merged, item)
	}
	for _, item := range from {
		if indexOf(to, item) < 0 {
			merged = append(merged, item)
		}
	}
	return merged
}

// UpdateEntries returns a map with the wanted entries, and without the entries with owned keys that are not wanted.
// UpdateEntries keeps the entries of other writers, and does not change the given maps.
func UpdateEntries(all, wanted map[string]string, owned []string) map[string]string {
	updated := maps.Clone(all)
	for _, key := range owned {
		delete(updated, key)
	}
	if updated == nil && len(wanted) > 0 {
		updated = map[string]string{}
	}
	maps.Copy(updated, wanted)
	return updated
}

// HasManagedFields reports whether one of these field managers owns fields of an object, except of its status.
func HasManagedFields(o metav1.Object, managers []string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "" && slices.Contains(managers, entry.Manager)
	})
}

// ClaimFields makes a field manager the owner of all fields of the object fields, which is a part of the object o. The
// API server records a field manager only for values that a request changes. So ClaimFields is needed if another client
// made the object with the same values, for example clusterctl move, or if the API server lost the managed fields.
// Without the claim, Millwright would not know later what it must remove.
func ClaimFields(o metav1.Object, manager string, fields any) {
	var content map[string]any
	text, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	claimed := fieldpath.NewSet()
	insertFields(claimed, nil, content)
	if err == nil {
		text, err = claimed.ToJSON()
	}
	if err != nil {
		return // never for an object of the API
	}
	o.SetManagedFields(append(slices.Clone(o.GetManagedFields()), metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: clusterv1.GroupVersion.String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(text)),
	}))
}

// insertFields inserts the fields of a value below a path.
func insertFields(set *fieldpath.Set, at fieldpath.Path, value map[string]any) {
	for name, v := range value {
		path := append(at.Copy(), fieldpath.FieldNameElement(name))
		switch v := v.(type) {
		case map[string]any:
			insertFields(set, path, v)
		case []any:
			for _, item := range v {
				fields, _ := item.(map[string]any)
				insertItem(set, path, name, fields)
			}
		default:
			set.Insert(path)
		}
	}
}

// insertItem inserts an item of the list readinessGates or taints.
func insertItem(set *fieldpath.Set, list fieldpath.Path, name string, item map[string]any) {
	keys := []any{"conditionType", item["conditionType"]}
	if name == "taints" {
		keys = []any{"key", item["key"], "effect", item["effect"]}
	}
	path := append(list.Copy(), fieldpath.KeyElementByFields(keys...))
	set.Insert(path)
	insertFields(set, path, item)
}
