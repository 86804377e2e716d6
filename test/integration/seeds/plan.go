// Tier: test-all. Loads and faults are random.

// Package seeds runs random loads and faults on one stack, while package checker watches it. The whole plan of a run
// follows from a seed: a run with the same seed has the same plan.
package seeds

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"millwright/devstack/component"
)

// Loads: what people do.
const (
	loadScale         = "scale"
	loadFlap          = "flap"
	loadRoll          = "roll"
	loadDeleteMachine = "delete-machine"
	loadDeleteNode    = "delete-node"
	loadLabel         = "take-label"     // a machine loses a label, so leaves its set, and is deleted later
	loadOwner         = "take-owner"     // a machine loses its owner, and the set adopts it again
	loadFinalizer     = "take-finalizer" // a machine that stays loses its finalizer
	loadSecret        = "delete-secret"  // the Secret is deleted for some time
	loadOrphan        = "orphan"         // a machine is deleted and loses its finalizer
	loadPause         = "pause-rollout"  // a rollout is paused for some time
	loadPreserve      = "preserve"       // a machine is preserved for some time
	loadVanish        = "vanish"         // an instance vanishes in the cloud; its node, too, if the number is odd
	loadHandOver      = "hand-over"      // a deployment is deleted with --cascade=orphan and applied again
	loadOwnerOfSet    = "take-set-owner" // a set loses its owner, and the deployment adopts it again
	// a policy makes each rollout wait at half of its machines; it is approved some time after it has reached that
	loadGate = "gate"

	// for some time, another namespace has copies of a pool's machines, and machines with the names and labels of its
	// nodes
	loadStrangers = "strangers"
)

// Faults: what breaks.
const (
	faultKill    = "kill"
	faultPause   = "pause"
	faultRole    = "take-role" // the API server answers 403
	faultErrors  = "cloud-errors"
	faultLate    = "cloud-errors-after-effect"
	faultLatency = "cloud-latency"
	faultHang    = "cloud-hangs"
	faultRate    = "cloud-rate-limit"
	faultWipe    = "wipe-temporal"
	faultPolicy  = "refuse" // a policy of the API server refuses one kind of write of the worker
	faultQuota   = "quota"  // a quota allows no more Machine objects in the namespace

	faultFull        = "cloud-quota"   // the cloud allows no more instances
	faultNoBoot      = "cloud-no-boot" // new instances get no node
	faultCredentials = "wrong-secret"  // the Secret has credentials that the cloud refuses
	faultRestore     = "restore-etcd"  // the API server's store is restored from a copy that is some time old

	// Faults between workers or bridges and the API server. step.On is the identity.
	faultAway  = "api-away"         // 503 for everything, and watches break
	faultStorm = "api-storm"        // 429, conflicts, and writes whose answer is lost
	faultSlow  = "api-slow-watches" // watches are late, and break
)

// planStep is one load or one fault.
type planStep struct {
	At   time.Duration // time of its begin, counted from the time at which all pools run
	For  time.Duration // how long it lasts
	What string
	On   string // component, identity, or operation of the cloud that a fault hits; empty for loads
	N    int    // argument of a load: replicas, or the index of a machine
	Pool int
}

func (s planStep) String() string {
	text := fmt.Sprintf("%.0fs %s", s.At.Seconds(), s.What)
	if s.On != "" {
		text += " " + s.On
	}
	if s.For > 0 {
		text += fmt.Sprintf(" for %.0fs", s.For.Seconds())
	}
	return text
}

// pool is what a plan says of one MachineDeployment.
type pool struct{ replicas, surge, unavailable int32 }

