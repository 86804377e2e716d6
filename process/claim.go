package process

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"millwright/process/connection"
	"millwright/workflows/installation"
	"millwright/workflows/run"
)

// controlClusterMemoKey is the memo key of the control cluster of an installation. The value is the UID of the
// namespace kube-system, which every API server creates once.
const controlClusterMemoKey = "controlCluster"

// claimRetryDelay is the pause between two attempts of a claim. The delay is the same as between two attempts to
// connect to Temporal.
const claimRetryDelay = time.Second

// NameClashError means that another control cluster has the name of this installation.
type NameClashError struct{ Name, TheirClusterUID, OurClusterUID string }

func (e *NameClashError) Error() string {
	return fmt.Sprintf(
		"--cluster-name %s is taken: in this Temporal namespace it belongs to the control cluster %s (UID of its namespace kube-system), and ours is %s; "+
			"choose another name, or cancel the workflow %s if that cluster is gone",
		e.Name,
		e.TheirClusterUID,
		e.OurClusterUID,
		run.Installation(e.Name).ReservationWorkflowID(),
	)
}

// ClaimInstallation reserves the name of an installation for its control cluster. In a Temporal namespace, the first
// cluster that claims a name owns it. Calling ClaimInstallation again is harmless. ClaimInstallation retries while
// Temporal or the API server does not answer, until ctx is done. ClaimInstallation returns a NameClashError if another
// cluster owns the name.
func ClaimInstallation(
	ctx context.Context,
	name run.Installation,
	temporal client.Client,
	control kubernetes.Interface,
	logger *slog.Logger,
) error {
	for {
		theirs, ours, err := claimInstallationOnce(ctx, name, temporal, control)
		switch {
		case err == nil && theirs == ours:
			return nil
		case err == nil:
			return &NameClashError{Name: string(name), TheirClusterUID: theirs, OurClusterUID: ours}
		}
		logger.Warn("the name of the installation cannot be claimed yet, will try again", "cluster-name", name, "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("claim the name %s of the installation: %w", name, err)
		case <-time.After(claimRetryDelay):
		}
	}
}

// claimInstallationOnce starts the mark workflow of a name if it does not exist. claimInstallationOnce returns the
// control cluster that owns the name (theirs) and this process's control cluster (ours).
func claimInstallationOnce(
	ctx context.Context,
	name run.Installation,
	temporal client.Client,
	control kubernetes.Interface,
) (theirs, ours string, err error) {
	system, err := control.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("read the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	ours = string(system.UID)
	mark, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       name.ReservationWorkflowID(),
		TaskQueue:                name.Shard(0).TaskQueue(run.QueueMachines),
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		Memo:                     map[string]any{controlClusterMemoKey: ours},
		StaticSummary:            "The name of installation " + string(name) + " is taken",
	}, string(run.KindInstallation), installation.Input{ControlCluster: ours})
	if err != nil {
		return "", ours, fmt.Errorf("start workflow %s: %w", name.ReservationWorkflowID(), err)
	}
	there, err := temporal.DescribeWorkflowExecution(ctx, mark.GetID(), mark.GetRunID())
	if err != nil {
		return "", ours, fmt.Errorf("describe workflow %s: %w", name.ReservationWorkflowID(), err)
	}
	theirs, err = ControlClusterUID(there)
	return theirs, ours, err
}

// ControlClusterUID returns the UID of the control cluster (of its namespace kube-system) from the mark workflow of an
// installation. If this process does not have the key that encrypted the mark, the error names the key.
func ControlClusterUID(mark *workflowservice.DescribeWorkflowExecutionResponse) (uid string, err error) {
	memo := mark.GetWorkflowExecutionInfo().GetMemo().GetFields()[controlClusterMemoKey]
	if err := connection.DataConverter().FromPayload(memo, &uid); err != nil {
		return "", fmt.Errorf("read whose installation it is: %w", err)
	}
	return uid, nil
}
