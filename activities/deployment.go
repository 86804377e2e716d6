package activities

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/observe"
)

// DeploymentRead says how fresh the facts of a deployment's decision must be, and who asks.
type DeploymentRead struct {
	Read
	// WorkflowID of a rollout: as long as it is open, the deployment's status has to name it. Empty for others.
	WorkflowID string
	// Over is the workflow ID of a rollout that has ended, though the deployment's status may still name it. Empty: none is known.
	Over string
}

// DeploymentDecision is what a MachineDeployment needs next.
type DeploymentDecision struct {
	Gone    bool // the object does not exist any more: nothing else is set
	Need    attention.Need
	Why     string
	Version string // resourceVersion of the deployment that was read
	// Operation is the workflow ID of the rollout that the status names, open or not; empty when it names none.
	Operation string
	rollout.Decision
	Prepare bool // our finalizer is missing
	Release bool // no set is left of a deployment that is being deleted
	Replace bool // replacements are to be granted, marked or ended
	Held    bool // machines wait to be replaced, and may not be
	// When to look again, because they may be then; zero means that something else changes first.
	HeldUntil time.Time
	Report    bool    // the status does not say what was read
	Picture   Picture // for people
	Seen      Gate    // what was read; a later decision must not be made of anything older
}

// Picture shows people how far a deployment is.
type Picture struct {
	Wanted  int
	Counts  rollout.Counts
	Old     int    // machines of other templates, those that are being deleted included
	Blocked string // reason why machines get no instance; empty when nothing blocks
	Sets    []SetPicture
}

// SetPicture is a line of it.
type SetPicture struct {
	Name      string
	Revision  int64
	Current   bool
	Replicas  int
	Machines  int // those that are being deleted included
	Available int
	Deleting  int
}

// mostSets bounds the lines of a picture. Source: what fits on a screen, and into a decision of 16 KiB.
const mostSets = 10

// DecideDeployment reads a deployment and all below it, and says what is to be done next with its sets.
func (a *Activities) DecideDeployment(ctx context.Context, in DeploymentRead) (DeploymentDecision, error) {
	family, err := a.family(ctx, in.Read)
	if err != nil {
		return DeploymentDecision{}, err
	}
	deployment := family.Deployment
	if deployment == nil {
		return DeploymentDecision{Gone: true, Why: "the object is gone"}, nil
	}
	now := later(time.Now(), in.At)
	facts := observe.DeploymentFacts(family, now)
	need := attention.MachineDeployment(facts)
	observed := observe.RolloutObserved(family, now)
	d := DeploymentDecision{
		Need:      need.Need,
		Why:       need.Why,
		Version:   deployment.ResourceVersion,
		Operation: observe.RolloutNamed(deployment),
		Decision:  rollout.Decide(observed),
		Prepare:   !facts.Deleting && !facts.Finalizer,
		Report: facts.Unreported || facts.Generation != facts.ObservedGeneration ||
			misnamed(deployment.Status.CurrentOperation, need.Calm(), in.WorkflowID),
		Picture: picture(observed),
		Seen:    versions(family),
	}
	d.Release = facts.Deleting && facts.Finalizer && d.Done
	if facts.Due+facts.Replacing > 0 && !facts.Deleting {
		plan := replace.Decide(a.Cluster.ReplaceObserved(deployment, family.Members, now))
		d.Replace = plan.Changed || len(plan.Mark) > 0
		d.Held, d.HeldUntil = plan.Hold != "", plan.HoldUntil
		if need.Need == attention.Replace {
			d.Why = plan.Why
		}
		d.Report = d.Report || plan.Hold != holdOf(deployment)
	} else if holdOf(deployment) != "" {
		d.Report = true
	}
	return d, nil
}

// misnamed reports whether a status names another operation than the one that is under way.
func misnamed(named *v1alpha1.Operation, calm bool, workflowID string) bool {
	switch {
	case calm:
		return named != nil
	case workflowID == "":
		return false
	default:
		return named == nil || named.WorkflowID != workflowID
	}
}

