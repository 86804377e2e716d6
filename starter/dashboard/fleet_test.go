package dashboard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	"millwright/observe/target"
)

// pool returns the pool with this name; the test fails without it.
func (f *fleet) pool(t *testing.T, key string) *pool {
	t.Helper()
	for _, p := range f.pools {
		if p.id.Key() == key {
			return p
		}
	}
	require.FailNow(t, "there is no pool "+key)
	return nil
}

func TestStateAndBarOfAPool(t *testing.T) {
	for name, row := range map[string]struct {
		pool  *poolBuilder
		state state
		text  string
		step  string
	}{
		"healthy": {newPool("shop", "web", 3).with(3, 4), stateHealthy, "3 of 3 ready", ""},
		"a rollout with surge": {
			rollingPool(), stateRolling,
			"9 of 10 ready, 3 up to date, 1 starting, 6 of an old revision, 1 leaving, 1 surge", "step 2 of 3",
		},
		"a rollout that waits for approval": {
			waitingPool(), stateApproval, "10 of 10 ready, 2 up to date, 8 of an old revision", "step 1 of 3",
		},
		"a drain that is blocked": {
			blockedPool(), stateStill, "9 of 10 ready, 4 up to date, 5 of an old revision, 2 leaving, 1 surge", "4 of 10 done",
		},
		"refused machines": {quotaPool("shop", "web"), stateStill, "6 of 9 ready, 6 up to date, 3 cannot start", ""},
		"failed machines that are replaced": {
			failingPool(), stateReplacing, "5 of 9 ready, 5 up to date, 1 starting, 1 leaving, 2 failed", "await replacements",
		},
		"a failed machine that nobody replaces": {
			newPool("shop", "web", 3).with(2, 4).with(1, 4, failed(time.Hour)...), stateFailed, "2 of 3 ready, 2 up to date, 1 failed", "",
		},
		"a rolled back rollout": {
			pinnedPool(), stateRolledBack, "6 of 8 ready, 6 on revision 5, 1 starting, 1 leaving", "pinned to revision 5",
		},
		"a missing machine": {newPool("shop", "web", 3).with(2, 4), stateMoving, "2 of 3 ready, 1 missing", ""},
		"paused": {
			newPool("shop", "web", 3).with(2, 4).with(1, 3).withStep(vocabulary.StepDeploymentPaused).
				withOwnWait(vocabulary.ReasonDeploymentPaused, "the deployment is paused by ann", time.Hour),
			statePaused, "3 of 3 ready, 2 up to date, 1 of an old revision", "2 of 3 done",
		},
		"a pause of a step": {
			newPool("shop", "web", 4).with(2, 4).with(2, 3).
				edited(func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation = pauseOfStep(time.Minute) }),
			statePlanned, "4 of 4 ready, 2 up to date, 2 of an old revision", "2 of 4 done",
		},
		"a pause of a step that should be over": {
			newPool("shop", "web", 4).with(2, 4).with(2, 3).
				edited(func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation = pauseOfStep(-time.Minute) }),
			stateStill, "4 of 4 ready, 2 up to date, 2 of an old revision", "2 of 4 done",
		},
		"a step whose blockers are gone": {
			newPool("shop", "web", 4).with(3, 4).with(1, 4, starting(time.Minute)...).
				edited(func(d *v1alpha1.MachineDeployment) {
					d.Status.CurrentOperation = &v1alpha1.Operation{
						BlockedBy: []string{"NodeNotHealthy"}, Cause: "1 machine is not ready", WaitsFor: "1 machine is not ready",
					}
				}),
			stateMoving, "3 of 4 ready, 3 up to date, 1 starting", "",
		},
		"being deleted": {
			newPool("shop", "web", 3).with(3, 4, leaving(time.Minute)).
				edited(func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = new(ago(time.Minute)) }),
			stateDeleting, "0 of 3 ready, 3 leaving", "",
		},
		"no machines": {newPool("shop", "web", 0), stateHealthy, "no machines", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t, row.pool)
			require.Len(t, f.pools, 1)
			p := f.pools[0]
			assert.Equal(t, row.state, p.state)
			assert.Equal(t, row.text, p.counts.text(p.names()))
			assert.Equal(t, row.step, p.progressText())
			if p.state.Group() == groupMotion {
				assert.Empty(t, groupCauses(f.pools, now))
			}
		})
	}
}

