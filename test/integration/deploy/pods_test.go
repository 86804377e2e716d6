//go:build integration

package deploy

import (
	"context"
	"io"
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
	"millwright/test/programs"
)

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
	unknown, err := programs.UnknownFlags(t.Context(), binaries(t)[program], command[1:])
	require.NoError(t, err)
	assert.Empty(t, unknown, "%s: %s does not know them", where, program)
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
	return build.Nested(context.Background(), root, "provider/incus", "worker", "provider-incus", io.Discard)
})

var built = sync.OnceValues(func() (map[string]string, error) {
	root, err := build.FindRepo("")
	if err != nil {
		return nil, err
	}
	return build.Products(context.Background(), root, io.Discard, build.Worker, build.Bridge, build.Starter)
})
