package capi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"millwright/api/vocabulary"
	"millwright/decide/explain"
)

// HandedOverMessage describes the pending work of a set or a deployment that has lost Millwright's label.
const HandedOverMessage = "it was handed over: Millwright's finalizer is left"

// UpstreamMessage describes the pending work of a set or a deployment that Cluster API's controller may still change.
const UpstreamMessage = "Cluster API's controller may still change it"

// objectWithConditions is a set or a deployment of Cluster API.
type objectWithConditions interface {
	metav1.Object
	GetConditions() []metav1.Condition
}

// HasUpstreamFinalizer reports whether an object has the finalizer of Cluster API's controller for its kind, and not
// Millwright's finalizer.
func HasUpstreamFinalizer(o metav1.Object, finalizer string) bool {
	return slices.Contains(o.GetFinalizers(), finalizer) && !HasFinalizer(o)
}

// MayBeChangedByUpstream reports whether Cluster API's controller may still change an object or its machines, although
// the object has Millwright's label. The label alone does not stop the controller, because Machines and Clusters also
// wake it. The controller first adds its finalizer, then sets the condition Paused, and only then makes changes. While
// the condition Paused is True, the controller therefore makes no change: before its next change, it writes the
// condition again, and that write makes the write of Millwright's finalizer a conflict.
func MayBeChangedByUpstream(o objectWithConditions, finalizer string) bool {
	return HasUpstreamFinalizer(o, finalizer) && !meta.IsStatusConditionTrue(o.GetConditions(), clusterv1.PausedCondition)
}

// IsMarkedByMillwright reports whether an object has Millwright's finalizer, or its condition Blocked says that it waits
// for the hand-over to Millwright. If Millwright no longer reconciles such an object, Millwright must remove both.
func IsMarkedByMillwright(o objectWithConditions) bool {
	return HasFinalizer(o) ||
		ConditionOfType(o.GetConditions(), vocabulary.ConditionBlocked).Reason == vocabulary.BlockedByHandOver
}

// HandOverSummary describes the wait of an object that Cluster API's controller may still change. A wait that the
// object's condition Blocked shows keeps its beginning.
func HandOverSummary(o objectWithConditions, kind, cluster string, now time.Time) explain.Summary {
	h := explain.HandOver{Kind: kind, Namespace: o.GetNamespace(), ClusterName: cluster, Since: now}
	if c := ConditionOfType(o.GetConditions(), vocabulary.ConditionBlocked); c.Reason == vocabulary.BlockedByHandOver {
		h.Since = c.LastTransitionTime.Time
	}
	return h.BlockedSummary(now)
}

// HandOverConditions returns the conditions that an object has while Cluster API's controller may still change it: the
// conditions of this controller, and Blocked.
func HandOverConditions(o objectWithConditions, blocked explain.Summary, now metav1.Time) []metav1.Condition {
	own := []string{vocabulary.ConditionBlocked}
	return ReplaceOwnedConditions(o.GetConditions(), own, BlockedConditions(blocked), o.GetGeneration(), now)
}

// ShowsBlocked reports whether the condition Blocked of an object shows this Summary.
func ShowsBlocked(o objectWithConditions, blocked explain.Summary) bool {
	c := ConditionOfType(o.GetConditions(), vocabulary.ConditionBlocked)
	return c.Reason == blocked.Reason && c.Message == blocked.Message
}

// TakeOver gives an object Millwright's finalizer instead of the finalizer of Cluster API's controller. TakeOver does
// not change an object that has Millwright's finalizer: a finalizer of Cluster API that appears later shows that
// another controller is active.
func TakeOver(o metav1.Object, finalizer string) {
	if HasFinalizer(o) {
		return
	}
	others := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == finalizer })
	o.SetFinalizers(append(others, Finalizer))
}

// ReturnForTopology gives an object that is being deleted Cluster API's value of the filter label, if the object has
// the finalizer of a topology: otherwise core's filter drops the events of the object, and core never deletes the
// templates of the topology and never removes this finalizer. An empty value removes the label.
func ReturnForTopology(o metav1.Object, finalizer, value string) {
	if o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), finalizer) {
		SetWatchFilter(o, value)
	}
}

