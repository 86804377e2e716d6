package replace

import (
	"fmt"
	"maps"
	"slices"
)

// limit is the budget of a domain with so many machines.
func (b Budget) limit(machines int) int {
	switch {
	case b.Value <= 0:
		return 0
	case b.Percent:
		return (b.Value*machines + 99) / 100
	default:
		return b.Value
	}
}

// domain is what one failure domain has and wants.
type domain struct {
	live    int      // machines that are not being deleted
	users   []string // who uses its budget
	waiting int      // machines that are due and were not granted
	limit   int
}

// granting is what was granted, and why no more was.
type granting struct {
	grants []Grant
	steps  []string
	hold   string
}

// grant gives what is left of each budget to the machines that wait, in their order, at most so many.
func grant(o Observed, r records, waiting []Machine, most int) granting {
	domains := inDomains(o, r, waiting)
	var result granting
	for _, m := range waiting {
		d := domains[m.Domain]
		if len(d.users) >= d.limit || len(result.grants) >= most {
			d.waiting++
			continue
		}
		d.users = append(d.users, "machine "+m.Name)
		result.grants = append(result.grants, newGrant(m, o.Now))
		result.steps = append(result.steps, granted(m, len(d.users), d.limit))
	}
	var holds []string
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		if d := domains[name]; d.waiting > 0 {
			holds = append(holds, held(name, *d, o.Budget))
		}
	}
	result.hold = bounded(holds, maxHolds, "; ")
	return result
}

func inDomains(o Observed, r records, waiting []Machine) map[string]*domain {
	domains := map[string]*domain{}
	of := func(name string) *domain {
		if domains[name] == nil {
			domains[name] = &domain{}
		}
		return domains[name]
	}
	for _, m := range o.Machines {
		if !m.Deleting {
			of(m.Domain).live++
		}
	}
	for _, g := range r.grants {
		d := of(g.Domain)
		d.users = append(d.users, user(g, r.gone[g.UID]))
	}
	for _, m := range waiting {
		d := of(m.Domain)
		d.limit = o.Budget.limit(d.live)
	}
	return domains
}

func user(g Grant, gone bool) string {
	if gone {
		return fmt.Sprintf("the substitute of machine %s", g.Name)
	}
	return "machine " + g.Name
}
