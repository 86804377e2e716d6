// Package deployment has the activities on one MachineDeployment, its sets, and the machines and nodes of a rollout.
package deployment

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/explain"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	observedeployment "millwright/observe/deployment"
	observeset "millwright/observe/set"
)

// Activities are the activities of this package. Workflows call the methods of Activities by name.
type Activities struct{ Kube *kube.Kube }

// Input defines how fresh the objects that a decision reads must be, and which workflow makes the decision.
type Input struct {
	kube.ReadInput
	// WorkflowID is the ID of a rollout's workflow; empty for other workflows. While the rollout is open, the
	// deployment's status must name this ID.
	WorkflowID string
	// Over is the workflow ID of a rollout that has ended, although the deployment's status may still name the rollout.
	// Empty: no ended rollout is known.
	Over string
}

// Decision says what a MachineDeployment needs next.
type Decision struct {
	Gone    bool               // the object no longer exists: only Gone and the reason in Pending are set
	Pending attention.Decision // pending work; the zero value means no work
	Version string             // resourceVersion of the deployment that was read
	// Generation is the deployment's metadata.generation.
	Generation int64 `json:",omitzero"`
	// Operation is the workflow ID of the rollout that the status names, open or closed; empty if the status names
	// none.
	Operation   string
	Rollout     rollout.Decision
	Prepare     bool // Millwright's finalizer is missing
	Release     bool // the deployment is being deleted and has no set
	Replace     bool // replacements must be granted, marked or ended
	ReplaceHeld bool // machines are due for replacement, but none may be replaced now
	// ReplaceHeldUntil is the time of the next decision, because held machines may then be replaced. If
	// ReplaceHeldUntil is zero, another change must trigger the next decision.
	ReplaceHeldUntil time.Time
	Report           bool             // the status is out of date
	Blocked          explain.Summary  `json:",omitzero"` // blockers of the deployment, its sets and its machines
	Picture          ProgressOverview // shown to people
	Seen             kube.MinVersions // resource versions that were read; a later decision must not read older versions
}

// ProgressOverview shows people the progress of a deployment.
type ProgressOverview struct {
	Wanted  int
	Counts  rollout.MachineCounts
	Old     int    // machines of sets other than the current set, including machines that are being deleted
	Blocked string // reason why machines get no instance; empty: not blocked
	Sets    []SetOverview
}

// SetOverview is a line of a ProgressOverview.
type SetOverview struct {
	Name      string
	Revision  int64
	Current   bool
	Replicas  int
	Machines  int // includes machines that are being deleted
	Available int
	Deleting  int
}

// maxSetsInOverview limits the lines of a picture. Source: the lines that fit on a screen, and into a decision of 16
// KiB.
const maxSetsInOverview = 10

// DecideDeployment reads a deployment with its sets and machines, and returns the next step.
func (a *Activities) DecideDeployment(ctx context.Context, in Input) (Decision, error) {
	tree, err := ReadObjectTree(ctx, a.Kube, in.ReadInput)
	if err != nil {
		return Decision{}, err
	}
	deployment := tree.Deployment
	if deployment == nil {
		return Decision{Gone: true, Pending: kube.ObjectGoneDecision}, nil
	}
	now := in.DecisionTime()
	observed := observedeployment.RolloutFacts(tree, now)
	if rollout.MustConfirmTurn(observed) {
		if tree, err = tree.WithLiveSiblings(ctx, a.Kube.Cluster); err != nil {
			return Decision{}, err
		}
		observed = observedeployment.RolloutFacts(tree, now)
	}
	plan := rollout.PlanDeployment(observed)
	d := NewDecision(deployment, observed, plan)
	d.Operation, d.Seen = observedeployment.CurrentRolloutID(deployment), treeVersions(tree)
	d.Prepare = !observed.Deleting && !observed.HasFinalizer
	hold := ""
	if observed.MCM.DueMachineCount+observed.MCM.PendingGrantCount > 0 && !observed.Deleting {
		replacing := replace.Decide(observedeployment.ReplacementFacts(a.Kube.Cluster, deployment, tree.Members, now))
		hold = replacing.HoldReason
		d.Replace = replacing.GrantsChanged || len(replacing.UIDsToAnnotate) > 0
		d.ReplaceHeld, d.ReplaceHeldUntil = hold != "", replacing.RecheckTime
		switch {
		case d.Pending.Need == attention.NeedReplacement:
			d.Pending.Why = replacing.Why
		case plan.ReplacementPending:
			d.Pending.Waits = replacing.Why
		}
	}
	d.Blocked = observedeployment.ExplanationFacts(tree, plan, hold, now).BlockedSummary(now)
	said := observedeployment.StatusShowsBlockers(&deployment.Status, d.Blocked) &&
		hold == observedeployment.ConditionMessage(deployment, v1alpha1.MachineDeploymentReplacementHeld)
	d.Report = IsReportNeeded(in, plan, d.Blocked, deployment.Status.CurrentOperation, said)
	return d, nil
}

// NewDecision converts a plan into the decision about a deployment of MCM or of Cluster API.
func NewDecision(deployment metav1.Object, observed rollout.Facts, plan rollout.PlanResult) Decision {
	return Decision{
		Pending:    plan.PendingWork,
		Version:    deployment.GetResourceVersion(),
		Generation: deployment.GetGeneration(),
		Rollout:    plan.Decision,
		Release:    observed.Deleting && observed.HasFinalizer && plan.Decision.Done,
		Picture:    newProgressOverview(observed, plan),
	}
}

