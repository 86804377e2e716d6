// Package containers checks docker-compose.yml and the Dockerfiles of deploy/image without a container engine. The
// libraries of Compose and BuildKit parse the files, and each name in the files must exist. devstack/lab/test/compose
// runs the files with a container engine.
package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/contrib/envconfig"

	"millwright/devstack/build"
	"millwright/test/programs"
)

// unusedKubeconfigPath is a path that no test opens.
const unusedKubeconfigPath = "/home/somebody/kubeconfig"

func repoRoot(t *testing.T) string {
	t.Helper()
	root, err := build.FindRepo("")
	require.NoError(t, err)
	return root
}

// readComposeFile returns the text of docker-compose.yml.
func readComposeFile(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repoRoot(t), "docker-compose.yml"))
	require.NoError(t, err)
	return string(content)
}

// parseComposeFile parses a compose file as Compose does: with the schema, and with the variables' default values.
func parseComposeFile(t *testing.T, text string, environment types.Mapping) (*types.Project, error) {
	t.Helper()
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  repoRoot(t),
		ConfigFiles: []types.ConfigFile{{Filename: "docker-compose.yml", Content: []byte(text)}},
		Environment: environment,
	}, func(o *loader.Options) { o.SetProjectName("millwright", true) })
}

// TestComposeFile checks the services of docker-compose.yml: images, ports, health checks, volumes, flags and
// variables.
func TestComposeFile(t *testing.T) {
	file, err := parseComposeFile(t, readComposeFile(t), types.Mapping{"KUBECONFIG": unusedKubeconfigPath})
	require.NoError(t, err)
	for _, name := range []string{"postgres", "schema", "temporal", "bootstrap", "ui", "worker", "bridge"} {
		require.Contains(t, file.Services, name)
	}
	ours := readKnownNames(t)
	for name, s := range file.Services {
		t.Run(name, func(t *testing.T) {
			testImageName(t, s.Image)
			testLoopbackPorts(t, s)
			testHealthCheck(t, file, s)
			for _, volume := range s.Volumes {
				testVolume(t, file, volume)
			}
			assert.Empty(t, ours.findServiceFaults(t, s))
		})
	}
	t.Run("Temporal is that of the local stack", func(t *testing.T) {
		goMod, err := os.ReadFile(filepath.Join(repoRoot(t), "devstack/temporal/go.mod"))
		require.NoError(t, err)
		for module, services := range map[string][]string{
			"go.temporal.io/server":              {"temporal", "schema"},
			"github.com/temporalio/ui-server/v2": {"ui"},
		} {
			found := regexp.MustCompile(regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(goMod)
			require.NotNil(t, found, module)
			for _, name := range services {
				_, tag, _ := strings.Cut(file.Services[name].Image, ":")
				assert.Equal(t, string(found[1]), tag, name)
			}
		}
	})
	t.Run("its head names the variables", func(t *testing.T) { assert.Empty(t, findVariableFaults(readComposeFile(t))) })
	t.Run("no cluster was named", func(t *testing.T) {
		_, err := parseComposeFile(t, readComposeFile(t), nil)
		assert.ErrorContains(t, err, "set KUBECONFIG")
	})
}

// testImageName requires that an image name has a version, and is not Temporal's deprecated auto-setup image.
func testImageName(t *testing.T, image string) {
	name, tag, _ := strings.Cut(image, ":")
	assert.NotEmpty(t, tag, image)
	assert.NotEqual(t, "latest", tag, image)
	assert.NotContains(t, name, "auto-setup")
}

// testLoopbackPorts requires that a service listens only on 127.0.0.1.
func testLoopbackPorts(t *testing.T, s types.ServiceConfig) {
	for _, port := range s.Ports {
		assert.Equal(t, "127.0.0.1", port.HostIP, "%+v", port)
		assert.Regexp(t, `^\d+$`, port.Published)
	}
	if s.NetworkMode == "host" {
		assert.Regexp(t, `--metrics-address=127\.0\.0\.1:\d+`, strings.Join(s.Command, " "))
	}
}

// testHealthCheck requires that a long-running service has a health check, and that another service waits for each job.
func testHealthCheck(t *testing.T, file *types.Project, s types.ServiceConfig) {
	if s.HealthCheck != nil {
		require.GreaterOrEqual(t, len(s.HealthCheck.Test), 2)
		assert.Equal(t, "CMD", s.HealthCheck.Test[0], "there may be no shell")
		assert.NotEqual(t, "curl", s.HealthCheck.Test[1], "Temporal's images have none")
		return
	}
	assert.NotEqual(t, types.RestartPolicyUnlessStopped, s.Restart, "no health check")
	waited := false
	for _, other := range file.Services {
		waited = waited || other.DependsOn[s.Name].Condition == types.ServiceConditionCompletedSuccessfully
	}
	assert.True(t, waited, "neither a health check nor a job that somebody waits for")
}

// testVolume requires that a mounted file exists and is mounted read-only.
func testVolume(t *testing.T, file *types.Project, volume types.ServiceVolumeConfig) {
	if volume.Type != types.VolumeTypeBind {
		assert.Contains(t, file.Volumes, volume.Source)
		return
	}
	assert.True(t, volume.ReadOnly, volume.Source)
	if volume.Source != unusedKubeconfigPath {
		assert.FileExists(t, volume.Source)
	}
}

// knownNames has the names that a service of Millwright's image may use.
type knownNames struct {
	dockerfile dockerfile        // the image's Dockerfile
	binaries   map[string]string // local builds of the programs, by path in the image
	variables  []string          // environment variables that the programs read
}

func readKnownNames(t *testing.T) knownNames {
	t.Helper()
	o := knownNames{
		dockerfile: readDockerfile(t, "Dockerfile"),
		binaries:   map[string]string{},
		variables:  readVariables(t),
	}
	built, err := build.Products(
		t.Context(),
		repoRoot(t),
		t.Output(),
		build.WorkerFolder,
		build.BridgeFolder,
		build.StarterFolder,
	)
	require.NoError(t, err)
	for folder, path := range built {
		o.binaries["/"+filepath.Base(folder)] = path
	}
	return o
}

// findServiceFaults returns an error text for each name in a service that does not exist: file, stage, variable,
// program or flag.
func (o knownNames) findServiceFaults(t *testing.T, s types.ServiceConfig) []string {
	t.Helper()
	if s.Build == nil {
		return nil
	}
	var all []string
	fault := func(format string, arguments ...any) { all = append(all, fmt.Sprintf(format, arguments...)) }
	if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
		fault("dockerfile: %s does not exist", s.Build.Dockerfile)
	}
	if s.Build.Target != "" && !o.dockerfile.hasStage(s.Build.Target, len(o.dockerfile.stages)) {
		fault("target: no stage %s", s.Build.Target)
	}
	for name := range s.Build.Args {
		if !slices.Contains(o.dockerfile.argumentNames(), name) {
			fault("args: no ARG %s", name)
		}
	}
	for name := range s.Environment {
		if !slices.Contains(o.variables, name) {
			fault("environment: no program of ours reads %s", name)
		}
	}
	if s.HealthCheck != nil && !slices.Contains(programPaths(o.dockerfile), s.HealthCheck.Test[1]) {
		fault("healthcheck: the image has no %s", s.HealthCheck.Test[1])
	}
	if len(s.Command) == 0 || o.binaries[s.Command[0]] == "" ||
		!slices.Contains(programPaths(o.dockerfile), s.Command[0]) {
		fault("command: the image has no %v", s.Command)
		return all
	}
	unknown, err := programs.UnknownFlags(t.Context(), o.binaries[s.Command[0]], s.Command[1:])
	require.NoError(t, err)
	for _, flag := range unknown {
		fault("command: %s does not know %s", s.Command[0], flag)
	}
	return all
}

