package replace

import "time"

// This file holds the times and bounds of replacements that no object configures.

// recoveryWindow is how long a recovered node still counts as part of an outage. Nodes recover one after the other, and
// the last ones must not be replaced because most others are back. Source: 50 s, the default of
// kube-controller-manager's --node-monitor-grace-period, after which a node that is still silent has a problem of its
// own, and 10 s, a kubelet's lease interval.
const recoveryWindow = time.Minute

// clockSlack is how far the clock of Temporal's server, which dates grants, may be ahead of the API server's, which
// dates machines. A machine that a scale-up created less than this before a grant may be taken for the substitute of
// that grant, which only delays the next grant.
const clockSlack = 10 * time.Second

// MaxGrants is the largest number of replacements that may be in progress in one deployment. Source: the status has an
// entry for each, of 250 bytes, and again as much in managedFields; 500 of them are a sixth of what etcd takes as one
// object (docs/adr/0043-bounded-status.md).
const MaxGrants = 500
