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

// largestObject bounds an object while it is patched, in bytes: each operation copy can double it. Source: the largest
// request that an API server takes has 3 MiB.
const largestObject = 3 << 20

// specPath is the only part of an object that a patch changes.
func specPath() []string { return []string{"spec", "template", "spec"} }

// spec is spec.template.spec of an object.
type spec struct {
	value any
	found bool
}

// specOf returns spec.template.spec of an object.
func specOf(object []byte) (s spec, err error) {
	o := map[string]any{}
	if utiljson.Unmarshal(object, &o) != nil {
		return s, errors.New("it is no object")
	}
	if s.value, s.found, err = unstructured.NestedFieldNoCopy(o, specPath()...); err != nil {
		return s, errors.New("spec or spec.template is no object") // the cause repeats the value
	}
	return s, nil
}

// patched returns spec.template.spec of an object after a patch. Whatever else the patch changes is dropped; so is the
// removal of spec.template.spec. Errors hold nothing of the object and of the patch.
func patched(object []byte, patch hooksv1.Patch) (spec, error) {
	before, err := specOf(object)
	if err != nil || !patch.IsDefined() {
		return before, err
	}
	after, err := apply(object, patch)
	if err != nil {
		return spec{}, err
	}
	o := map[string]any{}
	if utiljson.Unmarshal(after, &o) != nil {
		return spec{}, errors.New("the result of the patch is no object")
	}
	if value, found, _ := unstructured.NestedFieldNoCopy(o, specPath()...); found { // an error means that it is not there
		return spec{value, true}, nil
	}
	return before, nil
}

func apply(object []byte, patch hooksv1.Patch) ([]byte, error) {
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

// applyOperations applies a JSON patch one operation after the other, so that an error can say which one does not
// apply.
func applyOperations(object, patch []byte) (after []byte, err error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, errors.New("the JSON patch is no list of operations")
	}
	for i, operation := range operations {
		if object, err = applyOperation(object, operation); err != nil {
			return nil, fmt.Errorf("operation %d of the JSON patch does not apply: %w", i+1, err)
		}
		if len(object) > largestObject {
			return nil, fmt.Errorf("operation %d of the JSON patch makes the object larger than %d bytes", i+1, largestObject)
		}
	}
	return object, nil
}

// applyOperation applies one operation. The library panics on some, such as the test for a list that holds null.
func applyOperation(object []byte, operation jsonpatch.Operation) (after []byte, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("it is not valid")
		}
	}()
	checked, err := strict(operation)
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

// strict makes the library as strict as RFC 6902 and Cluster API are. An operation without the value that it needs is
// refused: the library takes it for null. An operation that needs an existing field comes after a check, a move of this
// field to itself: the library replaces and copies fields that do not exist.
func strict(operation jsonpatch.Operation) (jsonpatch.Patch, error) {
	var needed *json.RawMessage // the path of a field
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
	if needed == nil || string(*needed) == `""` { // the whole object exists
		return jsonpatch.Patch{operation}, nil
	}
	move := json.RawMessage(`"move"`)
	return jsonpatch.Patch{{"op": &move, "from": needed, "path": needed}, operation}, nil
}
