package virtual_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/driver"
	"millwright/provider/virtual"
)

// requestLifetime is the lifetime of create requests in these tests. The lifetime is shorter than the 300 ms of a
// creation in a slow cloud.
const requestLifetime = 100 * time.Millisecond

// slowCloudConfig is the configuration of a cloud in which a creation takes long enough for an interruption. All
// durations are a hundredth of the durations of a real cloud.
type slowCloudConfig struct {
	usesClientTokens         bool
	acceptLatency, staleness time.Duration
}

func (s slowCloudConfig) String() string {
	return fmt.Sprintf("tokens=%t accept=%s staleness=%s", s.usesClientTokens, s.acceptLatency, s.staleness)
}

func slowCloudConfigs() []slowCloudConfig {
	var clouds []slowCloudConfig
	for _, tokens := range []bool{true, false} {
		for _, accept := range []time.Duration{0, 30 * time.Millisecond} {
			for _, staleness := range []time.Duration{0, 30 * time.Millisecond} {
				clouds = append(clouds, slowCloudConfig{usesClientTokens: tokens, acceptLatency: accept, staleness: staleness})
			}
		}
	}
	return clouds
}

func (s slowCloudConfig) startSlowCloud(t *testing.T) testCloud {
	c := startCloud(t)
	c.changeBehaviour(t, func(b *admin.Behaviour) {
		b.HonorClientTokens = s.usesClientTokens
		b.CreateLatency = virtual.Duration(300 * time.Millisecond)
		b.AcceptLatency, b.ReadStaleness = virtual.Duration(s.acceptLatency), virtual.Duration(s.staleness)
	})
	return c
}

// newWorkerProvider returns a new Provider without state, like the Provider of a newly started worker.
func newWorkerProvider(c testCloud, options ...driver.Option) *driver.Provider {
	return virtual.NewWithTransport(c.transport, "cloud", append([]driver.Option{
		driver.WithRequestLifetime(requestLifetime), driver.WithSearchInterval(5 * time.Millisecond),
	}, options...)...)
}

// cancelDuringCreate sends a create request and cancels the call before the answer, like a crash of the process.
func cancelDuringCreate(t *testing.T, c testCloud, p *driver.Provider, m provider.Machine) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	dead := make(chan error, 1)
	go func() {
		_, err := p.CreateInstance(ctx, testClass("pool", nil), m)
		dead <- err
	}()
	require.Eventually(t, func() bool { return c.Stats().PendingCreates == 1 }, 5*time.Second, time.Millisecond)
	kill()
	require.Equal(t, provider.Canceled, provider.CodeOfError(<-dead))
}

// waitForPendingCreates waits until no create request is in flight, and returns the statistics of the cloud.
func waitForPendingCreates(t *testing.T, c testCloud) admin.Stats {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().PendingCreates == 0 }, 5*time.Second, time.Millisecond)
	return c.Stats()
}

func TestKilledCreatorLeavesOneInstance(t *testing.T) {
	for _, s := range slowCloudConfigs() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := s.startSlowCloud(t)
				cancelDuringCreate(t, c, newWorkerProvider(c), untriedMachine())

				instance, err := newWorkerProvider(c).CreateInstance(t.Context(), testClass("pool", nil), testMachine())
				require.NoError(t, err)
				assert.Equal(t, "m", instance.MachineName)
				stats := waitForPendingCreates(t, c)
				assert.Equal(t, 1, stats.CreatedInstances)
				assert.Zero(t, stats.DuplicateInstances)
				assert.Equal(t, 1, stats.LiveInstances)
			})
		})
	}
}

// TestKilledCreatorLeavesOneInstance needs two safeguards of package driver. Without client tokens, a creation without
// the search or without the wait creates a second instance.
func TestKilledCreatorLeavesTwoInstancesWithoutSafeguards(t *testing.T) {
	lies := testMachine()
	lies.NeverTried = true
	for name, row := range map[string]struct {
		options   []driver.Option
		retry     provider.Machine
		staleness time.Duration
	}{
		"no look before the create":         {options: []driver.Option{driver.WithoutSearch()}, retry: testMachine()},
		"no wait for what is under way":     {retry: lies, staleness: time.Hour},
		"neither, and nothing is under way": {options: []driver.Option{driver.WithoutSearch()}, retry: lies},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := slowCloudConfig{usesClientTokens: false, staleness: row.staleness}.startSlowCloud(t)
				cancelDuringCreate(t, c, newWorkerProvider(c), untriedMachine())
				_, err := newWorkerProvider(c, row.options...).CreateInstance(t.Context(), testClass("pool", nil), row.retry)
				require.NoError(t, err)
				stats := waitForPendingCreates(t, c)
				assert.Equal(t, 2, stats.CreatedInstances)
				assert.Equal(t, 1, stats.DuplicateInstances)
				assert.Equal(t, 1, stats.LiveDuplicateUIDs)
				assert.Equal(t, 1, stats.LiveDuplicateNames)
			})
		})
	}
}

