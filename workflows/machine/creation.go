package machine

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	activities "millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/phrase"
	"millwright/workflows/run"
)

// createInstance creates the instance and writes its names to the object. createInstance returns early if the machine
// is being deleted, if the creation timeout has ended, or if the cause of a problem has changed. The caller must then
// decide again.
func (m *machine) createInstance(ctx workflow.Context, d activities.Decision) error {
	if d.Problem != nil {
		return m.awaitRepairByPerson(ctx, d, *d.Problem)
	}
	if d.Prepare {
		return run.WriteObject(ctx, m.WorkflowState, "puts the finalizer on", addFinalizerActivity, m.NewReadInput(ctx))
	}
	m.ShowStep(
		ctx,
		run.Step{
			Name:     vocabulary.StepCreateInstance,
			Why:      fmt.Sprintf("provider %s is creating the instance from class %s", d.Provider, d.Class),
			Phase:    d.Phase,
			Deadline: d.CreateBy,
		},
	)
	call, ready, err := m.beginCreation(ctx, d)
	if err != nil || !ready {
		return err
	}
	answer, err := m.callProvider(ctx, d, new(cloud.Activities).CreateInstance, call)
	if err != nil || answer == nil {
		return err
	}
	call.ProviderID = answer.ProviderID
	call.NodeName = answer.NodeName
	call.LastKnownState = answer.LastKnownState
	call.NeverTried = false
	if over, err := m.recordCreatedInstance(ctx, d, call, answer.Tokenless); err != nil || over {
		return err
	}
	if answer.Uninitialized {
		m.ShowStep(
			ctx,
			run.Step{
				Name:     vocabulary.StepInitialiseInstance,
				Why:      fmt.Sprintf("provider %s initialises instance %s", d.Provider, call.ProviderID),
				Phase:    d.Phase,
				Deadline: d.CreateBy,
			},
		)
		addresses := answer.Addresses
		if answer, err = m.callProvider(ctx, d, new(cloud.Activities).InitializeInstance, call); err != nil || answer == nil {
			return err
		}
		if answer.Addresses == nil {
			answer.Addresses = addresses
		}
	}
	return m.reportCreatedInstance(ctx, d, call, *answer)
}

// beginCreation issues the bootstrap token of the node, and records that a creation begins. ready is false if something
// else must be done first.
func (m *machine) beginCreation(
	ctx workflow.Context,
	d activities.Decision,
) (call cloud.InstanceCall, ready bool, err error) {
	call = m.instanceCall(d)
	m.attemptName = fmt.Sprintf("%s/%d", workflow.GetInfo(ctx).WorkflowExecution.RunID, workflow.Now(ctx).UnixMilli())
	if ready, err := m.issueToken(ctx, d, &call); err != nil || !ready {
		return call, false, err
	}
	call.Tokenless = d.Target && !d.Token
	begin := m.progressReport(
		ctx,
		"",
		newLastOperation(vocabulary.OperationCreate, vocabulary.StateProcessing, "Creating machine on cloud provider"),
	)
	begin.Conditions = []activities.Condition{creatingCondition(m.Shown.Why)}
	begin.WithoutToken = call.Token == kube.TokenRef{}
	begun, err := recordCreateIntentActivity.RunLocalFirst(
		ctx,
		m.WorkflowState,
		"puts on record that a creation begins",
		begin,
	)
	if err != nil {
		return call, false, err
	}
	m.RequireWrittenVersion(begun.Version)
	m.AddWaitMessage(ctx, begun.Reported)
	call.NeverTried, call.IntentRun = begun.NeverTried, begun.RunID
	return call, true, nil
}

// creatingCondition returns the condition of a machine while its provider creates the instance.
func creatingCondition(why string) activities.Condition {
	return activities.Condition{
		Type:    vocabulary.ConditionInstanceReady,
		Reason:  vocabulary.ReasonCreating,
		Message: why,
	}
}

// issueToken issues the bootstrap token of this attempt, or finds the existing token. A target cluster that does not
// answer delays neither a deletion nor the creation timeout.
func (m *machine) issueToken(
	ctx workflow.Context,
	d activities.Decision,
	call *cloud.InstanceCall,
) (ready bool, err error) {
	if !d.Token {
		return true, nil
	}
	request := activities.TokenRequest{Read: m.NewReadInput(ctx), Expires: d.CreateBy, Attempt: m.attemptName}
	timeout := m.creationTimeoutTimer(ctx, d.CreateBy)
	token, ready, err := issueTokenActivity.RunUnlessChanged(
		ctx,
		m.WorkflowState,
		"makes the bootstrap token",
		request,
		timeout,
	)
	// the creation timeout ends too soon for a new token, so wait for the end of the timeout
	if run.IsFailureOfType(err, kube.FailureTypeTokenGone) {
		return false, m.awaitChangeOrDeadline(ctx, d, timeout)
	}
	call.Token = token
	return ready, err
}

