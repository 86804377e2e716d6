package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

func TestU132_PreserveWithoutANode(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*v1alpha1.Machine{
		"missing":         machine("m", onNode, ill, asks("now")),
		"not yet known":   machine("m", asks("now")),
		"missing, Failed": machine("m", onNode, ill, asks("when-failed")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, m)
			preserveMachine(w, keepAt(m, 0))
			assert.Equal(t, []string{"update machines/status"}, w.writes())
			assert.Equal(t, []string{"Normal Preserved " + runningSentence}, w.told())
			preserveMachine(w, keepAt(m, v1alpha1.DefaultPreserveTimeout))
			assert.Equal(t, []string{"patch machines", "update machines/status"}, w.writes())
			assert.Equal(t, []string{"Normal PreservationStopped " + stopSentence + "its time is over."}, w.told())
		})
	}
	t.Run("because there is no target", func(t *testing.T) {
		m := machine("m", onNode, asks("now"))
		w := newWorld(t, m)
		var err error
		w.Cluster, err = observe.NewCluster(w.machines, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Cluster.Start(t.Context()))
		_, err = run[activities.Gate](w, w.PreserveMachine, keepAt(m, 0))
		require.NoError(t, err)
		assert.Equal(t, &keptUntil, w.machine("m").Status.CurrentStatus.PreserveExpiryTime)
	})
}

func TestPreserveMachineLeavesItAlone(t *testing.T) {
	t.Parallel()
	asking := machine("m", onNode, ill, asks("now"))
	leaving := machine("m", onNode, ill, asks("now"), going[*v1alpha1.Machine])
	calm := machine("m", onNode, ill, asks("false"))
	for name, row := range map[string]struct {
		in      activities.Read
		objects []runtime.Object
	}{
		"the machine is gone":                       {keepAt(asking, 0), []runtime.Object{node()}},
		"another machine has its name":              {activities.Read{Ref: stranger(asking)}, []runtime.Object{asking, node()}},
		"N20: the machine is to go":                 {keepAt(leaving, 0), []runtime.Object{leaving, node()}},
		"N20: the machine is to go, read live":      {live(leaving), []runtime.Object{leaving, node()}},
		"another machine names the node as its own": {keepAt(asking, 0), []runtime.Object{asking, machine("other", onNode), node()}},
		"U131: the node's value is not known":       {keepAt(asking, 0), []runtime.Object{asking, node(nodeAsks("forever"))}},
		"U131: it is refused":                       {keepAt(calm, 0), []runtime.Object{calm, node()}},
		"the marks for the autoscaler are a rollout's": {keepAt(calm, 0), []runtime.Object{calm, node(func(n *corev1.Node) {
			n.Annotations = map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true"}
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row.objects...)
			preserveMachine(w, row.in)
			assert.Empty(t, w.writes())
			assert.Empty(t, w.told())
		})
	}
}

func TestPreserveMachineAtTheWorkersTime(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, asks("now"))
	w := newWorld(t, m, node())
	before := time.Now()
	preserveMachine(w, read(m))
	expiry := w.machine("m").Status.CurrentStatus.PreserveExpiryTime
	require.NotNil(t, expiry)
	assert.False(t, expiry.Time.Before(before.Add(v1alpha1.DefaultPreserveTimeout)), "the whole timeout")
	assert.True(t, expiry.Time.Before(before.Add(v1alpha1.DefaultPreserveTimeout+time.Minute)))
}
