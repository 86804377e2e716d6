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

// fakeAPIServer is an in-memory API server, so that the time of a synctest bubble passes while a watch waits.
// fakeAPIServer answers lists with its version, and counts the lists; a watch stays open until the client stops it.
type fakeAPIServer struct {
	resourceVersion atomic.Int64
	listCount       atomic.Int64
	failsLists      atomic.Bool // list requests fail
	detector        *cache.RestoreDetector
	client          versioned.Interface
}

// RoundTrip implements http.RoundTripper.
func (s *fakeAPIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Request:    r,
	}
	switch {
	case r.URL.Query().Get("watch") != "":
		answer.Body, _ = io.Pipe()
	case s.failsLists.Load():
		answer.StatusCode, answer.Status, answer.Body = http.StatusServiceUnavailable, "503 Service Unavailable", http.NoBody
	default:
		s.listCount.Add(1)
		list := fmt.Sprintf(
			`{"kind":"MachineList","apiVersion":"machine.sapcloud.io/v1alpha1","metadata":{"resourceVersion":"%d"},"items":[]}`,
			s.resourceVersion.Load(),
		)
		answer.Body = io.NopCloser(strings.NewReader(list))
	}
	return answer, nil
}

func newFakeAPIServer(t *testing.T) *fakeAPIServer {
	t.Helper()
	s := &fakeAPIServer{detector: cache.NewRestoreDetector()}
	config := s.detector.ConfigWithRestoreCheck(&rest.Config{Host: "http://store", Transport: s})
	var err error
	s.client, err = versioned.NewForConfig(config)
	require.NoError(t, err)
	return s
}

// openAndStopWatch opens a watch from a version and stops it.
func (s *fakeAPIServer) openAndStopWatch(t *testing.T, options metav1.ListOptions) error {
	t.Helper()
	w, err := s.client.MachineV1alpha1().Machines(metav1.NamespaceAll).Watch(t.Context(), options)
	if err == nil {
		w.Stop()
	}
	return err
}

// restoreError returns the error that AwaitRestore returns after the watches were opened. A restore is detected before
// the watch opens.
func (s *fakeAPIServer) restoreError(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	return s.detector.AwaitRestore(ctx)
}

func TestWatchDetectsARestoredAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer(t)
		s.resourceVersion.Store(1000)
		require.NoError(t, s.openAndStopWatch(t, metav1.ListOptions{ResourceVersion: "1000"}))
		require.NoError(t, s.restoreError(t), "nothing is older than the cache")
		s.failsLists.Store(true)
		time.Sleep(time.Second)
		require.ErrorContains(
			t,
			s.openAndStopWatch(t, metav1.ListOptions{ResourceVersion: "1000"}),
			"read the version of machines: the API server answers 503",
			"a watch that is not checked does not open",
		)
		s.failsLists.Store(false)
		s.resourceVersion.Store(99)
		for range 2 {
			time.Sleep(time.Second) // longer than maxRenewalGap: an interruption
			require.NoError(t, s.openAndStopWatch(t, metav1.ListOptions{ResourceVersion: "1000"}))
		}
		require.EqualError(
			t,
			s.restoreError(t),
			"the API server was restored to a former state: it is older than version 1000 in the cache of machines",
		)
	})
}

func TestAnImmediatelyRenewedWatchIsNotChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer(t)
		s.resourceVersion.Store(1000)
		open := func() watch.Interface {
			w, err := s.client.MachineV1alpha1().
				Machines(metav1.NamespaceAll).
				Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1000"})
			require.NoError(t, err)
			return w
		}
		w := open()
		require.EqualValues(t, 1, s.listCount.Load())
		for range 3 {
			w.Stop()
			for range w.ResultChan() { // wait for the end of the watch
			}
			w = open()
		}
		assert.EqualValues(t, 1, s.listCount.Load())
		w.Stop()
		for range w.ResultChan() { // wait for the end of the watch
		}
		time.Sleep(time.Second)
		open().Stop()
		assert.EqualValues(t, 2, s.listCount.Load(), "after an interruption")
	})
}

// cacheFillOptions returns the list options of a reflector that fills a cache; before is the version that the cache
// had, empty for a new cache.
func cacheFillOptions(before string) metav1.ListOptions {
	return metav1.ListOptions{
		ResourceVersion: before, SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
}

// A starting API server may refuse watches: then each cache is refilled, and the caches are refilled at different
// times.
func TestRefilledCacheDetectsARestoredAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeAPIServer(t)
		s.resourceVersion.Store(1000)
		require.NoError(t, s.openAndStopWatch(t, cacheFillOptions("1000")))
		require.NoError(t, s.restoreError(t))
		s.resourceVersion.Store(99)
		time.Sleep(time.Second)
		require.NoError(t, s.openAndStopWatch(t, cacheFillOptions("1000")))
		require.ErrorContains(t, s.restoreError(t), "it is older than version 1000 in the cache of machines")
	})
}

func TestOnlyContinuedWatchesOfAWholeResourceAreChecked(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]metav1.ListOptions{
		"it begins with all objects": cacheFillOptions(""),
		"from any version":           {ResourceVersion: "0"},
		"from now on":                {},
		"of some objects":            {ResourceVersion: "1000", FieldSelector: "metadata.name=m"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeAPIServer(t)
				s.resourceVersion.Store(99)
				require.NoError(t, s.openAndStopWatch(t, options))
				assert.Zero(t, s.listCount.Load())
				require.NoError(t, s.restoreError(t))
			})
		})
	}
}
