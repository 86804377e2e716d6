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

// Eviction is the input of EvictPods: the node, and how to remove its pods.
type Eviction struct {
	Machine  kube.Ref
	NodeName string
	Means    drain.RemovalMeans
	Until    time.Time           // deadline of the removal means; zero: no deadline
	Hurry    bool                // an operator requests a new try of every pod, even if the pod's budget allows no disruption
	Shown    []drain.Blocker     // blockers that the status shows; EvictPods returns when the blockers differ
	Started  time.Time           // start of the drain; a pod that was created later and tolerates the cordon stays
	Known    []drain.PodRow      // eviction attempts of earlier runs of EvictPods; at most drain.MaxOverviewRows
	Gone     int                 // number of pods that have left the node in this drain
	Departed []drain.DepartedPod // pods that have left the node and have volumes that are not attached elsewhere yet
	// Unanswered means that the cluster did not answer before: EvictPods returns as soon as the cluster answers.
	Unanswered bool `json:",omitzero"`
}

// EvictionResult is the result of EvictPods.
type EvictionResult struct {
	Outcome  string // OutcomeEmpty, OutcomeDeadline, OutcomeChanged or OutcomeUnanswered
	Why      string `json:",omitzero"` // why the cluster did not answer; set with OutcomeUnanswered
	Picture  drain.Overview
	Blockers []drain.Blocker
	Grace    time.Duration // longest grace period of the remaining pods
	Left     []string      // first remaining pods, as namespace/name
	Departed []drain.DepartedPod
	Accepted int // number of accepted requests of this run
}

// The outcomes of EvictPods.
const (
	OutcomeEmpty    = "Empty"    // no pod that must leave is left on the node
	OutcomeDeadline = "Deadline" // the deadline has passed, and each pod was tried at least once
	// OutcomeChanged: the blockers differ from Eviction.Shown, an operator changed the drain, or the cluster answers
	// again.
	OutcomeChanged    = "Changed"
	OutcomeUnanswered = "Unanswered" // the cluster did not answer
)

// EvictPods removes the pods of a node by the given means. EvictPods returns when the node is empty, when the deadline
// has passed, when the blockers have changed, or when the cluster did not answer. Each attempt begins with a live list
// of pods and continues with one watch. An attempt that begins after the deadline still tries each pod once. The next
// attempt continues from the progress in the heartbeats. A second run of EvictPods sends no request for a pod that is
// already being deleted.
func (a *Activities) EvictPods(ctx context.Context, in Eviction) (EvictionResult, error) {
	p, release, err := a.acquireNodeLocation(ctx, in.Machine)
	if err != nil {
		return ResultWithoutAnswer(ctx, in, err)
	}
	defer release()
	return EvictNodePods(ctx, p, in)
}

// maxAttemptsWithoutAnswer is how many attempts of EvictPods may fail before the drain reports that the cluster does
// not answer. Source: during a restart of an API server, requests fail for a few seconds; nobody has to read about it.
const maxAttemptsWithoutAnswer = 3

// ResultWithoutAnswer returns the result of an attempt of EvictPods that could not read the pods of the node because of
// err. Temporal starts another attempt if ResultWithoutAnswer returns err. If the workflow knows that the cluster does
// not answer, the attempts go on until it answers.
func ResultWithoutAnswer(ctx context.Context, in Eviction, err error) (EvictionResult, error) {
	if in.Unanswered || ctx.Err() != nil || activity.GetInfo(ctx).Attempt < maxAttemptsWithoutAnswer {
		return EvictionResult{}, err
	}
	progress := Progress{Departed: in.Departed}
	progress.Picture.Rows, progress.Picture.Counts.Gone = in.Known, in.Gone
	var last Progress
	if activity.GetHeartbeatDetails(ctx, &last) == nil { // an earlier attempt recorded its progress
		progress = last
	}
	return EvictionResult{
		Outcome: OutcomeUnanswered, Why: kube.ShortenMessage("the cluster does not answer: " + err.Error()),
		Picture: progress.Picture, Blockers: in.Shown, Departed: progress.Departed,
	}, nil
}

