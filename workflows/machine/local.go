package machine

import (
	"millwright/activities/deployment"
	"millwright/activities/drain"
	activities "millwright/activities/machine"
	"millwright/workflows/run"
)

// The activities that may run as local activities; run.Local has the rule.
var (
	// Decisions: they write nothing.
	decideMachine     = run.Repeatable(new(activities.Activities).DecideMachine)
	decideAfterCreate = run.Repeatable(new(activities.Activities).DecideAfterCreate)

	// Writes of the object itself: a second run finds the result of the first run.
	reportMachine       = run.Repeatable(new(activities.Activities).ReportMachine)
	addFinalizer        = run.Repeatable(new(activities.Activities).AddFinalizer)
	recordCreateIntent  = run.Repeatable(new(activities.Activities).RecordCreateIntent)
	recordInstance      = run.Repeatable(new(activities.Activities).RecordInstance)
	holdDrain           = run.Repeatable(new(drain.Activities).HoldDrain)
	withdrawReplacement = run.Repeatable(new(deployment.Activities).WithdrawReplacement)

	// Writes in the target cluster: their content depends only on the machine.
	announceTermination = run.Repeatable(new(activities.Activities).AnnounceTermination)
	cordonAndCountPods  = run.Repeatable(new(drain.Activities).CordonAndCountPods)
	cordonNode          = run.Repeatable(new(activities.Activities).CordonNode)
	uncordonNode        = run.Repeatable(new(activities.Activities).UncordonNode)
	syncNode            = run.Repeatable(new(activities.Activities).SyncNode)
	preserveMachine     = run.Repeatable(new(activities.Activities).PreserveMachine)
	markInPlace         = run.Repeatable(new(activities.Activities).MarkInPlace)
	issueToken          = run.Repeatable(new(activities.Activities).IssueToken)
	finishJoin          = run.Repeatable(new(activities.Activities).FinishJoin)
	deleteNode          = run.Local[activities.NodeRemoval, any]{Activity: new(activities.Activities).DeleteNode}
	releaseMachine      = run.Repeatable(new(activities.Activities).ReleaseMachine)
)
