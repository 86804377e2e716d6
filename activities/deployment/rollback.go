package deployment

import (
	"context"

	"millwright/activities/kube"
	"millwright/decide/rollout"
)

// RollBack asks for the template of a former set.
type RollBack struct {
	Deployment kube.Ref
	// resourceVersion of the deployment that the decision saw: a later change of it may want something else
	Version  string
	Rollback rollout.Rollback
}

// RollBackDeployment puts the template of a former set back into the deployment, with its annotations, and clears
// spec.rollbackTo: see Family.RollBack, and deployment.ReturnTo of observe. A set that is gone or being deleted is a
// Conflict.
func (a *Activities) RollBackDeployment(ctx context.Context, in RollBack) (kube.MinVersions, error) {
	return a.table().RollBack(ctx, in)
}
