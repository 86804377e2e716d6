package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/provider"
)

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// callSchemaPath and answerSchemaPath are the files with the schemas of the messages between the core and a provider's
// worker.
const (
	callSchemaPath   = "docs/schema/instance-call.json"
	answerSchemaPath = "docs/schema/instance-answer.json"
)

func readSchema(t *testing.T, name string) schema {
	var s schema
	require.NoError(t, json.Unmarshal([]byte(readFile(t, name)), &s), name)
	return s
}

// resolveRef replaces a reference by the definition in the schema's $defs.
func resolveRef(root, node schema) schema {
	if ref, ok := node["$ref"].(string); ok {
		definition, _ := asSchema(root["$defs"])[strings.TrimPrefix(ref, "#/$defs/")].(schema)
		return definition
	}
	return node
}

func asSchema(v any) schema {
	s, _ := v.(schema)
	return s
}

// schemaDifferences returns the differences between a schema and the JSON that encoding/json makes of a type.
func schemaDifferences(root, node schema, typ reflect.Type, path string) []string {
	node = resolveRef(root, node)
	if typ.Kind() == reflect.Pointer {
		choices, _ := node["anyOf"].([]any)
		if len(choices) != 2 || !reflect.DeepEqual(choices[1], schema{"type": "null"}) {
			return []string{path + ": is not one of a value and null"}
		}
		return schemaDifferences(root, asSchema(choices[0]), typ.Elem(), path)
	}
	if want := jsonType(typ); !reflect.DeepEqual(node["type"], want) {
		return []string{fmt.Sprintf("%s: is %v and not %v", path, node["type"], want)}
	}
	switch typ.Kind() {
	case reflect.Slice:
		return schemaDifferences(root, asSchema(node["items"]), typ.Elem(), path+"[]")
	case reflect.Struct:
		return fieldDifferences(root, asSchema(node["properties"]), typ, path)
	default:
		return nil
	}
}

func fieldDifferences(root, properties schema, typ reflect.Type, path string) []string {
	var found []string
	surplus := maps.Clone(properties)
	for field := range typ.Fields() {
		if field.Tag.Get("json") != "" {
			found = append(found, path+"."+field.Name+": has a tag, which this test does not read")
		}
		property, shown := properties[field.Name]
		delete(surplus, field.Name)
		if !shown {
			found = append(found, path+"."+field.Name+": is missing")
			continue
		}
		found = append(found, schemaDifferences(root, asSchema(property), field.Type, path+"."+field.Name)...)
	}
	for _, name := range slices.Sorted(maps.Keys(surplus)) {
		found = append(found, path+"."+name+": is surplus")
	}
	return found
}

// jsonType returns the JSON Schema type of a Go type as encoding/json encodes it; nil for types that the payloads do
// not use.
func jsonType(typ reflect.Type) any {
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Slice: // an empty slice is encoded as null
		return []any{"array", "null"}
	case reflect.Struct:
		return "object"
	default:
		return nil
	}
}

func TestSchemasMatchTheCode(t *testing.T) {
	for name, payload := range map[string]any{callSchemaPath: cloud.InstanceCall{}, answerSchemaPath: cloud.InstanceAnswer{}} {
		t.Run(name, func(t *testing.T) {
			root := readSchema(t, name)
			assert.Equal(t, "https://json-schema.org/draft/2020-12/schema", root["$schema"])
			assert.Empty(t, schemaDifferences(root, root, reflect.TypeOf(payload), root["title"].(string)))

			used := readFile(t, name)
			for definition := range asSchema(root["$defs"]) {
				assert.Contains(t, used, `"$ref": "#/$defs/`+definition+`"`, "nothing refers to it")
			}
			for definition, node := range asSchema(root["$defs"]) {
				for _, key := range stringList(asSchema(node)["required"]) {
					assert.Contains(t, asSchema(asSchema(node)["properties"]), key, "%s requires it", definition)
				}
			}
		})
	}
}

