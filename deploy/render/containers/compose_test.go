// Package containers checks docker-compose.yml and the Dockerfiles of deploy/image without a container engine: the
// libraries of Compose and BuildKit read them, and what they name exists. devstack/lab/test/compose runs them.
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

// kubeconfig stands for a file that nobody opens here.
const kubeconfig = "/home/somebody/kubeconfig"

func repo(t *testing.T) string {
	t.Helper()
	root, err := build.FindRepo("")
	require.NoError(t, err)
	return root
}

// text is docker-compose.yml.
func text(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo(t), "docker-compose.yml"))
	require.NoError(t, err)
	return string(content)
}

// load reads a compose file as Compose does: by its schema, with the variables at their defaults.
func load(t *testing.T, text string, environment types.Mapping) (*types.Project, error) {
	t.Helper()
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  repo(t),
		ConfigFiles: []types.ConfigFile{{Filename: "docker-compose.yml", Content: []byte(text)}},
		Environment: environment,
	}, func(o *loader.Options) { o.SetProjectName("millwright", true) })
}

// TestCompose checks what docker-compose.yml promises.
func TestCompose(t *testing.T) {
	file, err := load(t, text(t), types.Mapping{"KUBECONFIG": kubeconfig})
	require.NoError(t, err)
	for _, name := range []string{"postgres", "schema", "temporal", "bootstrap", "ui", "worker", "bridge"} {
		require.Contains(t, file.Services, name)
	}
	ours := ourPrograms(t)
	for name, s := range file.Services {
		t.Run(name, func(t *testing.T) {
			testImageName(t, s.Image)
			testReachable(t, s)
			testHealth(t, file, s)
			for _, volume := range s.Volumes {
				testVolume(t, file, volume)
			}
			assert.Empty(t, ours.faults(t, s))
		})
	}
	t.Run("Temporal is that of the local stack", func(t *testing.T) {
		goMod, err := os.ReadFile(filepath.Join(repo(t), "devstack/temporal/go.mod"))
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
	t.Run("its head names the variables", func(t *testing.T) { assert.Empty(t, variableFaults(text(t))) })
	t.Run("no cluster was named", func(t *testing.T) {
		_, err := load(t, text(t), nil)
		assert.ErrorContains(t, err, "set KUBECONFIG")
	})
}

// testImageName: an image says its version, and Temporal's is not the deprecated one.
func testImageName(t *testing.T, image string) {
	name, tag, _ := strings.Cut(image, ":")
	assert.NotEmpty(t, tag, image)
	assert.NotEqual(t, "latest", tag, image)
	assert.NotContains(t, name, "auto-setup")
}

// testReachable: nothing listens on an address that others can reach.
func testReachable(t *testing.T, s types.ServiceConfig) {
	for _, port := range s.Ports {
		assert.Equal(t, "127.0.0.1", port.HostIP, "%+v", port)
		assert.Regexp(t, `^\d+$`, port.Published)
	}
	if s.NetworkMode == "host" {
		assert.Regexp(t, `--metrics-address=127\.0\.0\.1:\d+`, strings.Join(s.Command, " "))
	}
}

// testHealth: a service that runs on says whether it is well, and a job is waited for.
func testHealth(t *testing.T, file *types.Project, s types.ServiceConfig) {
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

// testVolume: what is mounted exists, and files are mounted for reading only.
func testVolume(t *testing.T, file *types.Project, volume types.ServiceVolumeConfig) {
	if volume.Type != types.VolumeTypeBind {
		assert.Contains(t, file.Volumes, volume.Source)
		return
	}
	assert.True(t, volume.ReadOnly, volume.Source)
	if volume.Source != kubeconfig {
		assert.FileExists(t, volume.Source)
	}
}

// ours is what a service of our image may name.
type ours struct {
	file      dockerfile        // of the image
	binaries  map[string]string // our programs on this machine, by their paths in the image
	variables []string          // that our programs read
}

func ourPrograms(t *testing.T) ours {
	t.Helper()
	o := ours{file: readDockerfile(t, "Dockerfile"), binaries: map[string]string{}, variables: readVariables(t)}
	built, err := build.Products(t.Context(), repo(t), t.Output(), build.Worker, build.Bridge, build.Starter)
	require.NoError(t, err)
	for folder, path := range built {
		o.binaries["/"+filepath.Base(folder)] = path
	}
	return o
}

// faults returns what a service of our image names that does not exist.
func (o ours) faults(t *testing.T, s types.ServiceConfig) []string {
	t.Helper()
	if s.Build == nil {
		return nil
	}
	var all []string
	fault := func(format string, arguments ...any) { all = append(all, fmt.Sprintf(format, arguments...)) }
	if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
		fault("dockerfile: %s does not exist", s.Build.Dockerfile)
	}
	if s.Build.Target != "" && !o.file.hasStage(s.Build.Target, len(o.file.stages)) {
		fault("target: no stage %s", s.Build.Target)
	}
	for name := range s.Build.Args {
		if !slices.Contains(o.file.arguments(), name) {
			fault("args: no ARG %s", name)
		}
	}
	for name := range s.Environment {
		if !slices.Contains(o.variables, name) {
			fault("environment: no program of ours reads %s", name)
		}
	}
	if s.HealthCheck != nil && !slices.Contains(programsOf(o.file), s.HealthCheck.Test[1]) {
		fault("healthcheck: the image has no %s", s.HealthCheck.Test[1])
	}
	if len(s.Command) == 0 || o.binaries[s.Command[0]] == "" || !slices.Contains(programsOf(o.file), s.Command[0]) {
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

// recorder is an environment in which nothing is set. It keeps what is looked up.
type recorder struct{ asked *[]string }

func (r recorder) Environ() []string { return nil }

func (r recorder) LookupEnv(name string) (string, bool) {
	*r.asked = append(*r.asked, name)
	return "", false
}

// readVariables returns the environment variables that our programs read: those of a connection to Temporal, and those
// in their sources.
func readVariables(t *testing.T) []string {
	t.Helper()
	var all []string
	_, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{EnvLookup: recorder{&all}})
	require.NoError(t, err)
	call := regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\("(\w+)"\)`)
	for _, folder := range []string{"worker", "k8sbridge", "starter", "process"} {
		for _, pattern := range []string{"*.go", "*/*.go"} {
			paths, err := filepath.Glob(filepath.Join(repo(t), folder, pattern))
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

// variableFaults returns the variables of the file that its head does not explain, and those that it explains and the
// file does not have.
func variableFaults(text string) []string {
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
func TestTheCheckOfTheComposeFileFindsWhatIsMisspelt(t *testing.T) {
	o, sound := ourPrograms(t), text(t)
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
			file, err := load(t, strings.ReplaceAll(sound, row.from, row.to), types.Mapping{"KUBECONFIG": kubeconfig})
			require.NoError(t, err)
			var all []string
			for _, s := range file.Services {
				all = append(all, o.faults(t, s)...)
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
			_, err := load(t, strings.ReplaceAll(sound, row[0], row[1]), types.Mapping{"KUBECONFIG": kubeconfig})
			assert.Error(t, err)
		})
	}
	assert.Equal(
		t,
		[]string{"CLUSTERNAME is not explained"},
		variableFaults(strings.Replace(sound, "${CLUSTER_NAME", "${CLUSTERNAME", 1)),
	)
	assert.Equal(
		t,
		[]string{"UI_POTR is not used"},
		variableFaults(strings.Replace(sound, "UI_PORT,", "UI_PORT, UI_POTR,", 1)),
	)
}
