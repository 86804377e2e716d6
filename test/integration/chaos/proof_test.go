//go:build integration

package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

// A converged stack sends no signal for a minute, and nothing but its deployment's workflow is open.
func TestConvergedStackIsSilent(t *testing.T) {
	t.Parallel()
	r.Namespace(t, "silent", "")
	pool := r.Pool(t, "silent", "silent", 10)
	pool.AwaitRunning(t, 10, time.Minute)
	leader := component.Bridge
	if r.Metric(t, component.SecondBridge, "millwright_bridge_leader") == 1 {
		leader = component.SecondBridge
	}
	before := -1.0
	rig.Eventually(t, time.Minute, "the last status writes of the scale-up are over", func() (bool, any) {
		was := before
		before = r.Metric(t, leader, "millwright_bridge_signals_total")
		if was != before {
			time.Sleep(5 * time.Second)
		}
		return was == before, before
	})
	require.Positive(t, before)
	time.Sleep(time.Minute)
	require.Equal(t, before, r.Metric(t, leader, "millwright_bridge_signals_total"), "signals of a converged stack")
	rig.Eventually(t, 10*time.Second, "only deployments' workflows are open", func() (bool, any) {
		open := r.OpenWorkflows(t, pool.Namespace)
		return open["Machine"]+open["MachineSet"] == 0 && open["MachineDeployment"] == 1, open
	})
	pool.Delete(t)
	pool.AwaitGone(t, time.Minute)
}

// A worker whose caches are five seconds slow makes no second machine: decisions wait for what they wrote, or read live.
func TestWorkerWithSlowCachesMakesNoMachineTwice(t *testing.T) {
	t.Parallel()
	components := []string{component.Kwok, component.ControllerManager, component.VirtualCloud, component.Temporal, component.Bridge}
	slow, err := rig.Up(t.Context(), t.TempDir(), stack.Options{Components: components})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := slow.Stack.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	startWorker(t, slow, lateWatches(t, slow, 5*time.Second))
	slow.Namespace(t, "slow", "")
	pool := slow.Pool(t, "slow", "slow", 5)
	pool.AwaitRunning(t, 5, 2*time.Minute)
	for _, n := range []int{60, 20, 40} {
		pool.Scale(t, n)
		pool.AwaitRunning(t, n, 3*time.Minute)
	}
	// 5, then 55 more, 40 fewer, 20 more
	require.Equal(t, 80, machineCreations(t, slow, "slow"), "machines ever made")
	s := stats(t, slow)
	require.Equal(t, 80, s.Creates, "instances ever made")
	require.Equal(t, admin.Stats{}.DuplicateCreates, s.DuplicateCreates)
}

// lateWatches returns a kubeconfig of the worker's identity behind which watches tell everything late.
func lateWatches(t *testing.T, r *rig.Rig, delay time.Duration) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(r.Stack.Kubeconfig(component.WorkerIdentity))
	require.NoError(t, err)
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	authority := cluster.CertificateAuthorityData
	if len(authority) == 0 {
		authority, err = os.ReadFile(cluster.CertificateAuthority)
		require.NoError(t, err)
	}
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	target, err := url.Parse(cluster.Server)
	require.NoError(t, err)
	token := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Set("Authorization", "Bearer "+token) // clients send no token over plain HTTP
		},
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 100},
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			if response.Request.URL.Query().Get("watch") != "" {
				response.Body = late(response.Body, delay)
			}
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	for name := range config.Clusters {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server.URL}
	}
	path := filepath.Join(t.TempDir(), "late.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// late hands on what it reads after a delay, in order.
func late(body io.ReadCloser, delay time.Duration) io.ReadCloser {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 100_000)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := body.Read(buffer)
			if n > 0 {
				pieces <- piece{time.Now().Add(delay), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	reader, writer := io.Pipe()
	go func() {
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			if _, err := writer.Write(p.data); err != nil {
				_ = body.Close()
				return
			}
		}
		_ = writer.Close()
	}()
	return reader
}

// startWorker runs a worker beside the stack, for as long as the test.
func startWorker(t *testing.T, r *rig.Rig, kubeconfig string) {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	metrics := listener.Addr().String()
	require.NoError(t, listener.Close())
	command := exec.Command(filepath.Join(repo, "bin", "worker"),
		"--kubeconfig", kubeconfig, "--temporal-address", r.Stack.TemporalAddress(), "--cluster-name", "devstack",
		"--metrics-address", metrics, "--virtualcloud-address", r.Stack.CloudAddress())
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	rig.Eventually(t, 30*time.Second, "the worker is ready", func() (bool, any) {
		response, err := http.Get("http://" + metrics + "/readyz")
		if err != nil {
			return false, err
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
}
