// Package queries returns the Prometheus queries in the alerts of deploy/alerts and the dashboards of
// deploy/dashboards. Only tests import the package. The package does not check or execute queries.
package queries

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Alert is an alerting rule of Prometheus.
type Alert struct {
	Name        string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ReadAlerts returns all alerting rules of a clone of the repository.
func ReadAlerts(repo string) ([]Alert, error) {
	text, err := os.ReadFile(filepath.Join(repo, "deploy", "alerts", "rules.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var file struct {
		Groups []struct {
			Rules []Alert `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var all []Alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}

// Dashboard is a dashboard of Grafana.
type Dashboard struct {
	Name   string  `json:"-"` // name of the dashboard's file
	UID    string  `json:"uid"`
	Panels []Panel `json:"panels"`
}

// Panel is one panel of a dashboard.
type Panel struct {
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Targets     []Target `json:"targets"`
}

// Target is one query of a panel.
type Target struct {
	Expr string `json:"expr"`
}

// PrometheusQuery returns the query in a form that Prometheus accepts, with 5m in place of Grafana's variable for the
// rate interval.
func (t Target) PrometheusQuery() string { return strings.ReplaceAll(t.Expr, "$__rate_interval", "5m") }

// ReadDashboards returns all dashboards of a clone of the repository.
func ReadDashboards(repo string) ([]Dashboard, error) {
	paths, err := filepath.Glob(filepath.Join(repo, "deploy", "dashboards", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("find dashboards: %w", err)
	}
	var all []Dashboard
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read dashboard: %w", err)
		}
		d := Dashboard{Name: strings.TrimSuffix(filepath.Base(path), ".json")}
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("read dashboard %s: %w", path, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// Query is one query of an alerting rule or of a panel.
type Query struct{ Location, Expr string }

// ReadAllQueries returns the queries of all rules and dashboards of a clone of the repository.
func ReadAllQueries(repo string) ([]Query, error) {
	alerts, err := ReadAlerts(repo)
	if err != nil {
		return nil, err
	}
	dashboards, err := ReadDashboards(repo)
	if err != nil {
		return nil, err
	}
	var all []Query
	for _, a := range alerts {
		all = append(all, Query{a.Name, a.Expr})
	}
	for _, d := range dashboards {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all = append(all, Query{d.Name + ": " + p.Title, target.PrometheusQuery()})
			}
		}
	}
	return all, nil
}
