package deployment

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// notCopied are the annotations of a deployment that its sets do not get: those that say something about the deployment's own
// object, size or rollout. Source: MCM's list, and ours.
var notCopied = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	v1alpha1.AnnotationRevision, v1alpha1.AnnotationRevisionHistory,
	v1alpha1.AnnotationDesiredReplicas, v1alpha1.AnnotationMaxReplicas,
	v1alpha1.AnnotationPreferNoSchedule, v1alpha1.AnnotationUnfreeze, v1alpha1.AnnotationTriggerDeletion,
	v1alpha1.AnnotationPaused, v1alpha1.AnnotationRolloutHold, v1alpha1.AnnotationRolloutApprove, v1alpha1.AnnotationLastRequest,
	v1alpha1.AnnotationAutomaticRollbackTo,
}

// FollowDeployment makes a set follow its deployment in what changes live machines in place, or concerns the set alone, and
// reports whether anything differed. Annotations that others gave the set stay.
func FollowDeployment(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) (changed bool) {
	for key, value := range d.Annotations {
		if was, there := set.Annotations[key]; slices.Contains(notCopied, key) || there && was == value {
			continue
		}
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, key, value)
		changed = true
	}
	before := set.Spec.DeepCopy()
	to, from := &set.Spec, &d.Spec
	to.MinReadySeconds, to.AutoPreserveFailedMachineMax = from.MinReadySeconds, from.AutoPreserveFailedMachineMax
	to.DeletionOrder, to.Remediation = from.DeletionOrder, from.Remediation.DeepCopy()
	to.Template.Spec.NodeTemplateSpec = *from.Template.Spec.NodeTemplateSpec.DeepCopy()
	to.Template.Spec.MachineConfiguration = from.Template.Spec.MachineConfiguration.DeepCopy()
	to.Template.Spec.Class.Kind = from.Template.Spec.Class.Kind
	return changed || !equality.Semantic.DeepEqual(before, to)
}

// notReturned are annotations of a set that a rollback does not bring back, beside those that sets do not get: the time of the last
// change of the size, which is no part of a revision, and what was measured for the set alone.
var notReturned = []string{v1alpha1.AnnotationLastScalerChange, v1alpha1.AnnotationEffectiveCreationTimeout}

// ReturnTo gives a deployment the template of one of its sets and the annotations that went with it. Source: MCM. The template
// comes as a whole but for the hash label, so with the node template and the timeouts that the set had last. Annotations that the
// deployment got since go, unless they speak of its own object, size or rollout. Where that is automatic, the annotation that says so is
// part of it; otherwise that annotation goes.
func ReturnTo(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet, automatic bool) {
	d.Spec.Template = *set.Spec.Template.DeepCopy()
	delete(d.Spec.Template.Labels, v1alpha1.LabelMachineTemplateHash)
	stays := func(key string) bool { return slices.Contains(notCopied, key) || slices.Contains(notReturned, key) }
	annotations := map[string]string{}
	for key, value := range d.Annotations {
		if stays(key) {
			annotations[key] = value
		}
	}
	for key, value := range set.Annotations {
		if !stays(key) {
			annotations[key] = value
		}
	}
	delete(annotations, v1alpha1.AnnotationAutomaticRollbackTo)
	if automatic {
		annotations[v1alpha1.AnnotationAutomaticRollbackTo] = string(set.UID)
	}
	d.Annotations = annotations
}
