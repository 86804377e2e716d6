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

// MachineFacts describe a Machine, its Node and its class. PlanMachine computes Healthy, Why, BadSince and Instance of
// health.Facts.
type MachineFacts struct {
	health.Facts // with a zero Now, timeouts are not evaluated

	Deleting   bool   // metadata.deletionTimestamp is set
	Emptied    bool   // its deletion is past the drain: the state of the Node no longer matters
	Finalizer  bool   // our finalizer is on the Machine
	ProviderID string // spec.providerID
	Stuck      bool   // its creation waits for an operator, and has no timeout meanwhile

	NodeExists bool             // a Node of that name exists; false: all facts of the node are zero
	Owner      ownership.Answer // whose the Node is that the machine names; zero: there is none
	NodeFound  string           // name of the Node with the machine's provider ID, while NodeName is another one
	Uncopied   bool             // the machine's status lacks the present conditions of the Node
	Conditions []health.Condition
	Bad        []string // condition types that make the node unhealthy
	Wanted     nodesync.Wanted
	Carries    nodesync.Node
	Update     inplace.Node

	Preservation preserve.Facts
}

// MachinePlan is what is decided about a Machine.
type MachinePlan struct {
	Decision

	Otherwise Need             // with the need Sync: the need if the node cannot be written
	InDoubt   bool             `json:",omitzero"` // it is not clear whose the node is: nothing is written to it
	Ask       bool             `json:",omitzero"` // the provider can settle the doubt, by the name of the instance's node
	InPlace   inplace.Decision // the next step of its node's in-place update; zero: none
	Drain     DrainPurpose     `json:",omitzero"` // why the node is drained although the machine stays
	// the machine's phase and timeouts; nil for a machine that is calm, deleted or stuck, and without Now
	Health *health.Verdict
	// when its preservation ends, or would end if it failed now; zero: not preserved, or no Health
	PreserveUntil time.Time
	Withdraw      bool // the grant of its replacement is to be withdrawn: the machine has recovered
}

// DrainPurpose is why a node is drained although its machine stays. It is zero for a machine that is being deleted, and
// for a node that is not drained.
type DrainPurpose struct {
	For      string    // vocabulary.DrainForUpdate or vocabulary.DrainForPreservation
	Occasion time.Time // tells two drains of the same purpose apart; zero: not known
}

// PlanMachine plans a Machine: its need, and its next phase. A Failed machine is calm: its set replaces it, and it
// never becomes Running again, unless it is preserved, because no set replaces it then.
func PlanMachine(f MachineFacts) MachinePlan {
	m := machine{MachineFacts: f}
	m.Instance = f.ProviderID != ""
	m.Alone = f.Alone || m.protected() // a preserved machine is not replaced, and needs no grant
	if f.NodeExists {
		m.Healthy, m.nodeWhy = health.DecideNode(f.Conditions, f.Bad)
		m.BadSince = health.BadSince(f.Conditions, f.Bad)
		m.unsynced = nodesync.Decide(f.Wanted, f.Carries).Why()
	}
	inDoubt := f.Owner.Is(ownership.InDoubt)
	if inDoubt {
		m.unsynced = f.Owner.Why
	}
	preservation := preserve.Decide(f.Preservation)
	m.unpreserved = preservation.Why
	var p MachinePlan
	if f.NodeExists && !f.Deleting && !inDoubt {
		p.InPlace = inplace.Decide(f.Update, f.Phase)
		p.Drain = m.purpose(p.InPlace, preservation)
	}
	m.drain, m.updateStep = p.Drain.For, p.InPlace.Step
	p.InDoubt, p.Ask = inDoubt, inDoubt && f.Owner.Ask
	p.Decision = m.decide()
	if p.Need == Sync {
		m.unsynced = ""
		p.Otherwise = m.decide().Need
	}
	if p.Need != Nothing && !f.Deleting && !f.Now.IsZero() && (p.Need != Instance || !f.Stuck) {
		m.addHealth(&p)
	}
	return p
}

