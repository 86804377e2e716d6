// Tier: test. Objects of each kind pass through all components in this package; the tests with two installations and
// with a faulty cloud run in test-all.

//go:build integration

// Package chain tests the main function of Millwright, which is to create machines from MachineDeployments, with a real
// API server, a real Temporal and the virtual cloud.
package chain

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	os.Exit(rig.MainOnSharedStack(m, func(up *rig.Rig) { testRig = up }))
}

// The test runs the scenarios of MCM's own integration suite in the order of the suite.
func TestMCMScenarios(t *testing.T) {
	runMCMScenarios(t, "mcm", func(m *v1alpha1.Machine) string { return m.Name })
}

func TestMCMScenariosOnAFaultyCloud(t *testing.T) {
	before, err := testRig.Cloud.Behaviour(t.Context())
	require.NoError(t, err)
	require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		rig.MakeCloudFaulty(b)
		b.HonorClientTokens = false
		b.ReadStaleness = virtual.Duration(300 * time.Millisecond)
		b.AcceptLatency = virtual.Duration(200 * time.Millisecond)
	}))
	t.Cleanup(func() { require.NoError(t, testRig.Cloud.SetBehaviour(context.Background(), before)) })
	runMCMScenarios(t, "faulty-cloud", func(m *v1alpha1.Machine) string {
		all, err := testRig.Cloud.Instances(t.Context())
		require.NoError(t, err)
		for _, i := range all {
			if i.ProviderID == m.Spec.ProviderID {
				require.Equal(t, "ip-"+strings.ReplaceAll(i.Address, ".", "-"), i.NodeName)
				return i.NodeName
			}
		}
		return "?"
	})
}

// runMCMScenarios runs the scenarios. nodeName returns the name that the cloud gave to the node of a machine.
func runMCMScenarios(t *testing.T, namespace string, nodeName func(*v1alpha1.Machine) string) {
	testRig.CreateNamespace(t, namespace, "")
	machines := testRig.MachineClient.MachineV1alpha1().Machines(namespace)
	nodes := func() int {
		list, err := testRig.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items)
	}
	before := nodes()

	t.Run("create a machine", func(t *testing.T) {
		_, err := machines.Create(
			t.Context(),
			&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "lone-machine"}, Spec: rig.NewMachineSpec()},
			metav1.CreateOptions{},
		)
		require.NoError(t, err)
		rig.Eventually(t, "machine runs and its node is there", func() (bool, any) {
			m, err := machines.Get(t.Context(), "lone-machine", metav1.GetOptions{})
			require.NoError(t, err)
			return m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && nodes() == before+1, m.Status
		})
		m, err := machines.Get(t.Context(), "lone-machine", metav1.GetOptions{})
		require.NoError(t, err)
		require.Contains(t, m.Finalizers, v1alpha1.FinalizerMachine)
		require.Equal(t, nodeName(m), m.Labels[v1alpha1.LabelNode])
		rig.Eventually(t, "the node carries the machine's name: it is written after the phase", func() (bool, any) {
			node, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, m.Spec.ProviderID, node.Spec.ProviderID)
			return node.Labels[v1alpha1.LabelMachineName] == "lone-machine", node.Labels
		})
		require.Equal(t, "3", m.Annotations[v1alpha1.AnnotationMachinePriority])
		require.NotEmpty(t, m.Spec.ProviderID)
		require.Equal(t, v1alpha1.MachineStateSuccessful, m.Status.LastOperation.State)
		require.Nil(t, m.Status.CurrentOperation, "a calm machine has no operation")
	})
	t.Run("delete the machine", func(t *testing.T) {
		require.NoError(t, machines.Delete(t.Context(), "lone-machine", metav1.DeleteOptions{}))
		rig.Eventually(t, "machine and node are gone", func() (bool, any) {
			_, err := machines.Get(t.Context(), "lone-machine", metav1.GetOptions{})
			return apierrors.IsNotFound(err) && nodes() == before, err
		})
	})
	t.Run("delete a machine that is not there", func(t *testing.T) {
		require.True(t, apierrors.IsNotFound(machines.Delete(t.Context(), "lone-machine", metav1.DeleteOptions{})))
		require.Equal(t, before, nodes())
	})

	pool := testRig.CreatePool(t, namespace, "pool", 0)
	t.Run("a deployment of none makes one set", func(t *testing.T) {
		rig.Eventually(t, "one set, seen by the deployment", func() (bool, any) {
			d := pool.Deployment(t)
			return len(pool.Sets(t)) == 1 && d.Status.ObservedGeneration == d.Generation, d.Status
		})
		require.Empty(t, pool.Machines(t))
	})
	t.Run("scale to 1", func(t *testing.T) {
		pool.Scale(t, 1)
		pool.AwaitRunningMachines(t, 1)
		d := pool.Deployment(t)
		require.Len(t, d.Status.Conditions, 2)
		reasons := map[v1alpha1.MachineDeploymentConditionType]string{}
		for _, c := range d.Status.Conditions {
			require.Equal(t, v1alpha1.ConditionTrue, c.Status)
			reasons[c.Type] = c.Reason
		}
		require.Equal(t, map[v1alpha1.MachineDeploymentConditionType]string{
			v1alpha1.MachineDeploymentAvailable:   v1alpha1.ReasonMinimumReplicasAvailable,
			v1alpha1.MachineDeploymentProgressing: v1alpha1.ReasonNewMachineSetAvailable,
		}, reasons)
		require.Equal(t, before+1, nodes())
	})
	t.Run("scale to 6", func(t *testing.T) {
		pool.Scale(t, 6)
		pool.AwaitRunningMachines(t, 6)
		require.Equal(t, before+6, nodes())
	})
	t.Run("scale to 2", func(t *testing.T) {
		pool.Scale(t, 2)
		pool.AwaitRunningMachines(t, 2)
		rig.Eventually(t, "the nodes are gone too", func() (bool, any) { return nodes() == before+2, nodes() })
		require.Len(t, pool.ProviderIDs(t), 2)
	})
	t.Run("another class and 4 replicas in one change", func(t *testing.T) {
		other := rig.NewClass(pool.Namespace, "")
		other.Name = "other"
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineClasses(pool.Namespace).
			Create(t.Context(), other, metav1.CreateOptions{})
		require.NoError(t, err)
		pool.Patch(t, `{"spec":{"template":{"spec":{"class":{"name":"other"}}},"replicas":4}}`)
		pool.AwaitRunningMachines(t, 4)
		for _, m := range pool.Machines(t) {
			require.Equal(t, "other", m.Spec.Class.Name)
		}
		require.Equal(t, "2", pool.Deployment(t).Annotations[v1alpha1.AnnotationRevision])
		require.Equal(t, before+4, nodes())
	})
	t.Run("delete the deployment", func(t *testing.T) {
		pool.Delete(t)
		pool.AwaitPoolGone(t)
		require.Equal(t, before, nodes())
	})
	t.Run("nothing is left at the cloud", func(t *testing.T) {
		instances, err := testRig.Cloud.Instances(t.Context())
		require.NoError(t, err)
		for _, i := range instances {
			require.NotContains(t, i.Tags.Class, namespace+"/")
		}
		stats, err := testRig.Cloud.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.DuplicateInstances)
	})
}

