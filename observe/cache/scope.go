package cache

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/api/v1alpha1"
)

// Scope says which namespaces of the control cluster are Millwright's. In the others it starts no run, and writes
// nothing. It also reads the Machines of the others, because they may claim a node or an instance: docs/ownership.md.
// The zero Scope has all namespaces.
type Scope struct {
	Only     []string        // names; empty: all
	Except   []string        // names that are left out, also if Only has them
	Selector labels.Selector // of the labels of namespaces; nil: all
}

// Has reports whether a namespace with these labels is Millwright's. Labels that are nil are not known: a Selector
// matches none of them.
func (s Scope) Has(namespace string, of labels.Labels) bool {
	return (len(s.Only) == 0 || slices.Contains(s.Only, namespace)) && !slices.Contains(s.Except, namespace) &&
		(s.Selector == nil || of != nil && s.Selector.Matches(of))
}

// String says which namespaces these are, as the end of a sentence.
func (s Scope) String() string {
	text := "all namespaces"
	if len(s.Only) > 0 {
		text = "namespaces " + strings.Join(s.Only, ", ")
	}
	if s.Selector != nil {
		text += " with labels " + s.Selector.String()
	}
	if len(s.Except) > 0 {
		text += " except " + strings.Join(s.Except, ", ")
	}
	return text
}

// ScopeOf returns the Scope of the installation whose workers have a Lease. One that is not there, as in the Lease of an
// earlier version, or cannot be read has all namespaces.
func ScopeOf(workers *coordinationv1.Lease) (s Scope) {
	if json.Unmarshal([]byte(workers.Annotations[v1alpha1.AnnotationScope]), &s) != nil {
		return Scope{}
	}
	return s
}

// scopeText is a Scope as the workers' Lease has it.
type scopeText struct {
	Only     []string `json:"namespaces,omitempty"`
	Except   []string `json:"exceptNamespaces,omitempty"`
	Selector string   `json:"namespaceSelector,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Scope) MarshalJSON() ([]byte, error) {
	text := scopeText{Only: s.Only, Except: s.Except}
	if s.Selector != nil {
		text.Selector = s.Selector.String()
	}
	return json.Marshal(text) //nolint:wrapcheck // it has no error
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Scope) UnmarshalJSON(data []byte) error {
	var text scopeText
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("decode which namespaces are meant: %w", err)
	}
	*s = Scope{Only: text.Only, Except: text.Except}
	if text.Selector == "" {
		return nil
	}
	selector, err := labels.Parse(text.Selector)
	if err != nil {
		return fmt.Errorf("decode the selector of namespaces: %w", err)
	}
	s.Selector = selector
	return nil
}
