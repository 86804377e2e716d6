package rollout

import (
	"cmp"
	"fmt"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Turns limits how many deployments of a policy are rolled out at a time. The zero value means that the deployments do
// not wait for each other.
type Turns struct {
	Policy        string // name of the policy
	MaxConcurrent int    // how many deployments are rolled out at a time; zero: any number
	// PauseBetween is the time after a rollout is complete during which no other rollout begins.
	PauseBetween time.Duration
	Siblings     []Sibling // the other deployments of the policy, in any order
}

// Sibling is another deployment to which the policy applies.
type Sibling struct {
	Name    string
	Earlier bool  // the sibling's turn is before the turn of the deployment
	Facts   Facts // facts without machines and without siblings
}

// Turn is the turn of a deployment. The zero value means that the deployment never had a turn.
type Turn struct {
	Since time.Time // when the deployment took its turn, in whole seconds
	Ended time.Time // when the rollout was complete, in whole seconds; zero: the deployment has its turn
}

// isHeld reports whether the deployment has its turn now.
func (t Turn) isHeld() bool { return !t.Since.IsZero() && t.Ended.IsZero() }

func (t Turn) equals(other Turn) bool {
	return t.Since.Equal(other.Since) && t.Ended.Equal(other.Ended)
}

// TurnWait says why a deployment does not begin its rollout.
type TurnWait struct {
	Sibling string    `json:",omitempty"` // name of the sibling that is first; empty: no sibling
	Until   time.Time `json:",omitzero"`  // time at which the wait ends if no object changes; zero: unknown
	Why     string
}

// needsTurn reports whether Millwright replaces machines for the rollout of the template. With OnDelete, people choose
// when machines are replaced. A pin returns the machines at once.
func (p *planner) needsTurn() bool {
	return p.facts.Strategy != OnDelete && !p.facts.Deleting && p.pin == nil && p.hasOldMachines()
}

// hasBegunRollout reports whether the rollout has changed machines, or has recorded that it changes them now.
func (p *planner) hasBegunRollout() bool {
	nonEmpty := list.CountWhere(p.sets, func(set *setPlan) bool {
		return max(set.Replicas, set.StatusMachineCount, set.activeMachineCount+set.terminatingMachineCount) > 0
	})
	r := p.facts.Progress
	recorded := r.Turn.isHeld() && p.templateSet != nil && !p.isNewAttempt() && r.Completed.IsZero()
	return nonEmpty > 1 || recorded
}

// cannotBeginRollout reports whether the rollout could not begin even if it were the deployment's turn.
func (p *planner) cannotBeginRollout() bool {
	return p.facts.StopReason() != "" || p.facts.suspensionReason() != "" || p.facts.InvalidReason != "" ||
		p.facts.isFrozen() || p.currentSet == nil && p.facts.CreationProblem.Reason != ""
}

// MustConfirmTurn reports whether the deployment has taken its turn, and has not begun its rollout. The next decision
// must then read the siblings from the API server: two deployments whose caches are old may take the same turn, and each
// of them sees the turn of the other only if it reads after its own write.
func MustConfirmTurn(o Facts) bool {
	if o.Turns.MaxConcurrent == 0 || !o.Progress.Turn.isHeld() {
		return false
	}
	p := newPlanner(o.SortedCopy())
	return p.needsTurn() && !p.hasBegunRollout()
}

// planTurn sets the turn to record, and why the rollout does not begin now.
func (p *planner) planTurn() {
	t, now := p.facts.Progress.Turn, p.facts.Now.Truncate(time.Second)
	p.turn = t
	switch {
	case t.isHeld() && (p.isComplete() || p.facts.Strategy == OnDelete):
		p.turn.Ended = phrase.LaterTime(now, t.Since)
	case p.facts.Turns.MaxConcurrent == 0 || !p.needsTurn():
	case p.hasBegunRollout():
		if !t.isHeld() { // the rollout began before the policy limited it
			p.turn = Turn{Since: now}
		}
	case p.cannotBeginRollout():
		p.turn = list.ValueIf(!t.isHeld(), t)
		if p.facts.isFrozen() {
			p.turnWait = &TurnWait{Why: "no rollout begins while the label freeze is set"}
		}
	default:
		wait, keeps := p.nextTurnWait()
		switch {
		case wait != nil:
			p.turnWait = wait
			if t.isHeld() && !keeps {
				p.turn = Turn{}
			}
		case !t.isHeld():
			p.turn, p.takesTurn = Turn{Since: now}, true
		}
	}
}

// turnQueue holds the siblings that are before a deployment, each list sorted by name.
type turnQueue struct {
	failed    []string // rolled back automatically
	rolling   []string // have their turns
	next      []string // are earlier in the order, and wait
	firmCount int      // siblings that never return their turns for this deployment
	stopped   string   // why the rollout of the first sibling in rolling is stopped; empty: it is not
	lastEnd   time.Time
}

// turnQueue reads the siblings. The turns of rollouts that have begun, and the turns before this one in the order, are
// never returned for this deployment.
func (p *planner) turnQueue() turnQueue {
	queue := turnQueue{lastEnd: p.facts.Progress.Turn.Ended}
	siblings := list.SortedCopy(
		p.facts.Turns.Siblings, func(a, b Sibling) int { return cmp.Compare(a.Name, b.Name) },
	)
	for _, s := range siblings {
		sibling, turn := newPlanner(s.Facts.SortedCopy()), s.Facts.Progress.Turn
		switch {
		case s.Facts.Deleting:
			continue
		case sibling.pin != nil && sibling.pin.By == "":
			queue.failed = append(queue.failed, s.Name)
		case turn.isHeld():
			if len(queue.rolling) == 0 {
				queue.stopped = s.Facts.StopReason()
			}
			queue.rolling = append(queue.rolling, s.Name)
			queue.firmCount += list.ValueIf(s.Earlier || sibling.hasBegunRollout(), 1)
		case s.Earlier && sibling.wantsTurn():
			queue.next = append(queue.next, s.Name)
			queue.firmCount++
		}
		queue.lastEnd = phrase.LaterTime(queue.lastEnd, turn.Ended)
	}
	return queue
}

// wantsTurn reports whether the deployment takes its turn as soon as it can. A deployment whose status reports a failure
// cannot begin its rollout.
func (p *planner) wantsTurn() bool {
	return p.needsTurn() && !p.cannotBeginRollout() &&
		p.facts.reportedCondition(vocabulary.ConditionProgressing).Status != "False"
}

// nextTurnWait returns why it is not the deployment's turn; nil: it is. If other deployments took their turns at the
// same time, keeps says whether this deployment keeps its turn and waits for the others to return theirs.
func (p *planner) nextTurnWait() (wait *TurnWait, keeps bool) {
	t, queue := p.facts.Turns, p.turnQueue()
	limit := fmt.Sprintf("RolloutPolicy %s allows %s at a time", t.Policy, phrase.CountText(t.MaxConcurrent, "rollout"))
	pauseEnd := queue.lastEnd.Add(t.PauseBetween)
	switch {
	case len(queue.failed) > 0:
		return &TurnWait{Sibling: queue.failed[0], Why: fmt.Sprintf(
			"the rollout of MachineDeployment %s failed: RolloutPolicy %s begins no other rollout", queue.failed[0], t.Policy,
		)}, false
	case len(queue.rolling) >= t.MaxConcurrent:
		return &TurnWait{Sibling: queue.rolling[0], Why: fmt.Sprintf(
			"MachineDeployment %s is rolled out first%s: %s",
			queue.rolling[0], phrase.TextIf(queue.stopped != "", " (%s)", queue.stopped), limit,
		)}, queue.firmCount < t.MaxConcurrent
	case len(queue.rolling)+len(queue.next) >= t.MaxConcurrent:
		return &TurnWait{
			Sibling: queue.next[0],
			Why:     fmt.Sprintf("MachineDeployment %s is next: %s", queue.next[0], limit),
		}, false
	case !queue.lastEnd.IsZero() && p.facts.Now.Before(pauseEnd):
		return &TurnWait{Until: pauseEnd, Why: fmt.Sprintf(
			"RolloutPolicy %s pauses for %s after each rollout", t.Policy, phrase.DurationText(t.PauseBetween),
		)}, false
	default:
		return nil, false
	}
}

// stopReason returns the reason why the template is not rolled out now; empty: the template is rolled out.
func (p *planner) stopReason() string {
	if why := p.facts.StopReason(); why != "" || p.turnWait == nil {
		return why
	}
	return p.turnWait.Why
}

// takeTurn records that the deployment takes its turn. The next decision checks that no other deployment has taken it.
func (p *planner) takeTurn() Decision {
	return Decision{Record: p.recordOfTurn(), Why: "take the turn that RolloutPolicy " + p.facts.Turns.Policy + " gives"}
}

// recordOfTurn returns the decision's record if only the turn changes.
func (p *planner) recordOfTurn() *Progress {
	record := p.facts.Progress
	record.Turn = p.turn
	return p.unrecordedProgress(record)
}
