package deployment

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// isReplacedByPerson reports whether a person requested the replacement or the deletion of a machine. A replacement
// that the deployment granted is recorded in the status of the deployment.
func isReplacedByPerson(d *v1alpha1.MachineDeployment, m *v1alpha1.Machine) bool {
	granted := slices.ContainsFunc(
		d.Status.Replacements,
		func(r v1alpha1.MachineReplacement) bool { return r.UID == m.UID },
	)
	_, chosen := m.Annotations[v1alpha1.AnnotationDeleteMachine]
	_, urgent := m.Annotations[v1alpha1.AnnotationRemediateMachine]
	return machine.IsReplacementGranted(m) && !granted || chosen || urgent
}

// denials maps the provider's codes, which are the reasons of the condition InstanceReady, to denials.
var denials = map[string]rollout.Denial{
	"ResourceExhausted": rollout.DeniedByQuota,
	"Unauthenticated":   rollout.DeniedByCredentials,
	"PermissionDenied":  rollout.DeniedByCredentials,
	"Unavailable":       rollout.DeniedByNetwork,
	"DeadlineExceeded":  rollout.DeniedByNetwork,
}

// denialOf returns why the cloud has never made the instance of a machine; empty if the instance exists or existed, or
// if the machine or its class is invalid.
func (f ObjectTree) denialOf(m *v1alpha1.Machine) rollout.Denial {
	instance := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineInstanceReady)
	switch {
	case m.Spec.ProviderID != "" || machine.IsJoinRecorded(m) || instance == nil:
		return ""
	case !cache.IsConditionTrue(m.Status.Conditions, v1alpha1.MachineClassReady):
		return ""
	case instance.Reason == v1alpha1.ReasonCreating && f.isUnserved(m):
		return rollout.DeniedByCredentials // every class of this provider waits for a worker
	case instance.Reason == v1alpha1.ReasonCreating:
		return rollout.DeniedByNetwork // the create call has no answer
	default:
		return denials[instance.Reason]
	}
}

// isUnserved reports whether no worker serves the provider of a machine's class.
func (f ObjectTree) isUnserved(m *v1alpha1.Machine) bool {
	if f.ClassOfMachine == nil {
		return false
	}
	class := f.ClassOfMachine(m)
	return class != nil && meta.IsStatusConditionFalse(class.Status.Conditions, vocabulary.ConditionServed)
}

// sourceOf returns the account and the instance type of a set's machines; zero if the class does not exist.
func (f ObjectTree) sourceOf(set *v1alpha1.MachineSet) rollout.Source {
	if f.ClassOfMachine == nil {
		return rollout.Source{}
	}
	m := &v1alpha1.Machine{ObjectMeta: set.ObjectMeta, Spec: set.Spec.Template.Spec}
	class := f.ClassOfMachine(m)
	if class == nil {
		return rollout.Source{}
	}
	name := func(ref *corev1.SecretReference) string {
		if ref == nil {
			return ""
		}
		return ref.Namespace + "/" + ref.Name
	}
	source := rollout.Source{
		Account: class.Provider + " " + cmp.Or(name(class.CredentialsSecretRef), name(class.SecretRef)),
		Type:    "class " + class.Name,
	}
	if class.NodeTemplate != nil && class.NodeTemplate.InstanceType != "" {
		source.Type = class.NodeTemplate.Region + "/" + class.NodeTemplate.Zone + "/" + class.NodeTemplate.InstanceType
	}
	return source
}
