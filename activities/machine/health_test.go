package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
)

// withReadyCondition gives a node the condition Ready with the given status and transition time.
func withReadyCondition(status corev1.ConditionStatus, since time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = status, "Because"
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
	}
}

// withUnhealthySince gives a machine a node that is unhealthy since the given time. The phase has the current time.
func withUnhealthySince(since time.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		activitiestest.WithNode(m)
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineUnknown, LastUpdateTime: metav1.Now()}
		m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: metav1.NewTime(since).Rfc3339Copy()}
	}
}

// newDeploymentWithSet returns a deployment, its set, and a change that makes a machine a member of the set.
func newDeploymentWithSet() (d *v1alpha1.MachineDeployment, s *v1alpha1.MachineSet, member func(*v1alpha1.Machine)) {
	d = activitiestest.NewDeployment("d", 3)
	s = activitiestest.NewOwnedSet(d, "s", 3)
	return d, s, activitiestest.WithOwner[*v1alpha1.Machine](s)
}

func TestDecideMachineSetsPhaseFromNode(t *testing.T) {
	t.Parallel()
	turned := time.Now().Add(-30 * time.Second).Truncate(time.Second)
	held := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{
			{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: v1alpha1.TaintCriticalComponentsNotReadyEffect},
		}
	}
	full := func(n *corev1.Node) {
		n.Status.Conditions = append(
			n.Status.Conditions,
			corev1.NodeCondition{Type: "DiskPressure", Status: "True", Reason: "Full"},
		)
	}
	for name, row := range map[string]struct {
		phase    v1alpha1.MachinePhase
		node     []func(*corev1.Node)
		to, what string // new phase and type of its operation; both empty: the phase does not change
	}{
		"a new node has joined":                  {v1alpha1.MachinePending, nil, "Running", "Create"},
		"a node that is not ready has not":       {v1alpha1.MachinePending, []func(*corev1.Node){withReadyCondition("False", turned)}, "", ""},
		"nor has one whose disk is full":         {v1alpha1.MachinePending, []func(*corev1.Node){full}, "", ""},
		"nor has one that is being deleted":      {v1alpha1.MachinePending, []func(*corev1.Node){activitiestest.WithDeletionTimestamp[*corev1.Node]}, "", ""},
		"nor has one without its components":     {v1alpha1.MachinePending, []func(*corev1.Node){held}, "", ""},
		"which are nothing to one that was":      {v1alpha1.MachineUnknown, []func(*corev1.Node){held}, "Running", "HealthCheck"},
		"it is well again":                       {v1alpha1.MachineUnknown, nil, "Running", "HealthCheck"},
		"its kubelet says that it is not ready":  {v1alpha1.MachineRunning, []func(*corev1.Node){withReadyCondition("False", turned)}, "Unknown", "HealthCheck"},
		"its kubelet is silent":                  {v1alpha1.MachineRunning, []func(*corev1.Node){withReadyCondition("Unknown", turned)}, "Unknown", "HealthCheck"},
		"its disk is full":                       {v1alpha1.MachineRunning, []func(*corev1.Node){full}, "Unknown", "HealthCheck"},
		"somebody deletes it":                    {v1alpha1.MachineRunning, []func(*corev1.Node){activitiestest.WithDeletionTimestamp[*corev1.Node]}, "Unknown", "HealthCheck"},
		"a failed machine is never taken back":   {v1alpha1.MachineFailed, nil, "", ""},
		"a Running machine does not wait for it": {v1alpha1.MachineRunning, []func(*corev1.Node){held}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(row.phase))
			n := activitiestest.NewNode(
				append(row.node, func(n *corev1.Node) { n.Finalizers = []string{v1alpha1.FinalizerNode} })...)
			d := activitiestest.DecideMachine(
				activitiestest.NewWorld(t, m, n, activitiestest.NewClass()),
				activitiestest.NewReadInput(m),
			)
			if row.to == "" {
				assert.True(t, d.Health == nil || d.Health.Change == nil, "%+v", d.Health)
				return
			}
			assert.Equal(t, attention.NeedStatusUpdate, d.Need)
			require.NotNil(t, d.Health)
			require.NotNil(t, d.Health.Change)
			assert.Equal(t, []string{row.to, row.what}, []string{d.Health.Change.Phase, d.Health.Change.Operation})
		})
	}
	t.Run("a node that is there before its machine is Pending", func(t *testing.T) {
		made := machine.Report{
			Phase:      "Pending",
			Conditions: []machine.Condition{{Type: "InstanceReady", True: true, Reason: "InstanceCreated"}},
		}
		m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(""))
		m.Status.Conditions = nil
		made.Read = activitiestest.NewReadInput(m)
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode(), activitiestest.NewClass())
		d, err := activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideAfterCreate, made)
		require.NoError(t, err)
		require.NotNil(t, d.Health)
		require.NotNil(t, d.Health.Change)
		assert.Equal(t, "Running", d.Health.Change.Phase)
		assert.True(t, d.Health.Change.Joined)

		w = activitiestest.NewWorld(t, m, activitiestest.NewClass())
		d, err = activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideAfterCreate, made)
		require.NoError(t, err)
		assert.Equal(t, attention.NeedNodeJoin, d.Need)
		assert.True(t, d.Health == nil || d.Health.Change == nil)

		m.DeletionTimestamp = &metav1.Time{Time: turned}
		w = activitiestest.NewWorld(t, m, activitiestest.NewNode(), activitiestest.NewClass())
		d, err = activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideAfterCreate, made)
		require.NoError(t, err)
		assert.Equal(t, attention.NeedDeletion, d.Need, "the instance must be recorded nevertheless")
		assert.Nil(t, d.Health)

		w = activitiestest.NewWorld(t)
		_, err = activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideAfterCreate, made)
		activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
	})
	t.Run(
		"a creation that runs again, because its worker died after the report, leaves what came after it",
		func(t *testing.T) {
			again := machine.Report{
				Phase:      "Pending",
				Conditions: []machine.Condition{{Type: "InstanceReady", True: true, Reason: "InstanceCreated"}},
			}
			m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
			again.Read = activitiestest.NewReadInput(m)
			w := activitiestest.NewWorld(t, m, activitiestest.NewClass()) // the node is gone
			d, err := activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideAfterCreate, again)
			require.NoError(t, err)
			assert.Equal(t, "Running", d.Phase)
			require.NotNil(t, d.Health)
			require.NotNil(t, d.Health.Change)
			assert.Equal(t, "Unknown", d.Health.Change.Phase, "not Pending until the creation timeout")
			_, err = activitiestest.RunActivity[kube.ReportResult](w, newActivities(w.Kube).ReportMachine, again)
			require.NoError(t, err)
			assert.Equal(t, v1alpha1.MachineRunning, w.Machine("m").Status.CurrentStatus.Phase)
		},
	)
	t.Run("it went missing", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
		d := activitiestest.DecideMachine(
			activitiestest.NewWorld(t, m, activitiestest.NewClass()),
			activitiestest.NewReadInput(m),
		)
		require.NotNil(t, d.Health)
		assert.Equal(t, "Unknown", d.Health.Change.Phase)
		assert.True(t, d.Health.Look, "the provider may know why")
	})
	t.Run("the clock starts when the node says that it turned bad", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
		d := activitiestest.DecideMachine(
			activitiestest.NewWorld(
				t,
				m,
				activitiestest.NewClass(),
				activitiestest.NewNode(withReadyCondition("False", turned)),
			),
			activitiestest.NewReadInput(m),
		)
		require.NotNil(t, d.Health.Clock)
		assert.WithinDuration(t, turned, d.Health.Clock.UnhealthySince, 0)
	})
}

