package claims_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/process/claims"
)

// delayPollInterval is the interval at which a member of a test looks at a switch.
const delayPollInterval = time.Second

// member is a process that claims shards.
type member struct {
	client         *kubefake.Clientset
	cancel         context.CancelFunc
	runResult      chan error
	isDisconnected atomic.Bool // the API server answers no request of the process
	isWatchDelayed atomic.Bool // the watch of the process shows nothing new

	mu                   sync.Mutex
	claimedShards        []int
	runningServeCounts   map[int]int // calls of Serve that have not returned, by shard
	hasOverlappingServes bool        // Serve was called for a shard before the last call had returned
}

// addRunningServes counts the calls of Serve for a shard that have not returned.
func (m *member) addRunningServes(shard, change int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runningServeCounts[shard] += change
	m.hasOverlappingServes = m.hasOverlappingServes || m.runningServeCounts[shard] > 1
}

func (m *member) shards() []int {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.claimedShards)
}

// delayedWatch shows no event while its member lags.
type delayedWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    func()
}

func (w delayedWatch) ResultChan() <-chan watch.Event { return w.events }
func (w delayedWatch) Stop()                          { w.stop() }

func (m *member) delayWatch(w watch.Interface) watch.Interface {
	d := delayedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	d.stop = sync.OnceFunc(func() {
		close(d.stopped)
		w.Stop()
	})
	go func() {
		defer close(d.events)
		for event := range w.ResultChan() {
			for m.isWatchDelayed.Load() {
				time.Sleep(delayPollInterval)
			}
			select {
			case d.events <- event:
			case <-d.stopped:
				return
			}
		}
	}()
	return d
}

// memberGroup has members with the same API server.
type memberGroup struct {
	t          *testing.T
	tracker    clienttesting.ObjectTracker
	shardCount int

	mu         sync.Mutex
	writeCount int
	// shardWriteCount is the number of writes to the Leases of shards
	shardWriteCount int
	leaseVersions   map[string]string // by name of a Lease

	serveError    error         // Serve returns this error at once; nil: Serve waits
	serveEndDelay time.Duration // how long Serve works after its context is done
}

func newMemberGroup(t *testing.T, count int) *memberGroup {
	t.Helper()
	return &memberGroup{
		t:             t,
		tracker:       kubefake.NewClientset().Tracker(),
		shardCount:    count,
		leaseVersions: map[string]string{},
	}
}

// startMember starts a member.
func (f *memberGroup) startMember(identity string, only ...int) *member {
	f.t.Helper()
	ctx, end := context.WithCancel(f.t.Context())
	count := f.shardCount
	m := &member{
		cancel:             end,
		runResult:          make(chan error, 1),
		client:             kubefake.NewClientset(),
		runningServeCounts: map[int]int{},
	}
	watchReaction := clienttesting.ObjectReaction(f.tracker)
	m.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if m.isDisconnected.Load() {
			return true, nil, apierrors.NewServiceUnavailable("the process is dead")
		}
		if err := f.updateLeaseVersion(a); err != nil {
			return true, nil, err
		}
		return watchReaction(a)
	})
	m.client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := f.tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, m.delayWatch(w), err
	})
	go func() {
		m.runResult <- claims.Run(ctx, claims.Options{
			Client: m.client, Namespace: "default", Role: claims.RoleWorker, Identity: identity, ShardCount: count, AllowedShards: only,
			Log: slog.New(slog.DiscardHandler),
			Serve: func(ctx context.Context, shard int) error {
				m.addRunningServes(shard, 1)
				defer m.addRunningServes(shard, -1)
				if f.serveError == nil {
					<-ctx.Done()
					time.Sleep(f.serveEndDelay)
				}
				return f.serveError
			},
			OnClaims: func(shards []int) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.claimedShards = shards
			},
		})
	}()
	f.t.Cleanup(end)
	return m
}

