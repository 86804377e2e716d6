package extension

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

const sampleObjectJSON = `{"apiVersion":"v1","kind":"X","metadata":{"name":"x"},"spec":{"other":1,"template":{"metadata":{"labels":{"a":"b"}},` +
	`"spec":{"cpus":2,"disk":{"size":"20Gi"},"files":["a","b"],"nothing":null}}}}`

func TestCanUpdateAppliesPatchesToSpec(t *testing.T) {
	t.Parallel()
	const unchanged = `{"cpus":2,"disk":{"size":"20Gi"},"files":["a","b"],"nothing":null}`
	for name, c := range map[string]struct{ patch, want string }{
		"none":              {"", unchanged},
		"no operations":     {"[]", unchanged},
		"nothing to merge":  {"{}", unchanged},
		"replace":           {`[{"op":"replace","path":"/spec/template/spec/cpus","value":4}]`, `{"cpus":4,"disk":{"size":"20Gi"},"files":["a","b"],"nothing":null}`},
		"replace null":      {`[{"op":"replace","path":"/spec/template/spec/nothing","value":4}]`, `{"cpus":2,"disk":{"size":"20Gi"},"files":["a","b"],"nothing":4}`},
		"add null":          {`[{"op":"add","path":"/spec/template/spec/x","value":null}]`, `{"cpus":2,"disk":{"size":"20Gi"},"files":["a","b"],"nothing":null,"x":null}`},
		"replace in a list": {`[{"op":"replace","path":"/spec/template/spec/files/0","value":"c"}]`, `{"cpus":2,"disk":{"size":"20Gi"},"files":["c","b"],"nothing":null}`},
		"replace the last":  {`[{"op":"replace","path":"/spec/template/spec/files/1","value":"c"}]`, `{"cpus":2,"disk":{"size":"20Gi"},"files":["a","c"],"nothing":null}`},
		"add, test, move, copy, remove": {
			`[{"op":"add","path":"/spec/template/spec/a~1b","value":{"c":1}},{"op":"test","path":"/spec/template/spec/a~1b/c","value":1},` +
				`{"op":"move","from":"/spec/template/spec/cpus","path":"/spec/template/spec/files/-"},` +
				`{"op":"copy","from":"/spec/template/spec/disk","path":"/spec/template/spec/disk2"},{"op":"remove","path":"/spec/template/spec/nothing"}]`,
			`{"a/b":{"c":1},"disk":{"size":"20Gi"},"disk2":{"size":"20Gi"},"files":["a","b",2]}`,
		},
		"merge":                     {`{"spec":{"template":{"spec":{"cpus":4,"disk":{"kind":"ssd"},"nothing":null}}}}`, `{"cpus":4,"disk":{"size":"20Gi","kind":"ssd"},"files":["a","b"]}`},
		"the whole spec":            {`[{"op":"replace","path":"/spec/template/spec","value":{"cpus":4}}]`, `{"cpus":4}`},
		"the whole object":          {`[{"op":"replace","path":"","value":{"spec":{"template":{"spec":{"cpus":4}}}}}]`, `{"cpus":4}`},
		"status is dropped":         {`[{"op":"add","path":"/status","value":{"observedGeneration":10}}]`, unchanged},
		"metadata is dropped":       {`{"metadata":{"name":"y"},"spec":{"other":2,"template":{"metadata":null}}}`, unchanged},
		"a removed spec is dropped": {`[{"op":"remove","path":"/spec/template/spec"}]`, unchanged},
		"a removed spec, merged":    {`{"spec":null}`, unchanged},
		"a template that is a text": {`{"spec":{"template":"x"}}`, unchanged},
		"from another part":         {`[{"op":"copy","from":"/spec/other","path":"/spec/template/spec/cpus"}]`, `{"cpus":1,"disk":{"size":"20Gi"},"files":["a","b"],"nothing":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := patchedTemplateSpec([]byte(sampleObjectJSON), newPatch(c.patch))
			require.NoError(t, err)
			want, err := templateSpecOf(fmt.Appendf(nil, `{"spec":{"template":{"spec":%s}}}`, c.want))
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	t.Run("an empty JSON merge patch", func(t *testing.T) {
		t.Parallel()
		got, err := patchedTemplateSpec([]byte(sampleObjectJSON), hooksv1.Patch{PatchType: hooksv1.JSONMergePatchType})
		require.NoError(t, err)
		want, err := templateSpecOf([]byte(sampleObjectJSON))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
	t.Run("the spec is new", func(t *testing.T) {
		t.Parallel()
		got, err := patchedTemplateSpec([]byte(`{"kind":"X"}`), newPatch(`{"spec":{"template":{"spec":{"cpus":4}}}}`))
		require.NoError(t, err)
		assert.Equal(t, templateSpec{map[string]any{"cpus": int64(4)}, true}, got)
	})
}

func TestCanUpdateRejectsInvalidSpecPatches(t *testing.T) {
	t.Parallel()
	const noSuchField = "operation 1 of the JSON patch does not apply: the object has no such field"
	const notValid = "operation 1 of the JSON patch does not apply: it is not valid"
	var copies []string
	for i := range 50 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/spec","path":"/spec/copy%d"}`, i))
	}
	typed := func(kind hooksv1.PatchType, text string) hooksv1.Patch {
		return hooksv1.Patch{PatchType: kind, Patch: []byte(text)}
	}
	for name, c := range map[string]struct {
		patch hooksv1.Patch
		want  string
	}{
		"no type":                     {typed("", `[{"op":"add","path":"/`+secretText+`","value":1}]`), "the patch has no patchType"},
		"another type":                {typed(secretText, `[]`), "the patchType is neither JSONPatch nor JSONMergePatch"},
		"a type without a patch":      {typed("JSONPatch", ""), "the JSON patch is no list of operations"},
		"no JSON":                     {typed("JSONPatch", secretText), "the JSON patch is no list of operations"},
		"an object as a JSON patch":   {typed("JSONPatch", `{"a":"`+secretText+`"}`), "the JSON patch is no list of operations"},
		"no JSON to merge":            {typed("JSONMergePatch", secretText), "the JSON merge patch is not valid"},
		"a text to merge":             {typed("JSONMergePatch", `"`+secretText+`"`), "the JSON merge patch is not valid"},
		"a list to merge":             {typed("JSONMergePatch", `["`+secretText+`"]`), "the result of the patch is no object"},
		"an operation that is none":   {newPatch(`[{"op":"` + secretText + `","path":"/spec"}]`), notValid},
		"an operation without a path": {newPatch(`[{"op":"add","value":1}]`), noSuchField},
		"a test":                      {newPatch(`[{"op":"test","path":"/spec/template/spec/cpus","value":"` + secretText + `"}]`), "operation 1 of the JSON patch does not apply: its test fails"},
		"replace what is not there":   {newPatch(`[{"op":"replace","path":"/spec/template/spec/` + secretText + `","value":1}]`), noSuchField},
		"replace below what is not":   {newPatch(`[{"op":"replace","path":"/` + secretText + `/x","value":1}]`), noSuchField},
		"replace beyond the list":     {newPatch(`[{"op":"replace","path":"/spec/template/spec/files/2","value":1}]`), noSuchField},
		"add beyond the list":         {newPatch(`[{"op":"add","path":"/spec/template/spec/files/99999999","value":1}]`), noSuchField},
		"copy what is not there":      {newPatch(`[{"op":"copy","from":"/` + secretText + `","path":"/spec/template/spec/cpus"}]`), noSuchField},
		"move what is not there":      {newPatch(`[{"op":"move","from":"/` + secretText + `","path":"/spec/template/spec/cpus"}]`), noSuchField},
		"remove what is not there":    {newPatch(`[{"op":"remove","path":"/` + secretText + `"}]`), noSuchField},
		"the second one":              {newPatch(`[{"op":"remove","path":"/kind"},{"op":"remove","path":"/kind"}]`), strings.Replace(noSuchField, "1", "2", 1)},
		"add without a value":         {newPatch(`[{"op":"add","path":"/spec/template/spec/x"}]`), notValid},
		"replace without a value":     {newPatch(`[{"op":"replace","path":"/spec/template/spec/cpus"}]`), notValid},
		"the object without a value":  {newPatch(`[{"op":"replace","path":""}]`), notValid},
		// the library panics on this operation
		"a test for a list with null":   {newPatch(`[{"op":"test","path":"/spec/template/spec/files","value":[null,"b"]}]`), notValid},
		"the object becomes a list":     {newPatch(`[{"op":"replace","path":"","value":["` + secretText + `"]}]`), "the result of the patch is no object"},
		"the object doubles many times": {newPatch("[" + strings.Join(copies, ",") + "]"), "of the JSON patch makes the object larger than 3145728 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := patchedTemplateSpec([]byte(sampleObjectJSON), c.patch)
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), secretText)
		})
	}
}

func TestCanUpdateRejectsObjectsWithoutSpec(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`"` + secretText + `"`:                                  "it is no object",
		`{"spec":"` + secretText + `"}`:                         "spec or spec.template is no object",
		`{"spec":{"template":["` + secretText + `"]}}`:          "spec or spec.template is no object",
		`{"kind":"X","spec":{"template":"` + secretText + `"}}`: "spec or spec.template is no object",
	} {
		for _, patch := range []string{"", `{}`} {
			_, err := patchedTemplateSpec([]byte(object), newPatch(patch))
			require.EqualError(t, err, want)
		}
	}
}