// The core writes every key of a call: a provider's worker may rely on all keys.
func TestCallSchemaRequiresFieldsThatMillwrightWrites(t *testing.T) {
	encoded, err := json.Marshal(cloud.InstanceCall{})
	require.NoError(t, err)
	var written schema
	require.NoError(t, json.Unmarshal(encoded, &written))
	root := readSchema(t, callSchemaPath)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(written)), stringList(resolveRef(root, root)["required"]))
}

func TestSchemasListEveryReaction(t *testing.T) {
	reactions := map[string]bool{}
	for _, code := range provider.Codes() {
		reactions[string(kube.ReactionToCode(code))] = true
	}
	call := asSchema(readSchema(t, callSchemaPath)["$defs"])["Problem"]
	answer := asSchema(readSchema(t, answerSchemaPath)["$defs"])["Problem"]
	assert.Equal(t, call, answer, "a problem is the same in a call and in an answer")
	react := asSchema(asSchema(asSchema(answer)["properties"])["React"])
	assert.ElementsMatch(t, slices.Collect(maps.Keys(reactions)), stringList(react["enum"]))
}

// The comparison of schemas must be able to fail.
func TestSchemaDifferencesAreFound(t *testing.T) {
	typ := reflect.TypeFor[cloud.InstanceAnswer]()
	for found, spoil := range map[string]func(answer, problem schema){
		"InstanceAnswer.Gone: is missing":                            func(a, _ schema) { delete(asSchema(a["properties"]), "Gone") },
		"InstanceAnswer.Size: is surplus":                            func(a, _ schema) { asSchema(a["properties"])["Size"] = schema{"type": "integer"} },
		"InstanceAnswer.Gone: is string and not boolean":             func(a, _ schema) { asSchema(a["properties"])["Gone"] = schema{"type": "string"} },
		"InstanceAnswer.Problem: is not one of a value and null":     func(a, _ schema) { asSchema(a["properties"])["Problem"] = schema{"$ref": "#/$defs/Problem"} },
		"InstanceAnswer.Problem.After: is missing":                   func(_, p schema) { delete(asSchema(p["properties"]), "After") },
		"InstanceAnswer.Addresses: is array and not [array null]":    func(a, _ schema) { asSchema(asSchema(a["properties"])["Addresses"])["type"] = "array" },
		"InstanceAnswer.Addresses[]: is <nil> and not object":        func(a, _ schema) { delete(asSchema(asSchema(a["properties"])["Addresses"]), "items") },
		"InstanceAnswer: is <nil> and not object":                    func(a, _ schema) { delete(a, "type") },
		"InstanceAnswer.Problem: is <nil> and not object":            func(_, p schema) { clear(p) },
		"InstanceAnswer.LastKnownState: is integer and not string":   func(a, _ schema) { asSchema(asSchema(a["properties"])["LastKnownState"])["type"] = "integer" },
		"InstanceAnswer.Problem.Failures: is number and not integer": func(_, p schema) { asSchema(asSchema(p["properties"])["Failures"])["type"] = "number" },
		"InstanceAnswer.Problem.Reaction: is surplus":                func(_, p schema) { asSchema(p["properties"])["Reaction"] = schema{"type": "string"} },
	} {
		t.Run(found, func(t *testing.T) {
			root := readSchema(t, answerSchemaPath)
			definitions := asSchema(root["$defs"])
			spoil(asSchema(definitions["InstanceAnswer"]), asSchema(definitions["Problem"]))
			assert.Equal(t, []string{found}, schemaDifferences(root, root, typ, "InstanceAnswer"))
		})
	}
}

// stringList returns the strings of a list in a schema.
func stringList(v any) []string {
	var texts []string
	items, _ := v.([]any)
	for _, item := range items {
		texts = append(texts, fmt.Sprint(item))
	}
	return texts
}
