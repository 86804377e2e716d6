package deployment

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capiset "millwright/observe/capi/set"
)

// millwrightConditionTypes lists the condition types that Millwright writes on a MachineDeployment. Millwright does not
// change other conditions.
var millwrightConditionTypes = []string{
	vocabulary.ConditionAvailable,
	vocabulary.ConditionMachinesReady,
	vocabulary.ConditionMachinesUpToDate,
	vocabulary.ConditionRollingOut,
	vocabulary.ConditionScalingUp,
	vocabulary.ConditionScalingDown,
	vocabulary.ConditionRemediating,
	vocabulary.ConditionDeleting,
	vocabulary.ConditionPaused,
	vocabulary.ConditionProgressing,
	vocabulary.ConditionReplicaFailure,
	vocabulary.ConditionDegraded,
	vocabulary.ConditionReconciling,
	vocabulary.ConditionStalled,
	vocabulary.ConditionBlocked,
}

// reportedStatus returns the part of a deployment's status that rollout.PlanDeployment computes. The transition time of
// Progressing is the time of the last progress.
func reportedStatus(s *clusterv1.MachineDeploymentStatus) rollout.Status {
	r := rollout.Status{Counts: rollout.MachineCounts{
		Replicas: int(capi.ValueOrZero(s.Replicas)), Ready: int(capi.ValueOrZero(s.ReadyReplicas)),
		Available: int(capi.ValueOrZero(s.AvailableReplicas)), Updated: int(capi.ValueOrZero(s.UpToDateReplicas)),
	}}
	for _, kind := range millwrightConditionTypes {
		if c := capi.ConditionOfType(s.Conditions, kind); c.Type != "" && kind != vocabulary.ConditionBlocked {
			r.Conditions = append(r.Conditions, rollout.Condition{
				Type:           c.Type,
				Status:         string(c.Status),
				Reason:         c.Reason,
				Message:        c.Message,
				LastUpdateTime: c.LastTransitionTime.Time,
			})
		}
	}
	return r
}

// ApplyStatus writes the status that rollout.PlanDeployment computed, and the condition Blocked. The transition time of
// Progressing is the time of the last progress. The transition time of Blocked is the start of the oldest blocking
// cause. The transition time of any other condition changes only with the condition's status.
func ApplyStatus(
	f ObjectTree,
	s *clusterv1.MachineDeploymentStatus,
	want rollout.Status,
	blocked explain.Summary,
	now metav1.Time,
) {
	c, before := want.Counts, StatusWithoutProgressTime(*s)
	s.Replicas, s.ReadyReplicas = new(int32(c.Replicas)), new(int32(c.Ready))
	s.AvailableReplicas, s.UpToDateReplicas = new(int32(c.Available)), new(int32(c.Updated))
	s.Phase = phaseOfDeployment(f)
	s.ObservedGeneration = f.Deployment.Generation
	s.Selector = capi.SelectorText(&f.Deployment.Spec.Selector)
	var conditions []capi.Condition
	for _, c := range want.Conditions {
		conditions = append(conditions, capi.Condition{
			Condition: scale.Condition{
				Type:    c.Type,
				Status:  scale.ConditionStatus(c.Status),
				Reason:  c.Reason,
				Message: c.Message,
			},
			TransitionTime: c.LastUpdateTime,
		})
	}
	s.Conditions = capi.ReplaceOwnedConditions(
		s.Conditions,
		millwrightConditionTypes,
		append(conditions, capi.BlockedConditions(blocked)...),
		f.Deployment.Generation,
		now,
	)
	s.Deprecated = v1Beta1Status(f.Deployment, s, now)
	if len(s.Versions) > 0 || !equality.Semantic.DeepEqual(before, StatusWithoutProgressTime(*s)) {
		s.Versions = capiset.CountMachinesByVersion(f.Members) // see capiset.ShowsVersions
	}
}

// Source: Cluster API.
func phaseOfDeployment(f ObjectTree) string {
	d, there := f.Deployment, len(f.Members)
	phase := clusterv1.MachineDeploymentPhaseRunning
	switch wanted := int(capi.ValueOrZero(d.Spec.Replicas)); {
	case d.Spec.Replicas == nil:
		phase = clusterv1.MachineDeploymentPhaseUnknown
	case d.DeletionTimestamp != nil || wanted < there:
		phase = clusterv1.MachineDeploymentPhaseScalingDown
	case wanted > there:
		phase = clusterv1.MachineDeploymentPhaseScalingUp
	}
	return string(phase)
}

