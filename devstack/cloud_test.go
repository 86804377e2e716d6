package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/devstack/virtualcloud/cloud"
	"millwright/provider"
	"millwright/provider/virtual"
)

// testCloud is a virtual cloud in this process, with the command cloud.
type testCloud struct {
	*admin.Client

	t       *testing.T
	address string
}

func newTestCloud(t *testing.T) testCloud {
	t.Helper()
	c, err := cloud.Open(cloud.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		server.Close()
	})
	return testCloud{Client: admin.NewClient(server.URL), t: t, address: server.URL}
}

// command runs the command cloud and returns its output.
func (c testCloud) command(args ...string) (string, error) {
	c.t.Helper()
	var out bytes.Buffer
	command := cloudCommand(func() (*admin.Client, error) { return c.Client, nil })
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetOut(&out)
	command.SetArgs(args)
	err := command.ExecuteContext(c.t.Context())
	return out.String(), err
}

func (c testCloud) mustCommand(args ...string) string {
	c.t.Helper()
	out, err := c.command(args...)
	require.NoError(c.t, err)
	return out
}

func (c testCloud) behaviour() admin.Behaviour {
	c.t.Helper()
	b, err := c.Behaviour(c.t.Context())
	require.NoError(c.t, err)
	return b
}

// create lets the virtual provider create the instance of a machine.
func (c testCloud) create(ctx context.Context, machine string) error {
	spec := []byte(`{"region": "eu", "zone": "eu-1", "instanceType": "small"}`)
	class := provider.Class{Namespace: "shop", Name: "pool", Spec: spec, Secret: provider.Secret{"token": []byte("any")}}
	_, err := virtual.New(c.address).CreateInstance(ctx, class,
		provider.Machine{Cluster: "c", Name: machine, UID: "uid-" + machine, NeverTried: true})
	return err
}

func (c testCloud) mustCreate(machines ...string) {
	c.t.Helper()
	for _, machine := range machines {
		require.NoError(c.t, c.create(c.t.Context(), machine))
	}
}

func (c testCloud) machineNames() []string {
	c.t.Helper()
	instances, err := c.Instances(c.t.Context())
	require.NoError(c.t, err)
	names := []string{}
	for _, i := range instances {
		names = append(names, i.Tags.MachineName)
	}
	return names
}

func TestCloudWithoutFlagsShowsFaultsAndInstances(t *testing.T) {
	c := newTestCloud(t)
	assert.Equal(t, "the cloud behaves well\n\nno instances\n", c.mustCommand())
	c.mustCreate("a", "b")
	c.mustCommand("--quota", "5")
	assert.Regexp(t, `^the cloud misbehaves; .devstack cloud --reset. ends it:
  quota: 5 instances at a time; 2 now

ID   MACHINE  STATE    NODE        CLASS      ZONE  TYPE   AGE
i-1  a        running  not joined  shop/pool  eu-1  small  .*
i-2  b        running  not joined  shop/pool  eu-1  small  .*
$`, c.mustCommand())
}

func TestCloudFlagsAddUpUntilReset(t *testing.T) {
	c := newTestCloud(t)
	c.mustCreate("a")
	assert.Equal(t, `the cloud misbehaves; `+"`devstack cloud --reset`"+` ends it:
  latency: create calls take 5m longer
  nodes late: Nodes join 10m later
  hang: create calls get no answer, and have no effect
`, c.mustCommand("--latency", "5m", "--nodes-late", "10m", "--hang"))
	c.mustCommand("--latency", "30s", "--operation", "delete")
	c.mustCommand("--quota", "0")
	assert.Equal(t, admin.Behaviour{
		HonorClientTokens: true, NodeCleanupDelay: admin.DefaultNodeCleanupDelay,
		ExtraLatency: admin.Latencies{
			Create: virtual.Duration(5 * time.Minute),
			Boot:   virtual.Duration(10 * time.Minute),
			Delete: virtual.Duration(30 * time.Second),
		},
		Quotas:     map[string]int{"total": 0},
		HangPoints: map[admin.Operation]admin.HangPoint{admin.OperationCreate: admin.HangBeforeEffect},
	}, c.behaviour(), "a flag that is left out changes nothing")

	c.mustCommand("--refuse", "internal")
	assert.Equal(t, "the cloud behaves well\n", c.mustCommand("--reset"))
	assert.Equal(t, admin.DefaultBehaviour(), c.behaviour())
	assert.Equal(t, []string{"a"}, c.machineNames(), "a reset keeps instances")
	c.mustCreate("b")
}

func TestCloudSettingsEndOneByOne(t *testing.T) {
	c := newTestCloud(t)
	c.mustCommand("--latency", "5m", "--nodes-late", "1m", "--quota", "2", "--hang", "--refuse", "Internal")
	c.mustCommand("--latency", "0")
	c.mustCommand("--nodes-late", "0s")
	c.mustCommand("--quota", "none")
	c.mustCommand("--hang=false")
	assert.Contains(t, c.mustCommand(), "refuse: create calls fail with Internal\n")
	assert.Equal(t, "the cloud behaves well\n", c.mustCommand("--refuse", "none"))
}

func TestCloudRefusesCallsWithTheCode(t *testing.T) {
	c := newTestCloud(t)
	assert.Contains(t, c.mustCommand("--refuse", "resourceexhausted", "--times", "1", "--message", "no small left"),
		"refuse: create calls fail with ResourceExhausted, 1 time more\n")
	err := c.create(t.Context(), "a")
	assert.Equal(t, provider.ResourceExhausted, provider.CodeOfError(err))
	assert.ErrorContains(t, err, "no small left")
	c.mustCreate("a")

	// a second refusal of the same operation takes the place of the first
	c.mustCommand("--refuse", "Internal")
	c.mustCommand("--refuse", "Unauthenticated", "--operation", "delete", "--for", "1h")
	out := c.mustCommand("--refuse", "PermissionDenied", "--machine", "b")
	assert.Contains(t, out, "refuse: create calls fail with PermissionDenied, only of machine b\n")
	assert.Regexp(t, `refuse: delete calls fail with Unauthenticated, until .* UTC\n`, out)
	assert.NotContains(t, out, "Internal")
	assert.Equal(t, provider.PermissionDenied, provider.CodeOfError(c.create(t.Context(), "b")))
	c.mustCreate("c")
}

