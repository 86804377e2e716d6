package class

import (
	"millwright/activities/class"
	"millwright/workflows/run"
)

// The activities that may run as local activities; run.LocalActivity has the rule.
var (
	decideClass     = run.NewLocalActivity(new(class.Activities).DecideClass)
	finalizeClass   = run.NewLocalActivity(new(class.Activities).FinalizeClass)
	reportServing   = run.NewLocalActivity(new(class.Activities).ReportServing)
	finalizeSecrets = run.NewLocalActivity(new(class.Activities).FinalizeSecrets)
)
