package explain

import (
	"errors"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"millwright/starter/clitest"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

func TestUICommandPrintsPageAddresses(t *testing.T) {
	const base = "http://127.0.0.1:8233/namespaces/millwright/workflows"
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"what runs":         {nil, base + "?query=ExecutionStatus%3D%22Running%22\n"},
		"what stands still": {[]string{"--blocked"}, base + "?query=ExecutionStatus%3D%22Running%22+AND+Stuck%3Dtrue\n"},
		"a machine: the workflow that its status names": {[]string{"machine/web-b", "-n", "shop"}, base + "/garden%2Fmachine%2Fshop%2Fweb-a%2Fuid-m\n"},
		"a deployment":           {[]string{"web", "-n", "shop"}, base + "/garden%2Fmachinedeployment%2Fshop%2Fweb%2Fuid-x\n"},
		"a machine that is gone": {[]string{"machine/web-z", "-n", "shop"}, base + "?query=MachineNamespace%3D%22shop%22+AND+Machine%3D%22web-z%22\n"},
		"kind and name":          {[]string{"mcd", "web", "-n", "shop"}, base + "/garden%2Fmachinedeployment%2Fshop%2Fweb%2Fuid-x\n"},
		"another UI":             {[]string{"--ui-address", "https://temporal.example.com/ui", "--temporal-namespace", "prod"}, "https://temporal.example.com/ui/namespaces/prod/workflows?query=ExecutionStatus%3D%22Running%22\n"},
		"of an installation":     {[]string{"mcs/web-1", "-n", "shop", "--cluster-name", "field"}, base + "/field%2Fmachineset%2Fshop%2Fweb-1%2Fuid-x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend(newPoolObjects()...)
			out, err := w.Run(t.Context(), UICommand(w.Environment()), row.args...)
			require.NoError(t, err)
			assert.Equal(t, row.says, out)
		})
	}
	for wrong, args := range map[string][]string{
		`--tab "xray" is none of user-metadata, timeline, history`: {"mcd/web", "-n", "shop", "--tab", "xray"},
		"--tab needs an object":         {"--tab", "timeline"},
		`--ui-address "here" is no URL`: {"mcd/web", "-n", "shop", "--ui-address", "here"},
	} {
		w := clitest.NewFakeBackend(newPoolObjects()...)
		_, err := w.Run(t.Context(), UICommand(w.Environment()), args...)
		require.ErrorContains(t, err, wrong)
	}
	w := clitest.NewFakeBackend(newPoolObjects()...)
	nowhere := w.Environment()
	nowhere.ContextNamespace = func(kubecli.ClusterAccess) (string, error) { return "", errors.New("no kubeconfig") }
	out, err := w.Run(t.Context(), UICommand(nowhere), "--blocked")
	require.NoError(t, err, "a list needs no cluster")
	assert.Contains(t, out, base)
	_, err = w.Run(t.Context(), UICommand(nowhere), "mcd/web")
	require.EqualError(t, err, "no kubeconfig")
	_, err = w.Run(t.Context(), UICommand(w.Environment()), "--ui-address", "here")
	require.EqualError(t, err, `--ui-address "here" is no URL`)
}

func TestUICommandLinksToTheTabThatExplains(t *testing.T) {
	const page = "http://127.0.0.1:8233/namespaces/millwright/workflows/garden%2Fmachine%2Fshop%2Fweb-a%2Fuid-m"
	for name, row := range map[string]struct {
		status enumspb.WorkflowExecutionStatus
		args   []string
		err    error
		says   string
		warns  string
	}{
		"open":                     {status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, says: page + "/r-1/user-metadata\n"},
		"closed":                   {status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, says: page + "/r-1/timeline\n"},
		"another tab":              {status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, args: []string{"--tab", "history"}, says: page + "/r-1/history\n"},
		"Temporal does not answer": {err: errors.New("connection  refused"), says: page + "\n", warns: "no tab: Temporal at 127.0.0.1:7233 does not name the run: connection refused\n"},
		"Temporal has no such run": {err: serviceerror.NewNotFound("gone"), says: page + "\n", warns: "no tab: Temporal at 127.0.0.1:7233 does not name the run: gone\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend(newPoolObjects()...)
			w.Temporal = &clitest.FakeTemporal{
				WorkflowID: "garden/machine/shop/web-a/uid-m", RunID: "r-1", Status: row.status, Err: row.err,
			}
			out, err := w.Run(
				t.Context(),
				UICommand(w.Environment()),
				append([]string{"machine/web-b", "-n", "shop"}, row.args...)...)
			require.NoError(t, err)
			assert.Equal(t, row.says, out)
		})
	}
}

func TestExplainPrintsThePageIfTheUIIsKnown(t *testing.T) {
	const page = "https://ui.example.com/namespaces/millwright/workflows/garden%2Fmachine%2Fshop%2Fweb-a%2Fuid-m/r-1/user-metadata"
	run := func(args ...string) string {
		w := clitest.NewFakeBackend(newPoolObjects()...)
		w.Temporal = &clitest.FakeTemporal{
			WorkflowID: "garden/machine/shop/web-a/uid-m", RunID: "r-1", Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		}
		out, err := w.Run(t.Context(), Command(w.Environment()), append([]string{"machine/web-b", "-n", "shop"}, args...)...)
		require.NoError(t, err)
		return out
	}
	assert.NotContains(t, run(), "page: ")
	assert.Contains(t, run("--ui-address", "https://ui.example.com"), "\npage: "+page+"\n")
	assert.Contains(t, run("--ui-address", "https://ui.example.com", "-o", "json"), `"page": "`+page+`"`)
	t.Setenv("TEMPORAL_UI_ADDRESS", "https://ui.example.com")
	assert.Contains(t, run(), "\npage: "+page+"\n")
}

// The script keeps the columns of other namespaces, and names attributes that Millwright sets.
func TestColumnScriptNamesMillwrightsAttributes(t *testing.T) {
	w := clitest.NewFakeBackend()
	out, err := w.Run(t.Context(), UICommand(w.Environment()), "--columns", "--temporal-namespace", "prod")
	require.NoError(t, err)
	assert.Contains(t, out, `("namespace-workflow-table-columns")`)
	assert.Contains(t, out, `"prod":[{label:"Status"},{label:"MachineNamespace"},`)
	known := []string{"Status", "Start", "Workflow ID"} // columns of the UI itself
	for _, a := range run.SearchAttributes() {
		known = append(known, a.Name)
	}
	for _, label := range regexp.MustCompile(`label:"([^"]*)"`).FindAllStringSubmatch(out, -1) {
		assert.Contains(t, known, label[1])
	}
}
