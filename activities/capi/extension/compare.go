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

// mostNamed is the largest number of fields that an answer names.
const mostNamed = 3

// difference is a field that is not the same in the former and in the current object.
type difference struct{ kind, path string }

// remaining applies the patches of a response to the former objects, and returns in what they still differ from the
// current ones: fields of the set, of the bootstrap template and of the infrastructure template, in this order, each by
// path. None means that the machines can be updated in place.
func remaining(
	r hooksv1.CanUpdateMachineSetRequest,
	response hooksv1.CanUpdateMachineSetResponse,
) (all []difference, err error) {
	left, err := differSets(r.Current.MachineSet, r.Desired.MachineSet, response.MachineSetPatch)
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
			continue // both are missing: the sets name no bootstrap template
		}
		if left, err = differTemplates(t.former.Raw, t.current.Raw, t.patch); err != nil {
			return nil, fmt.Errorf("%s: %w", kindOf(t.current.Raw), err)
		}
		all = append(all, left...)
	}
	return all, nil
}

func kindOf(object []byte) string {
	o := struct{ Kind string }{}
	_ = json.Unmarshal(object, &o) // it was made by newRequest
	return o.Kind
}

// differSets compares the machines that two sets make, after a patch of the former one.
func differSets(former, current clusterv1.MachineSet, patch hooksv1.Patch) ([]difference, error) {
	object, err := json.Marshal(former)
	if err != nil {
		return nil, errors.New("it cannot be written as JSON")
	}
	after, err := patched(object, patch)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(after.value)
	machine := clusterv1.MachineSpec{} // drops fields that a Machine does not have
	if err != nil || after.found && json.Unmarshal(raw, &machine) != nil {
		return nil, errors.New("the patch makes spec.template.spec invalid")
	}
	a, err := compared(machine)
	if err != nil {
		return nil, err
	}
	b, err := compared(current.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	return named("MachineSet", a, b), nil
}

// compared returns the part of a machine's spec that decides whether its machine can be updated in place. Each of the
// other fields never causes a rollout, differs in each set, or is written into running machines anyway.
func compared(machine clusterv1.MachineSpec) (spec, error) {
	m := *machine.DeepCopy()
	m.ClusterName, m.ProviderID = "", ""
	m.Bootstrap, m.InfrastructureRef = clusterv1.Bootstrap{}, clusterv1.ContractVersionedObjectReference{}
	m.MinReadySeconds, m.ReadinessGates, m.Taints = nil, nil, nil
	m.Deletion.NodeDrainTimeoutSeconds = nil
	m.Deletion.NodeVolumeDetachTimeoutSeconds = nil
	m.Deletion.NodeDeletionTimeoutSeconds = nil
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	if err != nil {
		return spec{}, errors.New("spec.template.spec cannot be compared") // the cause may repeat a value
	}
	return spec{value, true}, nil
}

// differTemplates compares spec.template.spec of two templates, after a patch of the former one.
func differTemplates(former, current []byte, patch hooksv1.Patch) ([]difference, error) {
	a, err := patched(former, patch)
	if err != nil {
		return nil, err
	}
	b, err := specOf(current)
	if err != nil {
		return nil, err
	}
	return named(kindOf(current), a, b), nil
}

// named returns the fields in which two values of spec.template.spec differ.
func named(kind string, former, current spec) (all []difference) {
	const at = "spec.template.spec"
	paths := []string{at}
	if former.found == current.found {
		paths = differing(at, former.value, current.value)
	}
	for _, path := range paths {
		all = append(all, difference{kind, path})
	}
	return all
}

// differing returns the paths of the fields in which two JSON values differ, sorted by field. A field that only one of
// the values has is one difference, and so are two lists of different lengths.
func differing(at string, a, b any) (paths []string) {
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
				paths = append(paths, field(at, key))
			} else {
				paths = append(paths, differing(field(at, key), a[key], b[key])...)
			}
		}
		return paths
	case []any:
		b, same := b.([]any)
		if !same || len(a) != len(b) {
			return []string{at}
		}
		for i := range a {
			paths = append(paths, differing(fmt.Sprintf("%s[%d]", at, i), a[i], b[i])...)
		}
		return paths
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return []string{at}
}

// field returns the path of a field. A key that would be read as several fields is quoted.
func field(at, key string) string {
	if strings.ContainsFunc(
		key,
		func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) },
	) ||
		key == "" {
		return at + "[" + strconv.Quote(key) + "]"
	}
	return at + "." + key
}

// sentence names the first fields that differ, and counts the others: as many as the length of an answer allows, and at
// least one.
func sentence(left []difference) (text string) {
	for most := min(mostNamed, len(left)); most > 0; most-- {
		text = naming(left[:most]) + phrase.If(len(left) > most, " and %d more", len(left)-most)
		if len(text) <= longestText {
			break
		}
	}
	return text
}

// naming names fields by their objects: "A differs in x, y; B differs in z".
func naming(left []difference) (text string) {
	for i, d := range left {
		switch {
		case i > 0 && left[i-1].kind == d.kind:
			text += ", " + d.path
		default:
			text += phrase.If(i > 0, "; ") + d.kind + " differs in " + d.path
		}
	}
	return text
}
