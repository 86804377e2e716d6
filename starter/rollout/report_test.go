package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

// The report has the parts of the output of the command status.
func TestReportHasThePartsOfStatus(t *testing.T) {
	w := clitest.NewFakeBackend(withTwoStepPolicy(halfUpdatedDeploymentObjects())...)
	clients, err := w.Environment().NewClients(kubecli.ClusterAccess{})
	require.NoError(t, err)
	read := func(group, name string) (Report, error) {
		key := types.NamespacedName{Namespace: "shop", Name: name}
		return ReadReport(t.Context(), clients, group, key, false, w.Environment().Now)
	}
	r, err := read("", "web")
	require.NoError(t, err)
	assert.Contains(t, r.State, "shop/web: ")
	assert.Equal(t, "machines", r.Facts[0][0])
	assert.Len(t, r.Sets, 3, "the header and two sets")
	assert.Len(t, r.History, 3)
	assert.NotEmpty(t, r.Commands)
	require.Len(t, r.Steps, 2)
	assert.Equal(t, "1 machine, then approval", r.Steps[0].String())
	assert.True(t, r.Steps[0].IsCurrent)
	assert.False(t, r.Steps[1].IsCurrent || r.Steps[1].IsPassed)
	_, err = read("machine.sapcloud.io", "other")
	assert.ErrorContains(t, err, "shop/other")
}
