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

// maxConcurrentRequests is the maximum number of concurrent requests for the pods of one node. Source: a node has 110
// pods by default, and the API server serves 200 concurrent writes in total.
const maxConcurrentRequests = 20

// requestAnswer is the API server's answer to one request.
type requestAnswer struct {
	drain.RequestAnswer
	action drain.Action
}

// sendActions sends the requests of the actions and returns the answers. Evictions of one budget are sent one after the
// other. If ctx ends, sendActions returns early. If ctx ended or the budget lock timed out, a request is not sent and
// has no answer.
func (e *evictionLoop) sendActions(ctx context.Context, actions []drain.Action) []requestAnswer {
	answers := make([]requestAnswer, len(actions))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentRequests)
	for i, action := range actions {
		answers[i].action = action
		pod := e.pods[action.UID]
		if pod == nil {
			continue
		}
		group.Go(func() {
			unlock, locked := e.lockBudget(ctx, action)
			defer unlock()
			// take the slot after the lock, so that an eviction that waits for its lock occupies no slot
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil || !locked && !e.isPastDeadline() {
				return
			}
			bounded, cancel := context.WithTimeout(ctx, evictionRequestTimeout)
			defer cancel()
			answers[i].RequestAnswer = classifyAnswer(removePod(bounded, e.client, action.Means, pod))
			answers[i].Means = action.Means
		})
	}
	group.Wait()
	return answers
}

// lockBudget waits until no other eviction of this worker uses the budget of a pod. Concurrent evictions of one budget
// conflict, and the API server delays each conflict by half a second. So many concurrent evictions take longer than
// evictions one after the other. Pods with several budgets need no lock, because the API server rejects their evictions
// without touching a budget. lockBudget waits at most until the drain's deadline.
func (e *evictionLoop) lockBudget(ctx context.Context, action drain.Action) (unlock func(), locked bool) {
	budgets := e.budgetsByPod[action.UID]
	if action.Means != drain.MeansEvict || len(budgets) != 1 ||
		!observedrain.BudgetFacts(budgets[0]).CountsPod(e.factsByPod[action.UID]) {
		return func() {}, true
	}
	most := budgetLockTimeout
	if !e.input.Until.IsZero() {
		most = min(most, max(e.input.Until.Sub(e.clock.Now()), 0))
	}
	return e.Kube.Evictions.Lock(ctx, e.Name+"/"+budgets[0].Namespace+"/"+budgets[0].Name, most)
}

// removePod evicts or deletes one pod. The pod's UID is the precondition, because another pod may have the same name
// now.
func removePod(ctx context.Context, client kubernetes.Interface, means drain.RemovalMeans, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	pods := client.CoreV1().Pods(pod.Namespace)
	switch means {
	case drain.MeansEvict:
		return pods.EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
		})
	case drain.MeansDelete, drain.MeansDeleteInOrder:
	case drain.MeansKill:
		options.GracePeriodSeconds = new(int64)
	}
	return pods.Delete(ctx, pod.Name, options)
}

// classifyAnswer turns the API server's answer into a result for decide/drain. classifyAnswer reads status codes and
// causes, never texts.
func classifyAnswer(err error) drain.RequestAnswer {
	if err == nil {
		return drain.RequestAnswer{Result: drain.ResultAccepted}
	}
	a := drain.RequestAnswer{Result: drain.ResultFailed, Message: kube.ShortenMessage(err.Error())}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return a
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	refusal, refused := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	switch {
	case apierrors.IsNotFound(err) && hasObjectName(status.Status(), err):
		a.Result = drain.ResultPodGone
	case refused:
		a.Result, a.Message = drain.ResultRefused, kube.ShortenMessage(refusal.Message)
	case apierrors.IsTooManyRequests(err):
		a.Result = drain.ResultThrottled
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		a.Result = drain.ResultNamespaceDeleting
	case status.Status().Code == http.StatusInternalServerError && status.Status().Reason == "":
		// If several budgets select the pod, the API server answers an eviction with 500 and without a reason.
		a.Result = drain.ResultSeveralBudgets
	}
	return a
}

// hasObjectName reports whether a 404 answer names an object. An API server without the eviction subresource also
// answers 404, although the pod exists.
func hasObjectName(s metav1.Status, err error) bool {
	return s.Details != nil && s.Details.Name != "" &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