// pauseOfStep is the operation of a rollout in the pause of a step that ends after a time.
func pauseOfStep(end time.Duration) *v1alpha1.Operation {
	return &v1alpha1.Operation{
		BlockedBy: []string{vocabulary.BlockedByRolloutStep}, Since: ago(time.Hour), Cause: "roll", Deadline: new(ago(-end)),
		WaitsFor: "step 1 of 1 done (since 13:06:07 UTC); the next step begins at 14:07:07 UTC",
	}
}

// The segments of a bar fill its width without a gap, in the order of the categories.
func TestBarIsFilled(t *testing.T) {
	for name, pool := range map[string]*poolBuilder{
		"surge": blockedPool(), "missing": newPool("shop", "web", 7).with(2, 4), "failed": failingPool(),
	} {
		t.Run(name, func(t *testing.T) {
			p := fleetOf(t, pool).pools[0]
			b := newBar(p.counts, p.names())
			at := 0.0
			for _, s := range b.Segments {
				assert.InDelta(t, at, s.X, 1e-9)
				at += s.Width
			}
			assert.InDelta(t, 100, at, 1e-9)
			assert.Equal(t, name == "surge", b.Mark > 0)
		})
	}
	assert.Equal(t, bar{Text: "no machines"}, newBar(counts{}, categoryNames()))
}

func TestCausesGroupPoolsAndMachines(t *testing.T) {
	f := fleetOf(
		t,
		quotaPool("pay", "batch"),
		quotaPool("search", "query"),
		blockedPool(),
		pinnedPool(),
		newPool("ci", "runner", 3).with(3, 4),
	)
	causes := groupCauses(f.pools, now)
	require.Len(t, causes, 3)
	quota := causes[1]
	assert.Equal(t, quotaCause, quota.Text, "then the cause of most pools")
	assert.Equal(t, "6 machines of 2 pools", whoText(quota))
	assert.Equal(t, now.Add(-17*time.Minute), quota.Since)
	assert.Equal(t, now.Add(4*time.Minute), quota.NextAt)
	assert.Equal(
		t,
		"it is tried again: ask the cloud for more, or scale down; if its instance is not ready, it is replaced",
		quota.Next,
	)
	assert.Len(t, shownCommands(quota), 1, "one command that explains a machine is enough: %v", quota.Commands)
	budget := causes[2]
	assert.Equal(t, budgetCause, budget.Text)
	assert.Equal(t, []string{"kubectl edit pdb -n shop web"}, budget.Commands)
	assert.Equal(t, "the pods still on its node are deleted", budget.Next, "the deadline has the time")
	assert.Equal(t, now.Add(37*time.Minute), budget.NextAt)
	assert.Equal(t, 2, budget.Machines)
	pin := causes[0]
	assert.Equal(t, "revision 6 failed (2 machines of it failed, 1 allowed): back on revision 5", pin.Text)
	assert.Equal(t, "change the template, or retry it", pin.Next)
	assert.Equal(t, []string{"millwright rollout retry pay/api"}, pin.Commands)
	assert.Equal(t, "1 pool", whoText(pin))
}

func TestCausesThatNeedAPersonComeFirst(t *testing.T) {
	causes := groupCauses(fleetOf(t, quotaPool("pay", "batch"), quotaPool("search", "query"), waitingPool()).pools, now)
	require.Len(t, causes, 2)
	assert.True(t, causes[0].NeedsPerson)
	assert.Equal(t, "revision 8: 2 of 10 machines done (20%), waits for approval of step 1 of 3", causes[0].Text)
	assert.Equal(t, []string{"millwright rollout approve shop/web --reason …"}, causes[0].Commands)
}

// A deployment may wait itself while its machines wait, too: both are shown, and neither twice.
func TestWaitsOfAPoolAndItsMachines(t *testing.T) {
	both := blockedPool().withOwnWait(vocabulary.ReasonRolloutWaiting, "step 1 of 2 waits", time.Hour)
	causes := groupCauses(fleetOf(t, both).pools, now)
	require.Len(t, causes, 2)
	assert.Equal(t, "step 1 of 2 waits", causes[0].Text)
	assert.Zero(t, causes[0].Machines)
	assert.Equal(
		t,
		[]any{now.Add(-time.Hour), time.Time{}},
		[]any{causes[0].Since, causes[0].NextAt},
		"not those of the machines",
	)
	assert.Equal(t, budgetCause, causes[1].Text)
	// The status of a pool may be older than those of its machines: then the wait is the pool's.
	old := blockedPool()
	objects := old.objects()
	for _, o := range objects {
		if m, is := o.(*v1alpha1.Machine); is {
			m.Status.CurrentOperation = nil
		}
	}
	causes = groupCauses(buildFleet(factsOf(t, objects...)).pools, now)
	require.Len(t, causes, 1)
	assert.Equal(t, budgetCause, causes[0].Text)
}

