package machine

import (
	"cmp"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/workflows/run"
)

// callProvider retries one provider call until it succeeds. callProvider returns nil, nil if the call was cancelled, or
// if something has changed after a problem was reported. The caller must then decide again. The creation timeout ends a
// call that creates an instance. A call that deletes an instance has no timeout.
func (m *machine) callProvider(
	ctx workflow.Context,
	d activities.Decision,
	activity any,
	call cloud.InstanceCall,
) (*cloud.InstanceAnswer, error) {
	m.callCauses = d.Call
	why := m.Shown.Why
	for !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		answer, end, err := m.callProviderInterruptibly(ctx, d, activity, call)
		if d.Need == attention.NeedInstance {
			call.NeverTried = false // the first call may have created an instance
		}
		switch {
		case err != nil:
			return nil, err
		case end == outcomeAborted:
			return nil, nil
		case end == outcomeRetryNow:
			call.Known = nil // the cause of the back-off has changed, so call again at once
			if err := m.clearProblemOfPreviousCall(ctx, d, why); err != nil {
				return nil, err
			}
		case answer.Problem == nil, m.needsInstanceNames(d) && answer.HasNoInstance():
			return &answer, nil
		case d.Need == attention.NeedDeletion && call.NeverTried && needsPersonToRepair(*answer.Problem):
			return &cloud.InstanceAnswer{}, nil // no instance was ever created, so the deletion succeeds
		default:
			if again, err := m.handleProblem(ctx, d, &call, answer, end); err != nil || !again {
				return nil, err
			}
		}
	}
	return nil, nil
}

// showRepeatedCallChangeID is the change ID of ADR 0121.
const showRepeatedCallChangeID = "show-repeated-call"

// clearProblemOfPreviousCall removes the problem of the previous call from the status, because the next call may be
// open for a long time and the old problem is out of date. The step starts again, with the text from before the
// problem.
func (m *machine) clearProblemOfPreviousCall(ctx workflow.Context, d activities.Decision, why string) error {
	if workflow.GetVersion(ctx, showRepeatedCallChangeID, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	s := m.Shown
	s.Why, s.WaitsFor, s.BlockedBy, s.Stuck = why, "", nil, false
	m.ShowStep(ctx, s)
	m.Shown.Since = workflow.Now(ctx)
	report := m.progressReport(ctx, "", nil)
	if d.Need == attention.NeedInstance {
		report.Conditions = []activities.Condition{creatingCondition(why)}
	}
	return m.writeStatus(ctx, "the call is made again", report)
}

// handleProblem shows the problem that a provider call returned. handleProblem reports whether to call again after a
// back-off.
func (m *machine) handleProblem(
	ctx workflow.Context,
	d activities.Decision,
	call *cloud.InstanceCall,
	answer cloud.InstanceAnswer,
	end callOutcome,
) (again bool, err error) {
	problem := answer.Problem
	if answer.LastKnownState != "" {
		call.LastKnownState = answer.LastKnownState
	}
	if problem.Reason == kube.ReasonTokenGone {
		if ready, err := m.issueToken(ctx, d, call); err != nil || !ready {
			return false, err
		}
	}
	switch {
	case needsPersonToRepair(*problem) && end == outcomeStale: // a change may have solved the problem
		return false, m.showProblem(ctx, d, *problem, call.LastKnownState, false)
	case needsPersonToRepair(*problem):
		return false, m.awaitRepairByPerson(ctx, d, *problem)
	}
	call.Known = problem
	return true, m.showProblem(ctx, d, *problem, call.LastKnownState, false)
}

// needsPersonToRepair reports whether a problem lasts until a person changes something.
func needsPersonToRepair(p kube.Problem) bool {
	return p.React == kube.ReactionUntilSpecChange || p.React == kube.ReactionUntilCredentialChange
}

// callOutcome describes how a provider call ended.
type callOutcome int

const (
	outcomeNothingChanged callOutcome = iota
	outcomeStale                      // something changed during the call, so the answer to the call may be out of date
	outcomeRetryNow                   // the cause of the back-off has changed, so call again at once
	// the call was cancelled, because the machine is being deleted or the creation timeout has ended
	outcomeAborted
)

// callProviderInterruptibly runs an activity of the provider. At each signal, callProviderInterruptibly keeps the call,
// repeats it at once, or cancels it. callProviderInterruptibly cancels a creation as soon as the machine is being
// deleted or the creation timeout has ended. If a cancelled call has created an instance, the deletion of the machine
// finds this instance by the machine's UID.
func (m *machine) callProviderInterruptibly(
	ctx workflow.Context,
	d activities.Decision,
	activity any,
	call cloud.InstanceCall,
) (answer cloud.InstanceAnswer, end callOutcome, err error) {
	if err := m.awaitUnfinishedCall(ctx); err != nil {
		return answer, end, err
	}
	futures := make([]workflow.Future, 0, 2)
	if d.Need == attention.NeedInstance {
		futures = append(futures, m.creationTimeoutTimer(ctx, d.CreateBy))
	}
	call.FailsWithProblem = !m.needsInstanceNames(d) // a question whose answer is no is not a refused call
	options, name := m.callOptions(ctx, d, call)
	options, cancel := workflow.WithCancel(options)
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, call)
	futures = append(futures, future)
	if err := m.reportBlockers(ctx, call); err != nil {
		return answer, end, err
	}
	for {
		if err := m.AwaitChange(ctx, futures...); err != nil {
			return answer, end, err
		}
		changed := m.ReceiveSignals()
		switch {
		case future.IsReady():
			answer, err = instanceAnswer(ctx, future)
			return answer, end, err
		case futures[0].IsReady(): // the creation timeout has ended
			m.Live, m.unfinishedCall, m.unfinishedCallName = true, future, name
			return answer, outcomeAborted, nil
		case !changed:
			continue
		}
		now, createBy, err := m.reconsiderCall(ctx, d, call)
		if now == outcomeNothingChanged && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			now = outcomeAborted // the next run calls the provider again
		}
		if err != nil || now == outcomeRetryNow || now == outcomeAborted {
			m.unfinishedCall, m.unfinishedCallName = future, name
			return answer, now, err
		}
		if end = max(end, now); len(futures) > 1 { // the creation timeout may have changed
			futures[0] = m.creationTimeoutTimer(ctx, createBy)
		}
	}
}

