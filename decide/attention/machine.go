package attention

import (
	"cmp"
	"fmt"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/health"
	"millwright/decide/inplace"
	"millwright/decide/nodesync"
	"millwright/decide/ownership"
	"millwright/decide/phrase"
	"millwright/decide/preserve"
)

// MachineFacts holds the facts about a Machine, its Node and its class. PlanMachine computes Healthy, Why, BadSince
// and Instance of health.Facts.
type MachineFacts struct {
	health.Facts // if Now is zero, timeouts are not evaluated

	Deleting   bool   // the Machine has a metadata.deletionTimestamp
	Emptied    bool   // the drain is over, so that the state of the Node no longer matters
	Finalizer  bool   // Millwright's finalizer is on the Machine
	ProviderID string // spec.providerID of the Machine
	Stuck      bool   // the creation of the instance waits for an operator, without a timeout

	// a Node with the machine's node name exists; false: all facts of the node are zero
	NodeExists bool
	Owner      ownership.OwnerAnswer // who owns the Node that the machine names; zero: the machine names no Node
	NodeFound  string                // name of the Node with the machine's provider ID if NodeName is another name
	Uncopied   bool                  // the machine's status does not show the current conditions of the Node
	Conditions []health.Condition
	Bad        []string // condition types that make the node unhealthy
	Wanted     nodesync.WantedState
	Carries    nodesync.Node
	Update     inplace.Node

	Preservation preserve.Facts
}

// MachinePlan is the decision about a Machine.
type MachinePlan struct {
	Decision

	Otherwise Need // if the need is Sync: the need that applies when Millwright cannot write to the node
	// the owner of the node is in doubt, so that nothing is written to the node
	InDoubt bool             `json:",omitzero"`
	Ask     bool             `json:",omitzero"` // the provider can resolve the doubt by the node's name
	InPlace inplace.Decision // next step of the node's in-place update; zero: none
	Drain   DrainPurpose     `json:",omitzero"` // why the node is drained although the machine is not being deleted
	// the machine's next phase and timeouts; nil: Now is zero, or the machine has no pending work, is being deleted or
	// is stuck
	Health *health.Verdict
	// end of the preservation, or the end that a failure now would cause; zero: the machine is not preserved, or Health
	// is nil
	PreserveUntil time.Time
	Withdraw      bool // the grant of the machine's replacement is withdrawn, because the machine has recovered
}

// DrainPurpose is why a node is drained although its machine is not being deleted. The zero DrainPurpose means that
// the machine is being deleted, or that the node is not drained.
type DrainPurpose struct {
	For      string    // the purpose: vocabulary.DrainForUpdate or vocabulary.DrainForPreservation
	Occasion time.Time // distinguishes two drains with the same purpose; zero: not known
}

// PlanMachine returns a Machine's need and its next phase. A Failed machine has no pending work, because its set
// replaces the machine. A Failed machine becomes Running again only if it is preserved, because no set replaces a
// preserved machine.
func PlanMachine(f MachineFacts) MachinePlan {
	m := plannedMachine{MachineFacts: f}
	m.Instance = f.ProviderID != ""
	m.Alone = f.Alone || m.isPreserved() // a preserved machine is not replaced, and needs no grant
	if f.NodeExists {
		m.Healthy, m.unhealthyNodeReason = health.DecideNodeHealth(f.Conditions, f.Bad)
		m.BadSince = health.BadConditionStart(f.Conditions, f.Bad)
		m.unsyncedNodeReason = nodesync.Decide(f.Wanted, f.Carries).Sentence()
	}
	inDoubt := f.Owner.HasOwnerKind(ownership.OwnerInDoubt)
	if inDoubt {
		m.unsyncedNodeReason = f.Owner.Why
	}
	preservation := preserve.Decide(f.Preservation)
	m.missingPreservationChanges = preservation.Why
	var p MachinePlan
	if f.NodeExists && !f.Deleting && !inDoubt {
		p.InPlace = inplace.Decide(f.Update, f.Phase)
		p.Drain = m.drainPurpose(p.InPlace, preservation)
	}
	m.drainPurposeName, m.updateStep = p.Drain.For, p.InPlace.Step
	p.InDoubt, p.Ask = inDoubt, inDoubt && f.Owner.Ask
	p.Decision = m.decideNeed()
	if p.Need == NeedNodeSync {
		m.unsyncedNodeReason = ""
		p.Otherwise = m.decideNeed().Need
	}
	if p.Need != NeedNothing && !f.Deleting && !f.Now.IsZero() && (p.Need != NeedInstance || !f.Stuck) {
		m.addHealthVerdict(&p)
	}
	return p
}

