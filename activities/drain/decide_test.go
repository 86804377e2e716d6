package drain_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/observe/cache"
	"millwright/observe/observetest"
)

func withDrainTimeout(d time.Duration) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: activitiestest.NewDuration(d)}
	}
}

func withEvictRetries(n int32) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Spec.MaxEvictRetries = &n }
}

func withReadonlyFilesystem(ago time.Duration, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: "ReadonlyFilesystem", Status: status, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago)).Rfc3339Copy(),
		})
	}
}

// setInstanceGone sets the status of a machine whose instance the provider no longer has.
func setInstanceGone(m *v1alpha1.Machine) {
	m.Status.Health = &v1alpha1.MachineHealth{
		UnhealthySince: activitiestest.OldTime,
		InstanceGoneAt: &activitiestest.OldTime,
	}
}

func TestDecideDrain(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		node    []func(*corev1.Node)
		unasked bool
		means   drain.RemovalMeans
		until   time.Duration // time from now until the drain changes to the next means
		over    bool
	}{
		"it has not begun: its time does not run":                    {[]func(*v1alpha1.Machine){activitiestest.WithDeletionTimestamp[*v1alpha1.Machine]}, nil, true, drain.MeansEvict, 0, false},
		"before its timeout":                                         {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, nil, false, drain.MeansEvict, hour, false},
		"after its timeout":                                          {[]func(*v1alpha1.Machine){activitiestest.WithDrain(2*hour, drain.MeansEvict)}, nil, false, drain.MeansDelete, 30 * time.Second, false},
		"and nobody looked when it ended":                            {[]func(*v1alpha1.Machine){activitiestest.WithDrain(2*hour, drain.MeansEvict)}, nil, true, drain.MeansEvict, 0, false},
		"then by force":                                              {[]func(*v1alpha1.Machine){activitiestest.WithDrain(3*hour, drain.MeansDelete)}, nil, false, drain.MeansKill, 30 * time.Second, false},
		"and then what is left stays behind":                         {[]func(*v1alpha1.Machine){activitiestest.WithDrain(3*hour, drain.MeansKill)}, nil, false, drain.MeansKill, 0, true},
		"a shorter timeout is over":                                  {[]func(*v1alpha1.Machine){activitiestest.WithDrain(2*time.Minute, drain.MeansEvict), withDrainTimeout(time.Minute)}, nil, false, drain.MeansDelete, 30 * time.Second, false},
		"a longer timeout is not over":                               {[]func(*v1alpha1.Machine){activitiestest.WithDrain(2*time.Minute, drain.MeansEvict), withDrainTimeout(3 * time.Minute)}, nil, false, drain.MeansEvict, time.Minute, false},
		"more than two hours":                                        {[]func(*v1alpha1.Machine){activitiestest.WithDrain(3*hour, drain.MeansEvict), withDrainTimeout(5 * hour)}, nil, false, drain.MeansEvict, 2 * hour, false},
		"no retries":                                                 {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict), withDrainTimeout(hour), withEvictRetries(0)}, nil, false, drain.MeansDelete, 30 * time.Second, false},
		"no retries, and nobody was asked yet":                       {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict), withDrainTimeout(hour), withEvictRetries(0)}, nil, true, drain.MeansEvict, 0, false},
		"a timeout of 0":                                             {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict), withDrainTimeout(0)}, nil, true, drain.MeansEvict, 0, false},
		"the label asks for force":                                   {[]func(*v1alpha1.Machine){activitiestest.WithDrain(time.Minute, drain.MeansEvict), activitiestest.WithLabel(v1alpha1.LabelForceDeletion, "True")}, nil, false, drain.MeansKill, 30 * time.Second, false},
		"it asks for it before it has begun":                         {[]func(*v1alpha1.Machine){activitiestest.WithDeletionTimestamp[*v1alpha1.Machine], activitiestest.WithLabel(v1alpha1.LabelForceDeletion, "1")}, nil, true, drain.MeansKill, 30 * time.Second, false},
		"the label says false":                                       {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict), activitiestest.WithLabel(v1alpha1.LabelForceDeletion, "false")}, nil, false, drain.MeansEvict, hour, false},
		"not ready for more than 5 minutes":                          {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, []func(*corev1.Node){activitiestest.WithNodeNotReady(5 * time.Minute)}, false, drain.MeansKill, 30 * time.Second, false},
		"not ready for less":                                         {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, []func(*corev1.Node){activitiestest.WithNodeNotReady(2 * time.Minute)}, false, drain.MeansEvict, 3 * time.Minute, false},
		"not ready, and its instance is gone":                        {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict), setInstanceGone}, []func(*corev1.Node){activitiestest.WithNodeNotReady(time.Minute)}, false, drain.MeansKill, 30 * time.Second, false},
		"ready, although the provider reported its instance as gone": {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict), setInstanceGone}, nil, false, drain.MeansEvict, hour, false},
		"read-only for more than 5 minutes":                          {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, []func(*corev1.Node){withReadonlyFilesystem(6*time.Minute, "True")}, false, drain.MeansKill, 30 * time.Second, false},
		"both for more than 5 minutes":                               {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, []func(*corev1.Node){activitiestest.WithNodeNotReady(6 * time.Minute), withReadonlyFilesystem(6*time.Minute, "Unknown")}, false, drain.MeansKill, 30 * time.Second, false},
		"read-only for less":                                         {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, []func(*corev1.Node){withReadonlyFilesystem(4*time.Minute, "True")}, false, drain.MeansEvict, time.Minute, false},
		"its node has the provider ID in another form":               {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, []func(*corev1.Node){activitiestest.WithProviderID("fake:///zone-a/n")}, false, drain.MeansEvict, hour, false},
		"it is not":                                                  {[]func(*v1alpha1.Machine){activitiestest.WithDrain(hour, drain.MeansEvict)}, []func(*corev1.Node){withReadonlyFilesystem(hour, "False")}, false, drain.MeansEvict, hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine("m", append([]func(*v1alpha1.Machine){activitiestest.WithNode}, row.machine...)...)
				w := activitiestest.NewWorld(t, m, activitiestest.NewNode(row.node...))
				in := activities.Input{ReadInput: activitiestest.NewReadInput(m), Unasked: row.unasked}
				now := time.Now()
				d := activitiestest.RunActivityTwice[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
				assert.Equal(t, row.means, d.Step.Means)
				assert.Equal(t, row.over, d.Step.Over)
				if row.until != 0 || row.means != drain.MeansEvict {
					assert.Equal(t, row.over, d.Step.Until.IsZero())
				}
				if row.until != 0 {
					assert.Equal(t, row.until, d.Step.Until.Sub(now))
				} else {
					assert.False(t, d.Step.Until.After(now), "one pass is enough, or no time ends it")
				}
				assert.Equal(t, map[bool]string{true: vocabulary.DrainResultForced}[row.over], d.Result)
				assert.NotEmpty(t, d.Why)
				assert.Equal(t, m.ResourceVersion, d.Version)
				if record := m.Status.Deletion; record != nil {
					assert.Equal(t, record.Drain.Means, d.Recorded)
					assert.True(t, record.Drain.StartedAt.Time.Equal(d.Started))
				} else {
					assert.Empty(t, d.Recorded)
					assert.Zero(t, d.Started)
				}
				assert.Empty(t, w.MutatingRequests())
			})
		})
	}
}