// instanceAnswer returns the answer of a provider call that has ended. The worker returns a problem as a result or as a
// failure, see InstanceCall.FailsWithProblem.
func instanceAnswer(ctx workflow.Context, call workflow.Future) (answer cloud.InstanceAnswer, err error) {
	err = call.Get(ctx, &answer)
	failure, is := kube.FailureOfType(err, kube.FailureTypeProblem)
	if !is {
		return answer, err
	}
	if failed := failure.Details(&answer); failed != nil {
		return answer, fmt.Errorf("read the problem of a provider call: %w", failed)
	}
	if answer.Problem == nil { // a worker in another language left out the detail
		return answer, err
	}
	return answer, nil
}

// callOptions returns the activity options of a provider call, and the name in its activity ID.
func (m *machine) callOptions(
	ctx workflow.Context,
	d activities.Decision,
	call cloud.InstanceCall,
) (options workflow.Context, name string) {
	name, why, of := m.Shown.Name, m.Shown.Why, run.CloudCallOptions
	if m.needsInstanceNames(d) {
		if name, why = vocabulary.StepGetInstanceStatus, "is there an instance that is not on record?"; call.Known == nil {
			of = run.OptionalCloudCallOptions
		}
	}
	options = of(ctx, d.Provider, m.ActivityID(name), why)
	if d.Yields {
		options = run.WithLowerPriority(options)
	}
	return options, name
}

func (m *machine) creationTimeoutTimer(ctx workflow.Context, at time.Time) workflow.Future {
	return m.EnsureTimer(ctx, "creation", run.CreationTimeoutLabel("making the instance"), at)
}

// reconsiderCall decides after a signal whether a provider call continues. reconsiderCall also returns the current end
// of the creation timeout. A call in back-off continues unless its cause has changed (Decision.Call). Decisions of
// earlier versions have no Decision.Call. After such a decision, the call is repeated at once.
func (m *machine) reconsiderCall(
	ctx workflow.Context,
	d activities.Decision,
	call cloud.InstanceCall,
) (callOutcome, time.Time, error) {
	var now activities.Decision
	var err error
	if d.Need == attention.NeedInstance {
		now, err = m.Decide(ctx)
		if err != nil || now.Gone || now.Need != attention.NeedInstance || hasOtherProvider(now, d) {
			return outcomeAborted, now.CreateBy, err
		}
		d.CreateBy = now.CreateBy
	} else if d.Deletion == nil { // this call deletes only the instance of a stale node, so no change cancels the call
		return outcomeStale, d.CreateBy, nil
	} else if now, err = m.Decide(ctx); err != nil || m.isCallUnwanted(now, d) {
		return outcomeAborted, time.Time{}, err
	}
	switch before := m.callCauses; {
	case call.Known != nil && now.Call != "" && now.Call == before:
		return outcomeNothingChanged, d.CreateBy, nil
	case call.Known != nil:
		m.callCauses = now.Call
		return outcomeRetryNow, d.CreateBy, nil
	}
	return outcomeStale, d.CreateBy, m.reportBlockers(ctx, call)
}

// isCallUnwanted reports whether a call for a deletion is no longer needed. A call is unwanted if a person has held the
// deletion, abandoned the instance or skipped the drain, or if the class names another provider.
func (m *machine) isCallUnwanted(now, before activities.Decision) bool {
	return now.Deletion == nil || now.Deletion.BlockedBy != nil || now.Deletion.Stage != before.Deletion.Stage ||
		m.needsInstanceNames(before) && now.Deletion.Hurry && !before.Deletion.Hurry || hasOtherProvider(now, before)
}

// hasOtherProvider reports whether the class names another provider than before. The call must then use the task queue
// of the new provider.
func hasOtherProvider(now, before activities.Decision) bool {
	return now.Provider != "" && now.Provider != before.Provider
}

