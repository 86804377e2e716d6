package drain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
)

// The report has the parts of the output of the command explain, also without Temporal.
func TestReportHasThePartsOfExplain(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")), &v1alpha1.Machine{})
	w.Temporal = newTemporalWithOpenDrain(newPendingActivity(struct{ Picture any }{newBlockedOverview()}))
	clients, err := w.Environment().NewClients(kubecli.ClusterAccess{})
	require.NoError(t, err)
	key := types.NamespacedName{Namespace: "shop", Name: "m-1"}
	r, err := ReadReport(t.Context(), clients, w.Temporal, "localhost:7233", key, w.Environment().Now)
	require.NoError(t, err)
	assert.Contains(t, r.Headline, "shop/m-1   node n-1   stage Drain")
	assert.Contains(t, r.Statement, "shop/m-1: 2 pods left: PodDisruptionBudget shop/web allows none")
	assert.Contains(t, r.Commands, "millwright drain force shop/m-1 --reason …")
	assert.Len(t, r.Pods, 2)
	assert.Equal(t, "3 gone, 1 terminating, 1 blocked, 0 waiting for their turn, 2 stay", r.PodCounts)

	r, err = ReadReport(t.Context(), clients, nil, "", key, w.Environment().Now)
	require.NoError(t, err)
	assert.Empty(t, r.Pods)
	assert.Empty(t, r.Note)
	_, err = ReadReport(
		t.Context(),
		clients,
		nil,
		"",
		types.NamespacedName{Namespace: "shop", Name: "x"},
		w.Environment().Now,
	)
	assert.ErrorContains(t, err, "there is no machine shop/x")
}
