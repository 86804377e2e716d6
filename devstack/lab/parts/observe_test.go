package parts

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/lab/observers"
	"millwright/devstack/lab/observers/observerstest"
)

// planWithObservers returns a plan with Prometheus and Alertmanager, and writes their configuration files.
func planWithObservers(t *testing.T) component.Plan {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	plan := component.Plan{
		Dir:        t.TempDir(),
		Repo:       repo,
		Components: []string{component.Worker, component.SecondBridge, Alertmanager, Prometheus},
		Args:       map[string][]string{},
	}
	plan.Ports, err = component.StandardPorts(nil)
	require.NoError(t, err)
	require.NoError(t, addObserverSettings(&plan))
	return plan
}

func TestPrometheusScrapesTheChosenComponents(t *testing.T) {
	plan := planWithObservers(t)
	text, err := os.ReadFile(prometheusConfigPath(plan.StackFolder()))
	require.NoError(t, err)
	var config struct {
		Rules []string `json:"rule_files"`
		Jobs  []struct {
			Name    string `json:"job_name"`
			Configs []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	targets := map[string]string{}
	for _, job := range config.Jobs {
		targets[job.Name] = job.Configs[0].Targets[0]
	}
	assert.Equal(
		t,
		map[string]string{component.Worker: "127.0.0.1:16490", component.SecondBridge: "127.0.0.1:16493"},
		targets,
	)
	require.Len(t, config.Rules, 1)
	assert.FileExists(t, config.Rules[0])
}

// promtool and amtool accept the written configurations.
func TestPrometheusAndAlertmanagerConfigurationsAreValid(t *testing.T) {
	plan := planWithObservers(t)
	observerstest.RunTool(t, observers.Promtool, "check", "config", prometheusConfigPath(plan.StackFolder()))
	observerstest.RunTool(t, observers.Amtool, "check-config", alertmanagerConfigPath(plan.StackFolder()))
}
