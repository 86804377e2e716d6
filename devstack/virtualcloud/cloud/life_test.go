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

// runInSynctestBubble runs a test in a synctest bubble, with a cloud that registers no Nodes.
func runInSynctestBubble(t *testing.T, test func(t *testing.T, c *Cloud)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := openCloud(t, t.TempDir(), nil)
		defer crashCloud(t, c)
		test(t, c)
	})
}

func TestInstanceIsPendingUntilItsCreateCallAnswers(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) { b.CreateLatency = virtual.Duration(3 * time.Second) })
		begun := time.Now()
		answered := make(chan virtual.Instance)
		go func() { answered <- mustCreateInstance(t, c, newCreateRequest("a")) }()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": virtual.StatePending}, statesByName(c.listInstances("c1", "")))
		assert.Equal(t, 1, c.Stats().PendingCreates)
		assert.Equal(t, virtual.StateRunning, (<-answered).State)
		assert.Equal(t, 3*time.Second, time.Since(begun))
	})
}

func TestClassOverridesLatency(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) { b.CreateLatency = virtual.Duration(time.Hour) })
		r := newCreateRequest("a")
		r.Spec.CreateLatency = durationPointer(0)
		begun := time.Now()
		mustCreateInstance(t, c, r)
		assert.Zero(t, time.Since(begun))
	})
}

func TestCreateLatenciesOfAClassMayVary(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		took := func(name string) time.Duration {
			r := newCreateRequest(name)
			r.Spec.CreateLatency, r.Spec.CreateSpread = durationPointer(20*time.Second), durationPointer(5*time.Second)
			begun := time.Now()
			mustCreateInstance(t, c, r)
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

func TestInstanceIsInvisibleUntilItsCreateRequestIsAccepted(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) {
			b.AcceptLatency, b.ReadStaleness = virtual.Duration(2*time.Second), virtual.Duration(time.Second)
		})
		begun := time.Now()
		go mustCreateInstance(t, c, newCreateRequest("a"))
		for statesByName(c.listInstances("c1", "")) == nil || len(c.listInstances("c1", "").Items) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, 3*time.Second, time.Since(begun))
		assert.Equal(t, virtual.Duration(3*time.Second), c.Limits().ConsistencyWindow, "as documented")
	})
}

func TestReadsAreStaleAndWritesAreNot(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) {
			b.ReadStaleness, b.DeleteLatency = virtual.Duration(5*time.Second), virtual.Duration(2*time.Second)
		})
		mustCreateInstance(t, c, newCreateRequest("a"))
		assert.Empty(t, c.lookupByUID("c1", "uid-a", "", "").Items)
		assert.Len(t, c.Instances(), 1, "the admin API shows the true state")
		time.Sleep(5 * time.Second)
		assert.Len(t, c.lookupByUID("c1", "uid-a", "", "").Items, 1)
		assert.Len(t, c.lookupByID("c1", "i-1").Items, 1)

		require.NoError(t, c.terminateInstance("i-1", "c1"))
		assert.Equal(t, map[string]string{"a": virtual.StateRunning}, statesByName(c.listInstances("c1", "")))
		time.Sleep(3 * time.Second)
		assert.Equal(t, provider.NotFound, provider.CodeOfError(c.terminateInstance("i-1", "c1")))
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]string{"a": virtual.StateTerminating}, statesByName(c.listInstances("c1", "")))
		time.Sleep(2 * time.Second)
		assert.Empty(t, c.listInstances("c1", "").Items)
	})
}

func TestInstanceLivesUntilTheDeleteLatencyEnds(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		r := newCreateRequest("a")
		r.Spec.DeleteLatency = durationPointer(4 * time.Second)
		mustCreateInstance(t, c, r)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		require.NoError(t, c.terminateInstance("i-1", "c1"), "again")
		assert.Equal(t, 1, c.Stats().DeletedInstances)
		assert.Equal(t, 1, c.Stats().LiveInstances)
		time.Sleep(4 * time.Second)
		assert.Zero(t, c.Stats().LiveInstances)
		assert.Equal(t, 1, c.Stats().MaxLiveInstances)
	})
}

