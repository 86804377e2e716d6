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
	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// NamespaceScope defines the namespaces of the control cluster that belong to Millwright. In other namespaces
// Millwright starts no workflow and writes nothing. Millwright also reads the Machines of other namespaces, because
// these Machines may claim a node or an instance: docs/ownership.md. The zero NamespaceScope contains all namespaces.
type NamespaceScope struct {
	OnlyNamespaces   []string        // names of namespaces; empty: all namespaces
	ExceptNamespaces []string        // excluded namespaces, even if OnlyNamespaces names them
	Selector         labels.Selector // selects namespaces by labels; nil: all namespaces
}

// ContainsNamespace reports whether a namespace with these labels belongs to Millwright. Nil labels are unknown labels:
// a Selector does not match them.
func (s NamespaceScope) ContainsNamespace(namespace string, of labels.Labels) bool {
	return (len(s.OnlyNamespaces) == 0 || slices.Contains(s.OnlyNamespaces, namespace)) &&
		!slices.Contains(s.ExceptNamespaces, namespace) &&
		(s.Selector == nil || of != nil && s.Selector.Matches(of))
}

// String describes the namespaces of the scope, as the end of a sentence.
func (s NamespaceScope) String() string {
	text := "all namespaces"
	if len(s.OnlyNamespaces) > 0 {
		text = "namespaces " + strings.Join(s.OnlyNamespaces, ", ")
	}
	if s.Selector != nil {
		text += " with labels " + s.Selector.String()
	}
	if len(s.ExceptNamespaces) > 0 {
		text += " except " + strings.Join(s.ExceptNamespaces, ", ")
	}
	return text
}

// ScopeOfLease returns the NamespaceScope in the Lease of an installation's workers. If the Lease has no scope, as in
// an earlier version, or the scope does not parse, ScopeOfLease returns all namespaces.
func ScopeOfLease(workers *coordinationv1.Lease) (s NamespaceScope) {
	if json.Unmarshal([]byte(workers.Annotations[v1alpha1.AnnotationScope]), &s) != nil {
		return NamespaceScope{}
	}
	return s
}

