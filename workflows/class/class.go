// Package class contains the workflow of a MachineClass.
package class

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/class"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/workflows/run"
)

type machineClass struct {
	*run.WorkflowState
}

// MachineClass keeps Millwright's finalizers on the class and on the Secrets that the class references in its
// namespace. If a class is being deleted, the workflow waits until no machine uses the class. Then the workflow removes
// the finalizer from the Secrets, and after that from the class. The run ends when the class is gone or nothing is left
// to do.
func MachineClass(ctx workflow.Context, in run.Input) (run.Result, error) {
	c := &machineClass{run.NewWorkflowState(ctx, run.KindMachineClass, class.ClassesResource, in)}
	c.Live, c.IdleBeforeEnd = !in.Continued, true
	return run.ExecuteLoop(ctx, c)
}

// Decide returns the finalizers that are missing and the finalizers that must be removed. A decision to remove a
// finalizer needs a live read, because a cache may lack a machine that uses the class, or another class that uses the
// Secret.
func (c *machineClass) Decide(ctx workflow.Context) (class.Decision, error) {
	live := c.Live
	d, err := decideClassActivity.RunLocalFirst(
		ctx,
		c.WorkflowState,
		"which finalizers are missing, and which must be removed?",
		c.NewReadInput(ctx),
	)
	if err != nil {
		return d, err
	}
	c.RaiseMinVersions(d.Seen)
	c.Live = !live && (d.Release || len(d.Unguard) > 0)
	if c.Live {
		return c.Decide(ctx)
	}
	return d, nil
}

// ExecuteStep carries out a decision. The class gets its finalizer before its Secrets, and loses it after them. No
// finalizer therefore stays on a Secret of a deleted class.
func (c *machineClass) ExecuteStep(ctx workflow.Context, d class.Decision) (*run.Result, error) {
	if d.Gone {
		return run.GoneResult(d.Why)
	}
	c.ShowStep(ctx, c.stepForDecision(d))
	secrets := slices.Concat(d.Guard, d.Unguard)
	switch {
	case d.Prepare || d.Release && len(secrets) == 0:
		return nil, run.WriteObject(ctx, c.WorkflowState, "finalizer: "+d.Why, finalizeClassActivity, c.NewReadInput(ctx))
	case len(secrets) > 0:
		changes := class.SecretChanges{Class: c.Ref, Secrets: secrets}
		made, err := finalizeSecretsActivity.RunLocalFirst(ctx, c.WorkflowState, "finalizers of Secrets: "+d.Why, changes)
		c.Live = len(made) == 0 // if no Secret was written, the Secrets may be gone, and only a live read shows this
		c.RaiseMinVersions(made)
		return nil, err
	case d.Serving != nil:
		report := *d.Serving
		report.ReadInput = c.NewReadInput(ctx)
		return nil, run.WriteObject(ctx, c.WorkflowState, "status: "+d.Why, reportServingActivity, report)
	case d.Need == attention.NeedNothing:
		return run.CalmResult(d.Why)
	default:
		return nil, c.AwaitChange(ctx)
	}
}

func (c *machineClass) stepForDecision(d class.Decision) run.Step {
	switch {
	case len(d.Guard) > 0:
		return run.Step{Name: vocabulary.StepGuardSecrets, Why: d.Why}
	case len(d.Unguard) > 0:
		return run.Step{Name: vocabulary.StepReleaseSecrets, Why: d.Why}
	case d.Need == attention.NeedDeletion && !d.Release:
		return run.Step{Name: vocabulary.StepAwaitMachines, Why: d.Why}
	default: // nothing is left to do, or only the finalizer of the class must be written
		return run.Step{Why: d.Why}
	}
}
