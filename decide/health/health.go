// Package health answers whether a node is well. The Machine's observation calls it on the conditions that it read; it
// knows no phases and no timeouts.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Condition is one condition of a node, as the API server returned it.
type Condition struct {
	Type    string
	Status  string // "True", "False" or "Unknown"
	Reason  string
	Message string
	Since   time.Time // lastTransitionTime
}

// Decide says whether a node with these conditions is healthy: it reports at least one condition, Ready is True, and none
// of the types in bad has a status other than False (so Unknown counts as bad, as in MCM). The sentence says why not;
// it is empty for a healthy node.
func Decide(conditions []Condition, bad []string) (healthy bool, why string) {
	var reasons []string
	ready := false
	for _, c := range conditions {
		switch {
		case isBad(c, bad):
			reasons = append(reasons, fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason))
		case c.Type == "Ready":
			ready = true
		}
	}
	if len(reasons) > 0 {
		slices.Sort(reasons)
		return false, strings.Join(reasons, ", ")
	}
	if !ready {
		return false, "no Ready condition reported yet"
	}
	return true, ""
}

// BadSince returns the moment from which these conditions have made the node unhealthy: the transition of the first that
// turned bad. It is zero when none is bad, or when none tells.
func BadSince(conditions []Condition, bad []string) time.Time {
	var since time.Time
	for _, c := range conditions {
		if isBad(c, bad) && !c.Since.IsZero() && (since.IsZero() || c.Since.Before(since)) {
			since = c.Since
		}
	}
	return since
}

func isBad(c Condition, bad []string) bool {
	if c.Type == "Ready" {
		return c.Status != "True"
	}
	return slices.Contains(bad, c.Type) && c.Status != "False"
}
