package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// candidates returns the former sets with machines that an extension may update in place: those of another template. If
// a former set has the present template, all its machines are to be replaced.
func (p *planner) candidates() []*setPlan {
	if !p.o.ClusterAPI.Extension || p.o.Strategy != RollingUpdate || p.current == nil || p.current.size >= p.goal() {
		return nil
	}
	return list.Where(p.old(), func(set *setPlan) bool { return !set.ClusterAPI.Twin && (set.size > 0 || set.active > 0) })
}

// goal returns how many new machines the rollout step wants.
func (p *planner) goal() int { return min(p.target, p.o.Replicas) }

// places returns how many machines may still move to the current set: as many as the rollout step wants, without those
// that are to move already.
func (p *planner) places() int {
	return p.goal() - p.current.size - sum(p.old(), func(set *setPlan) int {
		if set.transfer.To == "" {
			return 0
		}
		return max(set.active-set.size, 0)
	})
}

// answered reports whether an extension has said whether the machines of a set can be brought to the current set.
func (p *planner) answered(set *setPlan) bool {
	return set.ClusterAPI.Answer.Set == p.current.UID && p.current.UID != "" && !set.ClusterAPI.Answer.Failed
}

// waitsForAnswer reports whether an extension has to answer first. While it gives no answer, former sets follow a
// changed number of machines.
func (p *planner) waitsForAnswer() bool {
	all := p.candidates()
	if !slices.ContainsFunc(all, func(set *setPlan) bool { return !p.answered(set) }) {
		p.directTransfers(all)
		return false
	}
	if p.current.transfer.From == "" { // otherwise machines may be on their way to it
		p.directTransfers(nil)
	}
	if why := p.noAnswer(); why != "" {
		p.followByOld()
		p.why = why
	}
	return true
}

// noAnswer says of which set an extension gave no answer, and why; empty: it answered, or was not asked yet.
func (p *planner) noAnswer() string {
	for _, set := range p.candidates() {
		if a := set.ClusterAPI.Answer; a.Failed && a.Set == p.current.UID {
			return fmt.Sprintf(
				"no runtime extension says whether the machines of set %s can be updated in place: %s",
				set.Name,
				phrase.Cut(a.Why, maxReason),
			)
		}
	}
	return ""
}

// followByOld is followSize, except that the newest former set grows.
func (p *planner) followByOld() {
	if missing := p.missing(); missing > 0 {
		p.enlarge(newest(p.old()), missing)
		return
	}
	p.followSize()
}

// directTransfers makes each set whose machines can be updated in place hand its surplus over to the current set. A set
// that still has a surplus to delete begins after that: it was told to delete machines that are not available, and
// would hand over available ones.
func (p *planner) directTransfers(all []*setPlan) {
	for _, set := range p.sets {
		possible := slices.Contains(all, set) && set.ClusterAPI.Answer.Possible
		set.settling = possible && set.transfer.To == "" && !set.settled()
		if set.transfer.To = ""; possible && !set.settling {
			set.transfer.To, set.unhealthy = p.current.Name, 0 // it moves a machine with a node rather than one without
		}
	}
	p.connectTransfers()
}

// settled reports whether a set has no surplus, and its workflow has acted on its size.
func (set *setPlan) settled() bool { return set.active <= set.size && set.ActedOn == set.Replicas }

// keepTransfers lets only the sets whose surplus is on its way hand machines over. Any other surplus is deleted.
func (p *planner) keepTransfers() {
	for _, set := range p.sets {
		if set.settled() {
			set.transfer.To = ""
		}
	}
	p.connectTransfers()
}

// connectTransfers writes the names of the sets that hand machines over into the sets that get them.
func (p *planner) connectTransfers() {
	for _, set := range p.sets {
		from := list.Map(
			list.Where(p.sets, func(giver *setPlan) bool { return giver.transfer.To == set.Name }),
			func(giver *setPlan) string { return giver.Name },
		)
		slices.Sort(from)
		set.transfer.From = strings.Join(from, ",")
	}
}

// missing returns how many machines are wanted in addition to those that exist, are about to be created, or are on
// their way between sets. Below zero: there are too many.
func (p *planner) missing() int { return p.o.Replicas - sum(p.sets, size) - p.moving() }

// moving returns how many machines are on their way between sets, so that no size counts them.
func (p *planner) moving() int {
	return sum(p.sets, func(set *setPlan) int {
		n := max(set.active-set.size, 0)
		if set.transfer.To == "" {
			n = min(n, list.Count(set.Machines, func(m Member) bool { return m.ClusterAPI.Unacknowledged && !m.Deleting }))
		}
		return n
	})
}

// transfers reports whether a former set hands machines over to the current one, or is about to.
func (p *planner) transfers() bool {
	return p.current.transfer.From != "" || slices.ContainsFunc(p.sets, func(set *setPlan) bool { return set.settling })
}

// ask asks about the sets for which an extension has not answered yet, and again, after AskAgain, about those for which
// it gave no answer.
func (p *planner) ask(d *Decision) {
	if p.o.Stopped() != "" || p.current == nil || p.current.UID == "" {
		return
	}
	for _, set := range p.candidates() {
		switch {
		case p.answered(set):
		case set.ClusterAPI.Answer.Set == p.current.UID && p.o.Now.Before(set.ClusterAPI.Answer.At.Add(AskAgain)):
			d.soonest(set.ClusterAPI.Answer.At.Add(AskAgain))
		default:
			add(&d.Ask, set.target("the template is new"))
		}
	}
}

// soonest moves Recheck to a time if that is earlier. A zero time changes nothing.
func (d *Decision) soonest(at time.Time) {
	if !at.IsZero() && (d.Recheck.IsZero() || at.Before(d.Recheck)) {
		d.Recheck = at
	}
}

// lendOne adds one new machine if the surge allows it and nothing else is in progress: then a machine can be updated in
// place without too few being available. Source: Cluster API.
func (p *planner) lendOne() {
	busy := func(set *setPlan) bool {
		return set.size != set.active || set.terminating > 0 || set.ActedOn != set.size || set.updating > 0
	}
	if !p.transfers() || !p.quiet() || slices.ContainsFunc(p.sets, busy) || p.current.available != p.current.size {
		return
	}
	p.grow(min(p.surge, 1))
}

// acknowledge makes the size of each set count the machines that were moved to it to be updated in place, so that their
// updates may begin. A former set counts them, too, because the template may have changed since. At most MaxBatch
// machines whose updates have not begun are counted, because an annotation names them.
func (p *planner) acknowledge() {
	for _, set := range p.sets {
		counted := list.Where(set.Machines, func(m Member) bool { return m.ClusterAPI.Moved && !m.ClusterAPI.Unacknowledged })
		fresh := list.Where(set.Machines, func(m Member) bool { return m.ClusterAPI.Unacknowledged && !m.Deleting })
		fresh = fresh[:min(len(fresh), max(MaxBatch-len(counted), 0))]
		size := set.size + min(len(fresh), max(set.active-set.size, 0))
		if set.raise(size-set.size, "machines that are updated in place have moved to it"); set.size >= size {
			counted = append(counted, fresh...)
		}
		names := list.Map(counted, func(m Member) string { return m.Name })
		slices.Sort(names)
		set.transfer.Acknowledged = strings.Join(names, ",")
	}
}

// receiverFirst puts the set that gets machines before the sets that hand them over, because those read its
// annotations.
func receiverFirst(resizes []Resize) {
	slices.SortStableFunc(
		resizes,
		func(a, b Resize) int { return list.FalseFirst(a.Transfer.From == "", b.Transfer.From == "") },
	)
}