func TestHealthTimeoutOfANode(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	d, s, member := newDeploymentWithSet()
	impatient := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineHealthTimeout: activitiestest.NewDuration(0)}
	}
	never := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{DisableHealthTimeout: new(true)}
	}
	vanished := func(m *v1alpha1.Machine) { m.Status.Health.InstanceGoneAt = &activitiestest.OldTime }
	for name, row := range map[string]struct {
		sick   time.Duration // how long the node has been unhealthy
		change []func(*v1alpha1.Machine)
		node   []runtime.Object
		left   time.Duration // remaining timeout; zero: the timeout has ended or is disabled
		due    string        // reason of the condition
	}{
		"not over yet, without a node":               {9 * time.Minute, nil, nil, 0, "NodeDeleted"},
		"not over yet, with a node":                  {9 * time.Minute, nil, []runtime.Object{activitiestest.NewNode(withReadyCondition("False", now))}, time.Minute, ""},
		"without a timeout, and without a node":      {0, []func(*v1alpha1.Machine){never}, nil, 0, "NodeDeleted"},
		"over, with a node":                          {10 * time.Minute, nil, []runtime.Object{activitiestest.NewNode(withReadyCondition("Unknown", now))}, 0, "HealthTimeout"},
		"a timeout of zero ends at once":             {0, []func(*v1alpha1.Machine){impatient}, []runtime.Object{activitiestest.NewNode(withReadyCondition("Unknown", now))}, 0, "HealthTimeout"},
		"without a timeout it never ends":            {1000 * time.Hour, []func(*v1alpha1.Machine){never}, []runtime.Object{activitiestest.NewNode(withReadyCondition("Unknown", now))}, 0, ""},
		"unless the instance is gone":                {0, []func(*v1alpha1.Machine){never, vanished}, nil, 0, "InstanceGone"},
		"an instance that is gone is not waited for": {0, []func(*v1alpha1.Machine){vanished}, nil, 0, "InstanceGone"},
		"a node that is being deleted neither":       {0, nil, []runtime.Object{activitiestest.NewNode(activitiestest.WithDeletionTimestamp[*corev1.Node], func(n *corev1.Node) { n.Finalizers = []string{activitiestest.BackupFinalizer} })}, 0, "NodeDeleted"},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine(
				"m",
				append([]func(*v1alpha1.Machine){member, withUnhealthySince(now.Add(-row.sick))}, row.change...)...)
			decision := activitiestest.DecideMachine(
				activitiestest.NewWorld(t, append(row.node, d, s, m, activitiestest.NewClass())...),
				readInputAtTime(m, now),
			)
			require.NotNil(t, decision.Health)
			v := *decision.Health
			assert.Nil(t, v.Change, "a machine of a deployment fails when its replacement is granted")
			if row.due == "" {
				assert.Nil(t, v.Due)
				assert.Equal(t, row.left > 0, !v.Deadline.IsZero())
				if row.left > 0 {
					assert.WithinDuration(t, now.Add(row.left), v.Deadline, 0, "whatever was written since")
				}
				assert.True(t, v.Look)
				return
			}
			require.NotNil(t, v.Due)
			assert.Equal(t, row.due, v.Due.Reason)
			assert.Contains(t, v.Due.Message, "waits until its deployment's replacement budget allows it")
			assert.Zero(t, v.Deadline)
		})
	}
}

