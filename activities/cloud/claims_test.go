package cloud

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
)

// newSlowListServer returns an API server that takes a second for each list of Machines, and counts the lists.
func newSlowListServer(t *testing.T, names ...string) (client *fake.Clientset, lists *atomic.Int32) {
	t.Helper()
	client, lists = fake.NewSimpleClientset(), &atomic.Int32{}
	for _, name := range names {
		addMachine(t, client, name)
	}
	client.PrependReactor("list", "machines", func(kubetesting.Action) (bool, runtime.Object, error) {
		lists.Add(1)
		list, err := client.Tracker().List(v1alpha1.SchemeGroupVersion.WithResource("machines"),
			v1alpha1.SchemeGroupVersion.WithKind("Machine"), "")
		time.Sleep(time.Second)
		return true, list, err
	})
	return client, lists
}

func addMachine(t *testing.T, client *fake.Clientset, name string) {
	t.Helper()
	require.NoError(
		t,
		client.Tracker().Add(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}),
	)
}

// Calls share a list, and no call gets a list that began before the call.
func TestCallsShareAMachineListThatBeginsAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, lists := newSlowListServer(t, "first")
		var c sharedClaimReader
		var work sync.WaitGroup
		reads := func(want int) {
			work.Go(func() {
				found, err := c.readClaims(t.Context(), client)
				assert.NoError(t, err)
				assert.Len(t, found, want)
			})
			synctest.Wait()
		}
		reads(1)
		time.Sleep(500 * time.Millisecond)
		addMachine(t, client, "second")
		for range 999 {
			reads(2)
		}
		work.Wait()
		assert.EqualValues(t, 2, lists.Load())
		_, err := c.readClaims(t.Context(), client)
		require.NoError(t, err)
		assert.EqualValues(t, 3, lists.Load(), "a list is no cache")
	})
}

// If the API server refuses a list, all calls that share the list get the error.
func TestRefusedMachineListReturnsErrorToAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, lists := newSlowListServer(t, "first")
		client.PrependReactor("list", "machines", func(kubetesting.Action) (bool, runtime.Object, error) {
			lists.Add(1)
			time.Sleep(time.Second)
			return true, nil, errors.New("not now")
		})
		var c sharedClaimReader
		var work sync.WaitGroup
		for range 5 {
			work.Go(func() {
				_, err := c.readClaims(t.Context(), client)
				assert.ErrorContains(t, err, "not now")
			})
			synctest.Wait()
		}
		work.Wait()
		assert.EqualValues(t, 2, lists.Load())
	})
}

// If the call that makes a list is cancelled, another call makes the list again.
func TestCancelledMachineListIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := newSlowListServer(t, "first")
		var c sharedClaimReader
		var work sync.WaitGroup
		work.Go(func() { _, _ = c.readClaims(t.Context(), client) }) // the calls below share the next list
		synctest.Wait()
		for n := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(1500*time.Millisecond, func() { // the shared list has begun
				if n < 3 {
					cancel()
				}
			})
			work.Go(func() {
				defer cancel()
				found, err := c.readClaims(ctx, client)
				if n < 3 {
					assert.ErrorIs(t, err, context.Canceled)
					return
				}
				assert.NoError(t, err)
				assert.Len(t, found, 1)
			})
			synctest.Wait()
		}
		work.Wait()
	})
}