// SetWatchFilter sets the label that selects the controller of an object. An empty value removes the label.
func SetWatchFilter(o metav1.Object, value string) {
	merged := labels.Merge(o.GetLabels(), labels.Set{clusterv1.WatchLabel: value})
	if value == "" {
		delete(merged, clusterv1.WatchLabel)
	}
	o.SetLabels(merged)
}

// fieldReceiver returns the field manager of Cluster API that gets a field from Millwright. An empty name leaves the
// field without an owner.
type fieldReceiver func(fieldpath.Path) string

// ReturnFieldsOfSet gives the fields of a MachineSet that Millwright owns to Cluster API's controller of
// MachineDeployments. See returnFields.
func ReturnFieldsOfSet(o metav1.Object) error {
	return returnFields(o, DeploymentFieldManager, func(fieldpath.Path) string { return upstreamDeploymentFieldManager })
}

// ReturnFieldsOfMachine gives the fields of a Machine that Millwright owns to Cluster API's controller of MachineSets.
// See returnFields.
func ReturnFieldsOfMachine(o metav1.Object) error {
	return returnFields(o, MachineSetFieldManager, func(fieldpath.Path) string { return upstreamSetFieldManager })
}

// ReturnFieldsOfClone gives the fields of a clone that Millwright owns to Cluster API's controller of MachineSets. This
// controller applies labels and annotations with one field manager, and the rest with another. The controller writes
// annotations that say how a clone was made, and does not apply them again: if it owned them, its next apply would
// remove them. See returnFields.
func ReturnFieldsOfClone(o metav1.Object) error {
	ownerless := []string{
		clusterv1.TemplateClonedFromNameAnnotation,
		clusterv1.TemplateClonedFromGroupKindAnnotation,
		clusterv1.UpdateInProgressAnnotation,
	}
	return returnFields(o, MachineSetFieldManager, func(path fieldpath.Path) string {
		field := path.String()
		switch {
		case !strings.HasPrefix(field, ".metadata.labels") && !strings.HasPrefix(field, ".metadata.annotations"):
			return upstreamSetFieldManager
		case len(path) > 2 && slices.Contains(ownerless, *path[2].FieldName):
			return ""
		default:
			return upstreamMetadataFieldManager
		}
	})
}

// returnFields changes the managed fields of an object: what one field manager of Millwright owns, except of the status,
// field managers of Cluster API own, as if they had applied it. Otherwise a field that leaves the template after the
// hand-over would stay on the object for ever, because Millwright would remain its owner. A second call changes nothing.
func returnFields(o metav1.Object, manager string, receiver fieldReceiver) error {
	returned := map[string]*fieldpath.Set{}
	var receivers []string
	var kept []metav1.ManagedFieldsEntry
	var apiVersion string
	for _, entry := range o.GetManagedFields() {
		if entry.Manager != manager || entry.Subresource != "" {
			kept = append(kept, entry)
			continue
		}
		fields, err := fieldsOfEntry(entry)
		if err != nil {
			return err
		}
		apiVersion = entry.APIVersion
		for path := range fields.All() {
			to := receiver(path)
			if to == "" {
				continue
			}
			if returned[to] == nil {
				returned[to] = fieldpath.NewSet()
				receivers = append(receivers, to)
			}
			returned[to].Insert(path.Copy())
		}
	}
	for _, to := range receivers {
		var err error
		if kept, err = withApplied(kept, to, apiVersion, returned[to]); err != nil {
			return err
		}
	}
	o.SetManagedFields(kept)
	return nil
}

// withApplied adds fields to the entry of a field manager that applies an object, or adds this entry.
func withApplied(
	entries []metav1.ManagedFieldsEntry,
	manager, apiVersion string,
	fields *fieldpath.Set,
) ([]metav1.ManagedFieldsEntry, error) {
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, FieldsType: "FieldsV1",
	}
	at := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == entry.Operation && e.Subresource == ""
	})
	if at >= 0 {
		entry = entries[at]
		former, err := fieldsOfEntry(entry)
		if err != nil {
			return nil, err
		}
		fields = fields.Union(former)
	}
	text, err := fields.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encode fields of field manager %s: %w", manager, err)
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(text))
	if at < 0 {
		return append(entries, entry), nil
	}
	entries[at] = entry
	return entries, nil
}
