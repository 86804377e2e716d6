package rollout

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
)

// errNotInFile is the error of a file that lacks the deployment.
var errNotInFile = errors.New("no MachineDeployment")

// readSpec reads a new spec of a deployment from a file, which may hold other objects, too. The file must have one
// MachineDeployment of that name, in that namespace or without one. An unknown field is an error. Replicas that are left out
// keep the present value, because then something else sets them.
func readSpec(file string, d *v1alpha1.MachineDeployment) (*v1alpha1.MachineDeploymentSpec, error) {
	documents, err := kubecli.ReadDocuments(file)
	if err != nil {
		return nil, err
	}
	var found *v1alpha1.MachineDeploymentSpec
	for _, document := range documents {
		spec, err := specIn(document, d)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", file, err)
		case spec != nil && found != nil:
			return nil, fmt.Errorf("%s holds MachineDeployment %s twice", file, kubecli.KeyOf(d))
		case spec != nil:
			found = spec
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s holds %w %s", file, errNotInFile, kubecli.KeyOf(d))
	}
	return found, nil
}

// readPolicies returns the RolloutPolicies of a namespace in a file. A policy without a namespace counts. An unknown field is an error.
func readPolicies(file, namespace string) ([]*v1alpha1.RolloutPolicy, error) {
	documents, err := kubecli.ReadDocuments(file)
	if err != nil {
		return nil, err
	}
	var policies []*v1alpha1.RolloutPolicy
	for _, document := range documents {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(document, &head); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		other := head.GroupVersionKind().Group != v1alpha1.SchemeGroupVersion.Group || head.Kind != "RolloutPolicy"
		if other || head.Namespace != "" && head.Namespace != namespace {
			continue
		}
		policy := &v1alpha1.RolloutPolicy{}
		if err := yaml.UnmarshalStrict(document, policy); err != nil {
			return nil, fmt.Errorf("read RolloutPolicy %s in %s: %w", head.Name, file, err)
		}
		policies = append(policies, policy)
	}
	return policies, nil
}

// specIn returns the spec that a document has for the deployment; nil if it is another object.
func specIn(document []byte, d *v1alpha1.MachineDeployment) (*v1alpha1.MachineDeploymentSpec, error) {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		return nil, err
	}
	ours := object.GroupVersionKind().Group == v1alpha1.SchemeGroupVersion.Group && object.GetKind() == "MachineDeployment"
	if !ours || object.GetName() != d.Name || object.GetNamespace() != "" && object.GetNamespace() != d.Namespace {
		return nil, nil
	}
	var as v1alpha1.MachineDeployment
	if err := yaml.UnmarshalStrict(document, &as); err != nil {
		return nil, err
	}
	if _, given, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "replicas"); !given {
		as.Spec.Replicas = d.Spec.Replicas
	}
	return &as.Spec, nil
}
