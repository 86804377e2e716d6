package replace

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of what one decision says. Source: a decision has room for 20 sentences; few deployments have more than five
// zones, and more than five names in a sentence are not read.
const (
	maxSteps = 15
	maxHolds = 5
	maxNames = 5
)

func granted(m Machine, used, limit int) string {
	return fmt.Sprintf("grant replacement of machine %s: %s (%d of %d%s)", m.Name, cmp.Or(m.Reason, "due"), used, limit, zone(" in", m.Domain))
}

// held says why the machines of a domain that were not granted have to wait.
func held(name string, d domain, b Budget) string {
	switch {
	case d.limit == 0:
		return fmt.Sprintf("%s; the replacement budget%s is 0: none is replaced", due(d.waiting), zone(" of", name))
	case len(d.users) >= d.limit:
		return fmt.Sprintf("%s; the replacement budget%s (%s) is used by %s", due(d.waiting), zone(" of", name), amount(b, d.limit), bounded(d.users, maxNames, ", "))
	default:
		return fmt.Sprintf("%s%s; at most %d are granted at once, the others follow", due(d.waiting), zone(" in", name), MaxBatch)
	}
}

func due(machines int) string {
	if machines == 1 {
		return "1 machine is due"
	}
	return fmt.Sprintf("%d machines are due", machines)
}

func amount(b Budget, limit int) string {
	if b.Percent {
		return fmt.Sprintf("%d%%: %d", b.Value, limit)
	}
	return strconv.Itoa(limit)
}

func zone(preposition, name string) string {
	if name == "" {
		return ""
	}
	return preposition + " zone " + name
}

// plan says what a decision does, in one line.
func plan(steps []string, hold string, inProgress int) string {
	if len(steps) == 0 && hold == "" {
		return fmt.Sprintf("no machine is due; %d replacements in progress", inProgress)
	}
	var parts []string
	if len(steps) > 0 {
		parts = append(parts, bounded(steps, maxSteps, "; "))
	}
	if hold != "" {
		parts = append(parts, "hold: "+hold)
	}
	return strings.Join(parts, "; ")
}

func bounded(items []string, most int, separator string) string {
	if len(items) <= most {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], separator), len(items)-most)
}
