package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/k8sbridge/fleet"
)

func setController(o metav1.Object, kind, name string, uid types.UID) {
	o.SetOwnerReferences([]metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: new(true)}})
}

// A machine is created, joins, is drained and deleted. If the class has no node template, the code does not panic,
// and the labels are empty.
func TestDurationsAreMeasuredFromCreationToDeletion(t *testing.T) {
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "d"}}
	s := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "s"}}
	setController(s, "MachineDeployment", "web", "d")
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}}
	m := machineInPhase("m", "", "", timeAt(0), "")
	m.Spec.Class.Name = "small"
	setController(m, "MachineSet", "web-1", "s")
	cluster, client := filledCaches(t, d, s, class, m)
	registry := prometheus.NewRegistry()
	stop, err := fleet.NewDurationMetrics(registry).WatchMachines(cluster)
	require.NoError(t, err)
	of := client.MachineV1alpha1().Machines("shop")
	update := func() {
		m = m.DeepCopy()
		_, err := of.Update(t.Context(), m, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	measured := func(name string, want float64) {
		t.Helper()
		assertEventually(t, func(c *assert.CollectT) {
			got := scrapeMetrics(t, registry)
			for key, v := range got {
				if strings.HasPrefix(key, name+"{") {
					assert.InDelta(c, want, v, 0)
					return
				}
			}
			assert.Fail(c, "no sample", "%s in %v", name, got)
		})
	}

	m.Status.Conditions = []corev1.NodeCondition{
		{Type: v1alpha1.MachineInstanceReady, Status: corev1.ConditionTrue, LastTransitionTime: timeAt(20)},
	}
	m.Status.CurrentStatus.Phase = v1alpha1.MachinePending
	update()
	measured("mcm_machine_create_duration_seconds", 20)

	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: timeAt(90)}
	update()
	measured("mcm_machine_join_duration_seconds", 90)
	assert.Contains(
		t,
		scrapeMetrics(t, registry),
		"mcm_machine_join_duration_seconds{instance_type=,machine_deployment=web,namespace=shop,zone=}",
	)

	m.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown
	update()
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: timeAt(900)}
	update()
	deleted := metav1.NewTime(time.Now().Add(-time.Hour))
	m.DeletionTimestamp = &deleted
	m.Status.Deletion = &v1alpha1.MachineDeletion{
		Stage: v1alpha1.MachineDeletionDrain,
		Since: timeAt(1000),
		Drain: &v1alpha1.MachineDrain{StartedAt: timeAt(1000)},
	}
	update()
	m.Status.Deletion = m.Status.Deletion.DeepCopy()
	m.Status.Deletion.Stage, m.Status.Deletion.Since = v1alpha1.MachineDeletionDetach, timeAt(1007)
	update()
	measured("mcm_machine_drain_duration_seconds", 7)
	measured("mcm_machine_join_duration_seconds", 90)
	measured("millwright_machine_join_duration_seconds", 1) // a recovery is not a join

	require.NoError(t, of.Delete(t.Context(), "m", metav1.DeleteOptions{}))
	measured("millwright_machine_delete_duration_seconds", 1)
	for key, v := range scrapeMetrics(t, registry) {
		if strings.HasPrefix(key, "mcm_machine_delete_duration_seconds") {
			assert.InDelta(t, time.Hour.Seconds(), v, 60)
		}
	}

	require.NoError(
		t,
		client.MachineV1alpha1().MachineDeployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}),
	)
	assertEventually(t, func(c *assert.CollectT) {
		for key := range scrapeMetrics(t, registry) {
			assert.NotContains(c, key, "machine_deployment=web", "nobody asks for it any more")
		}
	})
	stop()
}

func TestMachineThatDoesNotJoinCountsAsFailedJoin(t *testing.T) {
	class := &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "small",
		},
		NodeTemplate: &v1alpha1.NodeTemplate{InstanceType: "m5", Zone: "eu-1a"},
	}
	m := machineInPhase("m", v1alpha1.MachinePending, "", timeAt(0), "")
	m.Spec.Class.Name = "small"
	cluster, client := filledCaches(t, class, m)
	registry := prometheus.NewRegistry()
	stop, err := fleet.NewDurationMetrics(registry).WatchMachines(cluster)
	require.NoError(t, err)
	fail := func(reason string, status corev1.ConditionStatus) {
		m = m.DeepCopy()
		m.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.MachineReplacementDue, Status: status, Reason: reason}}
		_, err := client.MachineV1alpha1().Machines("shop").Update(t.Context(), m, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	const key = "mcm_machine_num_failed_join{instance_type=m5,machine_deployment=,namespace=shop,zone=eu-1a}"
	counts := func(want float64) {
		t.Helper()
		assertEventually(t, func(c *assert.CollectT) { assert.InDelta(c, want, scrapeMetrics(t, registry)[key], 0) })
	}
	fail(v1alpha1.ReasonHealthTimeout, corev1.ConditionTrue)
	fail(v1alpha1.ReasonRecovered, corev1.ConditionFalse)
	fail(v1alpha1.ReasonCreationTimeout, corev1.ConditionTrue)
	counts(1)
	fail(v1alpha1.ReasonCreationTimeout, corev1.ConditionTrue)
	fail(v1alpha1.ReasonRecovered, corev1.ConditionFalse)
	fail(v1alpha1.ReasonCreationTimeout, corev1.ConditionTrue)
	counts(2)
	stop()
	other := prometheus.NewRegistry()
	_, err = fleet.NewDurationMetrics(other).WatchMachines(cluster)
	require.NoError(t, err)
	fail(v1alpha1.ReasonRecovered, corev1.ConditionFalse)
	fail(v1alpha1.ReasonCreationTimeout, corev1.ConditionTrue)
	assertEventually(t, func(c *assert.CollectT) { assert.InDelta(c, 1, scrapeMetrics(t, other)[key], 0) })
	counts(2) // after stop, no duration is counted
}
