// Package decidetest has what the tests of decisions share.
package decidetest

import "testing"

// Seeds returns how many random worlds a test tries: all, or with -short a twentieth of them, and at least one.
func Seeds(all int) int {
	if testing.Short() {
		return max(1, all/20)
	}
	return all
}