func TestCreateWaitsForAnEarlierRequestThatNeverArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slowCloudConfig{staleness: 20 * time.Millisecond}.startSlowCloud(t)
		begun := time.Now()
		_, err := newWorkerProvider(c).CreateInstance(t.Context(), testClass("pool", nil), testMachine())
		require.NoError(t, err)
		assert.Greater(t, time.Since(begun), requestLifetime, "an earlier request might have been under way")
		assert.Equal(t, 1, waitForPendingCreates(t, c).CreatedInstances)
	})
}

func TestFirstCreateDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.changeBehaviour(t, func(b *admin.Behaviour) {
			b.HonorClientTokens, b.ReadStaleness = false, virtual.Duration(time.Hour)
		})
		_, err := newWorkerProvider(c).CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
		require.NoError(t, err)
		stats := c.Stats()
		assert.Equal(t, 1, stats.Calls[admin.OperationStatus])
		assert.Zero(t, stats.Calls[admin.OperationLimits])
	})
}

func TestDeleteAfterAKilledCreatorLeavesNothing(t *testing.T) {
	for _, s := range slowCloudConfigs() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := s.startSlowCloud(t)
				cancelDuringCreate(t, c, newWorkerProvider(c), untriedMachine())
				require.NoError(t, newWorkerProvider(c).DeleteInstance(t.Context(), testClass("pool", nil), testMachine()))
				stats := waitForPendingCreates(t, c)
				assert.Equal(t, 1, stats.CreatedInstances)
				assert.Zero(t, stats.LiveInstances)
			})
		})
	}
}

// A frozen process or the network delays a create request. When the request arrives, another process has already
// created the instance, and no second instance may be created.
func TestDelayedCreateRequestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.changeBehaviour(t, func(b *admin.Behaviour) { b.HonorClientTokens = false })
		network := &delayingTransport{RoundTripper: c.transport, releaseSignal: make(chan struct{})}

		frozen := make(chan createResult, 1)
		go func() {
			instance, err := virtual.NewWithTransport(network, "cloud", driver.WithRequestLifetime(requestLifetime)).
				CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
			frozen <- createResult{instance, err}
		}()
		synctest.Wait() // wait until the frozen process has finished its search
		time.Sleep(time.Millisecond)
		taken, err := newWorkerProvider(c).CreateInstance(t.Context(), testClass("pool", nil), testMachine())
		require.NoError(t, err)
		close(network.releaseSignal)
		late := <-frozen
		require.NoError(t, late.err)
		assert.Equal(t, taken.ProviderID, late.instance.ProviderID, "refused, it looks again and adopts")
		stats := c.Stats()
		assert.Equal(t, 1, stats.CreatedInstances)
		assert.Equal(t, 1, stats.ExpiredRequests)
	})
}

type createResult struct {
	instance provider.Instance
	err      error
}

// delayingTransport is an http.RoundTripper that delays the first create request until the channel thawed is closed.
type delayingTransport struct {
	http.RoundTripper
	createRequestCount atomic.Int32
	releaseSignal      chan struct{}
}

func (f *delayingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && f.createRequestCount.Add(1) == 1 {
		<-f.releaseSignal
	}
	return f.RoundTripper.RoundTrip(r)
}

func TestInstanceOfALostAnswerIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.changeBehaviour(t, func(b *admin.Behaviour) { b.HonorClientTokens = false })
		require.NoError(
			t,
			c.AddFault(
				admin.Fault{Operation: admin.OperationCreate, Code: "Unavailable", FailsAfterEffect: true, MaxFailures: 1},
			),
		)
		p := newWorkerProvider(c)
		_, err := p.CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
		require.Equal(t, provider.Unavailable, provider.CodeOfError(err))
		_, err = p.CreateInstance(t.Context(), testClass("pool", nil), testMachine())
		require.NoError(t, err)
		assert.Equal(t, 1, c.Stats().CreatedInstances)
	})
}

func TestErrorAtTheDeadlineMentionsTheEarlierCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.changeBehaviour(t, func(b *admin.Behaviour) {
			b.HonorClientTokens, b.ReadStaleness = false, virtual.Duration(time.Hour)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newWorkerProvider(c).CreateInstance(ctx, testClass("pool", nil), testMachine())
		assert.Equal(t, provider.DeadlineExceeded, provider.CodeOfError(err))
		assert.ErrorContains(t, err, "earlier creation")
		assert.Zero(t, c.Stats().CreatedInstances)
	})
}
