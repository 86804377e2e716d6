// Package installation has the workflow that marks the name of an installation as taken.
package installation

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/workflows/run"
)

// Input is the input of the mark. Fields may be added, never renamed or retyped.
type Input struct {
	ControlCluster string // UID of the namespace kube-system of the control cluster
}

// Installation does nothing until it is cancelled. While it is open, its ID is the mark that an installation of this
// name exists in the Temporal namespace, and its memo says which control cluster has the name.
func Installation(ctx workflow.Context, in Input) error {
	workflow.SetCurrentDetails(
		ctx,
		"The name **"+string(
			run.InstallationOf(ctx),
		)+"** belongs to the control cluster whose namespace kube-system has the UID "+
			in.ControlCluster+". Cancel this workflow before another cluster takes over the name.",
	)
	err := workflow.Await(ctx, func() bool { return false })
	if cancelled := new(temporal.CanceledError); errors.As(err, &cancelled) {
		return nil
	}
	return err
}
