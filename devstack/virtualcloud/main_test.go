package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// runAsCommandVariable is the environment variable that makes this test binary run as virtualcloud, so that a test can
// kill a real process.
const runAsCommandVariable = "VIRTUALCLOUD_RUN_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runAsCommandVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// startCloudProcess starts virtualcloud as a separate process and returns the process and its address.
func startCloudProcess(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "--address", "127.0.0.1:0", "--data", dir)
	command.Env = append(os.Environ(), runAsCommandVariable+"=1")
	output, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if found := regexp.MustCompile(`is ready" address=(\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			go func() {
				for lines.Scan() { // Read all lines, because a full pipe would block the process.
				}
			}()
			return command, found[1]
		}
	}
	require.Fail(t, "virtualcloud did not start")
	return nil, ""
}

func testClass() provider.Class {
	spec, err := json.Marshal(map[string]string{"region": "eu", "zone": "eu-1", "instanceType": "small"})
	if err != nil {
		panic(err)
	}
	return provider.Class{
		Namespace: "shop",
		Name:      "pool",
		Spec:      spec,
		Secret:    provider.Secret{"token": []byte("any-token")},
	}
}

// eventuallyTimeout is the timeout of require.Eventually, long enough for the busiest machine.
const eventuallyTimeout = 2 * time.Minute

// After kill -9, each answered create request has its instance. An unanswered create request has at most one instance.
func TestKilledCloudKeepsConfirmedInstances(t *testing.T) {
	dir := t.TempDir()
	process, address := startCloudProcess(t, dir)
	p := virtual.New(address)
	var (
		mu       sync.Mutex
		answered = map[string]string{}
		work     sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for w := range 4 {
		work.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("m-%d-%d", w, i)
				made, err := p.CreateInstance(
					ctx,
					testClass(),
					provider.Machine{Cluster: "c", Name: name, UID: name, NeverTried: true},
				)
				if err != nil {
					assert.Equal(t, provider.Unavailable, provider.CodeOfError(err))
					return
				}
				mu.Lock()
				answered[name] = made.ProviderID
				mu.Unlock()
			}
		})
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(answered) > 4
	}, eventuallyTimeout, time.Millisecond)
	require.NoError(t, process.Process.Kill())
	work.Wait()
	_ = process.Wait()

	process, address = startCloudProcess(t, dir)
	listed, err := virtual.New(address).ListInstances(ctx, testClass(), "c")
	require.NoError(t, err)
	found := map[string]string{}
	for _, instance := range listed {
		assert.NotContains(t, found, instance.MachineName)
		found[instance.MachineName] = instance.ProviderID
	}
	require.NotEmpty(t, answered)
	for name, id := range answered {
		assert.Equal(t, id, found[name])
	}
	assert.LessOrEqual(t, len(found), len(answered)+4, "one more for each caller that was not answered")

	require.NoError(t, process.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, process.Wait(), "SIGTERM is a good end")
}

func TestWaitingCallsDoNotBlockSIGTERM(t *testing.T) {
	process, address := startCloudProcess(t, t.TempDir())
	back := admin.NewClient(address)
	require.NoError(t, back.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		b.CreateLatency = virtual.Duration(time.Hour)
	}))
	ended := make(chan error)
	go func() {
		_, err := virtual.New(address).CreateInstance(context.WithoutCancel(t.Context()), testClass(),
			provider.Machine{Cluster: "c", Name: "m", UID: "u", NeverTried: true})
		ended <- err
	}()
	require.Eventually(t, func() bool {
		stats, err := back.Stats(t.Context())
		return err == nil && stats.PendingCreates == 1
	}, eventuallyTimeout, time.Millisecond)
	require.NoError(t, process.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, provider.Unavailable, provider.CodeOfError(<-ended))
	assert.NoError(t, process.Wait())
}
