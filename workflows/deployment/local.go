package deployment

import (
	"millwright/activities/deployment"
	"millwright/workflows/run"
)

// The activities that may run as local ones; run.Local says why these.
var (
	decideDeployment   = run.Twice(new(deployment.Activities).DecideDeployment)
	reportDeployment   = run.Twice(new(deployment.Activities).ReportDeployment)
	finalizeDeployment = run.Twice(new(deployment.Activities).FinalizeDeployment)
	grantReplacements  = run.Twice(new(deployment.Activities).GrantReplacements)

	// Writes of sets and nodes, if they are few: a resize changes nothing unless the set has the size that the decision saw,
	// and marks of nodes are the same whichever worker writes them.
	changeSets  = run.Twice(new(deployment.Activities).ChangeSets)
	changeNodes = run.Twice(new(deployment.Activities).ChangeNodes)
)
