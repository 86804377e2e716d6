package activities

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"millwright/decide/drain"
	"millwright/observe"
)

// mostRequests is how many pods of one node are asked to go at the same time. Source: a node has 110 pods by default, and
// the API server serves 200 writes at once for everybody.
const mostRequests = 20

// requestTimeout bounds one such request. An eviction that is cut off may have used its budget already, which then misses that pod for
// two minutes, although it stays. Source: the API server tries an eviction for ten seconds when others change the same
// budget (20 times, each half a second apart), and webhooks have 10 s by default, of which few take a second.
const requestTimeout = 20 * time.Second

// turnTimeout is how long an eviction waits for others of the same budget until its drain looks about again. Source: with a request
// it is what a worker that stops waits for.
const turnTimeout = 10 * time.Second

// answer is what the API server said to one request.
type answer struct {
	drain.Answer
	action drain.Action
}

// send carries out actions, those of one budget one after the other, and returns what came of each. It returns early only when ctx
// ends; what was not sent, then or because its turn did not come, has no answer.
func (e *emptying) send(ctx context.Context, actions []drain.Action) []answer {
	answers := make([]answer, len(actions))
	var group sync.WaitGroup
	slots := make(chan struct{}, mostRequests)
	for i, action := range actions {
		answers[i].action = action
		pod := e.pods[action.UID]
		if pod == nil {
			continue
		}
		group.Go(func() {
			end, given := e.turn(ctx, action)
			defer end()
			slots <- struct{}{} // after the turn: who waits for one keeps nobody from asking others
			defer func() { <-slots }()
			if ctx.Err() != nil || !given && !e.over() {
				return
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			answers[i].Answer = classify(request(bounded, e.client, action.Means, pod))
			answers[i].Means = action.Means
		})
	}
	group.Wait()
	return answers
}

// turn waits until no other eviction by this worker asks the budget of a pod, and returns what lets the next one ask. The API server
// makes evictions of one budget collide, and each that does comes half a second later: many at once take longer than one after the other.
// A pod that several budgets select is refused before any of them is touched. At the drain's deadline it is waited for no more.
func (e *emptying) turn(ctx context.Context, action drain.Action) (end func(), given bool) {
	budgets := e.budgets[action.UID]
	if action.Means != drain.Evict || len(budgets) != 1 || !observe.BudgetFacts(budgets[0]).Counts(e.facts[action.UID]) {
		return func() {}, true
	}
	most := turnTimeout
	if !e.in.Until.IsZero() {
		most = min(most, max(time.Until(e.in.Until), 0))
	}
	return e.evictions.take(ctx, budgets[0].Namespace+"/"+budgets[0].Name, most)
}

// request asks one pod to go. The UID is the precondition of each: another pod of the same name is none of ours (D41).
func request(ctx context.Context, client kubernetes.Interface, means drain.Means, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	pods := client.CoreV1().Pods(pod.Namespace)
	switch means {
	case drain.Evict:
		return pods.EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
		})
	case drain.Delete:
	case drain.Kill:
		options.GracePeriodSeconds = new(int64)
	}
	return pods.Delete(ctx, pod.Name, options)
}

// classify turns the API server's answer into what decide/drain knows. It goes by status codes and causes, never by texts.
func classify(err error) drain.Answer {
	if err == nil {
		return drain.Answer{Result: drain.Accepted}
	}
	a := drain.Answer{Result: drain.Failed, Message: brief(err.Error())}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return a
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	case apierrors.IsNotFound(err):
		a.Result = drain.Gone
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		a.Result, a.Message = drain.Refused, cause(status.Status(), policyv1.DisruptionBudgetCause)
	case apierrors.IsTooManyRequests(err):
		a.Result = drain.Throttled
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		a.Result = drain.Going
	case status.Status().Code == http.StatusInternalServerError && status.Status().Reason == "": // that is all it says of several
		a.Result = drain.Several
	}
	return a
}

// cause returns the message of a cause of a status.
func cause(status metav1.Status, kind metav1.CauseType) string {
	for _, c := range status.Details.Causes {
		if c.Type == kind {
			return brief(c.Message)
		}
	}
	return ""
}
