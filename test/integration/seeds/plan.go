// Tier: test-all. Loads and faults are random.

// Package seeds runs random loads and faults on one stack, while package checker checks the stack. The seed determines
// the plan of a run, so two runs with the same seed have the same plan.
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

// A load is an action of a person.
const (
	loadScale           = "scale"
	loadScaleRepeatedly = "flap"
	loadRollOut         = "roll"
	loadDeleteMachine   = "delete-machine"
	loadDeleteNode      = "delete-node"
	loadRemoveLabel     = "take-label"     // a machine loses a label, leaves its set because of this, and is deleted later
	loadRemoveOwner     = "take-owner"     // a machine loses its owner reference, and the set adopts the machine again
	loadRemoveFinalizer = "take-finalizer" // a machine that is not being deleted loses its finalizer
	loadDeleteSecret    = "delete-secret"  // the Secret is deleted and restored after some time
	loadOrphanInstance  = "orphan"         // a machine is deleted and loses its finalizer
	loadPauseRollout    = "pause-rollout"  // a rollout is paused for some time
	loadPreserveMachine = "preserve"       // a machine is preserved for some time
	// an instance vanishes in the cloud; if LoadArgument is odd, its node also vanishes
	loadVanishInstance     = "vanish"
	loadHandOverDeployment = "hand-over"      // a deployment is deleted with --cascade=orphan and applied again
	loadRemoveSetOwner     = "take-set-owner" // a set loses its owner reference, and the deployment adopts the set again
	// a policy makes each rollout wait at half of its machines, and the rollout is approved some time later
	loadStagedRollout = "gate"

	// for some time, another namespace has copies of a pool's machines, and machines with the names and labels of the
	// pool's nodes
	loadMachineCopies = "strangers"
)

// The faults.
const (
	faultKill              = "kill"
	faultPause             = "pause"
	faultRevokeRights      = "take-role" // the API server answers 403
	faultCloudErrors       = "cloud-errors"
	faultErrorsAfterEffect = "cloud-errors-after-effect"
	faultCloudLatency      = "cloud-latency"
	faultCloudHangs        = "cloud-hangs"
	faultRateLimit         = "cloud-rate-limit"
	faultWipeTemporal      = "wipe-temporal"
	faultRefuseWrites      = "refuse" // an admission policy denies one kind of write of the worker
	faultMachineQuota      = "quota"  // a quota allows no more Machine objects in the namespace

	faultCloudQuota       = "cloud-quota"   // the cloud allows no more instances
	faultNoBoot           = "cloud-no-boot" // new instances get no node
	faultWrongCredentials = "wrong-secret"  // the Secret has credentials that the cloud refuses
	faultRestoreEtcd      = "restore-etcd"  // the API server's store is restored from an older copy

	// Faults between workers or bridges and the API server. planStep.FaultTarget is the identity.
	faultAPIUnavailable = "api-away"         // all requests get 503, and watches break
	faultAPIStorm       = "api-storm"        // requests get 429 or conflicts, and the answers to some writes are lost
	faultSlowWatches    = "api-slow-watches" // watch events are late, and watches break
)

// planStep is one load or one fault.
type planStep struct {
	BeginOffset  time.Duration // start time of the step, relative to the time when all pools run
	Duration     time.Duration // duration
	Kind         string
	FaultTarget  string // component, identity or operation of the cloud that a fault affects; empty for loads
	LoadArgument int    // argument of a load: number of replicas, or index of a machine
	PoolIndex    int
}

func (s planStep) String() string {
	text := fmt.Sprintf("%.0fs %s", s.BeginOffset.Seconds(), s.Kind)
	if s.FaultTarget != "" {
		text += " " + s.FaultTarget
	}
	if s.Duration > 0 {
		text += fmt.Sprintf(" for %.0fs", s.Duration.Seconds())
	}
	return text
}

// poolPlan has the replicas and the bounds of one MachineDeployment of a plan.
type poolPlan struct{ replicas, maxSurge, maxUnavailable int32 }

// plan has all loads and faults of one seed.
type plan struct {
	seed              uint64
	pools             []poolPlan
	loads, faults     []planStep
	machineCopiesLoad *planStep // the plan's step loadMachineCopies; nil if the plan has no such step

	// Properties of the cloud while the seed runs.
	usesClientTokens             bool
	readStaleness, acceptLatency time.Duration
	hasFaultyCloud               bool // use rig.MakeCloudFaulty

	deletesNamespace bool // at the end, the whole namespace is deleted instead of each object
	// time at which the namespace is deleted before all work is complete; if zero, the namespace is deleted when no
	// object changes any more
	earlyDeletionTime time.Duration
	// disruption budget for the pods on the first pool, from podBudgets(); empty if the plan has no pods
	podBudget        string
	hasShortTimeouts bool // the timeouts for creation and health are short, so that machines fail
	forcesDrains     bool // the budget allows no eviction, and each drain soon reaches its short deadline
}

