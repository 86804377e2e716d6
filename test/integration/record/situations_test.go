//go:build integration

package record

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// awaitDrainedReason waits until the condition Drained of a machine has this reason.
func awaitDrainedReason(t *testing.T, p *rig.Pool, name, reason string) {
	t.Helper()
	awaitMachine(t, p, "Drained: "+reason, func(m v1alpha1.Machine) bool {
		return m.Name == name && slices.ContainsFunc(m.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.MachineDrained && c.Reason == reason
		})
	})
}

func awaitMachineGone(t *testing.T, p *rig.Pool, name string) {
	t.Helper()
	rig.Eventually(t, "machine "+name+" is gone", func() (bool, any) {
		machines := p.Machines(t)
		return !slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Name == name }), len(machines)
	})
}

// setTemplateEdition changes the label edition of a pool's template.
func setTemplateEdition(t *testing.T, p *rig.Pool, value string) {
	t.Helper()
	p.Patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":%q}}}}}`, value))
}

func revisionOfDeployment(t *testing.T, d *v1alpha1.MachineDeployment) int64 {
	t.Helper()
	n, err := strconv.ParseInt(d.Annotations[v1alpha1.AnnotationRevision], 10, 64)
	require.NoError(t, err)
	return n
}

// labelNode labels a node.
func labelNode(t *testing.T, node string, labels ...string) {
	t.Helper()
	_, err := testRig.Stack.RunKubectl(t.Context(), append([]string{"label", "--overwrite", "node", node}, labels...)...)
	require.NoError(t, err)
}

const nodeNotReadyLabel, nodeNotReadyLabelRemoval = "node-not-ready.stage.kwok.x-k8s.io=true", "node-not-ready.stage.kwok.x-k8s.io-"

// placePod creates a pod on a node.
func placePod(t *testing.T, p *rig.Pool, node string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare"},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			Containers:                    []corev1.Container{{Name: "c", Image: "none"}},
			TerminationGracePeriodSeconds: new(int64),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	rig.Eventually(t, "a pod on the node", func() (bool, any) {
		// the service account of the namespace may not exist yet
		_, err := testRig.Kube.CoreV1().Pods(p.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil, err
	})
}

// A node is drained although its machine stays: before an update in place, and after a preserved machine has failed.
func TestRecordDrainsOfMachinesThatStay(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "renewed", "")
	p := testRig.CreatePool(t, "renewed", "renewed", 1)
	p.AwaitRunningMachines(t, 1)
	m := p.Machines(t)[0]
	placePod(t, p, m.Labels[v1alpha1.LabelNode])
	labelNode(
		t,
		m.Labels[v1alpha1.LabelNode],
		v1alpha1.LabelCandidateForUpdate+"=true",
		v1alpha1.LabelSelectedForUpdate+"=true",
	)
	awaitMachinePhase(t, p, v1alpha1.MachineInPlaceUpdating)
	saveHistory(t, "machine/updating-in-place", QueryForKind(run.KindMachine, "renewed")+OpenRunsCondition)
	labelNode(t, m.Labels[v1alpha1.LabelNode], v1alpha1.LabelUpdateResult+"="+v1alpha1.ValueUpdateSuccessful)
	awaitMachinePhase(t, p, v1alpha1.MachineRunning)
	saveHistory(t, "machine/drained-and-updated", QueryForKind(run.KindMachine, "renewed")+EndedRunsCondition)
	saveHistory(t, "drain/for-an-update", QueryForKind(run.KindDrain, "renewed")+EndedRunsCondition)

	testRig.CreateNamespace(t, "spared", "")
	q := testRig.CreatePool(t, "spared", "spared", 1, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: 3 * time.Second},
		}
	})
	q.AwaitRunningMachines(t, 1)
	spared := q.Machines(t)[0]
	placePod(t, q, spared.Labels[v1alpha1.LabelNode])
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"annotate",
		"machine",
		"-n",
		"spared",
		spared.Name,
		v1alpha1.AnnotationPreserve+"=when-failed",
	)
	require.NoError(t, err)
	labelNode(t, spared.Labels[v1alpha1.LabelNode], nodeNotReadyLabel)
	awaitMachinePhase(t, q, v1alpha1.MachineFailed)
	rig.Eventually(t, "its node is drained", func() (bool, any) {
		list, err := testRig.Kube.CoreV1().Pods("spared").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items) == 0, len(list.Items)
	})
	saveHistory(t, "drain/for-a-preservation", QueryForKind(run.KindDrain, "spared")+EndedRunsCondition)
	labelNode(t, spared.Labels[v1alpha1.LabelNode], nodeNotReadyLabelRemoval)
	awaitMachinePhase(t, q, v1alpha1.MachineRunning)
	_, err = testRig.Stack.RunKubectl(
		t.Context(),
		"annotate",
		"machine",
		"-n",
		"spared",
		spared.Name,
		v1alpha1.AnnotationPreserve+"=false",
		"--overwrite",
	)
	require.NoError(t, err)
	saveHistory(t, "machine/preserved-and-recovered", QueryForKind(run.KindMachine, "spared")+EndedRunsCondition)
}

