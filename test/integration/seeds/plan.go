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
	loadDeleteInstance     = "vanish"
	loadHandOverDeployment = "hand-over"      // a deployment is deleted with --cascade=orphan and applied again
	loadRemoveSetOwner     = "take-set-owner" // a set loses its owner reference, and the deployment adopts the set again
	// a policy makes each rollout wait at half of its machines, and the rollout is approved some time later
	loadStageRollouts = "gate"

	// for some time, another namespace has copies of a pool's machines, and machines with the names and labels of the
	// pool's nodes
	loadCopyMachines = "strangers"
)

// The faults.
const (
	faultKillComponent          = "kill"
	faultPauseComponent         = "pause"
	faultRevokeRights           = "take-role" // the API server answers 403
	faultCloudErrors            = "cloud-errors"
	faultCloudErrorsAfterEffect = "cloud-errors-after-effect"
	faultCloudLatency           = "cloud-latency"
	faultCloudHangs             = "cloud-hangs"
	faultCloudRateLimit         = "cloud-rate-limit"
	faultWipeTemporal           = "wipe-temporal"
	faultRefuseWrites           = "refuse" // an admission policy denies one kind of write of the worker
	faultMachineQuota           = "quota"  // a quota allows no more Machine objects in the namespace

	faultCloudQuota           = "cloud-quota"   // the cloud allows no more instances
	faultInstancesWithoutNode = "cloud-no-boot" // new instances get no node
	faultWrongCredentials     = "wrong-secret"  // the Secret has credentials that the cloud refuses
	faultRestoreEtcd          = "restore-etcd"  // the API server's store is restored from an older copy

	// Faults between workers or bridges and the API server. planStep.FaultTarget is the identity.
	faultAPIUnavailable = "api-away"         // all requests get 503, and watches break
	faultAPIErrors      = "api-storm"        // requests get 429 or conflicts, and the answers to some writes are lost
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
	seed             uint64
	pools            []poolPlan
	loads, faults    []planStep
	copyMachinesLoad *planStep // the plan's step loadMachineCopies; nil if the plan has no such step

	// Properties of the cloud while the seed runs.
	usesClientTokens                   bool
	readStaleness, createRecordLatency time.Duration
	hasFaultyCloud                     bool // use rig.MakeCloudFaulty

	deletesNamespace bool // at the end, the whole namespace is deleted instead of each object
	// time at which the namespace is deleted before all work is complete; if zero, the namespace is deleted when no
	// object changes any more
	earlyDeletionOffset time.Duration
	// disruption budget for the pods on the first pool, from podDisruptionBudgets(); empty if the plan has no pods
	podDisruptionBudget string
	hasShortTimeouts    bool // the timeouts for creation and health are short, so that machines fail
	forcesDrains        bool // the budget allows no eviction, and each drain soon reaches its short deadline
}

