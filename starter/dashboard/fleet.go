package dashboard

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/observe/target"
)

// fleet is the model of all pages: the pools with their machines.
type fleet struct {
	snapshot

	pools    []*pool    // those that need a person first
	clusters []*cluster // those that need a person first
	machines map[objectID]*machineRow
	byID     map[objectID]*pool
}

// pool is a deployment with its sets and machines, a set without deployment, or the machines of a namespace that no set
// controls.
type pool struct {
	id         objectID
	ownVersion string // resource version of the deployment
	cluster    clusterKey
	revision   int64 // 0: the pool has no revisions
	rollout    *v1alpha1.RolloutStatus
	operation  *v1alpha1.Operation // nil if no work is in progress
	counts     counts
	state      state
	since      time.Time       // when its oldest wait or operation began; zero: it has none
	waits      []v1alpha1.Wait // what the pool itself waits for, without its machines
	sets       []*setFacts
	target     *setFacts // the set that the machines come to; nil: none yet
	machines   []*machineRow
}

// clusterKey names the cluster that machines join.
type clusterKey struct {
	Namespace string
	Name      string // name of the Cluster of Cluster API; empty: the namespace is the name
}

// String returns the name of the cluster as pages show it.
func (k clusterKey) String() string {
	if k.Name == "" {
		return k.Namespace
	}
	return k.Namespace + "/" + k.Name
}

// cluster sums up the pools of one cluster.
type cluster struct {
	key     clusterKey
	pools   int
	counts  counts
	state   state
	problem string // why nobody works on the cluster; empty: somebody does, or that is not known
}

// category says which part of a pool's bar a machine belongs to.
type category int

// The categories in the order of the bar.
const (
	categoryUpToDate category = iota // has the revision that the pool comes to, and is ready
	categoryStarting                 // has that revision, and is not ready
	categoryStuck                    // as categoryStarting, but something blocks it
	categoryOld                      // has another revision
	categoryLeaving                  // is being deleted
	categoryFailed
	categoryCount
)

// counts are numbers of machines.
type counts struct {
	desired    int
	byCategory [categoryCount]int
	ready      int // machines that are ready and stay, of any revision
	blocked    int // machines whose operation is blocked
}

func (c counts) total() (n int) {
	for _, of := range c.byCategory {
		n += of
	}
	return n
}

func (c *counts) add(o counts) {
	c.desired += o.desired
	c.ready += o.ready
	c.blocked += o.blocked
	for i, n := range o.byCategory {
		c.byCategory[i] += n
	}
}

// machineRow is a machine with its place in the fleet.
type machineRow struct {
	*machineFacts

	pool             *pool
	category         category
	currentOperation *v1alpha1.Operation
}

func (m *machineRow) isBlocked() bool { return isBlocked(m.currentOperation) }

func isBlocked(o *v1alpha1.Operation) bool { return o != nil && len(o.BlockedBy) > 0 }

// buildFleet returns the model for a snapshot.
func buildFleet(s snapshot) *fleet {
	f := &fleet{snapshot: s, machines: make(map[objectID]*machineRow, len(s.machines)), byID: map[objectID]*pool{}}
	byDeployment, bySet := map[types.UID]*pool{}, map[types.UID]*pool{}
	for _, d := range s.deployments {
		byDeployment[d.uid] = f.addPool(&pool{
			id:         d.id,
			ownVersion: d.version,
			cluster:    clusterKey{d.id.Namespace, d.cluster},
			revision:   d.revision,
			rollout:    d.rollout,
			operation:  d.operation,
			counts:     counts{desired: d.desired},
			state:      deletingIf(d.isDeleting),
		})
	}
	for _, set := range s.sets {
		p := byDeployment[set.owner]
		switch {
		case set.isForeign:
			continue
		case p == nil:
			p = f.addPool(&pool{
				id: set.id, cluster: clusterKey{set.id.Namespace, set.cluster}, operation: set.operation,
				counts: counts{desired: set.desired}, state: deletingIf(set.isDeleting),
			})
		}
		p.sets, bySet[set.uid] = append(p.sets, set), p
	}
	for _, p := range f.pools {
		p.target = p.findTarget()
	}
	rows := make([]machineRow, len(s.machines)) // one allocation for all
	for i, m := range s.machines {
		f.addMachine(&rows[i], m, bySet[m.owner])
	}
	for _, p := range f.pools {
		p.waits = p.ownWaits()
		p.state = cmp.Or(p.state, p.currentState(f.now))
		p.since = p.oldestStart()
	}
	f.sortPools()
	f.clusters = f.sumClusters()
	return f
}