// plannedMachine holds the facts of a machine and the decisions from these facts.
type plannedMachine struct {
	MachineFacts

	unhealthyNodeReason        string // why the node is not healthy
	unsyncedNodeReason         string // why the Node is not in sync; empty: the Node is in sync
	missingPreservationChanges string // missing changes of the preservation; empty: none
	updateStep                 inplace.Step
	drainPurposeName           string
}

// drainPurpose returns why the node of a machine that is not being deleted is drained. The node of a preserved
// machine is drained once.
func (m plannedMachine) drainPurpose(update inplace.Decision, preservation preserve.Decision) DrainPurpose {
	switch kept := m.Preservation; {
	case update.Step == inplace.StepDrain:
		return DrainPurpose{For: vocabulary.DrainForInPlaceUpdate, Occasion: m.Update.Since}
	case m.Phase == vocabulary.PhaseFailed && preservation.IsPreserved && !kept.Expiry.IsZero() && kept.Drained == "":
		return DrainPurpose{For: vocabulary.DrainForPreservation, Occasion: kept.Expiry}
	default:
		return DrainPurpose{}
	}
}

// isPreserved reports whether the machine's own annotations preserve the machine, or would preserve it in phase
// Failed.
func (m plannedMachine) isPreserved() bool {
	own := m.Preservation
	own.NodeExists, own.Failed, own.Now = false, true, time.Time{}
	return preserve.PreventsReplacement(own)
}

// addHealthVerdict adds the machine's next phase, the end of its preservation, and whether its grant is withdrawn.
func (m plannedMachine) addHealthVerdict(p *MachinePlan) {
	before := m
	before.Granted, before.Due = false, false
	// why the machine would have its need without the grant and without ReplacementDue
	m.Why = before.lifecycleNeed().Why
	verdict := health.Decide(m.Facts)
	p.Health, p.PreserveUntil = &verdict, m.Preservation.Expiry
	switch c := verdict.Change; {
	case c == nil: // a preserved machine needs a new grant when its preservation ends
		p.Withdraw = m.Granted && m.Preserved && m.Phase == vocabulary.PhaseFailed
	// the end of the preservation is written together with the phase, before the set acts
	case c.Phase == vocabulary.PhaseFailed:
		failed := m.Preservation
		failed.Failed = true
		p.PreserveUntil = preserve.Decide(failed).Expiry
		if p.PreserveUntil.IsZero() && m.isPreserved() { // only the machine's annotation is known
			p.PreserveUntil = m.Now.Add(failed.Timeout)
		}
	case c.Phase == vocabulary.PhaseRunning:
		p.Withdraw = m.Granted
	}
}

// decideNeed returns the need of the machine.
func (m plannedMachine) decideNeed() Decision {
	d := m.lifecycleNeed()
	if m.Deleting || m.Phase == vocabulary.PhaseFailed || m.NoTargetCluster || d.Need == NeedInstance ||
		d.Need == NeedStatusUpdate {
		return d
	}
	return m.addNodeNeeds(d)
}

// lifecycleNeed returns the need that follows from the machine's phase, instance and node.
func (m plannedMachine) lifecycleNeed() Decision {
	switch {
	case m.Deleting && !m.Finalizer:
		return Decision{Need: NeedNothing, Why: "released: the API server removes it"}
	case m.Deleting:
		// while the node is not emptied, its state is part of the reason
		named := m.NodeName != "" && !m.NoTargetCluster && !m.Emptied
		return cmp.Or(
			m.nodeNameNeed(),
			Decision{Need: NeedDeletion, Why: "deletion was asked for" + phrase.TextIf(named, "; %s", m.nodeStatePhrase())},
		)
	case m.Phase == vocabulary.PhaseFailed:
		return m.needOfFailedMachine()
	case m.Granted:
		return Decision{Need: NeedStatusUpdate, Why: "its replacement was granted"}
	case !m.Finalizer:
		return Decision{Need: NeedInstance, Why: "new: our finalizer is missing"}
	case m.ProviderID == "", m.Phase == "", m.Phase == vocabulary.PhaseCrashLoopBackOff:
		return Decision{Need: NeedInstance, Why: "has no initialised instance yet"}
	case m.NoTargetCluster: // without a target cluster no node joins, so that the machine needs only an instance
		why := fmt.Sprintf("instance %s exists; there is no target cluster", m.ProviderID)
		return cmp.Or(
			DecisionIf(m.Phase != vocabulary.PhaseAvailable, NeedStatusUpdate, "%s", why),
			Decision{Need: NeedNothing, Why: why},
		)
	}
	return m.nodeNeed()
}

