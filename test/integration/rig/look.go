//go:build integration

package rig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/workflows/run"
)

// LookAgain makes Millwright look at an object once more, and returns when it has: it changes an annotation that means nothing, and waits until the
// object's workflow has decided with this version of the object or a later one, and rests. A test that wants to see that nothing happens calls it and
// looks then: what Millwright would have done, it has done. A deployment's open rollout looks, too.
func (r *Rig) LookAgain(t *testing.T, kind run.Kind, namespace, name string) {
	t.Helper()
	resource := map[run.Kind]string{
		run.KindMachine: "machines.machine.sapcloud.io", run.KindMachineSet: "machinesets.machine.sapcloud.io",
		run.KindMachineDeployment: "machinedeployments.machine.sapcloud.io", run.KindMachineClass: "machineclasses.machine.sapcloud.io",
		run.KindClusterAPISet: "machinesets.cluster.x-k8s.io", run.KindClusterAPIDeployment: "machinedeployments.cluster.x-k8s.io",
	}[kind]
	require.NotEmpty(t, resource, kind)
	text, err := r.Stack.Kubectl(t.Context(), "annotate", "--overwrite", "--namespace", namespace, resource, name,
		"example.com/look="+strconv.FormatInt(time.Now().UnixNano(), 36), "--output=json")
	require.NoError(t, err)
	var object metav1.PartialObjectMetadata
	require.NoError(t, json.Unmarshal(text, &object))
	version, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
	require.NoError(t, err)
	r.awaitLook(t, Installation.ID(kind, kube.Ref{Namespace: namespace, Name: name, UID: string(object.UID)}), version)
	rollouts := fmt.Sprintf("ExecutionStatus = 'Running' AND WorkflowType IN (%q, %q) AND MachineNamespace = %q AND MachineDeployment = %q",
		run.KindRollout, run.KindClusterAPIRollout, namespace, name)
	if kind == run.KindMachineDeployment || kind == run.KindClusterAPIDeployment {
		for _, w := range r.Workflows(t, rollouts) {
			r.awaitLook(t, w.Execution.WorkflowId, version)
		}
	}
}

// awaitLook waits until the newest run of a workflow has been told of a version, and has ended or waits for something else than an activity.
func (r *Rig) awaitLook(t *testing.T, id string, version uint64) {
	t.Helper()
	Eventually(t, id+" looks again", func() (bool, any) {
		shown, err := r.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
		if err != nil {
			return false, err
		}
		current := shown.WorkflowExecutionInfo
		busy := len(shown.PendingActivities) > 0 || shown.PendingWorkflowTask != nil
		if current.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && busy {
			return false, "it is busy"
		}
		return toldOf(t, r.History(t, id, current.Execution.RunId), version), current.Status
	})
}

// toldOf reports whether a signal of the bridge has told a run of a version or a later one, and a workflow task has been completed since.
func toldOf(t *testing.T, history *historypb.History, version uint64) bool {
	t.Helper()
	told := false
	for _, event := range history.Events {
		if told && event.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			return true
		}
		signal := event.GetWorkflowExecutionSignaledEventAttributes()
		if signal == nil || signal.SignalName != run.SignalChanged {
			continue
		}
		var changed run.Changed
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(signal.Input, &changed))
		for _, text := range changed.Versions {
			seen, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
			require.NoError(t, err)
			told = told || seen >= version
		}
	}
	return false
}