// If most nodes are silent at once, the drain assumes that the cause is the API server or the network. Containers
// continue to run on silent nodes, so no pod may be killed, even if some of the machines are being deleted.
func TestNoPodIsKilledWhileMostNodesAreSilent(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		others int  // number of machines with a silent node
		lost   bool // the cloud has no instance of the machines with a silent node
		going  int  // number of the silent machines that are being drained
		well   int  // number of machines with a healthy node
		change func(*v1alpha1.Machine)
		means  drain.RemovalMeans
	}{
		"most nodes":                                        {3, false, 0, 2, func(*v1alpha1.Machine) {}, drain.MeansEvict},
		"all machines are being drained":                    {3, false, 3, 0, func(*v1alpha1.Machine) {}, drain.MeansEvict},
		"a few of many":                                     {1, false, 1, 9, func(*v1alpha1.Machine) {}, drain.MeansKill},
		"most nodes, but a person asks":                     {3, false, 0, 2, activitiestest.WithLabel(v1alpha1.LabelForceDeletion, "true"), drain.MeansKill},
		"most nodes, but its instance is gone":              {3, false, 0, 2, setInstanceGone, drain.MeansKill},
		"most nodes, and the cloud has no instance of them": {3, true, 0, 2, setInstanceGone, drain.MeansEvict},
		"most nodes, and the time is over":                  {3, false, 0, 2, activitiestest.WithDrain(3*time.Hour, drain.MeansEvict), drain.MeansDelete},
		"most nodes, and kill was recorded":                 {3, false, 0, 2, activitiestest.WithDrain(time.Hour, drain.MeansKill), drain.MeansKill},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				joined := func(m *v1alpha1.Machine) {
					m.Status.JoinedAt = new(metav1.Now())
				}
				m := activitiestest.NewMachine(
					"m",
					activitiestest.WithNode,
					joined,
					activitiestest.WithDrain(time.Hour, drain.MeansEvict),
					row.change,
				)
				objects := []runtime.Object{m, activitiestest.NewNode(activitiestest.WithNodeNotReady(7 * time.Minute))}
				for i := range row.others + row.well {
					other := activitiestest.NewMachine(
						fmt.Sprintf("x-%d", i),
						activitiestest.WithPhase(v1alpha1.MachineRunning),
						joined,
					)
					other.Labels[v1alpha1.LabelNode] = other.Name
					node := activitiestest.NewNode(func(n *corev1.Node) { n.Name = other.Name })
					if i < row.going {
						activitiestest.WithDrain(time.Minute, drain.MeansEvict)(other)
					}
					if i < row.others {
						activitiestest.WithNodeNotReady(7 * time.Minute)(node)
						if row.lost {
							setInstanceGone(other)
						}
					}
					objects = append(objects, other, node)
				}
				w := activitiestest.NewWorld(t, objects...)
				now := time.Now()
				d := activitiestest.RunActivityTwice[activities.Decision](
					w,
					newActivities(w.Kube).DecideDrain,
					activities.Input{ReadInput: activitiestest.NewReadInput(m)},
				)
				assert.Equal(t, row.means, d.Step.Means, d.Why)
				if row.means == drain.MeansEvict {
					because := "nodes look dead at once"
					if row.lost {
						because = "the provider says of 4 of 6 machines that it has no instance"
					}
					assert.Contains(t, d.Why, because)
					assert.Equal(
						t,
						3*time.Minute,
						d.Step.Until.Sub(now),
						"the condition of the node is looked at again after each 5 minutes",
					)
				}
			})
		})
	}
}

