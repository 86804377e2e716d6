package replace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
)

// domainState is the state of one failure domain.
type domainState struct {
	activeMachineCount        int      // number of machines that are not being deleted
	machineNamesInReplacement []string // replacements in progress, as the names of the machines
	waitingMachineCount       int      // number of due machines whose replacement was not granted
	budget                    int      // replacement budget of the domain
}

// grantReplacementsWithinBudget grants replacements to the waiting machines in their order, within the budget of each
// domain. grantReplacementsWithinBudget returns one sentence for each grant.
func (d *Decision) grantReplacementsWithinBudget(o Facts, r grantReview, waiting []Machine) (steps []string) {
	domains := domainsByName(o, r, waiting)
	for _, m := range waiting {
		in := domains[m.Domain]
		if len(in.machineNamesInReplacement) >= in.budget || len(d.UIDsToAnnotate) >= MaxBatchSize ||
			len(d.Grants) >= MaxGrants {
			in.waitingMachineCount++
			continue
		}
		in.machineNamesInReplacement = append(in.machineNamesInReplacement, "machine "+m.Name)
		d.Grants, d.UIDsToAnnotate = append(d.Grants, newGrant(m, o.Now)), append(d.UIDsToAnnotate, m.UID)
		steps = append(steps, fmt.Sprintf("grant replacement of machine %s: %s (%d of %d%s)",
			m.Name, cmp.Or(m.Reason, "due"), len(in.machineNamesInReplacement), in.budget, zonePhrase(" in", m.Domain)))
	}
	var holds []string
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		switch in := domains[name]; {
		case in.waitingMachineCount == 0:
		case len(d.Grants) >= MaxGrants && len(in.machineNamesInReplacement) < in.budget:
			holds = append(
				holds,
				fmt.Sprintf(
					"%s%s; %d replacements are in progress, and a deployment may have no more",
					dueMachinesSentence(in.waitingMachineCount),
					zonePhrase(" in", name),
					len(d.Grants),
				),
			)
		default:
			holds = append(holds, holdReason(name, *in, o.Budget))
		}
	}
	d.HoldReason = phrase.JoinNames(holds, maxHoldReasons, "; ")
	return steps
}

// grantReplacementsRegardlessOfBudget grants the replacement of each waiting machine that is replaced regardless of the
// budget and the breaker. If the annotation of an earlier grant was not written, grantReplacementsRegardlessOfBudget
// annotates the machine now.
func (d *Decision) grantReplacementsRegardlessOfBudget(o Facts, r *grantReview, waiting []Machine) (steps []string) {
	free := map[string]bool{} // UIDs of machines that are replaced regardless of the budget and the breaker
	for _, m := range o.Machines {
		free[m.UID] = m.BypassesBudget
	}
	again := list.Filter(r.unannotatedUIDs, func(uid string) bool { return free[uid] })
	d.UIDsToAnnotate = append(d.UIDsToAnnotate, again[:min(len(again), MaxBatchSize)]...)
	r.unannotatedUIDs = slices.DeleteFunc(r.unannotatedUIDs, func(uid string) bool { return free[uid] })
	waiting = list.Filter(waiting, func(m Machine) bool { return m.BypassesBudget })
	for _, m := range waiting[:max(0, min(len(waiting), MaxBatchSize-len(d.UIDsToAnnotate), MaxGrants-len(d.Grants)))] {
		d.Grants, d.UIDsToAnnotate = append(d.Grants, newGrant(m, o.Now)), append(d.UIDsToAnnotate, m.UID)
		steps = append(
			steps,
			fmt.Sprintf("grant replacement of machine %s: %s, beside the budget", m.Name, cmp.Or(m.Reason, "due")),
		)
	}
	return steps
}

// domainsByName returns the failure domains by name. Only domains with waiting machines have a budget.
func domainsByName(o Facts, r grantReview, waiting []Machine) map[string]*domainState {
	domains := map[string]*domainState{}
	of := func(name string) *domainState {
		if domains[name] == nil {
			domains[name] = &domainState{}
		}
		return domains[name]
	}
	for _, m := range o.Machines {
		if !m.Deleting {
			of(m.Domain).activeMachineCount++
		}
	}
	for _, g := range r.remainingGrants {
		d := of(g.Domain)
		d.machineNamesInReplacement = append(
			d.machineNamesInReplacement,
			phrase.TextIf(r.unreplacedUIDs[g.MachineUID], "the substitute of ")+"machine "+g.MachineName,
		)
	}
	for _, m := range waiting {
		of(m.Domain).budget = o.Budget.ScaledValue(of(m.Domain).activeMachineCount, true)
	}
	return domains
}

