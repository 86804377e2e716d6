package machine

import (
	"millwright/activities/deployment"
	"millwright/activities/drain"
	activities "millwright/activities/machine"
	"millwright/workflows/run"
)

// The activities that may run as local activities; run.LocalActivity documents the rule.
var (
	// These activities return decisions and write nothing.
	decideMachine     = run.NewLocalActivity(new(activities.Activities).DecideMachine)
	decideAfterCreate = run.NewLocalActivity(new(activities.Activities).DecideAfterCreate)

	// These activities write only the workflow's own object. A second attempt sees the result of the first attempt.
	reportMachine       = run.NewLocalActivity(new(activities.Activities).ReportMachine)
	addFinalizer        = run.NewLocalActivity(new(activities.Activities).AddFinalizer)
	recordCreateIntent  = run.NewLocalActivity(new(activities.Activities).RecordCreateIntent)
	recordInstance      = run.NewLocalActivity(new(activities.Activities).RecordInstance)
	holdDrain           = run.NewLocalActivity(new(drain.Activities).HoldDrain)
	withdrawReplacement = run.NewLocalActivity(new(deployment.Activities).WithdrawReplacement)

	// These activities write in the target cluster, and the written values depend only on the machine.
	announceTermination = run.NewLocalActivity(new(activities.Activities).AnnounceTermination)
	cordonAndCountPods  = run.NewLocalActivity(new(drain.Activities).CordonAndCountPods)
	cordonNode          = run.NewLocalActivity(new(activities.Activities).CordonNode)
	uncordonNode        = run.NewLocalActivity(new(activities.Activities).UncordonNode)
	syncNode            = run.NewLocalActivity(new(activities.Activities).SyncNode)
	preserveMachine     = run.NewLocalActivity(new(activities.Activities).PreserveMachine)
	markInPlace         = run.NewLocalActivity(new(activities.Activities).MarkInPlace)
	issueToken          = run.NewLocalActivity(new(activities.Activities).IssueToken)
	finishJoin          = run.NewLocalActivity(new(activities.Activities).FinishJoin)
	deleteNode          = run.LocalActivity[activities.NodeRemoval, any]{Activity: new(activities.Activities).DeleteNode}
	releaseMachine      = run.NewLocalActivity(new(activities.Activities).ReleaseMachine)
)