func TestCloudHangReleasesWaitingCalls(t *testing.T) {
	c := newTestCloud(t)
	c.mustCommand("--hang")
	answered := make(chan error, 1)
	go func() { answered <- c.create(t.Context(), "a") }()
	require.Eventually(t, func() bool {
		stats, err := c.Stats(t.Context())
		return err == nil && stats.Calls[admin.OperationCreate] == 1
	}, 2*time.Minute, time.Millisecond)
	assert.Empty(t, c.machineNames(), "the call hangs before its effect")
	c.mustCommand("--reset")
	require.NoError(t, <-answered)
	assert.Equal(t, []string{"a"}, c.machineNames())
}

func TestCloudInstancesVanish(t *testing.T) {
	c := newTestCloud(t)
	c.mustCreate("a", "b", "c", "d", "e")
	assert.Contains(t, c.mustCommand("--vanish", "2"),
		"i-1, the instance of machine a, has vanished\ni-2, the instance of machine b, has vanished\n")
	assert.Contains(t, c.mustCommand("--vanish", "d"), "i-4, the instance of machine d, has vanished\n")
	assert.Contains(t, c.mustCommand("--vanish", "i-5"), "i-5, the instance of machine e, has vanished\n")
	assert.Equal(t, []string{"c"}, c.machineNames())
	stats, err := c.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, stats.VanishedInstances)

	_, err = c.command("--vanish", "2")
	assert.EqualError(t, err, "--vanish 2: the cloud has 1 instance that could")
	_, err = c.command("--vanish", "d")
	assert.ErrorContains(t, err, "--vanish d: no instance has this ID or this machine")
	_, err = c.CreateByHand(t.Context(), virtual.CreateRequest{
		Name: "c", Tags: virtual.Tags{Cluster: "c", MachineName: "c"},
		Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
	})
	require.NoError(t, err)
	_, err = c.command("--vanish", "c")
	assert.ErrorContains(t, err, "2 instances have this machine; name one by its ID, such as i-3")
	assert.Equal(t, []string{"c", "c"}, c.machineNames())
}

func TestCloudShowsSettingsOfOthers(t *testing.T) {
	c := newTestCloud(t)
	require.NoError(t, c.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		b.ReadStaleness, b.Quotas = virtual.Duration(5*time.Second), map[string]int{"eu-1/small": 7}
		b.HangPoints = map[admin.Operation]admin.HangPoint{admin.OperationList: admin.HangAfterEffect}
	}))
	require.NoError(t, c.AddFault(t.Context(), admin.Fault{
		Operation: admin.OperationDelete, Code: "Internal", Class: "shop/pool", EveryNthCall: 3, FailsAfterEffect: true,
	}))
	assert.Equal(t, `the cloud misbehaves; `+"`devstack cloud --reset`"+` ends it:
  quota: 7 instances of eu-1/small at a time
  refuse: delete calls fail with Internal, only of class shop/pool, after their effect, one of 3
  hang: list calls get no answer, after their effect
  other: staleness 5s
`, c.mustCommand("--latency", "0"))
}

// A wrong flag changes nothing, also if other flags of the same call are right.
func TestCloudRefusesWrongFlags(t *testing.T) {
	c := newTestCloud(t)
	for want, args := range map[string][]string{
		`--refuse "Quota" is no code; codes are Canceled,`:                 {"--refuse", "Quota"},
		`--times -1 is negative`:                                           {"--refuse", "Internal", "--times", "-1"},
		`--for -1s is negative`:                                            {"--refuse", "Internal", "--for", "-1s"},
		`--times needs --refuse CODE`:                                      {"--times", "2"},
		`--message needs --refuse CODE`:                                    {"--message", "x", "--hang"},
		`--latency -1m0s is negative`:                                      {"--latency", "-1m"},
		`--nodes-late -1s is negative`:                                     {"--nodes-late", "-1s"},
		`invalid duration`:                                                 {"--latency", "soon"},
		`--latency is possible for create, delete, not for list`:           {"--latency", "1s", "--operation", "list"},
		`--operation "explode" is none of create, initialize, delete,`:     {"--hang", "--operation", "explode"},
		`--operation needs --refuse, --hang or --latency`:                  {"--operation", "delete"},
		`--quota "few" is neither a number of instances nor "none"`:        {"--quota", "few"},
		`--quota "-1" is neither`:                                          {"--quota", "-1"},
		`--vanish "0" is neither a machine, an instance's ID nor a number`: {"--vanish", "0"},
		`--vanish "" is neither`:                                           {"--vanish", ""},
	} {
		_, err := c.command(append([]string{"--nodes-late=1h"}, args...)...)
		assert.ErrorContains(t, err, want)
	}
	assert.Equal(t, admin.DefaultBehaviour(), c.behaviour())
	faults, err := c.Faults(t.Context())
	require.NoError(t, err)
	assert.Empty(t, faults)
}

func TestCloudCompletesCodesAndOperations(t *testing.T) {
	c := newTestCloud(t)
	assert.Contains(t, c.mustCommand("__complete", "--refuse", "Resource"), "ResourceExhausted\n")
	assert.Contains(t, c.mustCommand("__complete", "--operation", "d"), "delete\n")
}