// minDeadNodes is the smallest number of dead nodes that can open the breaker. Fewer dead nodes are replaced within the
// budget. Source of minDeadNodes: kube-controller-manager treats a zone as unhealthy only if at least 3 of its nodes
// are not Ready (--unhealthy-zone-threshold).
const minDeadNodes = 3

// BreakerState reports whether the breaker is open. The breaker is open if at least minDeadNodes nodes, and at least
// half of all nodes, are dead or recovered within recoveryWindow. If so many nodes are dead at once, the machines are
// probably not the cause. The breaker is also open while the states of the nodes are not known. While the breaker is
// open, no machine is replaced, and why gives the reason in one sentence. until is when the breaker closes if nothing
// else changes; it is zero if nodes must recover first. BreakerState keeps no state, so an unstable API server has no
// later effect.
//
// Source of the share of one half: kube-controller-manager stops evictions from a small zone at 0.55
// (--unhealthy-zone-threshold). A replacement destroys more than an eviction, so the breaker opens at a smaller
// share.
func BreakerState(n NodeCounts, now time.Time) (open bool, why string, until time.Time) {
	if n.UnknownStatesReason != "" {
		return true, n.UnknownStatesReason + "; nothing is replaced until the states of the nodes are known", until
	}
	n = n.WithUncheckedNodesCounted()
	if isOutage(n.Dead, n.Joined) {
		return true, fmt.Sprintf(
			"%d of %d nodes look dead at once: that is more likely the API server or the network than the machines; nothing is replaced until most of them report again",
			n.Dead,
			n.Joined,
		) + phrase.TextIf(n.Lost > 0, "; %s", lostMachinesSentence(n)), until
	}
	recent := slices.DeleteFunc(
		slices.Clone(n.RecoveryTimes),
		func(at time.Time) bool { return now.Sub(at) >= recoveryWindow },
	)
	if len(recent) == 0 || !isOutage(n.Dead+len(recent), n.Joined) {
		return false, "", until
	}
	until = slices.MaxFunc(recent, time.Time.Compare).Add(recoveryWindow)
	return true, fmt.Sprintf(
		"most of the %d nodes looked dead at once, and began to report again only recently; nothing is replaced before %s, so that the others can recover",
		n.Joined,
		phrase.ClockText(until, now),
	), until
}

// UntrustedLossReason returns why the provider's report of missing instances is not trusted. The report is not
// trusted if it is about at least minDeadNodes machines, and at least half of all machines. If the reason is empty, the
// report is trusted, even while the nodes of other machines look dead.
func UntrustedLossReason(n NodeCounts) string {
	return phrase.TextIf(isOutage(n.Lost, n.Joined), "%s", lostMachinesSentence(n))
}

func lostMachinesSentence(n NodeCounts) string {
	return fmt.Sprintf(
		"the provider says of %d of %d machines that it has no instance: if that is true, and neither its account nor the cluster name is wrong, delete these Machines with the label %s",
		n.Lost,
		n.Joined,
		vocabulary.LabelForceDeletion,
	)
}

func isOutage(dead, joined int) bool { return dead >= minDeadNodes && 2*dead >= joined }

// Limits of a decision's texts. Source of the limits: a decision may have 20 sentences, few deployments have more than
// five zones, and a sentence with more than five names is hard to read.
const (
	maxStepSentences    = 15
	maxHoldReasons      = 5
	maxNamesPerSentence = 5
)

// holdReason returns why the due machines of a domain have no grant.
func holdReason(name string, d domainState, b rollout.IntOrPercent) string {
	budget := dueMachinesSentence(d.waitingMachineCount) + "; the replacement budget" + zonePhrase(" of", name)
	switch amount := phrase.TextIf(b.IsPercent, "%d%%: ", b.Value) + strconv.Itoa(d.budget); {
	case d.budget == 0:
		return budget + " is 0: none is replaced"
	case len(d.machineNamesInReplacement) >= d.budget:
		return fmt.Sprintf(
			"%s (%s) is used by %s",
			budget,
			amount,
			phrase.JoinNames(d.machineNamesInReplacement, maxNamesPerSentence, ", "),
		)
	default:
		return fmt.Sprintf(
			"%s%s; at most %d are granted at once, the others follow",
			dueMachinesSentence(d.waitingMachineCount),
			zonePhrase(" in", name),
			MaxBatchSize,
		)
	}
}

