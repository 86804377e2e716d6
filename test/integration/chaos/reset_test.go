//go:build integration

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// An operator resets or pauses an activity, or resets a workflow, in the middle of a create call. The cloud ignores
// client tokens, and does not show the request for ten seconds. The worker learns of the reset in less than ten
// seconds.
func TestAResetInTheMiddleOfACreationMakesNoSecondInstance(t *testing.T) {
	cloudBehaviour{
		name:                  "no client tokens, requests without a record",
		createVisibilityDelay: 10 * time.Second,
	}.applyBehaviour(
		t,
		testRig,
	)
	const createInstance = "create-instance"
	service := testRig.Temporal.WorkflowService()
	for name, act := range map[string]func(t *testing.T, e *commonpb.WorkflowExecution){
		"activity-reset": func(t *testing.T, e *commonpb.WorkflowExecution) {
			_, err := service.ResetActivity(t.Context(), &workflowservice.ResetActivityRequest{
				Namespace: run.TemporalNamespace, Execution: e, Activity: &workflowservice.ResetActivityRequest_Id{Id: createInstance},
			})
			require.NoError(t, err)
		},
		"activity-pause": func(t *testing.T, e *commonpb.WorkflowExecution) {
			_, err := service.PauseActivity(t.Context(), &workflowservice.PauseActivityRequest{
				Namespace: run.TemporalNamespace, Execution: e, Activity: &workflowservice.PauseActivityRequest_Id{Id: createInstance},
			})
			require.NoError(t, err)
			rig.Eventually(t, "the worker has learned of it", func() (bool, any) {
				shown, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), e.WorkflowId, e.RunId)
				require.NoError(t, err)
				pending := shown.PendingActivities
				return len(pending) == 1 && pending[0].State == enumspb.PENDING_ACTIVITY_STATE_PAUSED, pending
			})
			_, err = service.UnpauseActivity(t.Context(), &workflowservice.UnpauseActivityRequest{
				Namespace: run.TemporalNamespace, Execution: e, Activity: &workflowservice.UnpauseActivityRequest_Id{Id: createInstance}, ResetAttempts: true,
			})
			require.NoError(t, err)
		},
		"workflow-reset": func(t *testing.T, e *commonpb.WorkflowExecution) {
			last := int64(0)
			for _, event := range testRig.History(t, e.WorkflowId, e.RunId).Events {
				if event.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
					last = event.EventId
				}
			}
			_, err := service.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
				Namespace: run.TemporalNamespace, WorkflowExecution: e, Reason: "test", RequestId: "reset-" + e.RunId, WorkflowTaskFinishEventId: last,
			})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			testRig.CreateNamespace(t, name, `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"12s"}`)
			machines := testRig.MachineClient.MachineV1alpha1().Machines(name)
			before := cloudStats(t, testRig)
			m, err := machines.Create(
				t.Context(),
				&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: rig.NewMachineSpec()},
				metav1.CreateOptions{},
			)
			require.NoError(t, err)
			rig.Eventually(t, "the create call is under way", func() (bool, any) {
				now := cloudStats(t, testRig)
				return now.Calls[admin.OperationCreate] > before.Calls[admin.OperationCreate], now
			})
			id := rig.Installation.ID(run.KindMachine, kube.Ref{Namespace: name, Name: m.Name, UID: string(m.UID)})
			there, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
			require.NoError(t, err)
			act(t, there.WorkflowExecutionInfo.Execution)

			rig.Eventually(t, "the machine runs", func() (bool, any) {
				m, err := machines.Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				return m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning, m.Status
			})
			after := cloudStats(t, testRig)
			require.Equal(t, 1, after.CreatedInstances-before.CreatedInstances, "instances made")
			require.Equal(t, before.DuplicateInstances, after.DuplicateInstances, "instances made twice")
			require.NoError(t, machines.Delete(t.Context(), name, metav1.DeleteOptions{}))
		})
	}
}
