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

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// Input says how fresh the facts of a deployment's decision must be, and for which workflow it is made.
type Input struct {
	kube.Read
	// WorkflowID of a rollout: as long as it is open, the deployment's status must name it. Empty for other workflows.
	WorkflowID string
	// Over is the workflow ID of a rollout that has ended, although the deployment's status may still name it. Empty: none
	// is known.
	Over string
}

// Decision is what a MachineDeployment needs next.
type Decision struct {
	Gone    bool               // the object does not exist any more: only the reason in Pending is set besides
	Pending attention.Decision // the pending work; calm when there is none
	Version string             // resourceVersion of the deployment that was read
	// Generation is its metadata.generation.
	Generation int64 `json:",omitzero"`
	// Operation is the workflow ID of the rollout that the status names, open or not; empty when it names none.
	Operation   string
	Rollout     rollout.Decision
	Prepare     bool // our finalizer is missing
	Release     bool // no set is left of a deployment that is being deleted
	Replace     bool // replacements are to be granted, marked or ended
	ReplaceHeld bool // machines are due for replacement, and none may be replaced now
	// ReplaceHeldUntil is when to decide again, because held machines may be replaced then; zero: that depends on another
	// change.
	ReplaceHeldUntil time.Time
	Report           bool             // the status does not show what was read
	Blocked          explain.Summary  `json:",omitzero"` // what blocks the deployment, its sets and its machines
	Picture          Picture          // for people
	Seen             kube.MinVersions // versions that were read; a later decision must not read older ones
}

// Picture shows people the progress of a deployment.
type Picture struct {
	Wanted  int
	Counts  rollout.Counts
	Old     int    // machines of other templates, including those that are being deleted
	Blocked string // reason why machines get no instance; empty when nothing blocks
	Sets    []SetPicture
}

// SetPicture is a line of a Picture.
type SetPicture struct {
	Name      string
	Revision  int64
	Current   bool
	Replicas  int
	Machines  int // including those that are being deleted
	Available int
	Deleting  int
}

// mostSets bounds the lines of a picture. Source: what fits on a screen, and into a decision of 16 KiB.
const mostSets = 10

// DecideDeployment reads a deployment with its sets and machines, and returns what to do next.
func (a *Activities) DecideDeployment(ctx context.Context, in Input) (Decision, error) {
	tree, err := ReadTree(ctx, a.Kube, in.Read)
	if err != nil {
		return Decision{}, err
	}
	deployment := tree.Deployment
	if deployment == nil {
		return Decision{Gone: true, Pending: kube.ObjectIsGone}, nil
	}
	now := in.Time()
	observed := observedeployment.Observed(tree, now)
	plan := rollout.Plan(observed)
	d := Planned(deployment, observed, plan)
	d.Operation, d.Seen = observedeployment.Named(deployment), versions(tree)
	d.Prepare = !observed.Deleting && !observed.Finalizer
	hold := ""
	if observed.MCM.Due+observed.MCM.Replacing > 0 && !observed.Deleting {
		replacing := replace.Decide(observedeployment.ReplaceObserved(a.Kube.Cluster, deployment, tree.Members, now))
		hold = replacing.Hold
		d.Replace = replacing.Changed || len(replacing.Mark) > 0
		d.ReplaceHeld, d.ReplaceHeldUntil = hold != "", replacing.HoldUntil
		switch {
		case d.Pending.Need == attention.Replace:
			d.Pending.Why = replacing.Why
		case plan.Replaces:
			d.Pending.Waits = replacing.Why
		}
	}
	d.Blocked = observedeployment.Explained(tree, plan, hold, now).Blocked(now)
	said := observedeployment.IsExplained(&deployment.Status, d.Blocked) &&
		hold == observedeployment.MessageOf(deployment, v1alpha1.MachineDeploymentReplacementHeld)
	d.Report = Unreported(in, plan, d.Blocked, deployment.Status.CurrentOperation, said)
	return d, nil
}

// Planned returns what a plan says about a deployment, of either family of kinds.
func Planned(deployment metav1.Object, observed rollout.Observed, plan rollout.Planned) Decision {
	return Decision{
		Pending:    plan.Pending,
		Version:    deployment.GetResourceVersion(),
		Generation: deployment.GetGeneration(),
		Rollout:    plan.Decision,
		Release:    observed.Deleting && observed.Finalizer && plan.Decision.Done,
		Picture:    pictureOf(observed, plan.Status.Counts),
	}
}

