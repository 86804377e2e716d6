//go:build integration

package deploy

import (
	"context"
	"fmt"
	"go/version"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"millwright/devstack/build"
)

// TestImage checks the Dockerfile as far as that goes without a container engine.
func TestImage(t *testing.T) {
	dockerfile, err := os.ReadFile(filepath.Join(repo(t), "deploy/image/Dockerfile"))
	require.NoError(t, err)

	t.Run("its compiler is new enough", func(t *testing.T) {
		goMod, err := os.ReadFile(filepath.Join(repo(t), "go.mod"))
		require.NoError(t, err)
		wanted := regexp.MustCompile(`(?m)^go (\S+)`).FindSubmatch(goMod)
		found := regexp.MustCompile(`golang:(\S+)`).FindSubmatch(dockerfile)
		require.NotNil(t, wanted)
		require.NotNil(t, found)
		assert.GreaterOrEqual(t, version.Compare("go"+string(found[1]), "go"+string(wanted[1])), 0)
	})

	t.Run("its context holds all that is compiled", func(t *testing.T) {
		line := regexp.MustCompile(`go build .* -o /out/ (.*)`).FindSubmatch(dockerfile)
		require.NotNil(t, line)
		folders := strings.Fields(string(line[1]))
		for _, name := range []string{"worker", "k8sbridge", "starter", "probe"} {
			assert.True(t, slices.ContainsFunc(folders, func(f string) bool { return filepath.Base(f) == name }), name)
		}
		compiles(t, buildContext(t, "Dockerfile"), folders...)
	})

	t.Run("the context of a provider's image holds all that is compiled", func(t *testing.T) {
		compiles(t, filepath.Join(buildContext(t, "Dockerfile.provider"), "provider", "incus"), "./worker")
	})
}

// compiles requires that all that packages need is in a folder.
func compiles(t *testing.T, folder string, packages ...string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, packages...)...)
	list.Dir = folder
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	out, err := list.CombinedOutput()
	require.NoError(t, err, string(out))
}

// buildContext copies what the ignore file of a Dockerfile lets through, as a builder would see it.
func buildContext(t *testing.T, dockerfile string) string {
	text, err := os.ReadFile(filepath.Join(repo(t), "deploy/image", dockerfile+".dockerignore"))
	require.NoError(t, err)
	root, to := os.DirFS(repo(t)), t.TempDir()
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir // .git and .devstack: nothing in there can match, and there is much of it
		case !entry.Type().IsRegular() || ignored(string(text), path):
			return nil
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(path)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), content, 0o644)
	})
	require.NoError(t, err)
	return to
}

// ignored follows the rules of .dockerignore: the last pattern that matches the path, or a folder above it, decides.
func ignored(patterns, path string) bool {
	verdict := false
	for pattern := range strings.Lines(patterns) {
		pattern = strings.TrimSpace(pattern)
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		pattern, keep := strings.CutPrefix(pattern, "!")
		expression := strings.NewReplacer(`\*\*/`, `(.*/)?`, `\*\*`, `.*`, `\*`, `[^/]*`).Replace(regexp.QuoteMeta(pattern))
		if regexp.MustCompile(`^` + expression + `(/.*)?$`).MatchString(path) {
			verdict = !keep
		}
	}
	return verdict
}

// testPods checks what the API server does not know: our command lines, and what keeps a rolling update harmless.
func testPods(t *testing.T, manifests []byte) {
	settings := map[string]string{}
	for _, document := range documents(t, manifests) {
		if kind, _ := identify(t, document); kind == "ConfigMap" {
			settings = decode[corev1.ConfigMap](t, document).Data
		}
	}
	for _, document := range documents(t, manifests) {
		switch kind, key := identify(t, document); kind {
		case "Deployment":
			pod := decode[appsv1.Deployment](t, document).Spec.Template.Spec
			container := testContainer(t, key, pod, settings)
			assert.NotNil(t, container.LivenessProbe, key)
			assert.NotNil(t, container.ReadinessProbe, key)
			if container.Command[0] == "/worker" || container.Command[0] == "/provider" {
				require.NotNil(t, pod.TerminationGracePeriodSeconds, key)
				assert.Greater(t, *pod.TerminationGracePeriodSeconds, int64(30), "%s: activities under way get 30 s", key)
			}
		case "Job":
			testContainer(t, key, decode[batchv1.Job](t, document).Spec.Template.Spec, settings)
		}
	}
}

func testContainer(t *testing.T, where string, pod corev1.PodSpec, settings map[string]string) corev1.Container {
	require.Len(t, pod.Containers, 1, where)
	container := pod.Containers[0]
	testCommand(t, where, slices.Concat(container.Command, container.Args))
	assert.NotZero(t, container.Resources.Requests.Cpu().MilliValue(), where)
	assert.NotZero(t, container.Resources.Limits.Memory().Value(), where)
	for _, name := range []string{"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"} {
		assert.NotEmpty(t, settings[name], "%s: %s", where, name)
	}
	for _, used := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(strings.Join(container.Args, " "), -1) {
		_, set := settings[used[1]]
		set = set || slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == used[1] })
		assert.True(t, set, "%s: nobody sets $(%s)", where, used[1])
	}
	return container
}

// testCommand checks that a command of the image exists and knows its flags.
func testCommand(t *testing.T, where string, command []string) {
	t.Helper()
	program, isOurs := strings.CutPrefix(command[0], "/")
	require.True(t, isOurs && binaries(t)[program] != "", "%s: the image has no %s", where, command[0])
	arguments := command[1:]
	flags := slices.IndexFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "-") })
	if flags < 0 {
		flags = len(arguments)
	}
	help := exec.CommandContext(t.Context(), binaries(t)[program], append(slices.Clone(arguments[:flags]), "--help")...)
	usage, err := help.CombinedOutput()
	require.NoError(t, err, string(usage))
	for _, argument := range arguments[flags:] {
		name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		assert.Regexp(t, `(?m)^\s+(-\w, )?--`+regexp.QuoteMeta(name)+`\b`, string(usage), "%s: %s does not know %s", where, program, argument)
	}
}

// binaries are the programs of the image that commands name, built as every developer builds them.
func binaries(t *testing.T) map[string]string {
	t.Helper()
	paths, err := built()
	require.NoError(t, err)
	named := map[string]string{}
	for folder, path := range paths {
		named[filepath.Base(folder)] = path
	}
	named["provider"], err = builtProvider()
	require.NoError(t, err)
	return named
}

// builtProvider is /provider of the image of provider incus. Those of other providers have the same flags.
var builtProvider = sync.OnceValues(func() (string, error) {
	root, err := build.FindRepo("")
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "provider-incus")
	compile := exec.Command("go", "build", "-trimpath", "-o", path, "./worker")
	compile.Dir = filepath.Join(root, "provider", "incus")
	out, err := compile.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the worker of provider incus: %w: %s", err, out)
	}
	return path, nil
})

var built = sync.OnceValues(func() (map[string]string, error) {
	root, err := build.FindRepo("")
	if err != nil {
		return nil, err
	}
	return build.Products(context.Background(), root, io.Discard, build.Worker, build.Bridge, build.Starter)
})
