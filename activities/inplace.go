package activities

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
	"millwright/observe"
)

// InPlaceMark is what the condition InPlaceUpdate of a machine's node is to say, as decide/inplace said it.
type InPlaceMark struct {
	Read    Read
	Reason  string
	Message string
}

// MarkInPlace writes how far the in-place update of a machine's node is. Nothing is written where the node says so already,
// or where this is not what comes next any more: the update was called off, the agent was faster, or somebody has uncordoned
// the node that was to be empty. In each case it returns the version of the node to decide with; the gate is empty where
// there is no node that is the machine's alone. Running it twice writes once.
func (a *Activities) MarkInPlace(ctx context.Context, in InPlaceMark) (Gate, error) {
	return a.changeNode(ctx, in.Read, func(m *v1alpha1.Machine, node *corev1.Node) map[string]any {
		now, next := observe.InPlaceNode(node), observe.InPlace(m, node)
		switch {
		case next.Reason == "", next.Reason != in.Reason:
			return nil
		case next.Step == inplace.Drain && !now.Cordoned:
			return nil
		case now.Reason == in.Reason && now.Message == in.Message: // what an agent says of a failure has changed again
			return nil
		}
		return map[string]any{"status": map[string]any{"conditions": marked(node.Status.Conditions, in, metav1.Now().Rfc3339Copy())}}
	}, "status")
}

// marked returns conditions with the one of in-place updates. Its status never changes: its time is that of the step.
func marked(list []corev1.NodeCondition, in InPlaceMark, now metav1.Time) []corev1.NodeCondition {
	list = slices.DeleteFunc(slices.Clone(list), func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason != in.Reason
	})
	return setCondition(list, Condition{Type: string(v1alpha1.NodeInPlaceUpdate), True: true, Reason: in.Reason, Message: in.Message}, now)
}

// CordonNode keeps new pods off the node of a machine. A cordon that is there, whoever made it, is left alone, and so is a
// node whose in-place update was called off. It returns the version of the node to decide with; the gate is empty where
// there is no node that is the machine's alone. Running it twice writes once.
func (a *Activities) CordonNode(ctx context.Context, in Read) (Gate, error) {
	return a.changeNode(ctx, in, func(m *v1alpha1.Machine, node *corev1.Node) map[string]any {
		if node.Spec.Unschedulable || (m.DeletionTimestamp == nil && observe.InPlaceNode(node).CalledOff()) {
			return nil
		}
		return map[string]any{"spec": map[string]any{"unschedulable": true}}
	})
}

// changeNode patches the node of a machine with what change returns for it as it is now; nil means that there is nothing to
// do. It returns the version that the node has then. A node that is not there, or that another machine names too, is left
// alone: then the gate is empty.
func (a *Activities) changeNode(ctx context.Context, in Read, change func(*v1alpha1.Machine, *corev1.Node) map[string]any, subresources ...string) (Gate, error) {
	gate := Gate{}
	m, _, err := a.machine(ctx, in)
	if err != nil {
		return nil, err
	}
	if m == nil || a.claimed(NodeRemoval{Machine: in.Ref, NodeName: m.Labels[v1alpha1.LabelNode]}) {
		return gate, nil
	}
	for range maxConflicts {
		node, err := a.node(ctx, m, true)
		if err != nil || node == nil {
			return gate, err
		}
		patch := change(m, node)
		if patch == nil {
			gate.Raise(observe.Nodes, node.ResourceVersion)
			return gate, nil
		}
		data, err := seen(patch, node)
		if err != nil {
			return nil, err
		}
		node, err = a.Cluster.Target(m.Namespace).CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
		switch {
		case err == nil:
			gate.Raise(observe.Nodes, node.ResourceVersion)
			return gate, nil
		case apierrors.IsNotFound(err): // it went while we looked
			return gate, nil
		case !apierrors.IsConflict(err):
			return nil, writeError(in.Ref, fmt.Errorf("patch node of machine %s: %w", m.Name, err))
		}
	}
	return nil, contended(in.Ref)
}

