package drain_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/decide/drain"
)

// Answers of the API server to an eviction. Source: pkg/registry/core/pod/storage/eviction.go of Kubernetes.
var (
	errPodNotFound    = apierrors.NewNotFound(activitiestest.PodsResource.GroupResource(), "a")
	errSeveralBudgets = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    500,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
	errWebhookFailed   = apierrors.NewInternalError(errors.New("failed calling webhook"))
	errTooManyRequests = apierrors.NewTooManyRequests("too many requests", 0)
)

// budgetRefusalError is the API server's answer when a disruption budget allows no eviction.
func budgetRefusalError(budget string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{
			Type:    policyv1.DisruptionBudgetCause,
			Message: "The disruption budget " + budget + " needs 2 healthy pods and has 2 currently",
		},
	}
	return err
}

// namespaceTerminatingError is the API server's answer in a namespace that is being deleted.
func namespaceTerminatingError() error {
	err := apierrors.NewForbidden(
		activitiestest.PodsResource.GroupResource(),
		"a",
		errors.New("unable to create new content in namespace web because it is being terminated"),
	)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "NamespaceTerminating"})
	return err
}

func TestEvictionErrorsBecomeBlockers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer error
		kind   string
		why    string // expected start of the blocker's message
		end    string
		again  time.Duration // shortest delay of the next try; the longest delay is a fifth longer
	}{
		"refused by a PDB that is not seen": {
			budgetRefusalError("web"), drain.BlockedByBudget, "a PodDisruptionBudget that is not seen here keeps web/a: ",
			"The disruption budget web needs 2 healthy pods and has 2 currently", 10 * time.Second,
		},
		"the namespace is going":         {namespaceTerminatingError(), drain.BlockedByNamespace, "namespace web is being deleted, and web/a with it", "", 30 * time.Second},
		"several PDBs that are not seen": {errSeveralBudgets, drain.BlockedByBudget, "a PodDisruptionBudget that is not seen here keeps web/a: ", "does not support.", time.Minute},
		"any error":                      {errWebhookFailed, drain.BlockedByError, "request for web/a failed: ", "failed calling webhook", 5 * time.Second},
		"forbidden":                      {apierrors.NewForbidden(activitiestest.PodsResource.GroupResource(), "a", errors.New("no")), drain.BlockedByError, "request for web/a failed: ", "no", 5 * time.Second},
		"no answer at all":               {errors.New("connection refused"), drain.BlockedByError, "request for web/a failed: ", "connection refused", 5 * time.Second},
		"another pod of its name":        {apierrors.NewConflict(activitiestest.PodsResource.GroupResource(), "a", nil), drain.BlockedByError, "request for web/a failed: ", "", 5 * time.Second},
		"an answer that is too long":     {errors.New(longText), drain.BlockedByError, "request for web/a failed: ", "…", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				d.SetRequestError(row.answer, "a")
				e := d.StartEviction(in)
				e.AssertRunning(t)
				assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
				seen, took := e.AwaitResult(t)
				assert.Equal(t, time.Second, took, "it is told when it lasts")
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
				require.Len(t, seen.Blockers, 1)
				assert.Equal(t, row.kind, seen.Blockers[0].Kind)
				assert.Equal(t, 1, seen.Blockers[0].Pods)
				assert.Regexp(t, "^"+row.why+"(?s:.*)"+row.end+"$", seen.Blockers[0].Why)
				assert.Equal(t, []string{"web/a"}, seen.Left)
				assert.Equal(t, 30*time.Second, seen.Grace)
				assert.Zero(t, seen.Accepted)
				assert.Equal(t, drain.PodCounts{Blocked: 1}, seen.Picture.Counts)
				assert.Empty(t, d.TakeNewRequests(), "it is not tried again at once")
			})
			runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				d.SetRequestError(row.answer, "a")
				in.Shown = []drain.Blocker{{Kind: row.kind, Name: "", Why: "as people were told"}}
				e := d.StartEviction(in)
				e.AssertRunning(t)
				d.SetRequestError(nil, "a")
				d.TakeNewRequests()
				activitiestest.AdvanceTime(row.again - time.Millisecond)
				e.AssertRunning(t)
				assert.Empty(t, d.TakeNewRequests(), "too early")
				activitiestest.AdvanceTime(row.again/5 + 2*time.Millisecond)
				assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests(), "tried again")
				d.RemovePods("a")
				seen, _ := e.AwaitResult(t)
				assert.Empty(t, seen.Blockers)
				assert.Equal(t, 1, seen.Accepted)
			})
		})
	}
}

var longText = func() string {
	text := make([]byte, 5000)
	for i := range text {
		text[i] = 'x'
	}
	return string(text)
}()

