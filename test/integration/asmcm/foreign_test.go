//go:build integration

package asmcm

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/observe/cache"
	"millwright/test/integration/rig"
)

// excludedNamespaceLabel is a namespace label; worker and bridge ignore namespaces that have it.
const excludedNamespaceLabel = "no-longer-millwrights"

// renewLeaseUntilStopped creates a Lease and renews the Lease until the returned function is called.
func renewLeaseUntilStopped(t *testing.T, namespace string, lease *coordinationv1.Lease) (stop func()) {
	t.Helper()
	leases := testRig.Kube.CoordinationV1().Leases(namespace)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("pod-1"), new(int32(15))
	lease.Spec.RenewTime = new(metav1.NowMicro())
	lease, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				stopped <- nil
				return
			case <-time.After(2 * time.Second):
				lease.Spec.RenewTime = new(metav1.NowMicro())
				renewed, err := leases.Update(context.WithoutCancel(ctx), lease, metav1.UpdateOptions{})
				if err != nil {
					stopped <- err
					return
				}
				lease = renewed
			}
		}
	}()
	return func() {
		cancel()
		require.NoError(t, <-stopped)
	}
}

// awaitAnotherControllerEvent waits for the event AnotherController, which names the controller that works in a
// namespace.
func awaitAnotherControllerEvent(t *testing.T, namespace string) {
	t.Helper()
	rig.Eventually(t, "the deployment says who is at work", func() (bool, any) {
		events, err := testRig.Kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{
			FieldSelector: "reason=" + vocabulary.ReasonAnotherController + ",involvedObject.name=" + namespace,
		})
		return err == nil && len(events.Items) > 0, err
	})
}

// Another controller takes over a namespace: machine-controller-manager starts there, an older installation of
// Millwright starts there, or the label of the namespace changes. Millwright stops work in the namespace, reports the
// reason on the object, and continues when the other controller has stopped.
func TestNamespaceOfAnotherControllerIsLeftAlone(t *testing.T) {
	for name, begins := range map[string]func(t *testing.T, namespace string) (end func()){
		"mcm-at-work": func(t *testing.T, namespace string) func() {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: cache.MCMLeaseNames()[0]}}
			defer awaitAnotherControllerEvent(t, namespace)
			return renewLeaseUntilStopped(t, namespace, lease)
		},
		"of-an-older-installation": func(t *testing.T, namespace string) func() {
			testRig.CreateNamespace(t, "installation", "")
			stop := renewLeaseUntilStopped(t, "installation", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Name: v1alpha1.LeaseWorkers,
				Annotations: map[string]string{
					v1alpha1.AnnotationInstallation: "older", v1alpha1.AnnotationScope: fmt.Sprintf(`{"namespaces":[%q]}`, namespace),
				},
			}})
			defer awaitAnotherControllerEvent(t, namespace)
			time.Sleep(1100 * time.Millisecond) // creation timestamps have whole seconds
			// the workers of this stack create their Lease again, so that it is newer than the Lease of the older
			// installation
			require.NoError(t, testRig.Kube.CoordinationV1().Leases(metav1.NamespaceDefault).
				Delete(t.Context(), v1alpha1.LeaseWorkers, metav1.DeleteOptions{}))
			return func() { // an installation that is down keeps its namespaces until its Lease is deleted
				stop()
				require.NoError(t, testRig.Kube.CoordinationV1().Leases("installation").
					Delete(t.Context(), v1alpha1.LeaseWorkers, metav1.DeleteOptions{}))
			}
		},
		"labelled": func(t *testing.T, namespace string) func() {
			label := func(value string) {
				_, err := testRig.Kube.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, excludedNamespaceLabel, value), metav1.PatchOptions{})
				require.NoError(t, err)
			}
			label(`"true"`)
			return func() { label("null") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := name + "-not-here"
			testRig.CreateNamespace(t, name, "")
			testRig.CreateNamespace(t, own, "")
			p, other := testRig.CreatePool(t, name, name, 2), testRig.CreatePool(t, own, own, 1)
			p.AwaitRunningMachines(t, 2)
			other.AwaitRunningMachines(t, 1)

			end := begins(t, name)
			rig.Eventually(t, "no run is open", func() (bool, any) {
				open := testRig.CountOpenRuns(t, name)
				return len(open) == 0, open
			})
			since := time.Now()
			p.Scale(t, 3)
			other.Scale(t, 2)
			other.AwaitRunningMachines(t, 2)
			machine := other.Machines(t)[0].Name
			require.NoError(
				t,
				testRig.MachineClient.MachineV1alpha1().Machines(own).Delete(t.Context(), machine, metav1.DeleteOptions{}),
			)
			rig.Eventually(t, "the machine of the other namespace is gone", func() (bool, any) {
				for _, m := range other.Machines(t) {
					if m.Name == machine {
						return false, m
					}
				}
				return true, nil
			})
			assert.Len(t, p.Machines(t), 2)
			assert.Empty(t, testRig.AuditedRequests(t, func(a rig.AuditedRequest) bool {
				return a.ObjectRef.Namespace == name && a.ObjectRef.Resource != "events" &&
					a.RequestReceivedTimestamp.After(since) &&
					a.User.Username == component.WorkerIdentity &&
					slices.Contains([]string{"create", "update", "patch", "delete"}, a.Verb)
			}))

			end()
			p.AwaitRunningMachines(t, 3)
		})
	}
}
