package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
)

// machine is one run of a Machine's workflow.
type machine struct {
	*object
}

// Machine keeps one Machine true to its object while it is in motion: it creates the instance, initialises it, awaits its
// node, follows the node's health, and deletes instance, node and finalizer when the object is to go. The run ends when the
// machine is calm or gone. Every step can be interrupted by a deletion, and a run may be terminated at any moment: the
// next one finds its place from the object and the provider.
func Machine(ctx workflow.Context, in Input) (Result, error) {
	m := &machine{newObject(ctx, KindMachine, in)}
	for {
		m.receive()
		d, err := m.decide(ctx)
		if err != nil {
			return Result{}, err
		}
		if d.Gone {
			return Result{OutcomeGone, d.Why}, nil
		}
		over, err := m.step(ctx, d)
		switch {
		case failedWith(err, activities.TypeObjectGone):
			return Result{OutcomeGone, "the object is gone"}, nil
		case err != nil:
			return Result{}, err
		case over && d.Need == attention.Deletion:
			return Result{OutcomeGone, "instance, node and finalizer are gone"}, nil
		case over && !m.receive():
			return Result{OutcomeCalm, d.Why}, nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			m.receive()
			return Result{}, workflow.NewContinueAsNewError(ctx, Machine, Input{Ref: m.ref, Gate: m.gate, Continued: true})
		}
	}
}

// step does what the machine needs next. It reports over when there was nothing to do for a while, or never will be.
func (m *machine) step(ctx workflow.Context, d activities.MachineDecision) (over bool, err error) {
	switch d.Need {
	case attention.Deletion:
		return m.delete(ctx, d)
	case attention.Instance:
		return false, m.create(ctx, d)
	case attention.Node:
		return false, m.awaitNode(ctx, d)
	case attention.Health:
		return false, m.followHealth(ctx, d)
	default:
		if err := m.show(ctx, step{phase: d.Phase, node: d.NodeName, why: d.Why}); err != nil {
			return false, err
		}
		return m.lingered(ctx)
	}
}

// decide asks what the machine needs next.
func (m *machine) decide(ctx workflow.Context) (d activities.MachineDecision, err error) {
	err = quick(ctx, "what does it need next?", core().DecideMachine, m.read(), &d)
	m.live = false
	return d, err
}

// create makes the instance and puts its names into the object. It returns early when the machine is to go, and when what
// it waited for has changed: the caller decides again.
func (m *machine) create(ctx workflow.Context, d activities.MachineDecision) error {
	if d.Problem != nil {
		return m.awaitRepair(ctx, d, *d.Problem)
	}
	if d.Prepare {
		if err := m.write(ctx, "puts the finalizer on", core().PrepareMachine, m.read()); err != nil {
			return err
		}
	}
	if err := m.show(ctx, step{name: "create-instance", why: fmt.Sprintf("provider %s makes the instance from class %s", d.Provider, d.Class), phase: d.Phase, deadline: d.CreateBy}); err != nil {
		return err
	}
	var begun activities.Begun
	begin := m.progress("", lastOperation("Create", "Processing", "Creating machine on cloud provider"))
	begin.Conditions = []activities.Condition{{Type: "InstanceReady", Reason: "Creating", Message: m.shown.why}}
	if err := quick(ctx, "puts on record that a creation begins", core().BeginCreation, begin, &begun); err != nil {
		return err
	}
	m.wrote(begun.Version)

	call := m.call(d)
	call.NeverTried = begun.NeverTried
	answer, err := m.provide(ctx, d, cloudCalls().CreateInstance, call)
	if err != nil || answer == nil {
		return err
	}
	call.ProviderID, call.NodeName, call.LastKnownState = answer.ProviderID, answer.NodeName, answer.LastKnownState
	if err := m.write(ctx, "records instance "+answer.ProviderID, core().RecordInstance, activities.Recorded{Read: m.read(), ProviderID: answer.ProviderID, NodeName: answer.NodeName}); err != nil {
		return err
	}
	if answer.Uninitialized {
		if err := m.show(ctx, step{name: "initialise-instance", why: fmt.Sprintf("provider %s initialises instance %s", d.Provider, call.ProviderID), phase: d.Phase, deadline: d.CreateBy}); err != nil {
			return err
		}
		if answer, err = m.provide(ctx, d, cloudCalls().InitializeInstance, call); err != nil || answer == nil {
			return err
		}
	}
	if err := m.show(ctx, step{name: "await-node", why: fmt.Sprintf("waits for node %s", call.NodeName), phase: "Pending", node: call.NodeName, deadline: d.CreateBy}); err != nil {
		return err
	}
	report := m.progress("Pending", lastOperation("Create", "Processing", "Creating machine on cloud provider"))
	report.LastKnownState = answer.LastKnownState
	report.Conditions = []activities.Condition{
		{Type: "ClassReady", True: true, Reason: "ClassFound", Message: "MachineClass " + d.Class + " and its Secrets were read"},
		{Type: "InstanceReady", True: true, Reason: "InstanceCreated", Message: "instance " + call.ProviderID + " exists"},
	}
	return m.write(ctx, "phase Pending: "+m.shown.why, core().ReportMachine, report)
}

