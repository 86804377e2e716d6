//go:build integration

package asmcm

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/vocabulary"
	"millwright/devstack/component"
	"millwright/observe/cache"
	"millwright/test/integration/rig"
)

// machine-controller-manager begins to work in a namespace, as its Lease says. Millwright stops there, says so on the
// object, and goes on when the other controller has stopped.
func TestANamespaceInWhichAnotherControllerWorksIsLeftAlone(t *testing.T) {
	t.Parallel()
	const name, own = "foreign-at-work", "foreign-not-here"
	r.Namespace(t, name, "")
	r.Namespace(t, own, "")
	p, other := r.Pool(t, name, name, 2), r.Pool(t, own, own, 1)
	p.AwaitRunning(t, 2)
	other.AwaitRunning(t, 1)

	leases := r.Kube.CoordinationV1().Leases(name)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: cache.MCMLeases()[0]},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("pod-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NowMicro()),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(2 * time.Second):
				lease.Spec.RenewTime = new(metav1.NowMicro())
				renewed, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{})
				if err != nil {
					stopped <- err
					return
				}
				lease = renewed
			}
		}
	}()
	rig.Eventually(t, "the deployment says who is at work", func() (bool, any) {
		events, err := r.Kube.CoreV1().Events(name).List(t.Context(), metav1.ListOptions{
			FieldSelector: "reason=" + vocabulary.ReasonAnotherController + ",involvedObject.name=" + name,
		})
		return err == nil && len(events.Items) > 0, err
	})
	rig.Eventually(t, "no run is open", func() (bool, any) {
		open := r.OpenWorkflows(t, name)
		return len(open) == 0, open
	})
	since := time.Now()
	p.Scale(t, 3)
	other.Scale(t, 2)
	other.AwaitRunning(t, 2)
	machine := other.Machines(t)[0].Name
	require.NoError(t, r.Machines.MachineV1alpha1().Machines(own).Delete(t.Context(), machine, metav1.DeleteOptions{}))
	rig.Eventually(t, "the machine of the other namespace is gone", func() (bool, any) {
		for _, m := range other.Machines(t) {
			if m.Name == machine {
				return false, m
			}
		}
		return true, nil
	})
	assert.Len(t, p.Machines(t), 2)
	assert.Empty(t, r.Audit(t, func(a rig.Audited) bool {
		return a.ObjectRef.Namespace == name && a.ObjectRef.Resource != "events" && a.RequestReceivedTimestamp.After(since) &&
			a.User.Username == component.WorkerIdentity && slices.Contains([]string{"create", "update", "patch", "delete"}, a.Verb)
	}))

	close(stop)
	require.NoError(t, <-stopped)
	p.AwaitRunning(t, 3)
}