func dueMachinesSentence(machines int) string {
	return phrase.CountText(machines, "machine") + phrase.SingularOrPlural(machines, " is due", " are due")
}

func zonePhrase(preposition, name string) string {
	return phrase.TextIf(name != "", "%s zone %s", preposition, name)
}

// grantReview is the result of the review of the recorded grants.
type grantReview struct {
	remainingGrants []ReplacementGrant // recorded grants that remain
	// UIDs of granted machines that lack the annotation, because a write was interrupted
	unannotatedUIDs []string
	unreplacedUIDs  map[string]bool // UIDs of machines that are gone and whose replacement machine has not joined
	stepSentences   []string
}

func (r *grantReview) addStepSentence(format string, args ...any) {
	r.stepSentences = append(r.stepSentences, fmt.Sprintf(format, args...))
}

// reviewGrants ends complete grants, withdraws grants that are no longer needed, and adds grants for machines that a
// person annotated.
func reviewGrants(o Facts) grantReview {
	r := grantReview{unreplacedUIDs: map[string]bool{}}
	var gone []ReplacementGrant
	at := make(map[string]int, len(o.Machines)) // index in o.Machines, by UID
	for i, m := range o.Machines {
		at[m.UID] = i
	}
	for _, g := range o.Grants {
		if i, exists := at[g.MachineUID]; exists {
			r.reviewGrantOfExistingMachine(g, o.Machines[i])
		} else {
			gone = append(gone, g)
		}
	}
	r.reviewGrantsOfGoneMachines(gone, o)
	known := machineUIDs(o.Grants)
	for _, m := range o.Machines {
		if m.Granted && !m.Preserved && !known[m.UID] {
			g := newGrant(m, o.Now)
			g.Reason = vocabulary.ReasonGrantedByPerson
			r.remainingGrants = append(r.remainingGrants, g)
			r.addStepSentence("record machine %s: it was granted by a person", m.Name)
		}
	}
	return r
}

// reviewGrantOfExistingMachine decides about a grant whose machine still exists. An annotation is never removed,
// because the machine may have acted on the annotation.
func (r *grantReview) reviewGrantOfExistingMachine(g ReplacementGrant, m Machine) {
	switch marked := m.Deleting || m.Granted; {
	case m.Preserved && !m.Deleting:
		r.addStepSentence("release the grant of machine %s: it is preserved", m.Name)
		return
	case !marked && !m.Due && !m.Failed:
		r.addStepSentence("withdraw the grant of machine %s: it recovered", m.Name)
		return
	case !marked:
		r.unannotatedUIDs = append(r.unannotatedUIDs, g.MachineUID)
	}
	r.remainingGrants = append(r.remainingGrants, g)
}

// reviewGrantsOfGoneMachines decides about the grants whose machine is gone. The grant of a machine that is gone waits
// for a new machine in the same domain. The new machine was created after the grant and has not joined, or does not
// exist yet. The newest grant chooses first, because the fewest machines are newer than this grant. In this order, no
// grant takes the only possible machine of another grant, and a repeated review keeps the same grants. The zone of a
// missing machine is not known yet, so grants of every domain may wait for it.
func (r *grantReview) reviewGrantsOfGoneMachines(gone []ReplacementGrant, o Facts) {
	// `making` holds the machines that may still join. Due machines are not in `making`, because they need a grant
	// themselves. If an earlier grant waited for a due machine, a budget of one would never become free.
	making := map[string][]time.Time{} // creation times by domain
	for _, m := range o.Machines {
		if !m.Joined && !m.Failed && !m.Deleting && !m.Due && !m.Granted && !m.Preserved {
			making[m.Domain] = append(making[m.Domain], m.CreatedAt)
		}
	}
	for _, created := range making {
		slices.SortFunc(created, time.Time.Compare)
	}
	await := map[string]int{} // number of grants that wait for a machine that does not exist yet, by domain
	for _, g := range slices.Backward(gone) {
		last := len(making[g.Domain]) - 1
		switch {
		case last >= 0 && !making[g.Domain][last].Before(g.GrantedAt.Add(-maxClockSkew)):
			making[g.Domain] = making[g.Domain][:last]
		case await[g.Domain] < o.MissingMachineCount:
			await[g.Domain]++
		default:
			r.addStepSentence("replacement of machine %s is complete", g.MachineName)
			continue
		}
		r.remainingGrants = append(r.remainingGrants, g)
		r.unreplacedUIDs[g.MachineUID] = true
	}
}