// EvictNodePods is EvictPods for a node in any NodeLocation.
func EvictNodePods(ctx context.Context, p NodeLocation, in Eviction) (EvictionResult, error) {
	e := &evictionLoop{
		NodeLocation:        p,
		clock:               kube.NewServerClock(ctx),
		client:              p.client(),
		input:               in,
		Progress:            Progress{Gone: in.Gone, Departed: in.Departed},
		factsByPod:          map[string]drain.Pod{},
		labelsByNamespace:   labelsByNamespace{},
		triesByPod:          map[string]drain.RequestRecord{},
		volumesByPod:        map[string][]string{},
		usesByBudget:        map[string]budgetUse{},
		budgetVersionsByPod: map[string]string{},
		checkLimiter:        rate.NewLimiter(rate.Every(minCheckInterval), checkBurst),
		arrivalLimiter:      rate.NewLimiter(rate.Every(arrivalEvictionInterval), arrivalBurst),
	}
	var last Progress
	if err := activity.GetHeartbeatDetails(ctx, &last); err == nil { // an earlier attempt recorded its progress
		e.Progress = last
	}
	changes, stop, err := e.watchPods(ctx)
	if err != nil {
		return ResultWithoutAnswer(ctx, in, err)
	}
	defer stop()
	e.updateEventFilter()
	notifications, unsubscribe, err := observedrain.SubscribeToChanges(
		p.Sources,
		in.Machine.UID,
		observedrain.ChangeFilter{
			BudgetMatters:     func(namespace string) bool { return e.eventFilter.Load().namespaces.Has(namespace) },
			AttachmentMatters: func(node, volume string) bool { return node == in.NodeName || e.eventFilter.Load().volumes.Has(volume) },
		},
	)
	if err != nil {
		return EvictionResult{}, err
	}
	defer unsubscribe()
	e.initialOperatorRequestText = e.operatorRequestText()
	defer func() { e.Kube.Metrics.UpdateBlockedPods(e.blockersInMetric, nil) }()
	return e.run(ctx, changes, notifications)
}

// evictionLoop is one attempt to empty a node.
type evictionLoop struct {
	NodeLocation
	// The loop uses the server's clock, because the loop's times are compared with times of the drain, of pods and of
	// other workers.
	clock  kube.Clock
	client kubernetes.Interface
	input  Eviction
	Progress

	pods       map[string]*corev1.Pod // pods on the node, by pod UID
	factsByPod map[string]drain.Pod   // facts about the pods at the last check, by pod UID
	labelsByNamespace
	triesByPod   map[string]drain.RequestRecord
	volumesByPod map[string][]string // volumes that were attached when the pod was first seen, by pod UID
	usesByBudget map[string]budgetUse
	budgetsByPod map[string][]*policyv1.PodDisruptionBudget // budgets that select the pod, by pod UID
	// the pod's budgets and their versions at the last check, by pod UID
	budgetVersionsByPod        map[string]string
	acceptedRequestCount       int
	initialOperatorRequestText string // operator requests about the drain when the attempt began
	eventFilter                atomic.Pointer[eventFilter]
	blockersInMetric           []drain.Blocker
	debouncer
	checkLimiter   *rate.Limiter // limits how often changes make the loop check the pods
	arrivalLimiter *rate.Limiter // rate limit of the evictions of pods that arrive during the drain
}

// Progress is the content of a heartbeat: the picture for people, and facts that the next attempt cannot read from the
// API server.
type Progress struct {
	Gone     int
	Departed []drain.DepartedPod
	Picture  drain.Overview
}

// budgetUse counts the disruptions of a budget that were used since the budget's status last changed.
type budgetUse struct {
	budgetVersion   string // resourceVersion of the budget
	usedDisruptions int
	nextProbeTime   time.Time // time of the next probe
}

