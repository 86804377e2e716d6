// Tier: test-all. Loads and faults are random.

// Package seeds runs random loads and faults on one stack, while package checker watches it. The whole plan follows
// from a seed, so that each run can be repeated.
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

// step is one load or one fault.
type step struct {
	At   time.Duration // when it begins, counted from the time at which the pools run
	For  time.Duration // how long it lasts
	What string
	On   string // component, identity, or operation of the cloud that a fault hits; empty for loads
	N    int    // number of a load: replicas, or the index of a machine
	Pool int
}

func (s step) String() string {
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
	loads, faults []step
	strangers     *step // the load loadStrangers; nil: none

	// How the cloud is while the seed runs.
	tokens            bool
	staleness, accept time.Duration
	faultyCloud       bool // rig.FaultyCloud

	byNamespace bool          // at the end the namespace is deleted, otherwise each object
	early       time.Duration // when the namespace is deleted in the middle of the work; zero: when all is calm
	// the disruption budget of pods on the first pool, one of budgets(); empty: there are no pods
	pods   string
	hasty  bool // short timeouts of creation and health, so that machines fail
	forced bool // the budget allows no eviction, and each drain soon reaches its short deadline
}

// budgets are disruption budgets that allow the eviction of one of four pods: the field of the budget and its value.
func budgets() []string {
	return []string{"minAvailable 3", "minAvailable 75%", "maxUnavailable 1", "maxUnavailable 25%"}
}

// lengths are the limits of a plan.
type lengths struct {
	loads, faults int           // maximum numbers
	time          time.Duration // time in which all of them begin
	long          bool          // faults may last a minute or two
}

// maker makes the plan of one seed from its dice.
type maker struct {
	dice *rand.Rand
	l    lengths
	p    plan
}

// newPlan makes the plan of a seed.
func newPlan(seed uint64, l lengths) plan {
	m := maker{dice: rand.New(rand.NewPCG(seed, 7)), l: l, p: plan{seed: seed}}
	p := &m.p
	p.tokens, p.byNamespace, p.hasty = m.dice.IntN(3) > 0, m.oneOf(3), m.oneOf(3)
	p.staleness, p.accept = m.seconds(0, 2), m.seconds(0, 1)
	if p.byNamespace && m.oneOf(3) {
		p.early = m.seconds(5, max(5, int(l.time.Seconds())))
	}
	for range m.between(1, 2) {
		p.pools = append(
			p.pools,
			pool{replicas: int32(m.between(2, 5)), surge: int32(m.between(1, 2)), unavailable: int32(m.between(0, 1))},
		)
	}
	if l.long && p.early == 0 && m.oneOf(10) {
		p.faults = append(
			p.faults,
			step{At: m.moment() / 2, For: m.seconds(125, 140), What: faultRestore, On: component.Etcd},
		)
		p.hasty = true // a restored machine may wait for the node of an instance that is gone
	}
	m.addLoads()
	m.addFaults()
	if budget := m.pick(budgets()); m.oneOf(2) && !p.hurtsNodes() {
		p.pods = budget
		if p.forced = m.oneOf(3); p.forced {
			p.pods = "maxUnavailable 0"
		}
	}
	for _, steps := range [][]step{p.loads, p.faults} {
		slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.At, b.At) })
	}
	// with its own dice, so that the rest of the plan stays as in earlier versions
	p.faultyCloud = rand.New(rand.NewPCG(seed, 8)).IntN(3) == 0
	m.dice = rand.New(rand.NewPCG(seed, 9))
	if m.oneOf(2) {
		p.strangers = &step{What: loadStrangers, At: m.moment(), For: m.seconds(5, 20), Pool: m.dice.IntN(len(p.pools))}
	}
	return *p
}

func (m *maker) between(low, high int) int { return low + m.dice.IntN(high-low+1) }
func (m *maker) oneOf(n int) bool          { return m.dice.IntN(n) == 0 }
func (m *maker) pick(from []string) string { return from[m.dice.IntN(len(from))] }
func (m *maker) moment() time.Duration     { return time.Duration(m.dice.Int64N(int64(m.l.time))) }
func (m *maker) seconds(low, high int) time.Duration {
	return time.Duration(m.between(low, high)) * time.Second
}

// possible returns the kinds of loads that fit the rest of the plan.
func (m *maker) possible(kinds ...string) []string {
	return slices.DeleteFunc(kinds, func(kind string) bool {
		switch kind {
		case loadOrphan, loadFinalizer:
			// the class is gone before the orphan is found; a restored machine is no orphan
			return m.p.early > 0 || m.p.restores()
		case loadSecret, faultCredentials:
			return m.p.early > 0 || m.p.restores() // without credentials nothing can be deleted
		case loadLabel, loadPause, loadGate, loadPreserve, faultRole, faultPolicy, faultQuota:
			return m.p.restores() // a restore could undo the end of this load
		case faultNoBoot:
			return !m.p.hasty // each of these machines would wait for 20 minutes
		default:
			return false
		}
	})
}

