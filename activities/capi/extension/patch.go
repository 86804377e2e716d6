package extension

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// maxPatchedObjectBytes limits the size of an object during a patch, because each copy operation can double the size.
// Source: the API server accepts requests of at most 3 MiB.
const maxPatchedObjectBytes = 3 << 20

// patchablePath is the only part of an object that a patch can change.
func patchablePath() []string { return []string{"spec", "template", "spec"} }

// templateSpec is spec.template.spec of an object.
type templateSpec struct {
	value any
	found bool
}

// templateSpecOf returns spec.template.spec of an object.
func templateSpecOf(object []byte) (s templateSpec, err error) {
	o := map[string]any{}
	if utiljson.Unmarshal(object, &o) != nil {
		return s, errors.New("it is no object")
	}
	if s.value, s.found, err = unstructured.NestedFieldNoCopy(o, patchablePath()...); err != nil {
		return s, errors.New("spec or spec.template is no object") // the original error quotes the value
	}
	return s, nil
}

// patchedTemplateSpec returns spec.template.spec of an object after a patch. Changes outside spec.template.spec, and
// the removal of spec.template.spec, are ignored. Errors contain no part of the object or the patch.
func patchedTemplateSpec(object []byte, patch hooksv1.Patch) (templateSpec, error) {
	before, err := templateSpecOf(object)
	if err != nil || !patch.IsDefined() {
		return before, err
	}
	after, err := applyPatch(object, patch)
	if err != nil {
		return templateSpec{}, err
	}
	o := map[string]any{}
	if utiljson.Unmarshal(after, &o) != nil {
		return templateSpec{}, errors.New("the result of the patch is no object")
	}
	// NestedFieldNoCopy fails if the field is missing
	if value, found, _ := unstructured.NestedFieldNoCopy(o, patchablePath()...); found {
		return templateSpec{value, true}, nil
	}
	return before, nil
}

func applyPatch(object []byte, patch hooksv1.Patch) ([]byte, error) {
	switch patch.PatchType {
	case hooksv1.JSONPatchType:
		return applyOperations(object, patch.Patch)
	case hooksv1.JSONMergePatchType:
		if len(patch.Patch) == 0 {
			return object, nil
		}
		after, err := jsonpatch.MergePatch(object, patch.Patch)
		if err != nil {
			return nil, errors.New("the JSON merge patch is not valid")
		}
		return after, nil
	case "":
		return nil, errors.New("the patch has no patchType")
	default:
		return nil, fmt.Errorf("the patchType is neither %s nor %s", hooksv1.JSONPatchType, hooksv1.JSONMergePatchType)
	}
}

// applyOperations applies the operations of a JSON patch one by one, so that its error can name the failed operation.
func applyOperations(object, patch []byte) (after []byte, err error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, errors.New("the JSON patch is no list of operations")
	}
	for i, operation := range operations {
		if object, err = applyOperation(object, operation); err != nil {
			return nil, fmt.Errorf("operation %d of the JSON patch does not apply: %w", i+1, err)
		}
		if len(object) > maxPatchedObjectBytes {
			return nil, fmt.Errorf(
				"operation %d of the JSON patch makes the object larger than %d bytes",
				i+1,
				maxPatchedObjectBytes,
			)
		}
	}
	return object, nil
}

// applyOperation applies one operation. The library panics on some operations, such as a test of a list that contains
// null.
func applyOperation(object []byte, operation jsonpatch.Operation) (after []byte, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("it is not valid")
		}
	}()
	checked, err := newStrictPatch(operation)
	if err == nil {
		after, err = checked.Apply(object)
	}
	switch {
	case err == nil:
		return after, nil
	case errors.Is(err, jsonpatch.ErrTestFailed):
		return nil, errors.New("its test fails")
	case errors.Is(err, jsonpatch.ErrMissing), errors.Is(err, jsonpatch.ErrInvalidIndex):
		return nil, errors.New("the object has no such field")
	default:
		return nil, errors.New("it is not valid")
	}
}

// newStrictPatch makes the library as strict as RFC 6902 and Cluster API. An operation without its required value is
// refused, because the library reads a missing value as null. The library replaces or copies fields that do not exist.
// So before an operation that needs an existing field, newStrictPatch inserts a move of the field to itself, which
// fails if the field is missing.
func newStrictPatch(operation jsonpatch.Operation) (jsonpatch.Patch, error) {
	var needed *json.RawMessage // the path of a field that must exist
	switch operation.Kind() {
	case "add", "replace":
		if _, has := operation["value"]; !has {
			return nil, jsonpatch.ErrInvalid
		}
		if operation.Kind() == "replace" {
			needed = operation["path"]
		}
	case "copy":
		needed = operation["from"]
	}
	if needed == nil || string(*needed) == `""` { // the complete object always exists
		return jsonpatch.Patch{operation}, nil
	}
	move := json.RawMessage(`"move"`)
	return jsonpatch.Patch{{"op": &move, "from": needed, "path": needed}, operation}, nil
}
