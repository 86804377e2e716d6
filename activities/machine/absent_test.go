package machine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
)

// newWorldWithStaleCache returns a world whose cache lacks the given objects of the target cluster's API server.
func newWorldWithStaleCache(t *testing.T, m *v1alpha1.Machine, there ...runtime.Object) *activitiestest.World {
	t.Helper()
	w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
	w.HoldEvents()
	for _, o := range there {
		require.NoError(t, w.TargetClient.Tracker().Add(o))
	}
	return w
}

// The cache may lack a node that has just joined, because its watch is broken. The pods of a node that the cache lacks
// must be drained as well.
func TestANodeThatTheCacheLacksIsDrained(t *testing.T) {
	t.Parallel()
	going := func(change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
		return activitiestest.NewMachine(
			"m",
			append(
				change,
				activitiestest.WithNode,
				activitiestest.WithCreateAttempt,
				activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
			)...)
	}
	for name, row := range map[string]struct {
		there   []runtime.Object
		err     error // the error of the live read
		stage   deletion.Stage
		skipped string
	}{
		"the API server has it":          {[]runtime.Object{activitiestest.NewNode()}, nil, deletion.StageDrain, ""},
		"the API server has none":        {nil, nil, deletion.StageDeleteInstance, "there is no node n"},
		"the API server does not answer": {[]runtime.Object{activitiestest.NewNode()}, errors.New("no answer"), deletion.StageDrain, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := going()
			w := newWorldWithStaleCache(t, m, row.there...)
			if row.err != nil {
				activitiestest.FailRequests(w.TargetClient, "get", "nodes", 2, row.err, nil)
			}
			d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
			require.NotNil(t, d.Deletion)
			assert.Equal(t, row.stage, d.Deletion.Stage, d.Deletion.Why)
			assert.Equal(t, row.skipped, d.Deletion.Skipped)
		})
	}
	t.Run("it is asked for until the drain is over", func(t *testing.T) {
		m := going(func(m *v1alpha1.Machine) {
			m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionInstance}
		})
		w := newWorldWithStaleCache(t, m)
		activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
		assert.NotContains(t, w.Requests(), "get nodes")
	})
}

// The health timeout applies to nodes that may recover. A node that no longer exists cannot recover, so its machine
// fails at once.
func TestANodeThatIsGoneIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	sick := func(m *v1alpha1.Machine) { withUnhealthySince(now.Add(-time.Minute))(m) }
	for name, row := range map[string]struct {
		there []runtime.Object
		err   error
		fails bool
	}{
		"it is gone":                     {nil, nil, true},
		"the cache lacks it":             {[]runtime.Object{activitiestest.NewNode()}, nil, false},
		"the API server does not answer": {nil, errors.New("no answer"), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithCreateAttempt, sick)
			w := newWorldWithStaleCache(t, m, row.there...)
			if row.err != nil {
				activitiestest.FailRequests(w.TargetClient, "get", "nodes", 2, row.err, nil)
			}
			d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
			assert.Equal(t, row.fails, activitiestest.WritesPhaseFailed(d))
			if row.fails {
				assert.Equal(t, "NodeDeleted", d.Health.Due.Reason)
				assert.Equal(t, "Machine m: node n does not exist any more", d.Health.Due.Message)
			}
		})
	}
}

// If all nodes vanish at once, the likely causes are a mistake or a restore of the target cluster's API server to an
// older state.
func TestNothingIsReplacedWhenMostNodesAreGone(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		gone, well int
		going      bool // the nodes still exist, with a deletion timestamp
		fails      bool
	}{
		"most are gone":          {gone: 3, well: 2},
		"most are being deleted": {gone: 3, well: 2, going: true},
		"a few of many are gone": {gone: 1, well: 9, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := activitiestest.NewMachinesWithGoneAndHealthyNodes(row.gone, row.well)
			m := activitiestest.NewMachine(
				"m",
				activitiestest.WithNode,
				activitiestest.WithCreateAttempt,
				withUnhealthySince(time.Now().Add(-time.Minute)),
			)
			if row.going {
				dying := func(n *corev1.Node) { n.Finalizers = []string{activitiestest.BackupFinalizer} }
				objects = append(objects, activitiestest.NewNode(activitiestest.WithDeletionTimestamp[*corev1.Node], dying))
				for _, o := range objects[:row.gone] {
					name := o.(*v1alpha1.Machine).Name
					objects = append(
						objects,
						activitiestest.NewNode(
							activitiestest.WithDeletionTimestamp[*corev1.Node],
							dying,
							func(n *corev1.Node) { n.Name = name },
						),
					)
				}
			}
			w := activitiestest.NewWorld(t, append(objects, m, activitiestest.NewClass())...)
			d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
			assert.Equal(t, row.fails, activitiestest.WritesPhaseFailed(d))
			require.NotNil(t, d.Health.Due)
			assert.Equal(t, "NodeDeleted", d.Health.Due.Reason)
			if !row.fails {
				assert.Contains(t, d.Health.Due.Message, "nodes look dead at once")
			}
		})
	}
}

// Decisions use the workflow's time, which comes from the Temporal server. A worker whose clock is ten minutes ahead
// does not end a timeout early.
func TestAWorkerWhoseClockIsAheadEndsNoTimeout(t *testing.T) {
	t.Parallel()
	server := time.Now().Add(-10 * time.Minute).Truncate(time.Second)
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithCreateAttempt,
		withUnhealthySince(server.Add(-9*time.Minute)),
	)
	silent := activitiestest.NewNode(withReadyCondition("Unknown", server.Add(-9*time.Minute)))
	d := activitiestest.DecideMachine(
		activitiestest.NewWorld(t, m, silent, activitiestest.NewClass()),
		readInputAtTime(m, server),
	)
	assert.False(t, activitiestest.WritesPhaseFailed(d))
	assert.WithinDuration(t, server.Add(time.Minute), d.Health.Deadline, 0)
}
