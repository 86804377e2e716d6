package replace

import "time"

// This file holds the times and limits of replacements that no object configures.

// recoveryWindow is how long a recovered node still counts as part of an outage. Nodes recover one after the other;
// without the window, the breaker closes when half of them are back, and the last nodes are replaced. Source of
// recoveryWindow: 50 s, the default of kube-controller-manager's --node-monitor-grace-period, after which a silent
// node has its own problem, plus 10 s, a kubelet's lease interval.
const recoveryWindow = time.Minute

// clockSlack is how far the clock of Temporal's server, which sets the time of grants, may be ahead of the API
// server's clock, which sets the creation time of machines. A machine that a scale-up created less than clockSlack
// before a grant may count as the replacement for the grant; the wrong match only delays the next grant.
const clockSlack = 10 * time.Second

// MaxGrants is the largest number of replacements in progress in one deployment. Source of MaxGrants: each grant
// needs 250 bytes in the status and 250 bytes in managedFields; 500 grants are a sixth of etcd's object size limit
// (docs/adr/0043-bounded-status.md).
const MaxGrants = 500
