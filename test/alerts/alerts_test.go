// Package alerts_test checks the alerts and dashboards: every metric in a query must exist in a process, and every
// alert must have tests and an explanation. devstack/lab/test/alerts runs promtool, which checks that queries are valid
// and that rules fire.
package alerts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"millwright/test/queries"
)

const repoRoot = "../.."

func readAlerts(t *testing.T) []queries.Alert {
	t.Helper()
	all, err := queries.ReadAlerts(repoRoot)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

func readDashboards(t *testing.T) []queries.Dashboard {
	t.Helper()
	all, err := queries.ReadDashboards(repoRoot)
	require.NoError(t, err)
	return all
}

// readYAML reads a file of YAML or JSON.
func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, path)), into), path)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repoRoot, path))
	require.NoError(t, err)
	return string(content)
}

// Each alert has a test in which the alert fires and a test in which the alert does not fire. The annotation of each
// alert names a section of a page.
func TestEachAlertIsTestedAndExplained(t *testing.T) {
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name   string `json:"alertname"`
				Expect []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	readYAML(t, "deploy/alerts/rules_test.yaml", &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Expect) > 0
			quiet[a.Name] = quiet[a.Name] || len(a.Expect) == 0
		}
	}
	page := readText(t, "docs/alerts.md")
	all := readAlerts(t)
	for _, a := range all {
		assert.True(t, fires[a.Name] && quiet[a.Name], "%s: no test in which it fires, or none in which it does not", a.Name)
		assert.Contains(t, page, "\n## "+a.Name+"\n")
		assert.Equal(t, "docs/alerts.md#"+strings.ToLower(a.Name), a.Annotations["runbook"])
		assert.Contains(t, []string{"critical", "warning"}, a.Labels["severity"], a.Name)
	}
	assert.Equal(t, len(all), strings.Count(page, "\n## "), "the page has sections of alerts that do not exist")
}

func TestDashboardsHaveValidPanels(t *testing.T) {
	var names []string
	for _, d := range readDashboards(t) {
		names = append(names, d.Name)
		assert.Equal(t, "millwright-"+d.Name, d.UID)
		assert.NotEmpty(t, d.Panels, d.Name)
		for _, p := range d.Panels {
			assert.NotEmpty(t, p.Description, "panel %s of %s", p.Title, d.Name)
			assert.NotEmpty(t, p.Targets, "panel %s of %s", p.Title, d.Name)
		}
	}
	assert.Equal(t, []string{"drains", "fleet", "provider", "rollouts", "workers"}, names)
}

// A query with a metric that no process has returns nothing, and an alert on this query never fires.
func TestEveryMetricOfAQueryExists(t *testing.T) {
	known := map[string]bool{}
	for _, found := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(readText(t, "docs/reference/metrics.md"), -1) {
		known[found[1]] = true
	}
	require.Greater(t, len(known), 50)
	names := regexp.MustCompile(`\b(?:millwright|mcm)_\w+`)
	parts := regexp.MustCompile(`_(bucket|count|sum)$`)
	all, err := queries.ReadAllQueries(repoRoot)
	require.NoError(t, err)
	for _, q := range all {
		for _, name := range names.FindAllString(q.Expr, -1) {
			assert.True(
				t,
				known[name] || known[parts.ReplaceAllString(name, "")],
				"%s: no process has the metric %s",
				q.Location,
				name,
			)
		}
	}
}
