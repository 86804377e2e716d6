package deployment

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// annotationsNotCopied lists the annotations of a deployment that are not copied to its sets, because they describe the
// deployment itself, its size or its rollout. The list contains MCM's list and Millwright's own annotations.
var annotationsNotCopied = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	v1alpha1.AnnotationRevision,
	v1alpha1.AnnotationRevisionHistory,
	v1alpha1.AnnotationDesiredReplicas,
	v1alpha1.AnnotationMaxReplicas,
	v1alpha1.AnnotationPreferNoSchedule,
	v1alpha1.AnnotationUnfreeze,
	v1alpha1.AnnotationTriggerDeletion,
	v1alpha1.AnnotationPaused,
	v1alpha1.AnnotationRolloutHold,
	v1alpha1.AnnotationRolloutApprove,
	v1alpha1.AnnotationLastRequest,
	v1alpha1.AnnotationRolloutPausedBy,
	v1alpha1.AnnotationRolloutRetry,
	v1alpha1.AnnotationRolloutPin,
	v1alpha1.AnnotationRolloutUndoBy,
}

// CopyDeploymentFields copies from a deployment to a set the fields that change existing machines in place or concern
// only the set. CopyDeploymentFields reports whether any field differed. CopyDeploymentFields keeps other annotations
// of the set.
func CopyDeploymentFields(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) (changed bool) {
	for key, value := range d.Annotations {
		if was, there := set.Annotations[key]; slices.Contains(annotationsNotCopied, key) || there && was == value {
			continue
		}
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, key, value)
		changed = true
	}
	changed = RecordFailedRolloutOnSet(set, d.Status.Rollout) || changed
	before := set.Spec.DeepCopy()
	to, from := &set.Spec, &d.Spec
	to.MinReadySeconds, to.AutoPreserveFailedMachineMax = from.MinReadySeconds, from.AutoPreserveFailedMachineMax
	to.Template.Spec.NodeTemplateSpec = *from.Template.Spec.NodeTemplateSpec.DeepCopy()
	to.Template.Spec.MachineConfiguration = from.Template.Spec.MachineConfiguration.DeepCopy()
	to.Template.Spec.Class.Kind = from.Template.Spec.Class.Kind
	return changed || !equality.Semantic.DeepEqual(before, to)
}

// RecordFailedRolloutOnSet records on the set of the deployment's template that a pin replaces the set, and reports
// whether the annotation differed. The annotation stays after the pin, until a rollout of the set's revision is
// complete.
func RecordFailedRolloutOnSet(set metav1.Object, r *v1alpha1.RolloutStatus) (changed bool) {
	pin, annotations := RecordedProgress(r).Pin, set.GetAnnotations()
	was, want := annotations[v1alpha1.AnnotationRolloutFailed], ""
	switch {
	case pin != nil && r.Set == set.GetName():
		want = pin.SentenceWithoutTime(r.Revision) + " since " + pin.Since.UTC().Format(time.RFC3339)
	case r == nil || r.LastGoodSet != set.GetName():
		return false
	}
	if was == want {
		return false
	}
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[v1alpha1.AnnotationRolloutFailed] = want; want == "" {
		delete(annotations, v1alpha1.AnnotationRolloutFailed)
	}
	set.SetAnnotations(annotations)
	return true
}

// annotationsNotRestored lists further annotations of a set that a rollback does not restore: the time of the last
// scaling is not part of a revision; the effective creation timeout and the failure concern the set alone.
var annotationsNotRestored = []string{
	v1alpha1.AnnotationLastScalerChange, v1alpha1.AnnotationEffectiveCreationTimeout, v1alpha1.AnnotationRolloutFailed,
}

// RestoreTemplateFromSet copies the template and the annotations of a former set to its deployment. Source: MCM. The
// template includes the set's last node template and timeouts, but not the hash label. RestoreTemplateFromSet removes
// annotations that the deployment got later, except annotations about the deployment itself, its size or its rollout.
func RestoreTemplateFromSet(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) {
	d.Spec.Template = *set.Spec.Template.DeepCopy()
	delete(d.Spec.Template.Labels, v1alpha1.LabelMachineTemplateHash)
	stays := func(key string) bool {
		return slices.Contains(annotationsNotCopied, key) || slices.Contains(annotationsNotRestored, key)
	}
	maps.DeleteFunc(d.Annotations, func(key, _ string) bool { return !stays(key) })
	for key, value := range set.Annotations {
		if !stays(key) {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value)
		}
	}
}
