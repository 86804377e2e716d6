package component

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWithNeededComponents(t *testing.T) {
	for _, c := range []struct {
		chosen, want []string
	}{
		{nil, Names()},
		{[]string{Etcd}, []string{Etcd}},
		{[]string{Kwok, ControllerManager}, []string{Etcd, APIServer, ControllerManager, Kwok}},
		{[]string{Bootstrap}, []string{Etcd, APIServer, Bootstrap}}, // without Temporal, bootstrap only applies CRDs and RBAC
		{[]string{Bridge}, []string{Etcd, APIServer, Temporal, Bootstrap, Bridge}},
		{[]string{SecondBridge}, []string{Etcd, APIServer, Temporal, Bootstrap, Bridge, SecondBridge}},
	} {
		got, err := WithNeededComponents(c.chosen)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%v", c.chosen)
	}
	_, err := WithNeededComponents([]string{"etdc"})
	assert.ErrorContains(t, err, `no component "etdc": have etcd, kube-apiserver`)
}

func TestNoComponentNeedsALaterComponent(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		for _, need := range append(c.NeededComponents, c.StartsAfter...) {
			assert.True(t, seen[need], "%s needs %s", c.Name, need)
		}
		seen[c.Name] = true
		binaries := 0
		for _, has := range []bool{c.HeavyBinary != "", c.MainFolder != "", c.IsClusterAPIProgram} {
			if has {
				binaries++
			}
		}
		assert.Equal(t, 1, binaries, "%s has one binary", c.Name)
	}
}

func TestBootstrapWaitsForTemporalOnlyIfItIsChosen(t *testing.T) {
	c, err := FindByName(Bootstrap)
	require.NoError(t, err)
	assert.Equal(t, []string{APIServer}, c.AwaitedComponents([]string{Etcd, APIServer, Bootstrap}))
	assert.Equal(t, []string{APIServer, Temporal}, c.AwaitedComponents(Names()))
}

func TestArgumentsOfTheCallerComeLast(t *testing.T) {
	plan := Plan{Dir: "/stack", Ports: map[string]int{Worker: 1}, Args: map[string][]string{Worker: {"--fast"}}}
	command := plan.ComponentArguments(Worker)
	assert.Equal(t, "--fast", command[len(command)-1])
	assert.Contains(t, command, "/stack/kubeconfig/millwright-worker.kubeconfig")
	assert.Contains(
		t,
		plan.ComponentArguments(MCMMachineController),
		"/stack/kubeconfig/machine-controller-manager.kubeconfig",
	)
}

// The stack chooses, orders, starts and probes an extra component in the same way as a component of the table.
func TestExtraComponentIsChosenStartedAndProbed(t *testing.T) {
	extras := []ExtraComponent{
		{Name: "cloud", NeededComponents: []string{APIServer}, ReadinessPath: "/ready"},
		{Name: "client", NeededComponents: []string{"cloud"}, ReadinessPath: "/"},
	}
	chosen, err := WithNeededComponents([]string{"client"}, extras...)
	require.NoError(t, err)
	assert.Equal(t, []string{Etcd, APIServer, "cloud", "client"}, chosen)
	c, err := FindByName("client", extras...)
	require.NoError(t, err)
	assert.Equal(t, []string{"cloud"}, c.AwaitedComponents(chosen))
	_, err = WithNeededComponents([]string{"client"})
	require.ErrorContains(t, err, "no component", "the table has none")

	ready := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/ready", r.URL.Path)
		w.WriteHeader(ready)
	}))
	defer server.Close()
	plan := Plan{
		ExtraComponents: extras, Ports: map[string]int{"cloud": server.Listener.Addr().(*net.TCPAddr).Port},
		Args: map[string][]string{"cloud": {"serve", "--fast"}},
	}
	assert.Equal(t, []string{"serve", "--fast"}, plan.ComponentArguments("cloud"))
	require.Error(t, plan.ProbeComponent(t.Context(), "cloud"))
	ready = http.StatusOK
	require.NoError(t, plan.ProbeComponent(t.Context(), "cloud"))
}
