package deployment

import (
	"encoding/json"
	"slices"

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

// written are the conditions that Millwright writes on a MachineDeployment. Others stay as they are.
var written = []string{
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
	vocabulary.ConditionBlocked,
}

// reported returns the part of a deployment's status that rollout.Plan decides. The transition time of Progressing is
// that of the last progress.
func reported(s *clusterv1.MachineDeploymentStatus) rollout.Status {
	r := rollout.Status{Counts: rollout.Counts{
		Replicas: int(capi.Value(s.Replicas)), Ready: int(capi.Value(s.ReadyReplicas)),
		Available: int(capi.Value(s.AvailableReplicas)), Updated: int(capi.Value(s.UpToDateReplicas)),
	}}
	for _, kind := range written {
		if c := capi.ConditionOf(s.Conditions, kind); c.Type != "" && kind != vocabulary.ConditionBlocked {
			r.Conditions = append(r.Conditions, rollout.Condition{
				Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Updated: c.LastTransitionTime.Time,
			})
		}
	}
	return r
}

// ApplyStatus writes the status that rollout.Plan decided, and what blocks the deployment. The transition time of
// Progressing is that of the last progress, and that of Blocked says since when the oldest of its causes blocks; of all
// other conditions it changes only with their status.
func ApplyStatus(
	f Tree,
	s *clusterv1.MachineDeploymentStatus,
	want rollout.Status,
	blocked explain.Summary,
	now metav1.Time,
) {
	c := want.Counts
	s.Replicas, s.ReadyReplicas = new(int32(c.Replicas)), new(int32(c.Ready))
	s.AvailableReplicas, s.UpToDateReplicas = new(int32(c.Available)), new(int32(c.Updated))
	s.Versions, s.Phase = capiset.Versions(f.Members), phase(f)
	s.ObservedGeneration = f.Deployment.Generation
	s.Selector = capi.SelectorText(&f.Deployment.Spec.Selector)
	var conditions []capi.Condition
	for _, c := range want.Conditions {
		conditions = append(conditions, capi.Condition{
			Condition: scale.Condition{
				Type:    c.Type,
				Status:  scale.Answer(c.Status),
				Reason:  c.Reason,
				Message: c.Message,
			},
			Since: c.Updated,
		})
	}
	s.Conditions = capi.SetConditions(
		s.Conditions,
		written,
		append(conditions, capi.SaysBlocked(blocked)...),
		f.Deployment.Generation,
		now,
	)
}

// phase returns the phase of a deployment. Source: Cluster API.
func phase(f Tree) string {
	d, there := f.Deployment, len(f.Members)
	phase := clusterv1.MachineDeploymentPhaseRunning
	switch wanted := int(capi.Value(d.Spec.Replicas)); {
	case d.Spec.Replicas == nil:
		phase = clusterv1.MachineDeploymentPhaseUnknown
	case d.DeletionTimestamp != nil || wanted < there:
		phase = clusterv1.MachineDeploymentPhaseScalingDown
	case wanted > there:
		phase = clusterv1.MachineDeploymentPhaseScalingUp
	}
	return string(phase)
}

// Said reports whether the status of a deployment shows what blocks it, and the versions and phase of its machines.
func Said(f Tree, blocked explain.Summary) bool {
	s := &f.Deployment.Status
	c := capi.ConditionOf(s.Conditions, vocabulary.ConditionBlocked)
	return c.Reason == blocked.Reason && c.Message == blocked.Message && s.Phase == phase(f) &&
		equality.Semantic.DeepEqual(s.Versions, capiset.Versions(f.Members))
}

// Timeless returns a status without the time of its last progress, which is not worth a write: any progress changes
// another field.
func Timeless(s clusterv1.MachineDeploymentStatus) clusterv1.MachineDeploymentStatus {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if s.Conditions[i].Type == vocabulary.ConditionProgressing {
			s.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return s
}

// Recorded returns the record of the rollout; nil when there is none, or it cannot be read.
func Recorded(d *clusterv1.MachineDeployment) *v1alpha1.RolloutStatus {
	return inAnnotation[v1alpha1.RolloutStatus](d, v1alpha1.AnnotationRolloutProgress)
}

// Operation returns the operation that a deployment names; nil when it names none.
func Operation(d *clusterv1.MachineDeployment) *v1alpha1.Operation {
	return inAnnotation[v1alpha1.Operation](d, v1alpha1.AnnotationOperation)
}

// Moves returns the operation that a deployment names, with what blocks it; nil: it names none, and nothing blocks it.
// The condition Blocked has the whole sentence.
func Moves(d *clusterv1.MachineDeployment) *v1alpha1.Operation {
	o := Operation(d)
	if c := capi.ConditionOf(d.Status.Conditions, vocabulary.ConditionBlocked); c.Status == metav1.ConditionTrue {
		if o == nil {
			o = &v1alpha1.Operation{}
		}
		if o.WaitsFor = c.Message; len(o.BlockedBy) == 0 {
			o.BlockedBy, o.Since = []string{c.Reason}, c.LastTransitionTime
		}
	}
	return o
}

// Named returns the workflow ID of the rollout that a deployment names as its current operation. It is empty when it
// names none, or the rollout of another object: a moved object brings the annotations of its predecessor.
func Named(d *clusterv1.MachineDeployment) string {
	if o := Operation(d); o != nil && o.RolloutOf == d.UID {
		return o.WorkflowID
	}
	return ""
}

func inAnnotation[T any](d *clusterv1.MachineDeployment, key string) *T {
	value := new(T)
	if text := d.Annotations[key]; text == "" || json.Unmarshal([]byte(text), value) != nil {
		return nil
	}
	return value
}

// longestSentence bounds the sentence in the annotation of an operation, in bytes. The condition Blocked has all of it.
const longestSentence = 600

// Notes returns the annotations that hold a record of a rollout and an operation: a merge patch of
// metadata.annotations, in which nil removes one. A nil record keeps the present one.
func Notes(record *v1alpha1.RolloutStatus, operation *v1alpha1.Operation) map[string]any {
	notes := map[string]any{v1alpha1.AnnotationOperation: nil}
	if operation != nil {
		o := *operation
		o.WaitsFor = phrase.Cut(o.WaitsFor, longestSentence)
		notes[v1alpha1.AnnotationOperation] = encoded(o)
	}
	if record != nil {
		notes[v1alpha1.AnnotationRolloutProgress] = encoded(record)
	}
	return notes
}

func encoded(value any) string {
	text, _ := json.Marshal(value) // plain structs, texts and times never fail
	return string(text)
}

// News returns the notes that would change the annotations of a deployment.
func News(d *clusterv1.MachineDeployment, notes map[string]any) map[string]any {
	news := map[string]any{}
	for key, value := range notes {
		is, there := d.Annotations[key]
		if value == nil && there || value != nil && value != is {
			news[key] = value
		}
	}
	return news
}

// Forget removes what a deployment says about workflows and rollouts of Millwright.
func Forget(d *clusterv1.MachineDeployment) {
	delete(d.Annotations, v1alpha1.AnnotationOperation)
	delete(d.Annotations, v1alpha1.AnnotationRolloutProgress)
}