// podDisruptionBudgets returns disruption budgets that allow the eviction of one of four pods. Each entry has a field
// of the budget and its value.
func podDisruptionBudgets() []string {
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
	) > 0, m.randomOneInN(
		3,
	), m.randomOneInN(
		3,
	)
	p.readStaleness, p.createRecordLatency = m.randomSeconds(0, 2), m.randomSeconds(0, 1)
	if p.deletesNamespace && m.randomOneInN(3) {
		p.earlyDeletionOffset = m.randomSeconds(5, max(5, int(l.beginWindow.Seconds())))
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
	if l.allowsLongFaults && p.earlyDeletionOffset == 0 && m.randomOneInN(10) {
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
	if budget := m.pickRandomItem(podDisruptionBudgets()); m.randomOneInN(2) && !p.disturbsNodes() {
		p.podDisruptionBudget = budget
		if p.forcesDrains = m.randomOneInN(3); p.forcesDrains {
			p.podDisruptionBudget = "maxUnavailable 0"
		}
	}
	for _, steps := range [][]planStep{p.loads, p.faults} {
		slices.SortStableFunc(steps, func(a, b planStep) int { return cmp.Compare(a.BeginOffset, b.BeginOffset) })
	}
	// a separate random generator keeps the rest of the plan the same as in earlier versions
	p.hasFaultyCloud = rand.New(rand.NewPCG(seed, 8)).IntN(3) == 0
	m.random = rand.New(rand.NewPCG(seed, 9))
	if m.randomOneInN(2) {
		p.copyMachinesLoad = &planStep{
			Kind:        loadCopyMachines,
			BeginOffset: m.randomBeginOffset(),
			Duration:    m.randomSeconds(5, 20),
			PoolIndex:   m.random.IntN(len(p.pools)),
		}
	}
	return *p
}

func (m *planMaker) randomBetween(low, high int) int     { return low + m.random.IntN(high-low+1) }
func (m *planMaker) randomOneInN(n int) bool             { return m.random.IntN(n) == 0 }
func (m *planMaker) pickRandomItem(from []string) string { return from[m.random.IntN(len(from))] }

func (m *planMaker) randomBeginOffset() time.Duration {
	return time.Duration(m.random.Int64N(int64(m.limits.beginWindow)))
}

func (m *planMaker) randomSeconds(low, high int) time.Duration {
	return time.Duration(m.randomBetween(low, high)) * time.Second
}

// compatibleKinds returns those kinds of loads that are possible together with the rest of the plan.
func (m *planMaker) compatibleKinds(kinds ...string) []string {
	return slices.DeleteFunc(kinds, func(kind string) bool {
		switch kind {
		case loadOrphanInstance, loadRemoveFinalizer:
			// the class could be deleted before a sweep finds the orphan, and a restore could bring the orphan's
			// machine back
			return m.plan.earlyDeletionOffset > 0 || m.plan.restoresEtcd()
		case loadDeleteSecret, faultWrongCredentials:
			return m.plan.earlyDeletionOffset > 0 || m.plan.restoresEtcd() // without credentials no instance can be deleted
		case loadRemoveLabel,
			loadPauseRollout,
			loadStageRollouts,
			loadPreserveMachine,
			faultRevokeRights,
			faultRefuseWrites,
			faultMachineQuota:
			return m.plan.restoresEtcd() // a restore after the end of the load could bring the effect of the load back
		case faultInstancesWithoutNode:
			// without short timeouts, each machine without a node would wait 20 minutes for its creation timeout
			return !m.plan.hasShortTimeouts
		default:
			return false
		}
	})
}

func (m *planMaker) addLoads() {
	themes := [][]string{
		{loadRollOut, loadRollOut, loadStageRollouts, loadHandOverDeployment},
		{
			loadScale,
			loadScaleRepeatedly,
			loadRollOut,
			loadPauseRollout,
			loadStageRollouts,
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
			loadDeleteInstance,
			loadHandOverDeployment,
			loadRemoveSetOwner,
			loadPreserveMachine,
		},
	}
	theme := m.compatibleKinds(themes[m.random.IntN(len(themes))]...)
	for range m.randomBetween(2, m.limits.maxLoads) {
		s := planStep{
			BeginOffset:  m.randomBeginOffset(),
			Kind:         m.pickRandomItem(theme),
			LoadArgument: m.randomBetween(1, 7),
			PoolIndex:    m.random.IntN(len(m.plan.pools)),
		}
		if slices.Contains(
			[]string{loadDeleteSecret, loadRemoveLabel, loadPauseRollout, loadStageRollouts, loadPreserveMachine},
			s.Kind,
		) {
			s.Duration = m.randomSeconds(5, 15)
		}
		m.plan.loads = append(m.plan.loads, s)
	}
}

func (m *planMaker) addFaults() {
	kinds := m.compatibleKinds(
		faultKillComponent,
		faultKillComponent,
		faultKillComponent,
		faultPauseComponent,
		faultPauseComponent,
		faultRevokeRights,
		faultCloudErrors,
		faultCloudErrorsAfterEffect,
		faultCloudLatency,
		faultCloudHangs,
		faultCloudRateLimit,
		faultWipeTemporal,
		faultRefuseWrites,
		faultMachineQuota,
		faultCloudQuota,
		faultInstancesWithoutNode,
		faultWrongCredentials,
		faultAPIUnavailable,
		faultAPIErrors,
		faultSlowWatches,
	)
	for range m.randomBetween(1, m.limits.maxFaults) {
		s := planStep{BeginOffset: m.randomBeginOffset(), Kind: m.pickRandomItem(kinds)}
		m.chooseTargetAndDuration(&s)
		m.plan.faults = append(m.plan.faults, s)
	}
}

// chooseTargetAndDuration chooses what a fault affects, and how long the fault lasts.
func (m *planMaker) chooseTargetAndDuration(s *planStep) {
	switch s.Kind {
	case faultKillComponent:
		s.FaultTarget, s.Duration = m.chooseComponentToKillOrPause(), m.randomSeconds(0, 15)
	case faultPauseComponent:
		s.FaultTarget, s.Duration = m.chooseComponentToKillOrPause(), m.randomSeconds(3, 25)
		if m.randomOneInN(4) && m.limits.allowsLongFaults {
			s.Duration = m.randomSeconds(60, 70)
		}
	case faultRevokeRights:
		s.FaultTarget = m.pickRandomItem(
			[]string{component.WorkerIdentity, component.WorkerIdentity, component.BridgeIdentity},
		)
		s.Duration = m.randomSeconds(10, 30)
		if m.randomOneInN(3) && m.limits.allowsLongFaults {
			s.Duration = time.Minute
		}
	case faultCloudErrors, faultCloudErrorsAfterEffect:
		s.FaultTarget, s.Duration = m.pickRandomItem([]string{"create", "delete", "status", "list"}), m.randomSeconds(5, 20)
	case faultCloudHangs:
		s.FaultTarget, s.Duration = m.pickRandomItem([]string{"create", "delete", "status"}), m.randomSeconds(5, 15)
	case faultRefuseWrites:
		s.FaultTarget = m.pickRandomItem(
			[]string{"machines", "machines/status", "machinesets", "machinesets/status", "machinedeployments/status", "nodes"},
		)
		s.Duration = m.randomSeconds(5, 30)
	case faultCloudLatency, faultCloudRateLimit, faultMachineQuota, faultCloudQuota, faultWrongCredentials:
		s.Duration = m.randomSeconds(5, 20)
	case faultAPIUnavailable, faultAPIErrors, faultSlowWatches:
		s.FaultTarget, s.Duration = m.pickRandomItem(
			[]string{component.WorkerIdentity, component.BridgeIdentity},
		), m.randomSeconds(
			5,
			20,
		)
	case faultInstancesWithoutNode:
		// the fault is short, because Millwright replaces the machines that are created during the fault one after the
		// other
		s.Duration = m.randomSeconds(3, 8)
	}
}

// chooseComponentToKillOrPause chooses a component to be killed or stopped.
func (m *planMaker) chooseComponentToKillOrPause() string {
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

// areMachinesDeletedOnlyByRollouts reports whether only rollouts delete machines. If other steps delete machines, the
// checker does not check the number of machines that are being deleted.
func (p plan) areMachinesDeletedOnlyByRollouts() bool {
	return !p.hasShortTimeouts && !p.restoresEtcd() &&
		p.hasOnlyLoads(loadRollOut, loadStageRollouts, loadHandOverDeployment)
}

// areNodesRemovedOnlyByDeploymentChanges reports whether only rollouts and changes of the replicas remove nodes, and no
// fault affects a component that nodes need.
func (p plan) areNodesRemovedOnlyByDeploymentChanges() bool {
	return !p.hasShortTimeouts && !p.disturbsNodes() &&
		p.hasOnlyLoads(
			loadRollOut,
			loadScale,
			loadScaleRepeatedly,
			loadPauseRollout,
			loadStageRollouts,
			loadHandOverDeployment,
			loadRemoveSetOwner,
		)
}

// areNodesRemovedOnlyByMillwright reports whether only Millwright removes nodes and instances.
func (p plan) areNodesRemovedOnlyByMillwright() bool {
	return !p.restoresEtcd() && !p.disturbsNodes() &&
		!slices.ContainsFunc(p.loads, func(s planStep) bool { return s.Kind == loadDeleteNode })
}

// disturbsNodes reports whether a load or a fault affects a component that nodes and pods need.
func (p plan) disturbsNodes() bool {
	vanish := slices.ContainsFunc(p.loads, func(s planStep) bool { return s.Kind == loadDeleteInstance })
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
	if p.earlyDeletionOffset > 0 {
		end += fmt.Sprintf(" after %.0fs", p.earlyDeletionOffset.Seconds())
	}
	cloud := fmt.Sprintf(
		"client tokens %t, reads %s old, requests without a record for %s, faultyCloud %t",
		p.usesClientTokens,
		p.readStaleness,
		p.createRecordLatency,
		p.hasFaultyCloud,
	)
	loads := p.loads
	if p.copyMachinesLoad != nil {
		loads = append(slices.Clone(loads), *p.copyMachinesLoad)
	}
	return fmt.Sprintf(
		"%d pools, budget %q, drains forced %t, short timeouts %t, at the end %s; cloud: %s; loads: %s; faults: %s",
		len(p.pools),
		p.podDisruptionBudget,
		p.forcesDrains,
		p.hasShortTimeouts,
		end,
		cloud,
		describe(loads),
		describe(p.faults),
	)
}