// podBudgets returns disruption budgets that allow the eviction of one of four pods. Each entry has a field of the
// budget and its value.
func podBudgets() []string {
	return []string{"minAvailable 3", "minAvailable 75%", "maxUnavailable 1", "maxUnavailable 25%"}
}

// planLimits are the limits of a plan.
type planLimits struct {
	maxLoads, maxFaults int           // maximum numbers of loads and of faults
	beginWindow         time.Duration // all loads and faults begin within this time after all pools run
	allowsLongFaults    bool          // a fault may last one or two minutes
}

// planMaker makes the plan of one seed. The random generator dice depends only on the seed.
type planMaker struct {
	random *rand.Rand
	limits planLimits
	plan   plan
}

// newPlan makes the plan of a seed.
func newPlan(seed uint64, l planLimits) plan {
	m := planMaker{random: rand.New(rand.NewPCG(seed, 7)), limits: l, plan: plan{seed: seed}}
	p := &m.plan
	p.usesClientTokens, p.deletesNamespace, p.hasShortTimeouts = m.random.IntN(
		3,
	) > 0, m.randomBoolOneIn(
		3,
	), m.randomBoolOneIn(
		3,
	)
	p.readStaleness, p.acceptLatency = m.randomSeconds(0, 2), m.randomSeconds(0, 1)
	if p.deletesNamespace && m.randomBoolOneIn(3) {
		p.earlyDeletionTime = m.randomSeconds(5, max(5, int(l.beginWindow.Seconds())))
	}
	for range m.randomBetween(1, 2) {
		p.pools = append(
			p.pools,
			poolPlan{
				replicas:       int32(m.randomBetween(2, 5)),
				maxSurge:       int32(m.randomBetween(1, 2)),
				maxUnavailable: int32(m.randomBetween(0, 1)),
			},
		)
	}
	if l.allowsLongFaults && p.earlyDeletionTime == 0 && m.randomBoolOneIn(10) {
		p.faults = append(
			p.faults,
			planStep{
				BeginOffset: m.randomBeginOffset() / 2,
				Duration:    m.randomSeconds(125, 140),
				Kind:        faultRestoreEtcd,
				FaultTarget: component.Etcd,
			},
		)
		// after the restore, a machine may wait for the node of an instance that no longer exists
		p.hasShortTimeouts = true
	}
	m.addLoads()
	m.addFaults()
	if budget := m.pickRandomItem(podBudgets()); m.randomBoolOneIn(2) && !p.disturbsNodes() {
		p.podBudget = budget
		if p.forcesDrains = m.randomBoolOneIn(3); p.forcesDrains {
			p.podBudget = "maxUnavailable 0"
		}
	}
	for _, steps := range [][]planStep{p.loads, p.faults} {
		slices.SortStableFunc(steps, func(a, b planStep) int { return cmp.Compare(a.BeginOffset, b.BeginOffset) })
	}
	// a separate random generator keeps the rest of the plan the same as in earlier versions
	p.hasFaultyCloud = rand.New(rand.NewPCG(seed, 8)).IntN(3) == 0
	m.random = rand.New(rand.NewPCG(seed, 9))
	if m.randomBoolOneIn(2) {
		p.machineCopiesLoad = &planStep{
			Kind:        loadMachineCopies,
			BeginOffset: m.randomBeginOffset(),
			Duration:    m.randomSeconds(5, 20),
			PoolIndex:   m.random.IntN(len(p.pools)),
		}
	}
	return *p
}

func (m *planMaker) randomBetween(low, high int) int     { return low + m.random.IntN(high-low+1) }
func (m *planMaker) randomBoolOneIn(n int) bool          { return m.random.IntN(n) == 0 }
func (m *planMaker) pickRandomItem(from []string) string { return from[m.random.IntN(len(from))] }

func (m *planMaker) randomBeginOffset() time.Duration {
	return time.Duration(m.random.Int64N(int64(m.limits.beginWindow)))
}

func (m *planMaker) randomSeconds(low, high int) time.Duration {
	return time.Duration(m.randomBetween(low, high)) * time.Second
}

