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

// Eviction says how the pods of a node are made to go.
type Eviction struct {
	Machine  kube.Ref
	NodeName string
	Means    drain.Means
	Until    time.Time        // zero: no end
	Hurry    bool             // a person wants every pod to be asked again, whatever budgets say
	Shown    []drain.Blocker  // what people were told: when it is not what they would see, the activity returns
	Started  time.Time        // when the drain began: what came to the node later although it is cordoned stays there
	Known    []drain.Row      // what earlier runs of this activity tried; at most drain.MaxRows
	Gone     int              // pods that have left in this drain
	Departed []drain.Departed // of those, the ones whose volumes are on their way
}

// Evicted is what became of them.
type Evicted struct {
	Outcome  string // Empty, Deadline or Changed
	Picture  drain.Picture
	Blockers []drain.Blocker
	Grace    time.Duration // longest own grace period of the pods that are left
	Left     []string      // of those, the first ones, as namespace/name
	Departed []drain.Departed
	Accepted int // requests of this run that were accepted
}

// The outcomes of EvictPods.
const (
	OutcomeEmpty    = "Empty"    // nothing is left that has to go
	OutcomeDeadline = "Deadline" // the time is over, and each pod was asked at least once since
	OutcomeChanged  = "Changed"  // people would see something else than they were told, or want something else
)

// EvictPods makes the pods of a node go by the means that it is given, and returns when the node is empty, when its time is
// over, or when what blocks it has changed. Each attempt begins with a live list and goes on with one watch. However late
// it begins, it asks all pods once before it says that its time is over. Its heartbeats hold the picture, and the volumes
// that are on their way, with which the next attempt goes on. Running it twice asks no pod again that is on its way: a pod's
// own deletion timestamp tells.
func (a *Activities) EvictPods(ctx context.Context, in Eviction) (Evicted, error) {
	e := &evictionLoop{
		Activities: a, client: a.Kube.Cluster.Target(in.Machine.Namespace), in: in,
		Progress: Progress{Gone: in.Gone, Departed: in.Departed},
		facts:    map[string]drain.Pod{}, namespaces: namespaces{}, tries: map[string]drain.Tries{},
		volumes: map[string][]string{}, spent: map[string]spending{}, asked: map[string]string{}, looks: rate.NewLimiter(rate.Every(leastPause), quickLooks),
	}
	var last Progress
	if err := activity.GetHeartbeatDetails(ctx, &last); err == nil { // there are some, and they can be read
		e.Progress = last
	}
	changes, stop, err := e.watchPods(ctx)
	if err != nil {
		return Evicted{}, err
	}
	defer stop()
	e.subscribe()
	news, unsubscribe, err := observedrain.Subscribe(a.Kube.Cluster, in.Machine.UID, observedrain.Filter{
		Budget:     func(namespace string) bool { return e.interest.Load().namespaces.Has(namespace) },
		Attachment: func(node, volume string) bool { return node == in.NodeName || e.interest.Load().volumes.Has(volume) },
	})
	if err != nil {
		return Evicted{}, err
	}
	defer unsubscribe()
	e.wished = e.wishes()
	defer func() { e.Kube.Metrics.Blocks(e.blocking, nil) }()
	return e.run(ctx, changes, news)
}

// evictionLoop is one attempt to empty a node.
type evictionLoop struct {
	*Activities
	client kubernetes.Interface
	in     Eviction
	Progress

	pods  map[string]*corev1.Pod // on the node, by UID
	facts map[string]drain.Pod   // of these, at the last look
	namespaces
	tries    map[string]drain.Tries
	volumes  map[string][]string // persistent volumes of a pod that were attached to the node when it was first seen
	spent    map[string]spending
	budgets  map[string][]*policyv1.PodDisruptionBudget // that select each of them
	asked    map[string]string                          // which budgets a pod had at the last look, and in which version
	accepted int
	wished   string // by people, of the drain, when the attempt began
	interest atomic.Pointer[interest]
	blocking []drain.Blocker
	debouncer
	looks *rate.Limiter // of looks that changes cause
}

// Progress is how far an attempt has come, as its heartbeats say: what the next one cannot see by itself, and what people see.
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

