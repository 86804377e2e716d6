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

// watchPods lists the pods of the node and watches them from there.
func (e *evictionLoop) watchPods(ctx context.Context) (changes <-chan watch.Event, stop func(), err error) {
	pods, version, err := listPods(ctx, e.client, e.in.NodeName)
	if err != nil {
		return nil, nil, err
	}
	e.pods = make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		e.pods[string(pod.UID)] = pod
	}
	e.restoreTries()
	options := podsOn(e.in.NodeName)
	options.ResourceVersion = version
	w, err := e.client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
	if err != nil {
		return nil, nil, fmt.Errorf("watch pods of node %s: %w", e.in.NodeName, err)
	}
	return w.ResultChan(), w.Stop, nil
}

// restoreTries counts the attempts of earlier runs, so that people see all of them.
func (e *evictionLoop) restoreTries() {
	for uid, pod := range e.pods {
		for _, row := range e.in.Known {
			if row.Pod == pod.Namespace+"/"+pod.Name {
				e.tries[uid] = drain.Tries{Attempts: row.Attempts}
			}
		}
	}
}

// decide collects the facts and decides.
func (e *evictionLoop) decide(ctx context.Context) (drain.Decision, error) {
	e.findVolumes(ctx)
	e.subscribe()
	e.budgets = make(map[string][]*policyv1.PodDisruptionBudget, len(e.pods))
	for uid, pod := range e.pods {
		e.budgets[uid] = observedrain.BudgetsOf(e.Cluster, pod)
	}
	e.retryChanged()
	if err := e.look(ctx); err != nil {
		return drain.Decision{}, err
	}
	budgets := map[string]drain.Budget{}
	for _, list := range e.budgets {
		for _, b := range list {
			if _, seen := budgets[b.Namespace+"/"+b.Name]; seen {
				continue
			}
			facts := observedrain.BudgetFacts(b)
			spent, known := e.spent[facts.Key]
			if !known && facts.Current && !e.in.Hurry { // a budget whose status is up to date needs no probe
				spent.next = drain.AfterProbe(e.clock.Now(), facts.Misconfigured())
			}
			if spent.version != b.ResourceVersion { // its status now includes what was used
				spent = spending{version: b.ResourceVersion, next: spent.next}
				e.spent[facts.Key] = spent
			}
			facts.Used, facts.Next = spent.used, spent.next
			budgets[facts.Key] = facts
		}
	}
	d := drain.Decide(drain.Observed{
		Pods:     slices.Collect(maps.Values(e.facts)),
		Departed: e.Departed,
		Means:    e.in.Means,
		Settings: e.Kube.Draining,
		Now:      e.clock.Now(),
		Gone:     e.Gone,
		Budgets:  slices.Collect(maps.Values(budgets)),
		Volumes:  observedrain.VolumeFacts(e.Cluster, e.in.NodeName, e.volumeNames()),
	})
	e.Departed = d.Departed
	return d, nil
}

// look updates the facts about the pods on the node.
func (e *evictionLoop) look(ctx context.Context) error {
	uids := slices.Sorted(maps.Keys(e.pods))
	pods := make([]*corev1.Pod, 0, len(uids))
	for _, uid := range uids {
		pods = append(pods, e.pods[uid])
	}
	facts, err := e.podFacts(ctx, pods, e.namespaces, e.in.Means)
	if err != nil {
		return err
	}
	clear(e.facts)
	for i, uid := range uids {
		facts[i].Tries, facts[i].Volumes = e.tries[uid], e.volumes[uid]
		facts[i].Returned = !e.in.Started.IsZero() && pods[i].CreationTimestamp.After(e.in.Started) &&
			observedrain.ToleratesCordon(pods[i])
		for _, b := range e.budgets[uid] {
			facts[i].Budgets = append(facts[i].Budgets, b.Namespace+"/"+b.Name)
		}
		e.facts[uid] = facts[i]
	}
	return nil
}

// retryChanged allows an immediate try of each pod whose budgets have changed since the last look.
func (e *evictionLoop) retryChanged() {
	for uid, list := range e.budgets {
		now := ""
		for _, b := range list {
			now += b.Name + " " + b.ResourceVersion + "\n"
		}
		if before, known := e.asked[uid]; known && before != now {
			e.tries[uid] = drain.Woken(e.tries[uid])
		}
		e.asked[uid] = now
	}
}

