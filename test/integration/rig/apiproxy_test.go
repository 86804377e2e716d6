//go:build integration

package rig

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// fakeAPI is an API server that counts requests by method, and whose watches tell a line every 50 ms.
func fakeAPI(t *testing.T) (p *APIProxy, through *kubernetes.Clientset, seen func(method string) int) {
	t.Helper()
	counts := map[string]*atomic.Int64{http.MethodGet: {}, http.MethodPost: {}, http.MethodDelete: {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counts[r.Method].Add(1)
		w.Header().Set("Content-Type", "application/json")
		if !isWatch(r) {
			_, _ = fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"n"}}`)
			return
		}
		for i := 0; r.Context().Err() == nil; i++ {
			_, _ = fmt.Fprintln(w, i)
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p = newAPIProxy(file) // before the file exists
	t.Cleanup(p.server.Close)
	t.Cleanup(p.server.CloseClientConnections)
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	client, err := clientcmd.NewDefaultClientConfig(p.kubeconfig(), nil).ClientConfig()
	require.NoError(t, err)
	client.QPS = -1
	through, err = kubernetes.NewForConfig(client)
	require.NoError(t, err)
	return p, through, func(method string) int { return int(counts[method].Load()) }
}

func TestFaultsOfRequests(t *testing.T) {
	p, through, seen := fakeAPI(t)
	namespaces := through.CoreV1().Namespaces()
	get := func() error { _, err := namespaces.Get(t.Context(), "n", metav1.GetOptions{}); return err }
	remove := func() error { return namespaces.Delete(t.Context(), "n", metav1.DeleteOptions{}) }
	require.NoError(t, get())
	require.Equal(t, 1, seen(http.MethodGet))

	p.Set(APIFaults{Unavailable: 1})
	require.True(t, apierrors.IsServiceUnavailable(get()))
	p.Set(APIFaults{Conflict: 1})
	require.True(t, apierrors.IsConflict(remove()))
	require.NoError(t, get(), "a read has no conflict")
	require.Equal(t, 0, seen(http.MethodDelete), "a fault has no effect")
	p.Set(APIFaults{Lost: 1})
	require.Error(t, remove())
	require.Equal(t, 1, seen(http.MethodDelete), "but for a lost answer")
	require.NoError(t, get())
	p.Set(APIFaults{Busy: 0.5})
	for range 5 {
		require.NoError(t, get(), "the client tries again")
	}
	require.Positive(t, p.Counts()["busy"])
}

func TestFaultsOfWatches(t *testing.T) {
	p, through, _ := fakeAPI(t)
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
	p.Set(APIFaults{WatchDelay: 500 * time.Millisecond})
	begun := time.Now()
	for range 5 { // at least the last of them comes late
		require.True(t, lines.Scan())
	}
	require.Greater(t, time.Since(begun), 400*time.Millisecond)
	require.Equal(t, "5", lines.Text(), "in order")

	p.CutWatches(3 * time.Second)
	cut := time.Now()
	for lines.Scan() {
	}
	require.Error(t, lines.Err(), "it breaks")
	require.Less(t, time.Since(cut), 2*time.Second, "at once, and not when watches may begin again")
	_, err = watch()
	require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
	time.Sleep(time.Until(cut.Add(3100 * time.Millisecond)))
	p.Set(APIFaults{WatchDelay: time.Hour, DelayOnly: "nodes"})
	lines, err = watch()
	require.NoError(t, err)
	for range 3 {
		require.True(t, lines.Scan(), "a watch of another resource is not late")
	}
	p.Set(APIFaults{WatchDelay: time.Hour, DelayOnly: "namespaces"})
	late, told := time.AfterFunc(500*time.Millisecond, func() { p.CutWatches(0) }), 0
	defer late.Stop()
	for lines.Scan() {
		told++
	}
	require.LessOrEqual(t, told, 1, "what was on its way comes, and then nothing")
}
