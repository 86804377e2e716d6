package extension

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"millwright/decide/phrase"
)

// maxNamedFields is the largest number of fields that an answer names.
const maxNamedFields = 3

// difference is the path of a field that differs between the former and the current object.
type difference struct{ kind, path string }

// remainingDifferences applies the patches of a response to the former objects, and returns the fields that still
// differ from the current objects. The order is the set, the bootstrap template, the infrastructure template. The
// fields of each object are sorted by path. An empty result means that the machines can be updated in place.
func remainingDifferences(
	r hooksv1.CanUpdateMachineSetRequest,
	response hooksv1.CanUpdateMachineSetResponse,
) (all []difference, err error) {
	left, err := diffSets(r.Current.MachineSet, r.Desired.MachineSet, response.MachineSetPatch)
	if err != nil {
		return nil, fmt.Errorf("MachineSet: %w", err)
	}
	all = append(all, left...)
	for _, t := range []struct {
		former, current runtime.RawExtension
		patch           hooksv1.Patch
	}{
		{r.Current.BootstrapConfigTemplate, r.Desired.BootstrapConfigTemplate, response.BootstrapConfigTemplatePatch},
		{r.Current.InfrastructureMachineTemplate, r.Desired.InfrastructureMachineTemplate, response.InfrastructureMachineTemplatePatch},
	} {
		if t.former.Raw == nil || t.current.Raw == nil {
			continue // neither set references a bootstrap template
		}
		if left, err = diffTemplates(t.former.Raw, t.current.Raw, t.patch); err != nil {
			return nil, fmt.Errorf("%s: %w", kindOf(t.current.Raw), err)
		}
		all = append(all, left...)
	}
	return all, nil
}

func kindOf(object []byte) string {
	o := struct{ Kind string }{}
	_ = json.Unmarshal(object, &o) // cannot fail, because newCanUpdateRequest encoded this JSON
	return o.Kind
}

// diffSets compares the machine templates of two sets, after a patch of the former set.
func diffSets(former, current clusterv1.MachineSet, patch hooksv1.Patch) ([]difference, error) {
	object, err := json.Marshal(former)
	if err != nil {
		return nil, errors.New("it cannot be written as JSON")
	}
	after, err := patchedTemplateSpec(object, patch)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(after.value)
	machine := clusterv1.MachineSpec{} // drops fields that a Machine does not have
	if err != nil || after.found && json.Unmarshal(raw, &machine) != nil {
		return nil, errors.New("the patch makes spec.template.spec invalid")
	}
	a, err := comparedFields(machine)
	if err != nil {
		return nil, err
	}
	b, err := comparedFields(current.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	return differencesOf("MachineSet", a, b), nil
}

// comparedFields returns the fields of a machine's spec that decide whether the machine can be updated in place. Fields
// that are not compared never cause a rollout, differ in each set, or are copied to running machines.
func comparedFields(machine clusterv1.MachineSpec) (templateSpec, error) {
	m := *machine.DeepCopy()
	m.ClusterName, m.ProviderID = "", ""
	m.Bootstrap, m.InfrastructureRef = clusterv1.Bootstrap{}, clusterv1.ContractVersionedObjectReference{}
	m.MinReadySeconds, m.ReadinessGates, m.Taints = nil, nil, nil
	m.Deletion.NodeDrainTimeoutSeconds = nil
	m.Deletion.NodeVolumeDetachTimeoutSeconds = nil
	m.Deletion.NodeDeletionTimeoutSeconds = nil
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	if err != nil {
		return templateSpec{}, errors.New("spec.template.spec cannot be compared") // the original error may quote a value
	}
	return templateSpec{value, true}, nil
}

// diffTemplates compares spec.template.spec of two templates, after a patch of the former template.
func diffTemplates(former, current []byte, patch hooksv1.Patch) ([]difference, error) {
	a, err := patchedTemplateSpec(former, patch)
	if err != nil {
		return nil, err
	}
	b, err := templateSpecOf(current)
	if err != nil {
		return nil, err
	}
	return differencesOf(kindOf(current), a, b), nil
}

// differencesOf returns the fields in which two values of spec.template.spec differ.
func differencesOf(kind string, former, current templateSpec) (all []difference) {
	const at = "spec.template.spec"
	paths := []string{at}
	if former.found == current.found {
		paths = differingPaths(at, former.value, current.value)
	}
	for _, path := range paths {
		all = append(all, difference{kind, path})
	}
	return all
}

// differingPaths returns the paths of the fields in which two JSON values differ, sorted by field. A field that is
// missing in one value is one difference. Two lists of different lengths are one difference.
func differingPaths(at string, a, b any) (paths []string) {
	switch a := a.(type) {
	case map[string]any:
		b, same := b.(map[string]any)
		if !same {
			return []string{at}
		}
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			_, inA := a[key]
			_, inB := b[key]
			if inA != inB {
				paths = append(paths, fieldPath(at, key))
			} else {
				paths = append(paths, differingPaths(fieldPath(at, key), a[key], b[key])...)
			}
		}
		return paths
	case []any:
		b, same := b.([]any)
		if !same || len(a) != len(b) {
			return []string{at}
		}
		for i := range a {
			paths = append(paths, differingPaths(fmt.Sprintf("%s[%d]", at, i), a[i], b[i])...)
		}
		return paths
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return []string{at}
}

// fieldPath returns the path of a field. A key with a character other than a letter, a digit, "_" or "-" is quoted.
func fieldPath(at, key string) string {
	if strings.ContainsFunc(
		key,
		func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) },
	) ||
		key == "" {
		return at + "[" + strconv.Quote(key) + "]"
	}
	return at + "." + key
}

// differencesText names the first fields that differ, and counts the rest. differencesText names as many fields as fit
// into an answer, but at least one.
func differencesText(left []difference) (text string) {
	for most := min(maxNamedFields, len(left)); most > 0; most-- {
		text = differencesByKindText(left[:most]) + phrase.TextIf(len(left) > most, " and %d more", len(left)-most)
		if len(text) <= maxAnswerMessageBytes {
			break
		}
	}
	return text
}

// differencesByKindText groups fields by the kinds of their objects: "A differs in x, y; B differs in z".
func differencesByKindText(left []difference) (text string) {
	for i, d := range left {
		switch {
		case i > 0 && left[i-1].kind == d.kind:
			text += ", " + d.path
		default:
			text += phrase.TextIf(i > 0, "; ") + d.kind + " differs in " + d.path
		}
	}
	return text
}