// IsReportNeeded reports whether the status of a deployment must be written. named is the operation in the status. said
// is true if the status names what blocks the deployment.
func IsReportNeeded(
	in Input,
	plan rollout.PlanResult,
	blocked explain.Summary,
	named *v1alpha1.Operation,
	said bool,
) bool {
	calm := plan.PendingWork.NeedsNothing() && !blocked.IsBlocked()
	return plan.NeedsStatusWrite || isCurrentOperationOutdated(named, calm, in.WorkflowID) || !said
}

// isCurrentOperationOutdated reports whether a status names another operation than the running operation.
func isCurrentOperationOutdated(named *v1alpha1.Operation, calm bool, workflowID string) bool {
	switch {
	case calm:
		return named != nil
	case workflowID == "":
		return false
	default:
		return named == nil || named.WorkflowID != workflowID
	}
}

// newProgressOverview returns a picture of the current set, and of the sets that have machines or desired replicas, the
// newest first. While a pin is in force, the pinned set is the current set.
func newProgressOverview(o rollout.Facts, plan rollout.PlanResult) ProgressOverview {
	p := ProgressOverview{Wanted: o.Replicas, Counts: plan.Status.Counts}
	pin := plan.Decision.Pin
	sets := slices.Clone(o.Sets)
	slices.SortStableFunc(sets, func(a, b rollout.MachineSet) int { return cmp.Compare(b.Revision, a.Revision) })
	for _, s := range sets {
		if pin != nil {
			s.Current = s.Name == pin.Set
		}
		line := SetOverview{
			Name:     s.Name,
			Revision: s.Revision,
			Current:  s.Current,
			Replicas: s.Replicas,
			Machines: len(s.Machines),
		}
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
		if (s.Current || s.Replicas+line.Machines > 0) && len(p.Sets) < maxSetsInOverview {
			p.Sets = append(p.Sets, line)
		}
	}
	return p
}

// treeVersions returns the resource versions of a deployment, its sets and machines, and the sets that the deployment
// may adopt.
func treeVersions(f observedeployment.ObjectTree) kube.MinVersions {
	seen := kube.MinVersions{cache.DeploymentsResource: f.Deployment.ResourceVersion}
	if f.Policy != nil {
		seen.RaiseVersion(cache.RolloutPoliciesResource, f.Policy.ResourceVersion)
	}
	for _, set := range slices.Concat(f.Sets, f.Orphans) {
		seen.RaiseVersion(cache.SetsResource, set.ResourceVersion)
	}
	for _, m := range f.Members {
		seen.RaiseVersion(cache.MachinesResource, m.ResourceVersion)
	}
	return seen
}

// ReadObjectTree returns a deployment with its sets and machines, from the caches, or live if the input requires a live
// read. Deployment is nil if the deployment is gone. If the sets are read live, the machines are read live as well,
// because a decision about live sets must not use older machines.
func ReadObjectTree(ctx context.Context, a *kube.Kube, in kube.ReadInput) (observedeployment.ObjectTree, error) {
	if !a.IsManaged(in) {
		return observedeployment.ObjectTree{}, nil
	}
	live, err := a.NeedsLiveRead(ctx, in)
	if err != nil {
		return observedeployment.ObjectTree{}, err
	}
	if !live {
		d, found := a.Cluster.Deployment(in.Ref.Key())
		if !found || string(d.UID) != in.Ref.UID {
			return observedeployment.ObjectTree{}, nil
		}
		return observedeployment.ReadTree(a.Cluster, d), nil
	}
	d, err := kube.ReadLive(ctx, a.Deployments(in.Ref.Namespace), "deployment", in.Ref)
	if err != nil || d == nil {
		return observedeployment.ObjectTree{}, err
	}
	tree := observedeployment.ReadTree(a.Cluster, d)
	if tree.Sets, tree.Orphans, err = a.Cluster.LiveSetsOfDeployment(ctx, d); err != nil {
		return observedeployment.ObjectTree{}, err
	}
	if tree, err = tree.WithLivePolicy(ctx, a.Cluster); err != nil {
		return observedeployment.ObjectTree{}, err
	}
	// a list by labels misses machines whose labels have just changed, so the version of this list does not cover all
	// machines
	tree.Members, tree.MachinesVersion = nil, ""
	for _, set := range tree.Sets {
		related, err := observeset.ReadLiveRelatedObjects(ctx, a.Cluster, set)
		if err != nil {
			return observedeployment.ObjectTree{}, err
		}
		tree.Members = append(tree.Members, related.Members...)
	}
	return tree, nil
}

// FinalizeDeployment adds Millwright's finalizer to a deployment, or removes the finalizer from a deployment that is
// being deleted and has no set. The result is the resource version of the deployment.
func (a *Activities) FinalizeDeployment(ctx context.Context, in kube.ReadInput) (string, error) {
	tree, err := ReadObjectTree(ctx, a.Kube, in)
	if err != nil {
		return "", err
	}
	return kube.AddOrRemoveFinalizer(
		ctx,
		a.Kube.Deployments(in.Ref.Namespace),
		in.Ref,
		tree.Deployment,
		len(tree.Sets) == 0,
	)
}