// scopeJSON is the JSON form of a NamespaceScope in the workers' Lease.
type scopeJSON struct {
	IncludedNamespaces []string `json:"namespaces,omitempty"`
	ExcludedNamespaces []string `json:"exceptNamespaces,omitempty"`
	Selector           string   `json:"namespaceSelector,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s NamespaceScope) MarshalJSON() ([]byte, error) {
	text := scopeJSON{IncludedNamespaces: s.OnlyNamespaces, ExcludedNamespaces: s.ExceptNamespaces}
	if s.Selector != nil {
		text.Selector = s.Selector.String()
	}
	return json.Marshal(text) //nolint:wrapcheck // Marshal cannot fail for strings
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *NamespaceScope) UnmarshalJSON(data []byte) error {
	var text scopeJSON
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("decode which namespaces are meant: %w", err)
	}
	*s = NamespaceScope{OnlyNamespaces: text.IncludedNamespaces, ExceptNamespaces: text.ExcludedNamespaces}
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

// installations contains the workers' Leases of all installations of Millwright in the control cluster. If two
// installations claim a namespace, the installation with the older Lease owns the namespace: a new installation on
// trial does not stop the old installation. The older installation keeps its namespaces until its Lease is deleted or
// released, even while the installation is down, because its instances carry its name.
type installations struct {
	ownName           string                  // name of this installation
	byLeaseNamespace  map[string]installation // keyed by the Lease's namespace
	labelsOfNamespace func(namespace string) labels.Labels
}

// installation is the last observed state of the Lease of an installation's workers.
type installation struct {
	name       string
	scope      NamespaceScope
	scopeText  string // the scope as text in the Lease
	createdAt  time.Time
	holder     string
	renewedAt  time.Time
	isReported bool // OnActiveController's callback got this installation with this scope
}

// recordLease stores a Lease. recordLease returns the installations that have priority over this installation, unless
// an earlier call has returned them with their present scope. A Lease of another installation can add only that
// installation to the result. A Lease of this installation's own workers can add any installation.
func (i installations) recordLease(lease *coordinationv1.Lease, now time.Time) (began []activeController) {
	next := installation{
		name: lease.Annotations[v1alpha1.AnnotationInstallation], createdAt: lease.CreationTimestamp.Time,
		scopeText: lease.Annotations[v1alpha1.AnnotationScope], scope: ScopeOfLease(lease),
		holder: *lease.Spec.HolderIdentity, renewedAt: lease.Spec.RenewTime.Time,
	}
	last := i.byLeaseNamespace[lease.Namespace]
	next.isReported = last.isReported && last.scopeText == next.scopeText
	i.byLeaseNamespace[lease.Namespace] = next
	for namespace, other := range i.byLeaseNamespace {
		if namespace != lease.Namespace && next.name != i.ownName {
			continue
		}
		if first := i.otherHasPriority(namespace, other); first != other.isReported {
			if other.isReported = first; first {
				began = append(began, i.describeInstallation(namespace, other, now))
			}
			i.byLeaseNamespace[namespace] = other
		}
	}
	return began
}

// forgetLease removes a Lease, and reports whether the Lease was stored.
func (i installations) forgetLease(lease *coordinationv1.Lease) bool {
	_, known := i.byLeaseNamespace[lease.Namespace]
	delete(i.byLeaseNamespace, lease.Namespace)
	return known
}

// otherHasPriority reports whether another installation has priority over this installation. If two Leases have the
// same creation second, their namespaces decide. A Lease without an installation name belongs to an earlier version of
// this installation.
func (i installations) otherHasPriority(namespace string, other installation) bool {
	if other.name == "" || other.name == i.ownName {
		return false
	}
	for at, own := range i.byLeaseNamespace {
		if own.name == i.ownName && (own.createdAt.Before(other.createdAt) ||
			own.createdAt.Equal(other.createdAt) && at < namespace) {
			return false
		}
	}
	return true
}

// claimsNamespace reports whether an installation claims a namespace. While the labels of the namespace are unknown,
// only its name decides.
func (i installations) claimsNamespace(other installation, namespace string) bool {
	of, scope := i.labelsOfNamespace(namespace), other.scope
	if of == nil {
		scope.Selector = nil
	}
	return scope.ContainsNamespace(namespace, of)
}

// isClaimedByOther reports whether an installation with priority over this installation claims a namespace.
func (i installations) isClaimedByOther(namespace string) bool {
	for at, other := range i.byLeaseNamespace {
		if i.otherHasPriority(at, other) && i.claimsNamespace(other, namespace) {
			return true
		}
	}
	return false
}

// usesSelectors reports whether any installation selects its namespaces by labels.
func (i installations) usesSelectors() bool {
	for _, other := range i.byLeaseNamespace {
		if other.scope.Selector != nil {
			return true
		}
	}
	return false
}

// activeControllers returns the installations that have priority over this installation.
func (i installations) activeControllers(now time.Time) (all []activeController) {
	for namespace, other := range i.byLeaseNamespace {
		if i.otherHasPriority(namespace, other) {
			all = append(all, i.describeInstallation(namespace, other, now))
		}
	}
	return all
}

func (i installations) describeInstallation(at string, other installation, now time.Time) activeController {
	return activeController{
		reason: vocabulary.ReasonAnotherController,
		message: fmt.Sprintf(
			"installation %s of Millwright, in namespace %s, is at work in %s: %s renewed Lease %s at %s; "+
				"this installation leaves the objects there alone until the Lease is deleted",
			other.name, at, other.scope, other.holder, v1alpha1.LeaseWorkers, phrase.ClockText(other.renewedAt, now),
		),
		actsInNamespace: func(namespace string) bool { return i.claimsNamespace(other, namespace) },
	}
}