// plan is all that happens with one seed.
type plan struct {
	seed          uint64
	pools         []pool
	loads, faults []planStep
	strangers     *planStep // the load loadStrangers; nil: none

	// Properties of the cloud while the seed runs.
	tokens            bool
	staleness, accept time.Duration
	faultyCloud       bool // rig.FaultyCloud

	byNamespace  bool          // the seed ends with the deletion of the namespace, not of each object
	deletedEarly time.Duration // time at which the namespace is deleted in the middle of the work; zero: when all is calm
	// the disruption budget of pods on the first pool, one of budgets(); empty: there are no pods
	pods          string
	shortTimeouts bool // creation and health have short timeouts, and machines fail
	drainsForced  bool // the budget allows no eviction, and each drain soon reaches its short deadline
}

// budgets are disruption budgets that allow the eviction of one of four pods: the field of the budget and its value.
func budgets() []string {
	return []string{"minAvailable 3", "minAvailable 75%", "maxUnavailable 1", "maxUnavailable 25%"}
}

// planLimits are the limits of a plan.
type planLimits struct {
	loads, faults int           // maximum numbers of loads and of faults
	time          time.Duration // time in which all loads and faults begin
	long          bool          // faults may last a minute or two
}

// planMaker makes the plan of one seed. Its dice are a random generator that the seed determines.
type planMaker struct {
	dice   *rand.Rand
	limits planLimits
	plan   plan
}

// newPlan makes the plan of a seed.
func newPlan(seed uint64, l planLimits) plan {
	m := planMaker{dice: rand.New(rand.NewPCG(seed, 7)), limits: l, plan: plan{seed: seed}}
	p := &m.plan
	p.tokens, p.byNamespace, p.shortTimeouts = m.dice.IntN(3) > 0, m.withChanceOneIn(3), m.withChanceOneIn(3)
	p.staleness, p.accept = m.randomSeconds(0, 2), m.randomSeconds(0, 1)
	if p.byNamespace && m.withChanceOneIn(3) {
		p.deletedEarly = m.randomSeconds(5, max(5, int(l.time.Seconds())))
	}
	for range m.randomBetween(1, 2) {
		p.pools = append(
			p.pools,
			pool{
				replicas:    int32(m.randomBetween(2, 5)),
				surge:       int32(m.randomBetween(1, 2)),
				unavailable: int32(m.randomBetween(0, 1)),
			},
		)
	}
	if l.long && p.deletedEarly == 0 && m.withChanceOneIn(10) {
		p.faults = append(
			p.faults,
			planStep{At: m.randomMoment() / 2, For: m.randomSeconds(125, 140), What: faultRestore, On: component.Etcd},
		)
		p.shortTimeouts = true // a restored machine may wait for the node of an instance that is gone
	}
	m.addLoads()
	m.addFaults()
	if budget := m.pickOne(budgets()); m.withChanceOneIn(2) && !p.hurtsNodes() {
		p.pods = budget
		if p.drainsForced = m.withChanceOneIn(3); p.drainsForced {
			p.pods = "maxUnavailable 0"
		}
	}
	for _, steps := range [][]planStep{p.loads, p.faults} {
		slices.SortStableFunc(steps, func(a, b planStep) int { return cmp.Compare(a.At, b.At) })
	}
	// with its own dice, so that the rest of the plan stays as in earlier versions
	p.faultyCloud = rand.New(rand.NewPCG(seed, 8)).IntN(3) == 0
	m.dice = rand.New(rand.NewPCG(seed, 9))
	if m.withChanceOneIn(2) {
		p.strangers = &planStep{
			What: loadStrangers,
			At:   m.randomMoment(),
			For:  m.randomSeconds(5, 20),
			Pool: m.dice.IntN(len(p.pools)),
		}
	}
	return *p
}

func (m *planMaker) randomBetween(low, high int) int { return low + m.dice.IntN(high-low+1) }
func (m *planMaker) withChanceOneIn(n int) bool      { return m.dice.IntN(n) == 0 }
func (m *planMaker) pickOne(from []string) string    { return from[m.dice.IntN(len(from))] }
func (m *planMaker) randomMoment() time.Duration {
	return time.Duration(m.dice.Int64N(int64(m.limits.time)))
}

func (m *planMaker) randomSeconds(low, high int) time.Duration {
	return time.Duration(m.randomBetween(low, high)) * time.Second
}

