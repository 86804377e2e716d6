package deployment

import (
	"context"

	"millwright/activities/kube"
	"millwright/decide/rollout"
)

// RollbackInput is a request to roll a deployment back to the template of a former set.
type RollbackInput struct {
	Deployment kube.Ref
	// Version is the deployment's resourceVersion that the decision saw, because a later change may revoke the
	// rollback.
	Version  string
	Rollback rollout.Rollback
}

// RollBackDeployment copies the template and annotations of a former set back to the deployment, and clears
// spec.rollbackTo. A former set that is gone or is being deleted causes a Conflict. See KindAdapter.RollBackDeployment,
// and deployment.RestoreTemplateFromSet in observe.
func (a *Activities) RollBackDeployment(ctx context.Context, in RollbackInput) (kube.MinVersions, error) {
	return a.mcmKindAdapter().RollBackDeployment(ctx, in)
}
