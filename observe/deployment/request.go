package deployment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
)

// Request returns the facts from which a command on a deployment is decided. O and next are what was observed and
// decided at that time. The step at which the rollout waits is known only when no other work comes first.
func Request(d *v1alpha1.MachineDeployment, o rollout.Observed, next rollout.Decision) request.DeploymentFacts {
	f := RequestAbout(d, o, next)
	f.RestartedAt = d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt]
	return f
}

// RequestAbout is Request for a deployment of either API, without the time of its last restart.
func RequestAbout(d metav1.Object, o rollout.Observed, next rollout.Decision) request.DeploymentFacts {
	f := request.DeploymentFacts{
		Name:       d.GetNamespace() + "/" + d.GetName(),
		UID:        string(d.GetUID()),
		Now:        o.Now,
		Last:       d.GetAnnotations()[v1alpha1.AnnotationLastRequest],
		Deleting:   o.Deleting,
		Invalid:    o.Invalid,
		Paused:     o.Paused,
		Held:       o.Held,
		OnDelete:   o.Strategy == rollout.OnDelete,
		Revision:   next.Revision, // also when it is not written yet: people mean this one
		RollbackTo: o.RollbackTo,
		Steps:      o.StepCount(),
		Approved:   o.Approved,
	}
	if next.Pause != nil {
		f.WaitsAt = next.Pause.Step + 1
	}
	for _, s := range o.Sets {
		if s.Current || s.Deleting {
			continue
		}
		f.Rolling = f.Rolling || s.Replicas > 0 || len(s.Machines) > 0
		switch {
		case s.Revision == 0 || s.Twin(): // its template is the present one
		case s.Lacks() != "":
			if f.Lacking == nil {
				f.Lacking = map[int64]string{}
			}
			f.Lacking[s.Revision] = s.Lacks()
		default:
			f.Revisions = append(f.Revisions, s.Revision)
		}
	}
	return f
}
