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

// checkInterval is the interval at which a member of a test looks at a switch.
const checkInterval = time.Second

// member is a process that claims shards.
type member struct {
	client *kubefake.Clientset
	end    context.CancelFunc
	done   chan error
	isDead atomic.Bool // the API server answers no request of the process
	lags   atomic.Bool // the watch of the process shows nothing new

	mu      sync.Mutex
	serves  []int
	running map[int]int // calls of Serve that have not returned, by shard
	twice   bool        // Serve was called for a shard before the last call had returned
}

// serve counts the calls of Serve for a shard that have not returned.
func (m *member) serve(shard, change int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[shard] += change
	m.twice = m.twice || m.running[shard] > 1
}

func (m *member) shards() []int {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.serves)
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

func (m *member) delay(w watch.Interface) watch.Interface {
	d := delayedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	d.stop = sync.OnceFunc(func() {
		close(d.stopped)
		w.Stop()
	})
	go func() {
		defer close(d.events)
		for event := range w.ResultChan() {
			for m.lags.Load() {
				time.Sleep(checkInterval)
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

// fleet has members with the same API server.
type fleet struct {
	t       *testing.T
	tracker clienttesting.ObjectTracker
	count   int

	mu     sync.Mutex
	writes int
	// shardWrites is the number of writes to the Leases of shards
	shardWrites int
	versions    map[string]string // by name of a Lease

	serveError error         // Serve returns this error at once; nil: Serve waits
	serveEnds  time.Duration // how long Serve works after its context is done
}

func newFleet(t *testing.T, count int) *fleet {
	t.Helper()
	return &fleet{t: t, tracker: kubefake.NewClientset().Tracker(), count: count, versions: map[string]string{}}
}

// join starts a member.
func (f *fleet) join(identity string, only ...int) *member {
	f.t.Helper()
	ctx, end := context.WithCancel(f.t.Context())
	count := f.count
	m := &member{end: end, done: make(chan error, 1), client: kubefake.NewClientset(), running: map[int]int{}}
	watchReaction := clienttesting.ObjectReaction(f.tracker)
	m.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if m.isDead.Load() {
			return true, nil, apierrors.NewServiceUnavailable("the process is dead")
		}
		if err := f.checkVersion(a); err != nil {
			return true, nil, err
		}
		return watchReaction(a)
	})
	m.client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := f.tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, m.delay(w), err
	})
	go func() {
		m.done <- claims.Run(ctx, claims.Options{
			Client: m.client, Namespace: "default", Role: claims.Worker, Identity: identity, Count: count, Only: only,
			Log: slog.New(slog.DiscardHandler),
			Serve: func(ctx context.Context, shard int) error {
				m.serve(shard, 1)
				defer m.serve(shard, -1)
				if f.serveError == nil {
					<-ctx.Done()
					time.Sleep(f.serveEnds)
				}
				return f.serveError
			},
			OnClaims: func(shards []int) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.serves = shards
			},
		})
	}()
	f.t.Cleanup(end)
	return m
}

// checkVersion gives a written Lease a new version. As the API server does, it refuses an update without the current
// version.
func (f *fleet) checkVersion(a clienttesting.Action) error {
	write, is := a.(clienttesting.UpdateAction) // a create has the same methods
	if !is {
		return nil
	}
	lease := write.GetObject().(*coordinationv1.Lease)
	f.mu.Lock()
	defer f.mu.Unlock()
	if current := f.versions[lease.Name]; a.GetVerb() == "update" && lease.ResourceVersion != current {
		return apierrors.NewConflict(a.GetResource().GroupResource(), lease.Name, errors.New("version "+current))
	}
	f.writes++
	if lease.Labels["machine.sapcloud.io/shard"] != "" {
		f.shardWrites++
	}
	f.versions[lease.Name] = strconv.Itoa(f.writes)
	lease.ResourceVersion = f.versions[lease.Name]
	return nil
}

// leave ends a member, and returns the error of Run.
func (m *member) leave() error {
	m.end()
	return <-m.done
}

func TestAProcessThatDiesIsReplacedWithin15Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.join("a")
		time.Sleep(2 * time.Second)
		require.Equal(t, []int{0, 1, 2, 3}, a.shards())
		b := f.join("b")
		time.Sleep(10 * time.Second)
		require.Len(t, a.shards(), 2)
		require.Len(t, b.shards(), 2)

		b.isDead.Store(true) // b still serves, and no longer renews its Lease
		before := len(a.client.Actions())
		time.Sleep(15 * time.Second)
		assert.Equal(t, []int{0, 1, 2, 3}, a.shards())
		assert.Less(t, len(a.client.Actions())-before, 10, "requests: renewals and two claims")

		b.isDead.Store(false) // b returns: it serves what the Leases say
		time.Sleep(20 * time.Second)
		assert.Len(t, a.shards(), 2)
		assert.Len(t, b.shards(), 2)
		assert.ElementsMatch(t, []int{0, 1, 2, 3}, slices.Concat(a.shards(), b.shards()))
		require.NoError(t, a.leave())
		require.NoError(t, b.leave())
	})
}

func TestAProcessThatLeavesHandsItsShardsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		a, b := f.join("a"), f.join("b")
		time.Sleep(15 * time.Second)
		require.Len(t, a.shards(), 1)
		require.NoError(t, a.leave())
		time.Sleep(2 * time.Second)
		assert.Equal(t, []int{0, 1}, b.shards())
		leases, err := b.client.CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Len(t, leases.Items, 3, "two shards and one process")
		require.NoError(t, b.leave())
	})
}

func TestAProcessThatIsLimitedToAShardServesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		a := f.join("a")
		time.Sleep(2 * time.Second)
		canary := f.join("canary", 1)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []int{1}, canary.shards())
		assert.Equal(t, []int{0, 2}, a.shards())
		require.NoError(t, canary.leave())
		time.Sleep(10 * time.Second)
		assert.Equal(t, []int{0, 1, 2}, a.shards())
		require.NoError(t, a.leave())
	})
}

func TestAtRestAProcessSendsOnlyRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 8)
		a := f.join("a")
		time.Sleep(5 * time.Second)
		before := len(a.client.Actions())
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, len(a.client.Actions())-before, 15)
		require.NoError(t, a.leave())
	})
}

func TestAShardThatCannotBeServedEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.serveError = assert.AnError
		m := f.join("a")
		require.ErrorIs(t, <-m.done, assert.AnError)
	})
}

// An upgrade from two to four shards replaces one process after another.
func TestTheClaimsRestWhileTheNumberOfShardsGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		old := []*member{f.join("a"), f.join("b"), f.join("c")}
		time.Sleep(20 * time.Second)
		f.count = 4
		members := append(slices.Clone(old), f.join("d"))
		time.Sleep(30 * time.Second)
		for round := range old {
			var all [][]int
			for _, m := range members {
				all = append(all, m.shards())
			}
			require.ElementsMatch(t, []int{0, 1, 2, 3}, slices.Concat(all...), "%v", all)
			before := f.writesToShards()
			time.Sleep(time.Minute)
			assert.Equal(t, before, f.writesToShards(), "no claim changes")

			members = append(members[1:], f.join("new"+strconv.Itoa(round))) // an old process is replaced
			require.NoError(t, old[round].leave())
			time.Sleep(30 * time.Second)
		}
	})
}

// writesToShards returns the number of writes to the Leases of shards.
func (f *fleet) writesToShards() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shardWrites
}

// During an outage of the API server no Lease is renewed. Afterwards a process sees its own renewal first.
func TestAfterAnOutageOfTheAPIServerNoLiveProcessCountsAsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a, b := f.join("a"), f.join("b")
		time.Sleep(20 * time.Second)
		ofA, ofB, writes := a.shards(), b.shards(), f.writesToShards()
		require.Len(t, ofA, 2)
		for range 3 {
			a.isDead.Store(true)
			b.isDead.Store(true)
			time.Sleep(40 * time.Second)
			a.isDead.Store(false)
			time.Sleep(8 * time.Second)
			b.isDead.Store(false)
			time.Sleep(20 * time.Second)
			assert.Equal(t, writes, f.writesToShards())
			assert.Equal(t, ofA, a.shards())
			assert.Equal(t, ofB, b.shards())
		}

		a.isDead.Store(true)
		b.isDead.Store(true)
		time.Sleep(40 * time.Second)
		a.isDead.Store(false) // b died during the outage
		time.Sleep(20 * time.Second)
		assert.Equal(t, []int{0, 1, 2, 3}, a.shards())
	})
}

// A watch may show changes late although the API server answers requests.
func TestAProcessWhoseWatchIsBehindTakesNoShards(t *testing.T) {
	for offset := range 8 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2)
			a := f.join("a")
			time.Sleep(2500 * time.Millisecond)
			f.join("b")
			time.Sleep(20*time.Second + time.Duration(offset)*500*time.Millisecond)
			writes := f.writesToShards()
			a.lags.Store(true)
			time.Sleep(30 * time.Second)
			a.lags.Store(false)
			time.Sleep(20 * time.Second)
			assert.Equal(t, writes, f.writesToShards(), "offset %d", offset)
		})
	}
}

func TestAProcessWithoutTheAPIServerEndsItsServiceAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.serveEnds = 40 * time.Second
		a := f.join("a")
		time.Sleep(2 * time.Second)
		a.isDead.Store(true)
		time.Sleep(55 * time.Second)
		require.Equal(t, []int{0, 1}, a.shards(), "most outages are shorter")
		time.Sleep(15 * time.Second)
		require.Empty(t, a.shards())
		a.isDead.Store(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []int{0, 1}, a.shards())
		time.Sleep(time.Minute)
		a.mu.Lock()
		assert.False(t, a.twice, "a service begins before the last one has ended")
		assert.Equal(t, map[int]int{0: 1, 1: 1}, a.running)
		a.mu.Unlock()
		require.NoError(t, a.leave())
	})
}

func TestTheLeasesOfKilledProcessesAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		add := func(name string, age time.Duration, labels map[string]string) {
			labels["machine.sapcloud.io/claims-of"] = claims.Worker
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
		a := f.join("a")
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
