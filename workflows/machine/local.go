package machine

import (
	"millwright/activities/deployment"
	"millwright/activities/drain"
	activities "millwright/activities/machine"
	"millwright/workflows/run"
)

// The activities that may run as local ones; run.Local says why these.
var (
	// Decisions: they write nothing.
	decideMachine     = run.Twice(new(activities.Activities).DecideMachine)
	decideAfterCreate = run.Twice(new(activities.Activities).DecideAfterCreate)

	// Writes of the object itself: the second one finds what the first one wrote.
	reportMachine       = run.Twice(new(activities.Activities).ReportMachine)
	addFinalizer        = run.Twice(new(activities.Activities).AddFinalizer)
	recordCreateIntent  = run.Twice(new(activities.Activities).RecordCreateIntent)
	recordInstance      = run.Twice(new(activities.Activities).RecordInstance)
	holdDrain           = run.Twice(new(drain.Activities).HoldDrain)
	withdrawReplacement = run.Twice(new(deployment.Activities).WithdrawReplacement)

	// Writes in the target cluster: what they write follows from the machine alone.
	announceTermination = run.Twice(new(activities.Activities).AnnounceTermination)
	cordonAndCountPods  = run.Twice(new(drain.Activities).CordonAndCountPods)
	cordonNode          = run.Twice(new(activities.Activities).CordonNode)
	uncordonNode        = run.Twice(new(activities.Activities).UncordonNode)
	syncNode            = run.Twice(new(activities.Activities).SyncNode)
	preserveMachine     = run.Twice(new(activities.Activities).PreserveMachine)
	markInPlace         = run.Twice(new(activities.Activities).MarkInPlace)
	issueToken          = run.Twice(new(activities.Activities).IssueToken)
	finishJoin          = run.Twice(new(activities.Activities).FinishJoin)
	deleteNode          = run.Local[activities.NodeRemoval, any]{Activity: new(activities.Activities).DeleteNode}
	releaseMachine      = run.Twice(new(activities.Activities).ReleaseMachine)
)