// The workflow's time comes from the server. A worker whose clock is ten minutes ahead kills no pods.
func TestAWorkerWhoseClockIsAheadKillsNoPods(t *testing.T) {
	t.Parallel()
	server := time.Now().Add(-10 * time.Minute)
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(time.Hour, drain.MeansEvict))
	in := activities.Input{ReadInput: activitiestest.NewReadInput(m)}
	in.At = server
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithNodeNotReady(13*time.Minute)))
	assert.Equal(
		t,
		drain.MeansEvict,
		activitiestest.RunActivityTwice[activities.Decision](w, newActivities(w.Kube).DecideDrain, in).Step.Means,
	)
}

// A drain does not end because the cache lacks the node.
func TestDrainContinuesIfCacheLacksNode(t *testing.T) {
	t.Parallel()
	skip := func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationSkipDrain: "by ada"}
	}
	world := func(t *testing.T, change ...func(*v1alpha1.Machine)) (*activitiestest.World, activities.Input) {
		m := activitiestest.NewMachine(
			"m",
			append(change, activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))...)
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		require.NoError(t, w.TargetClient.Tracker().Add(activitiestest.NewNode()))
		return w, activities.Input{ReadInput: activitiestest.NewReadInput(m)}
	}
	t.Run("the API server has it", func(t *testing.T) {
		w, in := world(t)
		d := activitiestest.RunActivityTwice[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
		assert.Empty(t, d.Result, d.Why)
		assert.Equal(t, drain.MeansEvict, d.Step.Means)
	})
	t.Run("the API server does not answer", func(t *testing.T) {
		w, in := world(t)
		activitiestest.FailRequests(w.TargetClient, "get", "nodes", 1, errors.New("no answer"), nil)
		_, err := activitiestest.RunActivity[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
		require.ErrorContains(t, err, "no answer")
	})
	t.Run("the API server does not answer, and a person skips the drain", func(t *testing.T) {
		w, in := world(t, skip)
		activitiestest.FailRequests(w.TargetClient, "get", "nodes", 1, errors.New("no answer"), nil)
		d, err := activitiestest.RunActivity[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
		require.NoError(t, err)
		assert.Equal(t, vocabulary.DrainResultSkipped, d.Result)
	})
}

func TestDrainIsSkippedIfNotNeeded(t *testing.T) {
	t.Parallel()
	excluded := func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationExcludeDraining: ""}
	}
	over := func(result string) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Status.Deletion.Drain.Result = result }
	}
	other := activitiestest.NewMachine("other", activitiestest.WithNode)
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		related []runtime.Object
		result  string
	}{
		"the machine is not to go":        {nil, []runtime.Object{activitiestest.NewNode()}, activities.ResultCancelled},
		"there is no node":                {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict)}, nil, vocabulary.DrainResultDrained},
		"its node is another instance's":  {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict)}, []runtime.Object{activitiestest.NewNode(activitiestest.WithProviderID("fake:///new"))}, vocabulary.DrainResultSkipped},
		"its node is another machine's":   {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict)}, []runtime.Object{activitiestest.NewNode(activitiestest.WithMachineUID(other)), other}, vocabulary.DrainResultSkipped},
		"it is in doubt whose node it is": {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict)}, []runtime.Object{activitiestest.NewNode(), other}, activities.ResultCancelled},
		"it is excluded":                  {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict), excluded}, []runtime.Object{activitiestest.NewNode()}, vocabulary.DrainResultSkipped},
		"it is excluded before it begins": {[]func(*v1alpha1.Machine){activitiestest.WithDeletionTimestamp[*v1alpha1.Machine], excluded}, []runtime.Object{activitiestest.NewNode()}, vocabulary.DrainResultSkipped},
		"excluded, and there is no node":  {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict), excluded}, nil, vocabulary.DrainResultDrained},
		"it was drained":                  {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansEvict), over("Drained")}, []runtime.Object{activitiestest.NewNode()}, vocabulary.DrainResultDrained},
		"it was drained by force":         {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, drain.MeansKill), over("Forced")}, []runtime.Object{activitiestest.NewNode()}, vocabulary.DrainResultForced},
		"it was skipped":                  {[]func(*v1alpha1.Machine){activitiestest.WithDrain(0, ""), over("Skipped")}, []runtime.Object{activitiestest.NewNode()}, vocabulary.DrainResultSkipped},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", append([]func(*v1alpha1.Machine){activitiestest.WithNode}, row.machine...)...)
			w := activitiestest.NewWorld(t, append(row.related, m)...)
			for _, in := range []kube.ReadInput{activitiestest.NewReadInput(m), activitiestest.NewLiveReadInput(m)} {
				d := activitiestest.RunActivityTwice[activities.Decision](
					w,
					newActivities(w.Kube).DecideDrain,
					activities.Input{ReadInput: in},
				)
				assert.Equal(t, row.result, d.Result)
				assert.NotEmpty(t, d.Why)
				assert.Empty(t, w.MutatingRequests())
			}
		})
	}
	t.Run("the machine is gone, or another one has its name", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))
		w := activitiestest.NewWorld(t, activitiestest.NewNode(), m)
		for _, r := range []kube.Ref{activitiestest.NewRef(activitiestest.NewMachine("x")), activitiestest.NewFormerObjectRef(m)} {
			d := activitiestest.RunActivityTwice[activities.Decision](
				w,
				newActivities(w.Kube).DecideDrain,
				activities.Input{ReadInput: kube.ReadInput{Ref: r}},
			)
			assert.Equal(t, activities.ResultCancelled, d.Result)
		}
	})
}

func TestDecideDrainUsesLaterOfTwoClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(time.Hour, drain.MeansEvict))
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		in := activities.Input{ReadInput: activitiestest.NewReadInput(m)}
		in.At = time.Now().Add(time.Hour)
		d := activitiestest.RunActivityTwice[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
		assert.Equal(t, drain.MeansDelete, d.Step.Means, "a timer that has fired must not meet a clock that is behind")
		in.At = time.Now().Add(-time.Hour)
		d = activitiestest.RunActivityTwice[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
		assert.Equal(t, drain.MeansEvict, d.Step.Means)
		assert.Equal(t, time.Hour, time.Until(d.Step.Until))
	})
}

func TestDeletionWaitsForTheLongestGracePeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(2*time.Hour, drain.MeansEvict))
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		d := activitiestest.RunActivityTwice[activities.Decision](
			w,
			newActivities(w.Kube).DecideDrain,
			activities.Input{ReadInput: activitiestest.NewReadInput(m), Grace: 10 * time.Minute},
		)
		assert.Equal(t, drain.MeansDelete, d.Step.Means)
		assert.Equal(t, 10*time.Minute+30*time.Second, time.Until(d.Step.Until))
	})
}

func TestDecideDrainReturnsErrors(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))
	for name, row := range map[string]struct {
		resource, message string
		fails             error
	}{
		"no answer of the control cluster": {"machines", "get machine shop/m: no answer", errors.New("no answer")},
		"the target refuses to say":        {"nodes", "get node n of machine m: ", apierrors.NewInternalError(errors.New("etcd"))},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
			activitiestest.FailRequests(w.MachineClient, "get", row.resource, 1, row.fails, nil)
			activitiestest.FailRequests(w.TargetClient, "get", row.resource, 1, row.fails, nil)
			_, err := activitiestest.RunActivity[activities.Decision](
				w,
				newActivities(w.Kube).DecideDrain,
				activities.Input{ReadInput: activitiestest.NewLiveReadInput(m)},
			)
			require.ErrorContains(t, err, row.message)
			_, retryable := activitiestest.FailureTypeOf(t, err)
			assert.True(t, retryable)
		})
	}
}

