package deployment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
)

// RequestFacts returns the facts for the decision on an operator's command for a deployment. The parameters o and next
// must come from the same time: next is the decision from the facts o. The facts name the step at which the rollout
// waits only if no other work has priority.
func RequestFacts(d *v1alpha1.MachineDeployment, o rollout.Facts, next rollout.Decision) request.DeploymentFacts {
	f := SharedRequestFacts(d, o, next)
	f.RestartedAt = d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt]
	return f
}

// SharedRequestFacts is RequestFacts for a deployment of either API, but without the time of the last restart.
func SharedRequestFacts(d metav1.Object, o rollout.Facts, next rollout.Decision) request.DeploymentFacts {
	f := request.DeploymentFacts{
		Name:          d.GetNamespace() + "/" + d.GetName(),
		UID:           string(d.GetUID()),
		Now:           o.Now,
		LastRecord:    d.GetAnnotations()[v1alpha1.AnnotationLastRequest],
		Deleting:      o.Deleting,
		InvalidReason: o.InvalidReason,
		Paused:        o.Paused,
		HoldReason:    o.HoldReason,
		IsOnDelete:    o.Strategy == rollout.OnDelete,
		Revision:      next.Revision, // the next revision, even before it is written: operators mean this revision
		RollbackTo:    o.RollbackTo,
		RolloutStepFacts: request.RolloutStepFacts{
			StepCount: o.StepCount(), NextRolloutStepCount: o.NextStepCount(), ApprovedStepCount: o.ApprovedStepCount,
		},
		PinFacts: request.PinFacts{RetryCount: max(o.RetryCount, o.Progress.Attempt)},
	}
	if next.Pin != nil {
		f.PinnedRevision = next.Pin.Revision
	}
	if o.Progress.Revision != f.Revision {
		f.RetryCount = o.RetryCount
	}
	if next.Pause != nil {
		f.WaitingStep = next.Pause.Step + 1
	}
	for _, s := range o.Sets {
		if s.Current || s.Deleting {
			continue
		}
		f.Rolling = f.Rolling || s.Replicas > 0 || len(s.Machines) > 0
		addEarlierRevision(&f, s)
	}
	f.LastGoodRevision = lastCompletedRevision(o)
	return f
}

// addEarlierRevision records in f whether the deployment can return to the revision of an old set.
func addEarlierRevision(f *request.DeploymentFacts, s rollout.MachineSet) {
	switch {
	// a duplicate set has the deployment's template: an object that is missing for this set is also missing for the
	// deployment
	case s.Revision == 0 || s.IsTemplateDuplicate() && s.MissingObject() != "":
	case s.IsTemplateDuplicate():
		f.DuplicateRevisions = append(f.DuplicateRevisions, s.Revision)
	case s.MissingObject() != "":
		if f.MissingObjectByRevision == nil {
			f.MissingObjectByRevision = map[int64]string{}
		}
		f.MissingObjectByRevision[s.Revision] = s.MissingObject()
	default:
		f.EarlierRevisions = append(f.EarlierRevisions, s.Revision)
	}
}

// lastCompletedRevision returns the revision of the old set whose rollout completed last; 0 if no such set is recorded.
func lastCompletedRevision(o rollout.Facts) int64 {
	for _, name := range []string{o.Progress.Good, o.Progress.FormerGood} {
		for _, s := range o.Sets {
			if s.Name == name && !s.Current && !s.Deleting {
				return s.Revision
			}
		}
	}
	return 0
}
