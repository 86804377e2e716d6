//go:build integration

package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// startFakeAPIBehindProxy starts a fake API server and an APIProxy in front of it. The server counts requests by
// method. Each watch writes a line with the number of written lines every 50 ms.
func startFakeAPIBehindProxy(
	t *testing.T,
) (p *APIProxy, through *kubernetes.Clientset, seen func(method string) int, written func() int) {
	t.Helper()
	var told atomic.Int64
	counts := map[string]*atomic.Int64{http.MethodGet: {}, http.MethodPost: {}, http.MethodDelete: {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counts[r.Method].Add(1)
		w.Header().Set("Content-Type", "application/json")
		if !isWatchRequest(r) {
			_, _ = fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"n"}}`)
			return
		}
		for r.Context().Err() == nil {
			_, _ = fmt.Fprintln(w, told.Add(1))
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p = newAPIProxy(file) // newAPIProxy runs before the file exists
	t.Cleanup(p.server.Close)
	t.Cleanup(p.server.CloseClientConnections)
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	client, err := clientcmd.NewDefaultClientConfig(p.kubeconfig(), nil).ClientConfig()
	require.NoError(t, err)
	client.QPS = -1
	through, err = kubernetes.NewForConfig(client)
	require.NoError(t, err)
	return p, through, func(method string) int { return int(counts[method].Load()) }, func() int { return int(told.Load()) }
}

func TestProxyInjectsFaultsIntoRequests(t *testing.T) {
	p, through, seen, _ := startFakeAPIBehindProxy(t)
	namespaces := through.CoreV1().Namespaces()
	get := func() error { _, err := namespaces.Get(t.Context(), "n", metav1.GetOptions{}); return err }
	remove := func() error { return namespaces.Delete(t.Context(), "n", metav1.DeleteOptions{}) }
	require.NoError(t, get())
	require.Equal(t, 1, seen(http.MethodGet))

	p.SetFaults(APIFaults{UnavailableChance: 1})
	require.True(t, apierrors.IsServiceUnavailable(get()))
	p.SetFaults(APIFaults{ConflictChance: 1})
	require.True(t, apierrors.IsConflict(remove()))
	require.NoError(t, get(), "a read has no conflict")
	require.Equal(t, 0, seen(http.MethodDelete), "a fault has no effect")
	p.SetFaults(APIFaults{LostAnswerChance: 1})
	require.Error(t, remove())
	require.Equal(t, 1, seen(http.MethodDelete), "but for a lost answer")
	require.NoError(t, get())
	p.SetFaults(APIFaults{BusyChance: 0.5})
	for range 5 {
		require.NoError(t, get(), "the client tries again")
	}
	require.Positive(t, p.FaultCounts()["busy"])
}

func TestProxyInjectsFaultsIntoWatches(t *testing.T) {
	p, through, _, written := startFakeAPIBehindProxy(t)
	watch := func() (*bufio.Scanner, error) {
		body, err := through.RESTClient().Get().AbsPath("/api/v1/namespaces").Param("watch", "true").Stream(t.Context())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = body.Close() })
		return bufio.NewScanner(body), nil
	}
	lines, err := watch()
	require.NoError(t, err)
	require.True(t, lines.Scan())
	p.CutWatches(time.Hour)
	for lines.Scan() {
	}
	require.Error(t, lines.Err(), "it breaks")
	_, err = watch()
	require.True(t, apierrors.IsServiceUnavailable(err), "it has broken before watches may begin again: %v", err)

	p.CutWatches(0)
	p.SetFaults(APIFaults{WatchDelay: time.Hour, DelayedResource: "nodes"})
	lines, err = watch()
	require.NoError(t, err)
	for range 3 {
		require.True(t, lines.Scan(), "a watch of another resource is not late")
	}
	p.SetFaults(APIFaults{WatchDelay: time.Hour, DelayedResource: "namespaces"})
	last := written()
	Eventually(t, "the API server tells more", func() (bool, any) { now := written(); return now > last+5, now })
	p.CutWatches(0)
	for lines.Scan() {
		told, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		require.LessOrEqual(t, told, last, "what was on its way comes, and then nothing")
	}
}

func TestDelayedWatchKeepsTheOrderOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cut := context.WithCancel(t.Context())
		body, api := io.Pipe()
		delay := time.Duration(0)
		lines := bufio.NewScanner(delayedReader(ctx, body, func() time.Duration { return delay }))
		tell := func(line string, after time.Duration) {
			delay = after
			_, err := io.WriteString(api, line+"\n")
			require.NoError(t, err)
			synctest.Wait() // wait until the reader has read the delay
		}
		begun := time.Now()
		hears := func(line string, after time.Duration) {
			t.Helper()
			require.True(t, lines.Scan())
			require.Equal(t, line, lines.Text())
			require.Equal(t, after, time.Since(begun))
		}
		tell("a", 0)
		hears("a", 0)
		tell("b", 500*time.Millisecond)
		tell("c", 0)
		hears("b", 500*time.Millisecond)
		hears("c", 500*time.Millisecond)
		tell("d", time.Hour)
		cut()
		require.False(t, lines.Scan())
		require.ErrorIs(t, lines.Err(), context.Canceled)
		require.Equal(t, 500*time.Millisecond, time.Since(begun), "it breaks at once")
	})
}