// record takes the answers to requests, and reports whether all were sent. The wait after a refusal gets up to 20 %
// longer at random, because the drains of many nodes use the same budgets.
func (e *evictionLoop) record(answers []answer) (all bool) {
	now := e.clock.Now()
	all = true
	for _, a := range answers {
		pod := e.pods[a.action.UID]
		if a.Result == drain.NotTried || pod == nil {
			all = all && pod == nil
			continue
		}
		tries := drain.After(e.tries[a.action.UID], a.Answer, now)
		if wait := tries.Next.Sub(now); wait > 0 {
			tries.Next = now.Add(wait + rand.N(wait/5+1))
		}
		e.tries[a.action.UID] = tries
		e.Kube.Metrics.Asked(a.Answer)
		if a.Result == drain.Gone {
			e.leave(pod)
			continue
		}
		if a.Result == drain.Accepted {
			e.accepted++
		}
		if a.action.Means == drain.Evict {
			e.spend(pod, a, now)
		}
	}
	return all
}

// spend counts what the eviction of a pod used of its budget. If the API server did not check a budget, because several
// select the pod or the request failed, nothing was used. The next probe waits in any case.
func (e *evictionLoop) spend(pod *corev1.Pod, a answer, now time.Time) {
	counted := a.Result == drain.Accepted || a.Result == drain.Refused
	if !counted && a.Result != drain.Several && len(a.action.Probe) == 0 {
		return
	}
	uid := string(pod.UID)
	for _, b := range e.budgets[uid] {
		facts := observedrain.BudgetFacts(b)
		if !facts.Counts(e.facts[uid]) {
			continue
		}
		spent := e.spent[facts.Key]
		if counted {
			spent.used++
		}
		spent.next = drain.AfterProbe(now, len(e.budgets[uid]) > 1 || facts.Misconfigured())
		e.spent[facts.Key] = spent
	}
}

// leave records that a pod is not on the node any more.
func (e *evictionLoop) leave(pod *corev1.Pod) {
	uid := string(pod.UID)
	if f, known := e.facts[uid]; known && mustLeave(f) {
		e.Gone++
		f.Volumes = e.volumes[uid]
		e.Departed = append(e.Departed, drain.Leave(f, e.clock.Now()))
	}
	delete(e.pods, uid)
	delete(e.tries, uid)
	delete(e.volumes, uid)
	delete(e.asked, uid)
}

// wait returns when it is time to look at the pods again. After a change, this is as soon as the limiter of looks
// allows; wait takes the events of pods that arrive until then.
func (e *evictionLoop) wait(
	ctx context.Context,
	look time.Time,
	changes <-chan watch.Event,
	notifications <-chan struct{},
) error {
	next := kube.HeartbeatEvery
	for _, at := range []time.Time{look, e.in.Until, e.due} {
		if at.After(time.Unix(0, 0)) {
			next = min(next, max(at.Sub(e.clock.Now()), shortestWait))
		}
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	for changed := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			return lookAgain(ctx, "the worker stops while it drains node "+e.in.NodeName)
		case <-timer.C:
			return e.takeArrived(ctx, changes)
		case <-notifications:
		case change, open := <-changes:
			if err := e.take(ctx, change, open); err != nil {
				return err
			}
		}
		if !changed {
			changed = true
			timer.Reset(e.looks.Reserve().Delay())
		}
	}
}

// takeArrived takes the events of pods that have arrived.
func (e *evictionLoop) takeArrived(ctx context.Context, changes <-chan watch.Event) error {
	for {
		select {
		case change, open := <-changes:
			if err := e.take(ctx, change, open); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// take takes one event of a pod.
func (e *evictionLoop) take(ctx context.Context, change watch.Event, open bool) error {
	pod, isPod := change.Object.(*corev1.Pod)
	switch {
	case !open:
		return lookAgain(ctx, "the watch of pods of node "+e.in.NodeName+" has ended")
	case change.Type == watch.Error:
		return lookAgain(
			ctx,
			fmt.Sprintf("the watch of pods of node %s has failed: %v", e.in.NodeName, apierrors.FromObject(change.Object)),
		)
	case !isPod:
	case change.Type == watch.Deleted:
		e.leave(pod)
	default:
		e.pods[string(pod.UID)] = pod
	}
	return nil
}

// lookAgain returns an error with which Temporal begins another attempt soon, without an alarm. If ctx has ended, which
// ends a watch too, it returns the error of ctx.
func lookAgain(ctx context.Context, message string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return temporal.NewApplicationErrorWithOptions(kube.Brief(message), typeWatchEnded,
		temporal.ApplicationErrorOptions{NextRetryDelay: rewatchAfter, Category: temporal.ApplicationErrorCategoryBenign})
}

// typeWatchEnded is the type of that failure. No workflow depends on it.
const typeWatchEnded = "WatchEnded"
