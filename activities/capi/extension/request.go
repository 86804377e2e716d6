package extension

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// newCanUpdateRequest returns the request about two sets, with the settings of the ExtensionConfig.
func newCanUpdateRequest(
	former, current SetWithTemplates,
	settings map[string]string,
) (r hooksv1.CanUpdateMachineSetRequest, err error) {
	r.SetGroupVersionKind(hooksv1.GroupVersion.WithKind(hookName + "Request"))
	r.Settings = settings
	if r.Current, err = newRequestObjects(former); err != nil {
		return r, err
	}
	r.Desired, err = newRequestObjects(current)
	return r, err
}

// newRequestObjects returns the parts of a set and its templates that an extension receives: kind, name, namespace,
// labels, annotations and spec.
func newRequestObjects(o SetWithTemplates) (s hooksv1.CanUpdateMachineSetRequestObjects, err error) {
	s.MachineSet = clusterv1.MachineSet{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Set.Name, Namespace: o.Set.Namespace, Labels: o.Set.Labels, Annotations: o.Set.Annotations,
		},
		Spec: *o.Set.Spec.DeepCopy(),
	}
	if s.InfrastructureMachineTemplate, err = newRequestTemplate(o.Infrastructure); err != nil {
		return s, err
	}
	if o.Bootstrap != nil {
		s.BootstrapConfigTemplate, err = newRequestTemplate(o.Bootstrap)
	}
	return s, err
}

func newRequestTemplate(o *unstructured.Unstructured) (runtime.RawExtension, error) {
	s := &unstructured.Unstructured{Object: map[string]any{}}
	if spec, found := o.Object["spec"]; found {
		s.Object["spec"] = spec
	}
	s.SetAPIVersion(o.GetAPIVersion())
	s.SetKind(o.GetKind())
	s.SetName(o.GetName())
	s.SetNamespace(o.GetNamespace())
	s.SetLabels(o.GetLabels())
	s.SetAnnotations(o.GetAnnotations())
	raw, err := json.Marshal(s)
	if err != nil {
		// the original error may quote a value
		return runtime.RawExtension{}, fmt.Errorf("%s %s cannot be written as JSON", o.GetKind(), o.GetName())
	}
	return runtime.RawExtension{Raw: raw}, nil
}
