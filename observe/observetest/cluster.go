// Package observetest builds objects and fake clusters for the tests of observe.
package observetest

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

func ObjectNames[T metav1.Object](objects []T) []string {
	result := []string{}
	for _, o := range objects {
		result = append(result, o.GetName())
	}
	slices.Sort(result)
	return result
}

func WithAppLabel(app string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Labels = map[string]string{"app": app} }
}

func WithOwnerSet(owner metav1.Object) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.OwnerReferences = ControllerReferences(owner, "MachineSet") }
}
