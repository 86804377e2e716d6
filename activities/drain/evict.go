package drain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/decide/drain"
	observedrain "millwright/observe/drain"
)

// Eviction says how to remove the pods of a node.
type Eviction struct {
	Machine  kube.Ref
	NodeName string
	Means    drain.Means
	Until    time.Time        // zero: no end
	Hurry    bool             // an operator wants every pod to be tried again, even if its budget allows no disruption
	Shown    []drain.Blocker  // as the status shows them: the activity returns when they differ
	Started  time.Time        // when the drain began: pods that tolerate the cordon and came later stay
	Known    []drain.Row      // attempts of earlier runs of this activity; at most drain.MaxRows
	Gone     int              // pods that have left in this drain
	Departed []drain.Departed // pods that have left, with volumes that are not attached elsewhere yet
}

// Evicted is the result of EvictPods.
type Evicted struct {
	Outcome  string // Empty, Deadline or Changed
	Picture  drain.Picture
	Blockers []drain.Blocker
	Grace    time.Duration // longest grace period of the remaining pods
	Left     []string      // the first remaining pods, as namespace/name
	Departed []drain.Departed
	Accepted int // requests of this run that were accepted
}

// The outcomes of EvictPods.
const (
	OutcomeEmpty    = "Empty"    // no pod is left that must leave
	OutcomeDeadline = "Deadline" // the time is over, and each pod was tried at least once
	OutcomeChanged  = "Changed"  // the blockers differ from those shown, or an operator changed the drain
)

// EvictPods removes the pods of a node by the given means. It returns when the node is empty, when its time is over, or
// when the blockers have changed. Each attempt begins with a live list and continues with one watch. However late it
// begins, it tries all pods once before it returns because its time is over. Its heartbeats hold the progress with
// which the next attempt continues. Running it twice tries no pod again that is being deleted already.
func (a *Activities) EvictPods(ctx context.Context, in Eviction) (Evicted, error) {
	return Evict(ctx, a.place(in.Machine), in)
}

// Evict is EvictPods for a node in any place.
func Evict(ctx context.Context, p Place, in Eviction) (Evicted, error) {
	e := &evictionLoop{
		Place: p, clock: kube.ServerClock(ctx), client: p.client(), in: in,
		Progress: Progress{Gone: in.Gone, Departed: in.Departed},
		facts:    map[string]drain.Pod{}, namespaces: namespaces{}, tries: map[string]drain.Tries{},
		volumes: map[string][]string{}, spent: map[string]spending{}, asked: map[string]string{},
		looks: rate.NewLimiter(rate.Every(leastPause), quickLooks),
	}
	var last Progress
	if err := activity.GetHeartbeatDetails(ctx, &last); err == nil { // an earlier attempt has left some
		e.Progress = last
	}
	changes, stop, err := e.watchPods(ctx)
	if err != nil {
		return Evicted{}, err
	}
	defer stop()
	e.subscribe()
	notifications, unsubscribe, err := observedrain.Subscribe(p.Sources, in.Machine.UID, observedrain.Filter{
		Budget:     func(namespace string) bool { return e.interest.Load().namespaces.Has(namespace) },
		Attachment: func(node, volume string) bool { return node == in.NodeName || e.interest.Load().volumes.Has(volume) },
	})
	if err != nil {
		return Evicted{}, err
	}
	defer unsubscribe()
	e.requested = e.requests()
	defer func() { e.Kube.Metrics.Blocks(e.blocking, nil) }()
	return e.run(ctx, changes, notifications)
}

// evictionLoop is one attempt to empty a node.
type evictionLoop struct {
	Place
	// all times of the loop are the server's: they are compared with those of the drain, of pods and of other workers
	clock  kube.Clock
	client kubernetes.Interface
	in     Eviction
	Progress

	pods  map[string]*corev1.Pod // on the node, by UID
	facts map[string]drain.Pod   // at the last look, by UID
	namespaces
	tries     map[string]drain.Tries
	volumes   map[string][]string // persistent volumes of a pod that were attached to the node when the pod was first seen
	spent     map[string]spending
	budgets   map[string][]*policyv1.PodDisruptionBudget // that select each pod
	asked     map[string]string                          // budgets of a pod at the last look, with their versions
	accepted  int
	requested string // operator requests about the drain when the attempt began
	interest  atomic.Pointer[interest]
	blocking  []drain.Blocker
	debouncer
	looks *rate.Limiter // limits the looks that changes cause
}

