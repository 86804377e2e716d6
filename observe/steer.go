package observe

import (
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/decide/steer"
)

// SteerFacts turns a deployment and all below it into what decide/steer asks for, at that time. The stage at which it waits is
// known only when nothing else comes first.
func SteerFacts(f Family, now time.Time) steer.Facts {
	d, o := f.Deployment, RolloutObserved(f, now)
	next := rollout.Decide(o)
	facts := steer.Facts{
		Deployment:  d.Namespace + "/" + d.Name,
		UID:         string(d.UID),
		Now:         now,
		Last:        d.Annotations[v1alpha1.AnnotationRolloutVerb],
		Deleting:    o.Deleting,
		Invalid:     o.Invalid,
		Paused:      o.Paused,
		Held:        o.Held,
		OnDelete:    o.Strategy == rollout.OnDelete,
		Revision:    next.Revision, // the one that it is about to get: people mean that, and not the one which the set had long ago
		RollbackTo:  o.RollbackTo,
		Stages:      o.Stages(),
		Approved:    o.Approved,
		RestartedAt: d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt],
	}
	if g := next.Gate; g != nil {
		facts.Gate = &steer.Gate{Step: g.Step, Of: g.Of}
	}
	for _, s := range o.Sets {
		if s.Current || s.Deleting {
			continue
		}
		facts.Rolling = facts.Rolling || s.Replicas > 0 || len(s.Machines) > 0
		if s.Revision > 0 {
			facts.Revisions = append(facts.Revisions, s.Revision)
		}
	}
	return facts
}

// SteerPatch returns the merge patch that writes on a MachineDeployment what was decided; nil when there is nothing to write.
func SteerPatch(d steer.Decision) map[string]any {
	if d.Refused != "" || d.Same {
		return nil
	}
	annotations, spec := map[string]any{v1alpha1.AnnotationRolloutVerb: d.Last}, map[string]any{}
	for key, value := range map[string]*string{
		v1alpha1.AnnotationRolloutHold: d.Hold, v1alpha1.AnnotationRolloutApprove: d.Approve, v1alpha1.AnnotationChangeCause: d.Cause,
	} {
		if value == nil {
			continue
		}
		annotations[key] = *value
		if *value == "" {
			annotations[key] = nil
		}
	}
	if d.PauseTo != nil {
		spec["paused"] = *d.PauseTo
	}
	if d.RollbackTo != nil {
		spec["rollbackTo"] = map[string]any{"revision": *d.RollbackTo}
	}
	if d.RestartedAt != nil {
		restarted := map[string]any{v1alpha1.AnnotationRestartedAt: *d.RestartedAt}
		spec["template"] = map[string]any{"metadata": map[string]any{"annotations": restarted}}
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}
