package deployment

import (
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
	"millwright/observe/machine"
)

// RequestFacts returns the facts from which a command on a deployment is decided. o and next must be the facts and the
// decision of the same time.
func RequestFacts(f ObjectTree, o rollout.Facts, next rollout.Decision) request.DeploymentFacts {
	facts := deployment.SharedRequestFacts(f.Deployment, o, next)
	facts.IsClusterAPI, facts.TemplateOwner = true, o.ClusterAPI.TemplateOwner
	if after := f.Deployment.Spec.Rollout.After; !after.IsZero() {
		facts.RestartedAt = after.UTC().Format(time.RFC3339)
	}
	return facts
}

// RequestPatch returns the merge patch for the decision about a command on a MachineDeployment of Cluster API; nil if
// the decision writes nothing. The patch differs from the patch for a deployment of Millwright in two points: a
// rollback is an annotation, and a restart is spec.rollout.after.
func RequestPatch(command request.Command, d request.Decision) map[string]any {
	to, at := d.RollbackTo, d.RestartedAt
	d.RollbackTo, d.RestartedAt = nil, nil
	patch := machine.RequestPatch(request.KindMachineDeployment, command, d)
	if patch == nil {
		return nil
	}
	if to != nil {
		patch["metadata"].(map[string]any)["annotations"].(map[string]any)[v1alpha1.AnnotationRollbackTo] = toJSON(*to)
	}
	if at != nil {
		spec, _ := patch["spec"].(map[string]any)
		if spec == nil {
			spec = map[string]any{}
			patch["spec"] = spec
		}
		spec["rollout"] = map[string]any{"after": *at}
	}
	return patch
}
