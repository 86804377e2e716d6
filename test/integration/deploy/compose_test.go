//go:build integration

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// service is what the tests read of a service in docker-compose.yml.
type service struct {
	Image       string   `json:"image"`
	Command     []string `json:"command"`
	Ports       []string `json:"ports"`
	Volumes     []string `json:"volumes"`
	Restart     string   `json:"restart"`
	NetworkMode string   `json:"network_mode"`
	Build       *struct {
		Dockerfile string `json:"dockerfile"`
	} `json:"build"`
	Healthcheck *struct {
		Test []string `json:"test"`
	} `json:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `json:"condition"`
	} `json:"depends_on"`
}

type composeFile struct {
	Services map[string]service `json:"services"`
	Volumes  map[string]any     `json:"volumes"`
}

// TestCompose checks by hand what docker-compose.yml promises; that works on every machine. Package compose runs the file.
func TestCompose(t *testing.T) {
	file := readCompose(t)
	for _, name := range []string{"postgres", "schema", "temporal", "bootstrap", "ui", "worker", "bridge"} {
		require.Contains(t, file.Services, name)
	}
	for name, s := range file.Services {
		t.Run(name, func(t *testing.T) {
			testImageName(t, s.Image)
			testReachable(t, s)
			testHealth(t, file, name)
			for dependency := range s.DependsOn {
				assert.Contains(t, file.Services, dependency)
			}
			for _, volume := range s.Volumes {
				testVolume(t, file, volume)
			}
			if s.Build != nil {
				assert.FileExists(t, filepath.Join(repo(t), s.Build.Dockerfile))
				testCommand(t, name, s.Command)
			}
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
}

// testImageName: an image says its version, and Temporal's is not the deprecated one.
func testImageName(t *testing.T, image string) {
	name, tag, _ := strings.Cut(image, ":")
	assert.NotEmpty(t, tag, image)
	assert.NotEqual(t, "latest", tag, image)
	assert.NotContains(t, name, "auto-setup")
}

// testReachable: nothing listens on an address that others can reach.
func testReachable(t *testing.T, s service) {
	for _, port := range s.Ports {
		assert.Regexp(t, `^127\.0\.0\.1:\d+:\d+$`, port)
	}
	if s.NetworkMode == "host" {
		assert.Regexp(t, `--metrics-address=127\.0\.0\.1:\d+`, strings.Join(s.Command, " "))
	}
}

// testHealth: a service that runs on says whether it is well, and a job is waited for.
func testHealth(t *testing.T, file composeFile, name string) {
	s := file.Services[name]
	if s.Healthcheck != nil {
		require.GreaterOrEqual(t, len(s.Healthcheck.Test), 2)
		assert.Equal(t, "CMD", s.Healthcheck.Test[0], "there may be no shell")
		assert.NotEqual(t, "curl", s.Healthcheck.Test[1], "Temporal's images have none")
		return
	}
	assert.NotEqual(t, "unless-stopped", s.Restart, "no health check")
	waited := false
	for _, other := range file.Services {
		waited = waited || other.DependsOn[name].Condition == "service_completed_successfully"
	}
	assert.True(t, waited, "neither a health check nor a job that somebody waits for")
}

// testVolume: what is mounted exists, and files are mounted for reading only.
func testVolume(t *testing.T, file composeFile, volume string) {
	source, rest, _ := strings.Cut(volume, ":")
	switch {
	case strings.HasPrefix(source, "./"):
		assert.FileExists(t, filepath.Join(repo(t), source))
		assert.True(t, strings.HasSuffix(rest, ":ro"), volume)
	case strings.HasPrefix(source, "/"):
		assert.True(t, strings.HasSuffix(rest, ":ro"), volume)
	default:
		assert.Contains(t, file.Volumes, source)
	}
}

// readCompose reads the file as Compose would with the variables at their defaults.
func readCompose(t *testing.T) composeFile {
	text, err := os.ReadFile(filepath.Join(repo(t), "docker-compose.yml"))
	require.NoError(t, err)
	variable := regexp.MustCompile(`\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}`)
	filled := variable.ReplaceAllStringFunc(string(text), func(found string) string {
		parts := variable.FindStringSubmatch(found)
		if parts[1] == "KUBECONFIG" {
			return kubeconfig
		}
		return parts[2]
	})
	var file composeFile
	require.NoError(t, yaml.Unmarshal([]byte(filled), &file))
	return file
}

// kubeconfig stands for a file that nobody opens here.
const kubeconfig = "/home/somebody/kubeconfig"
