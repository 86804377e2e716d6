// Tier: test-all. It needs a container engine.

//go:build integration

// Package compose runs docker-compose.yml and our images for real, in a container engine of its own (package engine):
// images are built by our Dockerfiles, with stand-ins for the images of registries. The cluster is that of a local
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
	imagesUser = 65532 // of our images
	soon       = 3 * time.Minute
	between    = 200 * time.Millisecond
)

// host is a machine with Docker and a cluster.
type host struct {
	engine     *engine.Engine
	stack      *stack.Stack
	repo       string
	kubeconfig string // of the cluster, flat, for imagesUser
	variables  []string
}

// newHost starts engine and cluster, and makes the stand-ins.
func newHost(t *testing.T) *host {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	h := &host{repo: repo}
	programs := []standin.Program{
		{Module: repo, Packages: compiled(t, "Dockerfile")},
		{Module: filepath.Join(repo, provider), Packages: compiled(t, "Dockerfile.provider")},
	}
	var compiler standin.Compiler
	t.Cleanup(func() {
		if h.stack != nil {
			assert.NoError(t, h.stack.Down(context.Background()))
		}
	})
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() (err error) {
		compiler, err = standin.Prepare(ctx, os.Stderr, programs...)
		return err
	})
	group.Go(func() error { // found in the cache from then on
		_, err := engine.Root(ctx, os.Stderr)
		return err
	})
	group.Go(func() (err error) {
		h.stack, err = stack.Up(ctx, stack.Options{
			Dir: t.TempDir(), FreePorts: true, Attached: true, Output: os.Stderr,
			Components: []string{component.ControllerManager, component.Kwok, component.VirtualCloud, component.Bootstrap},
		})
		return err
	})
	require.NoError(t, group.Wait())
	h.writeKubeconfig(t)

	h.engine, err = engine.Start(
		t.Context(),
		t.TempDir(),
		engine.Options{Output: os.Stderr, Shown: []string{repo, filepath.Dir(h.kubeconfig)}},
	)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.engine.Log())
			h.logContainers(t)
		}
		assert.NoError(t, h.engine.Stop(context.Background()))
	})
	for _, url := range []string{h.stack.APIServer(), h.stack.CloudAddress()} {
		// on loopback: here, and so in the engine's namespace
		_, address, _ := strings.Cut(url, "//")
		h.forward(t, h.listen(t, address), forward.To(address))
	}
	h.makeStandins(t, compiler)
	h.variables = []string{"KUBECONFIG=" + h.kubeconfig, "VIRTUALCLOUD_ADDRESS=" + h.stack.CloudAddress()}
	return h
}

// writeKubeconfig does what the head of docker-compose.yml tells people to do.
func (h *host) writeKubeconfig(t *testing.T) {
	t.Helper()
	text, err := h.stack.Kubectl(t.Context(), "config", "view", "--raw", "--minify", "--flatten")
	require.NoError(t, err)
	h.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(h.kubeconfig, text, 0o600))
	require.NoError(t, os.Chown(h.kubeconfig, imagesUser, imagesUser))
}

// makeStandins makes all images that docker-compose.yml and our Dockerfiles take from registries, under their names
// there.
func (h *host) makeStandins(t *testing.T, compiler standin.Compiler) {
	t.Helper()
	image := map[string]string{}
	for name, s := range h.config(t).Services {
		image[name] = s.Image
	}
	golang := regexp.MustCompile(`golang:\S+`).FindString(dockerfile(t, "Dockerfile"))
	ctx := t.Context()
	require.NoError(t, standin.Golang(ctx, h.engine, golang, compiler, os.Stderr))
	require.NoError(t, standin.Postgres(ctx, h.engine, image["postgres"], os.Stderr))
	require.NoError(t, standin.Temporal(ctx, h.engine, h.repo, standin.TemporalNames{
		Server: image["temporal"], AdminTools: image["schema"], UI: image["ui"],
	}, os.Stderr))
}

func (h *host) listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := h.engine.Listen(address)
	require.NoError(t, err)
	return listener
}

// forward passes connections on until the test ends.
func (h *host) forward(t *testing.T, from net.Listener, to forward.Dialer) {
	t.Helper()
	go func() { _ = forward.Serve(t.Context(), from, to) }()
}

