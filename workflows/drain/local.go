package drain

import (
	"millwright/activities/drain"
	"millwright/workflows/run"
)

// The activities that may run as local ones; run.Local says why these.
var (
	decideDrain = run.Twice(new(drain.Activities).DecideDrain)
)