// A machine is deleted while the cloud creates its instance. The deletion does not wait for the creation, and leaves
// nothing behind.
func TestCreationIsInterruptedByADeletion(t *testing.T) {
	// The creation of an instance takes longer than a test waits.
	testRig.CreateNamespace(t, "interrupted", `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"24h"}`)
	pool := testRig.CreatePool(t, "interrupted", "interrupted", 3)
	rig.Eventually(t, "three creations are under way", func() (bool, any) {
		steps := 0
		for _, m := range pool.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil && o.Step == "create-instance" && o.Deadline != nil &&
				o.WorkflowID != "" {
				steps++
			}
		}
		return steps == 3, steps
	})
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// If a MachineClass or a Secret is missing, the affected object gets a condition and an event. The object recovers when
// the missing object is created. A set creates no machine while its class does not exist. If the machine has no set,
// the condition is on the machine itself.
func TestMissingClassAndSecretAreShown(t *testing.T) {
	const namespace = "missing"
	testRig.CreateNamespace(t, namespace, "")
	classes, secrets := testRig.MachineClient.MachineV1alpha1().
		MachineClasses(namespace),
		testRig.Kube.CoreV1().
			Secrets(namespace)
	machines := testRig.MachineClient.MachineV1alpha1().Machines(namespace)
	testRig.DeleteClassAndSecret(t, namespace)
	pool := testRig.CreatePool(t, namespace, "missing", 1)
	_, err := machines.Create(
		t.Context(),
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "alone", Namespace: namespace}, Spec: rig.NewMachineSpec()},
		metav1.CreateOptions{},
	)
	require.NoError(t, err)
	alone := func() []v1alpha1.Machine {
		m, err := machines.Get(t.Context(), "alone", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return []v1alpha1.Machine{*m}
	}
	pooled := func() []v1alpha1.Machine { return pool.Machines(t) }

	shows := func(of func() []v1alpha1.Machine, reason, message string) {
		t.Helper()
		rig.Eventually(t, "the machine says "+reason, func() (bool, any) {
			machines := of()
			if len(machines) != 1 {
				return false, len(machines)
			}
			for _, c := range machines[0].Status.Conditions {
				if c.Type == v1alpha1.MachineClassReady && c.Reason == reason {
					return c.Message == message, c.Message
				}
			}
			return false, machines[0].Status
		})
		rig.Eventually(t, "an event says "+reason, func() (bool, any) {
			events, err := testRig.Kube.CoreV1().
				Events(namespace).
				List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
			require.NoError(t, err)
			return len(events.Items) > 0 && events.Items[0].Message == message, events.Items
		})
	}
	says := func(kind v1alpha1.MachineSetConditionType, status v1alpha1.ConditionStatus, reason, message string) {
		t.Helper()
		rig.Eventually(t, "the set says "+reason, func() (bool, any) {
			sets := pool.Sets(t)
			if len(sets) != 1 {
				return false, len(sets)
			}
			for _, c := range sets[0].Status.Conditions {
				if c.Type == kind {
					return c.Status == status && c.Reason == reason && c.Message == message, c
				}
			}
			return false, sets[0].Status
		})
	}
	says(v1alpha1.MachineSetMachinesCreated, v1alpha1.ConditionFalse, "TemplateNotFound", "MachineClass does not exist")
	says(
		v1alpha1.MachineSetScalingUp,
		v1alpha1.ConditionTrue,
		"ScalingUp",
		"Scaling up from 0 to 1 replicas is blocked because:\n* MachineClass does not exist",
	)
	require.Empty(t, pooled())
	shows(alone, v1alpha1.ReasonClassNotFound, "MachineClass small does not exist in namespace missing")

	_, err = classes.Create(t.Context(), rig.NewClass(namespace, ""), metav1.CreateOptions{})
	require.NoError(t, err)
	says(v1alpha1.MachineSetMachinesCreated, v1alpha1.ConditionTrue, "MachinesCreated", "")
	for _, machine := range []func() []v1alpha1.Machine{pooled, alone} {
		shows(machine, v1alpha1.ReasonSecretNotFound, "Secret missing/small of MachineClass small does not exist")
	}

	_, err = secrets.Create(t.Context(), rig.NewClassSecret(namespace), metav1.CreateOptions{})
	require.NoError(t, err)
	pool.AwaitRunningMachines(t, 1)
	require.NoError(t, machines.Delete(t.Context(), "alone", metav1.DeleteOptions{}))
	rig.Eventually(t, "the machine without a set is gone", func() (bool, any) { return len(alone()) == 0, alone() })
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}

