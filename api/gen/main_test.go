package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const crdYAML = `
spec:
  versions:
  - name: v1alpha1
    schema:
      openAPIV3Schema:
        properties:
          labels:
            additionalProperties: {type: string}
            type: object
          list:
            items:
              properties:
                key: {type: string}
`

func TestApplyEditsIsIdempotent(t *testing.T) {
	edits := []schemaEdit{
		{"labels", schema{"maxProperties": 3}},
		{"labels", rulesSchema(schema{"rule": "true"})},
		{"labels.{}", schema{"maxLength": 4}},
		{"list.*.key", schema{"maxLength": 5}},
	}
	once, err := applyEdits([]byte(crdYAML), edits)
	require.NoError(t, err)
	assert.YAMLEq(t, `
spec:
  versions:
  - name: v1alpha1
    schema:
      openAPIV3Schema:
        properties:
          labels:
            additionalProperties: {type: string, maxLength: 4}
            maxProperties: 3
            type: object
            x-kubernetes-validations: [{rule: "true"}]
          list:
            items:
              properties:
                key: {type: string, maxLength: 5}
`, string(once))

	twice, err := applyEdits(once, edits)
	require.NoError(t, err)
	assert.Equal(t, string(once), string(twice))
}

func TestApplyEditsErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		crd  string
		edit schemaEdit
		want string
	}{
		"a path that is not there": {
			crdYAML,
			schemaEdit{"labels.gone", schema{"maxLength": 1}},
			"find labels.gone: there is no gone",
		},
		"rules where a marker has put others": {
			`{spec: {versions: [{schema: {openAPIV3Schema: {properties: {a: {x-kubernetes-validations: [{rule: "self"}]}}}}}]}}`,
			schemaEdit{"a", rulesSchema(schema{"rule": "true"})},
			"edit a: replace rules: the field has others, from a marker; keep them in one place",
		},
		"a file that is no CRD": {`{}`, schemaEdit{}, "find spec.versions: it is missing or empty"},
		"a version without schema": {
			`{spec: {versions: [{name: v1}]}}`,
			schemaEdit{},
			"find openAPIV3Schema of version v1: it is missing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := applyEdits([]byte(tc.crd), []schemaEdit{tc.edit})
			assert.EqualError(t, err, tc.want)
		})
	}
}