// emptyEnvironment is an empty environment. emptyEnvironment stores the name of each variable that is looked up.
type emptyEnvironment struct{ lookedUpNames *[]string }

func (r emptyEnvironment) Environ() []string { return nil }

func (r emptyEnvironment) LookupEnv(name string) (string, bool) {
	*r.lookedUpNames = append(*r.lookedUpNames, name)
	return "", false
}

// readVariables returns the environment variables that Millwright's programs read: the variables of Temporal's
// envconfig, and the variables named in the programs' sources.
func readVariables(t *testing.T) []string {
	t.Helper()
	var all []string
	_, err := envconfig.LoadClientConfigProfile(
		envconfig.LoadClientConfigProfileOptions{EnvLookup: emptyEnvironment{&all}},
	)
	require.NoError(t, err)
	call := regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\("(\w+)"\)`)
	for _, folder := range []string{"worker", "k8sbridge", "starter", "process"} {
		for _, pattern := range []string{"*.go", "*/*.go"} {
			paths, err := filepath.Glob(filepath.Join(repoRoot(t), folder, pattern))
			require.NoError(t, err)
			for _, path := range paths {
				source, err := os.ReadFile(path)
				require.NoError(t, err)
				for _, name := range call.FindAllStringSubmatch(string(source), -1) {
					all = append(all, name[1])
				}
			}
		}
	}
	require.Contains(t, all, "TEMPORAL_ADDRESS")
	require.Contains(t, all, "TEMPORAL_WORKER_BUILD_ID")
	return all
}

// findVariableFaults compares the variables of the compose file with the variables that its head comment explains.
// findVariableFaults returns each unexplained variable and each explained variable that is not used.
func findVariableFaults(text string) []string {
	head, rest, _ := strings.Cut(text, "\nx-millwright:")
	_, head, _ = strings.Cut(head, "# Variables,")
	names := func(pattern, text string) map[string]bool {
		found := map[string]bool{}
		for _, name := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[name[1]] = true
		}
		return found
	}
	explained, used := names(`\b([A-Z]+_?[A-Z]+)\b(?:,| {2,})`, head), names(`\$\{(\w+)`, rest)
	var all []string
	for name := range used {
		if !explained[name] {
			all = append(all, name+" is not explained")
		}
	}
	for name := range explained {
		if !used[name] {
			all = append(all, name+" is not used")
		}
	}
	return all
}

// The check reports each misspelt name in docker-compose.yml.
func TestComposeCheckFindsMisspeltNames(t *testing.T) {
	o, sound := readKnownNames(t), readComposeFile(t)
	for name, row := range map[string]struct{ from, to, want string }{
		"a flag":              {"--virtualcloud-address=", "--virtualcloud-host=", "command: /worker does not know --virtualcloud-host="},
		"a part of a flag":    {"- --cluster-name=", "- --cluster=", "does not know --cluster="},
		"a flag of a command": {"bootstrap, --timeout=2m", "bootstrap, --timeuot=2m", "command: /millwright does not know --timeuot=2m"},
		"a program":           {"- /k8sbridge", "- /k8s-bridge", "command: the image has no [/k8s-bridge"},
		"a health check":      {"[CMD, /probe,", "[CMD, /prob,", "healthcheck: the image has no /prob"},
		"a variable":          {"    TEMPORAL_NAMESPACE: millwright\n  depends_on", "    TEMPORAL_NAMSPACE: millwright\n  depends_on", "environment: no program of ours reads TEMPORAL_NAMSPACE"},
		"a Dockerfile":        {"deploy/image/Dockerfile", "deploy/image/Dockrfile", "dockerfile: deploy/image/Dockrfile does not exist"},
		"a target":            {"    context: .\n", "    context: .\n    target: biuld\n", "target: no stage biuld"},
		"an argument":         {"    context: .\n", "    context: .\n    args: {TARGETOSS: linux}\n", "args: no ARG TARGETOSS"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, sound, row.from)
			file, err := parseComposeFile(
				t,
				strings.ReplaceAll(sound, row.from, row.to),
				types.Mapping{"KUBECONFIG": unusedKubeconfigPath},
			)
			require.NoError(t, err)
			var all []string
			for _, s := range file.Services {
				all = append(all, o.findServiceFaults(t, s)...)
			}
			assert.Contains(t, strings.Join(all, "\n"), row.want)
		})
	}
	for name, row := range map[string][2]string{
		"a key of a service":    {"restart: unless-stopped", "restrat: unless-stopped"},
		"a key of the build":    {"dockerfile:", "dokerfile:"},
		"a service that is not": {"      temporal:\n", "      tempral:\n"},
		"a volume that is not":  {"- postgres:/var", "- postgre:/var"},
		"a condition":           {"service_healthy", "service_helthy"},
		"a duration":            {"interval: 2s", "interval: 2 secnds"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, sound, row[0])
			_, err := parseComposeFile(
				t,
				strings.ReplaceAll(sound, row[0], row[1]),
				types.Mapping{"KUBECONFIG": unusedKubeconfigPath},
			)
			assert.Error(t, err)
		})
	}
	assert.Equal(
		t,
		[]string{"CLUSTERNAME is not explained"},
		findVariableFaults(strings.Replace(sound, "${CLUSTER_NAME", "${CLUSTERNAME", 1)),
	)
	assert.Equal(
		t,
		[]string{"UI_POTR is not used"},
		findVariableFaults(strings.Replace(sound, "UI_PORT,", "UI_PORT, UI_POTR,", 1)),
	)
}
