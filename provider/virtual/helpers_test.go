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

// testCloud is a virtualcloud in this process, without Kubernetes.
type testCloud struct {
	*cloud.Cloud
	network http.RoundTripper // to the cloud
}

func startCloud(t *testing.T) testCloud {
	t.Helper()
	c, err := cloud.Open(cloud.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return testCloud{c, memory{c.Handler()}}
}

// memory is a network without sockets, so that the time of a bubble passes while a call waits.
type memory struct{ http.Handler }

func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
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

// served returns the address of a cloud that listens until the test ends.
func (c testCloud) served(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		c.Stop() // first, so that hanging calls end
		server.Close()
	})
	return server.URL
}

// change changes the behaviour of the cloud.
func (c testCloud) change(t *testing.T, change func(*admin.Behaviour)) {
	t.Helper()
	b := c.Behaviour()
	change(&b)
	require.NoError(t, c.SetBehaviour(b))
}

const canary = "canary-0a4be1c9-not-for-logs"

func class(name string, spec map[string]any) provider.Class {
	all := map[string]any{"region": "eu", "zone": "eu-1", "instanceType": "small"}
	maps.Copy(all, spec)
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return provider.Class{
		Namespace: "shop", Name: name, Spec: raw,
		Secret: provider.Secret{"token": []byte(canary), "userData": []byte("#cloud-config " + canary)},
	}
}

// machine returns machine m, whose creation may have been tried.
func machine() provider.Machine {
	return provider.Machine{Cluster: "c1", Namespace: "shop", Name: "m", UID: "uid-m"}
}

// untried returns machine m, whose creation was never tried.
func untried() provider.Machine {
	m := machine()
	m.NeverTried = true
	return m
}

// tags are those of an instance of class pool.
func tags(m provider.Machine) virtual.Tags {
	return virtual.Tags{Cluster: m.Cluster, Class: "shop/pool", Machine: m.Name, MachineUID: m.UID}
}
