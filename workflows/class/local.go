package class

import (
	"millwright/activities/class"
	"millwright/workflows/run"
)

// These activities may run as local activities. run.LocalActivity describes the rule.
var (
	decideClass     = run.NewLocalActivity(new(class.Activities).DecideClass)
	finalizeClass   = run.NewLocalActivity(new(class.Activities).FinalizeClass)
	reportServing   = run.NewLocalActivity(new(class.Activities).ReportServing)
	finalizeSecrets = run.NewLocalActivity(new(class.Activities).FinalizeSecrets)
)
