package component

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// scrapeEvery is short, so that a rate over a minute has enough samples soon after the start.
const scrapeEvery = "5s"

// URL returns the URL of a component that serves HTTP.
func (p Plan) URL(name string) string { return "http://" + Address(p.Ports[name]) }

func (p Plan) alertmanagerFlags() []string {
	return []string{
		"--config.file=" + p.Layout().alertmanager(),
		"--storage.path=" + p.Layout().Path(Alertmanager),
		"--web.listen-address=" + Address(p.Ports[Alertmanager]),
		"--cluster.listen-address=", // no cluster, and so no port that others reach
		"--log.level=warn",
	}
}

func (p Plan) prometheusFlags() []string {
	return []string{
		"--config.file=" + p.Layout().prometheus(),
		"--storage.tsdb.path=" + p.Layout().Path(Prometheus),
		"--web.listen-address=" + Address(p.Ports[Prometheus]),
		"--log.level=warn",
	}
}

// scraped are the components that serve /metrics of Millwright, if they are chosen.
func (p Plan) scraped() []string {
	ours := []string{Worker, Bridge, ProviderWorker, SecondBridge, SecondWorker, IncusWorker}
	return slices.DeleteFunc(ours, func(name string) bool { return !slices.Contains(p.Components, name) })
}

// writeObservers writes the configurations of Prometheus and Alertmanager. Alerts are shown, and sent to nobody.
func writeObservers(p Plan) error {
	jobs := []any{}
	for _, name := range p.scraped() {
		jobs = append(jobs, map[string]any{
			"job_name": name, "static_configs": []any{map[string]any{"targets": []string{Address(p.Ports[name])}}},
		})
	}
	configs := map[string]any{
		p.Layout().prometheus(): map[string]any{
			"global":         map[string]any{"scrape_interval": scrapeEvery, "evaluation_interval": scrapeEvery},
			"rule_files":     []string{filepath.Join(p.Repo, "deploy", "alerts", "rules.yaml")},
			"scrape_configs": jobs,
			"alerting": map[string]any{"alertmanagers": []any{
				map[string]any{"static_configs": []any{map[string]any{"targets": []string{Address(p.Ports[Alertmanager])}}}},
			}},
		},
		p.Layout().alertmanager(): map[string]any{
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
