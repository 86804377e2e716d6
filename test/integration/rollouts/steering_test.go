//go:build integration

package rollouts

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows"
)

// steer gives the deployment a verb by an update of its workflow, and returns the answer.
func (f fleet) steer(t *testing.T, in workflows.VerbInput) string {
	t.Helper()
	d := f.Deployment(t)
	id := workflows.ID(workflows.KindMachineDeployment, activities.Ref{Namespace: d.Namespace, Name: d.Name, UID: string(d.UID)})
	in.Actor = "ann"
	handle, err := r.Temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: workflows.MessageVerb, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{in},
	})
	require.NoError(t, err)
	var answer string
	require.NoError(t, handle.Get(t.Context(), &answer))
	return answer
}

// awaitReason waits until Progressing has this reason.
func (f fleet) awaitReason(t *testing.T, reason string, within time.Duration) {
	t.Helper()
	rig.Eventually(t, within, "Progressing: "+reason, func() (bool, any) {
		c := f.condition(t, v1alpha1.MachineDeploymentProgressing)
		return c.Reason == reason, c
	})
}

// awaitOutcomes waits until the rollouts of the fleet have ended like this, in this order.
func (f fleet) awaitOutcomes(t *testing.T, want ...string) {
	t.Helper()
	rig.Eventually(t, 30*time.Second, "the rollouts have their results", func() (bool, any) { n := len(f.outcomes(t)); return n == len(want), n })
	var got []string
	for _, o := range f.outcomes(t) {
		got = append(got, o.Outcome)
	}
	require.Equal(t, want, got)
}