// recordCreatedInstance writes the instance's names to the object. If the node name already belongs to another node,
// recordCreatedInstance deletes the instance and sets the phase Failed. In this case, the result over is true.
func (m *machine) recordCreatedInstance(
	ctx workflow.Context,
	d activities.Decision,
	call cloud.InstanceCall,
	tokenless string,
) (over bool, err error) {
	nodeName := call.NodeName
	if !d.Target {
		nodeName = ""
	}
	stale, err := m.recordInstanceNames(
		ctx,
		activities.InstanceRecord{ProviderID: call.ProviderID, NodeName: nodeName, Tokenless: tokenless},
	)
	if err != nil || stale == "" {
		return err != nil, err
	}
	m.ShowStep(
		ctx,
		run.Step{
			Name:      vocabulary.StepDeleteInstance,
			Why:       stale,
			Phase:     d.Phase,
			Node:      call.NodeName,
			BlockedBy: []string{vocabulary.ReasonStaleNode},
		},
	)
	// callProvider must not apply the creation timeout or the rules of the machine's deletion to this call.
	d.Need = attention.NeedNothing
	if answer, err := m.callProvider(ctx, d, new(cloud.Activities).DeleteInstance, call); err != nil || answer == nil {
		return true, err
	}
	return true, m.writeStatus(ctx, stale, activities.Report{
		Read:      m.NewReadInput(ctx),
		Phase:     vocabulary.PhaseFailed,
		Operation: newLastOperation(vocabulary.OperationCreate, vocabulary.StateFailed, stale),
		Conditions: []activities.Condition{
			{Type: vocabulary.ConditionReplacementDue, True: true, Reason: vocabulary.ReasonStaleNode, Message: stale},
			{Type: vocabulary.ConditionInstanceReady, Reason: vocabulary.ReasonStaleNode, Message: stale},
		},
		Event: &kube.Event{Warning: true, Reason: vocabulary.ReasonStaleNode, Message: stale},
	})
}

// recordInstanceNames writes the names of an instance to the object. stale is the reason why the node name belongs to
// another node, or empty.
func (m *machine) recordInstanceNames(ctx workflow.Context, in activities.InstanceRecord) (stale string, err error) {
	in.Read = m.NewReadInput(ctx)
	record, err := recordInstanceActivity.RunLocalFirst(ctx, m.WorkflowState, "records instance "+in.ProviderID, in)
	if err == nil {
		m.RequireWrittenVersion(record.Version)
	}
	return record.Stale, err
}

// reportCreatedInstance reports that the instance exists, and whether its node has joined. Without a target cluster the
// creation is complete, and the phase is Available.
func (m *machine) reportCreatedInstance(
	ctx workflow.Context,
	d activities.Decision,
	call cloud.InstanceCall,
	answer cloud.InstanceAnswer,
) error {
	s := run.Step{
		Name:     vocabulary.StepAwaitNode,
		Why:      fmt.Sprintf("instance %s exists; %s", call.ProviderID, phrase.AwaitedNodeClause(call.NodeName)),
		Phase:    vocabulary.PhasePending,
		Node:     call.NodeName,
		Deadline: d.CreateBy,
	}
	operation := newLastOperation(
		vocabulary.OperationCreate,
		vocabulary.StateProcessing,
		"Created machine on cloud provider; its node has not joined yet",
	)
	if !d.Target {
		s = run.Step{
			Why:   fmt.Sprintf("instance %s exists; there is no target cluster", call.ProviderID),
			Phase: vocabulary.PhaseAvailable,
		}
		operation = newLastOperation(
			vocabulary.OperationCreate,
			vocabulary.StateSuccessful,
			"Created machine on cloud provider",
		)
	}
	m.ShowStep(ctx, s)
	report := m.progressReport(ctx, s.Phase, operation)
	report.LastKnownState = answer.LastKnownState
	if d.Target {
		report.NodeName = call.NodeName
	} else {
		report.Step = nil
		report.Addresses = answer.Addresses
		if call.NodeName != "" {
			report.Addresses = append([]kube.Address{{Type: "Hostname", Address: call.NodeName}}, answer.Addresses...)
		}
	}
	report.Conditions = []activities.Condition{
		classReadyCondition(d),
		{Type: vocabulary.ConditionInstanceReady, True: true, Reason: vocabulary.ReasonInstanceCreated, Message: s.Why},
	}
	// with a target cluster, the event Joined follows later, and the condition reports the instance until then
	if d.Target {
		next, err := decideAfterCreateActivity.RunLocalFirst(ctx, m.WorkflowState, "has its node joined already?", report)
		if err != nil {
			return err
		}
		if v := next.Health; v != nil && v.Change != nil && v.Change.Joined {
			return m.reportVerdict(ctx, next, *v, report)
		}
	} else {
		report.Event = &kube.Event{Reason: vocabulary.ReasonInstanceCreated, Message: s.Why}
	}
	report.Read.At = workflow.Now(ctx) // DecideAfterCreate may have taken a long time
	return m.writeStatus(ctx, "phase "+s.Phase+": "+s.Why, report)
}
