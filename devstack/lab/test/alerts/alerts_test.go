// Package alerts_test checks that the alert rules fire when they should, and that every query of alerts and dashboards
// is valid. promtool does the checks, without a running Prometheus.
package alerts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"millwright/devstack/lab/observers"
	"millwright/devstack/lab/observers/observerstest"
	"millwright/test/queries"
)

const repoRoot = "../../../.."

func TestAlertRulesFireAsExpected(t *testing.T) {
	observerstest.RunTool(t, observers.Promtool, "test", "rules", filepath.Join(repoRoot, "deploy/alerts/rules_test.yaml"))
}

func TestEveryDashboardAndAlertQueryIsValid(t *testing.T) {
	type record struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	all, err := queries.ReadAllQueries(repoRoot)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	var records []record
	for _, q := range all {
		records = append(records, record{"checked:" + regexp.MustCompile(`\W+`).ReplaceAllString(q.Location, "_"), q.Expr})
	}
	content, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": records}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	observerstest.RunTool(t, observers.Promtool, "check", "rules", "--lint=none", path)
}
