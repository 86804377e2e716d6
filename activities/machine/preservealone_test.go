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
		"missing":         activitiestest.Machine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now")),
		"not yet known":   activitiestest.Machine("m", withPreserveAnnotation("now")),
		"missing, Failed": activitiestest.Machine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("when-failed")),
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m)
			preserveMachine(w, readAfterPreservationStart(m, 0))
			assert.Equal(t, []string{"update machines/status"}, w.WriteRequests())
			assert.Equal(t, []string{"Normal Preserved " + runningSentence}, w.NewEvents())
			preserveMachine(w, readAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout))
			assert.Equal(t, []string{"patch machines", "update machines/status"}, w.WriteRequests())
			assert.Equal(t, []string{"Normal PreservationStopped " + stopSentence + "its time is over."}, w.NewEvents())
		})
	}
	t.Run("because there is no target", func(t *testing.T) {
		m := activitiestest.Machine("m", activitiestest.WithNode, withPreserveAnnotation("now"))
		w := activitiestest.NewWorld(t, m)
		var err error
		w.Cluster, err = cache.NewCluster(w.Machines, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Cluster.Start(t.Context()))
		_, err = activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readAfterPreservationStart(m, 0),
		)
		require.NoError(t, err)
		assert.Equal(t, &activitiestest.PreservationEnd, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
	})
}

func TestPreserveMachineWritesNothing(t *testing.T) {
	t.Parallel()
	asking := activitiestest.Machine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
	leaving := activitiestest.Machine(
		"m",
		activitiestest.WithNode,
		setFailedLongAgo,
		withPreserveAnnotation("now"),
		activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
	)
	calm := activitiestest.Machine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("false"))
	for name, row := range map[string]struct {
		in      kube.ReadInput
		objects []runtime.Object
	}{
		"the machine is gone":                       {readAfterPreservationStart(asking, 0), []runtime.Object{activitiestest.Node()}},
		"another machine has its name":              {kube.ReadInput{Ref: activitiestest.RefOfFormerObject(asking)}, []runtime.Object{asking, activitiestest.Node()}},
		"the machine is being deleted":              {readAfterPreservationStart(leaving, 0), []runtime.Object{leaving, activitiestest.Node()}},
		"the machine is being deleted, read live":   {activitiestest.NewLiveReadInput(leaving), []runtime.Object{leaving, activitiestest.Node()}},
		"another machine names the node as its own": {readAfterPreservationStart(asking, 0), []runtime.Object{asking, activitiestest.Machine("other", activitiestest.WithNode), activitiestest.Node()}},
		"the node's value is not known":             {readAfterPreservationStart(asking, 0), []runtime.Object{asking, activitiestest.Node(withNodePreserveAnnotation("forever"))}},
		"it is refused":                             {readAfterPreservationStart(calm, 0), []runtime.Object{calm, activitiestest.Node()}},
		"the marks for the autoscaler are a rollout's": {readAfterPreservationStart(calm, 0), []runtime.Object{calm, activitiestest.Node(func(n *corev1.Node) {
			n.Annotations = map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true"}
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, row.objects...)
			preserveMachine(w, row.in)
			assert.Empty(t, w.WriteRequests())
			assert.Empty(t, w.NewEvents())
		})
	}
}

func TestPreserveExpiryTimeCountsFromNow(t *testing.T) {
	t.Parallel()
	m := activitiestest.Machine("m", activitiestest.WithNode, withPreserveAnnotation("now"))
	w := activitiestest.NewWorld(t, m, activitiestest.Node())
	before := time.Now()
	preserveMachine(w, activitiestest.NewReadInput(m))
	expiry := w.Machine("m").Status.CurrentStatus.PreserveExpiryTime
	require.NotNil(t, expiry)
	assert.False(t, expiry.Time.Before(before.Add(v1alpha1.DefaultPreserveTimeout)), "the whole timeout")
	assert.True(t, expiry.Time.Before(before.Add(v1alpha1.DefaultPreserveTimeout+time.Minute)))
}
