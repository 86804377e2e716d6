package machine

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/workflows/run"
)

// provide runs one call of the provider until it succeeds. It returns nil without an error when the machine needs
// something else by now: the call was given up, or a problem was shown and then something changed. A creation ends with
// its deadline; a deletion has none.
func (m *machine) provide(
	ctx workflow.Context,
	d activities.Decision,
	activity any,
	call cloud.InstanceCall,
) (*cloud.InstanceAnswer, error) {
	m.callsFor = d.Call
	for !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		answer, end, err := m.interruptible(ctx, d, activity, call)
		if d.Need == attention.Instance {
			call.NeverTried = false // valid for the first call only: it may have created something
		}
		switch {
		case err != nil:
			return nil, err
		case end == aborted:
			return nil, nil
		case end == hurried:
			call.Known = nil // something changed: call again at once, and show the outcome
		case answer.Problem == nil, m.unasked(d) && answer.Nameless():
			return &answer, nil
		case d.Need == attention.Deletion && call.NeverTried && waitsForPeople(*answer.Problem):
			return &cloud.InstanceAnswer{}, nil // no instance was ever created
		default:
			if again, err := m.handleProblem(ctx, d, &call, answer, end); err != nil || !again {
				return nil, err
			}
		}
	}
	return nil, nil
}

// handleProblem shows a problem that a call of the provider met, and reports whether to call again, after a back-off.
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
	case waitsForPeople(*problem) && end == overtaken: // it may be solved already: call again at once
		return false, m.showProblem(ctx, d, *problem, call.LastKnownState, false)
	case waitsForPeople(*problem):
		return false, m.awaitRepair(ctx, d, *problem)
	}
	call.Known = problem
	return true, m.showProblem(ctx, d, *problem, call.LastKnownState, false)
}

// waitsForPeople reports whether a problem stays until a person changes something.
func waitsForPeople(p kube.Problem) bool {
	return p.React == kube.UntilSpec || p.React == kube.UntilCredential
}

// callOutcome is how a call of the provider ended.
type callOutcome int

const (
	undisturbed callOutcome = iota
	overtaken               // something changed while it ran: what it read may be out of date
	hurried                 // what it depends on changed while it backed off from a problem: call again at once
	aborted                 // it was given up: the machine is being deleted, or its time is over
)

// interruptible runs an activity. At each signal it decides whether to keep the call, to repeat it at once, or to give
// it up: a creation is given up as soon as the machine is being deleted or its timeout has passed. The deletion finds
// an instance that the call may have created, by the machine's UID.
func (m *machine) interruptible(
	ctx workflow.Context,
	d activities.Decision,
	activity any,
	call cloud.InstanceCall,
) (answer cloud.InstanceAnswer, end callOutcome, err error) {
	if err := m.callEnded(ctx); err != nil {
		return answer, end, err
	}
	futures := make([]workflow.Future, 0, 2)
	if d.Need == attention.Instance {
		futures = append(futures, m.creationTimer(ctx, d.CreateBy))
	}
	options, name := m.callOptions(ctx, d, call)
	options, cancel := workflow.WithCancel(options)
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, call)
	futures = append(futures, future)
	if err := m.tell(ctx, call); err != nil {
		return answer, end, err
	}
	for {
		if err := m.AwaitChange(ctx, futures...); err != nil {
			return answer, end, err
		}
		changed := m.Receive()
		switch {
		case future.IsReady():
			return answer, end, future.Get(ctx, &answer)
		case futures[0].IsReady(): // the creation timeout has ended
			m.Live, m.running, m.calling = true, future, name
			return answer, aborted, nil
		case !changed:
			continue
		}
		now, createBy, err := m.reconsider(ctx, d, call)
		if now == undisturbed && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			now = aborted // the next run calls again
		}
		if err != nil || now == hurried || now == aborted {
			m.running, m.calling = future, name
			return answer, now, err
		}
		if end = max(end, now); len(futures) > 1 { // the timeout may have been changed
			futures[0] = m.creationTimer(ctx, createBy)
		}
	}
}

// callOptions returns the options of a provider's call, and the name from which its activity ID is made.
func (m *machine) callOptions(
	ctx workflow.Context,
	d activities.Decision,
	call cloud.InstanceCall,
) (options workflow.Context, name string) {
	name, why, of := m.Shown.Name, m.Shown.Why, run.Cloud
	if m.unasked(d) {
		if name, why = vocabulary.StepInstanceStatus, "is there an instance that is not on record?"; call.Known == nil {
			of = run.Glance
		}
	}
	options = of(ctx, d.Provider, m.ActivityID(name), why)
	if d.Yields {
		options = run.Yielding(options)
	}
	return options, name
}

func (m *machine) creationTimer(ctx workflow.Context, at time.Time) workflow.Future {
	return m.Timer(ctx, "creation", "gives up making the instance: the creation timeout", at)
}

