//go:build integration

package incus_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/incus"
)

// newMachine returns a machine with a name that no other test uses, because names must be unique on the network.
func newMachine(t *testing.T) provider.Machine {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	name = name[max(0, len(name)-30):]
	return provider.Machine{Cluster: "c", Namespace: "shop", Name: "m-" + name, UID: "uid-m", NeverTried: true}
}

// An error of the server gets a provider code and keeps the server's message.
func TestServerErrorsGetProviderCodes(t *testing.T) {
	for name, row := range map[string]struct {
		spec  func(map[string]any)
		quota bool
		want  provider.Code
		says  string
	}{
		"no such image":   {spec: func(s map[string]any) { s["image"] = map[string]any{"alias": "none"} }, want: provider.InvalidArgument, says: "none"},
		"no such project": {spec: func(s map[string]any) { s["project"] = "none" }, want: provider.InvalidArgument, says: "none"},
		"no such profile": {spec: func(s map[string]any) { s["profiles"] = []string{"none"} }, want: provider.InvalidArgument, says: "none"},
		"no such key":     {spec: func(s map[string]any) { s["config"] = map[string]string{"odd": "1"} }, want: provider.Internal, says: "odd"},
		"quota":           {spec: func(map[string]any) {}, quota: true, want: provider.ResourceExhausted, says: "maximum number of instances"},
	} {
		t.Run(name, func(t *testing.T) {
			of := newClass(t, row.spec)
			p := incus.New()
			if row.quota {
				_, err := sharedServer.RunIncus(t.Context(), "project", "set", projectOfClass(t, of), "limits.containers=0")
				require.NoError(t, err)
			}
			_, err := p.CreateInstance(t.Context(), of, newMachine(t))
			assert.Equal(t, row.want, provider.CodeOfError(err), "%v", err)
			assert.ErrorContains(t, err, row.says)
		})
	}
}

// If a worker dies during CreateInstance, the server continues, and the next call finds the instance.
func TestInstanceIsFoundAfterCancelledCreation(t *testing.T) {
	of := newClass(t)
	ctx, die := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, die)
	_, err := incus.New().CreateInstance(ctx, of, newMachine(t))
	require.Equal(t, provider.Canceled, provider.CodeOfError(err), "%v", err)
	m := newMachine(t)
	m.NeverTried = false
	made, err := incus.New().CreateInstance(t.Context(), of, m)
	require.NoError(t, err)
	listed, err := incus.New().ListInstances(t.Context(), of, "c")
	require.NoError(t, err)
	require.Len(t, listed, 1)
	m.ProviderID = listed[0].ProviderID
	assert.Equal(t, made.ProviderID, m.ProviderID)
	require.Eventually(t, func() bool { // the server refuses a start while it creates the instance
		started, err := incus.New().InitializeInstance(t.Context(), of, m)
		return err == nil && started.State == provider.Running
	}, time.Minute, 100*time.Millisecond)
}

// An instance that exists but is not started is Uninitialized. InitializeInstance starts it.
func TestAnUnstartedInstanceIsUninitialized(t *testing.T) {
	of := newClass(t)
	p := incus.New()
	_, err := sharedServer.RunIncus(
		t.Context(),
		"init",
		sleepImage,
		newMachine(t).Name,
		"--project",
		projectOfClass(t, of),
		"--config",
		"user.millwright-cluster=c",
		"--config",
		"user.millwright-class=shop/small",
		"--config",
		"user.millwright-machine="+newMachine(t).Name,
		"--config",
		"user.millwright-uid=uid-m",
	)
	require.NoError(t, err)
	made, err := p.CreateInstance(t.Context(), of, newMachine(t))
	require.NoError(t, err)
	assert.Equal(t, provider.Uninitialized, made.State)
	m := newMachine(t)
	m.ProviderID = made.ProviderID
	started, err := p.InitializeInstance(t.Context(), of, m)
	require.NoError(t, err)
	assert.Equal(t, provider.Running, started.State)
}

// A machine can be deleted although its class is not valid for new machines.
func TestDeletionNeedsOnlyEndpointAndProject(t *testing.T) {
	of := newClass(t)
	p := incus.New()
	made, err := p.CreateInstance(t.Context(), of, newMachine(t))
	require.NoError(t, err)
	var spec map[string]any
	require.NoError(t, json.Unmarshal(of.Spec, &spec))
	delete(spec, "image")
	of.Spec, err = json.Marshal(spec)
	require.NoError(t, err)
	m := newMachine(t)
	m.ProviderID = made.ProviderID
	require.NoError(t, p.DeleteInstance(t.Context(), of, m))
	_, err = p.InstanceStatus(t.Context(), of, m)
	assert.Equal(t, provider.NotFound, provider.CodeOfError(err))
}

// A later instance of the same name is a different instance.
func TestInstanceWithReusedNameIsAnotherInstance(t *testing.T) {
	of := newClass(t)
	p := incus.New()
	first, err := p.CreateInstance(t.Context(), of, newMachine(t))
	require.NoError(t, err)
	m := newMachine(t)
	m.ProviderID = first.ProviderID
	require.NoError(t, p.DeleteInstance(t.Context(), of, m))
	later := newMachine(t)
	later.UID = "uid-later"
	second, err := p.CreateInstance(t.Context(), of, later)
	require.NoError(t, err)
	assert.NotEqual(t, first.ProviderID, second.ProviderID)
	require.NoError(t, p.DeleteInstance(t.Context(), of, m), "what it had is gone")
	seen, err := p.InstanceStatus(t.Context(), of, later)
	require.NoError(t, err)
	assert.Equal(t, second.ProviderID, seen.ProviderID)
}
