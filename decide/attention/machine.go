package attention

import (
	"cmp"
	"fmt"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/health"
	"millwright/decide/inplace"
	"millwright/decide/nodesync"
	"millwright/decide/phrase"
	"millwright/decide/preserve"
)

// MachineFacts is what the API servers say of a Machine, its Node and its class. Of health.Facts, Healthy, Why, BadSince and
// Instance are for Machine to fill.
type MachineFacts struct {
	health.Facts // Now zero: no timeout is judged

	Deleting   bool   // metadata.deletionTimestamp is set
	Emptied    bool   // its deletion is past the drain: how the Node is changes nothing any more
	Finalizer  bool   // ours is on
	ProviderID string // spec.providerID
	Stuck      bool   // its creation waits for an operator: no timeout ends it

	NodeExists bool // a Node of that name is there; false: all that is said of a node is zero
	Uncopied   bool // the machine's status does not say what the Node's conditions say
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

	Otherwise     Need             // with the need Sync: what the machine needs if its node cannot be written
	InPlace       inplace.Decision // the next step in the update of its node; zero while there is none
	Drain         DrainPurpose     `json:",omitzero"` // why the node is drained although the machine stays
	Health        *health.Verdict  // what becomes of the machine; nil when it is calm, is deleted or is stuck, and without Now
	PreserveUntil time.Time        // when its preservation ends, or will end if it fails now; zero when it is not preserved, and without Health
	Withdraw      bool             // a replacement was granted, and the machine has recovered
	AskBreaker    bool             `json:"-"` // the timeout has ended: the facts lack what the breaker says
}

// DrainPurpose is why the node of a machine that stays is drained. The zero DrainPurpose is that of a machine that is
// deleted, and of a node that keeps its pods.
type DrainPurpose struct {
	For      string    // vocabulary.DrainForUpdate or vocabulary.DrainForPreservation
	Occasion time.Time // which one of that purpose; zero where it is not known
}

// Machine plans a Machine: what it needs, and what becomes of it. A Failed machine is calm: its set replaces it, and it is
// never taken back (D27), unless it is preserved, when no set will touch it. With AskBreaker, ask again with Breaker set
// where the breaker is open.
func Machine(f MachineFacts) MachinePlan {
	m := machine{MachineFacts: f}
	m.Instance = f.ProviderID != ""
	m.Alone = f.Alone || m.protected() // a machine that is preserved is not replaced, and needs no grant
	if f.NodeExists {
		m.Healthy, m.nodeWhy = health.Decide(f.Conditions, f.Bad)
		m.BadSince = health.BadSince(f.Conditions, f.Bad)
		m.unsynced = nodesync.Decide(f.Wanted, f.Carries).Why()
	}
	preservation := preserve.Decide(f.Preservation)
	m.unpreserved = preservation.Why
	var p MachinePlan
	if f.NodeExists && !f.Deleting {
		p.InPlace = inplace.Decide(f.Update, f.Phase)
		p.Drain = m.purpose(p.InPlace, preservation)
	}
	m.drain, m.updateStep = p.Drain.For, p.InPlace.Step
	p.Decision = m.decide()
	if p.Need == Sync {
		m.unsynced = ""
		p.Otherwise = m.decide().Need
	}
	if p.Need != Nothing && p.Need != Deletion && !f.Now.IsZero() && (p.Need != Instance || !f.Stuck) {
		m.become(&p)
	}
	return p
}

