package rollout

import (
	"cmp"
	"strings"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// changeOwnership releases sets that the selector no longer matches, and adopts matching sets without a controller.
// Sets are released and adopted before the planner decides whether the template has a set.
func (p *planner) changeOwnership() Decision {
	const foreign, ours = "the selector does not match its labels", "the selector matches its labels, and it has no owner"
	adoptable := list.Filter(p.facts.Orphans, func(s Orphan) bool { return s.MatchesSelector && !s.Deleting })
	d := Decision{
		SetChanges: SetChanges{
			Release: targetsOfSets(list.Filter(p.sets, func(set *setPlan) bool { return set.isUnselected() }), foreign),
			Adopt: list.Map(
				adoptable,
				func(s Orphan) ObjectTarget {
					return ObjectTarget{Name: s.Name, UID: s.UID, Version: s.Version, Why: ours}
				},
			),
		},
	}
	d.limitLists()
	d.Why = strings.Join(phrase.NonEmptyTexts(
		phrase.TextIf(len(d.Release) > 0, "release %s: %s", phrase.CountText(len(d.Release), "set"), foreign),
		phrase.TextIf(len(d.Adopt) > 0, "adopt %s: %s", phrase.CountText(len(d.Adopt), "set"), ours),
	), "; ")
	return d
}

// maxReleasedSets is how many released sets may lack an owner before the deployment stops creating sets. Source: own
// choice, because a person may release one set on purpose.
const maxReleasedSets = 2

// creationBlocker returns the reason why no set is created for a template without a set; empty: a set is created.
func (o Facts) creationBlocker() string {
	leaving := list.FindFirst(o.Sets, func(s MachineSet) bool {
		return s.Current && s.Deleting && (s.Orphaning || s.HasFinalizer && len(s.Machines) == 0)
	})
	released := list.CountWhere(o.Orphans, func(s Orphan) bool { return s.Released && !s.Deleting })
	return cmp.Or(
		phrase.TextIf(
			leaving.Name != "",
			"set %s is being deleted and has let go of its machines: when it is gone, a new one takes them",
			leaving.Name,
		),
		phrase.TextIf(
			released >= maxReleasedSets,
			"%d sets that were released have no owner: something changes the labels of the sets that are created",
			released,
		),
	)
}
