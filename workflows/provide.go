package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
)

// provide runs one call of the provider until it succeeds. It returns nil without an error when the machine needs something
// else by now: the call was given up, or a problem was shown and then something changed. A creation ends with its deadline;
// a deletion has none.
func (m *machine) provide(ctx workflow.Context, d activities.MachineDecision, activity any, call activities.InstanceCall) (*activities.InstanceAnswer, error) {
	for !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		answer, end, err := m.interruptible(ctx, d, activity, call)
		if d.Need == attention.Instance {
			call.NeverTried = false // one activity may believe it, not the one after it
		}
		switch {
		case err != nil:
			return nil, err
		case end == aborted:
			return nil, nil
		case end == hurried:
			call.Known = nil // something changed: try at once, and show what comes of it
		case answer.Problem == nil:
			return &answer, nil
		case d.Need == attention.Deletion && call.NeverTried && waitsForPeople(*answer.Problem):
			return &activities.InstanceAnswer{}, nil // nothing was ever made for it: nobody has to mend anything
		default:
			if again, err := m.troubled(ctx, d, &call, answer, end); err != nil || !again {
				return nil, err
			}
		}
	}
	return nil, nil
}

// troubled shows a problem that a call of the provider met, and reports whether to call again: then the call backs off.
func (m *machine) troubled(ctx workflow.Context, d activities.MachineDecision, call *activities.InstanceCall, answer activities.InstanceAnswer, end ending) (again bool, err error) {
	problem := answer.Problem
	if answer.LastKnownState != "" {
		call.LastKnownState = answer.LastKnownState
	}
	if problem.Reason == activities.ReasonTokenGone {
		if ready, err := m.issueToken(ctx, d, call); err != nil || !ready {
			return false, err
		}
	}
	switch {
	case waitsForPeople(*problem) && end == overtaken: // it may be mended already: try again at once
		return false, m.showProblem(ctx, d, *problem, call.LastKnownState, false)
	case waitsForPeople(*problem):
		return false, m.awaitRepair(ctx, d, *problem)
	}
	call.Known = problem
	return true, m.showProblem(ctx, d, *problem, call.LastKnownState, false)
}

// waitsForPeople reports whether a problem stays until somebody changes something.
func waitsForPeople(p activities.Problem) bool {
	return p.React == activities.UntilSpec || p.React == activities.UntilCredential
}

// ending is how a call of the provider ended.
type ending int

const (
	undisturbed ending = iota
	overtaken          // something changed while it ran: what it read may be out of date
	hurried            // something changed while it backed off from a problem: it is worth trying at once
	aborted            // it was given up: the machine is to go, or its time is over
)

// interruptible runs an activity. Whenever the object changes meanwhile it asks whether to keep it, to try again at once,
// or to give it up: a creation is given up as soon as the machine is to go or its timeout has passed. What it may have made
// is found by the deletion, by its UID.
func (m *machine) interruptible(ctx workflow.Context, d activities.MachineDecision, activity any, call activities.InstanceCall) (answer activities.InstanceAnswer, end ending, err error) {
	if err := m.settle(ctx); err != nil {
		return answer, end, err
	}
	futures := make([]workflow.Future, 0, 2)
	if d.Need == attention.Instance {
		futures = append(futures, m.creationTimer(ctx, d.CreateBy))
	}
	options := cloud(ctx, d.Provider, m.activityID(m.shown.name), m.shown.why)
	if d.Yields {
		options = yielding(options)
	}
	options, cancel := workflow.WithCancel(options)
	defer cancel()
	future, name := workflow.ExecuteActivity(options, activity, call), m.shown.name
	futures = append(futures, future)
	for {
		if err := m.awaken(ctx, futures...); err != nil {
			return answer, end, err
		}
		changed := m.receive()
		switch {
		case future.IsReady():
			return answer, end, future.Get(ctx, &answer)
		case futures[0].IsReady(): // a creation's time is over
			m.live, m.running, m.calling = true, future, name
			return answer, aborted, nil
		case !changed:
			continue
		}
		now, createBy, err := m.reconsider(ctx, d, call)
		if err != nil || now != overtaken {
			m.running, m.calling = future, name
			return answer, now, err
		}
		if end = now; len(futures) > 1 { // somebody may have changed the timeout
			futures[0] = m.creationTimer(ctx, createBy)
		}
	}
}