func deletingIf(deleting bool) state {
	if deleting {
		return stateDeleting
	}
	return ""
}

func (f *fleet) addPool(p *pool) *pool {
	f.pools = append(f.pools, p)
	f.byID[p.id] = p
	return p
}

// addMachine adds a machine to its pool. A machine of Cluster API without a set of ours is shown only while Millwright
// empties its node.
func (f *fleet) addMachine(row *machineRow, m *machineFacts, of *pool) {
	if of == nil {
		if m.clusterAPI != nil && !m.isDrained {
			return
		}
		id := objectID{kindLoose, m.id.Namespace, cmp.Or(m.cluster, "-")} // a path needs a name
		if of = f.byID[id]; of == nil {
			of = f.addPool(&pool{id: id, cluster: clusterKey{m.id.Namespace, m.cluster}})
		}
		of.counts.desired++
	}
	*row = machineRow{machineFacts: m, pool: of, currentOperation: m.operationAt(f.now)}
	row.category = of.categoryOf(row)
	of.machines, f.machines[m.id] = append(of.machines, row), row
	of.counts.byCategory[row.category]++
	if m.isReady && !m.isDeleting {
		of.counts.ready++
	}
	if row.isBlocked() {
		of.counts.blocked++
	}
}

// findTarget returns the set that the machines come to: the set of a pin, else the newest revision.
func (p *pool) findTarget() (newest *setFacts) {
	for _, set := range p.sets {
		switch {
		case p.isPinned() && set.id.Name == p.rollout.Pin.Set:
			return set
		case set.isDeleting:
		case newest == nil || set.revision > newest.revision:
			newest = set
		}
	}
	return newest
}

func (p *pool) isPinned() bool { return p.rollout != nil && p.rollout.Pin != nil }

func (p *pool) categoryOf(m *machineRow) category {
	isNew := p.target == nil || m.owner == p.target.uid
	switch {
	case m.isDeleting:
		return categoryLeaving
	case m.isFailed:
		return categoryFailed
	case !isNew:
		return categoryOld
	case m.isReady:
		return categoryUpToDate
	case m.isBlocked():
		return categoryStuck
	default:
		return categoryStarting
	}
}

// isRolling reports whether a rollout is open, or machines of another revision are left.
func (p *pool) isRolling() bool {
	return p.operation != nil && p.operation.RolloutOf != "" || p.counts.byCategory[categoryOld] > 0
}

// stepText names the step of the rollout policy that the rollout is in; empty without one.
func (p *pool) stepText() string {
	r := p.rollout
	if r == nil || len(r.Steps) == 0 || r.CompletedAt != nil {
		return ""
	}
	if int(r.Step) >= len(r.Steps) {
		return fmt.Sprintf("all %d steps passed", len(r.Steps))
	}
	return fmt.Sprintf("step %d of %d", r.Step+1, len(r.Steps))
}

// version returns a number that changes when an object of the pool changes.
func (p *pool) version() uint64 {
	hash := fnv.New64a()
	add := func(name, version string) { _, _ = io.WriteString(hash, name+" "+version+"\n") }
	add(p.id.Name, p.ownVersion)
	for _, set := range p.sets {
		add(set.id.Name, set.version)
	}
	for _, m := range p.machines {
		add(m.id.Name, m.version)
	}
	return hash.Sum64()
}

// oldestStart returns when the oldest wait or operation of the pool began; zero if there is none.
func (p *pool) oldestStart() (oldest time.Time) {
	for _, w := range p.waits {
		oldest = phrase.EarlierTime(oldest, w.Since.Time)
	}
	if p.operation != nil {
		oldest = phrase.EarlierTime(oldest, p.operation.Since.Time)
	}
	for _, m := range p.machines {
		if m.isBlocked() {
			oldest = phrase.EarlierTime(oldest, m.currentOperation.Since.Time)
		}
	}
	return oldest
}

// blockers returns the blockers of the pool and its machines.
func (p *pool) blockers() (all []string) {
	if p.isBlockedItself() {
		all = slices.Clone(p.operation.BlockedBy)
	}
	for _, m := range p.machines {
		if m.isBlocked() {
			all = append(all, m.currentOperation.BlockedBy...)
		}
	}
	return all
}