func TestDecideDrainUsesCachedNodeIfTargetIsUnreachable(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(0, drain.MeansEvict))
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
	activitiestest.FailRequests(w.TargetClient, "get", "nodes", 1, errors.New("no answer"), nil)
	d, err := activitiestest.RunActivity[activities.Decision](
		w,
		newActivities(w.Kube).DecideDrain,
		activities.Input{ReadInput: activitiestest.NewLiveReadInput(m)},
	)
	require.NoError(t, err)
	assert.Equal(t, drain.MeansEvict, d.Step.Means)
}

// A drain of a target cluster that is not connected waits, until a person forces it.
func TestADrainWaitsForATargetThatIsNotConnected(t *testing.T) {
	t.Parallel()
	const down = "the target cluster of namespace " + activitiestest.TestNamespace + " is not connected: connection refused"
	for name, row := range map[string]struct {
		change func(*v1alpha1.Machine)
		ago    time.Duration
		result string
		why    string
	}{
		"past its deadline": {func(*v1alpha1.Machine) {}, 9 * time.Hour, "", "waits for the cluster of the node: " + down},
		"forced": {
			activitiestest.WithLabel(v1alpha1.LabelForceDeletion, "true"), time.Minute, vocabulary.DrainResultForced,
			"; " + down,
		},
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, its node is known: %t", name, known), func(t *testing.T) {
				m := activitiestest.NewMachine(
					"m",
					activitiestest.WithNode,
					activitiestest.WithDrain(row.ago, drain.MeansEvict),
					row.change,
				)
				w := activitiestest.NewWorld(t, m)
				activitiestest.FailRequests(w.TargetClient, "get", "nodes", -1, errors.New("no answer"), nil)
				target := cache.NewTarget(w.TargetClient, "cluster-1")
				require.NoError(t, target.WatchNodes())
				if known {
					require.NoError(t, target.Informer(cache.NodesResource).GetStore().Add(activitiestest.NewNode()))
				}
				target.SetStatus(
					cache.TargetStatus{State: cache.TargetUnavailable, Message: "connection refused", Since: time.Now()},
				)
				w.Cluster.SetTargetSource(observetest.Targets{activitiestest.TestNamespace: target})
				in := activities.Input{ReadInput: activitiestest.NewReadInput(m)}
				d, err := activitiestest.RunActivity[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
				if !known && row.result == "" {
					require.ErrorContains(t, err, "no answer")
					return
				}
				require.NoError(t, err)
				assert.Equal(t, row.result, d.Result)
				assert.Contains(t, d.Why, row.why)
				assert.Contains(t, d.Unanswered, down)
				assert.Zero(t, d.Step.Until)
			})
		}
	}
}

func TestAnOutageOfTheTargetExtendsTheDrain(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithDrain(3*time.Hour, drain.MeansEvict))
	w := activitiestest.NewWorld(t, m)
	target := cache.NewTarget(w.TargetClient, "cluster-1")
	require.NoError(t, target.WatchNodes())
	require.NoError(t, target.Informer(cache.NodesResource).GetStore().Add(activitiestest.NewNode()))
	began := m.Status.Deletion.Drain.StartedAt.Time
	target.AddAbsence(cache.WorkerAbsence{From: began.Add(time.Minute), To: began.Add(2 * time.Hour)})
	w.Cluster.SetTargetSource(observetest.Targets{activitiestest.TestNamespace: target})
	in := activities.Input{ReadInput: activitiestest.NewReadInput(m)}
	d := activitiestest.RunActivityTwice[activities.Decision](w, newActivities(w.Kube).DecideDrain, in)
	assert.Equal(t, drain.MeansEvict, d.Step.Means)
	assert.True(t, began.Add(2*time.Hour+119*time.Minute).Equal(d.Step.Until), d.Why)
}