// possibleLoads returns the kinds of loads that fit the rest of the plan.
func (m *planMaker) possibleLoads(kinds ...string) []string {
	return slices.DeleteFunc(kinds, func(kind string) bool {
		switch kind {
		case loadOrphan, loadFinalizer:
			// the class is gone before the orphan is found; a restored machine is no orphan
			return m.plan.deletedEarly > 0 || m.plan.restores()
		case loadSecret, faultCredentials:
			return m.plan.deletedEarly > 0 || m.plan.restores() // without credentials nothing can be deleted
		case loadLabel, loadPause, loadGate, loadPreserve, faultRole, faultPolicy, faultQuota:
			return m.plan.restores() // after the load has ended, a restore could bring its effect back
		case faultNoBoot:
			return !m.plan.shortTimeouts // each of these machines would wait for 20 minutes
		default:
			return false
		}
	})
}

func (m *planMaker) addLoads() {
	themes := [][]string{
		{loadRoll, loadRoll, loadGate, loadHandOver},
		{loadScale, loadFlap, loadRoll, loadPause, loadGate, loadHandOver, loadOwnerOfSet},
		{
			loadScale,
			loadRoll,
			loadDeleteMachine,
			loadDeleteNode,
			loadLabel,
			loadOwner,
			loadFinalizer,
			loadSecret,
			loadOrphan,
			loadVanish,
			loadHandOver,
			loadOwnerOfSet,
			loadPreserve,
		},
	}
	theme := m.possibleLoads(themes[m.dice.IntN(len(themes))]...)
	for range m.randomBetween(2, m.limits.loads) {
		s := planStep{
			At:   m.randomMoment(),
			What: m.pickOne(theme),
			N:    m.randomBetween(1, 7),
			Pool: m.dice.IntN(len(m.plan.pools)),
		}
		if slices.Contains([]string{loadSecret, loadLabel, loadPause, loadGate, loadPreserve}, s.What) {
			s.For = m.randomSeconds(5, 15)
		}
		m.plan.loads = append(m.plan.loads, s)
	}
}

func (m *planMaker) addFaults() {
	kinds := m.possibleLoads(
		faultKill,
		faultKill,
		faultKill,
		faultPause,
		faultPause,
		faultRole,
		faultErrors,
		faultLate,
		faultLatency,
		faultHang,
		faultRate,
		faultWipe,
		faultPolicy,
		faultQuota,
		faultFull,
		faultNoBoot,
		faultCredentials,
		faultAway,
		faultStorm,
		faultSlow,
	)
	for range m.randomBetween(1, m.limits.faults) {
		s := planStep{At: m.randomMoment(), What: m.pickOne(kinds)}
		m.chooseTarget(&s)
		m.plan.faults = append(m.plan.faults, s)
	}
}

// chooseTarget chooses what a fault hits, and how long it lasts.
func (m *planMaker) chooseTarget(s *planStep) {
	switch s.What {
	case faultKill:
		s.On, s.For = m.chooseVictim(), m.randomSeconds(0, 15)
	case faultPause:
		s.On, s.For = m.chooseVictim(), m.randomSeconds(3, 25)
		if m.withChanceOneIn(4) && m.limits.long {
			s.For = m.randomSeconds(60, 70)
		}
	case faultRole:
		s.On = m.pickOne([]string{component.WorkerIdentity, component.WorkerIdentity, component.BridgeIdentity})
		s.For = m.randomSeconds(10, 30)
		if m.withChanceOneIn(3) && m.limits.long {
			s.For = time.Minute
		}
	case faultErrors, faultLate:
		s.On, s.For = m.pickOne([]string{"create", "delete", "status", "list"}), m.randomSeconds(5, 20)
	case faultHang:
		s.On, s.For = m.pickOne([]string{"create", "delete", "status"}), m.randomSeconds(5, 15)
	case faultPolicy:
		s.On = m.pickOne(
			[]string{"machines", "machines/status", "machinesets", "machinesets/status", "machinedeployments/status", "nodes"},
		)
		s.For = m.randomSeconds(5, 30)
	case faultLatency, faultRate, faultQuota, faultFull, faultCredentials:
		s.For = m.randomSeconds(5, 20)
	case faultAway, faultStorm, faultSlow:
		s.On, s.For = m.pickOne([]string{component.WorkerIdentity, component.BridgeIdentity}), m.randomSeconds(5, 20)
	case faultNoBoot:
		s.For = m.randomSeconds(3, 8) // machines that are created meanwhile are replaced one after the other
	}
}

