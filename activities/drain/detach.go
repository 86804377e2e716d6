package drain

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/apimachinery/pkg/util/sets"

	"millwright/activities/kube"
	"millwright/decide/drain"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
)

// Detaching names the node whose volumes an activity waits for.
type Detaching struct {
	Machine  kube.Ref
	NodeName string
	Since    time.Time // when the wait began, by the clock of the server
	// the workflow names slow volumes in the status; workflows of earlier versions do not
	Tells bool     `json:",omitempty"`
	Shown []string `json:",omitempty"` // volumes that the status names: the activity returns when others are left
}

// untold reports whether the status has to name these volumes, and does not yet.
func (in Detaching) untold(volumes []string) bool {
	return in.Tells && len(volumes) > 0 && !slices.Equal(volumes, in.Shown)
}

// Detached is how the wait ended, or what it waits for.
type Detached struct {
	GoesOn bool      `json:",omitempty"` // the wait is not over: the status is to name the volumes
	Until  time.Time `json:",omitzero"`  // end of a wait that goes on
	Left   []string  // persistent volumes, or attachments, that are still attached, sorted; at most drain.MaxRows
	More   int       `json:",omitempty"` // volumes that are still attached and not in Left
}

// AwaitDetach returns when no volume is attached to a node any more, when its time is over, or when the status has to
// name other volumes than it does. Volumes of pods that stay on the node, such as those of DaemonSets, do not count. It
// changes nothing.
func (a *Activities) AwaitDetach(ctx context.Context, in Detaching) (Detached, error) {
	clock, until := kube.ServerClock(ctx), in.Since.Add(a.Kube.Draining.Detach)
	p := a.place(in.Machine)
	stay, err := p.staying(ctx, in)
	if err != nil && clock.Now().Before(until) {
		return Detached{}, err
	}
	here := func(node, _ string) bool { return node == in.NodeName }
	changes, stop, err := observedrain.Subscribe(p.Sources, in.Machine.UID, observedrain.Filter{Attachment: here})
	if err != nil {
		return Detached{}, err
	}
	defer stop()
	for {
		left := slices.DeleteFunc(a.Kube.Cluster.AttachedTo(in.NodeName), stay.Has)
		activity.RecordHeartbeat(ctx, left[:min(len(left), drain.MaxRows)])
		known, next := a.Kube.Cluster.KnowsAttachments(), kube.HeartbeatEvery
		shown := left[:min(len(left), drain.MaxRows)]
		if known && len(left) == 0 || !clock.Now().Before(until) {
			return Detached{Left: shown, More: len(left) - len(shown)}, nil
		}
		if in.untold(shown) {
			slow := in.Since.Add(slowDetach).Sub(clock.Now())
			if slow <= 0 {
				return Detached{GoesOn: true, Until: until, Left: shown, More: len(left) - len(shown)}, nil
			}
			next = min(next, slow)
		}
		if !known { // no event reports that the watch has resumed
			next = cache.WatchCatchUp
		}
		select {
		case <-ctx.Done():
			return Detached{}, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return Detached{}, lookAgain(ctx, "the worker stops while it waits for the volumes of node "+in.NodeName)
		case <-time.After(min(next, max(until.Sub(clock.Now()), shortestWait))):
		case <-changes:
		}
	}
}

// staying returns the persistent volumes of the pods that stay on a node.
func (p Place) staying(ctx context.Context, in Detaching) (sets.Set[string], error) {
	client := p.client()
	list, _, err := listPods(ctx, client, in.NodeName)
	if err != nil {
		return nil, err
	}
	facts, err := p.podFacts(ctx, list, namespaces{}, drain.Delete)
	if err != nil {
		return nil, err
	}
	stay := sets.New[string]()
	for i, pod := range facts {
		if mustLeave(pod) {
			continue
		}
		names, err := volumesOf(ctx, client, list[i])
		if err != nil {
			return nil, err
		}
		stay.Insert(names...)
	}
	return stay, nil
}