func TestAPodThatIsNotFoundIsGone(t *testing.T) {
	t.Parallel()
	for _, means := range []drain.RemovalMeans{drain.MeansEvict, drain.MeansDelete, drain.MeansKill} {
		t.Run("not found: "+string(means), func(t *testing.T) {
			runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				in.Means = means
				d.SetRequestError(errPodNotFound, "a")
				e := d.StartEviction(in)
				seen, _ := e.AwaitResult(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome, "whatever the watch says")
				assert.Zero(t, seen.Accepted)
				assert.Len(t, d.TakeNewRequests(), 1)
			})
		})
	}
}

// An API server without the eviction subresource also answers 404.
func TestMissingEvictionSubresourceDoesNotCountAsGonePod(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"in JSON":       &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{}}},
		"in plain text": apierrors.NewGenericServerResponse(404, "post", corev1.Resource("pods"), "a", "404 page not found", 0, true),
	} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				d.SetRequestError(answer, "a")
				e := d.StartEviction(in)
				e.AssertRunning(t)
				assert.Len(t, d.TakeNewRequests(), 1)
			})
		})
	}
}

func TestThrottledEvictionReportsNoBlocker(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer error
		again  time.Duration
	}{
		"it does not say for how long":    {errTooManyRequests, 5 * time.Second},
		"it says how long":                {apierrors.NewTooManyRequests("too many requests", 20), 20 * time.Second},
		"it says so of a request by name": {apierrors.NewTooManyRequests("too many requests", 1), 5 * time.Second},
	} {
		for kept, objects := range map[string][]runtime.Object{"": podsToRemove("a"), ", with a budget that allows it": append(readyPods("a"), newBudget(1))} {
			t.Run(name+kept, func(t *testing.T) {
				runEvictionTest(t, objects, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
					d.SetRequestError(row.answer, "a")
					e := d.StartEviction(in)
					e.AssertRunning(t)
					assert.Len(t, d.TakeNewRequests(), 1)
					activitiestest.AdvanceTime(row.again - time.Millisecond)
					e.AssertRunning(t) // the blockers are not reported
					assert.Empty(t, d.TakeNewRequests())
					d.SetRequestError(nil, "a")
					activitiestest.AdvanceTime(row.again/5 + 2*time.Millisecond)
					assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
					d.RemovePods("a")
					seen, _ := e.AwaitResult(t)
					assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
				})
			})
		}
	}
}

func TestShortEvictionRefusalIsNotReported(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		d.SetRequestError(budgetRefusalError("web"), "a")
		e := d.StartEviction(in)
		e.AssertRunning(t)
		activitiestest.AdvanceTime(900 * time.Millisecond)
		e.AssertRunning(t)
		d.RemovePods("a") // the owner of the pod deleted the pod first
		seen, _ := e.AwaitResult(t)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		assert.Empty(t, seen.Blockers)
	})
}

func TestBlockersThatChangeBrieflyAreNotReported(t *testing.T) {
	t.Parallel()
	protected := func(name string) *corev1.Pod { return activitiestest.NewPod(name, withDoNotDisrupt("true")) }
	job := activitiestest.NewPod(
		"job",
		func(p *corev1.Pod) { p.Labels = map[string]string{"cluster.x-k8s.io/drain": "wait-completed"} },
	)
	runEvictionTest(
		t,
		[]runtime.Object{job, protected("a")},
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByCompletion}}
			e := d.StartEviction(in)
			for range 3 {
				e.AssertRunning(t)
				activitiestest.AdvanceTime(900 * time.Millisecond)
				d.RemovePods("a")
				activitiestest.AdvanceTime(2 * time.Second)
				require.NoError(t, d.TargetClient.Tracker().Create(activitiestest.PodsResource, protected("a"), "web"))
			}
			e.AssertRunning(t)
			_, took := e.AwaitResult(t)
			assert.Equal(t, time.Second, took)
		},
	)
}

func TestKnownBlockersAreNotReportedAgain(t *testing.T) {
	t.Parallel()
	known := []drain.Blocker{{Kind: drain.BlockedByError, Pods: 5, Why: "another sentence"}}
	runEvictionTest(
		t,
		podsToRemove("a", "b"),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Shown = known
			d.SetRequestError(errWebhookFailed, "a", "b")
			e := d.StartEviction(in)
			activitiestest.AdvanceTime(5 * time.Minute)
			e.AssertRunning(t)
			d.SetRequestError(nil, "a", "b")
			seen, took := e.AwaitResult(t)
			assert.Equal(t, activities.OutcomeChanged, seen.Outcome, "that nothing blocks any more is news")
			assert.Empty(t, seen.Blockers)
			assert.Less(t, took, 2*time.Minute)
		},
	)
}