// A rollout is paused for a while, in which the deployment is scaled, and goes on.
func TestU10_PausedAndResumed(t *testing.T) {
	f := newFleet(t, "paused", 10, rolling(2, 0))
	verdict := f.watch(t, func() promise { return promise{most: 14, least: 10} })
	f.change(t, "2")
	rig.Eventually(t, time.Minute, "the rollout has begun", func() (bool, any) { n := f.updated(t, "2"); return n >= 2, n })
	require.Contains(t, f.steer(t, workflows.VerbInput{Verb: "pause", Reason: "lunch"}), "pause")
	f.awaitReason(t, v1alpha1.ReasonDeploymentPaused, 20*time.Second)
	rig.Eventually(t, 30*time.Second, "what was under way is over", func() (bool, any) {
		open := r.OpenWorkflows(t)
		return open["Machine"] == 0, open
	})
	before := f.updated(t, "2")
	f.Scale(t, 12)
	rig.Eventually(t, time.Minute, "it is scaled while it is paused", func() (bool, any) {
		s := f.Deployment(t).Status
		return s.AvailableReplicas >= 12, s
	})
	grown := f.updated(t, "2")
	require.LessOrEqual(t, grown, before+2)
	time.Sleep(5 * time.Second) // nothing is to happen: there is nothing to wait for
	require.Equal(t, grown, f.updated(t, "2"), "no machine is replaced while it is paused")
	rig.Eventually(t, 20*time.Second, "the paused rollout is listed as stuck", func() (bool, any) {
		list := r.Workflows(t, `Stuck = true AND Stage = "paused" AND MachineNamespace = "paused"`)
		return len(list) == 1, list
	})
	f.steer(t, workflows.VerbInput{Verb: "resume", Reason: "back"})
	f.awaitEdition(t, "2", 12, 2*time.Minute)
	verdict()
	f.awaitOutcomes(t, workflows.OutcomeCompleted)
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

// A rollout is cancelled: it stays where it is, also after Temporal has lost all its data. Then it goes back, and forward again.
func TestN18_CancelledRolledBackAndUndone(t *testing.T) {
	f := newFleet(t, "cancelled", 8, rolling(2, 0))
	verdict := f.watch(t, func() promise { return promise{most: 10, least: 8} })
	f.change(t, "2")
	rig.Eventually(t, time.Minute, "the rollout has begun", func() (bool, any) { n := f.updated(t, "2"); return n >= 2, n })
	f.steer(t, workflows.VerbInput{Verb: "cancel", Reason: "the image is bad"})
	f.awaitReason(t, v1alpha1.ReasonRolloutHeld, 20*time.Second)
	f.awaitOutcomes(t, workflows.OutcomeCancelled)
	require.Contains(t, f.Deployment(t).Annotations[v1alpha1.AnnotationRolloutHold], "ann")
	rig.Eventually(t, 30*time.Second, "what was under way is over", func() (bool, any) {
		open := r.OpenWorkflows(t)
		return open["Machine"] == 0, open
	})
	held := f.updated(t, "2")
	r.WipeTemporal(t)
	time.Sleep(10 * time.Second) // nothing is to happen: there is nothing to wait for
	require.Equal(t, held, f.updated(t, "2"), "the hold survives the loss of Temporal's data")

	f.Patch(t, `{"spec":{"rollbackTo":{"revision":1}}}`)
	f.awaitEdition(t, "", 8, 2*time.Minute)
	d := f.Deployment(t)
	require.Nil(t, d.Spec.RollbackTo)
	require.Equal(t, "3", d.Annotations[v1alpha1.AnnotationRevision], "the old template has a new number")
	verdict()

	f.change(t, "3")
	rig.Eventually(t, time.Minute, "the rollout has begun", func() (bool, any) { n := f.updated(t, "3"); return n >= 2, n })
	f.steer(t, workflows.VerbInput{Verb: "cancel", Reason: "no", Back: true})
	f.awaitEdition(t, "", 8, 2*time.Minute)
	rig.Eventually(t, 20*time.Second, "it ended as rolled back, and the one to the older set is complete", func() (bool, any) {
		results := f.outcomes(t)
		n := len(results)
		return n > 1 && results[n-2].Outcome == workflows.OutcomeRolledBack && results[n-1].Outcome == workflows.OutcomeCompleted, results
	})
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

// Stages: a tenth waits for a person, a half for the clock. A rollout whose machines fail goes back by itself.
func TestStagesAndAutomaticRollback(t *testing.T) {
	f := newFleet(t, "staged", 10, rolling(2, 0), func(d *v1alpha1.MachineDeployment) {
		d.Spec.ProgressDeadlineSeconds = new(int32(600))
		d.Spec.Rollout = &v1alpha1.RolloutPolicy{
			Steps: []v1alpha1.RolloutStep{
				{Replicas: intstr.FromString("10%"), Approve: true}, {Replicas: intstr.FromInt32(5), Wait: &metav1.Duration{Duration: 3 * time.Second}},
			},
			AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: new(int32)},
		}
	})
	f.change(t, "2")
	f.awaitReason(t, v1alpha1.ReasonRolloutWaiting, time.Minute)
	rig.Eventually(t, 20*time.Second, "one machine in all is of the new template", func() (bool, any) { n := f.updated(t, "2"); return n == 1, n })
	require.Contains(t, f.steer(t, workflows.VerbInput{Verb: "approve", Reason: "looks well"}), "1")
	f.awaitEdition(t, "2", 10, 2*time.Minute)
	require.Equal(t, int32(2), f.Deployment(t).Status.Rollout.Step)

	f.Patch(t, `{"spec":{"template":{"spec":{"creationTimeout":"3s","class":{"name":"broken"}}},"rollout":{"steps":null}}}`)
	broken := rig.Class("staged", `{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	broken.Name = "broken"
	_, err := r.Machines.MachineV1alpha1().MachineClasses("staged").Create(t.Context(), broken, metav1.CreateOptions{})
	require.NoError(t, err)
	rig.Eventually(t, 2*time.Minute, "it goes back by itself", func() (bool, any) {
		d := f.Deployment(t)
		return d.Spec.Template.Spec.Class.Name == "small", d.Status.Rollout
	})
	f.Patch(t, `{"spec":{"template":{"spec":{"creationTimeout":null}}}}`)
	f.awaitEdition(t, "2", 10, 2*time.Minute)
	require.True(t, f.Deployment(t).Status.Rollout.Automatic)
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

func strategy(kind v1alpha1.MachineDeploymentStrategyType) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy.Type = kind }
}

// Recreate: no machine of the new template before the last old one is gone.
func TestU7_D7_Recreate(t *testing.T) {
	f := newFleet(t, "recreated", 5, strategy(v1alpha1.RecreateMachineDeploymentStrategyType))
	verdict := f.watch(t, func() promise { return promise{most: 5} })
	f.change(t, "2")
	rig.Eventually(t, time.Minute, "the first new machine", func() (bool, any) {
		machines, updated := len(f.Machines(t)), f.updated(t, "2")
		require.False(t, updated > 0 && updated < machines, "both templates at a time")
		return updated > 0, machines
	})
	f.awaitEdition(t, "2", 5, time.Minute)
	verdict()
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

// OnDelete: an old machine stays until somebody deletes it.
func TestOnDelete(t *testing.T) {
	f := newFleet(t, "patient", 3, strategy(v1alpha1.OnDeleteMachineDeploymentStrategyType))
	f.change(t, "2")
	rig.Eventually(t, 20*time.Second, "the rollout waits", func() (bool, any) {
		list := r.Workflows(t, `WorkflowType = "Rollout" AND ExecutionStatus = "Running" AND MachineNamespace = "patient"`)
		return len(list) == 1 && len(f.Sets(t)) == 2, len(list)
	})
	for n := range 3 {
		require.Equal(t, n, f.updated(t, "2"))
		for _, m := range f.Machines(t) {
			if m.Labels["edition"] == "" {
				require.NoError(t, r.Machines.MachineV1alpha1().Machines("patient").Delete(t.Context(), m.Name, metav1.DeleteOptions{}))
				break
			}
		}
		rig.Eventually(t, time.Minute, "another one comes in its place", func() (bool, any) {
			machines := f.Machines(t)
			return len(machines) == 3 && f.updated(t, "2") == n+1 && f.Deployment(t).Status.ReadyReplicas == 3, len(machines)
		})
	}
	f.awaitEdition(t, "2", 3, time.Minute)
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

// What a deployment changes without a rollout reaches its machines, and makes none anew.
func TestU23_NodeTemplateReachesMachinesWithoutARollout(t *testing.T) {
	f := newFleet(t, "synced", 3, rolling(1, 0))
	names := map[string]bool{}
	for _, m := range f.Machines(t) {
		names[m.Name] = true
	}
	f.Patch(t, `{"metadata":{"annotations":{"machine.sapcloud.io/last-deployment-replica-change-by-scaler-time":"2026-01-01T00:00:00Z"}},
		"spec":{"minReadySeconds":1,"template":{"spec":{"drainTimeout":"7m","nodeTemplate":{"metadata":{"labels":{"tier":"gold"}}}}}}}`)
	rig.Eventually(t, 30*time.Second, "nodes have the label, machines the timeout", func() (bool, any) {
		gold := 0
		for _, n := range f.Nodes(t) {
			if n.Labels["tier"] == "gold" {
				gold++
			}
		}
		for _, m := range f.Machines(t) {
			if m.Spec.MachineConfiguration == nil || m.Spec.MachineDrainTimeout == nil || m.Spec.MachineDrainTimeout.Duration != 7*time.Minute {
				return false, m.Name
			}
		}
		return gold == 3, gold
	})
	sets := f.Sets(t)
	require.Len(t, sets, 1)
	require.Equal(t, int32(1), sets[0].Spec.MinReadySeconds)
	require.Equal(t, "2026-01-01T00:00:00Z", sets[0].Annotations[v1alpha1.AnnotationLastScalerChange])
	for _, m := range f.Machines(t) {
		require.True(t, names[m.Name], "the same machines")
	}
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

// The autoscaler names machines and takes the size down, in one write: exactly these go.
func TestN19_U13_TheAutoscalerChoosesMachinesOfADeployment(t *testing.T) {
	f := newFleet(t, "scaled", 8, rolling(1, 0))
	var chosen []string
	for _, m := range f.Machines(t)[2:5] {
		chosen = append(chosen, m.Name)
	}
	at := time.Now().UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			v1alpha1.AnnotationTriggerDeletion: chosen[0] + "~" + at + "," + chosen[1] + "~" + at + "," + chosen[2] + "~" + at,
		}},
		"spec": map[string]any{"replicas": 5},
	})
	require.NoError(t, err)
	f.Patch(t, string(patch))
	f.AwaitRunning(t, 5, time.Minute)
	for _, m := range f.Machines(t) {
		require.NotContains(t, chosen, m.Name)
	}
	rig.Eventually(t, 20*time.Second, "the annotation is gone with them", func() (bool, any) {
		value, there := f.Deployment(t).Annotations[v1alpha1.AnnotationTriggerDeletion]
		return !there || value == "", value
	})
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

// In place: nodes are selected a few at a time, an agent updates them, machines keep their names and change their set.
func TestU29_D22_InPlaceUpdate(t *testing.T) {
	f := newFleet(t, "kept", 4, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
				OrchestrationType:   v1alpha1.OrchestrationTypeAuto,
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromInt32(2))},
			},
		}
	})
	names := map[string]bool{}
	for _, m := range f.Machines(t) {
		names[m.Name] = true
	}
	f.change(t, "2")
	// The agent on the node: as soon as a node is ready for its update, it is updated.
	rig.Eventually(t, 3*time.Minute, "all machines were updated", func() (bool, any) {
		under := 0
		for _, n := range f.Nodes(t) {
			if n.Labels[v1alpha1.LabelSelectedForUpdate] == v1alpha1.ValueLowerTrue {
				under++
			}
			for _, c := range n.Status.Conditions {
				if c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason == v1alpha1.ReasonReadyForUpdate {
					updateNode(t, n)
				}
			}
		}
		require.LessOrEqual(t, under, 2, "nodes under update at a time")
		done := 0
		for _, m := range f.Machines(t) {
			if m.Labels["edition"] == "2" && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				done++
			}
		}
		return done == 4 && f.condition(t, v1alpha1.MachineDeploymentProgressing).Reason == v1alpha1.ReasonNewMachineSetAvailable, done
	})
	machines := f.Machines(t)
	require.Len(t, machines, 4)
	for _, m := range machines {
		require.True(t, names[m.Name], "the same machines")
	}
	for _, n := range f.Nodes(t) {
		require.False(t, n.Spec.Unschedulable)
		require.NotContains(t, n.Labels, v1alpha1.LabelCandidateForUpdate)
		require.NotContains(t, n.Labels, v1alpha1.LabelUpdateResult)
	}
	f.Delete(t)
	f.AwaitGone(t, time.Minute)
}

// updateNode does what an agent does that updates a node: it says how that went.
func updateNode(t *testing.T, n corev1.Node) {
	t.Helper()
	n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
	_, err := r.Kube.CoreV1().Nodes().Update(t.Context(), &n, metav1.UpdateOptions{})
	if err != nil {
		t.Logf("update of node %s, again in a moment: %v", n.Name, err)
	}
}
