package cloud

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// inBubble runs a test of a cloud without Nodes in a synctest bubble.
func inBubble(t *testing.T, test func(t *testing.T, c *Cloud)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir(), nil)
		defer crash(t, c)
		test(t, c)
	})
}

func TestInstanceIsPendingUntilItsCreateCallAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		behave(t, c, func(b *admin.Behaviour) { b.CreateLatency = virtual.Duration(3 * time.Second) })
		begun := time.Now()
		answered := make(chan virtual.Instance)
		go func() { answered <- make1(t, c, request("a")) }()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": virtual.StatePending}, states(c.list("c1", "")))
		assert.Equal(t, 1, c.Stats().Creating)
		assert.Equal(t, virtual.StateRunning, (<-answered).State)
		assert.Equal(t, 3*time.Second, time.Since(begun))
	})
}

func TestClassOverridesLatency(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		behave(t, c, func(b *admin.Behaviour) { b.CreateLatency = virtual.Duration(time.Hour) })
		r := request("a")
		r.Spec.CreateLatency = duration(0)
		begun := time.Now()
		make1(t, c, r)
		assert.Zero(t, time.Since(begun))
	})
}

func TestCreateLatenciesOfAClassMaySpread(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		took := func(name string) time.Duration {
			r := request(name)
			r.Spec.CreateLatency, r.Spec.CreateSpread = duration(20*time.Second), duration(5*time.Second)
			begun := time.Now()
			make1(t, c, r)
			return time.Since(begun)
		}
		sum, different := time.Duration(0), map[time.Duration]bool{}
		for i := range 100 {
			d := took(fmt.Sprintf("m-%d", i))
			assert.InDelta(t, 20, d.Seconds(), 5)
			sum, different[d] = sum+d, true
		}
		assert.InDelta(t, 20, sum.Seconds()/100, 1)
		assert.Greater(t, len(different), 90)
		assert.Equal(t, took("again"), took("again"), "by the name")
	})
}

func TestRequestWithoutRecordIsInvisible(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		behave(t, c, func(b *admin.Behaviour) {
			b.AcceptLatency, b.Staleness = virtual.Duration(2*time.Second), virtual.Duration(time.Second)
		})
		begun := time.Now()
		go make1(t, c, request("a"))
		for states(c.list("c1", "")) == nil || len(c.list("c1", "").Items) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, 3*time.Second, time.Since(begun))
		assert.Equal(t, virtual.Duration(3*time.Second), c.Limits().ConsistencyWindow, "as documented")
	})
}

func TestStaleReadsShowThePastAndWritesMeetTheTruth(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		behave(t, c, func(b *admin.Behaviour) {
			b.Staleness, b.DeleteLatency = virtual.Duration(5*time.Second), virtual.Duration(2*time.Second)
		})
		make1(t, c, request("a"))
		assert.Empty(t, c.lookupUID("c1", "uid-a", "", "").Items)
		assert.Len(t, c.Instances(), 1, "the admin API shows the true state")
		time.Sleep(5 * time.Second)
		assert.Len(t, c.lookupUID("c1", "uid-a", "", "").Items, 1)
		assert.Len(t, c.lookupID("c1", "i-1").Items, 1)

		require.NoError(t, c.terminate("i-1", "c1"))
		assert.Equal(t, map[string]string{"a": virtual.StateRunning}, states(c.list("c1", "")))
		time.Sleep(3 * time.Second)
		assert.Equal(t, provider.NotFound, provider.CodeOf(c.terminate("i-1", "c1")))
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]string{"a": virtual.StateTerminating}, states(c.list("c1", "")))
		time.Sleep(2 * time.Second)
		assert.Empty(t, c.list("c1", "").Items)
	})
}

func TestDeletionTakesItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		r := request("a")
		r.Spec.DeleteLatency = duration(4 * time.Second)
		make1(t, c, r)
		require.NoError(t, c.terminate("i-1", "c1"))
		require.NoError(t, c.terminate("i-1", "c1"), "again")
		assert.Equal(t, 1, c.Stats().Deletes)
		assert.Equal(t, 1, c.Stats().Live)
		time.Sleep(4 * time.Second)
		assert.Zero(t, c.Stats().Live)
		assert.Equal(t, 1, c.Stats().MaxLive)
	})
}

func TestDeleteOfAnotherClustersInstanceIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		make1(t, c, request("a"))
		assert.Equal(t, provider.FailedPrecondition, provider.CodeOf(c.terminate("i-1", "c2")))
		assert.Equal(t, 1, c.Stats().Live)
	})
}

func TestClientTokens(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		r := request("a")
		r.ClientToken = "t"
		first := make1(t, c, r)
		assert.Equal(t, first.ID, make1(t, c, r).ID)
		assert.Equal(t, 1, c.Stats().TokenReplays)

		require.NoError(t, c.terminate(first.ID, "c1"))
		second := make1(t, c, r)
		assert.NotEqual(t, first.ID, second.ID, "a token ends with its instance")

		behave(t, c, func(b *admin.Behaviour) { b.ClientTokens = false })
		assert.NotEqual(t, second.ID, make1(t, c, r).ID)
		stats := c.Stats()
		assert.Equal(t, 3, stats.Creates)
		assert.Equal(t, 1, stats.DuplicateCreates)
		assert.Equal(t, 1, stats.LiveDuplicateNames)
	})
}

