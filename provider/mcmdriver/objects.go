package mcmdriver

import (
	"bytes"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/provider"
)

// classKind is the kind of all machine classes in MCM.
const classKind = "MachineClass"

// newMCMClass returns a new MachineClass for a request, with the fields that drivers read. Every request needs new
// objects, because a driver may modify its objects.
func newMCMClass(class provider.Class) *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		ObjectMeta:   metav1.ObjectMeta{Namespace: class.Namespace, Name: class.Name},
		Provider:     class.Provider,
		ProviderSpec: runtime.RawExtension{Raw: bytes.Clone(class.Spec)},
	}
}

// newMCMMachine returns a new Machine for a request.
func newMCMMachine(class provider.Class, m provider.Machine) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: types.UID(m.UID)},
	}
	machine.Spec.Class = v1alpha1.ClassSpec{Kind: classKind, Name: class.Name}
	machine.Spec.ProviderID = m.ProviderID
	machine.Spec.NodeTemplateSpec.Annotations = m.NodeAnnotations
	machine.Status.LastKnownState = m.LastKnownState
	return machine
}

// newMCMSecret returns a new Secret for a request. As in MCM, the Secret has data and no name.
func newMCMSecret(class provider.Class) *corev1.Secret {
	secret := &corev1.Secret{Data: make(map[string][]byte, len(class.Secret))}
	for key, value := range class.Secret {
		secret.Data[key] = bytes.Clone(value)
	}
	return secret
}
