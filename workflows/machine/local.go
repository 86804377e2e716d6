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
	decideMachineActivity     = run.NewLocalActivity(new(activities.Activities).DecideMachine)
	decideAfterCreateActivity = run.NewLocalActivity(new(activities.Activities).DecideAfterCreate)

	// These activities write only the workflow's own object. A second attempt sees the result of the first attempt.
	reportMachineActivity       = run.NewLocalActivity(new(activities.Activities).ReportMachine)
	addFinalizerActivity        = run.NewLocalActivity(new(activities.Activities).AddFinalizer)
	recordCreateIntentActivity  = run.NewLocalActivity(new(activities.Activities).RecordCreateIntent)
	recordInstanceActivity      = run.NewLocalActivity(new(activities.Activities).RecordInstance)
	holdDrainActivity           = run.NewLocalActivity(new(drain.Activities).HoldDrain)
	withdrawReplacementActivity = run.NewLocalActivity(new(deployment.Activities).WithdrawReplacement)

	// These activities write in the target cluster, and the written values depend only on the machine.
	announceTerminationActivity = run.NewLocalActivity(new(activities.Activities).AnnounceTermination)
	cordonAndCountPodsActivity  = run.NewLocalActivity(new(drain.Activities).CordonAndCountPods)
	cordonNodeActivity          = run.NewLocalActivity(new(activities.Activities).CordonNode)
	uncordonNodeActivity        = run.NewLocalActivity(new(activities.Activities).UncordonNode)
	syncNodeActivity            = run.NewLocalActivity(new(activities.Activities).SyncNode)
	preserveMachineActivity     = run.NewLocalActivity(new(activities.Activities).PreserveMachine)
	markInPlaceActivity         = run.NewLocalActivity(new(activities.Activities).MarkInPlace)
	issueTokenActivity          = run.NewLocalActivity(new(activities.Activities).IssueToken)
	finishJoinActivity          = run.NewLocalActivity(new(activities.Activities).FinishJoin)
	deleteNodeActivity          = run.LocalActivity[activities.NodeRemoval, any]{
		Activity: new(activities.Activities).DeleteNode,
	}
	releaseMachineActivity = run.NewLocalActivity(new(activities.Activities).ReleaseMachine)
)