func TestDeleteOfAnotherClustersInstanceIsRefused(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		mustCreateInstance(t, c, newCreateRequest("a"))
		assert.Equal(t, provider.FailedPrecondition, provider.CodeOfError(c.terminateInstance("i-1", "c2")))
		assert.Equal(t, 1, c.Stats().LiveInstances)
	})
}

func TestClientTokenReturnsTheExistingInstance(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		r := newCreateRequest("a")
		r.ClientToken = "t"
		first := mustCreateInstance(t, c, r)
		assert.Equal(t, first.ID, mustCreateInstance(t, c, r).ID)
		assert.Equal(t, 1, c.Stats().TokenReplays)

		require.NoError(t, c.terminateInstance(first.ID, "c1"))
		second := mustCreateInstance(t, c, r)
		assert.NotEqual(t, first.ID, second.ID, "a token ends with its instance")

		editBehaviour(t, c, func(b *admin.Behaviour) { b.HonorClientTokens = false })
		assert.NotEqual(t, second.ID, mustCreateInstance(t, c, r).ID)
		stats := c.Stats()
		assert.Equal(t, 3, stats.CreatedInstances)
		assert.Equal(t, 1, stats.DuplicateInstances)
		assert.Equal(t, 1, stats.LiveDuplicateNames)
	})
}

func TestConcurrentRequestsWithSameClientTokenCreateOneInstance(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) { b.AcceptLatency = virtual.Duration(time.Second) })
		r := newCreateRequest("a")
		r.ClientToken = "t"
		go mustCreateInstance(t, c, r)
		mustCreateInstance(t, c, r)
		synctest.Wait()
		assert.Equal(t, 1, c.Stats().CreatedInstances)
	})
}

func TestExpiredCreateRequestIsRefused(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		r := newCreateRequest("a")
		r.NotAfter = time.Now()
		mustCreateInstance(t, c, r)
		time.Sleep(time.Nanosecond)
		_, err := c.createInstance(t.Context(), r)
		require.ErrorIs(t, err, errRequestExpired)
		assert.Equal(t, provider.Aborted, provider.CodeOfError(err))
		assert.Equal(t, 1, c.Stats().ExpiredRequests)

		editBehaviour(t, c, func(b *admin.Behaviour) { b.AcceptLatency = virtual.Duration(time.Second) })
		r.NotAfter = time.Now()
		// the request does not expire, because the expiry check adds the accept latency to NotAfter
		mustCreateInstance(t, c, r)
	})
}

func TestQuotasLimitInstances(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		large := newCreateRequest("large")
		large.Spec.InstanceType = "large"
		limited := newCreateRequest("limited")
		limited.Tags.Class, limited.Spec.Quota = "shop/limited", new(1)
		mustCreateInstance(t, c, newCreateRequest("a"))
		mustCreateInstance(t, c, limited)
		_, err := c.createInstance(t.Context(), limited)
		assert.Equal(t, provider.ResourceExhausted, provider.CodeOfError(err))
		assert.ErrorContains(t, err, "quota of 1 instances for class shop/limited is used up")

		for key, want := range map[string]provider.Code{
			"total": provider.ResourceExhausted, "eu-1": provider.ResourceExhausted, "small": provider.ResourceExhausted,
			"eu-1/small": provider.ResourceExhausted, "large": provider.OK, "eu-2": provider.OK,
		} {
			editBehaviour(t, c, func(b *admin.Behaviour) { b.Quotas = map[string]int{key: 2} })
			_, err := c.createInstance(t.Context(), newCreateRequest("more"))
			assert.Equal(t, want, provider.CodeOfError(err), key)
			for _, i := range c.Instances() {
				if i.Name == "more" {
					require.NoError(t, c.terminateInstance(i.ID, "c1"))
				}
			}
		}
	})
}

