package explain

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/starter/clitest"
	"millwright/starter/kubecli"
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
