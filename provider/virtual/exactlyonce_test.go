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

// requestLife is shorter than a creation of a slow cloud.
const requestLife = 100 * time.Millisecond

// slow is a cloud whose creations take long enough to be interrupted, with a hundredth of a real one's times.
type slow struct {
	tokens            bool
	accept, staleness time.Duration
}

func (s slow) String() string {
	return fmt.Sprintf("tokens=%t accept=%s staleness=%s", s.tokens, s.accept, s.staleness)
}

func slowClouds() []slow {
	var clouds []slow
	for _, tokens := range []bool{true, false} {
		for _, accept := range []time.Duration{0, 30 * time.Millisecond} {
			for _, staleness := range []time.Duration{0, 30 * time.Millisecond} {
				clouds = append(clouds, slow{tokens: tokens, accept: accept, staleness: staleness})
			}
		}
	}
	return clouds
}

func (s slow) start(t *testing.T) testCloud {
	c := startCloud(t)
	c.change(t, func(b *admin.Behaviour) {
		b.ClientTokens = s.tokens
		b.CreateLatency = virtual.Duration(300 * time.Millisecond)
		b.AcceptLatency, b.Staleness = virtual.Duration(s.accept), virtual.Duration(s.staleness)
	})
	return c
}

// process returns a client without state, as a newly started worker has it.
func process(c testCloud, options ...driver.Option) *driver.Provider {
	return virtual.Over(c.network, "cloud", append([]driver.Option{
		driver.WithRequestLife(requestLife), driver.WithSearchInterval(5 * time.Millisecond),
	}, options...)...)
}

// dieWhileCreating makes a process send its create request and cancels it before the answer.
func dieWhileCreating(t *testing.T, c testCloud, p *driver.Provider, m provider.Machine) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	dead := make(chan error, 1)
	go func() {
		_, err := p.CreateInstance(ctx, class("pool", nil), m)
		dead <- err
	}()
	require.Eventually(t, func() bool { return c.Stats().Creating == 1 }, 5*time.Second, time.Millisecond)
	kill()
	require.Equal(t, provider.Canceled, provider.CodeOf(<-dead))
}

// settle waits until no create request is in flight.
func settle(t *testing.T, c testCloud) admin.Stats {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Creating == 0 }, 5*time.Second, time.Millisecond)
	return c.Stats()
}

func TestKilledCreatorLeavesOneInstance(t *testing.T) {
	for _, s := range slowClouds() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := s.start(t)
				dieWhileCreating(t, c, process(c), untried())

				instance, err := process(c).CreateInstance(t.Context(), class("pool", nil), machine())
				require.NoError(t, err)
				assert.Equal(t, "m", instance.MachineName)
				stats := settle(t, c)
				assert.Equal(t, 1, stats.Creates)
				assert.Zero(t, stats.DuplicateCreates)
				assert.Equal(t, 1, stats.Live)
			})
		})
	}
}

// The test above can fail: without client tokens, each of its two safeguards is needed.
func TestKilledCreatorLeavesTwoInstancesWithoutSafeguards(t *testing.T) {
	lies := machine()
	lies.NeverTried = true
	for name, row := range map[string]struct {
		options   []driver.Option
		retry     provider.Machine
		staleness time.Duration
	}{
		"no look before the create":         {options: []driver.Option{driver.WithoutSearch()}, retry: machine()},
		"no wait for what is under way":     {retry: lies, staleness: time.Hour},
		"neither, and nothing is under way": {options: []driver.Option{driver.WithoutSearch()}, retry: lies},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := slow{tokens: false, staleness: row.staleness}.start(t)
				dieWhileCreating(t, c, process(c), untried())
				_, err := process(c, row.options...).CreateInstance(t.Context(), class("pool", nil), row.retry)
				require.NoError(t, err)
				stats := settle(t, c)
				assert.Equal(t, 2, stats.Creates)
				assert.Equal(t, 1, stats.DuplicateCreates)
				assert.Equal(t, 1, stats.LiveDuplicateUIDs)
				assert.Equal(t, 1, stats.LiveDuplicateNames)
			})
		})
	}
}

func TestCreateAfterARequestThatNeverArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow{staleness: 20 * time.Millisecond}.start(t)
		begun := time.Now()
		_, err := process(c).CreateInstance(t.Context(), class("pool", nil), machine())
		require.NoError(t, err)
		assert.Greater(t, time.Since(begun), requestLife, "an earlier request might have been under way")
		assert.Equal(t, 1, settle(t, c).Creates)
	})
}

func TestCreateThatIsTheFirstDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.change(t, func(b *admin.Behaviour) {
			b.ClientTokens, b.Staleness = false, virtual.Duration(time.Hour)
		})
		_, err := process(c).CreateInstance(t.Context(), class("pool", nil), untried())
		require.NoError(t, err)
		stats := c.Stats()
		assert.Equal(t, 1, stats.Calls[admin.Status])
		assert.Zero(t, stats.Calls[admin.Limits])
	})
}

func TestDeleteAfterAKilledCreatorLeavesNothing(t *testing.T) {
	for _, s := range slowClouds() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := s.start(t)
				dieWhileCreating(t, c, process(c), untried())
				require.NoError(t, process(c).DeleteInstance(t.Context(), class("pool", nil), machine()))
				stats := settle(t, c)
				assert.Equal(t, 1, stats.Creates)
				assert.Zero(t, stats.Live)
			})
		})
	}
}

// A process that was frozen between its lookup and its request, or a network that delayed the request, must not create
// a second instance after another process has taken over.
func TestFrozenRequestIsRefusedWhenItThaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.change(t, func(b *admin.Behaviour) { b.ClientTokens = false })
		network := &freezing{RoundTripper: c.network, thaws: make(chan struct{})}

		frozen := make(chan result, 1)
		go func() {
			instance, err := virtual.Over(network, "cloud", driver.WithRequestLife(requestLife)).
				CreateInstance(t.Context(), class("pool", nil), untried())
			frozen <- result{instance, err}
		}()
		synctest.Wait() // until it has looked
		time.Sleep(time.Millisecond)
		taken, err := process(c).CreateInstance(t.Context(), class("pool", nil), machine())
		require.NoError(t, err)
		close(network.thaws)
		late := <-frozen
		require.NoError(t, late.err)
		assert.Equal(t, taken.ProviderID, late.instance.ProviderID, "refused, it looks again and adopts")
		stats := c.Stats()
		assert.Equal(t, 1, stats.Creates)
		assert.Equal(t, 1, stats.Expired)
	})
}

type result struct {
	instance provider.Instance
	err      error
}

// freezing is a network that delays the first create request until it thaws.
type freezing struct {
	http.RoundTripper
	creates atomic.Int32
	thaws   chan struct{}
}

func (f *freezing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && f.creates.Add(1) == 1 {
		<-f.thaws
	}
	return f.RoundTripper.RoundTrip(r)
}

func TestLostAnswerIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.change(t, func(b *admin.Behaviour) { b.ClientTokens = false })
		require.NoError(t, c.AddFault(admin.Fault{Operation: admin.Create, Code: "Unavailable", After: true, Count: 1}))
		p := process(c)
		_, err := p.CreateInstance(t.Context(), class("pool", nil), untried())
		require.Equal(t, provider.Unavailable, provider.CodeOf(err))
		_, err = p.CreateInstance(t.Context(), class("pool", nil), machine())
		require.NoError(t, err)
		assert.Equal(t, 1, c.Stats().Creates)
	})
}

func TestOutwaitingSaysWhatItWaitsForWhenTheDeadlinePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.change(t, func(b *admin.Behaviour) {
			b.ClientTokens, b.Staleness = false, virtual.Duration(time.Hour)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := process(c).CreateInstance(ctx, class("pool", nil), machine())
		assert.Equal(t, provider.DeadlineExceeded, provider.CodeOf(err))
		assert.ErrorContains(t, err, "earlier creation")
		assert.Zero(t, c.Stats().Creates)
	})
}