func (m *machine) creationTimer(ctx workflow.Context, at time.Time) workflow.Future {
	return m.timer(ctx, "creation", "gives up making the instance: the creation timeout", at)
}

// reconsider says what becomes of a call of the provider now that something has changed, and when a creation must end.
func (m *machine) reconsider(ctx workflow.Context, d activities.MachineDecision, call activities.InstanceCall) (ending, time.Time, error) {
	if d.Need == attention.Instance {
		now, err := m.decide(ctx)
		if err != nil || now.Gone || now.Need != attention.Instance {
			return aborted, now.CreateBy, err
		}
		d.CreateBy = now.CreateBy
	} else if d.Deletion == nil { // the instance of a stale node goes, and the machine does not: nothing calls that off
		return overtaken, d.CreateBy, nil
	} else if now, err := m.decide(ctx); err != nil || now.Deletion == nil || now.Deletion.BlockedBy != "" || now.Deletion.Stage != d.Deletion.Stage {
		return aborted, time.Time{}, err // a person holds it, or has released the machine from its instance
	}
	if call.Known != nil {
		return hurried, d.CreateBy, nil
	}
	return overtaken, d.CreateBy, nil
}

// settle waits for the end of a call that was given up: two calls for one machine never run at once. How it ends does not
// matter.
func (m *machine) settle(ctx workflow.Context) error {
	if m.running == nil {
		return nil
	}
	if err := m.publish(ctx); err != nil { // it may take long to hear that it was given up
		return err
	}
	m.givenUp(m.calling, m.running.Get(ctx, nil))
	m.running = nil
	return ctx.Err()
}

// awaitRepair shows a problem that only a person can mend, and waits until something changes. The timer stands for the wait
// in the timeline, which shows neither current details nor what a local activity said; when it fires, we look again. The
// clock of a creation stands still meanwhile.
func (m *machine) awaitRepair(ctx workflow.Context, d activities.MachineDecision, p activities.Problem) error {
	m.disarm("creation")
	if err := m.showProblem(ctx, d, p, "", true); err != nil {
		return err
	}
	wait := m.timer(ctx, "repair", "blocked by "+p.Reason+": "+p.Message, workflow.Now(ctx).Add(recheckStuck))
	defer m.disarm("repair")
	return m.awaken(ctx, wait)
}

// showProblem puts a problem where people look: details, search attributes, status, condition and event. What the provider
// knew of its instance is kept with it.
func (m *machine) showProblem(ctx workflow.Context, d activities.MachineDecision, p activities.Problem, lastKnownState string, stuck bool) error {
	phase, operation := "CrashLoopBackOff", "Create"
	if d.Need == attention.Deletion {
		phase, operation = "Terminating", "Delete"
	}
	s := m.shown
	if s.name == "" {
		s.name = map[attention.Need]string{attention.Instance: "create-instance", attention.Deletion: "delete-instance"}[d.Need]
	}
	s.why, s.phase, s.blockedBy, s.stuck = p.Message, phase, p.Reason, stuck
	if stuck {
		s.deadline = time.Time{}
	}
	m.show(ctx, s)
	report := m.progress(phase, lastOperation(operation, "Failed", "Cloud provider message - "+p.Message))
	report.Operation.ErrorCode = p.Reason
	report.LastKnownState = lastKnownState
	report.Stopped = stuck && d.Need == attention.Instance
	report.Conditions = problemConditions(d, p)
	report.Event = &activities.Event{Warning: true, Reason: p.Reason, Message: p.Message}
	return m.write(ctx, "blocked by "+p.Reason+": "+p.Message, core().ReportMachine, report)
}

// problemConditions says where a problem lies. A provider that was asked at all shows that class and Secrets were read.
func problemConditions(d activities.MachineDecision, p activities.Problem) []activities.Condition {
	switch p.Reason {
	case "ClassNotFound", "ClassInvalid", "SecretNotFound", "SecretInvalid":
		return []activities.Condition{{Type: "ClassReady", Reason: p.Reason, Message: p.Message}}
	default:
		return []activities.Condition{{Type: "InstanceReady", Reason: p.Reason, Message: p.Message}, classRead(d)}
	}
}

func classRead(d activities.MachineDecision) activities.Condition {
	return activities.Condition{Type: "ClassReady", True: true, Reason: "ClassFound", Message: "MachineClass " + d.Class + " and its Secrets were read"}
}
