// Tier: test-all. This package needs a container engine.

//go:build integration

// Package compose runs docker-compose.yml and Millwright's images in a container engine of its own (package engine).
// The repository's Dockerfiles build the images, with stand-ins for the images of registries. The cluster is a local
// stack without Temporal, worker and bridge.
package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/lab/engine"
	"millwright/devstack/lab/engine/enginetest"
	"millwright/devstack/lab/engine/standin"
	"millwright/devstack/lab/forward"
	"millwright/devstack/stack"
)

const (
	imageUserID   = 65532 // user ID of Millwright's images
	healthTimeout = 3 * time.Minute
	pollInterval  = 200 * time.Millisecond
)

// testEnvironment has a container engine and a cluster.
type testEnvironment struct {
	engine           *engine.Engine
	stack            *stack.Stack
	repo             string
	kubeconfig       string // flattened kubeconfig of the cluster, readable by imageUserID
	composeVariables []string
}

// newTestEnvironment starts the engine and the cluster, and makes the stand-ins.
func newTestEnvironment(t *testing.T) *testEnvironment {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	h := &testEnvironment{repo: repo}
	programs := []standin.BuildTarget{
		{ModuleFolder: repo, Packages: compiledPackages(t, "Dockerfile")},
		{ModuleFolder: filepath.Join(repo, providerModuleFolder), Packages: compiledPackages(t, "Dockerfile.provider")},
	}
	var compiler standin.GoToolchain
	t.Cleanup(func() {
		if h.stack != nil {
			assert.NoError(t, h.stack.Down(context.Background()))
		}
	})
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() (err error) {
		compiler, err = standin.PrepareGoToolchain(ctx, os.Stderr, programs...)
		return err
	})
	group.Go(func() error { // engine.Start then finds the root folder in the cache
		_, err := engine.RootFolder(ctx, os.Stderr)
		return err
	})
	group.Go(func() (err error) {
		h.stack, err = stack.Up(ctx, stack.Options{
			Dir: t.TempDir(), UseFreePorts: true, EndsWithThisProcess: true, Output: os.Stderr,
			Components: []string{component.ControllerManager, component.Kwok, component.VirtualCloud, component.Bootstrap},
		})
		return err
	})
	require.NoError(t, group.Wait())
	h.writeKubeconfig(t)

	h.engine, err = engine.Start(
		t.Context(),
		t.TempDir(),
		engine.Options{Output: os.Stderr, ReadableFolders: []string{repo, filepath.Dir(h.kubeconfig)}},
	)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.engine.LogTail())
			h.logContainers(t)
		}
		assert.NoError(t, h.engine.Stop(context.Background()))
	})
	for _, url := range []string{h.stack.APIServerURL(), h.stack.VirtualCloudURL()} {
		// The stack listens on this machine's loopback address, so the test forwards the port from the engine's
		// loopback address.
		_, address, _ := strings.Cut(url, "//")
		h.forwardConnections(t, h.listenInEngine(t, address), forward.NewAddressDialer(address))
	}
	h.importStandinImages(t, compiler)
	h.composeVariables = []string{"KUBECONFIG=" + h.kubeconfig, "VIRTUALCLOUD_ADDRESS=" + h.stack.VirtualCloudURL()}
	return h
}

// writeKubeconfig makes the kubeconfig as the head of docker-compose.yml describes.
func (h *testEnvironment) writeKubeconfig(t *testing.T) {
	t.Helper()
	text, err := h.stack.RunKubectl(t.Context(), "config", "view", "--raw", "--minify", "--flatten")
	require.NoError(t, err)
	h.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(h.kubeconfig, text, 0o600))
	require.NoError(t, os.Chown(h.kubeconfig, imageUserID, imageUserID))
}

// importStandinImages makes stand-ins for all images that docker-compose.yml and Millwright's Dockerfiles take from
// registries, under the official names.
func (h *testEnvironment) importStandinImages(t *testing.T, compiler standin.GoToolchain) {
	t.Helper()
	image := map[string]string{}
	for name, s := range h.composeConfig(t).Services {
		image[name] = s.Image
	}
	golang := regexp.MustCompile(`golang:\S+`).FindString(readDockerfile(t, "Dockerfile"))
	ctx := t.Context()
	require.NoError(t, standin.ImportGolangImage(ctx, h.engine, golang, compiler, os.Stderr))
	require.NoError(t, standin.ImportPostgresImage(ctx, h.engine, image["postgres"], os.Stderr))
	require.NoError(t, standin.ImportTemporalImages(ctx, h.engine, h.repo, standin.TemporalImageNames{
		Server: image["temporal"], AdminTools: image["schema"], UI: image["ui"],
	}, os.Stderr))
}

func (h *testEnvironment) listenInEngine(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := h.engine.Listen(address)
	require.NoError(t, err)
	return listener
}

// forwardConnections forwards connections until the test ends.
func (h *testEnvironment) forwardConnections(t *testing.T, from net.Listener, to forward.Dialer) {
	t.Helper()
	go func() { _ = forward.Serve(t.Context(), from, to) }()
}

