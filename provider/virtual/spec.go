package virtual

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"millwright/provider"
)

// Spec is the providerSpec of a MachineClass of this provider.
type Spec struct {
	Region       string   `json:"region"`       // required; part of the provider ID and a label of the Node
	Zone         string   `json:"zone"`         // required; label of the Node, key of quotas
	InstanceType string   `json:"instanceType"` // required; label of the Node, key of quotas
	Image        string   `json:"image,omitempty"`
	Capacity     Capacity `json:"capacity,omitempty"` // capacity of the Node; empty means DefaultCapacity

	// How the cloud behaves for instances of this class. Left out means the cloud's run-time setting.
	CreateLatency *Duration `json:"createLatency,omitempty"` // until the create call answers; the instance is pending
	// maximum deviation from createLatency; the deviation depends on the instance's name; left out means none
	CreateSpread  *Duration `json:"createSpread,omitempty"`
	BootLatency   *Duration `json:"bootLatency,omitempty"`   // time from state running until the Node registers
	DeleteLatency *Duration `json:"deleteLatency,omitempty"` // time from the delete call until the instance is gone

	NeverBoots bool `json:"neverBoots,omitempty"` // no Node ever registers
	Initialize bool `json:"initialize,omitempty"` // instances wait for InitializeInstance before they boot
	Quota      *int `json:"quota,omitempty"`      // maximum number of instances of this class; nil: no limit
}

// Capacity maps resource names to quantities, as in node.status.capacity.
type Capacity map[string]Quantity

// Quantity is a Kubernetes quantity. YAML numbers are accepted, so that "cpu: 4" needs no quotes.
type Quantity string

// UnmarshalJSON implements json.Unmarshaler.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	if text := bytes.Trim(data, `"`); len(text) > 0 && text[0] >= '0' && text[0] <= '9' {
		*q = Quantity(text)
		return nil
	}
	return json.Unmarshal(data, (*string)(q))
}

// DefaultCapacity returns the capacity of a Node whose class sets none. Source: the machines in the measurements of MCM
// and Cluster API.
func DefaultCapacity() Capacity {
	return Capacity{"cpu": "4", "memory": "16Gi", "pods": "110"}
}

// ParseSpec parses a providerSpec. The error has code InvalidArgument and names the field that is unknown, invalid, or
// required and missing.
func ParseSpec(raw json.RawMessage) (Spec, error) {
	var given map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec: is not a JSON object")
		}
	}
	var spec Spec
	fields := spec.fields()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, known := fields[name]
		if !known {
			return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.%s: unknown field; known are %s", name,
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := json.Unmarshal(given[name], field); err != nil {
			return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.%s: %s", name, reasonOf(err))
		}
	}
	return spec, spec.validate()
}

// fields maps each JSON name to its field.
func (s *Spec) fields() map[string]any {
	return map[string]any{
		"region":        &s.Region,
		"zone":          &s.Zone,
		"instanceType":  &s.InstanceType,
		"image":         &s.Image,
		"capacity":      &s.Capacity,
		"createLatency": &s.CreateLatency,
		"createSpread":  &s.CreateSpread,
		"bootLatency":   &s.BootLatency,
		"deleteLatency": &s.DeleteLatency,
		"neverBoots":    &s.NeverBoots,
		"initialize":    &s.Initialize,
		"quota":         &s.Quota,
	}
}

func (s *Spec) validate() error {
	for _, required := range []struct{ name, value string }{
		{"region", s.Region}, {"zone", s.Zone}, {"instanceType", s.InstanceType},
	} {
		if required.value == "" {
			return provider.Errorf(provider.InvalidArgument, "providerSpec.%s: is required", required.name)
		}
	}
	if strings.ContainsAny(s.Region, "/ ") {
		return provider.Errorf(provider.InvalidArgument, "providerSpec.region: %q must not hold '/' or spaces", s.Region)
	}
	if s.Quota != nil && *s.Quota < 0 {
		return provider.Errorf(provider.InvalidArgument, "providerSpec.quota: %d is negative", *s.Quota)
	}
	return nil
}

// reasonOf describes an error of encoding/json for the author of a providerSpec.
func reasonOf(err error) string {
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "a " + typed.Value + " is not allowed here"
	}
	return err.Error()
}
