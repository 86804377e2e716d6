package class

import (
	"millwright/activities/class"
	"millwright/workflows/run"
)

// These activities may run as local activities. run.LocalActivity describes the rule.
var (
	decideClassActivity     = run.NewLocalActivity(new(class.Activities).DecideClass)
	finalizeClassActivity   = run.NewLocalActivity(new(class.Activities).FinalizeClass)
	reportServingActivity   = run.NewLocalActivity(new(class.Activities).ReportServing)
	finalizeSecretsActivity = run.NewLocalActivity(new(class.Activities).FinalizeSecrets)
)