// machine is the facts of a machine with what was decided from them.
type machine struct {
	MachineFacts

	nodeWhy     string // why the node is not healthy
	unsynced    string // what the Node lacks or has too much; empty: nothing
	unpreserved string // what does not show yet what was decided about preservation; empty: nothing
	updateStep  inplace.Step
	drain       string
}

// purpose says why the node of a machine that stays is drained. A preserved node is drained once.
func (m machine) purpose(update inplace.Decision, preservation preserve.Decision) DrainPurpose {
	switch kept := m.Preservation; {
	case update.Step == inplace.Drain:
		return DrainPurpose{For: vocabulary.DrainForUpdate, Occasion: m.Update.Since}
	case m.Phase == vocabulary.PhaseFailed && preservation.Preserve && !kept.Expiry.IsZero() && kept.Drained == "":
		return DrainPurpose{For: vocabulary.DrainForPreservation, Occasion: kept.Expiry}
	default:
		return DrainPurpose{}
	}
}

// protected reports whether the machine is preserved, or would be if it failed, by its own annotations alone.
func (m machine) protected() bool {
	own := m.Preservation
	own.NodeExists, own.Failed, own.Now = false, true, time.Time{}
	return preserve.Protected(own)
}

// addHealth adds the machine's next phase, and what happens to its preservation and its grant.
func (m machine) addHealth(p *MachinePlan) {
	before := m
	before.Granted, before.Due = false, false
	m.Why = before.standing().Why // the machine's state apart from its grant and its ReplacementDue
	verdict := health.Decide(m.Facts)
	p.Health, p.PreserveUntil = &verdict, m.Preservation.Expiry
	switch c := verdict.Change; {
	case c == nil: // a preserved machine needs a new grant when its preservation ends
		p.Withdraw = m.Granted && m.Preserved && m.Phase == vocabulary.PhaseFailed
	// the end of its preservation is written together with the phase, before the set can act
	case c.Phase == vocabulary.PhaseFailed:
		failed := m.Preservation
		failed.Failed = true
		p.PreserveUntil = preserve.Decide(failed).Expiry
		if p.PreserveUntil.IsZero() && m.protected() { // the node's annotation is not known, and the machine's own counts
			p.PreserveUntil = m.Now.Add(failed.Timeout)
		}
	case c.Phase == vocabulary.PhaseRunning:
		p.Withdraw = m.Granted
	}
}

// decide returns what the machine needs.
func (m machine) decide() Decision {
	d := m.standing()
	if m.Deleting || m.Phase == vocabulary.PhaseFailed || m.NoTarget || d.Need == Instance || d.Need == Health {
		return d
	}
	return m.besides(d)
}

// standing returns the need that follows from how far the machine's life has come.
func (m machine) standing() Decision {
	switch {
	case m.Deleting && !m.Finalizer:
		return Decision{Need: Nothing, Why: "released: the API server removes it"}
	case m.Deleting:
		named := m.NodeName != "" && !m.NoTarget && !m.Emptied // a drain depends on the state of the node
		return cmp.Or(
			m.found(),
			Decision{Need: Deletion, Why: "deletion was asked for" + phrase.If(named, "; %s", m.waitsFor())},
		)
	case m.Phase == vocabulary.PhaseFailed:
		return m.failed()
	case m.Granted:
		return Decision{Need: Health, Why: "its replacement was granted"}
	case !m.Finalizer:
		return Decision{Need: Instance, Why: "new: our finalizer is missing"}
	case m.ProviderID == "", m.Phase == "", m.Phase == vocabulary.PhaseCrashLoopBackOff:
		return Decision{Need: Instance, Why: "has no initialised instance yet"}
	case m.NoTarget: // it never becomes a node: an instance is all it needs
		why := fmt.Sprintf("instance %s exists; there is no target cluster", m.ProviderID)
		return cmp.Or(If(m.Phase != vocabulary.PhaseAvailable, Health, "%s", why), Decision{Need: Nothing, Why: why})
	}
	return m.withNode()
}

