package rollout

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
)

// errNoDeploymentInFile means that a file does not contain the deployment.
var errNoDeploymentInFile = errors.New("no MachineDeployment")

// readDeployment reads a changed deployment from a file that may also have other objects. The file must have exactly
// one MachineDeployment with the deployment's name and API version, in the deployment's namespace or without a
// namespace. An unknown field in the file is an error. The result sized is true if the file sets spec.replicas.
func readDeployment[D any, P interface {
	*D
	metav1.Object
}](file string, of P, api schema.GroupVersion,
) (found P, sized bool, err error) {
	documents, err := kubecli.ReadDocuments(file)
	if err != nil {
		return nil, false, err
	}
	for _, document := range documents {
		read, withSize, err := deploymentInDocument[D, P](document, of, api)
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("read %s: %w", file, err)
		case read != nil && found != nil:
			return nil, false, fmt.Errorf("%s holds MachineDeployment %s twice", file, kubecli.KeyOfObject(of))
		case read != nil:
			found, sized = read, withSize
		}
	}
	if found == nil {
		return nil, false, fmt.Errorf("%s holds %w %s", file, errNoDeploymentInFile, kubecli.KeyOfObject(of))
	}
	return found, sized, nil
}

// readPolicies returns the RolloutPolicies in a file that are in the namespace or have no namespace. An unknown field
// in a policy is an error.
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

// deploymentInDocument returns the deployment if the YAML document has it, with the checks of readDeployment; nil if
// the document has another object.
func deploymentInDocument[D any, P interface {
	*D
	metav1.Object
}](document []byte, of P, api schema.GroupVersion,
) (found P, sized bool, err error) {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		return nil, false, err
	}
	kind := object.GroupVersionKind()
	if kind.Group != api.Group || kind.Kind != "MachineDeployment" || object.GetName() != of.GetName() ||
		object.GetNamespace() != "" && object.GetNamespace() != of.GetNamespace() {
		return nil, false, nil
	}
	if kind.Version != api.Version {
		return nil, false, fmt.Errorf(
			"MachineDeployment %s has version %s: give it as %s",
			object.GetName(),
			kind.Version,
			api,
		)
	}
	found = new(D)
	if err := yaml.UnmarshalStrict(document, found); err != nil {
		return nil, false, err
	}
	_, sized, _ = unstructured.NestedFieldNoCopy(object.Object, "spec", "replicas")
	return found, sized, nil
}
