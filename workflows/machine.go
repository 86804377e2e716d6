package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/health"
	"millwright/decide/inplace"
)

// machine is one run of a Machine's workflow.
type machine struct {
	*object
	attempt string          // names the creation attempt, for its bootstrap token
	running workflow.Future // a call of the provider that was given up and has yet to end
	calling string          // the name of that activity
	looked  bool            // this run has asked the provider whether the instance is gone

	insisted   bool   // a sync of the node wrote nothing, and the facts were read again
	unsyncable string // what the node lacks and cannot be given as things stand
	marked     string // what the node was last made to say of its in-place update

	done  deletion.Stage // of the deletion, that this run has done
	named bool           // the provider was asked for the names of an instance that nobody had recorded
	told  string         // the node that this run has made say that its machine is to go
}

// Machine keeps one Machine true to its object while it is in motion: it creates the instance, initialises it, awaits its
// node, follows the node's health, and deletes instance, node and finalizer when the object is to go. The run ends when the
// machine is calm or gone. Every step can be interrupted by a deletion, and a run may be terminated at any moment: the
// next one finds its place from the object and the provider.
func Machine(ctx workflow.Context, in Input) (Result, error) {
	m := &machine{object: newObject(ctx, KindMachine, in)}
	return answering(ctx, m.object, func() (Result, error) { return m.run(ctx) })
}

// run does step after step until nothing is left to do.
func (m *machine) run(ctx workflow.Context) (Result, error) {
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
			if err := m.settle(ctx); err != nil {
				return Result{}, err
			}
			m.receive()
			return Result{}, workflow.NewContinueAsNewError(ctx, Machine, Input{Ref: m.ref, Gate: m.gate, Continued: true})
		}
	}
}

// step does what the machine needs next. It reports over when there was nothing to do for a while, or never will be.
func (m *machine) step(ctx workflow.Context, d activities.MachineDecision) (over bool, err error) {
	switch {
	case d.Need == attention.Deletion:
		return m.delete(ctx, d)
	case d.Health != nil && d.Health.Change != nil:
		return false, m.become(ctx, d, *d.Health, activities.MachineReport{})
	}
	switch d.Need {
	case attention.Health:
		if d.Health.Due != nil {
			return false, m.awaitRecovery(ctx, d, *d.Health)
		}
		return false, m.copyConditions(ctx, d)
	case attention.Instance:
		return false, m.create(ctx, d)
	case attention.Node:
		return false, m.awaitNode(ctx, d)
	case attention.Recovery:
		return false, m.awaitRecovery(ctx, d, *d.Health)
	case attention.Sync:
		return m.syncOr(ctx, d)
	case attention.Preserve:
		return false, m.preserve(ctx, d)
	case attention.Kept:
		return false, m.keep(ctx, d)
	case attention.Emptying:
		if d.InPlace.Step == inplace.Drain {
			return false, m.updateInPlace(ctx, d)
		}
		return false, m.vacate(ctx, d)
	case attention.InPlace:
		return false, m.updateInPlace(ctx, d)
	default:
		return m.rest(ctx, d)
	}
}

// rest shows a calm machine, and reports over when there was nothing to do for a while.
func (m *machine) rest(ctx workflow.Context, d activities.MachineDecision) (over bool, err error) {
	m.show(ctx, step{phase: d.Phase, node: d.NodeName, why: d.Why})
	if d.Busy { // what was in flight is done
		return false, m.write(ctx, "calm: "+d.Why, core().ReportMachine, activities.MachineReport{Read: m.read()})
	}
	return m.lingered(ctx)
}

// decide asks what the machine needs next.
func (m *machine) decide(ctx workflow.Context) (d activities.MachineDecision, err error) {
	in := m.read()
	in.At, in.Done = workflow.Now(ctx), m.done
	err = m.quick(ctx, "what does it need next?", core().DecideMachine, in, &d)
	m.live = false
	return d, err
}

// become reports what has become of the machine: its phase, its health clock, the conditions of its node; and what was to be reported
// before and was not.
func (m *machine) become(ctx workflow.Context, d activities.MachineDecision, v health.Verdict, before activities.MachineReport) error {
	m.show(ctx, step{phase: v.Change.Phase, node: d.NodeName, why: v.Why})
	if err := m.withdraw(ctx, d); err != nil {
		return err
	}
	report := verdictReport(m.read(), v)
	report.LastKnownState, report.Before = before.LastKnownState, before.Event
	report.Conditions = append(before.Conditions, report.Conditions...)
	if v.Change.Phase == "Failed" {
		report.PreserveUntil = d.PreserveUntil
	}
	if err := m.write(ctx, "phase "+v.Change.Phase+": "+v.Why, core().ReportMachine, report); err != nil {
		return err
	}
	m.looked = false
	if v.Change.Joined || (v.Change.Phase == "Failed" && d.Phase != "Unknown") {
		var version string // tokens that are left behind, because the target is away and something else came first, expire
		_, err := m.unlessChanged(ctx, "the bootstrap tokens go", core().FinishJoin, m.read(), &version)
		m.wrote(version)
		return err
	}
	return nil
}