// A set preserves a machine that has failed, and a deployment marks the machine that the cluster autoscaler has chosen.
func TestRecordPreservedAndMarkedMachines(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "chosen", "")
	p := testRig.CreatePool(t, "chosen", "chosen", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.AutoPreserveFailedMachineMax = 1
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: 3 * time.Second},
		}
	})
	p.AwaitRunningMachines(t, 3)
	machines := p.Machines(t)
	labelNode(t, machines[0].Labels[v1alpha1.LabelNode], nodeNotReadyLabel)
	awaitMachine(t, p, "its set preserves it", func(m v1alpha1.Machine) bool {
		return m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveAuto
	})
	saveHistory(t, "machineset/preserving", QueryForKind(run.KindMachineSet, "chosen"), "RequestPreservation")
	chosen := machines[1].Name + "~" + time.Now().UTC().Format(time.RFC3339)
	p.Patch(
		t,
		fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":2}}`, v1alpha1.AnnotationTriggerDeletion, chosen),
	)
	awaitMachineGone(t, p, machines[1].Name)
	saveHistory(t, "machinedeployment/marking", QueryForKind(run.KindMachineDeployment, "chosen"), "MarkMachines")
}

// An instance vanishes in the cloud, so the machine is replaced before its health timeout. Another machine's node joins
// with a bootstrap token.
func TestRecordAVanishedInstanceAndABootstrapToken(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "lost", "")
	p := testRig.CreatePool(t, "lost", "lost", 2)
	p.AwaitRunningMachines(t, 2)
	m := p.Machines(t)[0]
	require.NoError(t, testRig.Cloud.MakeInstanceVanish(t.Context(), admin.VanishRequest{Machine: m.Name}))
	rig.Eventually(t, "the node has no kubelet", func() (bool, any) {
		n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
		require.NoError(t, err)
		return n.Labels["type"] == "", n.Labels
	})
	silent := fmt.Appendf(
		nil,
		`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`,
		time.Now().UTC().Format(time.RFC3339),
	)
	_, err := testRig.Kube.CoreV1().
		Nodes().
		Patch(t.Context(), m.Labels[v1alpha1.LabelNode], types.StrategicMergePatchType, silent, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	awaitMachineGone(t, p, m.Name)
	saveHistory(
		t,
		"machine/vanished",
		QueryForKind(run.KindMachine, "lost")+machineQueryCondition(m.Name)+EndedRunsCondition,
	)

	testRig.CreateNamespace(t, "joined", "")
	_, err = testRig.Kube.CoreV1().
		Secrets("joined").
		Patch(t.Context(), "small", types.MergePatchType, []byte(`{"stringData":{"userData":"join <<BOOTSTRAP_TOKEN>>"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	q := testRig.CreatePool(t, "joined", "joined", 1)
	q.AwaitRunningMachines(t, 1)
	saveHistory(t, "machine/joined-with-a-token", QueryForKind(run.KindMachine, "joined")+EndedRunsCondition)
}

// A set adopts a machine, releases it, and follows its template. The API server refuses a new machine of the set, and a
// query reaches the set while it waits.
func TestRecordSets(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "owned", "")
	p := testRig.CreatePool(t, "owned", "owned", 2)
	p.AwaitRunningMachines(t, 2)
	machines := testRig.MachineClient.MachineV1alpha1().Machines("owned")
	m := p.Machines(t)[0]
	change := func(patch string) {
		t.Helper()
		_, err := machines.Patch(t.Context(), m.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	// done waits for the end of the set's run, so that the next situation has its own history
	done := func(situation, activity string) {
		t.Helper()
		rig.Eventually(t, "the set is calm", func() (bool, any) {
			open := testRig.CountOpenRuns(t, "owned")
			return open["MachineSet"] == 0, open
		})
		saveHistory(t, "machineset/"+situation, QueryForKind(run.KindMachineSet, "owned")+EndedRunsCondition, activity)
	}
	change(`{"metadata":{"labels":{"pool":"elsewhere"}}}`)
	p.AwaitRunningMachines(t, 2)
	done("released", "ReleaseMachines")
	change(`{"metadata":{"labels":{"pool":"owned"}}}`)
	rig.Eventually(t, "the surplus machine is gone", func() (bool, any) {
		list, err := machines.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items) == 2, len(list.Items)
	})
	done("adopted", "AdoptMachines")
	p.Patch(t, `{"spec":{"template":{"spec":{"drainTimeout":"5h"}}}}`)
	rig.Eventually(t, "the machines follow the template", func() (bool, any) {
		all := p.Machines(t)
		return !slices.ContainsFunc(all, func(m v1alpha1.Machine) bool {
			return m.Spec.MachineConfiguration == nil || m.Spec.MachineDrainTimeout == nil ||
				m.Spec.MachineDrainTimeout.Hours() != 5
		}), all
	})
	done("synced", "SyncMachines")

	testRig.CreateNamespace(t, "refused", "")
	testRig.RefuseMachines(t, "refused", `object.metadata.namespace != "refused"`, "no machine here")
	q := testRig.CreatePool(t, "refused", "refused", 1)
	rig.Eventually(t, "the set says so", func() (bool, any) {
		sets := q.Sets(t)
		return len(sets) == 1 && slices.ContainsFunc(sets[0].Status.Conditions, func(c v1alpha1.MachineSetCondition) bool {
			return c.Type == v1alpha1.MachineSetReplicaFailure
		}), sets
	})
	saveHistory(t, "machineset/refused", QueryForKind(run.KindMachineSet, "refused")+OpenRunsCondition)
	testRig.AllowMachines(t, "refused")
	q.AwaitRunningMachines(t, 1)
}

// TestRecordRollouts records rollouts that update nodes in place, that roll back automatically, and that delete old
// machines first.
func TestRecordRollouts(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "inplace", "")
	p := testRig.CreatePool(t, "inplace", "inplace", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
				OrchestrationType: v1alpha1.OrchestrationTypeAuto,
				UpdateConfiguration: v1alpha1.UpdateConfiguration{
					MaxSurge:       new(intstr.FromInt32(0)),
					MaxUnavailable: new(intstr.FromInt32(1)),
				},
			},
		}
	})
	p.AwaitRunningMachines(t, 3)
	setTemplateEdition(t, p, "2")
	saved := false
	rig.Eventually(t, "all machines are updated in place", func() (bool, any) {
		for _, n := range p.Nodes(t) {
			if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason == v1alpha1.ReasonReadyForUpdate
			}) {
				continue
			}
			if !saved {
				saved = true
				saveHistory(t, "rollout/updating-in-place", QueryForKind(run.KindRollout, "inplace")+OpenRunsCondition)
			}
			n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
			if _, err := testRig.Kube.CoreV1().
				Nodes().
				Update(t.Context(), &n, metav1.UpdateOptions{}); !apierrors.IsConflict(
				err,
			) {
				require.NoError(t, err)
			}
		}
		return len(
				testRig.WorkflowRuns(t, QueryForKind(run.KindRollout, "inplace")+EndedRunsCondition),
			) > 0, p.Deployment(
				t,
			).Status
	})
	saveHistory(t, "rollout/updated-in-place", QueryForKind(run.KindRollout, "inplace")+EndedRunsCondition)

	testRig.CreateNamespace(t, "returned", "")
	q := testRig.CreatePool(
		t,
		"returned",
		"returned",
		2,
		func(d *v1alpha1.MachineDeployment) { d.Spec.ProgressDeadlineSeconds = new(int32(10)) },
	)
	testRig.CreatePolicy(
		t,
		"returned",
		"returned",
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
	q.AwaitRunningMachines(t, 2)
	never := rig.NewClass("returned", `{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	never.Name = "never"
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses("returned").
		Create(t.Context(), never, metav1.CreateOptions{})
	require.NoError(t, err)
	q.Patch(t, `{"spec":{"template":{"spec":{"class":{"name":"never"}}}}}`)
	rig.Eventually(t, "it goes back", func() (bool, any) {
		list := testRig.WorkflowRuns(t, QueryForKind(run.KindRollout, "returned")+EndedRunsCondition)
		return len(list) > 0, q.Deployment(t).Status.Conditions
	})
	saveHistory(t, "rollout/rolled-back", QueryForKind(run.KindRollout, "returned")+EndedRunsCondition)

	testRig.CreateNamespace(t, "recreated", "")
	s := testRig.CreatePool(t, "recreated", "recreated", 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}
	})
	s.AwaitRunningMachines(t, 2)
	setTemplateEdition(t, s, "2")
	rig.Eventually(t, "all machines are new", func() (bool, any) {
		list := testRig.WorkflowRuns(t, QueryForKind(run.KindRollout, "recreated")+` AND ExecutionStatus = "Completed"`)
		return len(list) == 1, list
	})
	saveHistory(t, "rollout/recreated", QueryForKind(run.KindRollout, "recreated"))
}

// TestRecordClasses records a class that gets its finalizers, a class that waits for its machines, and a check of a
// class's provider. The test also records sweeps that find nothing, that are held, or that find no class.
func TestRecordClasses(t *testing.T) {
	SkipUnlessEnabled(t)
	t.Parallel()
	testRig.CreateNamespace(t, "classes", "")
	p := testRig.CreatePool(t, "classes", "classes", 2)
	p.AwaitRunningMachines(t, 2)
	saveHistory(t, "machineclass/guarded", QueryForKind(run.KindMachineClass, "classes")+EndedRunsCondition)
	testRig.RunMillwright(
		t,
		"provider",
		"check",
		"classes/small",
		"--cluster-name",
		string(rig.Installation),
		"--temporal-address",
		testRig.Stack.TemporalAddress(),
	)
	saveHistory(t, "providercheck/answered", `WorkflowType = "ProviderCheck"`+EndedRunsCondition)

	sweeps := testRig.CreateSweepSchedule(t, "classes", time.Second)
	sweep := func(situation string) {
		t.Helper()
		had := len(testRig.WorkflowRuns(t, QueryForKind(run.KindOrphanCollection, "classes")+EndedRunsCondition))
		require.NoError(t, sweeps.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
		rig.Eventually(t, "the sweep has ended", func() (bool, any) {
			list := testRig.WorkflowRuns(t, QueryForKind(run.KindOrphanCollection, "classes")+EndedRunsCondition)
			if len(list) <= had {
				return false, list
			}
			saveHistory(t, "orphancollection/"+situation, fmt.Sprintf("WorkflowId = %q", list[0].Execution.WorkflowId))
			return true, nil
		})
	}
	sweep("nothing-found")
	for i := range 6 {
		stray := testRig.CreateInstanceByHand(t, "classes", "stray-"+strconv.Itoa(i))
		// after this wait, the instance is old enough for a sweep
		time.Sleep(time.Until(stray.Created.Add(time.Second)))
	}
	sweep("held")

	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().
			MachineClasses("classes").
			Delete(t.Context(), "small", metav1.DeleteOptions{}),
	)
	saveHistory(t, "machineclass/awaiting-machines", QueryForKind(run.KindMachineClass, "classes")+OpenRunsCondition)
	p.Scale(t, 0)
	rig.Eventually(t, "the class is gone", func() (bool, any) {
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineClasses("classes").
			Get(t.Context(), "small", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	sweep("without-a-class")
}
