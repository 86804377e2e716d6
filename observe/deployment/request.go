package deployment

import (
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
)

// Request turns a deployment, what was observed of it and all below it at that time, and what is to be done next into
// what decide/request asks for. The step at which it waits is known only when nothing else comes first.
func Request(d *v1alpha1.MachineDeployment, o rollout.Observed, next rollout.Decision) request.DeploymentFacts {
	f := request.DeploymentFacts{
		Name:        d.Namespace + "/" + d.Name,
		UID:         string(d.UID),
		Now:         o.Now,
		Last:        d.Annotations[v1alpha1.AnnotationLastRequest],
		Deleting:    o.Deleting,
		Invalid:     o.Invalid,
		Paused:      o.Paused,
		Held:        o.Held,
		OnDelete:    o.Strategy == rollout.OnDelete,
		Revision:    next.Revision, // the one that it is about to get: people mean that one
		RollbackTo:  o.RollbackTo,
		Steps:       o.StepCount(),
		Approved:    o.Approved,
		RestartedAt: d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt],
	}
	if next.Pause != nil {
		f.WaitsAt = next.Pause.Step + 1
	}
	for _, s := range o.Sets {
		if s.Current || s.Deleting {
			continue
		}
		f.Rolling = f.Rolling || s.Replicas > 0 || len(s.Machines) > 0
		if s.Revision > 0 {
			f.Revisions = append(f.Revisions, s.Revision)
		}
	}
	return f
}