func TestMachinesWithoutASetAndSetsWithoutADeployment(t *testing.T) {
	alone := newPool("shop", "web", 2).with(2, 4).objects()
	set := alone[1].(*v1alpha1.MachineSet)
	set.OwnerReferences = nil
	loose := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pet"}}
	f := buildFleet(factsOf(t, append(alone[1:], loose)...))
	require.Len(t, f.pools, 2)
	p := f.pool(t, "shop/web-4")
	assert.Equal(t, "MachineSet", p.kindText())
	assert.Equal(t, "2 of 2 ready", p.counts.text(p.names()))
	assert.Equal(t, "shop (machines without a set)", f.pool(t, "shop/-").name())
}

func TestPoolsOfClusterAPI(t *testing.T) {
	d := capitest.NewDeployment()
	d.Finalizers = append(d.Finalizers, capi.Finalizer)
	d.UID = "d"
	set := capitest.NewSet("md-7", 2)
	set.Finalizers, set.UID = append(set.Finalizers, capi.Finalizer), "s"
	set.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(d, clusterv1.GroupVersion.WithKind("MachineDeployment")),
	}
	ready := capitest.NewMachine("md-7-a", set, capitest.WithCondition(clusterv1.ReadyCondition, metav1.ConditionTrue))
	unready := capitest.NewMachine("md-7-b", set, capitest.WithoutCondition(clusterv1.ReadyCondition))
	other := capitest.NewSet("other", 3)
	other.UID, other.Finalizers = "o", nil
	foreign := capitest.NewMachine("other-a", other)
	f := buildFleet(factsOf(t, d, set, ready, unready, other, foreign))
	require.Len(t, f.pools, 1, "objects that Millwright does not reconcile are not shown")
	p := f.pools[0]
	assert.Equal(t, "Cluster API", p.kindText())
	assert.Equal(t, kindClusterAPIDeployment, p.id.Kind)
	assert.Equal(t, clusterKey{d.Namespace, d.Spec.ClusterName}, p.cluster)
	assert.Len(t, p.machines, 2)
	assert.Equal(t, 1, p.counts.ready)
}

func TestClustersShowTheStateOfTheirTarget(t *testing.T) {
	s := factsOf(
		t,
		append(newPool("shop", "web", 2).with(2, 4).objects(), newPool("pay", "api", 2).with(2, 4).objects()...)...)
	s.targets = map[string]target.Report{
		"shop": {
			Namespace: "shop",
			State:     cache.TargetMissing,
			Why:       "no Secret",
		},
		"pay": {Namespace: "pay", State: cache.TargetReady},
	}
	s.unserved = map[string]string{"ci": "no live worker serves shard 3"}
	s.addObject(newCached(&v1alpha1.MachineSet{}, &setFacts{id: objectID{kindSet, "ci", "runner"}}))
	o := buildFleet(s).overview(query{page: 1})
	require.Len(t, o.Groups, 2)
	assert.Equal(
		t,
		[]string{"served by nobody", "no live worker serves shard 3"},
		[]string{o.Groups[0].Clusters[0].State.Word, o.Groups[0].Clusters[0].Text},
	)
	assert.Equal(t, "2 clusters that need attention", o.Groups[0].Title)
	assert.Equal(t, "Missing: no Secret", o.Groups[0].Clusters[1].Text)
	assert.Equal(t, "pay", o.Groups[1].Clusters[0].Name)
}

