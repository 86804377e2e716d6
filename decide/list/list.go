// Package list provides operations on slices that the standard library lacks, and sort orders that several packages
// use.
package list

import (
	"cmp"
	"slices"
	"time"
)

// Filter returns the items for which holds is true, as a new slice; nil if no item fits.
func Filter[T any](items []T, holds func(T) bool) []T {
	var at []int // indexes of the items, so that large items are copied only once
	for i, item := range items {
		if holds(item) {
			at = append(at, i)
		}
	}
	return Map(at, func(i int) T { return items[i] })
}

// CountWhere returns the number of items for which holds is true.
func CountWhere[T any](items []T, holds func(T) bool) int {
	n := 0
	for _, item := range items {
		if holds(item) {
			n++
		}
	}
	return n
}

// FindFirst returns the first item for which holds is true, or the zero value.
func FindFirst[T any](items []T, holds func(T) bool) T {
	if i := slices.IndexFunc(items, holds); i >= 0 {
		return items[i]
	}
	return *new(T)
}

// SortedCopy returns a sorted copy of items.
func SortedCopy[T any](items []T, by func(a, b T) int) []T {
	items = slices.Clone(items)
	slices.SortFunc(items, by)
	return items
}

// SortedCopyOfLargeItems is SortedCopy for items of hundreds of bytes: it compares and moves pointers instead of
// copies. The function by must not change the items.
func SortedCopyOfLargeItems[T any](items []T, by func(a, b *T) int) []T {
	pointers := make([]*T, len(items))
	for i := range items {
		pointers[i] = &items[i]
	}
	slices.SortFunc(pointers, by)
	return Map(pointers, func(p *T) T { return *p })
}

// Map returns the result of convert for each item; nil for an empty slice.
func Map[T, R any](items []T, convert func(T) R) []R {
	if len(items) == 0 {
		return nil
	}
	results := make([]R, len(items))
	for i, item := range items {
		results[i] = convert(item)
	}
	return results
}

// KeySet returns the keys of the items as a set, for long lists.
func KeySet[T any, K comparable](items []T, key func(T) K) map[K]bool {
	set := make(map[K]bool, len(items))
	for _, item := range items {
		set[key(item)] = true
	}
	return set
}

// Identity returns its argument. Identity is the key function of KeySet for a list of keys.
func Identity[T any](item T) T { return item }

// ValueIf returns value if holds is true, and the zero value otherwise. Callers pass the result to cmp.Or as one of
// several alternatives.
func ValueIf[T any](holds bool, value T) T {
	if !holds {
		return *new(T)
	}
	return value
}

// CompareFalseFirst compares two booleans: false sorts before true.
func CompareFalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// CompareTimesZeroLast compares two times: earlier times sort first, the zero time last.
func CompareTimesZeroLast(a, b time.Time) int {
	return cmp.Or(CompareFalseFirst(a.IsZero(), b.IsZero()), a.Compare(b))
}