// picture shows the sets that have machines, or want some, and the current one; the newest first.
func picture(o rollout.Observed) Picture {
	p := Picture{Wanted: o.Replicas, Counts: rollout.Report(o).Counts}
	sets := slices.Clone(o.Sets)
	slices.SortStableFunc(sets, func(a, b rollout.Set) int { return cmp.Compare(b.Revision, a.Revision) })
	for _, s := range sets {
		line := SetPicture{Name: s.Name, Revision: s.Revision, Current: s.Current, Replicas: s.Replicas, Machines: len(s.Machines)}
		for _, m := range s.Machines {
			switch {
			case m.Deleting:
				line.Deleting++
			case m.Available:
				line.Available++
			}
		}
		if !s.Current {
			p.Old += line.Machines
		}
		p.Blocked = cmp.Or(p.Blocked, s.Failure.Reason)
		if (s.Current || s.Replicas+line.Machines > 0) && len(p.Sets) < mostSets {
			p.Sets = append(p.Sets, line)
		}
	}
	return p
}

// versions returns what was read of a deployment and all below it.
func versions(f observe.Family) Gate {
	gate := Gate{observe.Deployments: f.Deployment.ResourceVersion}
	for _, set := range f.Sets {
		gate.Raise(observe.Sets, set.ResourceVersion)
	}
	for _, m := range f.Members {
		gate.Raise(observe.Machines, m.ResourceVersion)
	}
	return gate
}

// family returns a deployment and all below it as fresh as asked for; its Deployment is nil when it is gone. Machines are read
// live where the others are: what is decided about sets must not be made of older ones.
func (a *Activities) family(ctx context.Context, in Read) (observe.Family, error) {
	live, err := a.fresh(ctx, in)
	if err != nil {
		return observe.Family{}, err
	}
	if !live {
		d, found := a.Cluster.Deployment(in.Ref.Key())
		if !found || string(d.UID) != in.Ref.UID {
			return observe.Family{}, nil
		}
		return a.Cluster.Family(d), nil
	}
	d, err := a.liveDeployment(ctx, in.Ref)
	if err != nil || d == nil {
		return observe.Family{}, err
	}
	family := a.Cluster.Family(d)
	if family.Sets, err = a.Cluster.LiveSetsOf(ctx, d); err != nil {
		return observe.Family{}, err
	}
	family.Members, family.Read = nil, "" // a list by labels leaves out whose labels have just changed: what is counted, counts
	for _, set := range family.Sets {
		around, err := a.Cluster.LiveAroundSet(ctx, set)
		if err != nil {
			return observe.Family{}, err
		}
		family.Members = append(family.Members, around.Members...)
	}
	return family, nil
}

// liveDeployment reads a deployment from the API server; nil when it is gone.
func (a *Activities) liveDeployment(ctx context.Context, ref Ref) (*v1alpha1.MachineDeployment, error) {
	d, err := a.Cluster.Client().MachineV1alpha1().MachineDeployments(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get deployment %s: %w", ref.Key(), err)
	case string(d.UID) != ref.UID:
		return nil, nil
	}
	return d, nil
}

// FinalizeDeployment puts our finalizer on a deployment, or takes it off one that is being deleted and has no set left. It
// returns the version to wait for.
func (a *Activities) FinalizeDeployment(ctx context.Context, in Read) (string, error) {
	family, err := a.family(ctx, in)
	if err != nil {
		return "", err
	}
	d := family.Deployment
	if d == nil {
		return "", objectGone(in.Ref)
	}
	finalizers, change := finalizers(d, len(family.Sets) == 0)
	if !change {
		return d.ResourceVersion, nil
	}
	data, err := seen(map[string]any{"metadata": map[string]any{"finalizers": finalizers}}, d)
	if err != nil {
		return "", err
	}
	d, err = a.Cluster.Client().MachineV1alpha1().MachineDeployments(in.Ref.Namespace).Patch(ctx, in.Ref.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return "", writeError(in.Ref, err)
	}
	return d.ResourceVersion, nil
}

// overlap says with whose selectors a deployment's machines collide; empty when with nobody's.
func (a *Activities) overlap(d *v1alpha1.MachineDeployment) string {
	others := a.Cluster.OverlappingDeployments(d)
	if len(others) == 0 {
		return ""
	}
	slices.Sort(others)
	return "the selector of " + strings.Join(others, ", ") + " matches the machines of this deployment"
}
