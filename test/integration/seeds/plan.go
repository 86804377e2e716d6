// Package seeds runs random loads and faults against one stack and has everything checked from outside. A seed gives the whole plan,
// so that each run can be repeated.
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
	loadLabel         = "take-label"     // the machine leaves its set, and is deleted later
	loadOwner         = "take-owner"     // the set takes it back
	loadFinalizer     = "take-finalizer" // of a machine that stays
	loadSecret        = "delete-secret"  // for a while
	loadOrphan        = "orphan"         // a machine is deleted and loses its finalizer
	loadPause         = "pause-rollout"  // for a while
	loadVanish        = "vanish"         // an instance is gone without a call; its node is, too, if the number is odd
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
	faultQuota   = "quota"  // no more machines may be created in the namespace
)

// step is one load or one fault.
type step struct {
	At   time.Duration // after the pools run
	For  time.Duration // until it is taken back
	What string
	On   string // component, identity, or operation of the cloud; empty for loads
	N    int    // a load's number: replicas, or which machine
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

	// How the cloud is while the seed runs.
	tokens            bool
	staleness, accept time.Duration

	byNamespace bool // at the end the namespace is deleted, otherwise each object
	pods        bool // pods with a disruption budget run on the first pool
	hasty       bool // short timeouts of creation and health, so that machines fail
}

// lengths says how much happens.
type lengths struct {
	loads, faults int           // at the most
	time          time.Duration // until the last one begins
}

// newPlan makes the plan of a seed.
func newPlan(seed uint64, l lengths) plan {
	dice := rand.New(rand.NewPCG(seed, 7))
	between := func(low, high int) int { return low + dice.IntN(high-low+1) }
	seconds := func(low, high int) time.Duration { return time.Duration(between(low, high)) * time.Second }
	pick := func(from []string) string { return from[dice.IntN(len(from))] }

	p := plan{seed: seed, tokens: dice.IntN(3) > 0, byNamespace: dice.IntN(3) == 0}
	p.staleness, p.accept = seconds(0, 2), seconds(0, 1)
	for range between(1, 2) {
		p.pools = append(p.pools, pool{replicas: int32(between(2, 5)), surge: int32(between(1, 2)), unavailable: int32(between(0, 1))})
	}
	themes := [][]string{
		{loadRoll},
		{loadScale, loadFlap, loadRoll, loadPause},
		{loadScale, loadRoll, loadDeleteMachine, loadDeleteNode, loadLabel, loadOwner, loadFinalizer, loadSecret, loadOrphan, loadVanish},
	}
	theme := themes[dice.IntN(len(themes))]
	for range between(2, l.loads) {
		s := step{At: time.Duration(dice.Int64N(int64(l.time))), What: pick(theme), N: between(1, 7), Pool: dice.IntN(len(p.pools))}
		if slices.Contains([]string{loadSecret, loadLabel, loadPause}, s.What) {
			s.For = seconds(5, 15)
		}
		p.loads = append(p.loads, s)
	}
	kinds := []string{faultKill, faultKill, faultKill, faultPause, faultPause, faultRole, faultErrors, faultLate, faultLatency, faultHang, faultRate, faultWipe, faultPolicy, faultQuota}
	victims := []string{
		component.Worker, component.Worker, component.Bridge, component.SecondBridge, component.Temporal, component.VirtualCloud,
		component.APIServer, component.Etcd, component.ControllerManager,
	}
	for range between(1, l.faults) {
		s := step{At: time.Duration(dice.Int64N(int64(l.time))), What: pick(kinds)}
		switch s.What {
		case faultKill:
			s.On, s.For = pick(victims), seconds(0, 15)
		case faultPause:
			s.On, s.For = pick(victims), seconds(3, 25)
		case faultRole:
			s.On, s.For = pick([]string{component.WorkerIdentity, component.WorkerIdentity, component.BridgeIdentity}), seconds(20, 40)
		case faultErrors, faultLate:
			s.On, s.For = pick([]string{"create", "delete", "status", "list"}), seconds(5, 20)
		case faultHang:
			s.On, s.For = pick([]string{"create", "delete", "status"}), seconds(5, 15)
		case faultPolicy:
			s.On, s.For = pick([]string{"machines", "machines/status", "machinesets", "machinesets/status", "machinedeployments/status", "nodes"}), seconds(5, 30)
		case faultLatency, faultRate, faultQuota:
			s.For = seconds(5, 20)
		}
		p.faults = append(p.faults, s)
	}
	p.hasty = dice.IntN(3) == 0
	p.pods = dice.IntN(2) == 0 && !p.hurtsNodes()
	for _, steps := range [][]step{p.loads, p.faults} {
		slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.At, b.At) })
	}
	return p
}

// leaving says that machines are deleted by rollouts only, so that those that are on their way out count too.
func (p plan) leaving() bool {
	return !p.hasty && !slices.ContainsFunc(p.loads, func(s step) bool { return s.What != loadRoll })
}

// nodes says that only rollouts and changes of size take nodes, and that nothing which nodes need is disturbed.
func (p plan) nodes() bool {
	return !p.hasty && !p.hurtsNodes() && !slices.ContainsFunc(p.loads, func(s step) bool {
		return !slices.Contains([]string{loadRoll, loadScale, loadFlap, loadPause}, s.What)
	})
}

// hurtsNodes says that something which nodes and pods need is disturbed.
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
	cloud := fmt.Sprintf("client tokens %t, reads %s old, requests without a record for %s", p.tokens, p.staleness, p.accept)
	return fmt.Sprintf("%d pools, pods %t, short timeouts %t; cloud: %s; loads: %s; faults: %s", len(p.pools), p.pods, p.hasty, cloud, describe(p.loads), describe(p.faults))
}
