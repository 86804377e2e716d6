//go:build integration

package compose

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/lab/engine"
	"millwright/devstack/lab/engine/enginetest"
)

// providerModuleFolder is the folder of the module whose provider image the test builds.
const providerModuleFolder = "provider/incus"

// TestDockerComposeRunsMillwright follows the README's Docker section in order: build the images, start the compose
// file, run the demo, stop.
func TestDockerComposeRunsMillwright(t *testing.T) {
	enginetest.RequireSupport(t)
	began := time.Now()
	after := func(what string) { t.Logf("%s: %s", what, time.Since(began).Round(100*time.Millisecond)) }
	h := newTestEnvironment(t)
	traces := h.newEngineLeftoverFinder(t)
	after("cluster, engine and stand-ins")

	_, err := h.tryCompose(t, nil, "config")
	require.ErrorContains(t, err, "set KUBECONFIG", "no cluster was named")

	h.runDocker(
		t,
		"build",
		"--file",
		h.repo+"/deploy/image/Dockerfile.provider",
		"--build-arg",
		"MODULE="+providerModuleFolder,
		"--tag",
		"millwright-provider:test",
		h.repo,
	)
	after("image of the provider's worker")
	h.runCompose(t, "up", "--build", "--detach")
	after("compose up")
	h.awaitHealthyServices(t)
	after("healthy")

	t.Run("images hold our programs and nothing else", func(t *testing.T) {
		h.checkImage(t, "millwright:dev", "worker", "k8sbridge", "millwright", "starter", "probe")
		h.checkImage(t, "millwright-provider:test", "provider")
		help, err := h.engine.RunProgram(
			t.Context(),
			nil,
			nil,
			"busybox",
			"sh",
			"-euc",
			"docker run --rm --read-only --cap-drop=ALL millwright-provider:test /provider --help 2>&1",
		)
		require.NoError(t, err)
		assert.Contains(t, string(help), "-kubeconfig")
	})
	t.Run("our containers have no rights", func(t *testing.T) {
		for _, name := range []string{"worker", "bridge"} {
			h.checkContainerRestrictions(t, h.listContainers(t)[name])
		}
	})
	t.Run("ports are on loopback", func(t *testing.T) {
		for _, port := range []string{"7233", "8233", "9464", "9465"} {
			require.NoError(t, h.connectInEngine("127.0.0.1", port))
			assert.Error(t, h.connectInEngine(engine.BridgeAddress, port), port)
		}
	})
	t.Run("the UI shows the namespace", func(t *testing.T) {
		assert.Contains(t, h.getPage(t, "http://127.0.0.1:8233/api/v1/namespaces/millwright"), "NAMESPACE_STATE_REGISTERED")
	})
	t.Run("the doctor finds nothing", func(t *testing.T) {
		out := h.runMillwright(t, "doctor", "--cluster-name", "compose")
		assert.Contains(t, out, "ok ")
	})
	t.Run("the demo runs", func(t *testing.T) {
		out := h.runMillwright(t, "demo")
		for _, size := range []string{"3 machines run", "5 machines run", "2 machines run"} {
			assert.Contains(t, out, size)
		}
	})
	after("demo")
	t.Run("logs hold no secrets", func(t *testing.T) {
		logs := h.runCompose(t, "logs", "--no-color", "worker", "bridge", "bootstrap")
		assert.Contains(t, logs, "worker-1")
		assert.NotContains(t, logs, "demo-token")
	})
	t.Run("all stays well", h.awaitHealthyServices)

	h.runCompose(t, "down", "--volumes")
	for what, list := range map[string][]string{
		"containers": {"ps", "--all", "--quiet"},
		"volumes":    {"volume", "ls", "--quiet"},
		"networks":   {"network", "ls", "--quiet", "--filter", "type=custom"},
	} {
		assert.Empty(t, h.runDocker(t, list...), what)
	}
	after("down")
	require.NoError(t, h.engine.Stop(t.Context()))
	require.NoError(t, h.engine.Stop(t.Context()), "a second time")
	assert.Empty(t, traces())
	after("end")
}

// awaitHealthyServices waits until each service with a health check is healthy, and each other service has exited with
// 0.
func (h *testEnvironment) awaitHealthyServices(t *testing.T) {
	t.Helper()
	services := h.composeConfig(t).Services
	require.Len(t, services, 7)
	deadline := time.Now().Add(healthTimeout)
	for {
		containers := h.listContainers(t)
		var missing []string
		for name, s := range services {
			c := containers[name]
			well := c.State == "running" && c.Health == "healthy"
			if s.Healthcheck == nil {
				well = c.State == "exited" && c.ExitCode == 0
			}
			if !well {
				missing = append(missing, name+": "+c.String())
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			require.Empty(t, missing, h.runCompose(t, "logs", "--no-color", "--tail=30"))
		}
		time.Sleep(pollInterval)
	}
}

// checkImage checks the files and the user of an image.
func (h *testEnvironment) checkImage(t *testing.T, name string, programs ...string) {
	t.Helper()
	assert.Equal(t, "65532:65532", h.runDocker(t, "image", "inspect", "--format", "{{.Config.User}}", name))
	id := h.runDocker(t, "create", name, "/none")
	out, err := h.engine.RunProgram(
		t.Context(),
		nil,
		nil,
		"busybox",
		"sh",
		"-euc",
		"docker export "+id+" | busybox tar -t",
	)
	require.NoError(t, err)
	h.runDocker(t, "rm", id)
	var files []string
	for line := range strings.Lines(string(out)) {
		file := strings.TrimSpace(line)
		// The engine adds these files to each container.
		added := slices.Contains(
			[]string{".dockerenv", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf", "dev/console"},
			file,
		)
		if !added && !strings.HasSuffix(file, "/") {
			files = append(files, file)
		}
	}
	assert.ElementsMatch(t, append(programs, "etc/ssl/certs/ca-certificates.crt"), files, name)
}

// checkContainerRestrictions checks the user, the capabilities and the mounts of a container's process in /proc.
func (h *testEnvironment) checkContainerRestrictions(t *testing.T, c container) {
	t.Helper()
	pid := h.runDocker(t, "inspect", "--format", "{{.State.Pid}}", c.ID)
	read := func(file string) string {
		text, err := h.engine.RunProgram(t.Context(), nil, nil, "busybox", "cat", "/proc/"+pid+"/"+file)
		require.NoError(t, err)
		return string(text)
	}
	status := read("status")
	assert.Contains(t, status, "Uid:\t65532\t65532\t65532\t65532", c.Service)
	assert.Contains(t, status, "CapEff:\t0000000000000000", c.Service)
	assert.Contains(t, status, "CapBnd:\t0000000000000000", c.Service)
	assert.Contains(t, status, "NoNewPrivs:\t1", c.Service)
	for line := range strings.Lines(read("mounts")) {
		if fields := strings.Fields(line); fields[1] == "/" || fields[1] == "/kubeconfig" {
			assert.True(t, strings.HasPrefix(fields[3], "ro,"), line)
		}
	}
}

// connectInEngine connects to a port in the engine's network namespace.
func (h *testEnvironment) connectInEngine(address, port string) error {
	connection, err := h.engine.Dial(context.Background(), net.JoinHostPort(address, port))
	if err != nil {
		return err
	}
	return connection.Close()
}

// getPage sends an HTTP GET request in the engine's network namespace and returns the response body.
func (h *testEnvironment) getPage(t *testing.T, url string) string {
	t.Helper()
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return h.engine.Dial(ctx, address) }
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	answer, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, string(text))
	return string(text)
}
