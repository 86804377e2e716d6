package drain

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/activities/kube"
	"millwright/decide/drain"
	observedrain "millwright/observe/drain"
)

// watchPods lists the pods of the node and watches them from the resourceVersion of the list.
func (e *evictionLoop) watchPods(ctx context.Context) (changes <-chan watch.Event, stop func(), err error) {
	pods, version, err := listPods(ctx, e.client, e.input.NodeName)
	if err != nil {
		return nil, nil, err
	}
	e.pods = make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		e.pods[string(pod.UID)] = pod
	}
	e.restoreTries()
	options := podListOptions(e.input.NodeName)
	options.ResourceVersion = version
	w, err := e.client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
	if err != nil {
		return nil, nil, fmt.Errorf("watch pods of node %s: %w", e.input.NodeName, err)
	}
	return w.ResultChan(), w.Stop, nil
}

// restoreTries adds the eviction attempts of earlier runs, so that the status counts all attempts.
func (e *evictionLoop) restoreTries() {
	for uid, pod := range e.pods {
		for _, row := range e.input.Known {
			if row.Pod == pod.Namespace+"/"+pod.Name {
				e.triesByPod[uid] = drain.RequestRecord{Attempts: row.Attempts}
			}
		}
	}
}

// decideActions updates the facts of the loop and returns the decision of decide/drain.
func (e *evictionLoop) decideActions(ctx context.Context) (drain.Decision, error) {
	e.findAttachedVolumes(ctx)
	e.updateEventFilter()
	e.budgetsByPod = make(map[string][]*policyv1.PodDisruptionBudget, len(e.pods))
	for uid, pod := range e.pods {
		e.budgetsByPod[uid] = observedrain.BudgetsOfPod(e.Target, pod)
	}
	e.retryPodsOfChangedBudgets()
	if err := e.updatePodFacts(ctx); err != nil {
		return drain.Decision{}, err
	}
	budgets := map[string]drain.DisruptionBudget{}
	for _, list := range e.budgetsByPod {
		for _, b := range list {
			if _, seen := budgets[b.Namespace+"/"+b.Name]; seen {
				continue
			}
			facts := observedrain.BudgetFacts(b)
			spent, known := e.usesByBudget[facts.Key]
			if !known && facts.IsUpToDate && !e.input.Hurry { // a budget with an up-to-date status needs no probe now
				spent.nextProbeTime = drain.NextProbeTime(e.clock.Now(), facts.IsMisconfigured())
			}
			if spent.budgetVersion != b.ResourceVersion { // the budget's new status includes the used disruptions
				spent = budgetUse{budgetVersion: b.ResourceVersion, nextProbeTime: spent.nextProbeTime}
				e.usesByBudget[facts.Key] = spent
			}
			facts.SentEvictions, facts.NextProbe = spent.usedDisruptions, spent.nextProbeTime
			budgets[facts.Key] = facts
		}
	}
	d := drain.Decide(drain.Facts{
		Pods:         slices.Collect(maps.Values(e.factsByPod)),
		DepartedPods: e.Departed,
		Means:        e.input.Means,
		Settings:     e.Kube.Draining,
		Now:          e.clock.Now(),
		GonePodCount: e.Gone,
		Budgets:      slices.Collect(maps.Values(budgets)),
		Volumes:      observedrain.VolumeFacts(e.Target, e.input.NodeName, e.volumeNames()),
	})
	e.Departed = d.Departed
	return d, nil
}

// updatePodFacts updates the facts about the pods on the node.
func (e *evictionLoop) updatePodFacts(ctx context.Context) error {
	uids := slices.Sorted(maps.Keys(e.pods))
	pods := make([]*corev1.Pod, 0, len(uids))
	for _, uid := range uids {
		pods = append(pods, e.pods[uid])
	}
	facts, err := e.podFacts(ctx, pods, e.labelsByNamespace, e.input.Means)
	if err != nil {
		return err
	}
	clear(e.factsByPod)
	for i, uid := range uids {
		facts[i].Tries, facts[i].Volumes = e.triesByPod[uid], e.volumesByPod[uid]
		facts[i].Returned = !e.input.Started.IsZero() && pods[i].CreationTimestamp.After(e.input.Started) &&
			observedrain.ToleratesCordon(pods[i])
		for _, b := range e.budgetsByPod[uid] {
			facts[i].Budgets = append(facts[i].Budgets, b.Namespace+"/"+b.Name)
		}
		e.factsByPod[uid] = facts[i]
	}
	return nil
}

// retryPodsOfChangedBudgets allows an immediate try of each pod whose budgets have changed since the last check.
func (e *evictionLoop) retryPodsOfChangedBudgets() {
	for uid, list := range e.budgetsByPod {
		now := ""
		for _, b := range list {
			now += b.Name + " " + b.ResourceVersion + "\n"
		}
		if before, known := e.budgetVersionsByPod[uid]; known && before != now {
			e.triesByPod[uid] = drain.RequestRecordWithoutPause(e.triesByPod[uid])
		}
		e.budgetVersionsByPod[uid] = now
	}
}

