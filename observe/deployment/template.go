package deployment

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// annotationsNotCopied lists the annotations of a deployment that its sets do not get, because these annotations
// concern the deployment's own object, size or rollout. Source: MCM's list, and Millwright's own annotations.
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
	v1alpha1.AnnotationAutomaticRollbackTo,
}

// FollowDeployment copies from a deployment to a set the fields that change existing machines in place or concern only
// the set. FollowDeployment reports whether any field differed. Other annotations of the set stay.
func FollowDeployment(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) (changed bool) {
	for key, value := range d.Annotations {
		if was, there := set.Annotations[key]; slices.Contains(annotationsNotCopied, key) || there && was == value {
			continue
		}
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, key, value)
		changed = true
	}
	before := set.Spec.DeepCopy()
	to, from := &set.Spec, &d.Spec
	to.MinReadySeconds, to.AutoPreserveFailedMachineMax = from.MinReadySeconds, from.AutoPreserveFailedMachineMax
	to.Template.Spec.NodeTemplateSpec = *from.Template.Spec.NodeTemplateSpec.DeepCopy()
	to.Template.Spec.MachineConfiguration = from.Template.Spec.MachineConfiguration.DeepCopy()
	to.Template.Spec.Class.Kind = from.Template.Spec.Class.Kind
	return changed || !equality.Semantic.DeepEqual(before, to)
}

// annotationsNotReturned lists further annotations of a set that a rollback does not restore: the time of the last
// scaling is not part of a revision, and the effective creation timeout was measured for the set alone.
var annotationsNotReturned = []string{v1alpha1.AnnotationLastScalerChange, v1alpha1.AnnotationEffectiveCreationTimeout}

// ReturnToSet gives a deployment the template of one of its sets and the annotations of that set. Source: MCM. The
// template includes the set's last node template and timeouts, but not the hash label. ReturnToSet removes annotations
// that the deployment got later, except annotations about its own object, size or rollout. ReturnToSet sets the
// annotation that records an automatic rollback if automatic is true, and removes the annotation otherwise.
func ReturnToSet(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet, automatic bool) {
	d.Spec.Template = *set.Spec.Template.DeepCopy()
	delete(d.Spec.Template.Labels, v1alpha1.LabelMachineTemplateHash)
	stays := func(key string) bool {
		return slices.Contains(annotationsNotCopied, key) || slices.Contains(annotationsNotReturned, key)
	}
	maps.DeleteFunc(
		d.Annotations,
		func(key, _ string) bool { return !stays(key) || key == v1alpha1.AnnotationAutomaticRollbackTo },
	)
	for key, value := range set.Annotations {
		if !stays(key) {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value)
		}
	}
	if automatic {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationAutomaticRollbackTo, string(set.UID))
	}
}
