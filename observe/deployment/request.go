package deployment

import (
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
)

// Request returns the facts from which a command on a deployment is decided. O and next are what was observed and decided at
// that time. The step at which the rollout waits is known only when no other work comes first.
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
		Revision:    next.Revision, // also when it is not written yet: people mean this one
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
