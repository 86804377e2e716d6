package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
)

// create makes the instance and puts its names into the object. It returns early when the machine is to go, when its time
// is over, and when what it waited for has changed: the caller decides again.
func (m *machine) create(ctx workflow.Context, d activities.MachineDecision) error {
	if d.Problem != nil {
		return m.awaitRepair(ctx, d, *d.Problem)
	}
	if d.Prepare {
		return m.write(ctx, "puts the finalizer on", core().PrepareMachine, m.read())
	}
	m.show(ctx, step{name: "create-instance", why: fmt.Sprintf("provider %s makes the instance from class %s", d.Provider, d.Class), phase: d.Phase, deadline: d.CreateBy})
	call, ready, err := m.begin(ctx, d)
	if err != nil || !ready {
		return err
	}
	answer, err := m.provide(ctx, d, cloudCalls().CreateInstance, call)
	if err != nil || answer == nil {
		return err
	}
	call.ProviderID, call.NodeName, call.LastKnownState = answer.ProviderID, answer.NodeName, answer.LastKnownState
	if over, err := m.record(ctx, d, call); err != nil || over {
		return err
	}
	if answer.Uninitialized {
		m.show(ctx, step{name: "initialise-instance", why: fmt.Sprintf("provider %s initialises instance %s", d.Provider, call.ProviderID), phase: d.Phase, deadline: d.CreateBy})
		addresses := answer.Addresses
		if answer, err = m.provide(ctx, d, cloudCalls().InitializeInstance, call); err != nil || answer == nil {
			return err
		}
		if answer.Addresses == nil {
			answer.Addresses = addresses
		}
	}
	return m.made(ctx, d, call, *answer)
}

// begin puts on record that a creation begins, and makes the token with which the node will join. It is not ready when
// something else came first.
func (m *machine) begin(ctx workflow.Context, d activities.MachineDecision) (call activities.InstanceCall, ready bool, err error) {
	call = m.call(d)
	m.attempt = fmt.Sprintf("%s/%d", workflow.GetInfo(ctx).WorkflowExecution.RunID, workflow.Now(ctx).UnixMilli())
	if ready, err := m.issueToken(ctx, d, &call); err != nil || !ready {
		return call, false, err
	}
	var begun activities.Begun
	begin := m.progress("", lastOperation("Create", "Processing", "Creating machine on cloud provider"))
	begin.Conditions = []activities.Condition{{Type: "InstanceReady", Reason: "Creating", Message: m.shown.why}}
	if err := m.quick(ctx, "puts on record that a creation begins", core().BeginCreation, begin, &begun); err != nil {
		return call, false, err
	}
	m.wrote(begun.Version)
	call.NeverTried = begun.NeverTried
	return call, true, nil
}

// issueToken makes the bootstrap token of this attempt, or finds it again. A target cluster that is away holds up neither a
// deletion nor the creation's timeout.
func (m *machine) issueToken(ctx workflow.Context, d activities.MachineDecision, call *activities.InstanceCall) (ready bool, err error) {
	if !d.Token {
		return true, nil
	}
	request := activities.TokenRequest{Read: m.read(), Expires: d.CreateBy, Attempt: m.attempt}
	ready, err = m.unlessChanged(ctx, "makes the bootstrap token", core().IssueToken, request, &call.Token, m.creationTimer(ctx, d.CreateBy))
	if failedWith(err, activities.TypeTokenGone) { // it is too late for one: the timeout decides
		return false, m.awaitDeadline(ctx, d, m.creationTimer(ctx, d.CreateBy))
	}
	return ready, err
}

// record writes the instance's names to the object. An instance that would take another node's place is removed again, and
// the machine has failed: that is over.
func (m *machine) record(ctx workflow.Context, d activities.MachineDecision, call activities.InstanceCall) (over bool, err error) {
	var record activities.Record
	recorded := activities.Recorded{Read: m.read(), ProviderID: call.ProviderID}
	if d.Target {
		recorded.NodeName = call.NodeName
	}
	if err := m.quick(ctx, "records instance "+call.ProviderID, core().RecordInstance, recorded, &record); err != nil {
		return true, err
	}
	m.wrote(record.Version)
	if record.Stale == "" {
		return false, nil
	}
	m.show(ctx, step{name: "delete-instance", why: record.Stale, phase: d.Phase, node: call.NodeName, blockedBy: "StaleNode"})
	d.Need = attention.Nothing // neither a creation, which has a timeout, nor the end of the machine
	if answer, err := m.provide(ctx, d, cloudCalls().DeleteInstance, call); err != nil || answer == nil {
		return true, err
	}
	return true, m.write(ctx, record.Stale, core().ReportMachine, activities.MachineReport{
		Read: m.read(), Phase: "Failed", Operation: lastOperation("Create", "Failed", record.Stale),
		Conditions: []activities.Condition{
			{Type: "ReplacementDue", True: true, Reason: "StaleNode", Message: record.Stale},
			{Type: "InstanceReady", Reason: "StaleNode", Message: record.Stale},
		},
		Event: &activities.Event{Warning: true, Reason: "StaleNode", Message: record.Stale},
	})
}

// made reports that the instance is there, and that its node has joined, where it was as fast. Without a target cluster that is all a
// machine can become.
func (m *machine) made(ctx workflow.Context, d activities.MachineDecision, call activities.InstanceCall, answer activities.InstanceAnswer) error {
	s := step{name: "await-node", why: fmt.Sprintf("instance %s exists; waits for node %s", call.ProviderID, call.NodeName), phase: "Pending", node: call.NodeName, deadline: d.CreateBy}
	operation := lastOperation("Create", "Processing", "Creating machine on cloud provider")
	if !d.Target {
		s = step{why: fmt.Sprintf("instance %s exists; there is no target cluster", call.ProviderID), phase: "Available"}
		operation = lastOperation("Create", "Successful", "Created machine on cloud provider")
	}
	m.show(ctx, s)
	report := m.progress(s.phase, operation)
	report.Read.At, report.LastKnownState = workflow.Now(ctx), answer.LastKnownState
	if !d.Target {
		report.Step = nil
		report.Addresses = append([]activities.Address{{Type: "Hostname", Address: call.NodeName}}, answer.Addresses...)
	}
	report.Conditions = []activities.Condition{
		classRead(d),
		{Type: "InstanceReady", True: true, Reason: "InstanceCreated", Message: s.why},
	}
	report.Event = &activities.Event{Reason: "InstanceCreated", Message: s.why}
	if d.Target {
		var next activities.MachineDecision
		if err := m.quick(ctx, "has its node joined already?", core().DecideMade, report, &next); err != nil {
			return err
		}
		if v := next.Health; v != nil && v.Change != nil && v.Change.Joined {
			return m.become(ctx, next, *v, report)
		}
	}
	return m.write(ctx, "phase "+s.phase+": "+s.why, core().ReportMachine, report)
}
