package stack

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChosenComponentsBringWhatTheyNeed(t *testing.T) {
	for _, c := range []struct {
		chosen, want []string
	}{
		{nil, ComponentNames()},
		{[]string{Etcd}, []string{Etcd}},
		{[]string{Kwok, ControllerManager}, []string{Etcd, APIServer, ControllerManager, Kwok}},
		{[]string{Bootstrap}, []string{Etcd, APIServer, Bootstrap}}, // CRDs alone need no Temporal
		{[]string{Bridge}, []string{Etcd, APIServer, Temporal, Bootstrap, Bridge}},
		{[]string{SecondBridge}, []string{Etcd, APIServer, Temporal, Bootstrap, Bridge, SecondBridge}},
	} {
		got, err := withNeeds(c.chosen)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%v", c.chosen)
	}
	_, err := withNeeds([]string{"etdc"})
	assert.ErrorContains(t, err, `no component "etdc": have etcd, kube-apiserver`)
}

func TestNobodyNeedsALaterComponent(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range components() {
		for _, need := range append(c.needs, c.after...) {
			assert.True(t, seen[need], "%s needs %s", c.name, need)
		}
		seen[c.name] = true
		assert.NotEqual(t, c.heavy == "", c.folder == "", "%s has one binary", c.name)
	}
}

func TestBootstrapWaitsForTemporalOnlyWhenThereIsOne(t *testing.T) {
	c, err := componentNamed(Bootstrap)
	require.NoError(t, err)
	assert.Equal(t, []string{APIServer}, c.waitsFor([]string{Etcd, APIServer, Bootstrap}))
	assert.Equal(t, []string{APIServer, Temporal}, c.waitsFor(ComponentNames()))
}

func TestArgumentsOfTheCallerComeLast(t *testing.T) {
	plan := Plan{Dir: "/stack", Ports: map[string]int{Worker: 1}, Args: map[string][]string{Worker: {"--fast"}}}
	command := plan.command(Worker)
	assert.Equal(t, "--fast", command[len(command)-1])
	assert.Contains(t, command, "/stack/kubeconfig/millwright-worker.kubeconfig")
}
