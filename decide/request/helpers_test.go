package request_test

import (
	"slices"
	"time"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/request"
)

// now is the time of all requests. Like the time of a workflow, now is not in whole seconds.
var now = time.Date(2026, 11, 21, 14, 6, 7, 500_000_000, time.UTC)

func nowPlus(d time.Duration) time.Time { return now.Add(d) }

// newOrder returns an order by ann with a reason.
func newOrder(c request.Command, change ...func(*request.CommandOrder)) request.CommandOrder {
	return applyChanges(request.CommandOrder{Command: c, Actor: "ann", Reason: "why"}, change)
}

func applyChanges[T any](v T, change []func(*T)) T {
	for _, c := range change {
		c(&v)
	}
	return v
}

func withExtendFor(d string) func(*request.CommandOrder) {
	return func(o *request.CommandOrder) { o.ExtendFor = d }
}

func withExtendUntil(t string) func(*request.CommandOrder) {
	return func(o *request.CommandOrder) { o.ExtendUntil = t }
}

func withUID(text string) func(*request.CommandOrder) {
	return func(o *request.CommandOrder) { o.UID = text }
}

func withRevision(n int64) func(*request.CommandOrder) {
	return func(o *request.CommandOrder) { o.Revision = &n }
}

func withApprovedSteps(n int) func(*request.CommandOrder) {
	return func(o *request.CommandOrder) { o.ApprovedStepCount = n }
}

func withReason(text string) func(*request.CommandOrder) {
	return func(o *request.CommandOrder) { o.Reason = text }
}
func asRollbackOrder(o *request.CommandOrder)       { o.RollsBack = true }
func asPinOrder(o *request.CommandOrder)            { o.PinsMachines = true }
func asOrderInAdvance(o *request.CommandOrder)      { o.ValidInAdvance = true }
func withRequestTime(o *request.CommandOrder)       { o.RequestedAt = now }
func withoutActorAndReason(o *request.CommandOrder) { o.Actor, o.Reason = "", "" }
func asCommandLineOrder(o *request.CommandOrder)    { o.FromCommandLine = true }

// deletingMachine returns a machine that is being deleted.
func deletingMachine(change ...func(*request.MachineFacts)) request.MachineFacts {
	f := runningMachine()
	f.Phase, f.Deleting, f.Stage = "Terminating", true, deletion.StageDrain
	return applyChanges(f, change)
}

func runningMachine(change ...func(*request.MachineFacts)) request.MachineFacts {
	return applyChanges(request.MachineFacts{
		Name:                 "shop/m-1",
		UID:                  "u-1",
		Phase:                "Running",
		AnnotationKey:        "key",
		Now:                  now,
		PreservationDuration: 96 * time.Hour,
		NodeName:             "n-1",
	}, change)
}

// withDrainingNode makes a machine whose node is being drained although the machine is not being deleted.
func withDrainingNode(f *request.MachineFacts) {
	f.NodeDraining, f.RemovalMeans = true, drain.MeansEvict
}

// withAnnotation sets the value of the command's annotation.
func withAnnotation(text string) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.AnnotationValue = &text }
}

func withDeadline(t time.Time) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.Deadlines.RecordedDeadline, f.RemovalMeans = t, drain.MeansEvict }
}

func withRemovalMeans(m drain.RemovalMeans) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.RemovalMeans = m }
}

func withEndedDrain(stage deletion.Stage) func(*request.MachineFacts) {
	return func(f *request.MachineFacts) { f.Stage, f.DrainEnded = stage, true }
}

// annotationWriteDecision returns the decision to write a value on a machine, with the earlier value of the annotation,
// if any.
func annotationWriteDecision(value string, before ...string) request.Decision {
	d := request.Decision{AnnotationValue: &value, Message: `wrote key: "` + value + `"`}
	for _, b := range before {
		d.Message += `; before: "` + b + `"`
	}
	return d
}

func alreadySetDecision(value string) request.Decision {
	return request.Decision{Repeated: true, Message: `key is already set: "` + value + `"`}
}

func annotationRemovalDecision(before string) request.Decision {
	return request.Decision{AnnotationValue: new(""), Message: `removed key: "` + before + `"`}
}

