package parts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"millwright/devstack/component"
)

// scrapeInterval is the scrape and evaluation interval. The interval is short, so that a rate over one minute has
// enough samples soon after the start.
const scrapeInterval = "5s"

func prometheusConfigPath(l component.StackFolder) string { return l.Path("config", "prometheus.yaml") }

func alertmanagerConfigPath(l component.StackFolder) string {
	return l.Path("config", "alertmanager.yaml")
}

// addObserverSettings adds the files and flags of Prometheus and Alertmanager to a plan.
func addObserverSettings(plan *component.Plan) error {
	l := plan.StackFolder()
	for _, folder := range []string{"config", Prometheus, Alertmanager} {
		if err := os.MkdirAll(l.Path(folder), 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	prependFlags(plan, Alertmanager,
		"--config.file="+alertmanagerConfigPath(l),
		"--storage.path="+l.Path(Alertmanager),
		"--web.listen-address="+component.Address(plan.Ports[Alertmanager]),
		"--cluster.listen-address=", // an empty address disables the Alertmanager cluster and its port
		"--log.level=warn",
	)
	prependFlags(plan, Prometheus,
		"--config.file="+prometheusConfigPath(l),
		"--storage.tsdb.path="+l.Path(Prometheus),
		"--web.listen-address="+component.Address(plan.Ports[Prometheus]),
		"--log.level=warn",
	)
	return writeObserverConfigs(*plan)
}

// componentsWithMetrics returns the chosen components that serve Millwright's metrics.
func componentsWithMetrics(p component.Plan) []string {
	ours := []string{
		component.Worker,
		component.Bridge,
		component.ProviderWorker,
		component.SecondBridge,
		component.SecondWorker,
		IncusWorker,
	}
	return slices.DeleteFunc(ours, func(name string) bool { return !slices.Contains(p.Components, name) })
}

// writeObserverConfigs writes the configurations of Prometheus and Alertmanager. Alertmanager shows alerts and notifies
// nobody.
func writeObserverConfigs(p component.Plan) error {
	jobs := []any{}
	for _, name := range componentsWithMetrics(p) {
		jobs = append(jobs, map[string]any{
			"job_name": name, "static_configs": []any{map[string]any{"targets": []string{component.Address(p.Ports[name])}}},
		})
	}
	configs := map[string]any{
		prometheusConfigPath(p.StackFolder()): map[string]any{
			"global":         map[string]any{"scrape_interval": scrapeInterval, "evaluation_interval": scrapeInterval},
			"rule_files":     []string{filepath.Join(p.Repo, "deploy", "alerts", "rules.yaml")},
			"scrape_configs": jobs,
			"alerting": map[string]any{"alertmanagers": []any{
				map[string]any{
					"static_configs": []any{map[string]any{"targets": []string{component.Address(p.Ports[Alertmanager])}}},
				},
			}},
		},
		alertmanagerConfigPath(p.StackFolder()): map[string]any{
			"route":     map[string]any{"receiver": "nobody", "group_by": []string{"alertname"}},
			"receivers": []any{map[string]any{"name": "nobody"}},
		},
	}
	for path, config := range configs {
		text, err := yaml.Marshal(config)
		if err != nil {
			return fmt.Errorf("make configuration %s: %w", path, err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}
