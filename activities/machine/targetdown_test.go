package machine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/deletion"
	"millwright/observe/cache"
	"millwright/observe/observetest"
)

// newWorldWithTargetDown returns a world whose target cluster has no connection, answers no request, and has no filled
// cache, as after a restart of the worker during an outage.
func newWorldWithTargetDown(t *testing.T, m *v1alpha1.Machine, state cache.TargetState) *activitiestest.World {
	t.Helper()
	w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
	for _, verb := range []string{"get", "list", "patch", "update"} {
		activitiestest.FailRequests(w.TargetClient, verb, "nodes", -1, errors.New("no answer"), nil)
	}
	target := cache.NewTarget(w.TargetClient, "cluster-1")
	require.NoError(t, target.WatchNodes())
	target.SetStatus(cache.TargetStatus{
		State: state, Message: "connection refused", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	})
	w.Cluster.SetTargetSource(observetest.Targets{activitiestest.TestNamespace: target})
	return w
}

// An empty cache of a target that is not connected does not prove that a node is gone.
func TestADeletionDrainsTheNodeOfATargetThatIsNotConnected(t *testing.T) {
	t.Parallel()
	going := []func(*v1alpha1.Machine){
		activitiestest.WithNode, activitiestest.WithCreateAttempt, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
	}
	drained := func(m *v1alpha1.Machine) {
		m.Status.Deletion = &v1alpha1.MachineDeletion{
			Stage: v1alpha1.MachineDeletionDrain, Since: metav1.Now(), Drain: &v1alpha1.MachineDrain{Result: "Drained"},
		}
	}
	nameless := func(m *v1alpha1.Machine) {
		delete(m.Labels, v1alpha1.LabelNode)
		m.Status.NodeName = ""
	}
	for name, row := range map[string]struct {
		change func(*v1alpha1.Machine)
		stage  deletion.Stage
		why    string
	}{
		"its node is named": {func(*v1alpha1.Machine) {}, deletion.StageDrain, "node n is to be drained"},
		"its node has only the provider ID": {
			nameless, deletion.StageDrain, "the node with its provider ID is to be drained",
		},
		"its node was drained": {drained, deletion.StageDetachVolumes, "waits until the volumes of node n are detached"},
	} {
		for _, state := range []cache.TargetState{cache.TargetMissing, cache.TargetConnecting, cache.TargetUnavailable} {
			for way, read := range map[string]func(metav1.Object) kube.ReadInput{
				"cached": activitiestest.NewReadInput, "live": activitiestest.NewLiveReadInput,
			} {
				t.Run(name+", "+string(state)+", "+way, func(t *testing.T) {
					m := activitiestest.NewMachine("m", append(going, row.change)...)
					d := activitiestest.DecideMachine(newWorldWithTargetDown(t, m, state), read(m))
					require.NotNil(t, d.Deletion)
					assert.Equal(t, row.stage, d.Deletion.Stage)
					assert.Equal(t, row.why, d.Deletion.Why)
					assert.Empty(t, d.Deletion.Skipped)
					assert.Contains(t, d.TargetDown, "the target cluster of namespace "+activitiestest.TestNamespace+
						" is not connected: connection refused (since 2026-01-02 03:04:05 UTC)")
				})
			}
		}
	}
	t.Run("a person skips the drain", func(t *testing.T) {
		m := activitiestest.NewMachine("m", append(going, func(m *v1alpha1.Machine) {
			m.Annotations = map[string]string{v1alpha1.AnnotationSkipDrain: "alice: the cluster is gone"}
		})...)
		w := newWorldWithTargetDown(t, m, cache.TargetUnavailable)
		d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
		assert.Equal(t, deletion.StageDeleteInstance, d.Deletion.Stage)
		assert.Contains(t, d.Deletion.Skipped, "alice: the cluster is gone")
	})
	t.Run("the machines of the namespace join no cluster", func(t *testing.T) {
		m := activitiestest.NewMachine("m", going...)
		w := newWorldWithTargetDown(t, m, cache.TargetMissing)
		w.Cluster.SetTargetSource(observetest.Targets{})
		d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
		assert.Equal(t, deletion.StageDeleteInstance, d.Deletion.Stage)
		assert.Equal(t, "there is no node n", d.Deletion.Skipped)
	})
}

// A run's first decision reads live, and its status must say why the machine waits.
func TestADecisionDoesNotWaitForATargetThatIsNotConnected(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineUnknown))
	w := newWorldWithTargetDown(t, m, cache.TargetUnavailable)
	d := activitiestest.DecideMachine(w, activitiestest.NewLiveReadInput(m))
	require.NotNil(t, d.Health)
	assert.Nil(t, d.Health.Change)
	assert.Contains(t, d.Health.Why, "is not connected: connection refused")
	in := activitiestest.NewLiveReadInput(m)
	in.Versions = kube.MinVersions{kube.NodesResource: "999999"}
	in.Live = false
	assert.Equal(t, d.Health, activitiestest.DecideMachine(w, in).Health, "the cache of nodes reaches no version")

	report := machine.Report{Read: activitiestest.NewLiveReadInput(m), Phase: vocabulary.PhaseFailed}
	_, err := activitiestest.RunActivity[kube.ReportResult](w, newActivities(w.Kube).ReportMachine, report)
	require.NoError(t, err)
	assert.Contains(t, w.MutatingRequests(), "update machines/status")
}

// A proxy in front of an API server may answer 404 for any path while the API server is away.
func TestA404ThatIsNotFromTheAPIServerProvesNothing(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithCreateAttempt,
		activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
	)
	w := newWorldWithStaleCache(t, m, activitiestest.NewNode())
	proxy := apierrors.NewGenericServerResponse(404, "get", v1alpha1.Resource("nodes"), "n", "404 page not found", 0, true)
	require.True(t, apierrors.IsNotFound(proxy))
	activitiestest.FailRequests(w.TargetClient, "get", "nodes", -1, proxy, nil)
	d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
	assert.Equal(t, deletion.StageDrain, d.Deletion.Stage, d.Deletion.Skipped)
	in := machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n"}
	_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).DeleteNode, in)
	require.ErrorContains(t, err, "get node n")
}
