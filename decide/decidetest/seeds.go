// Package decidetest provides helpers that the tests of several decision packages share.
package decidetest

import "testing"

// SeedCount returns the number of random runs of a test: all, or with -short all/20, at least one.
func SeedCount(all int) int {
	if testing.Short() {
		return max(1, all/20)
	}
	return all
}
