package kube_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
)

// rawObject is an object in the API server. The type of the clients lacks a part of its fields.
type rawObject struct {
	text     string
	requests []metav1.PatchOptions
	sub      []string
	discards bool // the API server accepts a patch and changes nothing
	err      error
}

func (o *rawObject) Patch(
	_ context.Context,
	_ string,
	kind types.PatchType,
	data []byte,
	options metav1.PatchOptions,
	subresources ...string,
) (*v1alpha1.MachineSet, error) {
	o.requests, o.sub = append(o.requests, options), subresources
	if o.err != nil {
		return nil, o.err
	}
	if kind != types.MergePatchType {
		return nil, apierrors.NewBadRequest(string(kind))
	}
	if !o.discards {
		var patch map[string]any
		if err := json.Unmarshal(data, &patch); err != nil {
			return nil, err
		}
		metadata := patch["metadata"].(map[string]any)
		if metadata["uid"] != "uid" || metadata["resourceVersion"] != "7" {
			return nil, apierrors.NewConflict(schema.GroupResource{}, "s", nil)
		}
		metadata["resourceVersion"] = "8"
		data, _ := json.Marshal(patch)
		merged, err := jsonmergepatch.CreateThreeWayJSONMergePatch(nil, data, nil)
		if err != nil {
			return nil, err
		}
		o.text = string(mergeJSON([]byte(o.text), merged))
	}
	return o.read(), nil
}
