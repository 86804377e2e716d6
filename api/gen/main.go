// Command gen finishes the CRDs that controller-gen wrote: it adds bounds, types and rules to fields whose Go type is
// not Millwright's. api/generate.sh calls gen with the folder of the CRDs, and gen changes the CRDs in place. A second
// run of gen changes nothing.
//
// Short CEL rules are markers on the Go fields. Label selectors, ObjectMetas and durations are types of apimachinery,
// and so cannot have markers. Without bounds of maps and lists, the API server assumes the largest possible cost of a
// CEL rule, and refuses the CRD. The bounds are far above the values in a real object.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen <folder of CRDs>")
		os.Exit(2)
	}
	if err := editCRDFiles(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func editCRDFiles(dir string) error {
	for plural, edits := range editsByCRD() {
		path := filepath.Join(dir, "machine.sapcloud.io_"+plural+".yaml")
		before, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read CRD: %w", err)
		}
		after, err := applyEdits(before, edits)
		if err != nil {
			return fmt.Errorf("finish %s: %w", path, err)
		}
		if err := os.WriteFile(path, after, 0o644); err != nil {
			return fmt.Errorf("write CRD: %w", err)
		}
	}
	return nil
}

// applyEdits returns the CRD with the edits applied to the schema of each version.
func applyEdits(crd []byte, edits []schemaEdit) ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(crd, &doc); err != nil {
		return nil, fmt.Errorf("parse YAML: %w", err)
	}
	spec, _ := doc["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) == 0 {
		return nil, errors.New("find spec.versions: it is missing or empty")
	}
	for _, v := range versions {
		version, _ := v.(map[string]any)
		holder, _ := version["schema"].(map[string]any)
		root, ok := holder["openAPIV3Schema"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("find openAPIV3Schema of version %v: it is missing", version["name"])
		}
		for _, e := range edits {
			if err := e.apply(root); err != nil {
				return nil, err
			}
		}
	}
	return yaml.Marshal(doc)
}

// apply merges the edit into the schema at its path. A path that does not exist is an error, because otherwise nobody
// would notice that a renamed field has lost its bound.
func (e schemaEdit) apply(root schema) error {
	at := root
	for step := range strings.SplitSeq(e.path, ".") {
		next, ok := childSchema(at, step)
		if !ok {
			return fmt.Errorf("find %s: there is no %s", e.path, step)
		}
		at = next
	}
	if err := mergeSchemas(at, e.keywords); err != nil {
		return fmt.Errorf("edit %s: %w", e.path, err)
	}
	return nil
}

// childSchema returns the schema of a property, of the items of a list (*), or of the values of a map ({}).
func childSchema(at schema, step string) (schema, bool) {
	var next any
	switch step {
	case "*":
		next = at["items"]
	case "{}":
		next = at["additionalProperties"]
	default:
		properties, _ := at["properties"].(map[string]any)
		next = properties[step]
	}
	m, ok := next.(map[string]any)
	return m, ok
}

// mergeSchemas merges add into the schema. Maps that exist in both schemas are merged recursively. Adding rules to a
// field with rules from a marker is an error, because the new rules would replace the marker's rules.
func mergeSchemas(into, add schema) error {
	for key, value := range add {
		have, exists := into[key]
		sub, isMap := value.(map[string]any)
		haveMap, hasMap := have.(map[string]any)
		switch {
		case isMap && hasMap:
			if err := mergeSchemas(haveMap, sub); err != nil {
				return err
			}
		case exists && key == rulesKeyword && !reflect.DeepEqual(have, value):
			return errors.New("replace rules: the field has others, from a marker; keep them in one place")
		default:
			into[key] = value
		}
	}
	return nil
}
