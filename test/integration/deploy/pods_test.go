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

// testPods tests the command lines, the probes and the resources, which the API server does not validate. testPods also
// tests that the termination grace period is long enough for a rolling update.
func testPods(t *testing.T, manifests []byte) {
	settings := map[string]string{}
	for _, document := range splitDocuments(t, manifests) {
		if kind, _ := kindAndKey(t, document); kind == "ConfigMap" {
			settings = decodeYAML[corev1.ConfigMap](t, document).Data
		}
	}
	for _, document := range splitDocuments(t, manifests) {
		switch kind, key := kindAndKey(t, document); kind {
		case "Deployment":
			pod := decodeYAML[appsv1.Deployment](t, document).Spec.Template.Spec
			container := testContainer(t, key, pod, settings)
			assert.NotNil(t, container.LivenessProbe, key)
			assert.NotNil(t, container.ReadinessProbe, key)
			if container.Command[0] == "/worker" || container.Command[0] == "/provider" {
				require.NotNil(t, pod.TerminationGracePeriodSeconds, key)
				assert.Greater(t, *pod.TerminationGracePeriodSeconds, int64(30), "%s: activities under way get 30 s", key)
			}
		case "Job":
			testContainer(t, key, decodeYAML[batchv1.Job](t, document).Spec.Template.Spec, settings)
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

// testCommand requires that the image contains the command, and that the command accepts its flags.
func testCommand(t *testing.T, where string, command []string) {
	t.Helper()
	program, isOurs := strings.CutPrefix(command[0], "/")
	require.True(t, isOurs && buildImagePrograms(t)[program] != "", "%s: the image has no %s", where, command[0])
	unknown, err := programs.UnknownFlags(t.Context(), buildImagePrograms(t)[program], command[1:])
	require.NoError(t, err)
	assert.Empty(t, unknown, "%s: %s does not know them", where, program)
}

// buildImagePrograms builds the programs that commands of the image name, and returns their paths by name.
func buildImagePrograms(t *testing.T) map[string]string {
	t.Helper()
	paths, err := buildPrograms()
	require.NoError(t, err)
	named := map[string]string{}
	for folder, path := range paths {
		named[filepath.Base(folder)] = path
	}
	named["provider"], err = buildIncusProvider()
	require.NoError(t, err)
	return named
}

// buildIncusProvider builds the program /provider of the image of provider incus. The programs of the other providers
// have the same flags, so testing one provider is enough.
var buildIncusProvider = sync.OnceValues(func() (string, error) {
	root, err := build.FindRepo("")
	if err != nil {
		return "", err
	}
	return build.NestedBinary(context.Background(), root, "provider/incus", "worker", "provider-incus", io.Discard)
})

var buildPrograms = sync.OnceValues(func() (map[string]string, error) {
	root, err := build.FindRepo("")
	if err != nil {
		return nil, err
	}
	return build.Products(
		context.Background(),
		root,
		io.Discard,
		build.WorkerFolder,
		build.BridgeFolder,
		build.StarterFolder,
	)
})