// reconsider decides what to do with a call of the provider after a signal, and when a creation must end. A call that
// backs off from a problem goes on doing so unless what it depends on has changed; the decisions of earlier versions do
// not say whether it has.
func (m *machine) reconsider(
	ctx workflow.Context,
	d activities.Decision,
	call cloud.InstanceCall,
) (callOutcome, time.Time, error) {
	var now activities.Decision
	var err error
	if d.Need == attention.Instance {
		now, err = m.Decide(ctx)
		if err != nil || now.Gone || now.Need != attention.Instance || elsewhere(now, d) {
			return aborted, now.CreateBy, err
		}
		d.CreateBy = now.CreateBy
	} else if d.Deletion == nil { // the instance of a stale node is deleted, the machine stays: no change cancels that
		return overtaken, d.CreateBy, nil
	} else if now, err = m.Decide(ctx); err != nil || m.unwanted(now, d) {
		return aborted, time.Time{}, err
	}
	switch before := m.callsFor; {
	case call.Known != nil && now.Call != "" && now.Call == before:
		return undisturbed, d.CreateBy, nil
	case call.Known != nil:
		m.callsFor = now.Call
		return hurried, d.CreateBy, nil
	}
	return overtaken, d.CreateBy, m.tell(ctx, call)
}

// unwanted reports whether a call of a deletion is not wanted any more: a person holds the deletion, has abandoned the
// instance, or wants no drain; or the class names another provider.
func (m *machine) unwanted(now, before activities.Decision) bool {
	return now.Deletion == nil || now.Deletion.BlockedBy != nil || now.Deletion.Stage != before.Deletion.Stage ||
		m.unasked(before) && now.Deletion.Hurry && !before.Deletion.Hurry || elsewhere(now, before)
}

// elsewhere reports whether the class names another provider than before: the call must go to the queue of that one.
func elsewhere(now, before activities.Decision) bool {
	return now.Provider != "" && now.Provider != before.Provider
}

// tell reports the step of an open call again when the status does not name what blocks it: its provider has lost its
// workers or has one again, or the call has been open for long. A run whose own page does not show the blockers yet
// also reports, even if the status names them. A call that backs off from a problem reports nothing here: that problem
// is shown.
func (m *machine) tell(ctx workflow.Context, call cloud.InstanceCall) error {
	shown := !m.blocked || len(m.Shown.BlockedBy) > 0
	if shown && !m.unsaid || call.Known != nil {
		return nil
	}
	m.unsaid = false
	return m.writeStatus(ctx, "what blocks the call has changed", m.progress(ctx, "", nil))
}

// callEnded waits for the end of a call that was given up: two calls for one machine never run at once. Its outcome is
// ignored.
func (m *machine) callEnded(ctx workflow.Context) error {
	if m.running == nil {
		return nil
	}
	if m.inquiry.end != nil {
		m.inquiry.end()
		m.inquiry.end = nil
	}
	if err := m.SetSearchAttributes(ctx); err != nil { // the call may take long to learn that it was given up
		return err
	}
	m.GivenUp(m.calling, m.running.Get(ctx, nil))
	m.running = nil
	return ctx.Err()
}

// awaitRepair shows a problem that only a person can solve, and waits until something changes. The timer makes the wait
// visible in the timeline, which shows neither current details nor results of local activities; when it fires, the
// machine is decided again. The clock of a creation stands still meanwhile.
func (m *machine) awaitRepair(ctx workflow.Context, d activities.Decision, p kube.Problem) error {
	m.CancelTimer("creation")
	if err := m.showProblem(ctx, d, p, "", true); err != nil {
		return err
	}
	wait := m.Timer(ctx, "repair", "blocked by "+p.Reason+": "+p.Message, workflow.Now(ctx).Add(run.RecheckStuck))
	defer m.CancelTimer("repair")
	return m.AwaitChange(ctx, wait)
}

// showProblem shows a problem in details, search attributes, status, condition and event. The report also keeps the
// provider's last known state of the instance.
func (m *machine) showProblem(
	ctx workflow.Context,
	d activities.Decision,
	p kube.Problem,
	lastKnownState string,
	stuck bool,
) error {
	phase, operation := vocabulary.PhaseCrashLoopBackOff, vocabulary.OperationCreate
	if d.Need == attention.Deletion {
		phase, operation = vocabulary.PhaseTerminating, vocabulary.OperationDelete
	}
	s := m.Shown
	if m.unasked(d) {
		s.Name = vocabulary.StepInstanceStatus
	}
	s.Name = cmp.Or(
		s.Name,
		map[attention.Need]string{attention.Instance: vocabulary.StepCreateInstance, attention.Deletion: vocabulary.StepDeleteInstance}[d.Need],
	)
	s.Why, s.Phase, s.BlockedBy, s.Stuck = p.Message, phase, run.Reasons(p.Reason), stuck
	if stuck {
		s.Deadline = time.Time{}
	}
	m.Show(ctx, s)
	report := m.progress(
		ctx,
		phase,
		lastOperation(operation, vocabulary.StateFailed, "Cloud provider message - "+p.Message),
	)
	report.Operation.ErrorCode = p.Reason
	report.LastKnownState = lastKnownState
	report.Stopped = stuck && d.Need == attention.Instance
	report.Conditions = problemConditions(d, p)
	report.Event = &kube.Event{Warning: true, Reason: p.Reason, Message: p.Message}
	return m.writeStatus(ctx, "blocked by "+p.Reason+": "+p.Message, report)
}

// problemConditions returns the conditions that show the problem. If the provider was called, the class and its Secrets
// were read.
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
			classRead(d),
		}
	}
}

func classRead(d activities.Decision) activities.Condition {
	return activities.Condition{
		Type:    vocabulary.ConditionClassReady,
		True:    true,
		Reason:  vocabulary.ReasonClassFound,
		Message: "MachineClass " + d.Class + " and its Secrets were read",
	}
}