func TestFiltersAndPages(t *testing.T) {
	f := fleetOf(t, append(healthyPools(), quotaPool("eu", "gpu"))...)
	count := func(q query) int {
		q.page = 1
		return f.overview(q).Paging.Total
	}
	assert.Equal(t, 8, count(query{}))
	assert.Equal(t, 2, count(query{namespace: "shop"}))
	assert.Equal(t, 2, count(query{cluster: "shop"}))
	assert.Equal(t, 1, count(query{state: string(groupStill)}))
	assert.Equal(t, 7, count(query{state: string(stateHealthy)}))
	assert.Equal(t, 0, count(query{state: "nonsense"}))
	assert.Equal(t, 3, f.machineList(query{state: "blocked", page: 1}).Paging.Total)
	assert.Equal(t, 3, f.machineList(query{state: "stuck", page: 1}).Paging.Total)
	assert.Equal(t, 9, f.machineList(query{pool: "mcd/eu/gpu", page: 1}).Paging.Total)

	items, p := pageOf([]int{1, 2, 3, 4, 5}, 2, query{state: "x", page: 2}, "/machines")
	assert.Equal(t, []int{3, 4}, items)
	assert.Equal(t, paging{3, 4, 5, "/machines?state=x", "/machines?page=3&state=x"}, p)
	items, p = pageOf([]int{1, 2, 3}, 2, query{page: 999}, "/")
	assert.Equal(t, []int{3}, items)
	assert.Empty(t, p.Next)
	for text, page := range map[string]int{"": 1, "0": 1, "-3": 1, "x": 1, "7": 7, "99999999999999999999": 1} {
		assert.Equal(t, page, parseQuery(map[string][]string{"page": {text}}).page, text)
	}
}

// In a large fleet, the first page leaves healthy pools out, and links to them.
func TestFirstPageOfALargeFleetLeavesHealthyPoolsOut(t *testing.T) {
	pools := []*poolBuilder{quotaPool("pay", "batch")}
	for i := range 30 {
		pools = append(pools, newPool("shop", "p"+suffix(i), 1).with(1, 4))
	}
	o := fleetOf(t, pools...).overview(query{namespace: "", page: 1})
	require.Len(t, o.Pools, 1)
	assert.Equal(t, link{"30 healthy pools", "/?state=healthy"}, o.Healthy)
	o = fleetOf(t, pools...).overview(query{state: "healthy", page: 2})
	assert.Len(t, o.Pools, 5)
	assert.Empty(t, o.Healthy)
}

// What was read for the page of a pool is read again when an object of the pool has changed.
func TestVersionOfAPoolChangesWithItsObjects(t *testing.T) {
	version := func(change func(*v1alpha1.Machine)) uint64 {
		b := newPool("shop", "web", 3).with(3, 4)
		change(b.machines[1])
		return fleetOf(t, b).pools[0].version()
	}
	same := version(func(*v1alpha1.Machine) {})
	assert.Equal(t, same, version(func(*v1alpha1.Machine) {}))
	assert.NotEqual(t, same, version(func(m *v1alpha1.Machine) { m.ResourceVersion = "8" }))
	assert.False(t, keptDetail{version: 7, at: time.Now().Add(-time.Minute)}.isFresh(7))
	assert.True(t, keptDetail{version: 7, at: time.Now().Add(-10 * time.Second)}.isFresh(7))
	assert.False(t, keptDetail{version: 7, at: time.Now().Add(-10 * time.Second)}.isFresh(8))
	assert.False(t, keptDetail{at: time.Now().Add(-10 * time.Second)}.isFresh(0))
}

// The order of the pools is the order in which a person should look at them.
func TestPoolsThatNeedAPersonComeFirst(t *testing.T) {
	f := fleetOf(
		t,
		newPool("a", "healthy", 3).with(3, 4),
		rollingPool(),
		quotaPool("pay", "batch"),
		failingPool(),
		pinnedPool(),
	)
	var names []string
	for _, p := range f.pools {
		names = append(names, p.id.Key())
	}
	assert.Equal(t, []string{"pay/batch", "pay/api", "search/index", "shop/web", "a/healthy"}, names)
}

func TestHeadline(t *testing.T) {
	said := func(change func(*snapshot), pools ...*poolBuilder) string {
		var objects []runtime.Object
		for _, p := range pools {
			objects = append(objects, p.objects()...)
		}
		s := factsOf(t, objects...)
		change(&s)
		return buildFleet(s).overview(query{page: 1}).Headline
	}
	unchanged := func(*snapshot) {}
	assert.Equal(t, "Nothing stands still; 3 of 3 machines ready.", said(unchanged, newPool("a", "b", 3).with(3, 4)))
	assert.Equal(t, "1 pool stands still, for 1 cause; 6 of 9 machines ready.", said(unchanged, quotaPool("a", "b")))
	assert.Equal(
		t,
		"The objects are being read. By the last statuses: 0 of 0 machines ready.",
		said(func(s *snapshot) { s.isLoading = true }),
	)
	assert.Equal(
		t,
		"What moves now is not known: not all objects can be read. By the last statuses: 0 of 0 machines ready.",
		said(func(s *snapshot) { s.readErrors = []string{"machines cannot be read: forbidden"} }),
	)
	assert.Equal(t, "12,345", groupedNumber(12345))
}
