//go:build integration

package asmcm

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// foreignNamespace is the namespace that worker and bridge leave to another controller.
const foreignNamespace = "foreign"

// While Millwright works in one namespace, it does not change the objects in another namespace: they get no run, no
// finalizer, no status and no event.
func TestObjectsOutsideTheScopeAreNotChanged(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, foreignNamespace, "")
	theirs := testRig.CreatePool(t, foreignNamespace, foreignNamespace, 3)
	lone := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "foreign-lone"}}
	lone.Spec.Class.Kind, lone.Spec.Class.Name = "MachineClass", "small"
	_, err := testRig.MachineClient.MachineV1alpha1().
		Machines(foreignNamespace).
		Create(t.Context(), lone, metav1.CreateOptions{})
	require.NoError(t, err)

	testRig.CreateNamespace(t, "ours", "")
	p := testRig.CreatePool(t, "ours", "ours", 2)
	p.AwaitRunningMachines(t, 2)
	p.Delete(t)
	p.AwaitPoolGone(t)

	require.Empty(t, testRig.CountOpenRuns(t, foreignNamespace))
	require.Empty(t, theirs.Machines(t))
	now, err := testRig.MachineClient.MachineV1alpha1().
		Machines(foreignNamespace).
		Get(t.Context(), lone.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, now.Finalizers)
	require.Empty(t, now.Status)
	require.Empty(t, theirs.ProviderIDs(t))
	require.Empty(t, theirs.Deployment(t).Status)
	require.Empty(t, theirs.Deployment(t).Finalizers)
	written := testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		ours := slices.Contains([]string{component.WorkerIdentity, component.BridgeIdentity}, a.User.Username)
		return ours && a.ObjectRef.Namespace == foreignNamespace && !slices.Contains([]string{"get", "list", "watch"}, a.Verb)
	})
	require.Empty(t, written)
}
