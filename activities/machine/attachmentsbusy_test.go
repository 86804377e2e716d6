package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/activitiestest"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
)

// If the API server is too busy to delete a VolumeAttachment, the deletion is retried, and the node stays until the
// retry succeeds. Without the node, the attachment would block its volume on other nodes for six minutes, or for ever.
func TestDeleteNodeRetriesThrottledAttachmentDeletion(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	removal := machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n", ProviderID: "fake:///n"}
	for name, busy := range map[string]error{
		"429": apierrors.NewTooManyRequests("later", 1),
		"503": apierrors.NewServiceUnavailable("later"),
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(), activitiestest.NewVolumeAttachment("a", "n"))
			activitiestest.FailRequests(w.TargetClient, "delete", "volumeattachments", 1, busy, nil)
			_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteNode, removal)
			require.ErrorContains(t, err, "delete attachment a-on-n of node n")
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
			assert.NotNil(t, w.Node(), "the node stays until its attachments are deleted")
			assert.NotNil(t, w.VolumeAttachment("a", "n"))
			activitiestest.RunActivityTwice[any](w, newActivities(w.Kube).DeleteNode, removal)
			assert.Nil(t, w.VolumeAttachment("a", "n"))
			assert.Nil(t, w.Node())
		})
	}
}
