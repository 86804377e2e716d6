// Tier: test-all. This package needs Debian's Prometheus.

//go:build integration

// Package observe tests that each query of alerts and dashboards returns a result. A real Prometheus scrapes a real
// stack. In this stack, machines are created, replaced and drained, a PodDisruptionBudget blocks a drain, and one
// instance has no machine.
package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/lab/observers"
	"millwright/devstack/lab/parts"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	"millwright/test/queries"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	_, err := observers.ProgramPath(context.Background(), observers.Prometheus, os.Stderr)
	if err != nil && os.Getenv("CI") != "true" {
		fmt.Fprintln(os.Stderr, "skipped, because Debian's package of Prometheus cannot be had:", err)
		os.Exit(0)
	}
	options, err := parts.Selection{WithObservers: true}.AddToOptions(context.Background(), stack.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// getJSON decodes a JSON response of Prometheus or Alertmanager.
func getJSON(t *testing.T, name, path string, into any) {
	t.Helper()
	response, err := http.Get(testRig.Stack.MetricsURL(name) + path)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.NoError(t, json.NewDecoder(response.Body).Decode(into))
}

// countSeries returns the number of series in Prometheus' answer. countSeries ignores series with the value NaN,
// because a quantile without samples is NaN.
func countSeries(t *testing.T, query string) (n int) {
	t.Helper()
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []struct {
				Value [2]any `json:"value"` // time, and the value as a string
			} `json:"result"`
		} `json:"data"`
	}
	getJSON(t, parts.Prometheus, "/api/v1/query?"+url.Values{"query": {query}}.Encode(), &answer)
	require.Equal(t, "success", answer.Status, "%s: %s", query, answer.Error)
	for _, series := range answer.Data.Result {
		if series.Value[1] != "NaN" {
			n++
		}
	}
	return n
}

func TestEveryDashboardAndAlertQueryReturnsSeries(t *testing.T) {
	require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		b.Quotas, b.AcceptedTokens = map[string]int{"eu-q": 1}, []string{rig.CanaryToken}
	}))

	// A MachineDeployment is rolled, and its nodes are drained.
	testRig.CreateNamespace(t, "rolled", "")
	rolled := testRig.CreatePool(t, "rolled", "rolled", 2, rig.WithNodeLabel)
	rolled.AwaitRunningMachines(t, 2)
	rolled.AwaitLabelledNodes(t, 2)
	rolled.DeployPods(t, "api", 2)
	rolled.Scale(t, 1)
	rolled.AwaitRunningMachines(t, 1)
	rolled.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"second"}}}}}`)

	// The quota allows only one of four machines. The other three machines are replaced after their creation timeout.
	testRig.CreateNamespace(t, "late", `{"region":"eu","zone":"eu-q","instanceType":"small"}`)
	testRig.CreatePool(t, "late", "late", 4, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineCreationTimeout: &metav1.Duration{Duration: 15 * time.Second},
		}
	})

	// A PodDisruptionBudget blocks a drain.
	testRig.CreateNamespace(t, "held", "")
	held := testRig.CreatePool(t, "held", "held", 1, rig.WithNodeLabel)
	held.AwaitRunningMachines(t, 1)
	held.AwaitLabelledNodes(t, 1)
	held.DeployPods(t, "web", 1)
	held.CreateBudget(t, "web", 1)
	held.Scale(t, 0)

	// An instance has no machine.
	testRig.CreateInstanceByHand(t, "held", "orphan")
	sweeps := testRig.CreateSweepSchedule(t, "held", time.Second)
	rig.Eventually(t, "the orphan is collected", func() (bool, any) {
		require.NoError(t, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
		n := testRig.ReadMetric(t, component.Worker, "millwright_orphans_collected_total")
		return n > 0, n
	})

	// Temporal is down for a moment while an object changes.
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Temporal))
	rolled.Scale(t, 2)
	rig.Eventually(t, "a signal is refused", func() (bool, any) {
		n := testRig.ReadMetric(t, component.Bridge, "millwright_bridge_signal_failures_total")
		return n > 0, n
	})
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.Temporal))

	t.Run("Prometheus answers every query", func(t *testing.T) {
		wanted := dashboardAndAlertQueries(t)
		rig.Eventually(t, "answers", func() (bool, any) {
			wanted = slices.DeleteFunc(wanted, func(q string) bool { return countSeries(t, q) > 0 })
			return len(wanted) == 0, wanted
		})
	})
	t.Run("an alert reaches Alertmanager", func(t *testing.T) {
		rig.Eventually(t, "the alert on machines that do not join", func() (bool, any) {
			var alerts []alert
			getJSON(t, parts.Alertmanager, "/api/v2/alerts", &alerts)
			return slices.ContainsFunc(alerts, func(a alert) bool {
				return a.Labels["alertname"] == "MillwrightMachinesDoNotJoin" && a.Labels["machine_deployment"] == "late"
			}), alerts
		})
	})
	held.RelaxBudget(t, "web", 0)
}

// dashboardAndAlertQueries returns the queries of all dashboards, without the fallback "or vector(0)", and the metric
// names of all alerts. dashboardAndAlertQueries does not return the comparisons of the alerts, because a comparison has
// no result while nothing is wrong. This stack has no Cluster API objects, one target and one shard, so other
// integration tests read the metrics that need more: capi, targets and shards.
func dashboardAndAlertQueries(t *testing.T) []string {
	t.Helper()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	alerts, err := queries.ReadAlerts(repo)
	require.NoError(t, err)
	dashboards, err := queries.ReadDashboards(repo)
	require.NoError(t, err)
	var all []string
	for _, a := range alerts {
		names := regexp.MustCompile(`\b(?:millwright|mcm|temporal)_\w+`).FindAllString(a.Expr, -1)
		assert.NotEmpty(t, names, a.Name)
		all = append(all, names...)
	}
	for _, d := range dashboards {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all = append(all, strings.ReplaceAll(target.PrometheusQuery(), " or vector(0)", ""))
			}
		}
	}
	elsewhere := regexp.MustCompile(`millwright_cluster_api_|millwright_targets|millwright_unserved_namespaces`)
	all = slices.DeleteFunc(all, elsewhere.MatchString)
	slices.Sort(all)
	return slices.Compact(all)
}

// alert has the labels of one of Alertmanager's alerts.
type alert struct {
	Labels map[string]string `json:"labels"`
}