// awaitNode waits until the node joins, the machine is to go, or its creation has taken too long.
func (m *machine) awaitNode(ctx workflow.Context, d activities.MachineDecision) error {
	if err := m.show(ctx, step{name: "await-node", why: d.Why, phase: d.Phase, node: d.NodeName, deadline: d.CreateBy}); err != nil {
		return err
	}
	deadline := m.timer(ctx, "creation", fmt.Sprintf("gives up waiting for node %s: the creation timeout", d.NodeName), d.CreateBy)
	if err := m.awaken(ctx, deadline); err != nil {
		return err
	}
	if !deadline.IsReady() {
		return nil
	}
	m.live = true // what we waited for may have come while nobody told us
	now, err := m.decide(ctx)
	if err != nil || now.Need != attention.Node {
		return err
	}
	return m.failCreation(ctx, now.Why)
}

// followHealth reports the phase that fits what the node shows.
func (m *machine) followHealth(ctx workflow.Context, d activities.MachineDecision) error {
	h := d.Health
	if err := m.show(ctx, step{phase: h.Phase, node: d.NodeName, why: h.Message}); err != nil {
		return err
	}
	return m.write(ctx, "phase "+h.Phase+": "+h.Message, core().ReportMachine, activities.MachineReport{
		Read: m.read(), Phase: h.Phase, Operation: lastOperation(h.Operation, h.State, h.Message),
		Event: &activities.Event{Warning: h.Warning, Reason: h.Reason, Message: h.Message},
	})
}

// delete removes the instance, then the node, then the finalizer, and reports whether it came to the end. Nothing is
// drained yet.
func (m *machine) delete(ctx workflow.Context, d activities.MachineDecision) (released bool, err error) {
	if d.Problem != nil {
		return false, m.awaitRepair(ctx, d, *d.Problem)
	}
	if err := m.show(ctx, step{name: "delete-instance", why: fmt.Sprintf("provider %s removes instance %s", d.Provider, d.ProviderID), phase: "Terminating", node: d.NodeName}); err != nil {
		return false, err
	}
	deleting := lastOperation("Delete", "Processing", "Deleting machine from cloud provider")
	if err := m.write(ctx, "phase Terminating: "+m.shown.why, core().ReportMachine, m.progress("Terminating", deleting)); err != nil {
		return false, err
	}
	if answer, err := m.provide(ctx, d, cloudCalls().DeleteInstance, m.call(d)); err != nil || answer == nil {
		return false, err
	}
	if err := m.show(ctx, step{name: "delete-node", why: "removes the node object, then the finalizer", phase: "Terminating", node: d.NodeName}); err != nil {
		return false, err
	}
	removal := activities.NodeRemoval{Machine: m.ref, NodeName: d.NodeName, ProviderID: d.ProviderID}
	if err := quick(ctx, "removes node "+d.NodeName, core().DeleteNode, removal, nil); err != nil {
		return false, err
	}
	err = quick(ctx, "takes the finalizer off: the object may go", core().ReleaseMachine, m.read(), nil)
	return err == nil, err
}

// provide runs one call of the provider. It returns nil without an error when the machine needs something else by now: the
// call was given up, or a problem was shown and then something changed. A creation ends with its deadline; a deletion has
// none.
func (m *machine) provide(ctx workflow.Context, d activities.MachineDecision, activity any, call activities.InstanceCall) (*activities.InstanceAnswer, error) {
	for {
		within := time.Duration(0)
		if d.Need == attention.Instance {
			if within = d.CreateBy.Sub(workflow.Now(ctx)); within <= 0 {
				return nil, m.failCreation(ctx, "the creation timeout has passed")
			}
		}
		answer, end, err := m.interruptible(ctx, d, cloud(ctx, d.Provider, m.shown.name, m.shown.why, within), activity, call)
		switch {
		case end == aborted:
			return nil, nil
		case timedOut(err) && d.Need == attention.Instance:
			return nil, m.failCreation(ctx, "the provider did not make the instance in time")
		case err != nil:
			return nil, err
		case answer.Problem == nil:
			return &answer, nil
		case answer.Problem.React == activities.UntilSpec, answer.Problem.React == activities.UntilCredential:
			if end == overtaken {
				return nil, m.showProblem(ctx, d, *answer.Problem, false) // it may be mended already: try again at once
			}
			return nil, m.awaitRepair(ctx, d, *answer.Problem)
		}
		if err := m.showProblem(ctx, d, *answer.Problem, false); err != nil {
			return nil, err
		}
		call.Known = answer.Problem
	}
}