// currentState returns the state of a pool that is not being deleted.
func (p *pool) currentState(now time.Time) state {
	isBusy := p.operation != nil || p.hasBusyMachine() || p.counts.byCategory[categoryStarting] > 0 ||
		p.counts.total() != p.counts.desired
	switch stopped, failed := p.stoppedState(now), p.counts.byCategory[categoryFailed] > 0; {
	case stopped != "":
		return stopped
	case p.isRolling():
		return stateRolling
	case failed && isBusy:
		return stateReplacing
	case failed:
		return stateFailed
	case isBusy:
		return stateMoving
	default:
		return stateHealthy
	}
}

// stoppedState returns the state of a pool that something blocks, or whose rollout was rolled back; empty for another
// pool.
func (p *pool) stoppedState(now time.Time) state {
	blockers := p.blockers()
	only := func(names ...string) bool {
		return !slices.ContainsFunc(blockers, func(name string) bool { return !slices.Contains(names, name) })
	}
	switch {
	case p.isPinned() && only(vocabulary.ReasonRolledBack, vocabulary.ReasonPinned):
		return stateRolledBack
	case len(blockers) == 0:
		return ""
	case isPlannedBlocker(blockers) && !slices.ContainsFunc(p.waits, func(w v1alpha1.Wait) bool { return !isPlanned(w, now) }):
		return statePlanned
	case only(vocabulary.BlockedByMissingApproval):
		return stateApproval
	case only(vocabulary.BlockedByPause, vocabulary.BlockedByHold):
		return statePaused
	default:
		return stateStill
	}
}

func (p *pool) hasBusyMachine() bool {
	return slices.ContainsFunc(p.machines, func(m *machineRow) bool { return m.currentOperation != nil })
}

// sortPools sorts the pools and their machines: what needs a person first, then what waits longest.
func (f *fleet) sortPools() {
	slices.SortStableFunc(f.pools, func(a, b *pool) int {
		return cmp.Or(
			cmp.Compare(a.state.rank(), b.state.rank()),
			list.CompareTimesZeroLast(a.since, b.since),
			cmp.Compare(a.id.Namespace, b.id.Namespace),
			cmp.Compare(a.id.Name, b.id.Name),
			cmp.Compare(a.id.Kind, b.id.Kind),
		)
	})
	for _, p := range f.pools {
		slices.SortFunc(p.machines, compareMachines)
	}
}

// compareMachines sorts blocked machines first, then failed, leaving, starting, old and up-to-date machines.
func compareMachines(a, b *machineRow) int {
	return cmp.Or(
		cmp.Compare(machineRank(a), machineRank(b)),
		cmp.Compare(a.id.Namespace, b.id.Namespace),
		cmp.Compare(a.id.Name, b.id.Name),
	)
}

func machineRank(m *machineRow) int {
	if m.isBlocked() {
		return 0
	}
	return [categoryCount]int{
		categoryFailed: 1, categoryLeaving: 2, categoryStuck: 3, categoryStarting: 4, categoryOld: 5, categoryUpToDate: 6,
	}[m.category]
}

// sumClusters returns the clusters of all pools, and of the namespaces whose target cluster a worker reports.
func (f *fleet) sumClusters() (sorted []*cluster) {
	byKey := map[clusterKey]*cluster{}
	get := func(key clusterKey) *cluster {
		if byKey[key] == nil {
			byKey[key] = &cluster{key: key, state: stateHealthy}
			sorted = append(sorted, byKey[key])
		}
		return byKey[key]
	}
	for _, p := range f.pools {
		c := get(p.cluster)
		c.pools++
		c.counts.add(p.counts)
		if p.state.rank() < c.state.rank() {
			c.state = p.state
		}
	}
	for namespace, report := range f.targets {
		if f.namespace != "" && f.namespace != namespace {
			continue
		}
		if c := get(clusterKey{Namespace: namespace}); isUnreachable(report) {
			c.state = stateUnreachable
			c.problem = string(report.State) + phrase.TextIf(report.Why != "", ": %s", report.Why)
		}
	}
	for _, c := range sorted {
		if why := f.unserved[c.key.Namespace]; why != "" {
			c.state, c.problem = stateUnserved, why
		}
	}
	slices.SortFunc(sorted, func(a, b *cluster) int {
		return cmp.Or(cmp.Compare(a.state.rank(), b.state.rank()), cmp.Compare(a.key.String(), b.key.String()))
	})
	return sorted
}

// isUnreachable reports whether the workers cannot work on a target cluster.
func isUnreachable(r target.Report) bool {
	return r.State != cache.TargetReady && r.State != cache.TargetHeld
}
