package set_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// The annotation of a failed machine's node counts even before the machine's workflow has recorded the annotation.
func TestPreserveAnnotationOfANodeCountsBeforeItIsRecorded(t *testing.T) {
	failed, on := observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithNodeLabel("n")
	saying := func(value string) *corev1.Node {
		n := observetest.NewNode()
		if value != "" {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationPreserve, value)
		}
		return n
	}
	for _, row := range []struct {
		name           string
		node           *corev1.Node
		machine        *v1alpha1.Machine
		kept, replaced bool
	}{
		{"when-failed on the node", saying(v1alpha1.ValuePreserveWhenFailed), runningMachine("a", on, failed), true, false},
		{"now on the node", saying(v1alpha1.ValuePreserveNow), runningMachine("a", on, failed), true, false},
		{"false on the node", saying(v1alpha1.ValuePreserveFalse), runningMachine("a", on, failed), false, true},
		{"the node says nothing", saying(""), runningMachine("a", on, failed), false, true},
		{"its annotation was removed", saying(""), runningMachine("a", on, failed, observetest.WithAnnotation(v1alpha1.AnnotationLastAppliedPreserve, v1alpha1.ValuePreserveNow)), false, true},
		{"a word that nobody knows", saying("perhaps"), runningMachine("a", on, failed), false, true},
		{"another node", saying(v1alpha1.ValuePreserveNow), runningMachine("a", observetest.WithNodeLabel("other"), failed), false, true},
		{"no node", saying(v1alpha1.ValuePreserveNow), runningMachine("a", failed), false, true},
		{"it has not failed", saying(v1alpha1.ValuePreserveNow), runningMachine("a", on), false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSetWithFinalizer(1)
			row.machine.OwnerReferences = observetest.ControllerReferences(s, "MachineSet")
			cluster, _ := observetest.StartCaches(t, []runtime.Object{row.node}, s, row.machine, observetest.NewClass("small"))
			live, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
			require.NoError(t, err)
			for _, related := range []set.RelatedObjects{set.ReadRelatedObjects(cluster, s), live} {
				o := set.ScaleFacts(s, related, observetest.Noon, 0)
				assert.Equal(t, row.kept, o.Members[0].MCM.Preserved)
				assert.Equal(t, row.replaced, o.Members[0].MCM.Replaceable)
				assert.Equal(t, row.replaced, len(scale.Decide(o).Delete) == 1)
			}
		})
	}
	t.Run("where nothing is known of nodes", func(t *testing.T) {
		assert.Nil(t, observetest.RelatedObjectsWithMembers().PreservationNode(runningMachine("a", on, failed)))
	})
}