// Emptied is what keeps a node from being empty.
type Emptied struct {
	Left  int      // pods that have to go
	Names []string // of the first of them, as namespace/name, sorted
}

// AwaitEmpty returns when the node of a machine holds no pod that has to go, or is gone itself, or its machine. It evicts
// nothing. Each attempt begins with a live list and goes on with one watch; when that ends, or the worker stops, the attempt
// fails, and the next one looks again. Its heartbeats hold what is left. Running it twice is harmless: it changes nothing.
func (a *Activities) AwaitEmpty(ctx context.Context, in Read) (Emptied, error) {
	m, _, err := a.machine(ctx, in)
	if err != nil || m == nil {
		return Emptied{}, err
	}
	node, err := a.node(ctx, m, true)
	if err != nil || node == nil {
		return Emptied{}, err
	}
	pods := a.Cluster.Target(m.Namespace).CoreV1().Pods(metav1.NamespaceAll)
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String()}
	list, err := pods.List(ctx, options)
	if err != nil {
		return Emptied{}, fmt.Errorf("list pods of node %s: %w", node.Name, err)
	}
	left := occupants{}
	for i := range list.Items {
		left.note(&list.Items[i])
	}
	if len(left) == 0 {
		return Emptied{}, nil
	}
	options.ResourceVersion = list.ResourceVersion
	changes, err := pods.Watch(ctx, options)
	if err != nil {
		return Emptied{}, fmt.Errorf("watch pods of node %s: %w", node.Name, err)
	}
	defer changes.Stop()
	return Emptied{}, left.awaitNone(ctx, node.Name, changes.ResultChan())
}

// occupants are the pods that keep a node from being empty, by UID: a new pod may have the name of one that went.
type occupants map[types.UID]string

// note counts a pod, or no longer counts it.
func (o occupants) note(pod *corev1.Pod) {
	if mustGo(pod) {
		o[pod.UID] = pod.Namespace + "/" + pod.Name
	} else {
		delete(o, pod.UID)
	}
}

// mustGo reports whether a node with this pod is not empty. Mirror pods and those of DaemonSets stay as long as the node
// does, and a pod that is finished holds nothing.
func mustGo(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return false
	}
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// mostPods is how many pods a heartbeat names. Source: the table of a drain in the status must stay readable.
const mostPods = 20

func (o occupants) table() Emptied {
	names := slices.Sorted(maps.Values(o))
	return Emptied{Left: len(names), Names: names[:min(mostPods, len(names))]}
}

// awaitNone follows the pods of a node until none is left, with a heartbeat for each change and every few seconds.
func (o occupants) awaitNone(ctx context.Context, node string, changes <-chan watch.Event) error {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for len(o) > 0 {
		activity.RecordHeartbeat(ctx, o.table())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return lookAgain(ctx, "the worker stops while it waits for pods of node "+node)
		case <-ticker.C:
		case change, open := <-changes:
			switch pod, isPod := change.Object.(*corev1.Pod); {
			case !open:
				return lookAgain(ctx, "the watch of pods of node "+node+" has ended")
			case change.Type == watch.Error:
				return lookAgain(ctx, fmt.Sprintf("the watch of pods of node %s has failed: %v", node, apierrors.FromObject(change.Object)))
			case change.Type == watch.Deleted && isPod:
				delete(o, pod.UID)
			case isPod:
				o.note(pod)
			}
		}
	}
	return nil
}

// lookAgainAfter is how long the next attempt waits, so that watches which somebody cuts off at once are no loop without a
// pause. API servers end a watch after half an hour or more. Source: the shortest pause of client-go's own retries.
const lookAgainAfter = time.Second

// lookAgain makes Temporal begin another attempt soon; it is no failure. A watch also ends because its context did.
func lookAgain(ctx context.Context, message string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return temporal.NewApplicationErrorWithOptions(brief(message), typeWatchEnded,
		temporal.ApplicationErrorOptions{NextRetryDelay: lookAgainAfter, Category: temporal.ApplicationErrorCategoryBenign})
}

// typeWatchEnded is the type of that failure. No workflow tells it from others.
const typeWatchEnded = "WatchEnded"