// StatusShowsBlockers reports whether the status of a deployment shows its blockers, its phase, the versions of its
// machines, and the same facts to readers of version v1beta1.
func StatusShowsBlockers(f ObjectTree, blocked explain.Summary) bool {
	s := &f.Deployment.Status
	return capi.ShowsBlocked(f.Deployment, blocked) && s.Phase == phaseOfDeployment(f) &&
		capiset.ShowsVersions(s.Versions, f.Members) &&
		equality.Semantic.DeepEqual(s.Deprecated, v1Beta1Status(f.Deployment, s, metav1.Time{}))
}

// StatusWithoutProgressTime returns a status without the time of its last progress. The time of the last progress alone
// is not worth a write, because any progress also changes another field.
func StatusWithoutProgressTime(s clusterv1.MachineDeploymentStatus) clusterv1.MachineDeploymentStatus {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if s.Conditions[i].Type == vocabulary.ConditionProgressing {
			s.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return s
}

// RecordedRollout returns the record of the rollout; nil if there is no record, or the record does not parse.
func RecordedRollout(d *clusterv1.MachineDeployment) *v1alpha1.RolloutStatus {
	return parseAnnotation[v1alpha1.RolloutStatus](d, v1alpha1.AnnotationRolloutProgress)
}

// CurrentOperation returns the operation in a deployment's annotation; nil if there is none.
func CurrentOperation(d *clusterv1.MachineDeployment) *v1alpha1.Operation {
	return parseAnnotation[v1alpha1.Operation](d, v1alpha1.AnnotationOperation)
}

// OperationWithBlockers returns the operation in a deployment's annotation, together with the blockers of the
// deployment; nil without an operation and blockers. The condition Blocked contains the whole sentence.
func OperationWithBlockers(d *clusterv1.MachineDeployment) *v1alpha1.Operation {
	o := CurrentOperation(d)
	if c := capi.ConditionOfType(d.Status.Conditions, vocabulary.ConditionBlocked); c.Status == metav1.ConditionTrue {
		if o == nil {
			o = &v1alpha1.Operation{}
		}
		if o.WaitsFor = c.Message; len(o.BlockedBy) == 0 {
			o.BlockedBy, o.Since = []string{c.Reason}, c.LastTransitionTime
			o.Summary = explain.WaitState{Blockers: o.BlockedBy}.ShortText(time.Time{})
		}
	}
	return o
}

// CurrentRolloutID returns the workflow ID of the rollout that a deployment names as its current operation.
// CurrentRolloutID is empty if the deployment names no rollout, or the rollout of another object: a moved deployment
// has the annotations of its predecessor.
func CurrentRolloutID(d *clusterv1.MachineDeployment) string {
	if o := CurrentOperation(d); o != nil && o.RolloutOf == d.UID {
		return o.WorkflowID
	}
	return ""
}

func parseAnnotation[T any](d *clusterv1.MachineDeployment, key string) *T {
	value := new(T)
	if text := d.Annotations[key]; text == "" || json.Unmarshal([]byte(text), value) != nil {
		return nil
	}
	return value
}

// maxOperationSentenceBytes limits the sentence in the annotation of an operation. The condition Blocked contains the
// whole sentence.
const maxOperationSentenceBytes = 600

// RolloutAnnotations returns the annotations for a record of a rollout and for an operation, as a merge patch of
// metadata.annotations; a nil value removes an annotation. A nil record leaves the present record unchanged.
func RolloutAnnotations(record *v1alpha1.RolloutStatus, operation *v1alpha1.Operation) map[string]any {
	notes := map[string]any{v1alpha1.AnnotationOperation: nil}
	if operation != nil {
		o := *operation
		o.WaitsFor = phrase.TruncateText(o.WaitsFor, maxOperationSentenceBytes)
		notes[v1alpha1.AnnotationOperation] = toJSON(o)
	}
	if record != nil {
		notes[v1alpha1.AnnotationRolloutProgress] = toJSON(record)
	}
	return notes
}

func toJSON(value any) string {
	text, _ := json.Marshal(value) // Marshal cannot fail for structs, strings and times
	return string(text)
}

// ChangedAnnotations returns the entries of notes that would change an annotation of a deployment.
func ChangedAnnotations(d *clusterv1.MachineDeployment, notes map[string]any) map[string]any {
	news := map[string]any{}
	for key, value := range notes {
		is, there := d.Annotations[key]
		if value == nil && there || value != nil && value != is {
			news[key] = value
		}
	}
	return news
}

// RemoveMillwrightAnnotations removes the annotations for workflows and rollouts of Millwright from a deployment.
func RemoveMillwrightAnnotations(d *clusterv1.MachineDeployment) {
	delete(d.Annotations, v1alpha1.AnnotationOperation)
	delete(d.Annotations, v1alpha1.AnnotationRolloutProgress)
}
