package activitiestest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/class"
	"millwright/api/v1alpha1"
)

// NewSecretMetadata is the metadata of a Secret.
func NewSecretMetadata(name string, finalizers ...string) *metav1.PartialObjectMetadata {
	s := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: defaultMetadata(name),
	}
	s.Finalizers = finalizers
	return s
}

func (w *World) Class(name string) *v1alpha1.MachineClass {
	return ReadStoredObject[v1alpha1.MachineClass](w.MachineClient.Tracker(), "machineclasses", TestNamespace, name)
}

// SecretMetadata returns the current metadata of a Secret from the API server; nil if the Secret is gone.
func (w *World) SecretMetadata(name string) *metav1.PartialObjectMetadata {
	object, err := w.MetadataClient.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), TestNamespace, name)
	if err != nil {
		return nil
	}
	return object.(*metav1.PartialObjectMetadata)
}

func WithSecretRefs(secrets ...string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.SecretRef = NewSecretRef("", secrets[0])
		if len(secrets) > 1 {
			c.CredentialsSecretRef = NewSecretRef(TestNamespace, secrets[1])
		}
	}
}

func NewSecretTarget(name string, finalizers ...string) class.SecretTarget {
	return class.SecretTarget{
		Name:       name,
		UID:        "uid-" + name,
		Version:    "900",
		Finalizers: append([]string{}, finalizers...),
	}
}
