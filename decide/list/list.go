// Package list has the operations on lists that the standard library lacks, and orders that several packages use.
package list

import (
	"cmp"
	"slices"
	"time"
)

// Where returns the items for which holds is true, as a new list; nil if there are none.
func Where[T any](items []T, holds func(T) bool) []T {
	var kept []T
	for _, item := range items {
		if holds(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// Count returns for how many items holds is true.
func Count[T any](items []T, holds func(T) bool) int {
	n := 0
	for _, item := range items {
		if holds(item) {
			n++
		}
	}
	return n
}

// Find returns the first item for which holds is true; the zero value if there is none.
func Find[T any](items []T, holds func(T) bool) T {
	if i := slices.IndexFunc(items, holds); i >= 0 {
		return items[i]
	}
	return *new(T)
}

// Sorted returns a sorted copy.
func Sorted[T any](items []T, by func(a, b T) int) []T {
	items = slices.Clone(items)
	slices.SortFunc(items, by)
	return items
}

// Map returns the result of convert for each item; nil if there are none.
func Map[T, R any](items []T, convert func(T) R) []R {
	var results []R
	for _, item := range items {
		results = append(results, convert(item))
	}
	return results
}

// When returns value if holds is true, and the zero value otherwise. It is for lists of alternatives in cmp.Or.
func When[T any](holds bool, value T) T {
	if !holds {
		return *new(T)
	}
	return value
}

// FalseFirst compares two booleans: false comes first.
func FalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// KnownFirst compares two times: the earlier comes first, and the zero time last.
func KnownFirst(a, b time.Time) int { return cmp.Or(FalseFirst(a.IsZero(), b.IsZero()), a.Compare(b)) }
