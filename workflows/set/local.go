package set

import (
	"millwright/activities/set"
	"millwright/workflows/run"
)

// The activities that may run as local ones; run.Local says why these.
var (
	decideScale = run.Twice(new(set.Activities).DecideScale)
	reportSet   = run.Twice(new(set.Activities).ReportSet)
	finalizeSet = run.Twice(new(set.Activities).FinalizeSet)
)