// recordAnswers stores the answers to requests, and reports whether all requests were sent. recordAnswers adds up to 20
// % random jitter to the back-off of a refused pod, because the drains of many nodes use the same budgets.
func (e *evictionLoop) recordAnswers(answers []requestAnswer) (all bool) {
	now := e.clock.Now()
	all = true
	for _, a := range answers {
		pod := e.pods[a.action.UID]
		if a.Result == drain.ResultNotRequested || pod == nil {
			all = all && pod == nil
			continue
		}
		tries := drain.RequestRecordAfterAnswer(e.triesByPod[a.action.UID], a.RequestAnswer, now)
		if wait := tries.Next.Sub(now); wait > 0 {
			tries.Next = now.Add(wait + rand.N(wait/5+1))
		}
		e.triesByPod[a.action.UID] = tries
		e.Kube.Metrics.CountEvictionRequest(a.RequestAnswer)
		if a.Result == drain.ResultPodGone {
			e.recordDeparture(pod)
			continue
		}
		if a.Result == drain.ResultAccepted {
			e.acceptedRequestCount++
		}
		if a.action.Means == drain.MeansEvict {
			e.recordBudgetUse(pod, a, now)
		}
	}
	return all
}

// recordBudgetUse counts the disruptions that the eviction of a pod used. An eviction uses no disruption if the API
// server did not check a budget, because several budgets select the pod or the request failed. The next probe is
// delayed in any case.
func (e *evictionLoop) recordBudgetUse(pod *corev1.Pod, a requestAnswer, now time.Time) {
	counted := a.Result == drain.ResultAccepted || a.Result == drain.ResultRefused
	if !counted && a.Result != drain.ResultSeveralBudgets && len(a.action.Probe) == 0 {
		return
	}
	uid := string(pod.UID)
	for _, b := range e.budgetsByPod[uid] {
		facts := observedrain.BudgetFacts(b)
		if !facts.CountsPod(e.factsByPod[uid]) {
			continue
		}
		spent := e.usesByBudget[facts.Key]
		if counted {
			spent.usedDisruptions++
		}
		spent.nextProbeTime = drain.NextProbeTime(now, len(e.budgetsByPod[uid]) > 1 || facts.IsMisconfigured())
		e.usesByBudget[facts.Key] = spent
	}
}

// recordDeparture records that a pod has left the node.
func (e *evictionLoop) recordDeparture(pod *corev1.Pod) {
	uid := string(pod.UID)
	if f, known := e.factsByPod[uid]; known && mustPodLeave(f) {
		e.Gone++
		f.Volumes = e.volumesByPod[uid]
		e.Departed = append(e.Departed, drain.NewDepartedPod(f, e.clock.Now()))
	}
	delete(e.pods, uid)
	delete(e.triesByPod, uid)
	delete(e.volumesByPod, uid)
	delete(e.budgetVersionsByPod, uid)
}

// awaitChange returns when the loop must check the pods again. After a change, awaitChange waits until the rate limit
// allows the next check. Meanwhile, awaitChange applies the pod events that arrive.
func (e *evictionLoop) awaitChange(
	ctx context.Context,
	look time.Time,
	changes <-chan watch.Event,
	notifications <-chan struct{},
) error {
	next := kube.HeartbeatInterval
	for _, at := range []time.Time{look, e.input.Until, e.nextReportTime} {
		if at.After(time.Unix(0, 0)) {
			next = min(next, max(at.Sub(e.clock.Now()), minTimerWait))
		}
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	for changed := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return newRetryError(ctx, "the worker stops while it drains node "+e.input.NodeName)
		case <-timer.C:
			return e.applyEvents(ctx, changes)
		case <-notifications:
		case change, open := <-changes:
			if err := e.applyEvent(ctx, change, open); err != nil {
				return err
			}
		}
		if !changed {
			changed = true
			timer.Reset(e.checkLimiter.Reserve().Delay())
		}
	}
}

// applyEvents applies all pod events that are waiting in the channel.
func (e *evictionLoop) applyEvents(ctx context.Context, changes <-chan watch.Event) error {
	for {
		select {
		case change, open := <-changes:
			if err := e.applyEvent(ctx, change, open); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// applyEvent applies one pod event to the pods of the loop.
func (e *evictionLoop) applyEvent(ctx context.Context, change watch.Event, open bool) error {
	pod, isPod := change.Object.(*corev1.Pod)
	switch {
	case !open:
		return newRetryError(ctx, "the watch of pods of node "+e.input.NodeName+" has ended")
	case change.Type == watch.Error:
		return newRetryError(
			ctx,
			fmt.Sprintf("the watch of pods of node %s has failed: %v", e.input.NodeName, apierrors.FromObject(change.Object)),
		)
	case !isPod:
	case change.Type == watch.Deleted:
		e.recordDeparture(pod)
	default:
		uid := string(pod.UID)
		if _, known := e.pods[uid]; !known {
			e.triesByPod[uid] = drain.RequestRecord{Next: e.clock.Now().Add(e.arrivalLimiter.Reserve().Delay())}
		}
		e.pods[uid] = pod
	}
	return nil
}

// newRetryError returns a benign error, so that Temporal starts another attempt after rewatchDelay without an alarm. If
// ctx has ended, newRetryError returns the error of ctx, because a watch also ends when ctx ends.
func newRetryError(ctx context.Context, message string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return temporal.NewApplicationErrorWithOptions(kube.ShortenMessage(message), failureTypeWatchEnded,
		temporal.ApplicationErrorOptions{NextRetryDelay: rewatchDelay, Category: temporal.ApplicationErrorCategoryBenign})
}

// failureTypeWatchEnded is the type of the error that newRetryError returns. No workflow depends on
// failureTypeWatchEnded.
const failureTypeWatchEnded = "WatchEnded"