// Progress is what heartbeats hold: the picture for people, and what the next attempt cannot see by itself.
type Progress struct {
	Gone     int
	Departed []drain.Departed
	Picture  drain.Picture
}

// spending is what was used of a disruption budget since its status last changed.
type spending struct {
	version string // resourceVersion of the budget
	used    int
	next    time.Time // of the next probe
}

func (e *evictionLoop) run(
	ctx context.Context,
	changes <-chan watch.Event,
	notifications <-chan struct{},
) (Evicted, error) {
	for {
		d, err := e.act(ctx)
		if err != nil && e.over() && ctx.Err() == nil { // a failing read does not delay the deadline
			activity.GetLogger(ctx).
				Warn("the drain's facts cannot be read, and its deadline has passed", "node", e.in.NodeName, "error", err)
			return e.result(OutcomeDeadline, d), nil
		}
		if err != nil {
			return Evicted{}, err
		}
		e.Kube.Metrics.Blocks(e.blocking, d.Blockers)
		e.Picture, e.blocking = d.Picture, d.Blockers
		activity.RecordHeartbeat(ctx, e.Progress)
		now := e.clock.Now()
		switch {
		case d.Done:
			return e.result(OutcomeEmpty, d), nil
		case e.over():
			return e.result(OutcomeDeadline, d), nil
		case e.changed(d.Blockers, e.in.Shown, now), e.requests() != e.requested:
			return e.result(OutcomeChanged, d), nil
		}
		if len(d.Act) > 0 { // some requests waited for their budget in vain
			d.Look = now
		}
		if err := e.wait(ctx, d.Look, changes, notifications); err != nil {
			if givenUp(ctx) { // the workflow still wants the result
				return e.result(OutcomeChanged, d), nil
			}
			return Evicted{}, err
		}
	}
}

// givenUp reports whether the workflow has cancelled the activity. After a pause or a reset by an operator, another
// attempt continues.
func givenUp(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, context.DeadlineExceeded) &&
		!errors.Is(cause, activity.ErrActivityPaused) && !errors.Is(cause, activity.ErrActivityReset)
}

// over reports whether the time of the means is over.
func (e *evictionLoop) over() bool { return !e.in.Until.IsZero() && !e.clock.Now().Before(e.in.Until) }

// act decides and sends requests until there is nothing to send, and returns the last decision. It also returns after
// requests that waited for their budget in vain, because the facts may have changed.
func (e *evictionLoop) act(ctx context.Context) (drain.Decision, error) {
	stop := kube.Beat(ctx, e.Progress) // reads of claims and requests may take long
	defer stop()
	for asked, all := false, true; ; asked = true {
		d, err := e.decide(ctx)
		if err != nil || len(d.Act) == 0 || asked && (e.over() || !all) || ctx.Err() != nil {
			return d, err
		}
		all = e.record(e.send(ctx, d.Act))
	}
}

// requests returns the operator requests about the drain. A cancellation would arrive only with the next heartbeat.
func (e *evictionLoop) requests() string {
	if m := e.Machine(); m != nil {
		return observedrain.Requests(m)
	}
	return ""
}

func (e *evictionLoop) result(outcome string, d drain.Decision) Evicted {
	r := Evicted{Outcome: outcome, Picture: d.Picture, Blockers: d.Blockers, Departed: e.Departed, Accepted: e.accepted}
	for _, pod := range e.facts {
		if mustLeave(pod) {
			r.Grace = max(r.Grace, pod.Grace)
			r.Left = append(r.Left, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(r.Left)
	r.Left = r.Left[:min(len(r.Left), drain.MaxRows)]
	return r
}

// interest filters which events of budgets and volume attachments reach a drain. It is immutable.
type interest struct {
	namespaces sets.Set[string] // of the budgets
	volumes    sets.Set[string] // attached to any node
}

// subscribe updates the filter to the namespaces and volumes of the current pods. Call it before reading the caches: a
// change after the call arrives as an event, and a change before the call is in the caches.
func (e *evictionLoop) subscribe() {
	of := &interest{namespaces: sets.New[string](), volumes: sets.New(e.volumeNames()...)}
	for _, pod := range e.pods {
		of.namespaces.Insert(pod.Namespace)
	}
	e.interest.Store(of)
}

// volumeNames returns the volumes of the pods on the node, and of the departed pods.
func (e *evictionLoop) volumeNames() []string {
	names := slices.Concat(slices.Collect(maps.Values(e.volumes))...)
	for _, d := range e.Departed {
		names = append(names, d.Pod.Volumes...)
	}
	return names
}