func (e *evictionLoop) run(
	ctx context.Context,
	changes <-chan watch.Event,
	notifications <-chan struct{},
) (EvictionResult, error) {
	for {
		d, err := e.decideAndSendRequests(ctx)
		if err != nil && e.isPastDeadline() && ctx.Err() == nil { // a failing read does not delay the deadline
			activity.GetLogger(ctx).
				Warn("the drain's facts cannot be read, and its deadline has passed", "node", e.input.NodeName, "error", err)
			return e.evictionResult(OutcomeDeadline, d), nil
		}
		if err != nil {
			return EvictionResult{}, err
		}
		e.Kube.Metrics.UpdateBlockedPods(e.blockersInMetric, d.Blockers)
		e.Picture, e.blockersInMetric = d.Picture, d.Blockers
		activity.RecordHeartbeat(ctx, e.Progress)
		now := e.clock.Now()
		switch {
		case d.Done:
			return e.evictionResult(OutcomeEmpty, d), nil
		case e.isPastDeadline():
			return e.evictionResult(OutcomeDeadline, d), nil
		case e.input.Unanswered,
			e.isReportDue(d.Blockers, e.input.Shown, now),
			e.operatorRequestText() != e.initialOperatorRequestText:
			return e.evictionResult(OutcomeChanged, d), nil
		}
		if len(d.Act) > 0 { // some requests were not sent, because the budget lock timed out
			d.Look = now
		}
		if err := e.awaitChange(ctx, d.Look, changes, notifications); err != nil {
			if isCancelledByWorkflow(ctx) { // the workflow cancelled the activity and still needs the result
				return e.evictionResult(OutcomeChanged, d), nil
			}
			return EvictionResult{}, err
		}
	}
}

// isCancelledByWorkflow reports whether the workflow has cancelled the activity. If an operator pauses or resets the
// activity, isCancelledByWorkflow is false, because another attempt continues.
func isCancelledByWorkflow(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, context.DeadlineExceeded) &&
		!errors.Is(cause, activity.ErrActivityPaused) && !errors.Is(cause, activity.ErrActivityReset)
}

// isPastDeadline reports whether the deadline of the removal means has passed.
func (e *evictionLoop) isPastDeadline() bool {
	return !e.input.Until.IsZero() && !e.clock.Now().Before(e.input.Until)
}

// decideAndSendRequests decides and sends requests until none is left to send, and returns the last decision.
// decideAndSendRequests also returns after a timeout of the budget lock, because the facts may have changed.
func (e *evictionLoop) decideAndSendRequests(ctx context.Context) (drain.Decision, error) {
	stop := kube.StartHeartbeats(ctx, e.Progress) // requests, and reads of claims, may take long
	defer stop()
	for asked, all := false, true; ; asked = true {
		d, err := e.decideActions(ctx)
		if err != nil || len(d.Act) == 0 || asked && (e.isPastDeadline() || !all) || ctx.Err() != nil {
			return d, err
		}
		all = e.recordAnswers(e.sendActions(ctx, d.Act))
	}
}

// operatorRequestText returns the operator requests about the drain, read from the machine. The loop reads the machine,
// because a cancellation by the workflow would arrive only with the next heartbeat.
func (e *evictionLoop) operatorRequestText() string {
	if m := e.Machine(); m != nil {
		return observedrain.OperatorRequestsText(m)
	}
	return ""
}

func (e *evictionLoop) evictionResult(outcome string, d drain.Decision) EvictionResult {
	r := EvictionResult{
		Outcome: outcome, Picture: d.Picture, Blockers: d.Blockers, Departed: e.Departed, Accepted: e.acceptedRequestCount,
	}
	for _, pod := range e.factsByPod {
		if mustPodLeave(pod) {
			r.Grace = max(r.Grace, pod.Grace)
			r.Left = append(r.Left, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(r.Left)
	r.Left = r.Left[:min(len(r.Left), drain.MaxOverviewRows)]
	return r
}

// eventFilter filters which events of budgets and volume attachments reach a drain. An eventFilter is immutable.
type eventFilter struct {
	namespaces sets.Set[string] // namespaces whose budgets matter to the drain
	volumes    sets.Set[string] // volumes whose attachments to any node matter to the drain
}

// updateEventFilter updates the filter to the namespaces and volumes of the current pods. Call updateEventFilter before
// reading the caches. Then a change after the call arrives as an event, and a change before the call is in the caches.
func (e *evictionLoop) updateEventFilter() {
	of := &eventFilter{namespaces: sets.New[string](), volumes: sets.New(e.volumeNames()...)}
	for _, pod := range e.pods {
		of.namespaces.Insert(pod.Namespace)
	}
	e.eventFilter.Store(of)
}

// volumeNames returns the volumes of the pods on the node and of the departed pods.
func (e *evictionLoop) volumeNames() []string {
	names := slices.Concat(slices.Collect(maps.Values(e.volumesByPod))...)
	for _, d := range e.Departed {
		names = append(names, d.Pod.Volumes...)
	}
	return names
}
