package cache_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"millwright/api/generated/clientset/versioned"
	"millwright/observe/cache"
)

// store is an API server in the memory of the test, so that a bubble's time passes while a watch waits. It answers
// lists with a version, and counts them; watches stay open until they are stopped.
type store struct {
	version  atomic.Int64
	lists    atomic.Int64
	fails    atomic.Bool // the lists
	restores *cache.Restores
	client   versioned.Interface
}

// RoundTrip implements http.RoundTripper.
func (s *store) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Request:    r,
	}
	switch {
	case r.URL.Query().Get("watch") != "":
		answer.Body, _ = io.Pipe()
	case s.fails.Load():
		answer.StatusCode, answer.Status, answer.Body = http.StatusServiceUnavailable, "503 Service Unavailable", http.NoBody
	default:
		s.lists.Add(1)
		list := fmt.Sprintf(
			`{"kind":"MachineList","apiVersion":"machine.sapcloud.io/v1alpha1","metadata":{"resourceVersion":"%d"},"items":[]}`,
			s.version.Load(),
		)
		answer.Body = io.NopCloser(strings.NewReader(list))
	}
	return answer, nil
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{restores: cache.NewRestores()}
	config := s.restores.Watched(&rest.Config{Host: "http://store", Transport: s})
	var err error
	s.client, err = versioned.NewForConfig(config)
	require.NoError(t, err)
	return s
}

// watch opens a watch from a version and ends it.
func (s *store) watch(t *testing.T, options metav1.ListOptions) error {
	t.Helper()
	w, err := s.client.MachineV1alpha1().Machines(metav1.NamespaceAll).Watch(t.Context(), options)
	if err == nil {
		w.Stop()
	}
	return err
}

// noticed returns what was noticed while the watches were opened: it is known before a watch is.
func (s *store) noticed(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return s.restores.AwaitRestore(ctx)
}

func TestAWatchOfARestoredAPIServerIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		s.version.Store(1000)
		require.NoError(t, s.watch(t, metav1.ListOptions{ResourceVersion: "1000"}))
		require.NoError(t, s.noticed(t), "nothing is older than the cache")
		s.fails.Store(true)
		time.Sleep(time.Second)
		require.ErrorContains(
			t,
			s.watch(t, metav1.ListOptions{ResourceVersion: "1000"}),
			"read the version of machines: the API server answers 503",
			"a watch that is not checked does not open",
		)
		s.fails.Store(false)
		s.version.Store(99)
		for range 2 {
			time.Sleep(time.Second) // an interruption
			require.NoError(t, s.watch(t, metav1.ListOptions{ResourceVersion: "1000"}))
		}
		require.EqualError(
			t,
			s.noticed(t),
			"the API server was restored to a former state: it is older than version 1000 in the cache of machines",
		)
	})
}

func TestAWatchThatIsRenewedAtOnceIsNotChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		s.version.Store(1000)
		open := func() watch.Interface {
			w, err := s.client.MachineV1alpha1().
				Machines(metav1.NamespaceAll).
				Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1000"})
			require.NoError(t, err)
			return w
		}
		w := open()
		require.EqualValues(t, 1, s.lists.Load())
		for range 3 {
			w.Stop()
			for range w.ResultChan() { // until it has ended
			}
			w = open()
		}
		assert.EqualValues(t, 1, s.lists.Load())
		w.Stop()
		for range w.ResultChan() { // until it has ended
		}
		time.Sleep(time.Second)
		open().Stop()
		assert.EqualValues(t, 2, s.lists.Load(), "after an interruption")
	})
}

// filled are the options with which a cache is filled that has had a version before; empty: it had none.
func filled(before string) metav1.ListOptions {
	return metav1.ListOptions{
		ResourceVersion: before, SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
}

// While the API server starts, it may refuse watches: then each cache is filled anew, and not all at the same time.
func TestACacheThatIsFilledAnewNoticesARestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		s.version.Store(1000)
		require.NoError(t, s.watch(t, filled("1000")))
		require.NoError(t, s.noticed(t))
		s.version.Store(99)
		time.Sleep(time.Second)
		require.NoError(t, s.watch(t, filled("1000")))
		require.ErrorContains(t, s.noticed(t), "it is older than version 1000 in the cache of machines")
	})
}

func TestOnlyWatchesOfAWholeResourceThatContinueAreChecked(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]metav1.ListOptions{
		"it begins with all objects": filled(""),
		"from any version":           {ResourceVersion: "0"},
		"from now on":                {},
		"of some objects":            {ResourceVersion: "1000", FieldSelector: "metadata.name=m"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				s.version.Store(99)
				require.NoError(t, s.watch(t, options))
				assert.Zero(t, s.lists.Load())
				require.NoError(t, s.noticed(t))
			})
		})
	}
}