func (m *maker) addLoads() {
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
	theme := m.possible(themes[m.dice.IntN(len(themes))]...)
	for range m.between(2, m.l.loads) {
		s := step{At: m.moment(), What: m.pick(theme), N: m.between(1, 7), Pool: m.dice.IntN(len(m.p.pools))}
		if slices.Contains([]string{loadSecret, loadLabel, loadPause, loadGate, loadPreserve}, s.What) {
			s.For = m.seconds(5, 15)
		}
		m.p.loads = append(m.p.loads, s)
	}
}

func (m *maker) addFaults() {
	kinds := m.possible(
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
	for range m.between(1, m.l.faults) {
		s := step{At: m.moment(), What: m.pick(kinds)}
		m.fill(&s)
		m.p.faults = append(m.p.faults, s)
	}
}

// fill chooses what a fault hits, and how long it lasts.
func (m *maker) fill(s *step) {
	switch s.What {
	case faultKill:
		s.On, s.For = m.victim(), m.seconds(0, 15)
	case faultPause:
		s.On, s.For = m.victim(), m.seconds(3, 25)
		if m.oneOf(4) && m.l.long {
			s.For = m.seconds(60, 70)
		}
	case faultRole:
		s.On = m.pick([]string{component.WorkerIdentity, component.WorkerIdentity, component.BridgeIdentity})
		s.For = m.seconds(10, 30)
		if m.oneOf(3) && m.l.long {
			s.For = time.Minute
		}
	case faultErrors, faultLate:
		s.On, s.For = m.pick([]string{"create", "delete", "status", "list"}), m.seconds(5, 20)
	case faultHang:
		s.On, s.For = m.pick([]string{"create", "delete", "status"}), m.seconds(5, 15)
	case faultPolicy:
		s.On = m.pick(
			[]string{"machines", "machines/status", "machinesets", "machinesets/status", "machinedeployments/status", "nodes"},
		)
		s.For = m.seconds(5, 30)
	case faultLatency, faultRate, faultQuota, faultFull, faultCredentials:
		s.For = m.seconds(5, 20)
	case faultAway, faultStorm, faultSlow:
		s.On, s.For = m.pick([]string{component.WorkerIdentity, component.BridgeIdentity}), m.seconds(5, 20)
	case faultNoBoot:
		s.For = m.seconds(3, 8) // the machines of this time are replaced one after the other
	}
}

// victim chooses a component to be killed or stopped.
func (m *maker) victim() string {
	victims := []string{
		component.Worker,
		component.SecondWorker,
		component.Bridge,
		component.SecondBridge,
		component.Temporal,
		component.VirtualCloud,
	}
	if !m.p.restores() {
		victims = append(victims, component.APIServer, component.Etcd, component.ControllerManager)
	}
	return m.pick(victims)
}

// restores reports whether the API server's store is restored from a copy.
func (p plan) restores() bool {
	return slices.ContainsFunc(p.faults, func(s step) bool { return s.What == faultRestore })
}

// only reports whether the plan has no other loads than these.
func (p plan) only(loads ...string) bool {
	return !slices.ContainsFunc(p.loads, func(s step) bool { return !slices.Contains(loads, s.What) })
}

// leaving reports whether only rollouts delete machines, so that machines that are being deleted can be judged, too.
func (p plan) leaving() bool {
	return !p.hasty && !p.restores() && p.only(loadRoll, loadGate, loadHandOver)
}

// nodes reports whether only rollouts and changes of size remove nodes, and no fault hits what nodes need.
func (p plan) nodes() bool {
	return !p.hasty && !p.hurtsNodes() &&
		p.only(loadRoll, loadScale, loadFlap, loadPause, loadGate, loadHandOver, loadOwnerOfSet)
}

// leaves reports whether only Millwright removes nodes and instances.
func (p plan) leaves() bool {
	return !p.restores() && !p.hurtsNodes() &&
		!slices.ContainsFunc(p.loads, func(s step) bool { return s.What == loadDeleteNode })
}

// hurtsNodes reports whether a load or a fault hits something that nodes and pods need.
func (p plan) hurtsNodes() bool {
	vanish := slices.ContainsFunc(p.loads, func(s step) bool { return s.What == loadVanish })
	return vanish || slices.ContainsFunc(p.faults, func(s step) bool {
		return slices.Contains([]string{component.APIServer, component.Etcd, component.ControllerManager}, s.On)
	})
}

func (p plan) String() string {
	describe := func(steps []step) string {
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
	if p.early > 0 {
		end += fmt.Sprintf(" after %.0fs", p.early.Seconds())
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
		p.forced,
		p.hasty,
		end,
		cloud,
		describe(loads),
		describe(p.faults),
	)
}
