package activitiestest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The fake API server serves a newer version of Cluster API: each struct of an object has a field that the Go types of
// the clients lack. The tracker cannot store this field, so the fake API server rejects each patch that would remove it.
const newField = "fieldOfANewerVersion"

// rejectLossyPatch returns an error if a merge patch removes a new field from the spec, the template or the status of an
// object of Cluster API.
func rejectLossyPatch(gvr schema.GroupVersionResource, object, change map[string]any) error {
	if gvr.Group != clusterv1.GroupVersion.Group {
		return nil
	}
	for _, path := range [][]string{{"spec"}, {"spec", "template"}, {"spec", "template", "spec"}, {"status"}} {
		written := applyMergePatch(applyMergePatch(object, pathToValue(path, map[string]any{newField: "x"})), change)
		if value, _, _ := unstructured.NestedString(written, append(path, newField)...); value != "x" {
			return apierrors.NewBadRequest(fmt.Sprintf("a patch of %s removes %s from %v", gvr.Resource, newField, path))
		}
	}
	return nil
}

// pathToValue returns nested objects with a value at this path.
func pathToValue(path []string, value any) map[string]any {
	for i := len(path) - 1; i > 0; i-- {
		value = map[string]any{path[i]: value}
	}
	return map[string]any{path[0]: value}
}

// recordCreator records the field manager of a creation as the owner of all fields of the object, except of lists.
func recordCreator(a testing.CreateActionImpl, object metav1.Object) {
	if a.CreateOptions.FieldManager == "" {
		return
	}
	fields, err := json.Marshal(fieldsOf(EncodeObject(a.GetObject())))
	if err != nil {
		panic(err)
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{
		{
			Manager:   a.CreateOptions.FieldManager,
			Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: a.GetResource().
				GroupVersion().
				String(),
			FieldsType: "FieldsV1",
			FieldsV1:   metav1.NewFieldsV1(string(fields)),
		},
	})
}

func fieldsOf(object map[string]any) map[string]any {
	fields := map[string]any{}
	for name, value := range object {
		switch value := value.(type) {
		case map[string]any:
			fields["f:"+name] = fieldsOf(value)
		case []any:
		default:
			fields["f:"+name] = map[string]any{}
		}
	}
	return fields
}

// ClusterAPIPatches returns the merge patches of objects of Cluster API since the last call of ForgetRequests, sorted,
// each as "RESOURCE as FIELD MANAGER: FIELDS". A patch without the UID and the resourceVersion of its object fails the test.
func (w *World) ClusterAPIPatches() (patches []string) {
	w.T.Helper()
	for _, action := range w.ClusterAPIServer.Clientset.Actions() {
		a, isPatch := action.(testing.PatchActionImpl)
		if !isPatch {
			continue
		}
		var patch map[string]any
		require.NoError(w.T, json.Unmarshal(a.GetPatch(), &patch))
		fields := []string{}
		for _, field := range patchedFields("", patch) {
			if field != "metadata.uid" && field != "metadata.resourceVersion" {
				fields = append(fields, field)
			}
		}
		require.Len(
			w.T,
			fields,
			len(patchedFields("", patch))-2,
			"the patch of %s has no UID or no resourceVersion",
			a.GetName(),
		)
		resource := strings.TrimSuffix(a.GetResource().Resource+"/"+a.GetSubresource(), "/")
		if manager := a.PatchOptions.FieldManager; manager != "" {
			resource += " as " + manager
		}
		patches = append(patches, resource+": "+strings.Join(fields, " "))
	}
	slices.Sort(patches)
	return patches
}

func patchedFields(at string, patch map[string]any) (fields []string) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		if inner, isObject := patch[name].(map[string]any); isObject {
			fields = append(fields, patchedFields(at+name+".", inner)...)
		} else {
			fields = append(fields, at+name)
		}
	}
	return fields
}
