package cache

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
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

// installations are the Leases of the workers of all installations of Millwright in the control cluster. Of two
// installations, the one whose Lease is older has the namespaces that both mean: a new installation that somebody tries
// out does not stop the old one. The older one has them until its Lease is deleted or released, also while it is down:
// its instances have its name.
type installations struct {
	ours   string                  // name of our installation
	leases map[string]installation // by namespace of the Lease
	labels func(namespace string) labels.Labels
}

// installation is the Lease of the workers of one installation as it was seen last.
type installation struct {
	name    string
	scope   Scope
	claims  string // the scope as the Lease has it
	created time.Time
	by      string
	renewed time.Time
	told    bool // that it has begun to work, with this scope, was told
}

// seen takes up a Lease, and returns the installations that go before ours and that it has not returned with this scope
// yet. Only the installation of the Lease can be one, or any other if the Lease is that of our own workers.
func (i installations) seen(lease *coordinationv1.Lease, now time.Time) (began []beginning) {
	next := installation{
		name: lease.Annotations[v1alpha1.AnnotationInstallation], created: lease.CreationTimestamp.Time,
		claims: lease.Annotations[v1alpha1.AnnotationScope], scope: ScopeOf(lease),
		by: *lease.Spec.HolderIdentity, renewed: lease.Spec.RenewTime.Time,
	}
	last := i.leases[lease.Namespace]
	next.told = last.told && last.claims == next.claims
	i.leases[lease.Namespace] = next
	for namespace, other := range i.leases {
		if namespace != lease.Namespace && next.name != i.ours {
			continue
		}
		if first := i.first(namespace, other); first != other.told {
			if other.told = first; first {
				began = append(began, i.begins(namespace, other, now))
			}
			i.leases[namespace] = other
		}
	}
	return began
}

// gone forgets a Lease, and reports whether it was known.
func (i installations) gone(lease *coordinationv1.Lease) bool {
	_, known := i.leases[lease.Namespace]
	delete(i.leases, lease.Namespace)
	return known
}

// first reports whether another installation goes before ours. Of two Leases of the same second, their namespaces decide.
// A Lease without a name is ours, from an earlier version.
func (i installations) first(namespace string, other installation) bool {
	if other.name == "" || other.name == i.ours {
		return false
	}
	for at, own := range i.leases {
		if own.name == i.ours && (own.created.Before(other.created) ||
			own.created.Equal(other.created) && at < namespace) {
			return false
		}
	}
	return true
}

// in reports whether an installation means a namespace. While the labels of the namespace are not known, its name alone
// decides.
func (i installations) in(other installation, namespace string) bool {
	of, scope := i.labels(namespace), other.scope
	if of == nil {
		scope.Selector = nil
	}
	return scope.Has(namespace, of)
}

// has reports whether an installation that goes before ours means a namespace.
func (i installations) has(namespace string) bool {
	for at, other := range i.leases {
		if i.first(at, other) && i.in(other, namespace) {
			return true
		}
	}
	return false
}

// selects reports whether an installation chooses its namespaces by labels.
func (i installations) selects() bool {
	for _, other := range i.leases {
		if other.scope.Selector != nil {
			return true
		}
	}
	return false
}

// atWork returns the installations that go before ours.
func (i installations) atWork(now time.Time) (all []beginning) {
	for namespace, other := range i.leases {
		if i.first(namespace, other) {
			all = append(all, i.begins(namespace, other, now))
		}
	}
	return all
}

func (i installations) begins(at string, other installation, now time.Time) beginning {
	return beginning{
		why: fmt.Sprintf(
			"installation %s of Millwright, in namespace %s, is at work in %s: %s renewed Lease %s at %s; "+
				"this installation leaves the objects there alone until the Lease is deleted",
			other.name, at, other.scope, other.by, v1alpha1.LeaseWorkers, phrase.Clock(other.renewed, now),
		),
		in: func(namespace string) bool { return i.in(other, namespace) },
	}
}
