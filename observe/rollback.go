package observe

import (
	"slices"

	"millwright/api/v1alpha1"
)

// notReturned are annotations of a set that a rollback does not bring back, beside those that sets do not get: the time of the last
// change of the size, which is no part of a revision, and what was measured for the set alone.
var notReturned = []string{v1alpha1.AnnotationLastScalerChange, v1alpha1.AnnotationEffectiveCreationTimeout}

// ReturnTo gives a deployment the template of one of its sets and the annotations that went with it. Source: MCM. The template
// comes as a whole but for the hash label, so with the node template and the timeouts that the set had last. Annotations that the
// deployment got since go, unless they speak of its own object, size or rollout.
func ReturnTo(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) {
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
	d.Annotations = annotations
}
