package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/decide/drain"
	"millwright/observe"
)

// Detaching is the wait for a node's volumes.
type Detaching struct {
	Machine  Ref
	NodeName string
	Since    time.Time // when the wait began
}

// Detached is how the wait ended.
type Detached struct {
	Left []string // persistent volumes, or attachments, that are still attached; at most drain.MaxRows of them, sorted
}

// AwaitDetach returns when no volume is attached to a node any more, or when it is time to go on without. Volumes of pods
// that stay on the node, such as those of DaemonSets, are not waited for. It changes nothing.
func (a *Activities) AwaitDetach(ctx context.Context, in Detaching) (Detached, error) {
	until := in.Since.Add(a.Draining.Detach)
	stay, err := a.staying(ctx, in)
	if err != nil && time.Now().Before(until) {
		return Detached{}, err
	}
	here := func(node, _ string) bool { return node == in.NodeName }
	news, stop, err := a.Cluster.DrainNews(in.Machine.UID, observe.Concerns{Attachment: here})
	if err != nil {
		return Detached{}, err
	}
	defer stop()
	for {
		left := slices.DeleteFunc(a.Cluster.AttachedTo(in.NodeName), func(name string) bool { return stay[name] })
		activity.RecordHeartbeat(ctx, left[:min(len(left), drain.MaxRows)])
		known, next := a.Cluster.KnowsAttachments(), heartbeatEvery
		if known && len(left) == 0 || !time.Now().Before(until) {
			return Detached{Left: left[:min(len(left), drain.MaxRows)]}, nil
		}
		if !known { // nobody tells when the watch is back
			next = observe.LinkSettles
		}
		timer := time.NewTimer(min(next, max(time.Until(until), shortestWait)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return Detached{}, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			timer.Stop()
			return Detached{}, lookAgain(ctx, "the worker stops while it waits for the volumes of node "+in.NodeName)
		case <-timer.C:
		case <-news:
			timer.Stop()
		}
	}
}

// staying returns the persistent volumes of the pods that stay on a node.
func (a *Activities) staying(ctx context.Context, in Detaching) (map[string]bool, error) {
	client := a.Cluster.Target(in.Machine.Namespace)
	list, _, err := listPods(ctx, client, in.NodeName)
	if err != nil {
		return nil, err
	}
	facts, err := a.podFacts(ctx, in.Machine, list, namespaces{}, drain.Delete)
	if err != nil {
		return nil, err
	}
	stay := map[string]bool{}
	for i, pod := range facts {
		if goes(pod) {
			continue
		}
		names, err := volumesOf(ctx, client, list[i])
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			stay[name] = true
		}
	}
	return stay, nil
}

// deleteAttachments asks for the end of what is still attached to the node of an instance that is gone: nobody else would,
// for six minutes or for ever. It does not wait for it, and what is refused is told and left (D16).
func (a *Activities) deleteAttachments(ctx context.Context, in NodeRemoval) error {
	attachments := a.Cluster.Target(in.Machine.Namespace).StorageV1().VolumeAttachments()
	for _, item := range a.Cluster.AttachmentsOf(in.NodeName) {
		if item.DeletionTimestamp != nil {
			continue
		}
		err := attachments.Delete(ctx, item.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &item.UID}})
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case unanswered(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err): // the API server did not get to it
			return fmt.Errorf("delete attachment %s of node %s: %w", item.Name, in.NodeName, err)
		default:
			activity.GetLogger(ctx).Warn("attachment cannot be deleted", "attachment", item.Name, "node", in.NodeName, "error", err)
		}
	}
	return nil
}