// withdraw gives a granted replacement back that is not needed now.
func (m *machine) withdraw(ctx workflow.Context, d activities.MachineDecision) error {
	if !d.Withdraw {
		return nil
	}
	return m.write(ctx, "the granted replacement is withdrawn", core().WithdrawReplacement, m.read())
}

// copyConditions brings the conditions of the node into the status. When there was nothing to write, somebody else was
// faster: what it wrote wakes us.
func (m *machine) copyConditions(ctx workflow.Context, d activities.MachineDecision) error {
	report := activities.MachineReport{Read: m.read()}
	if m.shown.name != "" {
		report.Step = m.report()
	}
	var version string
	if err := m.quick(ctx, d.Why, core().ReportMachine, report, &version); err != nil {
		return err
	}
	m.wrote(version)
	if version == d.Version {
		return m.awaitMachine(ctx, d)
	}
	return nil
}

// awaitMachine waits until something changes, one of the futures is ready, or one of the machine's deadlines has come.
func (m *machine) awaitMachine(ctx workflow.Context, d activities.MachineDecision, futures ...workflow.Future) error {
	if d.Health != nil && d.Health.Deadline.After(workflow.Now(ctx)) {
		name := "health"
		if d.Phase == "Pending" {
			name = "creation"
		}
		futures = append(futures, m.timer(ctx, name, "patience with the machine ends", d.Health.Deadline))
	}
	return m.awaitDeadline(ctx, d, futures...)
}

// verdictReport is what a verdict says, for the status.
func verdictReport(read activities.Read, v health.Verdict) activities.MachineReport {
	report := activities.MachineReport{Read: read, Clock: v.Clock}
	if c := v.Change; c != nil {
		report.Phase, report.Operation = c.Phase, lastOperation(c.Operation, c.State, c.Message)
		report.Event = &activities.Event{Warning: c.Warning, Reason: c.Reason, Message: c.Message}
	}
	if v.Due != nil {
		report.Conditions = []activities.Condition{{Type: "ReplacementDue", True: v.Due.True, Reason: v.Due.Reason, Message: v.Due.Message}}
	}
	return report
}

// awaitNode waits until the node joins, the machine is to go, or its creation has taken too long.
func (m *machine) awaitNode(ctx workflow.Context, d activities.MachineDecision) error {
	m.show(ctx, step{name: "await-node", why: d.Why, phase: d.Phase, node: d.NodeName, deadline: d.CreateBy})
	deadline := m.timer(ctx, "creation", fmt.Sprintf("gives up waiting for node %s: the creation timeout", d.NodeName), d.CreateBy)
	return m.awaitDeadline(ctx, d, deadline)
}

// awaitRecovery waits until the node is healthy again, or patience with it has ended. Why it is silent, the provider may
// know: then nobody has to wait for what cannot come.
func (m *machine) awaitRecovery(ctx workflow.Context, d activities.MachineDecision, v health.Verdict) error {
	s := step{name: "await-recovery", why: v.Why, phase: d.Phase, node: d.NodeName, deadline: v.Deadline}
	if d.Phase == "InPlaceUpdating" {
		s.name = "await-update"
	}
	if v.Due != nil && v.Due.True {
		s.name, s.blockedBy = "await-replacement", v.Due.Reason
	}
	changes := s.name != m.shown.name || s.why != m.shown.why
	m.show(ctx, s)
	if changes || d.Need == attention.Health || v.Due != nil {
		report := verdictReport(m.read(), v)
		report.Step = m.report()
		if err := m.write(ctx, v.Why, core().ReportMachine, report); err != nil {
			return err
		}
	}
	if v.Look && !m.looked && d.Provider != "" {
		m.looked = true
		return m.look(ctx, d)
	}
	if v.Deadline.IsZero() {
		m.disarm("health")
		return m.awaitDeadline(ctx, d)
	}
	return m.awaitDeadline(ctx, d, m.timer(ctx, "health", fmt.Sprintf("patience with node %s ends: the health timeout", d.NodeName), v.Deadline))
}

// awaitDeadline waits until something changes or one of the machine's deadlines has come. What we waited for may have come
// while nobody told us: at a deadline the facts are read from the API server.
func (m *machine) awaitDeadline(ctx workflow.Context, d activities.MachineDecision, deadlines ...workflow.Future) error {
	if d.PreserveUntil.After(workflow.Now(ctx)) { // else its end is written as soon as it can be
		deadlines = append(deadlines, m.timer(ctx, "preservation", "preserved until then", d.PreserveUntil))
	}
	if err := m.awaken(ctx, deadlines...); err != nil {
		return err
	}
	for _, deadline := range deadlines {
		m.live = m.live || deadline.IsReady()
	}
	return nil
}

// instanceStatus is the name of the activity in Temporal's UI.
const instanceStatus = "instance-status"