// idleDeployment returns a deployment of revision 7 whose rollout is complete.
func idleDeployment(change ...func(*request.DeploymentFacts)) request.DeploymentFacts {
	return applyChanges(
		request.DeploymentFacts{Name: "shop/d", UID: "u-1", Now: now, Revision: 7, EarlierRevisions: []int64{3, 6, 5}},
		change,
	)
}

// rollingDeployment returns a deployment in the rollout of revision 7, which has three steps and waits at the second
// step.
func rollingDeployment(change ...func(*request.DeploymentFacts)) request.DeploymentFacts {
	return applyChanges(
		idleDeployment(func(f *request.DeploymentFacts) { f.Rolling, f.StepCount, f.WaitingStep = true, 3, 2 }),
		change,
	)
}

func asPausedDeployment(f *request.DeploymentFacts)    { f.Paused = true }
func withDeletion(f *request.DeploymentFacts)          { f.Deleting = true }
func withInvalidSpec(f *request.DeploymentFacts)       { f.InvalidReason = "the selector is empty" }
func withOnDeleteStrategy(f *request.DeploymentFacts)  { f.IsOnDelete = true }
func withDuplicateRevision(f *request.DeploymentFacts) { f.DuplicateRevisions = []int64{8} }
func withTemplateOwner(f *request.DeploymentFacts) {
	f.TemplateOwner = "the topology of Cluster shop/c"
}
func withPinnedRevision(f *request.DeploymentFacts)      { f.PinnedRevision = 6 }
func withoutPausePoint(f *request.DeploymentFacts)       { f.WaitingStep = 0 }
func withoutEarlierRevisions(f *request.DeploymentFacts) { f.EarlierRevisions = nil }
func withoutCurrentSet(f *request.DeploymentFacts)       { f.Revision, f.EarlierRevisions = 0, []int64{6, 7} }

func withLastGoodRevision(n int64) func(*request.DeploymentFacts) {
	return func(f *request.DeploymentFacts) { f.LastGoodRevision = n }
}

func withHoldReason(by string) func(*request.DeploymentFacts) {
	return func(f *request.DeploymentFacts) { f.HoldReason = by }
}

func withRollback(to int64) func(*request.DeploymentFacts) {
	return func(f *request.DeploymentFacts) { f.RollbackTo = &to }
}

func withApproval(n int) func(*request.DeploymentFacts) {
	return func(f *request.DeploymentFacts) { f.ApprovedStepCount = n }
}

// writesAnything reports whether a decision has at least one write.
func writesAnything(d request.Decision) bool {
	return d.Paused != nil || d.RollbackTo != nil || d.AnnotationValue != nil || d.RestartedAt != nil || d.Record != ""
}

// deploymentAfterDecision returns the deployment after a decision was written. If done is true, the deployment already
// shows the effect of the decision.
func deploymentAfterDecision(
	f request.DeploymentFacts,
	o request.CommandOrder,
	d request.Decision,
	done bool,
) request.DeploymentFacts {
	f.LastRecord = d.Record
	if d.Paused != nil {
		f.Paused = *d.Paused
	}
	if d.RestartedAt != nil {
		f.RestartedAt, f.Revision = *d.RestartedAt, 0
	} else if d.AnnotationValue != nil && d.RollbackTo == nil && (o.Command == request.Cancel || o.Command == request.Resume) {
		f.HoldReason = ""
		if *d.AnnotationValue != "" {
			f.HoldReason = (*d.AnnotationValue)[2:]
		}
	}
	switch {
	case o.Command == request.Approve:
		f.ApprovedStepCount = o.ApprovedStepCount
	case o.Command == request.Retry:
		f.PinnedRevision, f.RetryCount = 0, f.RetryCount+1
	case d.PinRevision != nil:
		f.PinnedRevision = *d.PinRevision
	}
	f.RollbackTo = d.RollbackTo
	if !done {
		return f
	}
	f.WaitingStep, f.Rolling = 0, false
	if to := f.RollbackTo; to != nil {
		f.EarlierRevisions = append(
			slices.DeleteFunc(slices.Clone(f.EarlierRevisions), func(r int64) bool { return r == *to }),
			7,
		)
		f.Revision, f.RollbackTo, f.HoldReason = 8, nil, ""
	}
	return f
}