// besides adds the needs that a machine with an instance can have in every phase.
func (m machine) besides(d Decision) Decision {
	return cmp.Or(
		If(m.NodeExists && m.Uncopied, Health, "conditions of the node are not copied yet; %s", d.Why),
		If(m.unsynced != "", Sync, "%s", m.unsynced),
		If(m.updateStep == inplace.Drain, Drain, "in-place update: the node has to be empty; %s", d.Why),
		If(m.updateStep != inplace.Nothing, InPlace, "in-place update: %s", m.updateStep),
		If(m.unpreserved != "", Preserve, "%s", m.unpreserved),
		If(d.Calm() && m.Preserved, Kept, "preserved; %s", d.Why),
		d,
	)
}

// failed returns the need of a Failed machine.
func (m machine) failed() Decision {
	return cmp.Or(
		If(m.unpreserved != "", Preserve, "%s", m.unpreserved),
		If(m.Preserved && m.Healthy && !m.NodeDeleting, Health, "node %s is healthy again", m.NodeName),
		If(m.drain == vocabulary.DrainForPreservation, Drain, "failed, and preserved: its node has to be empty"),
		If(m.Preserved, Kept, "failed, and preserved"),
		Decision{Need: Nothing, Why: "failed: to be replaced"},
	)
}

// found returns the need of a machine whose node was found by its provider ID and whose status does not name that node
// yet.
func (m machine) found() Decision {
	return If(
		m.NodeFound != "" && !m.NoTarget && !m.Emptied,
		Name,
		"node %s has the provider ID of its instance",
		m.NodeFound,
	)
}

// withNode returns the need of a machine that has its instance.
func (m machine) withNode() Decision {
	if found := m.found(); !found.Calm() {
		return found
	}
	switch well := m.Healthy && !m.NodeDeleting; m.Phase {
	case vocabulary.PhasePending, vocabulary.PhaseAvailable:
		return cmp.Or(
			If(well && m.NodeWaits == "", Health, "node %s has joined", m.NodeName),
			Decision{Need: Node, Why: fmt.Sprintf("instance %s exists; %s", m.ProviderID, m.waitsFor())},
		)
	case vocabulary.PhaseRunning:
		return cmp.Or(If(!well, Health, "%s", m.waitsFor()), Decision{Need: Nothing, Why: "running"})
	case vocabulary.PhaseUnknown: // unhealthy at the last evaluation
		return cmp.Or(
			If(well, Health, "node %s is healthy again", m.NodeName),
			If(m.Due && m.Alone, Health, "to be replaced: %s", m.waitsFor()),
			Decision{Need: Recovery, Why: m.waitsFor()},
		)
	case vocabulary.PhaseInPlaceUpdating, vocabulary.PhaseInPlaceUpdateFailed: // a failed update can still succeed
		failed := m.Phase == vocabulary.PhaseInPlaceUpdateFailed && m.UpdateResult == vocabulary.UpdateFailed
		over := m.UpdateResult != "" && !failed || m.Due && m.Alone
		return cmp.Or(
			If(over, Health, "the in-place update has ended: %s", m.UpdateResult),
			Decision{Need: Recovery, Why: "in-place update: " + m.waitsFor()},
		)
	case vocabulary.PhaseInPlaceUpdateSuccessful:
		return Decision{Need: Health, Why: "updated in place; " + m.waitsFor()}
	default:
		return Decision{Need: Nothing, Why: "phase " + m.Phase}
	}
}

// waitsFor describes the state of the node.
func (m machine) waitsFor() string {
	if m.NodeName == "" {
		return "no node has its provider ID yet"
	}
	return "node " + m.NodeName + cmp.Or(
		phrase.If(!m.NodeExists, " is not registered"),
		phrase.If(m.NodeDeleting, " is being deleted"),
		phrase.If(!m.Healthy, ": %s", m.nodeWhy),
		phrase.If(m.NodeWaits != "", ": %s", m.NodeWaits),
		" is healthy",
	)
}
