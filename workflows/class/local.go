package class

import (
	"millwright/activities/class"
	"millwright/workflows/run"
)

// The activities that may run as local activities; run.Local has the rule.
var (
	decideClass     = run.Repeatable(new(class.Activities).DecideClass)
	finalizeClass   = run.Repeatable(new(class.Activities).FinalizeClass)
	reportServing   = run.Repeatable(new(class.Activities).ReportServing)
	finalizeSecrets = run.Repeatable(new(class.Activities).FinalizeSecrets)
)
