// Package installation contains the workflow that reserves the name of an installation.
package installation

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/workflows/run"
)

// Input is the input of Installation. Fields may be added. Fields must not be renamed or retyped.
type Input struct {
	ControlCluster string // UID of the namespace kube-system of the control cluster
}

// Installation does nothing until it is cancelled. While the run is open, its workflow ID reserves the installation
// name in the Temporal namespace. The memo of the run names the control cluster.
func Installation(ctx workflow.Context, in Input) error {
	workflow.SetCurrentDetails(
		ctx,
		"The name **"+string(
			run.InstallationOfWorkflow(ctx),
		)+"** belongs to the control cluster whose namespace kube-system has the UID "+
			in.ControlCluster+". Cancel this workflow before another cluster takes over the name.",
	)
	err := workflow.Await(ctx, func() bool { return false })
	if cancelled := new(temporal.CanceledError); errors.As(err, &cancelled) {
		return nil
	}
	return err
}
