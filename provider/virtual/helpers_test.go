package virtual_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/devstack/virtualcloud/cloud"
	"millwright/provider"
	"millwright/provider/virtual"
)

// testCloud is a virtualcloud in the process of the test, without Kubernetes.
type testCloud struct {
	*cloud.Cloud
	transport http.RoundTripper // transport from the provider to the cloud
}

func startCloud(t *testing.T) testCloud {
	t.Helper()
	c, err := cloud.Open(cloud.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return testCloud{c, inMemoryTransport{c.Handler()}}
}

// inMemoryTransport is an http.RoundTripper without sockets: in a synctest bubble, the fake clock advances while a call
// waits.
type inMemoryTransport struct{ http.Handler }

func (m inMemoryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, answered := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(answered)
		m.ServeHTTP(answer, r)
	}()
	select {
	case <-answered:
		return answer.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// startServer starts an HTTP server for the cloud and returns its URL. The server runs until the test ends.
func (c testCloud) startServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		c.Stop() // ends hanging calls, because server.Close would wait for them
		server.Close()
	})
	return server.URL
}

// changeBehaviour modifies the Behaviour of the cloud.
func (c testCloud) changeBehaviour(t *testing.T, change func(*admin.Behaviour)) {
	t.Helper()
	b := c.Behaviour()
	change(&b)
	require.NoError(t, c.SetBehaviour(b))
}

const canarySecret = "canary-0a4be1c9-not-for-logs"

func testClass(name string, spec map[string]any) provider.Class {
	all := map[string]any{"region": "eu", "zone": "eu-1", "instanceType": "small"}
	maps.Copy(all, spec)
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return provider.Class{
		Namespace: "shop", Name: name, Spec: raw,
		Secret: provider.Secret{"token": []byte(canarySecret), "userData": []byte("#cloud-config " + canarySecret)},
	}
}

// testMachine returns the Machine m with NeverTried = false: CreateInstance may have been called for it.
func testMachine() provider.Machine {
	return provider.Machine{Cluster: "c1", Namespace: "shop", Name: "m", UID: "uid-m"}
}

// untriedMachine returns the Machine m with NeverTried = true: CreateInstance was never called for it.
func untriedMachine() provider.Machine {
	m := testMachine()
	m.NeverTried = true
	return m
}

// tagsOfMachine returns the tags of an instance of the class shop/pool.
func tagsOfMachine(m provider.Machine) virtual.Tags {
	return virtual.Tags{Cluster: m.Cluster, Class: "shop/pool", MachineName: m.Name, MachineUID: m.UID}
}