// possibleLoads returns those kinds of loads that are possible together with the rest of the plan.
func (m *planMaker) possibleLoads(kinds ...string) []string {
	return slices.DeleteFunc(kinds, func(kind string) bool {
		switch kind {
		case loadOrphanInstance, loadRemoveFinalizer:
			// the class could be deleted before a sweep finds the orphan, and a restore could bring the orphan's
			// machine back
			return m.plan.earlyDeletionTime > 0 || m.plan.restoresEtcd()
		case loadDeleteSecret, faultWrongCredentials:
			return m.plan.earlyDeletionTime > 0 || m.plan.restoresEtcd() // without credentials no instance can be deleted
		case loadRemoveLabel,
			loadPauseRollout,
			loadStagedRollout,
			loadPreserveMachine,
			faultRevokeRights,
			faultRefuseWrites,
			faultMachineQuota:
			return m.plan.restoresEtcd() // a restore after the end of the load could bring the effect of the load back
		case faultNoBoot:
			// without short timeouts, each machine without a node would wait 20 minutes for its creation timeout
			return !m.plan.hasShortTimeouts
		default:
			return false
		}
	})
}

func (m *planMaker) addLoads() {
	themes := [][]string{
		{loadRollOut, loadRollOut, loadStagedRollout, loadHandOverDeployment},
		{
			loadScale,
			loadScaleRepeatedly,
			loadRollOut,
			loadPauseRollout,
			loadStagedRollout,
			loadHandOverDeployment,
			loadRemoveSetOwner,
		},
		{
			loadScale,
			loadRollOut,
			loadDeleteMachine,
			loadDeleteNode,
			loadRemoveLabel,
			loadRemoveOwner,
			loadRemoveFinalizer,
			loadDeleteSecret,
			loadOrphanInstance,
			loadVanishInstance,
			loadHandOverDeployment,
			loadRemoveSetOwner,
			loadPreserveMachine,
		},
	}
	theme := m.possibleLoads(themes[m.random.IntN(len(themes))]...)
	for range m.randomBetween(2, m.limits.maxLoads) {
		s := planStep{
			BeginOffset:  m.randomBeginOffset(),
			Kind:         m.pickRandomItem(theme),
			LoadArgument: m.randomBetween(1, 7),
			PoolIndex:    m.random.IntN(len(m.plan.pools)),
		}
		if slices.Contains(
			[]string{loadDeleteSecret, loadRemoveLabel, loadPauseRollout, loadStagedRollout, loadPreserveMachine},
			s.Kind,
		) {
			s.Duration = m.randomSeconds(5, 15)
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
		faultRevokeRights,
		faultCloudErrors,
		faultErrorsAfterEffect,
		faultCloudLatency,
		faultCloudHangs,
		faultRateLimit,
		faultWipeTemporal,
		faultRefuseWrites,
		faultMachineQuota,
		faultCloudQuota,
		faultNoBoot,
		faultWrongCredentials,
		faultAPIUnavailable,
		faultAPIStorm,
		faultSlowWatches,
	)
	for range m.randomBetween(1, m.limits.maxFaults) {
		s := planStep{BeginOffset: m.randomBeginOffset(), Kind: m.pickRandomItem(kinds)}
		m.chooseTarget(&s)
		m.plan.faults = append(m.plan.faults, s)
	}
}

// chooseTarget chooses what a fault affects, and how long the fault lasts.
func (m *planMaker) chooseTarget(s *planStep) {
	switch s.Kind {
	case faultKill:
		s.FaultTarget, s.Duration = m.chooseProcessToKill(), m.randomSeconds(0, 15)
	case faultPause:
		s.FaultTarget, s.Duration = m.chooseProcessToKill(), m.randomSeconds(3, 25)
		if m.randomBoolOneIn(4) && m.limits.allowsLongFaults {
			s.Duration = m.randomSeconds(60, 70)
		}
	case faultRevokeRights:
		s.FaultTarget = m.pickRandomItem(
			[]string{component.WorkerIdentity, component.WorkerIdentity, component.BridgeIdentity},
		)
		s.Duration = m.randomSeconds(10, 30)
		if m.randomBoolOneIn(3) && m.limits.allowsLongFaults {
			s.Duration = time.Minute
		}
	case faultCloudErrors, faultErrorsAfterEffect:
		s.FaultTarget, s.Duration = m.pickRandomItem([]string{"create", "delete", "status", "list"}), m.randomSeconds(5, 20)
	case faultCloudHangs:
		s.FaultTarget, s.Duration = m.pickRandomItem([]string{"create", "delete", "status"}), m.randomSeconds(5, 15)
	case faultRefuseWrites:
		s.FaultTarget = m.pickRandomItem(
			[]string{"machines", "machines/status", "machinesets", "machinesets/status", "machinedeployments/status", "nodes"},
		)
		s.Duration = m.randomSeconds(5, 30)
	case faultCloudLatency, faultRateLimit, faultMachineQuota, faultCloudQuota, faultWrongCredentials:
		s.Duration = m.randomSeconds(5, 20)
	case faultAPIUnavailable, faultAPIStorm, faultSlowWatches:
		s.FaultTarget, s.Duration = m.pickRandomItem(
			[]string{component.WorkerIdentity, component.BridgeIdentity},
		), m.randomSeconds(
			5,
			20,
		)
	case faultNoBoot:
		// the fault is short, because Millwright replaces the machines that are created during the fault one after the
		// other
		s.Duration = m.randomSeconds(3, 8)
	}
}

// chooseProcessToKill chooses a component to be killed or stopped.
func (m *planMaker) chooseProcessToKill() string {
	victims := []string{
		component.Worker,
		component.SecondWorker,
		component.Bridge,
		component.SecondBridge,
		component.Temporal,
		component.VirtualCloud,
	}
	if !m.plan.restoresEtcd() {
		victims = append(victims, component.APIServer, component.Etcd, component.ControllerManager)
	}
	return m.pickRandomItem(victims)
}

// restoresEtcd reports whether the API server's store is restored from a copy.
func (p plan) restoresEtcd() bool {
	return slices.ContainsFunc(p.faults, func(s planStep) bool { return s.Kind == faultRestoreEtcd })
}

// hasOnlyLoads reports whether the plan has no other loads than these.
func (p plan) hasOnlyLoads(loads ...string) bool {
	return !slices.ContainsFunc(p.loads, func(s planStep) bool { return !slices.Contains(loads, s.Kind) })
}

// canJudgeLeavingMachines reports whether only rollouts delete machines. If other steps delete machines, the checker
// does not check the number of machines that are being deleted.
func (p plan) canJudgeLeavingMachines() bool {
	return !p.hasShortTimeouts && !p.restoresEtcd() &&
		p.hasOnlyLoads(loadRollOut, loadStagedRollout, loadHandOverDeployment)
}

// canJudgeNodes reports whether only rollouts and changes of the replicas remove nodes, and no fault affects a
// component that nodes need.
func (p plan) canJudgeNodes() bool {
	return !p.hasShortTimeouts && !p.disturbsNodes() &&
		p.hasOnlyLoads(
			loadRollOut,
			loadScale,
			loadScaleRepeatedly,
			loadPauseRollout,
			loadStagedRollout,
			loadHandOverDeployment,
			loadRemoveSetOwner,
		)
}

// canJudgeNodeLoss reports whether only Millwright removes nodes and instances.
func (p plan) canJudgeNodeLoss() bool {
	return !p.restoresEtcd() && !p.disturbsNodes() &&
		!slices.ContainsFunc(p.loads, func(s planStep) bool { return s.Kind == loadDeleteNode })
}

// disturbsNodes reports whether a load or a fault affects a component that nodes and pods need.
func (p plan) disturbsNodes() bool {
	vanish := slices.ContainsFunc(p.loads, func(s planStep) bool { return s.Kind == loadVanishInstance })
	return vanish || slices.ContainsFunc(p.faults, func(s planStep) bool {
		return slices.Contains([]string{component.APIServer, component.Etcd, component.ControllerManager}, s.FaultTarget)
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
	if p.deletesNamespace {
		end = "the namespace is deleted"
	}
	if p.earlyDeletionTime > 0 {
		end += fmt.Sprintf(" after %.0fs", p.earlyDeletionTime.Seconds())
	}
	cloud := fmt.Sprintf(
		"client tokens %t, reads %s old, requests without a record for %s, faultyCloud %t",
		p.usesClientTokens,
		p.readStaleness,
		p.acceptLatency,
		p.hasFaultyCloud,
	)
	loads := p.loads
	if p.machineCopiesLoad != nil {
		loads = append(slices.Clone(loads), *p.machineCopiesLoad)
	}
	return fmt.Sprintf(
		"%d pools, budget %q, drains forced %t, short timeouts %t, at the end %s; cloud: %s; loads: %s; faults: %s",
		len(p.pools),
		p.podBudget,
		p.forcesDrains,
		p.hasShortTimeouts,
		end,
		cloud,
		describe(loads),
		describe(p.faults),
	)
}
