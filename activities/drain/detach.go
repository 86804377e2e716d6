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

// DetachWait is the input of AwaitDetach: the node, and the start of the wait for its volumes.
type DetachWait struct {
	Machine  kube.Ref
	NodeName string
	Since    time.Time // start of the wait, by the server's clock
	// Tells is true if the workflow writes slow volumes to the status. Workflows of earlier versions leave Tells false.
	Tells bool     `json:",omitempty"`
	Shown []string `json:",omitempty"` // volumes that the status names; AwaitDetach returns when other volumes are left
}

// hasUnreportedVolumes reports whether the status must name these volumes and does not name them yet.
func (in DetachWait) hasUnreportedVolumes(volumes []string) bool {
	return in.Tells && len(volumes) > 0 && !slices.Equal(volumes, in.Shown)
}

// DetachResult is the result of AwaitDetach: how the wait ended, or which volumes are still attached.
type DetachResult struct {
	GoesOn bool      `json:",omitempty"` // the wait continues, and the status must name the volumes in Left
	Until  time.Time `json:",omitzero"`  // deadline of a wait that continues
	Left   []string  // persistent volumes or attachments that are still attached, sorted, at most drain.MaxOverviewRows
	More   int       `json:",omitempty"` // number of attached volumes that Left does not name
}

// AwaitDetach returns when no volume is attached to the node, when its timeout has passed, or when the status must name
// other volumes. Volumes of pods that stay on the node, such as pods of DaemonSets, do not count. AwaitDetach writes
// nothing.
func (a *Activities) AwaitDetach(ctx context.Context, in DetachWait) (DetachResult, error) {
	clock, until := kube.NewServerClock(ctx), in.Since.Add(a.Kube.Draining.Detach)
	p, release, err := a.acquireNodeLocation(ctx, in.Machine)
	if err != nil {
		if !clock.Now().Before(until) { // the timeout ends the wait even if the target cluster does not answer
			return DetachResult{}, nil
		}
		return DetachResult{}, err
	}
	defer release()
	stay, err := p.volumesOfStayingPods(ctx, in)
	if err != nil && clock.Now().Before(until) {
		return DetachResult{}, err
	}
	here := func(node, _ string) bool { return node == in.NodeName }
	changes, stop, err := observedrain.SubscribeToChanges(
		p.Sources,
		in.Machine.UID,
		observedrain.ChangeFilter{AttachmentMatters: here},
	)
	if err != nil {
		return DetachResult{}, err
	}
	defer stop()
	for {
		left := slices.DeleteFunc(p.Target.AttachedVolumeNames(in.NodeName), stay.Has)
		activity.RecordHeartbeat(ctx, left[:min(len(left), drain.MaxOverviewRows)])
		known, now := p.Target.IsAttachmentCacheCurrent(), clock.Now()
		result, next, ends := in.resultForVolumes(left, known, now, until)
		if ends {
			return result, nil
		}
		select {
		case <-ctx.Done():
			return DetachResult{}, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return DetachResult{}, newRetryError(ctx, "the worker stops while it waits for the volumes of node "+in.NodeName)
		case <-time.After(min(next, max(until.Sub(now), minTimerWait))):
		case <-changes:
		}
	}
}

// resultForVolumes returns the result of a wait if the wait ends now, and otherwise the time until the next check.
func (in DetachWait) resultForVolumes(
	left []string,
	areCurrent bool, // the cache of volume attachments is current
	now, until time.Time,
) (result DetachResult, next time.Duration, ends bool) {
	shown := left[:min(len(left), drain.MaxOverviewRows)]
	result = DetachResult{Left: shown, More: len(left) - len(shown)}
	if areCurrent && len(left) == 0 || !now.Before(until) {
		return result, 0, true
	}
	next = kube.HeartbeatInterval
	if in.hasUnreportedVolumes(shown) {
		slow := in.Since.Add(slowDetachDelay).Sub(now)
		if slow <= 0 {
			result.GoesOn, result.Until = true, until
			return result, 0, true
		}
		next = min(next, slow)
	}
	if !areCurrent { // poll, because no event reports that a watch has resumed
		next = cache.WatchCatchUpTime
	}
	return result, next, false
}

// volumesOfStayingPods returns the names of the persistent volumes of the pods that stay on a node.
func (p NodeLocation) volumesOfStayingPods(ctx context.Context, in DetachWait) (sets.Set[string], error) {
	client := p.client()
	list, _, err := listPods(ctx, client, in.NodeName)
	if err != nil {
		return nil, err
	}
	facts, err := p.podFacts(ctx, list, labelsByNamespace{}, drain.MeansDelete)
	if err != nil {
		return nil, err
	}
	stay := sets.New[string]()
	for i, pod := range facts {
		if mustPodLeave(pod) {
			continue
		}
		names, err := volumesOfPod(ctx, client, list[i])
		if err != nil {
			return nil, err
		}
		stay.Insert(names...)
	}
	return stay, nil
}
