package scale

import (
	"fmt"

	"millwright/decide/list"
)

// This file decides how many substitutes a set creates before it deletes the members that need a replacement.

// countSubstitutes returns how many machines the set has in excess of its size while members wait for their
// substitutes. A member that never joined serves nothing, so its deletion does not wait for a substitute. If another
// set creates the substitutes, the members are deleted first.
func countSubstitutes(o *planner, failed []Member, marked []markedMember) int {
	if o.Remediation.SubstitutesElsewhere != "" {
		return 0
	}
	joined := list.CountWhere(failed, func(m Member) bool { return m.Joined }) +
		list.CountWhere(marked, func(m markedMember) bool { return m.Joined && m.hasTurn })
	return min(o.Remediation.MaxSurge, joined)
}

// substitutePool holds the number of substitutes that are available and not used by a deletion yet.
type substitutePool struct {
	isUnlimited bool // members are deleted without a substitute
	free        int
}

// newSubstitutePool returns the pool for the members that are deleted as soon as their substitutes are available. Each
// other member that is not available may be a substitute: until it is available or gone, it does not count.
func newSubstitutePool(o *planner, leaving []Member) *substitutePool {
	if o.Remediation.MaxSurge <= 0 || o.Remediation.SubstitutesElsewhere != "" {
		return &substitutePool{isUnlimited: true}
	}
	joined := list.Filter(leaving, func(m Member) bool { return m.Joined })
	isLeaving := list.KeySet(joined, func(m Member) string { return m.UID })
	counts := func(m Member) bool {
		return !m.MovedForUpdate && (isLeaving[m.UID] || m.IsAvailable(o.Now, o.MinReadyDuration))
	}
	return &substitutePool{free: list.CountWhere(o.liveMembers, counts) - o.sizeWithoutSubstitutes()}
}

// take returns the members that may be deleted now, and the members that wait for a substitute.
func (p *substitutePool) take(members []Member) (now, waiting []Member) {
	for _, m := range members {
		switch {
		case p.isUnlimited || !m.Joined:
			now = append(now, m)
		case p.free > 0:
			now = append(now, m)
			p.free--
		default:
			waiting = append(waiting, m)
		}
	}
	return now, waiting
}

// substituteWaitMessages returns for each member that it waits for its substitute.
func substituteWaitMessages(o *planner, waiting []Member) []machineMessage {
	text := fmt.Sprintf(
		"Waiting until its substitute is available (spec.remediation.maxSurge of the RolloutPolicy is %d)",
		o.Remediation.MaxSurge,
	)
	return list.Map(waiting, func(m Member) machineMessage { return machineMessage{m.Name, text} })
}

// sizeWithoutSubstitutes returns the wanted number of machines in the set's spec.
func (o *planner) sizeWithoutSubstitutes() int { return o.Replicas - o.substituteCount }

// isFailedSubstitute reports whether a member may be a substitute that failed before it joined. Such a member is deleted
// without a grant of the deployment, because the grant for the member that waits covers its substitutes.
func (o *planner) isFailedSubstitute(m Member) bool {
	return o.Remediation.MaxSurge > 0 && m.isFailed() && !m.Joined && !m.isProtected() &&
		len(o.liveMembers) > o.sizeWithoutSubstitutes()
}