// ending is how a call of the provider ended.
type ending int

const (
	undisturbed ending = iota
	overtaken          // something changed while it ran: what it read may be out of date
	aborted            // it was given up: the machine is to go
)

// interruptible runs an activity and, whenever the object changes meanwhile, asks whether it is still wanted. A creation is
// given up as soon as the machine is to go; what it may have made is found by the deletion, by its UID.
func (m *machine) interruptible(ctx workflow.Context, d activities.MachineDecision, options workflow.Context, activity any, call activities.InstanceCall) (answer activities.InstanceAnswer, end ending, err error) {
	options, cancel := workflow.WithCancel(options)
	defer cancel()
	future := workflow.ExecuteActivity(options, activity, call)
	for !future.IsReady() {
		if err := m.awaken(ctx, future); err != nil {
			return answer, end, err
		}
		if !m.receive() {
			continue
		}
		end = overtaken
		if d.Need != attention.Instance {
			continue
		}
		now, err := m.decide(ctx)
		if err != nil {
			return answer, end, err
		}
		if now.Gone || now.Need == attention.Deletion {
			cancel()
			_ = future.Get(ctx, nil) // its end is all that matters: the deletion looks for the instance by UID
			return answer, aborted, nil
		}
	}
	err = future.Get(ctx, &answer)
	return answer, end, err
}

// awaitRepair shows a problem that only a person can mend, and waits until something changes. The timer stands for the wait
// in the timeline, which shows neither current details nor what a local activity said; when it fires, we look again.
func (m *machine) awaitRepair(ctx workflow.Context, d activities.MachineDecision, p activities.Problem) error {
	if err := m.showProblem(ctx, d, p, true); err != nil {
		return err
	}
	wait := m.timer(ctx, "repair", "blocked by "+p.Reason+": "+p.Message, workflow.Now(ctx).Add(recheckStuck))
	defer m.disarm("repair")
	return m.awaken(ctx, wait)
}

// showProblem puts a problem where people look: details, search attributes, status, condition and event.
func (m *machine) showProblem(ctx workflow.Context, d activities.MachineDecision, p activities.Problem, stuck bool) error {
	phase, operation := "CrashLoopBackOff", "Create"
	if d.Need == attention.Deletion {
		phase, operation = "Terminating", "Delete"
	}
	s := m.shown
	if s.name == "" {
		s.name = map[attention.Need]string{attention.Instance: "create-instance", attention.Deletion: "delete-instance"}[d.Need]
	}
	s.why, s.phase, s.blockedBy, s.stuck = p.Message, phase, p.Reason, stuck
	if err := m.show(ctx, s); err != nil {
		return err
	}
	report := m.progress(phase, lastOperation(operation, "Failed", "Cloud provider message - "+p.Message))
	report.Operation.ErrorCode = p.Reason
	condition := activities.Condition{Type: "InstanceReady", Reason: p.Reason, Message: p.Message}
	switch p.Reason {
	case "ClassNotFound", "ClassInvalid", "SecretNotFound":
		condition.Type = "ClassReady"
	}
	report.Conditions = []activities.Condition{condition}
	report.Event = &activities.Event{Warning: true, Reason: p.Reason, Message: p.Message}
	return m.write(ctx, "blocked by "+p.Reason+": "+p.Message, core().ReportMachine, report)
}

// failCreation gives the creation up: the machine's set replaces it.
func (m *machine) failCreation(ctx workflow.Context, why string) error {
	message := "Machine failed to join the cluster within its creation timeout: " + why
	if err := m.show(ctx, step{phase: "Failed", why: message}); err != nil {
		return err
	}
	return m.write(ctx, message, core().ReportMachine, activities.MachineReport{
		Read: m.read(), Phase: "Failed", Operation: lastOperation("Create", "Failed", message),
		Event: &activities.Event{Warning: true, Reason: "CreationTimeout", Message: message},
	})
}

// progress is a report of the step in flight.
func (m *machine) progress(phase string, operation *activities.LastOperation) activities.MachineReport {
	return activities.MachineReport{Read: m.read(), Phase: phase, Operation: operation, Step: m.report()}
}

// call names the machine to its provider.
func (m *machine) call(d activities.MachineDecision) activities.InstanceCall {
	return activities.InstanceCall{
		Machine: m.ref, Class: d.Class, ProviderID: d.ProviderID, NodeName: d.NodeName, LastKnownState: d.LastKnownState, NeverTried: d.NeverTried,
	}
}

func lastOperation(kind, state, description string) *activities.LastOperation {
	return &activities.LastOperation{Type: kind, State: state, Description: description}
}