func TestClientTokenHoldsAmongRequestsWithoutRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		behave(t, c, func(b *admin.Behaviour) { b.AcceptLatency = virtual.Duration(time.Second) })
		r := request("a")
		r.ClientToken = "t"
		go make1(t, c, r)
		make1(t, c, r)
		synctest.Wait()
		assert.Equal(t, 1, c.Stats().Creates)
	})
}

func TestLateRequestIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		r := request("a")
		r.NotAfter = time.Now()
		make1(t, c, r)
		time.Sleep(time.Nanosecond)
		_, err := c.create(t.Context(), r)
		require.ErrorIs(t, err, errExpired)
		assert.Equal(t, provider.Aborted, provider.CodeOf(err))
		assert.Equal(t, 1, c.Stats().Expired)

		behave(t, c, func(b *admin.Behaviour) { b.AcceptLatency = virtual.Duration(time.Second) })
		r.NotAfter = time.Now()
		make1(t, c, r) // it came in time; the accept latency does not count
	})
}

func TestQuotas(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		large := request("large")
		large.Spec.InstanceType = "large"
		limited := request("limited")
		limited.Tags.Class, limited.Spec.Quota = "shop/limited", new(1)
		make1(t, c, request("a"))
		make1(t, c, limited)
		_, err := c.create(t.Context(), limited)
		assert.Equal(t, provider.ResourceExhausted, provider.CodeOf(err))
		assert.ErrorContains(t, err, "quota of 1 instances for class shop/limited is used up")

		for key, want := range map[string]provider.Code{
			"total": provider.ResourceExhausted, "eu-1": provider.ResourceExhausted, "small": provider.ResourceExhausted,
			"eu-1/small": provider.ResourceExhausted, "large": provider.OK, "eu-2": provider.OK,
		} {
			behave(t, c, func(b *admin.Behaviour) { b.Quotas = map[string]int{key: 2} })
			_, err := c.create(t.Context(), request("more"))
			assert.Equal(t, want, provider.CodeOf(err), key)
			for _, i := range c.Instances() {
				if i.Name == "more" {
					require.NoError(t, c.terminate(i.ID, "c1"))
				}
			}
		}
	})
}

func TestResetForgetsEverythingButNumbers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		behave(t, c, func(b *admin.Behaviour) {
			b.CreateLatency, b.AcceptLatency = virtual.Duration(time.Minute), virtual.Duration(time.Minute)
		})
		_, err := c.CreateByHand(request("a"))
		require.NoError(t, err)
		require.NoError(t, c.AddFault(admin.Fault{Operation: admin.Create, Code: "Internal"}))
		late := make(chan error)
		go func() {
			_, err := c.create(t.Context(), request("b"))
			late <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Reset())
		assert.Equal(t, provider.Aborted, provider.CodeOf(<-late), "what was under way comes to nothing")
		assert.Equal(t, admin.Stats{}, c.Stats())
		assert.Equal(t, admin.DefaultBehaviour(), c.Behaviour())
		assert.Empty(t, c.Faults())
		assert.Equal(t, "i-2", make1(t, c, request("c")).ID)
	})
}

func TestInstancesThatAreGoneLinger(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cloud) {
		behave(t, c, func(b *admin.Behaviour) { b.Linger = virtual.Duration(time.Minute) })
		make1(t, c, request("a"))
		make1(t, c, request("b"))
		pass(time.Second)
		require.NoError(t, c.terminate("i-1", "c1"))
		pass(time.Second)
		assert.Equal(t, map[string]string{"a": "terminated", "b": "running"}, states(c.list("c1", "shop/pool")))
		assert.Equal(t, map[string]string{"a": "terminated"}, states(c.lookupID("c1", "i-1")))
		assert.Equal(t, "terminated", states(c.lookupUID("c1", "uid-a", "", ""))["a"])
		assert.Len(t, c.Instances(), 1, "the truth")
		pass(time.Minute)
		assert.Equal(t, map[string]string{"b": "running"}, states(c.list("c1", "shop/pool")))
	})
}

func TestPages(t *testing.T) {
	c := open(t, t.TempDir(), nil)
	defer crash(t, c)
	for i := range 5 {
		make1(t, c, request(fmt.Sprint(i)))
	}
	pages := func() (sizes []int) {
		from := ""
		for {
			page := c.cutPage(c.list("c1", "shop/pool"), from)
			sizes = append(sizes, len(page.Items))
			if from = page.Next; from == "" {
				return sizes
			}
			if len(sizes) == 1 {
				require.NoError(t, c.terminate("i-1", "c1"))
			}
		}
	}
	assert.Equal(t, []int{5}, pages())
	behave(t, c, func(b *admin.Behaviour) { b.PageSize = 2 })
	assert.Equal(t, []int{2, 2, 1}, pages(), "an instance of the first page that goes hides none of the second")
}