// chooseVictim chooses a component to be killed or stopped.
func (m *planMaker) chooseVictim() string {
	victims := []string{
		component.Worker,
		component.SecondWorker,
		component.Bridge,
		component.SecondBridge,
		component.Temporal,
		component.VirtualCloud,
	}
	if !m.plan.restores() {
		victims = append(victims, component.APIServer, component.Etcd, component.ControllerManager)
	}
	return m.pickOne(victims)
}

// restores reports whether the API server's store is restored from a copy.
func (p plan) restores() bool {
	return slices.ContainsFunc(p.faults, func(s planStep) bool { return s.What == faultRestore })
}

// hasOnly reports whether the plan has no other loads than these.
func (p plan) hasOnly(loads ...string) bool {
	return !slices.ContainsFunc(p.loads, func(s planStep) bool { return !slices.Contains(loads, s.What) })
}

// judgesLeaving reports whether only rollouts delete machines. The checker can then also judge the number of machines
// that are being deleted.
func (p plan) judgesLeaving() bool {
	return !p.shortTimeouts && !p.restores() && p.hasOnly(loadRoll, loadGate, loadHandOver)
}

// judgesNodes reports whether only rollouts and changes of size remove nodes, and no fault hits what nodes need.
func (p plan) judgesNodes() bool {
	return !p.shortTimeouts && !p.hurtsNodes() &&
		p.hasOnly(loadRoll, loadScale, loadFlap, loadPause, loadGate, loadHandOver, loadOwnerOfSet)
}

// judgesAlone reports whether only Millwright removes nodes and instances.
func (p plan) judgesAlone() bool {
	return !p.restores() && !p.hurtsNodes() &&
		!slices.ContainsFunc(p.loads, func(s planStep) bool { return s.What == loadDeleteNode })
}

// hurtsNodes reports whether a load or a fault hits something that nodes and pods need.
func (p plan) hurtsNodes() bool {
	vanish := slices.ContainsFunc(p.loads, func(s planStep) bool { return s.What == loadVanish })
	return vanish || slices.ContainsFunc(p.faults, func(s planStep) bool {
		return slices.Contains([]string{component.APIServer, component.Etcd, component.ControllerManager}, s.On)
	})
}

func (p plan) String() string {
	describe := func(steps []planStep) string {
		var texts []string
		for _, s := range steps {
			texts = append(texts, s.String())
		}
		return strings.Join(texts, ", ")
	}
	end := "each object is deleted"
	if p.byNamespace {
		end = "the namespace is deleted"
	}
	if p.deletedEarly > 0 {
		end += fmt.Sprintf(" after %.0fs", p.deletedEarly.Seconds())
	}
	cloud := fmt.Sprintf(
		"client tokens %t, reads %s old, requests without a record for %s, faultyCloud %t",
		p.tokens,
		p.staleness,
		p.accept,
		p.faultyCloud,
	)
	loads := p.loads
	if p.strangers != nil {
		loads = append(slices.Clone(loads), *p.strangers)
	}
	return fmt.Sprintf(
		"%d pools, budget %q, drains forced %t, short timeouts %t, at the end %s; cloud: %s; loads: %s; faults: %s",
		len(p.pools),
		p.pods,
		p.drainsForced,
		p.shortTimeouts,
		end,
		cloud,
		describe(loads),
		describe(p.faults),
	)
}
