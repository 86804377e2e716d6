package replace

import "time"

// This file holds the durations and limits of replacements that no object configures.

// recoveryWindow is how long a recovered node still counts as part of an outage. Nodes recover one after the other.
// Without recoveryWindow, the breaker would close when half of the nodes have recovered, and Millwright would replace
// the remaining nodes. Source of recoveryWindow: the default of kube-controller-manager's --node-monitor-grace-period
// (50 s), plus a kubelet's lease interval (10 s). If a node has not recovered after recoveryWindow, the outage is not
// the cause.
const recoveryWindow = time.Minute

// maxClockSkew is how far the clock of Temporal's server may be ahead of the API server's clock. Temporal's clock sets
// the time of a grant, and the API server's clock sets the creation time of a machine. A machine that a scale-up
// created less than maxClockSkew before a grant may count as the replacement for this grant. The only effect is that
// the next grant is later.
const maxClockSkew = 10 * time.Second

// MaxGrants is the largest number of replacements in progress in one deployment. Source of MaxGrants: each grant
// needs 250 bytes in the status and 250 bytes in managedFields; 500 grants are a sixth of etcd's object size limit
// (docs/adr/0043-bounded-status.md).
const MaxGrants = 500
