//go:build integration

package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/observe/capi"
	"millwright/workflows/run"
)

// ForceReconcile makes Millwright reconcile an object. It returns when the object's workflow run is idle or has ended.
// A test that expects no change calls ForceReconcile and then checks the object. ForceReconcile sends the bridge's
// signal to the object's workflow, even if the object needs no action. If a deployment has an open rollout,
// ForceReconcile also signals the rollout.
func (r *Rig) ForceReconcile(t *testing.T, kind run.Kind, namespace, name string) {
	t.Helper()
	of := map[run.Kind]struct {
		resource string
		cache    kube.Resource
		owner    run.ParentNames
	}{
		run.KindMachine:              {"machines.machine.sapcloud.io", kube.MachinesResource, run.ParentNames{Machine: name}},
		run.KindMachineSet:           {"machinesets.machine.sapcloud.io", kube.SetsResource, run.ParentNames{MachineSet: name}},
		run.KindMachineDeployment:    {"machinedeployments.machine.sapcloud.io", kube.DeploymentsResource, run.ParentNames{MachineDeployment: name}},
		run.KindClusterAPISet:        {"machinesets.cluster.x-k8s.io", capi.SetsResource, run.ParentNames{MachineSet: name}},
		run.KindClusterAPIDeployment: {"machinedeployments.cluster.x-k8s.io", capi.DeploymentsResource, run.ParentNames{MachineDeployment: name}},
	}[kind]
	require.NotEmpty(t, of.resource, kind)
	text, err := r.Stack.RunKubectl(t.Context(), "get", "--namespace", namespace, of.resource, name, "--output=json")
	require.NoError(t, err)
	var object metav1.PartialObjectMetadata
	require.NoError(t, json.Unmarshal(text, &object))
	ref := kube.Ref{Namespace: namespace, Name: name, UID: string(object.UID)}
	changed := run.ChangeSignal{
		UID:        ref.UID,
		Generation: object.Generation,
		Versions:   kube.MinVersions{of.cache: object.ResourceVersion},
	}

	looks := []client.WorkflowRun{}
	look, err := r.Temporal.SignalWithStartWorkflow(
		t.Context(),
		Installation.ID(kind, ref),
		run.SignalChanged,
		changed,
		client.StartWorkflowOptions{
			TaskQueue: Installation.Shard(0).TaskQueue(
				run.QueueMachines,
			),
			TypedSearchAttributes: run.StartSearchAttributes(namespace, of.owner),
		},
		string(kind),
		run.Input{Ref: ref, Versions: changed.Versions},
	)
	require.NoError(t, err)
	looks = append(looks, look)
	if kind == run.KindMachineDeployment || kind == run.KindClusterAPIDeployment {
		for _, w := range r.WorkflowRuns(t, fmt.Sprintf("ExecutionStatus = 'Running' AND WorkflowType IN (%q, %q) AND MachineNamespace = %q AND MachineDeployment = %q",
			run.KindRollout, run.KindClusterAPIRollout, namespace, name)) {
			rollout := r.Temporal.GetWorkflow(t.Context(), w.Execution.WorkflowId, w.Execution.RunId)
			err := r.Temporal.SignalWorkflow(t.Context(), rollout.GetID(), rollout.GetRunID(), run.SignalChanged, changed)
			if ended := new(serviceerror.NotFound); errors.As(err, &ended) {
				continue
			}
			require.NoError(t, err)
			looks = append(looks, rollout)
		}
	}
	for _, look := range looks {
		r.awaitIdleRun(t, look)
	}
}

// awaitIdleRun waits until a signalled run has ended, or has neither a pending workflow task nor a pending activity.
// The signal has made a workflow task pending. The run decides in this workflow task, or after its pending activity has
// completed.
func (r *Rig) awaitIdleRun(t *testing.T, look client.WorkflowRun) {
	t.Helper()
	Eventually(t, look.GetID()+" has looked again", func() (bool, any) {
		shown, err := r.Temporal.DescribeWorkflowExecution(t.Context(), look.GetID(), look.GetRunID())
		if err != nil {
			return false, err
		}
		over := shown.WorkflowExecutionInfo.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		idle := len(shown.PendingActivities) == 0 && shown.PendingWorkflowTask == nil
		return over || idle, []any{shown.PendingActivities, shown.PendingWorkflowTask}
	})
}

// ForceReconcile calls Rig.ForceReconcile for the deployment, and then for each of the deployment's sets.
func (p *Pool) ForceReconcile(t *testing.T) {
	t.Helper()
	p.rig.ForceReconcile(t, run.KindMachineDeployment, p.Namespace, p.Name)
	for _, s := range p.Sets(t) {
		p.rig.ForceReconcile(t, run.KindMachineSet, s.Namespace, s.Name)
	}
}
