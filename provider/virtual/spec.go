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

// Spec is the providerSpec of a MachineClass for virtualcloud.
type Spec struct {
	Region       string   `json:"region"`       // required; part of the provider ID, and a label of the Node
	Zone         string   `json:"zone"`         // required; label of the Node, and key of quotas
	InstanceType string   `json:"instanceType"` // required; label of the Node, and key of quotas
	Image        string   `json:"image,omitempty"`
	Capacity     Capacity `json:"capacity,omitempty"` // capacity of the Node; if empty, DefaultCapacity

	// For instances of the class, these fields override the cloud's run-time settings; nil means no override.
	CreateLatency *Duration `json:"createLatency,omitempty"` // duration of the create call, during which the instance is pending
	// CreateSpread is the maximum deviation from createLatency. The deviation depends on the name of the instance; nil
	// means none.
	CreateSpread  *Duration `json:"createSpread,omitempty"`
	BootLatency   *Duration `json:"bootLatency,omitempty"`   // time from state running until the registration of the Node
	DeleteLatency *Duration `json:"deleteLatency,omitempty"` // time from the delete call until the instance's removal

	NeverBoots          bool `json:"neverBoots,omitempty"` // if true, no Node ever registers
	NeedsInitialization bool `json:"initialize,omitempty"` // if true, instances boot only after InitializeInstance
	Quota               *int `json:"quota,omitempty"`      // maximum number of instances of the class; nil means no limit
}

// Capacity maps resource names to quantities, as in node.status.capacity.
type Capacity map[string]Quantity

// Quantity is a Kubernetes quantity. A YAML number is also valid: "cpu: 4" needs no quotes.
type Quantity string

// UnmarshalJSON implements json.Unmarshaler.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	if text := bytes.Trim(data, `"`); len(text) > 0 && text[0] >= '0' && text[0] <= '9' {
		*q = Quantity(text)
		return nil
	}
	return json.Unmarshal(data, (*string)(q))
}

// DefaultCapacity returns the capacity of a Node if the class sets no capacity. The values equal the capacity of the
// machines in the measurements of machine-controller-manager and Cluster API.
func DefaultCapacity() Capacity {
	return Capacity{"cpu": "4", "memory": "16Gi", "pods": "110"}
}

// ParseSpec parses a providerSpec. The error has code InvalidArgument and contains the name of the unknown, invalid or
// missing field.
func ParseSpec(raw json.RawMessage) (Spec, error) {
	var given map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec: is not a JSON object")
		}
	}
	var spec Spec
	fields := spec.fieldsByName()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, known := fields[name]
		if !known {
			return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.%s: unknown field; known are %s", name,
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := json.Unmarshal(given[name], field); err != nil {
			return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.%s: %s", name, describeJSONError(err))
		}
	}
	return spec, spec.validate()
}

// fieldsByName returns a pointer to each field of the Spec, by JSON name.
func (s *Spec) fieldsByName() map[string]any {
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
		"initialize":    &s.NeedsInitialization,
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

// describeJSONError converts an error of encoding/json to a text for the author of a providerSpec.
func describeJSONError(err error) string {
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "a " + typed.Value + " is not allowed here"
	}
	return err.Error()
}