// A machine names a class that never existed. Millwright made no create call for the machine, so no cloud has an
// instance of the machine.
func TestMachineWithMissingClassCanBeDeleted(t *testing.T) {
	t.Parallel()
	_, err := testRig.Kube.CoreV1().
		Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "typo"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	machines := testRig.MachineClient.MachineV1alpha1().Machines("typo")
	_, err = machines.Create(
		t.Context(),
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "typo"}, Spec: rig.NewMachineSpec()},
		metav1.CreateOptions{},
	)
	require.NoError(t, err)
	rig.Eventually(t, "its class is missing", func() (bool, any) {
		m, err := machines.Get(t.Context(), "typo", metav1.GetOptions{})
		require.NoError(t, err)
		return m.Status.CurrentStatus.Phase == v1alpha1.MachineCrashLoopBackOff &&
			m.Status.LastOperation.ErrorCode == v1alpha1.ReasonClassNotFound, m.Status
	})
	require.NoError(t, machines.Delete(t.Context(), "typo", metav1.DeleteOptions{}))
	rig.Eventually(t, "it goes without its class", func() (bool, any) {
		m, err := machines.Get(t.Context(), "typo", metav1.GetOptions{})
		return apierrors.IsNotFound(err), m.Status
	})
}

// If the node of a running machine becomes not ready, the machine's phase is Unknown. If the node is ready again, the
// phase is Running.
func TestNodeLossSetsMachinePhaseUnknown(t *testing.T) {
	testRig.CreateNamespace(t, "lost", "")
	pool := testRig.CreatePool(t, "lost", "lost", 1)
	pool.AwaitRunningMachines(t, 1)
	node := pool.Machines(t)[0].Labels[v1alpha1.LabelNode]
	phase := func(want v1alpha1.MachinePhase) {
		t.Helper()
		rig.Eventually(t, "phase "+string(want), func() (bool, any) {
			s := pool.Machines(t)[0].Status
			return s.CurrentStatus.Phase == want, s.CurrentStatus.Phase
		})
	}
	label := func(value string) {
		_, err := testRig.Stack.RunKubectl(
			t.Context(),
			"label",
			"node",
			node,
			"--overwrite",
			"node-not-ready.stage.kwok.x-k8s.io"+value,
		)
		require.NoError(t, err)
	}
	label("=true")
	phase(v1alpha1.MachineUnknown)
	label("-")
	phase(v1alpha1.MachineRunning)
	pool.Delete(t)
	pool.AwaitPoolGone(t)
}