func (e *evictionLoop) run(ctx context.Context, changes <-chan watch.Event, news <-chan struct{}) (Evicted, error) {
	for {
		d, err := e.act(ctx)
		if err != nil && e.over() && ctx.Err() == nil { // what cannot be read holds up no deadline
			activity.GetLogger(ctx).Warn("pods cannot be told apart; the deadline has come", "node", e.in.NodeName, "error", err)
			return e.result(OutcomeDeadline, d), nil
		}
		if err != nil {
			return Evicted{}, err
		}
		e.Kube.Metrics.Blocks(e.blocking, d.Blockers)
		e.Picture, e.blocking = d.Picture, d.Blockers
		activity.RecordHeartbeat(ctx, e.Progress)
		now := time.Now()
		switch {
		case d.Done:
			return e.result(OutcomeEmpty, d), nil
		case e.over():
			return e.result(OutcomeDeadline, d), nil
		case e.changed(d.Blockers, e.in.Shown, now), e.wishes() != e.wished:
			return e.result(OutcomeChanged, d), nil
		}
		if len(d.Act) > 0 { // some had not their turn
			d.Look = now
		}
		if err := e.wait(ctx, d.Look, changes, news); err != nil {
			if givenUp(ctx) { // what was seen is worth something
				return e.result(OutcomeChanged, d), nil
			}
			return Evicted{}, err
		}
	}
}

// givenUp reports whether the workflow does not want the attempt any more. One that is paused or reset by a person goes on in
// another attempt.
func givenUp(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, activity.ErrActivityPaused) && !errors.Is(cause, activity.ErrActivityReset)
}

// over reports whether the time of the means has come to its end.
func (e *evictionLoop) over() bool { return !e.in.Until.IsZero() && !time.Now().Before(e.in.Until) }

// act does what there is to do now, until nothing is, and returns the decision that said so: or the one after which some had not their
// turn, for people may want something else by now.
func (e *evictionLoop) act(ctx context.Context) (drain.Decision, error) {
	stop := kube.Beat(ctx, e.Progress) // claims and requests may take their time
	defer stop()
	for asked, all := false, true; ; asked = true {
		d, err := e.decide(ctx)
		if err != nil || len(d.Act) == 0 || asked && (e.over() || !all) || ctx.Err() != nil {
			return d, err
		}
		all = e.note(e.send(ctx, d.Act))
	}
}

// wishes is what people want of the drain now. A cancellation tells of it, too, but only by the next heartbeat.
func (e *evictionLoop) wishes() string {
	if m, found := e.Kube.Cluster.Machine(e.in.Machine.Key()); found {
		return observedrain.Requests(m)
	}
	return ""
}

func (e *evictionLoop) result(outcome string, d drain.Decision) Evicted {
	r := Evicted{Outcome: outcome, Picture: d.Picture, Blockers: d.Blockers, Departed: e.Departed, Accepted: e.accepted}
	for _, pod := range e.facts {
		if goes(pod) {
			r.Grace = max(r.Grace, pod.Grace)
			r.Left = append(r.Left, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(r.Left)
	r.Left = r.Left[:min(len(r.Left), drain.MaxRows)]
	return r
}

// interest filters which events of budgets and volume attachments reach a drain. It is immutable: a new one replaces it.
type interest struct {
	namespaces sets.Set[string] // of the budgets
	volumes    sets.Set[string] // attached to any node
}

// subscribe updates the filter to the namespaces and volumes of the current pods. Call it before reading the caches: a change
// after the call arrives as an event, and a change before the call is in the caches.
func (e *evictionLoop) subscribe() {
	of := &interest{namespaces: sets.New[string](), volumes: sets.New(e.volumeNames()...)}
	for _, pod := range e.pods {
		of.namespaces.Insert(pod.Namespace)
	}
	e.interest.Store(of)
}

// volumeNames returns the volumes of the pods that are on the node, and of those whose volumes are on their way.
func (e *evictionLoop) volumeNames() []string {
	names := slices.Concat(slices.Collect(maps.Values(e.volumes))...)
	for _, d := range e.Departed {
		names = append(names, d.Pod.Volumes...)
	}
	return names
}