// addNodeNeeds adds the needs that a machine with an instance can have in every phase.
func (m plannedMachine) addNodeNeeds(d Decision) Decision {
	return cmp.Or(
		DecisionIf(m.NodeExists && m.Uncopied, NeedStatusUpdate, "conditions of the node are not copied yet; %s", d.Why),
		DecisionIf(m.unsyncedNodeReason != "", NeedNodeSync, "%s", m.unsyncedNodeReason),
		DecisionIf(m.updateStep == inplace.StepDrain, NeedDrain, "in-place update: the node has to be empty; %s", d.Why),
		DecisionIf(m.updateStep != inplace.StepNothing, NeedInPlaceUpdate, "in-place update: %s", m.updateStep),
		DecisionIf(m.missingPreservationChanges != "", NeedPreservation, "%s", m.missingPreservationChanges),
		DecisionIf(d.NeedsNothing() && m.Preserved, NeedPreservationEnd, "preserved; %s", d.Why),
		d,
	)
}

// needOfFailedMachine returns the need of a Failed machine.
func (m plannedMachine) needOfFailedMachine() Decision {
	return cmp.Or(
		DecisionIf(m.missingPreservationChanges != "", NeedPreservation, "%s", m.missingPreservationChanges),
		DecisionIf(m.Preserved && m.Healthy && !m.NodeDeleting, NeedStatusUpdate, "node %s is healthy again", m.NodeName),
		DecisionIf(
			m.drainPurposeName == vocabulary.DrainForPreservation,
			NeedDrain,
			"failed, and preserved: its node has to be empty",
		),
		DecisionIf(m.Preserved, NeedPreservationEnd, "failed, and preserved"),
		Decision{Need: NeedNothing, Why: "failed: to be replaced"},
	)
}

// nodeNameNeed returns the need Name if a node was found by the machine's provider ID, and the machine's status does
// not name that node yet.
func (m plannedMachine) nodeNameNeed() Decision {
	return DecisionIf(
		m.NodeFound != "" && !m.NoTargetCluster && !m.Emptied,
		NeedNodeName,
		"node %s has the provider ID of its instance",
		m.NodeFound,
	)
}

// nodeNeed returns the need of a machine with an instance, from the state of its node.
func (m plannedMachine) nodeNeed() Decision {
	if found := m.nodeNameNeed(); !found.NeedsNothing() {
		return found
	}
	switch well := m.Healthy && !m.NodeDeleting; m.Phase {
	case vocabulary.PhasePending, vocabulary.PhaseAvailable:
		return cmp.Or(
			DecisionIf(well && m.NodeWaits == "", NeedStatusUpdate, "node %s has joined", m.NodeName),
			Decision{Need: NeedNodeJoin, Why: fmt.Sprintf("instance %s exists; %s", m.ProviderID, cmp.Or(
				phrase.TextIf(!m.NodeExists, "%s", phrase.AwaitedNodeClause(m.NodeName)), m.nodeStatePhrase(),
			))},
		)
	case vocabulary.PhaseRunning:
		return cmp.Or(
			DecisionIf(!well && m.TargetDown == "", NeedStatusUpdate, "%s", m.nodeStatePhrase()),
			Decision{Need: NeedNothing, Why: cmp.Or(m.TargetDown, "running")},
		)
	case vocabulary.PhaseUnknown: // the node was unhealthy at the last evaluation
		return cmp.Or(
			DecisionIf(well, NeedStatusUpdate, "node %s is healthy again", m.NodeName),
			DecisionIf(m.Due && m.Alone, NeedStatusUpdate, "to be replaced: %s", m.nodeStatePhrase()),
			Decision{Need: NeedRecovery, Why: m.nodeStatePhrase()},
		)
	case vocabulary.PhaseInPlaceUpdating, vocabulary.PhaseInPlaceUpdateFailed: // a failed update can still succeed
		failed := m.Phase == vocabulary.PhaseInPlaceUpdateFailed && m.UpdateResult == vocabulary.ValueUpdateFailed
		over := m.UpdateResult != "" && !failed || m.Due && m.Alone
		return cmp.Or(
			DecisionIf(over, NeedStatusUpdate, "the in-place update has ended: %s", m.UpdateResult),
			Decision{Need: NeedRecovery, Why: "in-place update: " + m.nodeStatePhrase()},
		)
	case vocabulary.PhaseInPlaceUpdateSuccessful:
		return Decision{Need: NeedStatusUpdate, Why: "updated in place; " + m.nodeStatePhrase()}
	default:
		return Decision{Need: NeedNothing, Why: "phase " + m.Phase}
	}
}

// nodeStatePhrase returns a phrase about the state of the node.
func (m plannedMachine) nodeStatePhrase() string {
	if m.NodeName == "" {
		return phrase.AwaitedNodeClause("")
	}
	return "node " + m.NodeName + cmp.Or(
		phrase.TextIf(!m.NodeExists, " is not registered"),
		phrase.TextIf(m.NodeDeleting, " is being deleted"),
		phrase.TextIf(!m.Healthy, ": %s", m.unhealthyNodeReason),
		phrase.TextIf(m.NodeWaits != "", ": %s", m.NodeWaits),
		" is healthy",
	)
}