// look asks the provider whether the instance is gone. No answer is as good as "no".
func (m *machine) look(ctx workflow.Context, d activities.MachineDecision) error {
	if err := m.settle(ctx); err != nil {
		return err
	}
	options, cancel := workflow.WithCancel(glance(ctx, d.Provider, m.activityID(instanceStatus), "is instance "+d.ProviderID+" still there?"))
	defer cancel()
	future := workflow.ExecuteActivity(options, cloudCalls().InstanceStatus, m.call(d))
	if err := m.awaitMachine(ctx, d, future); err != nil || !future.IsReady() {
		m.running, m.calling = future, instanceStatus // a provider that does not answer holds up nothing
		return err
	}
	var answer activities.InstanceAnswer
	if err := future.Get(ctx, &answer); err != nil || !answer.Gone {
		return ctx.Err()
	}
	message := "the provider has no instance " + d.ProviderID + " any more"
	return m.write(ctx, message, core().ReportMachine, activities.MachineReport{
		Read: m.read(), InstanceGone: true, Step: m.report(),
		Conditions: []activities.Condition{{Type: "InstanceReady", Reason: "InstanceGone", Message: message}},
		Event:      &activities.Event{Warning: true, Reason: "InstanceGone", Message: message},
	})
}

// syncOr makes the node carry what it should. When that is impossible as things stand, it does what else the machine needs;
// if that is nothing, it shows what is wrong and waits for somebody to mend it.
func (m *machine) syncOr(ctx workflow.Context, d activities.MachineDecision) (over bool, err error) {
	switch {
	case d.Why != m.unsyncable:
		return false, m.sync(ctx, d)
	case d.Otherwise != attention.Nothing:
		d.Need = d.Otherwise
		return m.step(ctx, d)
	}
	s := step{name: "sync-node", why: "node " + d.NodeName + " cannot be written: " + d.Why, phase: d.Phase, node: d.NodeName, blockedBy: "NodeRefused", stuck: true}
	m.show(ctx, s)
	recheck := m.timer(ctx, "repair", s.why, workflow.Now(ctx).Add(recheckStuck))
	defer m.disarm("repair")
	if err := m.awaitDeadline(ctx, d, recheck); err != nil {
		return false, err
	}
	m.unsyncable = ""
	return false, nil
}

// sync makes the node carry what it should. When nothing could be written, the caches may have been late; when that was
// not it, whatever stands against it has to change first.
func (m *machine) sync(ctx workflow.Context, d activities.MachineDecision) error {
	s := m.shown
	s.phase, s.node, s.why, s.blockedBy = d.Phase, d.NodeName, d.Why, ""
	m.show(ctx, s)
	var made activities.Gate
	err := m.quick(ctx, d.Why, core().SyncNode, m.read(), &made)
	switch refused := failedWith(err, activities.TypeRefused); {
	case err != nil && !refused:
		return err
	case len(made) > 0:
		m.insisted = false
		m.raise(made)
		return nil
	case !refused && !m.insisted:
		m.insisted, m.live = true, true
		return nil
	}
	m.insisted, m.unsyncable = false, d.Why
	return nil
}

// preserve makes machine and node say what was decided about the machine's preservation. When nothing could be written,
// whatever stands against it has to change first.
func (m *machine) preserve(ctx workflow.Context, d activities.MachineDecision) error {
	if err := m.withdraw(ctx, d); err != nil {
		return err
	}
	m.show(ctx, step{name: "preserve", why: d.Why, phase: d.Phase, node: d.NodeName})
	in := m.read()
	in.At = workflow.Now(ctx)
	var made activities.Gate
	err := m.quick(ctx, d.Why, core().PreserveMachine, in, &made)
	if failedWith(err, activities.TypeRefused) {
		err = nil
		m.show(ctx, step{
			name: "preserve", why: "the API server refuses: " + d.Why, phase: d.Phase, node: d.NodeName, blockedBy: "NodeRefused", stuck: true,
		})
	}
	if err != nil || len(made) > 0 {
		m.raise(made)
		return err
	}
	return m.awaitDeadline(ctx, d)
}

// keep waits for the end of a preservation.
func (m *machine) keep(ctx workflow.Context, d activities.MachineDecision) error {
	if err := m.showKept(ctx, d, "preserved"); err != nil {
		return err
	}
	return m.awaitDeadline(ctx, d)
}

// showKept shows a step of a preservation, and records it where it is another one than before.
func (m *machine) showKept(ctx workflow.Context, d activities.MachineDecision, name string) error {
	if err := m.withdraw(ctx, d); err != nil {
		return err
	}
	changes := name != m.shown.name
	m.show(ctx, step{name: name, why: d.Why, phase: d.Phase, node: d.NodeName, deadline: d.PreserveUntil})
	if !changes {
		return nil
	}
	return m.write(ctx, d.Why, core().ReportMachine, activities.MachineReport{Read: m.read(), Step: m.report()})
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