// Unreported reports whether the status of a deployment has to be written. named is the operation in the status, and
// said reports whether the status says what blocks the deployment.
func Unreported(in Input, plan rollout.Planned, blocked explain.Summary, named *v1alpha1.Operation, said bool) bool {
	calm := plan.Pending.Calm() && !blocked.Blocked()
	return plan.Unreported || misnamed(named, calm, in.WorkflowID) || !said
}

// misnamed reports whether a status names another operation than the one that is running.
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

// pictureOf shows the current set, and the sets that have machines or want some, the newest first.
func pictureOf(o rollout.Observed, counts rollout.Counts) Picture {
	p := Picture{Wanted: o.Replicas, Counts: counts}
	sets := slices.Clone(o.Sets)
	slices.SortStableFunc(sets, func(a, b rollout.Set) int { return cmp.Compare(b.Revision, a.Revision) })
	for _, s := range sets {
		line := SetPicture{
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
		if (s.Current || s.Replicas+line.Machines > 0) && len(p.Sets) < mostSets {
			p.Sets = append(p.Sets, line)
		}
	}
	return p
}

// versions returns the versions of a deployment and its sets and machines, and of the sets that it may adopt.
func versions(f observedeployment.Tree) kube.MinVersions {
	seen := kube.MinVersions{cache.Deployments: f.Deployment.ResourceVersion}
	if f.Policy != nil {
		seen.Raise(cache.Policies, f.Policy.ResourceVersion)
	}
	for _, set := range slices.Concat(f.Sets, f.Orphans) {
		seen.Raise(cache.Sets, set.ResourceVersion)
	}
	for _, m := range f.Members {
		seen.Raise(cache.Machines, m.ResourceVersion)
	}
	return seen
}

// ReadTree returns a deployment with its sets and machines, as fresh as asked for; Deployment is nil when the
// deployment is gone. After a live read of the sets, the machines are read live too, because a decision about sets must
// not use older ones.
func ReadTree(ctx context.Context, a *kube.Kube, in kube.Read) (observedeployment.Tree, error) {
	if !a.Ours(in) {
		return observedeployment.Tree{}, nil
	}
	live, err := a.Fresh(ctx, in)
	if err != nil {
		return observedeployment.Tree{}, err
	}
	if !live {
		d, found := a.Cluster.Deployment(in.Ref.Key())
		if !found || string(d.UID) != in.Ref.UID {
			return observedeployment.Tree{}, nil
		}
		return observedeployment.Read(a.Cluster, d), nil
	}
	d, err := kube.Live(ctx, a.Deployments(in.Ref.Namespace), "deployment", in.Ref)
	if err != nil || d == nil {
		return observedeployment.Tree{}, err
	}
	tree := observedeployment.Read(a.Cluster, d)
	if tree.Sets, tree.Orphans, err = a.Cluster.LiveSetsOf(ctx, d); err != nil {
		return observedeployment.Tree{}, err
	}
	if tree.Policy, err = a.Cluster.LivePolicyOf(ctx, d); err != nil {
		return observedeployment.Tree{}, err
	}
	// a list by labels misses machines whose labels have just changed, so its version proves nothing
	tree.Members, tree.Read = nil, ""
	for _, set := range tree.Sets {
		related, err := observeset.ReadLive(ctx, a.Cluster, set)
		if err != nil {
			return observedeployment.Tree{}, err
		}
		tree.Members = append(tree.Members, related.Members...)
	}
	return tree, nil
}

// FinalizeDeployment adds our finalizer to a deployment, or removes it from a deployment that is being deleted and has
// no set left. It returns the version to wait for.
func (a *Activities) FinalizeDeployment(ctx context.Context, in kube.Read) (string, error) {
	tree, err := ReadTree(ctx, a.Kube, in)
	if err != nil {
		return "", err
	}
	return kube.Finalize(ctx, a.Kube.Deployments(in.Ref.Namespace), in.Ref, tree.Deployment, len(tree.Sets) == 0)
}
