package cache

import "slices"

// Scope says which namespaces of the control cluster are Millwright's. In the others it starts no run, and writes
// nothing. It also reads the Machines of the others, because they may claim a node or an instance: docs/ownership.md.
// The zero Scope has all namespaces.
type Scope struct {
	Only   []string // names; empty: all
	Except []string // names that are left out, also if Only has them
}

// Has reports whether a namespace is Millwright's.
func (s Scope) Has(namespace string) bool {
	return (len(s.Only) == 0 || slices.Contains(s.Only, namespace)) && !slices.Contains(s.Except, namespace)
}