func TestMachineOfADeploymentNeedsAReplacementGrant(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d, s, member := newDeploymentWithSet()
	lone := activitiestest.NewMachineSet("lone", 1)
	for name, row := range map[string]struct {
		owner []func(*v1alpha1.Machine)
		fails bool
	}{
		"a machine of a deployment waits":             {[]func(*v1alpha1.Machine){member}, false},
		"until it is granted":                         {[]func(*v1alpha1.Machine){member, activitiestest.WithReplacementGrant}, true},
		"that of a set without a deployment does not": {[]func(*v1alpha1.Machine){activitiestest.WithOwner[*v1alpha1.Machine](lone)}, true},
		"nor does one without a set":                  {nil, true},
	} {
		for _, change := range []func(*v1alpha1.Machine){func(*v1alpha1.Machine) {}, activitiestest.WithReplacementDue("HealthTimeout")} {
			// each case also runs for a machine with a recorded reason for its replacement
			t.Run(name, func(t *testing.T) {
				m := activitiestest.NewMachine("m", append(row.owner, withUnhealthySince(now.Add(-time.Hour)), change)...)
				decision := activitiestest.DecideMachine(
					activitiestest.NewWorld(t, d, s, lone, m, activitiestest.NewClass()),
					activitiestest.NewReadInput(m),
				)
				assert.Equal(t, row.fails, activitiestest.WritesPhaseFailed(decision))
			})
		}
	}
}

