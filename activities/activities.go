// Package activities answers how one step of a workflow is done: it is the only code that changes a cluster or calls a
// provider. Workflows call its methods by name. An activity reads, asks decide and returns the decision; or it checks a
// precondition, does one thing and returns. Running any of them twice is harmless. It does not know the order of steps.
package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/client-go/tools/record"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/observe"
)

// Ref names one object for good; see observe.Ref.
type Ref = observe.Ref

// Gate holds the versions that caches must have reached before a decision; see observe.Gate.
type Gate = observe.Gate

// Resource names a kind of object in a Gate; see observe.Resource.
type Resource = observe.Resource

// The resources whose versions writes return.
const (
	MachinesResource    = observe.Machines
	SetsResource        = observe.Sets
	DeploymentsResource = observe.Deployments
	NodesResource       = observe.Nodes
)

// Activities are the steps on the clusters: decisions, and writes of machine objects, nodes and statuses. They run on the
// task queues machines and kubernetes.
type Activities struct {
	Cluster     *observe.Cluster
	Recorder    record.EventRecorder
	TokenGroups string // auth-extra-groups of bootstrap tokens; empty means none
	Draining    drain.Settings
	Metrics     Metrics
	MaxDrains   int // nodes of a target cluster that are drained at a time; zero: all
	FairCalls   int // for so many machines of a set the cloud is called as for all others; further ones yield to those; zero: none does

	evictions keyedMutex // by disruption budget
}

// Read says how fresh the facts of a decision must be.
type Read struct {
	Ref  Ref
	Gate Gate
	Live bool // read from the API server, not from caches: the first decision about a group in a run, and the one after a conflict

	// At is the workflow's time. A decision about deadlines is made for it, or for the worker's own time where that is
	// later: a timer that has fired must not meet a worker whose clock says that it is not yet time.
	At time.Time

	// Done is the stage of a deletion that the run has done although the status may not say so yet; empty when none.
	Done deletion.Stage
}

// fresh reports whether the facts must be read live. A local activity that finds the caches behind gives up with
// CacheBehind, so that the workflow runs it again as a regular one; that one waits longer and then reads live.
func (a *Activities) fresh(ctx context.Context, in Read) (live bool, err error) {
	if in.Live {
		return true, nil
	}
	local := activity.GetInfo(ctx).IsLocalActivity
	limit := cacheWaitRegular
	if local {
		limit = cacheWaitLocal
	}
	if a.Cluster.Await(ctx, in.Gate, limit) {
		return false, nil
	}
	if local {
		return false, cacheBehind()
	}
	return true, nil
}