// compose runs Compose as people do, with the override of the tests. It has to succeed.
func (h *host) compose(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := h.tryCompose(t, append([]string{"KUBECONFIG=/nobody/opens/this"}, h.variables...), arguments...)
	require.NoError(t, err, out)
	return out
}

// tryCompose is compose with other variables, and may fail.
func (h *host) tryCompose(t *testing.T, variables []string, arguments ...string) (string, error) {
	t.Helper()
	files := []string{"compose", "--project-directory", h.repo, "--file", filepath.Join(h.repo, "docker-compose.yml")}
	files = append(files, "--file", filepath.Join(h.repo, "devstack/lab/test/compose/override.yml"))
	out, err := h.engine.Run(t.Context(), variables, nil, "docker", append(files, arguments...)...)
	return string(out), err
}

// service is what the tests read of a service.
type service struct {
	Image       string
	Build       *struct{ Dockerfile string }
	Healthcheck *struct{ Test []string }
}

// config is the file as Compose reads it.
func (h *host) config(t *testing.T) (file struct{ Services map[string]service }) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(h.compose(t, "config", "--format", "json")), &file))
	return file
}

// container is what Compose tells of a container.
type container struct {
	ID, Service, State, Health string
	ExitCode                   int
}

func (c container) String() string {
	return fmt.Sprintf("%s is %s %s (%d)", c.Service, c.State, c.Health, c.ExitCode)
}

// containers returns those that exist, by service.
func (h *host) containers(t *testing.T) map[string]container {
	t.Helper()
	found := map[string]container{}
	for line := range strings.Lines(h.compose(t, "ps", "--all", "--no-trunc", "--format", "json")) {
		var c container
		require.NoError(t, json.Unmarshal([]byte(line), &c), line)
		found[c.Service] = c
	}
	return found
}

// logContainers logs what the containers that exist have said last.
func (h *host) logContainers(t *testing.T) {
	t.Helper()
	ctx := context.Background() // that of a failed test has ended
	ids, err := h.engine.Docker(ctx, nil, "ps", "--all", "--format", "{{.Names}}")
	t.Log("containers:", string(ids), err)
	for name := range strings.FieldsSeq(string(ids)) {
		logs, err := h.engine.Run(ctx, nil, nil, "busybox", "sh", "-c", "docker logs --tail 30 "+name+" 2>&1")
		t.Logf("--- end of the log of %s (%v)\n%s", name, err, logs)
	}
}

// docker runs the command docker, which has to succeed, and returns what it prints.
func (h *host) docker(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := h.engine.Docker(t.Context(), nil, arguments...)
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// millwright runs our command line on this machine, with the cluster and the containers' Temporal.
func (h *host) millwright(t *testing.T, arguments ...string) string {
	t.Helper()
	paths, err := build.Products(t.Context(), h.repo, os.Stderr, build.Starter)
	require.NoError(t, err)
	temporal, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.forward(t, temporal, func(ctx context.Context) (net.Conn, error) { return h.engine.Dial(ctx, "127.0.0.1:7233") })
	command := exec.CommandContext(t.Context(), paths[build.Starter], append(arguments, "--kubeconfig", h.kubeconfig)...)
	command.Dir = h.repo
	command.Env = append(os.Environ(), "TEMPORAL_CONFIG_FILE="+os.DevNull, "TEMPORAL_ADDRESS="+temporal.Addr().String())
	out, err := command.CombinedOutput()
	t.Logf("millwright %s\n%s", strings.Join(arguments, " "), out)
	require.NoError(t, err)
	return string(out)
}

func dockerfile(t *testing.T, name string) string {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(repo, "deploy", "image", name))
	require.NoError(t, err)
	return string(text)
}

// compiled returns the packages that a Dockerfile compiles.
func compiled(t *testing.T, name string) []string {
	t.Helper()
	line := regexp.MustCompile(`go build .* -o \S+ (.*)`).FindStringSubmatch(dockerfile(t, name))
	require.NotNil(t, line)
	return strings.Fields(line[1])
}

// traces is enginetest.Traces, which must see a running engine.
func (h *host) traces(t *testing.T) func() []string {
	t.Helper()
	traces := enginetest.Traces(t, h.engine)
	require.NotEmpty(t, traces(), "the test sees what exists of an engine")
	return traces
}