// runCompose runs `docker compose` with docker-compose.yml and the tests' override, and requires that the command
// succeeds.
func (h *testEnvironment) runCompose(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := h.tryCompose(t, append([]string{"KUBECONFIG=/nobody/opens/this"}, h.composeVariables...), arguments...)
	require.NoError(t, err, out)
	return out
}

// tryCompose is like runCompose, with other environment variables. The command may fail.
func (h *testEnvironment) tryCompose(t *testing.T, variables []string, arguments ...string) (string, error) {
	t.Helper()
	files := []string{"compose", "--project-directory", h.repo, "--file", filepath.Join(h.repo, "docker-compose.yml")}
	files = append(files, "--file", filepath.Join(h.repo, "devstack/lab/test/compose/override.yml"))
	out, err := h.engine.RunProgram(t.Context(), variables, nil, "docker", append(files, arguments...)...)
	return string(out), err
}

// service has the fields of a Compose service that the tests read.
type service struct {
	Image       string
	Build       *struct{ Dockerfile string }
	Healthcheck *struct{ Test []string }
}

// composeConfig returns the compose file as `docker compose config` prints it.
func (h *testEnvironment) composeConfig(t *testing.T) (file struct{ Services map[string]service }) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(h.runCompose(t, "config", "--format", "json")), &file))
	return file
}

// container has the fields of `docker compose ps` that the tests read.
type container struct {
	ID, Service, State, Health string
	ExitCode                   int
}

func (c container) String() string {
	return fmt.Sprintf("%s is %s %s (%d)", c.Service, c.State, c.Health, c.ExitCode)
}

// listContainers returns all containers by service.
func (h *testEnvironment) listContainers(t *testing.T) map[string]container {
	t.Helper()
	found := map[string]container{}
	for line := range strings.Lines(h.runCompose(t, "ps", "--all", "--no-trunc", "--format", "json")) {
		var c container
		require.NoError(t, json.Unmarshal([]byte(line), &c), line)
		found[c.Service] = c
	}
	return found
}

// logContainers logs the last 30 log lines of each container.
func (h *testEnvironment) logContainers(t *testing.T) {
	t.Helper()
	ctx := context.Background() // the context of a failed test is canceled
	ids, err := h.engine.RunDocker(ctx, nil, "ps", "--all", "--format", "{{.Names}}")
	t.Log("containers:", string(ids), err)
	for name := range strings.FieldsSeq(string(ids)) {
		logs, err := h.engine.RunProgram(ctx, nil, nil, "busybox", "sh", "-c", "docker logs --tail 30 "+name+" 2>&1")
		t.Logf("--- end of the log of %s (%v)\n%s", name, err, logs)
	}
}

// runDocker runs the docker command, requires that it succeeds, and returns the standard output.
func (h *testEnvironment) runDocker(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := h.engine.RunDocker(t.Context(), nil, arguments...)
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// runMillwright runs Millwright's command line on this machine, with the cluster's kubeconfig and the Temporal server
// in the engine.
func (h *testEnvironment) runMillwright(t *testing.T, arguments ...string) string {
	t.Helper()
	paths, err := build.Products(t.Context(), h.repo, os.Stderr, build.StarterFolder)
	require.NoError(t, err)
	temporal, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.forwardConnections(
		t,
		temporal,
		func(ctx context.Context) (net.Conn, error) { return h.engine.Dial(ctx, "127.0.0.1:7233") },
	)
	command := exec.CommandContext(
		t.Context(),
		paths[build.StarterFolder],
		append(arguments, "--kubeconfig", h.kubeconfig)...)
	command.Dir = h.repo
	command.Env = append(os.Environ(), "TEMPORAL_CONFIG_FILE="+os.DevNull, "TEMPORAL_ADDRESS="+temporal.Addr().String())
	out, err := command.CombinedOutput()
	t.Logf("millwright %s\n%s", strings.Join(arguments, " "), out)
	require.NoError(t, err)
	return string(out)
}

func readDockerfile(t *testing.T, name string) string {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(repo, "deploy", "image", name))
	require.NoError(t, err)
	return string(text)
}

// compiledPackages returns the packages that a Dockerfile compiles.
func compiledPackages(t *testing.T, name string) []string {
	t.Helper()
	line := regexp.MustCompile(`go build .* -o \S+ (.*)`).FindStringSubmatch(readDockerfile(t, name))
	require.NotNil(t, line)
	return strings.Fields(line[1])
}

// newEngineLeftoverFinder calls enginetest.NewLeftoverFinder and requires that the returned function finds the running
// engine.
func (h *testEnvironment) newEngineLeftoverFinder(t *testing.T) func() []string {
	t.Helper()
	traces := enginetest.NewLeftoverFinder(t, h.engine)
	require.NotEmpty(t, traces(), "the test sees what exists of an engine")
	return traces
}
