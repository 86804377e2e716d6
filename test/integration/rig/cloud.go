//go:build integration

package rig

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	decide "millwright/decide/orphan"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
	"millwright/workflows/orphan"
	"millwright/workflows/run"
)

// CreateInstanceByHand creates an instance in the cloud for a machine that never existed. The instance has the class of
// the namespace. CreateInstanceByHand copies the cluster's name from another instance, so at least one instance must
// exist.
func (r *Rig) CreateInstanceByHand(t *testing.T, namespace, name string) virtual.Instance {
	t.Helper()
	return r.CreateTaggedInstanceByHand(t, namespace, name, "uid-of-"+name)
}

// CreateTaggedInstanceByHand is like CreateInstanceByHand, but sets the instance's UID tag to uid. If uid is empty, the
// instance gets no UID tag, like an instance of another controller.
func (r *Rig) CreateTaggedInstanceByHand(t *testing.T, namespace, name, uid string) virtual.Instance {
	t.Helper()
	all, err := r.Cloud.Instances(t.Context())
	require.NoError(t, err)
	at := slices.IndexFunc(all, func(i admin.Instance) bool { return i.Tags.Cluster != "" })
	require.NotEqual(t, -1, at, "an instance that tells the cluster's name")
	planted, err := r.Cloud.CreateByHand(t.Context(), virtual.CreateRequest{
		Name: name,
		Tags: virtual.Tags{Cluster: all[at].Tags.Cluster, Class: namespace + "/small", MachineName: name, MachineUID: uid},
		Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
	})
	require.NoError(t, err)
	return planted
}

// CreateSweepSchedule creates a paused schedule of orphan sweeps for a namespace's class, in addition to the bridge's
// schedule. A sweep runs only when the test triggers the schedule. A sweep deletes an orphan if no machine has claimed
// it for the duration confirm. CreateSweepSchedule deletes the schedule at the end of the test.
func (r *Rig) CreateSweepSchedule(t *testing.T, namespace string, confirm time.Duration) sdk.ScheduleHandle {
	t.Helper()
	class, err := r.MachineClient.MachineV1alpha1().
		MachineClasses(namespace).
		Get(t.Context(), "small", metav1.GetOptions{})
	require.NoError(t, err)
	id := "orphans-of-a-test/" + namespace
	handle, err := r.Temporal.ScheduleClient().Create(t.Context(), sdk.ScheduleOptions{
		ID:     id,
		Spec:   sdk.ScheduleSpec{Intervals: []sdk.ScheduleIntervalSpec{{Every: 24 * time.Hour}}},
		Paused: true,
		Action: &sdk.ScheduleWorkflowAction{
			ID: id, Workflow: string(run.KindOrphanCollection), TaskQueue: Installation.Shard(0).TaskQueue(run.QueueMachines),
			TypedSearchAttributes: run.StartSearchAttributes(namespace, run.ParentNames{Provider: class.ProviderName()}),
			Args: []any{orphan.Input{
				Class:    kube.Ref{Namespace: namespace, Name: "small", UID: string(class.UID)},
				Provider: class.ProviderName(), Settings: decide.Settings{Confirm: confirm, MinAge: time.Second},
			}},
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = handle.Delete(t.Context()) })
	return handle
}

// MakeCloudFaulty gives the virtual cloud the difficult behaviour that a real cloud may have. The cloud chooses the
// name of a node when the node's instance boots. A node gets its provider ID one second after its registration, and has
// a taint until it has a provider ID. The cloud lists instances in pages of two, and lists a deleted instance for one
// more minute. The cloud's error messages contain the credentials. MakeCloudFaulty changes neither the setting for
// stale reads nor the setting for client tokens.
func MakeCloudFaulty(b *admin.Behaviour) {
	b.ChooseNodeNames, b.NodeInitializationDelay = true, virtual.Duration(time.Second)
	b.PageSize, b.LingerTime, b.QuoteCredentials = 2, virtual.Duration(time.Minute), true
}
