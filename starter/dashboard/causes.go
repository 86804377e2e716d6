package dashboard

import (
	"slices"
	"time"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	explained "millwright/decide/explain"
	"millwright/observe/cache"
	"millwright/starter/explain"
)

// cause is one reason for which pools or machines stand still.
type cause = explain.Cause[*pool]

// ownWaits returns what the pool itself waits for, without its machines.
func (p *pool) ownWaits() []v1alpha1.Wait {
	if !p.isBlockedItself() {
		return nil
	}
	return explain.OwnWaitsOf(p.operation, func(reason string) bool {
		return slices.ContainsFunc(p.machines, func(m *machineRow) bool {
			return m.isBlocked() && slices.ContainsFunc(m.currentOperation.BlockedBy, func(blocker string) bool {
				return explained.ReasonOfBlocker(blocker) == reason
			})
		})
	})
}

// isBlockedItself reports whether the status of the pool names a blocker. A sentence that is only the cause of the
// present step means that nothing blocks the pool any more, although the step still names its blockers.
func (p *pool) isBlockedItself() bool {
	return isBlocked(p.operation) && (p.operation.WaitsFor == "" || p.operation.WaitsFor != p.operation.Cause)
}

// isPlanned reports whether a wait is one that the policy of a rollout demands, and whose time is not over.
func isPlanned(w v1alpha1.Wait, now time.Time) bool {
	at := cache.TimeOrZero(w.NextAt)
	return isPlannedBlocker(w.BlockedBy) && (at.IsZero() || at.After(now))
}

// isPlannedBlocker reports whether only the time of a step or the turn of a deployment is waited for.
func isPlannedBlocker(blockers []string) bool {
	return len(blockers) > 0 && !slices.ContainsFunc(blockers, func(name string) bool {
		return name != vocabulary.BlockedByRolloutStep && name != vocabulary.BlockedByTurn
	})
}

// groupCauses returns the causes for which pools stand still. Waits that a policy demands are left out.
func groupCauses(pools []*pool, now time.Time) []*cause {
	var waits []explain.PoolWait[*pool]
	for _, p := range pools {
		for _, w := range p.waits {
			if !isPlanned(w, now) {
				waits = append(waits, explain.PoolWait[*pool]{Pool: p, Wait: w})
			}
		}
		for _, m := range p.machines {
			if m.isBlocked() {
				waits = append(waits, m.poolWaits()...)
			}
		}
	}
	return explain.GroupByCause(waits, now)
}

// poolWaits returns what the machine waits for.
func (m *machineRow) poolWaits() (waits []explain.PoolWait[*pool]) {
	for _, w := range explain.WaitsOf(m.currentOperation) {
		waits = append(waits, explain.PoolWait[*pool]{Pool: m.pool, Machine: m.id.Name, Wait: w})
	}
	return waits
}
