package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func TestPreserveMachineWithoutNode(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*v1alpha1.Machine{
		"missing":         activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now")),
		"not yet known":   activitiestest.NewMachine("m", withPreserveAnnotation("now")),
		"missing, Failed": activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("when-failed")),
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m)
			preserveMachine(w, readInputAfterPreservationStart(m, 0))
			assert.Equal(t, []string{"update machines/status"}, w.MutatingRequests())
			assert.Equal(t, []string{"Normal Preserved " + preservedMachineMessage}, w.TakeNewEvents())
			preserveMachine(w, readInputAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout))
			assert.Equal(t, []string{"patch machines", "update machines/status"}, w.MutatingRequests())
			assert.Equal(
				t,
				[]string{"Normal PreservationStopped " + preservationStoppedPrefix + "its time is over."},
				w.TakeNewEvents(),
			)
		})
	}
	t.Run("because there is no target", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, withPreserveAnnotation("now"))
		w := activitiestest.NewWorld(t, m)
		var err error
		w.Cluster, err = cache.NewCluster(w.MachineClient, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Cluster.Start(t.Context()))
		_, err = activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readInputAfterPreservationStart(m, 0),
		)
		require.NoError(t, err)
		assert.Equal(t, &activitiestest.PreservationEnd, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
	})
}

func TestPreserveMachineSkipsMachinesItMustNotPreserve(t *testing.T) {
	t.Parallel()
	asking := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
	leaving := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		setFailedLongAgo,
		withPreserveAnnotation("now"),
		activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
	)
	calm := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("false"))
	for name, row := range map[string]struct {
		in      kube.ReadInput
		objects []runtime.Object
	}{
		"the machine is gone":                       {readInputAfterPreservationStart(asking, 0), []runtime.Object{activitiestest.NewNode()}},
		"another machine has its name":              {kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(asking)}, []runtime.Object{asking, activitiestest.NewNode()}},
		"the machine is being deleted":              {readInputAfterPreservationStart(leaving, 0), []runtime.Object{leaving, activitiestest.NewNode()}},
		"the machine is being deleted, read live":   {activitiestest.NewLiveReadInput(leaving), []runtime.Object{leaving, activitiestest.NewNode()}},
		"another machine names the node as its own": {readInputAfterPreservationStart(asking, 0), []runtime.Object{asking, activitiestest.NewMachine("other", activitiestest.WithNode), activitiestest.NewNode()}},
		"the node's value is not known":             {readInputAfterPreservationStart(asking, 0), []runtime.Object{asking, activitiestest.NewNode(withNodePreserveAnnotation("forever"))}},
		"it is refused":                             {readInputAfterPreservationStart(calm, 0), []runtime.Object{calm, activitiestest.NewNode()}},
		"the marks for the autoscaler are a rollout's": {readInputAfterPreservationStart(calm, 0), []runtime.Object{calm, activitiestest.NewNode(func(n *corev1.Node) {
			n.Annotations = map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true"}
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, row.objects...)
			preserveMachine(w, row.in)
			assert.Empty(t, w.MutatingRequests())
			assert.Empty(t, w.TakeNewEvents())
		})
	}
}

func TestPreserveExpiryTimeCountsFromNow(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, withPreserveAnnotation("now"))
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
	before := time.Now()
	preserveMachine(w, activitiestest.NewReadInput(m))
	expiry := w.Machine("m").Status.CurrentStatus.PreserveExpiryTime
	require.NotNil(t, expiry)
	assert.False(t, expiry.Time.Before(before.Add(v1alpha1.DefaultPreserveTimeout)), "the whole timeout")
	assert.True(t, expiry.Time.Before(before.Add(v1alpha1.DefaultPreserveTimeout+time.Minute)))
}