// machine is the facts of a machine with what was decided from them.
type machine struct {
	MachineFacts

	nodeWhy     string // why the node is not healthy
	unsynced    string // what the Node lacks or has too much of; empty when nothing
	unpreserved string // what does not say yet what was decided about preservation; empty when nothing
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

// protected reports whether the machine itself, whatever its node says, is preserved or asks to be when it fails.
func (m machine) protected() bool {
	own := m.Preservation
	own.NodeExists, own.Failed, own.Now = false, true, time.Time{}
	return preserve.Protected(own)
}

// become adds what becomes of the machine, and of its preservation.
func (m machine) become(p *MachinePlan) {
	before := m
	before.Granted, before.Due = false, false
	m.Why = before.standing().Why // in which state it is, without what is written because of it
	verdict := health.Next(m.Facts)
	p.Health, p.PreserveUntil = &verdict, m.Preservation.Expiry
	over := verdict.Due != nil && verdict.Due.True && (m.Phase == vocabulary.PhaseUnknown || m.Phase == vocabulary.PhaseInPlaceUpdateFailed)
	p.AskBreaker = over && m.Breaker == ""
	switch c := verdict.Change; {
	case c == nil: // one that is preserved has to ask anew when that is over
		p.Withdraw = m.Granted && m.Preserved && m.Phase == vocabulary.PhaseFailed
	case c.Phase == vocabulary.PhaseFailed: // the end is written with the phase: no set must be faster
		wish := m.Preservation
		wish.Failed = true
		p.PreserveUntil = preserve.Decide(wish).Expiry
		if p.PreserveUntil.IsZero() && m.protected() { // what its node says is not known: its own wish counts
			p.PreserveUntil = m.Now.Add(wish.Timeout)
		}
	case c.Phase == vocabulary.PhaseRunning:
		p.Withdraw = m.Granted
	}
}

// decide says what the machine needs.
func (m machine) decide() Decision {
	d := m.standing()
	if m.Deleting || m.Phase == vocabulary.PhaseFailed || m.NoTarget || d.Need == Instance || d.Need == Health {
		return d
	}
	return m.besides(d)
}

// standing says what the machine needs because of how far it has come.
func (m machine) standing() Decision {
	switch {
	case m.Deleting && !m.Finalizer:
		return Decision{Nothing, "released: the API server removes it"}
	case m.Deleting:
		if m.NodeName == "" || m.NoTarget || m.Emptied {
			return Decision{Deletion, "deletion was asked for"}
		}
		return Decision{Deletion, "deletion was asked for; " + m.waitsFor()} // a drain depends on how the node is
	case m.Phase == vocabulary.PhaseFailed:
		return m.failed()
	case m.Granted:
		return Decision{Health, "its replacement was granted"}
	case !m.Finalizer:
		return Decision{Instance, "new: not yet taken care of"}
	case m.ProviderID == "", m.Phase == "", m.Phase == vocabulary.PhaseCrashLoopBackOff:
		return Decision{Instance, "has no initialised instance yet"}
	case m.NoTarget: // it never becomes a node: when its instance is there, that is all
		why := fmt.Sprintf("instance %s exists; there is no target cluster", m.ProviderID)
		return cmp.Or(If(m.Phase != vocabulary.PhaseAvailable, Health, "%s", why), Decision{Nothing, why})
	}
	return m.withNode()
}

// besides adds what there is to do for a machine with an instance, whatever it waits for.
func (m machine) besides(d Decision) Decision {
	return cmp.Or(
		If(m.NodeExists && m.Uncopied, Health, "conditions of the node to copy; %s", d.Why),
		If(m.unsynced != "", Sync, "%s", m.unsynced),
		If(m.updateStep == inplace.Drain, Drain, "in-place update: the node has to be empty; %s", d.Why),
		If(m.updateStep != inplace.Nothing, InPlace, "in-place update: %s", m.updateStep),
		If(m.unpreserved != "", Preserve, "%s", m.unpreserved),
		If(d.Calm() && m.Preserved, Kept, "preserved; %s", d.Why),
		d,
	)
}

// failed decides for a machine that has failed.
func (m machine) failed() Decision {
	return cmp.Or(
		If(m.unpreserved != "", Preserve, "%s", m.unpreserved),
		If(m.Preserved && m.Healthy && !m.NodeGoing, Health, "node %s is healthy again", m.NodeName),
		If(m.drain == vocabulary.DrainForPreservation, Drain, "failed, and preserved: its node has to be empty"),
		If(m.Preserved, Kept, "failed, and preserved"),
		Decision{Nothing, "failed: to be replaced"},
	)
}

// withNode decides for a machine whose instance is there.
func (m machine) withNode() Decision {
	switch well := m.Healthy && !m.NodeGoing; m.Phase {
	case vocabulary.PhasePending, vocabulary.PhaseAvailable:
		return cmp.Or(
			If(well && !m.NodeHeld, Health, "node %s has joined", m.NodeName),
			Decision{Node, fmt.Sprintf("instance %s exists; %s", m.ProviderID, m.waitsFor())},
		)
	case vocabulary.PhaseRunning:
		return cmp.Or(If(!well, Health, "%s", m.waitsFor()), Decision{Nothing, "running"})
	case vocabulary.PhaseUnknown: // when the node was last looked at
		return cmp.Or(
			If(well, Health, "node %s is healthy again", m.NodeName),
			If(m.Due && m.Alone, Health, "to be replaced: %s", m.waitsFor()),
			Decision{Recovery, m.waitsFor()},
		)
	case vocabulary.PhaseInPlaceUpdating, vocabulary.PhaseInPlaceUpdateFailed: // a failure may still be mended
		failed := m.Phase == vocabulary.PhaseInPlaceUpdateFailed && m.UpdateResult == vocabulary.UpdateFailed
		over := m.UpdateResult != "" && !failed || m.Due && m.Alone
		return cmp.Or(
			If(over, Health, "the in-place update has come to its end: %s", m.UpdateResult),
			Decision{Recovery, "in-place update: " + m.waitsFor()},
		)
	case vocabulary.PhaseInPlaceUpdateSuccessful:
		return Decision{Health, "updated in place; " + m.waitsFor()}
	default:
		return Decision{Nothing, "phase " + m.Phase}
	}
}

// waitsFor says in which state the node is.
func (m machine) waitsFor() string {
	return "node " + m.NodeName + cmp.Or(
		phrase.If(!m.NodeExists, " is not registered"),
		phrase.If(m.NodeGoing, " is being deleted"),
		phrase.If(!m.Healthy, ": %s", m.nodeWhy),
		phrase.If(m.NodeHeld, ": its critical components are not ready"),
		" is healthy",
	)
}