// updateLeaseVersion gives a written Lease a new version. As the API server does, it refuses an update without the
// current version.
func (f *memberGroup) updateLeaseVersion(a clienttesting.Action) error {
	write, is := a.(clienttesting.UpdateAction) // a create has the same methods
	if !is {
		return nil
	}
	lease := write.GetObject().(*coordinationv1.Lease)
	f.mu.Lock()
	defer f.mu.Unlock()
	if current := f.leaseVersions[lease.Name]; a.GetVerb() == "update" && lease.ResourceVersion != current {
		return apierrors.NewConflict(a.GetResource().GroupResource(), lease.Name, errors.New("version "+current))
	}
	f.writeCount++
	if lease.Labels["machine.sapcloud.io/shard"] != "" {
		f.shardWriteCount++
	}
	f.leaseVersions[lease.Name] = strconv.Itoa(f.writeCount)
	lease.ResourceVersion = f.leaseVersions[lease.Name]
	return nil
}

// stop ends a member, and returns the error of Run.
func (m *member) stop() error {
	m.cancel()
	return <-m.runResult
}

func TestAProcessThatDiesIsReplacedWithin15Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 4)
		a := f.startMember("a")
		time.Sleep(2 * time.Second)
		require.Equal(t, []int{0, 1, 2, 3}, a.shards())
		b := f.startMember("b")
		time.Sleep(10 * time.Second)
		require.Len(t, a.shards(), 2)
		require.Len(t, b.shards(), 2)

		b.isDisconnected.Store(true) // b still serves, and no longer renews its Lease
		before := len(a.client.Actions())
		time.Sleep(15 * time.Second)
		assert.Equal(t, []int{0, 1, 2, 3}, a.shards())
		assert.Less(t, len(a.client.Actions())-before, 10, "requests: renewals and two claims")

		b.isDisconnected.Store(false) // b returns: it serves what the Leases say
		time.Sleep(20 * time.Second)
		assert.Len(t, a.shards(), 2)
		assert.Len(t, b.shards(), 2)
		assert.ElementsMatch(t, []int{0, 1, 2, 3}, slices.Concat(a.shards(), b.shards()))
		require.NoError(t, a.stop())
		require.NoError(t, b.stop())
	})
}

func TestAProcessThatLeavesHandsItsShardsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 2)
		a, b := f.startMember("a"), f.startMember("b")
		time.Sleep(15 * time.Second)
		require.Len(t, a.shards(), 1)
		require.NoError(t, a.stop())
		time.Sleep(2 * time.Second)
		assert.Equal(t, []int{0, 1}, b.shards())
		leases, err := b.client.CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Len(t, leases.Items, 3, "two shards and one process")
		require.NoError(t, b.stop())
	})
}

func TestAProcessThatIsLimitedToAShardServesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 3)
		a := f.startMember("a")
		time.Sleep(2 * time.Second)
		canary := f.startMember("canary", 1)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []int{1}, canary.shards())
		assert.Equal(t, []int{0, 2}, a.shards())
		require.NoError(t, canary.stop())
		time.Sleep(10 * time.Second)
		assert.Equal(t, []int{0, 1, 2}, a.shards())
		require.NoError(t, a.stop())
	})
}

func TestAnIdleProcessSendsOnlyRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 8)
		a := f.startMember("a")
		time.Sleep(5 * time.Second)
		before := len(a.client.Actions())
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, len(a.client.Actions())-before, 15)
		require.NoError(t, a.stop())
	})
}

func TestAShardThatCannotBeServedEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 1)
		f.serveError = assert.AnError
		m := f.startMember("a")
		require.ErrorIs(t, <-m.runResult, assert.AnError)
	})
}

// An upgrade from two to four shards replaces one process after another.
func TestClaimsStayStableWhileTheNumberOfShardsGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 2)
		old := []*member{f.startMember("a"), f.startMember("b"), f.startMember("c")}
		time.Sleep(20 * time.Second)
		f.shardCount = 4
		members := append(slices.Clone(old), f.startMember("d"))
		time.Sleep(30 * time.Second)
		for round := range old {
			var all [][]int
			for _, m := range members {
				all = append(all, m.shards())
			}
			require.ElementsMatch(t, []int{0, 1, 2, 3}, slices.Concat(all...), "%v", all)
			before := f.countShardWrites()
			time.Sleep(time.Minute)
			assert.Equal(t, before, f.countShardWrites(), "no claim changes")

			members = append(members[1:], f.startMember("new"+strconv.Itoa(round))) // an old process is replaced
			require.NoError(t, old[round].stop())
			time.Sleep(30 * time.Second)
		}
	})
}

