// Package list does with lists what the standard library leaves to a loop, and puts things in orders that several rooms know. It decides
// nothing.
package list

import (
	"cmp"
	"slices"
	"time"
)

// Where returns the items that a condition holds for, as a list of its own; nil when there are none.
func Where[T any](items []T, holds func(T) bool) []T {
	var kept []T
	for _, item := range items {
		if holds(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// Count is for how many items a condition holds.
func Count[T any](items []T, holds func(T) bool) int {
	n := 0
	for _, item := range items {
		if holds(item) {
			n++
		}
	}
	return n
}

// Find returns the first item that a condition holds for; the zero value where there is none.
func Find[T any](items []T, holds func(T) bool) T {
	if i := slices.IndexFunc(items, holds); i >= 0 {
		return items[i]
	}
	return *new(T)
}

// Sorted returns a copy in an order.
func Sorted[T any](items []T, by func(a, b T) int) []T {
	items = slices.Clone(items)
	slices.SortFunc(items, by)
	return items
}

// FalseFirst compares two answers.
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

// KnownFirst compares two times: the earlier one comes first, one that is not known last.
func KnownFirst(a, b time.Time) int { return cmp.Or(FalseFirst(a.IsZero(), b.IsZero()), a.Compare(b)) }
