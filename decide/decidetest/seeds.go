// Package decidetest provides helpers that the tests of several decision packages share.
package decidetest

import "testing"

// RandomRunCount returns how many random runs a test makes: all or, with -short, all/20 but at least one.
func RandomRunCount(all int) int {
	if testing.Short() {
		return max(1, all/20)
	}
	return all
}