// countShardWrites returns the number of writes to the Leases of shards.
func (f *memberGroup) countShardWrites() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shardWriteCount
}

// During an outage of the API server no Lease is renewed. Afterwards a process sees its own renewal first.
func TestAfterAnOutageOfTheAPIServerNoLiveProcessCountsAsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 4)
		a, b := f.startMember("a"), f.startMember("b")
		time.Sleep(20 * time.Second)
		ofA, ofB, writes := a.shards(), b.shards(), f.countShardWrites()
		require.Len(t, ofA, 2)
		for range 3 {
			a.isDisconnected.Store(true)
			b.isDisconnected.Store(true)
			time.Sleep(40 * time.Second)
			a.isDisconnected.Store(false)
			time.Sleep(8 * time.Second)
			b.isDisconnected.Store(false)
			time.Sleep(20 * time.Second)
			assert.Equal(t, writes, f.countShardWrites())
			assert.Equal(t, ofA, a.shards())
			assert.Equal(t, ofB, b.shards())
		}

		a.isDisconnected.Store(true)
		b.isDisconnected.Store(true)
		time.Sleep(40 * time.Second)
		a.isDisconnected.Store(false) // b died during the outage
		time.Sleep(20 * time.Second)
		assert.Equal(t, []int{0, 1, 2, 3}, a.shards())
	})
}

// A watch may show changes late although the API server answers requests.
func TestAProcessWhoseWatchIsBehindTakesNoShards(t *testing.T) {
	for offset := range 8 {
		synctest.Test(t, func(t *testing.T) {
			f := newMemberGroup(t, 2)
			a := f.startMember("a")
			time.Sleep(2500 * time.Millisecond)
			f.startMember("b")
			time.Sleep(20*time.Second + time.Duration(offset)*500*time.Millisecond)
			writes := f.countShardWrites()
			a.isWatchDelayed.Store(true)
			time.Sleep(30 * time.Second)
			a.isWatchDelayed.Store(false)
			time.Sleep(20 * time.Second)
			assert.Equal(t, writes, f.countShardWrites(), "offset %d", offset)
		})
	}
}

func TestAProcessWithoutTheAPIServerEndsItsServiceAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 2)
		f.serveEndDelay = 40 * time.Second
		a := f.startMember("a")
		time.Sleep(2 * time.Second)
		a.isDisconnected.Store(true)
		time.Sleep(55 * time.Second)
		require.Equal(t, []int{0, 1}, a.shards(), "most outages are shorter")
		time.Sleep(15 * time.Second)
		require.Empty(t, a.shards())
		a.isDisconnected.Store(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []int{0, 1}, a.shards())
		time.Sleep(time.Minute)
		a.mu.Lock()
		assert.False(t, a.hasOverlappingServes, "a service begins before the last one has ended")
		assert.Equal(t, map[int]int{0: 1, 1: 1}, a.runningServeCounts)
		a.mu.Unlock()
		require.NoError(t, a.stop())
	})
}

func TestTheLeasesOfKilledProcessesAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMemberGroup(t, 1)
		add := func(name string, age time.Duration, labels map[string]string) {
			labels["machine.sapcloud.io/claims-of"] = claims.RoleWorker
			require.NoError(t, f.tracker.Add(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: name, Labels: labels, UID: types.UID("uid of " + name), ResourceVersion: "7",
				},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: &name, RenewTime: &metav1.MicroTime{Time: time.Now().Add(-age)},
				},
			}))
		}
		add("killed", 61*time.Minute, map[string]string{})
		add("later", 59*time.Minute, map[string]string{})
		add("shard", 90*time.Minute, map[string]string{"machine.sapcloud.io/shard": "5"})
		a := f.startMember("a")
		deleted := func() (names []string) {
			synctest.Wait()
			for _, action := range a.client.Actions() {
				if d, is := action.(clienttesting.DeleteActionImpl); is {
					names = append(names, d.Name)
					assert.Equal(t, types.UID("uid of "+d.Name), *d.DeleteOptions.Preconditions.UID)
					assert.Equal(t, "7", *d.DeleteOptions.Preconditions.ResourceVersion)
				}
			}
			return names
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"killed"}, deleted())
		time.Sleep(3 * time.Minute)
		assert.Equal(t, []string{"killed", "later"}, deleted())
	})
}
