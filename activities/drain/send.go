package drain

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

	"millwright/activities/kube"
	"millwright/decide/drain"
	observedrain "millwright/observe/drain"
)

// mostRequests is how many requests for pods of one node are sent at the same time. Source: a node has 110 pods by
// default, and the API server serves 200 writes at once in all.
const mostRequests = 20

// answer is the API server's answer to one request.
type answer struct {
	drain.Answer
	action drain.Action
}

// send sends the requests of actions, those of one budget one after the other, and returns the answers. It returns
// early only when ctx ends. A request that was not sent, because ctx ended or its budget was in use for too long, has
// no answer.
func (e *evictionLoop) send(ctx context.Context, actions []drain.Action) []answer {
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
			unlock, locked := e.lockBudget(ctx, action)
			defer unlock()
			slots <- struct{}{} // after the lock: an eviction that waits for its lock occupies no slot
			defer func() { <-slots }()
			if ctx.Err() != nil || !locked && !e.over() {
				return
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			answers[i].Answer = classify(removePod(bounded, e.client, action.Means, pod))
			answers[i].Means = action.Means
		})
	}
	group.Wait()
	return answers
}

// lockBudget waits until no other eviction of this worker uses the budget of a pod. The API server makes concurrent
// evictions of one budget collide and delays each collision by half a second, so many at once take longer than one
// after the other. Pods selected by several budgets need no lock: the API server rejects them without touching a
// budget. Waiting ends at the drain's deadline.
func (e *evictionLoop) lockBudget(ctx context.Context, action drain.Action) (unlock func(), locked bool) {
	budgets := e.budgets[action.UID]
	if action.Means != drain.Evict || len(budgets) != 1 ||
		!observedrain.BudgetFacts(budgets[0]).Counts(e.facts[action.UID]) {
		return func() {}, true
	}
	most := budgetLockTimeout
	if !e.in.Until.IsZero() {
		most = min(most, max(e.in.Until.Sub(e.clock.Now()), 0))
	}
	return e.Kube.Evictions.Lock(ctx, e.Name+"/"+budgets[0].Namespace+"/"+budgets[0].Name, most)
}

// removePod evicts or deletes one pod. Its UID is the precondition, because another pod may have its name by now.
func removePod(ctx context.Context, client kubernetes.Interface, means drain.Means, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	pods := client.CoreV1().Pods(pod.Namespace)
	switch means {
	case drain.Evict:
		return pods.EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
		})
	case drain.Delete, drain.DeleteInOrder:
	case drain.Kill:
		options.GracePeriodSeconds = new(int64)
	}
	return pods.Delete(ctx, pod.Name, options)
}

// classify turns the API server's answer into a result for decide/drain, by status codes and causes, never by texts.
func classify(err error) drain.Answer {
	if err == nil {
		return drain.Answer{Result: drain.Accepted}
	}
	a := drain.Answer{Result: drain.Failed, Message: kube.Brief(err.Error())}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return a
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	refusal, refused := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	switch {
	case apierrors.IsNotFound(err) && namesObject(status.Status(), err):
		a.Result = drain.Gone
	case refused:
		a.Result, a.Message = drain.Refused, kube.Brief(refusal.Message)
	case apierrors.IsTooManyRequests(err):
		a.Result = drain.Throttled
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		a.Result = drain.Going
	case status.Status().Code == http.StatusInternalServerError && status.Status().Reason == "":
		// several budgets select the pod
		a.Result = drain.Several
	}
	return a
}

// namesObject reports whether an answer 404 is about an object. An API server without the eviction subresource also
// answers 404, although the pod exists.
func namesObject(s metav1.Status, err error) bool {
	return s.Details != nil && s.Details.Name != "" &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
