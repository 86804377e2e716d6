package class

import (
	"millwright/activities/class"
	"millwright/workflows/run"
)

// The activities that may run as local ones; run.Local says why these.
var (
	decideClass     = run.Twice(new(class.Activities).DecideClass)
	finalizeClass   = run.Twice(new(class.Activities).FinalizeClass)
	reportServing   = run.Twice(new(class.Activities).ReportServing)
	finalizeSecrets = run.Twice(new(class.Activities).FinalizeSecrets)
)
