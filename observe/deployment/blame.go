package deployment

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// isReplacementRequested reports whether a person requested the replacement or the deletion of a machine. The status of
// the deployment records each replacement that the deployment granted, and whether a person requested it.
func isReplacementRequested(d *v1alpha1.MachineDeployment, m *v1alpha1.Machine) bool {
	granted := slices.ContainsFunc(
		d.Status.Replacements,
		func(r v1alpha1.MachineReplacement) bool {
			return r.UID == m.UID && r.Reason != vocabulary.ReasonGrantedByPerson
		},
	)
	_, chosen := m.Annotations[v1alpha1.AnnotationDeleteMachine]
	_, urgent := m.Annotations[v1alpha1.AnnotationRemediateMachine]
	return machine.IsReplacementGranted(m) && !granted || chosen || urgent
}

// creationDenialsByCode maps the provider's codes, which are the reasons of the condition InstanceReady, to denials.
var creationDenialsByCode = map[string]rollout.DenialReason{
	"ResourceExhausted": rollout.DeniedByQuota,
	"Unauthenticated":   rollout.DeniedByCredentials,
	"PermissionDenied":  rollout.DeniedByCredentials,
	"Unavailable":       rollout.DeniedByNetwork,
	"DeadlineExceeded":  rollout.DeniedByNetwork,
}

// creationDenial returns why the cloud has not created the instance of a machine; empty if the instance exists or
// existed, or if the machine or its class is invalid. A machine without the condition InstanceReady waits for its
// bootstrap token, which Millwright creates in the target cluster.
func (f ObjectTree) creationDenial(m *v1alpha1.Machine) rollout.DenialReason {
	class := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineClassReady)
	instance := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineInstanceReady)
	switch {
	case m.Spec.ProviderID != "" || machine.IsJoinRecorded(m):
		return ""
	case class != nil && class.Status == corev1.ConditionFalse:
		return creationDenialForUnusableClass(class.Reason)
	case instance == nil:
		return rollout.DeniedByNetwork
	case instance.Reason == v1alpha1.ReasonCreating && f.hasNoProviderWorker(m):
		return rollout.DeniedByWorker
	case instance.Reason == v1alpha1.ReasonCreating:
		return rollout.DeniedByNetwork // the provider has not answered the create call
	default:
		return creationDenialsByCode[instance.Reason]
	}
}

// creationDenialForUnusableClass returns the denial for a class that cannot be used; empty if the class itself is
// missing or invalid.
func creationDenialForUnusableClass(reason string) rollout.DenialReason {
	switch reason {
	case v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonSecretNotAllowed:
		return rollout.DeniedBySecret
	case v1alpha1.ReasonSecretInvalid: // the reason concerns the Secret with the user data
		return rollout.DeniedByTemplate
	default:
		return ""
	}
}

// lookUpClass returns the class of a machine; nil if it does not exist or is unknown.
func (f ObjectTree) lookUpClass(m *v1alpha1.Machine) *v1alpha1.MachineClass {
	if f.ClassOfMachine == nil {
		return nil
	}
	return f.ClassOfMachine(m)
}

// missingClassName names the class of a set if it does not exist; empty if it exists or if classes are unknown.
func (f ObjectTree) missingClassName(set *v1alpha1.MachineSet) string {
	class := set.Spec.Template.Spec.Class.Name
	if f.ClassOfMachine == nil || f.classOfSet(set) != nil {
		return ""
	}
	return "MachineClass " + set.Namespace + "/" + class
}

// classOfSet returns the class of a set's machines; nil if it does not exist or is unknown.
func (f ObjectTree) classOfSet(set *v1alpha1.MachineSet) *v1alpha1.MachineClass {
	return f.lookUpClass(&v1alpha1.Machine{ObjectMeta: set.ObjectMeta, Spec: set.Spec.Template.Spec})
}

// hasNoProviderWorker reports whether no worker serves the provider of a machine's class.
func (f ObjectTree) hasNoProviderWorker(m *v1alpha1.Machine) bool {
	class := f.lookUpClass(m)
	return class != nil && meta.IsStatusConditionFalse(class.Status.Conditions, vocabulary.ConditionServed)
}

// sourceOfSet returns the provider, account, Secret and instance type of a set's machines; zero if the class does not
// exist. If one Secret contains both the user data and the credentials, the account is unknown, because each class may
// have its own Secret.
func (f ObjectTree) sourceOfSet(set *v1alpha1.MachineSet) rollout.InstanceSource {
	class := f.classOfSet(set)
	if class == nil {
		return rollout.InstanceSource{}
	}
	source := rollout.InstanceSource{
		Provider: strings.ToLower(class.Provider),
		Account:  secretKey(class, class.CredentialsSecretRef),
		Object:   secretKey(class, class.SecretRef),
	}
	if node := class.NodeTemplate; node != nil && node.InstanceType != "" {
		source.InstanceType = node.Region + "/" + node.Zone + "/" + node.InstanceType
	}
	return source
}

// secretKey returns the namespace and the name of a Secret of a class; empty without a reference.
func secretKey(class *v1alpha1.MachineClass, ref *corev1.SecretReference) string {
	if ref == nil {
		return ""
	}
	return cmp.Or(ref.Namespace, class.Namespace) + "/" + ref.Name
}