func TestResetKeepsOnlyInstanceNumbers(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) {
			b.CreateLatency, b.AcceptLatency = virtual.Duration(time.Minute), virtual.Duration(time.Minute)
		})
		_, err := c.CreateByHand(newCreateRequest("a"))
		require.NoError(t, err)
		require.NoError(t, c.AddFault(admin.Fault{Operation: admin.OperationCreate, Code: "Internal"}))
		late := make(chan error)
		go func() {
			_, err := c.createInstance(t.Context(), newCreateRequest("b"))
			late <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Reset())
		assert.Equal(t, provider.Aborted, provider.CodeOfError(<-late), "what was under way comes to nothing")
		assert.Equal(t, admin.Stats{}, c.Stats())
		assert.Equal(t, admin.DefaultBehaviour(), c.Behaviour())
		assert.Empty(t, c.Faults())
		assert.Equal(t, "i-2", mustCreateInstance(t, c, newCreateRequest("c")).ID)
	})
}

func TestGoneInstancesStayVisibleForLingerTime(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) { b.LingerTime = virtual.Duration(time.Minute) })
		mustCreateInstance(t, c, newCreateRequest("a"))
		mustCreateInstance(t, c, newCreateRequest("b"))
		advanceTime(time.Second)
		require.NoError(t, c.terminateInstance("i-1", "c1"))
		advanceTime(time.Second)
		assert.Equal(
			t,
			map[string]string{"a": "terminated", "b": "running"},
			statesByName(c.listInstances("c1", "shop/pool")),
		)
		assert.Equal(t, map[string]string{"a": "terminated"}, statesByName(c.lookupByID("c1", "i-1")))
		assert.Equal(t, "terminated", statesByName(c.lookupByUID("c1", "uid-a", "", ""))["a"])
		assert.Len(t, c.Instances(), 1, "the truth")
		advanceTime(time.Minute)
		assert.Equal(t, map[string]string{"b": "running"}, statesByName(c.listInstances("c1", "shop/pool")))
	})
}

func TestListIsCutIntoPages(t *testing.T) {
	c := openCloud(t, t.TempDir(), nil)
	defer crashCloud(t, c)
	for i := range 5 {
		mustCreateInstance(t, c, newCreateRequest(fmt.Sprint(i)))
	}
	pages := func() (sizes []int) {
		from := ""
		for {
			page := c.cutPage(c.listInstances("c1", "shop/pool"), from)
			sizes = append(sizes, len(page.Items))
			if from = page.NextPage; from == "" {
				return sizes
			}
			if len(sizes) == 1 {
				require.NoError(t, c.terminateInstance("i-1", "c1"))
			}
		}
	}
	assert.Equal(t, []int{5}, pages())
	editBehaviour(t, c, func(b *admin.Behaviour) { b.PageSize = 2 })
	assert.Equal(t, []int{2, 2, 1}, pages(), "an instance of the first page that goes hides none of the second")
}

func TestExtraLatencyAddsToTheLatencyOfTheClass(t *testing.T) {
	runWithMemoryNodeClient(t, func(t *testing.T, dir string, nodes *memoryNodeClient) {
		c := openCloud(t, dir, nodes)
		defer crashCloud(t, c)
		editBehaviour(t, c, func(b *admin.Behaviour) {
			b.BootLatency = virtual.Duration(time.Second)
			b.ExtraLatency = admin.Latencies{
				Create: virtual.Duration(5 * time.Minute),
				Boot:   virtual.Duration(10 * time.Minute),
				Delete: virtual.Duration(time.Minute),
			}
		})
		r := newCreateRequest("a")
		r.Spec.CreateLatency, r.Spec.DeleteLatency = durationPointer(2*time.Second), durationPointer(3*time.Second)
		begun := time.Now()
		made := mustCreateInstance(t, c, r)
		assert.Equal(t, 5*time.Minute+2*time.Second, time.Since(begun))
		advanceTime(10 * time.Minute)
		assert.Empty(t, nodes.nodeNames())
		advanceTime(time.Second)
		assert.Equal(t, []string{"a"}, nodes.nodeNames())

		require.NoError(t, c.terminateInstance(made.ID, "c1"))
		advanceTime(time.Minute + 3*time.Second - time.Nanosecond)
		assert.Equal(t, 1, c.Stats().LiveInstances)
		advanceTime(time.Nanosecond)
		assert.Zero(t, c.Stats().LiveInstances)
	})
}