// All nodes are disconnected but still run. The provider queries another account or another cluster name by mistake, so
// the provider reports none of the instances. Millwright trusts the provider's answer only once the Node objects are
// gone as well.
func TestProviderThatReportsMostInstancesGoneIsNotTrusted(t *testing.T) {
	t.Parallel()
	const all = 9
	for _, hasNode := range []bool{true, false} {
		var objects []runtime.Object
		var machines []*v1alpha1.Machine
		for i := range all {
			name := fmt.Sprintf("x-%d", i)
			machines = append(machines, activitiestest.NewMachine(
				name,
				activitiestest.WithCreateAttempt,
				withUnhealthySince(time.Now().Add(-time.Minute)),
				func(m *v1alpha1.Machine) {
					m.Labels[v1alpha1.LabelNode], m.Status.NodeName, m.Spec.ProviderID = name, name, "fake:///"+name
					m.Status.Health.InstanceGoneAt = &activitiestest.OldTime
				},
			))
			objects = append(objects, machines[i])
			if hasNode {
				objects = append(objects, activitiestest.NewNode(
					activitiestest.WithNodeNotReady(time.Minute),
					activitiestest.WithProviderID("fake:///"+name),
					func(n *corev1.Node) { n.Name = name },
				))
			}
		}
		w := activitiestest.NewWorld(t, append(objects, activitiestest.NewClass())...)
		d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(machines[0]))
		assert.Equal(t, !hasNode, activitiestest.WritesPhaseFailed(d))
		require.NotNil(t, d.Health.Due)
		assert.Equal(t, "InstanceGone", d.Health.Due.Reason)
		if hasNode {
			assert.Contains(t, d.Health.Due.Message, "9 of 9 nodes look dead at once")
			assert.Contains(t, d.Health.Due.Message, "the provider says of 9 of 9 machines that it has no instance")
		}
	}
}

func TestNothingIsReplacedWhileHalfOfTheNodesAreDead(t *testing.T) {
	t.Parallel()
	now := time.Now()
	_, s, member := newDeploymentWithSet()
	for name, row := range map[string]struct {
		gone, well int // numbers of other machines without and with a healthy node; the machine under test has no node
		holds      bool
	}{
		"half of them":          {2, 3, true},
		"all of them":           {4, 0, true},
		"less than half":        {2, 4, false},
		"too few to judge from": {1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			alone := activitiestest.NewMachine("m", withUnhealthySince(now.Add(-time.Hour)))
			belongs := activitiestest.NewMachine("m", member, withUnhealthySince(now.Add(-time.Hour)))
			objects := append(activitiestest.NewMachinesWithGoneAndHealthyNodes(row.gone, row.well), activitiestest.NewClass())
			decision := activitiestest.DecideMachine(
				activitiestest.NewWorld(t, append(objects, alone)...),
				activitiestest.NewReadInput(alone),
			)
			assert.Equal(t, !row.holds, activitiestest.WritesPhaseFailed(decision))
			require.NotNil(t, decision.Health.Due, "what is held is said")
			assert.Equal(t, row.holds, decision.Health.Change == nil)
			if row.holds {
				assert.Contains(t, decision.Health.Due.Message, "look dead at once")
			}
			decision = activitiestest.DecideMachine(
				activitiestest.NewWorld(t, append(objects, belongs, s)...),
				activitiestest.NewReadInput(belongs),
			)
			assert.False(t, activitiestest.WritesPhaseFailed(decision))
			if row.holds {
				assert.Contains(t, decision.Health.Due.Message, "look dead at once")
			} else {
				assert.Contains(t, decision.Health.Due.Message, "replacement budget")
			}
		})
	}
	t.Run("a creation that took too long is no sign of that", func(t *testing.T) {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithNode,
			activitiestest.WithPhase(v1alpha1.MachinePending),
			withAge(time.Hour),
		)
		assert.True(
			t,
			activitiestest.WritesPhaseFailed(
				activitiestest.DecideMachine(
					activitiestest.NewWorld(
						t,
						append(activitiestest.NewMachinesWithGoneAndHealthyNodes(5, 0), m, activitiestest.NewClass())...),
					activitiestest.NewReadInput(m),
				),
			),
		)
	})
}

func TestTheRecoveryOfANodeIsRecorded(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-time.Hour).Truncate(time.Second)
	now := since.Add(2 * time.Hour)
	m := activitiestest.NewMachine("m", withUnhealthySince(since), activitiestest.WithReplacementDue("HealthTimeout"))
	d := activitiestest.DecideMachine(
		activitiestest.NewWorld(t, m, activitiestest.NewNode(), activitiestest.NewClass()),
		readInputAtTime(m, now),
	)
	require.NotNil(t, d.Health.Change)
	assert.Equal(t, "Running", d.Health.Change.Phase)
	assert.WithinDuration(t, since, d.Health.Clock.UnhealthySince, 0)
	assert.WithinDuration(t, now, d.Health.Clock.RecoveredAt, 0)
	require.NotNil(t, d.Health.Due, "it is not due any more")
	assert.False(t, d.Health.Due.True)
}
