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
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/process/claims"
)

// member is a process that claims shards.
type member struct {
	client *kubefake.Clientset
	end    context.CancelFunc
	done   chan error
	isDead atomic.Bool // the API server answers no request of the process

	mu     sync.Mutex
	serves []int
}

func (m *member) shards() []int {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.serves)
}

// fleet has members with the same API server.
type fleet struct {
	t       *testing.T
	tracker clienttesting.ObjectTracker
	count   int

	mu       sync.Mutex
	writes   int
	versions map[string]string // by name of a Lease

	serveError error // Serve returns this error at once; nil: Serve waits
}

func newFleet(t *testing.T, count int) *fleet {
	t.Helper()
	return &fleet{t: t, tracker: kubefake.NewClientset().Tracker(), count: count, versions: map[string]string{}}
}

// join starts a member.
func (f *fleet) join(identity string, only ...int) *member {
	f.t.Helper()
	ctx, end := context.WithCancel(f.t.Context())
	m := &member{end: end, done: make(chan error, 1), client: kubefake.NewClientset()}
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
		return true, w, err
	})
	go func() {
		m.done <- claims.Run(ctx, claims.Options{
			Client: m.client, Namespace: "default", Role: claims.Worker, Identity: identity, Count: f.count, Only: only,
			Log: slog.New(slog.DiscardHandler),
			Serve: func(ctx context.Context, _ int) error {
				if f.serveError == nil {
					<-ctx.Done()
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
