package virtual_test

import (
	"encoding/json"
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
	address string
}

func startCloud(t *testing.T) testCloud {
	t.Helper()
	c, err := cloud.Open(cloud.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		require.NoError(t, c.Close()) // first, so that hanging calls end
		server.Close()
	})
	return testCloud{Cloud: c, address: server.URL}
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
	for key, value := range spec {
		all[key] = value
	}
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