// reportBlockers reports the step of an open call again if the status does not name the current blockers. The blockers
// change when the provider loses its workers, has workers again, or has not answered for a long time. reportBlockers
// also reports the step if the page of this run in Temporal does not show the blockers. For a call in back-off,
// reportBlockers does nothing, because the problem of the call is already reported.
func (m *machine) reportBlockers(ctx workflow.Context, call cloud.InstanceCall) error {
	shown := !m.isBlocked || len(m.Shown.BlockedBy) > 0
	if shown && !m.areBlockersUnreported || call.Known != nil {
		return nil
	}
	m.areBlockersUnreported = false
	return m.writeStatus(ctx, "what blocks the call has changed", m.progressReport(ctx, "", nil))
}

// awaitUnfinishedCall waits for the end of an unfinished call, because two calls for one machine must never run at the
// same time. If the unfinished call is an inquiry, awaitUnfinishedCall cancels it. The outcome of the unfinished call
// is ignored.
func (m *machine) awaitUnfinishedCall(ctx workflow.Context) error {
	if m.unfinishedCall == nil {
		return nil
	}
	if m.instanceGoneCheck.cancelCall != nil {
		m.instanceGoneCheck.cancelCall()
		m.instanceGoneCheck.cancelCall = nil
	}
	if err := m.SetSearchAttributes(ctx); err != nil { // the activity of the call may receive its cancellation late
		return err
	}
	m.RecordCancelledActivity(m.unfinishedCallName, m.unfinishedCall.Get(ctx, nil))
	m.unfinishedCall = nil
	return ctx.Err()
}

// awaitRepairByPerson shows a problem that only a person can solve, and waits until something changes. A timer makes
// the wait visible in Temporal's timeline, which shows neither current details nor results of local activities. When
// the timer fires, the run decides again. The creation timeout is paused during the wait.
func (m *machine) awaitRepairByPerson(ctx workflow.Context, d activities.Decision, p kube.Problem) error {
	m.CancelTimer("creation")
	if err := m.showProblem(ctx, d, p, "", true); err != nil {
		return err
	}
	wait := m.EnsureTimer(
		ctx,
		"repair",
		run.BlockedLabel(p.Reason, p.Message),
		workflow.Now(ctx).Add(run.StuckRecheckInterval),
	)
	defer m.CancelTimer("repair")
	return m.AwaitChange(ctx, wait)
}

// showProblem shows a problem in the details, search attributes, status, condition and event. The report also contains
// the state of the instance from the provider's last answer.
func (m *machine) showProblem(
	ctx workflow.Context,
	d activities.Decision,
	p kube.Problem,
	lastKnownState string,
	stuck bool,
) error {
	phase, operation := vocabulary.PhaseCrashLoopBackOff, vocabulary.OperationCreate
	if d.Need == attention.NeedDeletion {
		phase, operation = vocabulary.PhaseTerminating, vocabulary.OperationDelete
	}
	s := m.Shown
	if m.needsInstanceNames(d) {
		s.Name = vocabulary.StepGetInstanceStatus
	}
	s.Name = cmp.Or(
		s.Name,
		map[attention.Need]string{attention.NeedInstance: vocabulary.StepCreateInstance, attention.NeedDeletion: vocabulary.StepDeleteInstance}[d.Need],
	)
	s.Why, s.Phase, s.BlockedBy, s.Stuck = p.Message, phase, run.ReasonList(p.Reason), stuck
	if stuck {
		s.Deadline = time.Time{}
	}
	m.ShowStep(ctx, s)
	report := m.progressReport(
		ctx,
		phase,
		newLastOperation(operation, vocabulary.StateFailed, "Cloud provider message - "+p.Message),
	)
	report.Operation.ErrorCode = p.Reason
	report.LastKnownState = lastKnownState
	report.Stopped = stuck && d.Need == attention.NeedInstance
	report.Conditions = problemConditions(d, p)
	report.Event = &kube.Event{Warning: true, Reason: p.Reason, Message: p.Message}
	return m.writeStatus(ctx, "blocked by "+p.Reason+": "+p.Message, report)
}

// problemConditions returns the conditions that show the problem. If a provider call has a problem, the class and its
// Secrets have already been read.
func problemConditions(d activities.Decision, p kube.Problem) []activities.Condition {
	switch p.Reason {
	case vocabulary.ReasonClassNotFound,
		vocabulary.ReasonClassInvalid,
		vocabulary.ReasonSecretNotFound,
		vocabulary.ReasonSecretInvalid,
		vocabulary.ReasonSecretNotAllowed:
		return []activities.Condition{{Type: vocabulary.ConditionClassReady, Reason: p.Reason, Message: p.Message}}
	default:
		return []activities.Condition{
			{Type: vocabulary.ConditionInstanceReady, Reason: p.Reason, Message: p.Message},
			classReadyCondition(d),
		}
	}
}

func classReadyCondition(d activities.Decision) activities.Condition {
	return activities.Condition{
		Type:    vocabulary.ConditionClassReady,
		True:    true,
		Reason:  vocabulary.ReasonClassFound,
		Message: "MachineClass " + d.Class + " and its Secrets were read",
	}
}
