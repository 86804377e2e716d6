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

// The answers of the API server to an eviction. Source: pkg/registry/core/pod/storage/eviction.go of Kubernetes.
var (
	errGone    = apierrors.NewNotFound(activitiestest.PodsResource.GroupResource(), "a")
	errSeveral = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    500,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
	errWebhook = apierrors.NewInternalError(errors.New("failed calling webhook"))
	errBusy    = apierrors.NewTooManyRequests("too many requests", 0)
)

// refusal is the answer of a disruption budget.
func refusal(budget string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{
			Type:    policyv1.DisruptionBudgetCause,
			Message: "The disruption budget " + budget + " needs 2 healthy pods and has 2 currently",
		},
	}
	return err
}

// namespaceGoing is the answer in a namespace that is being deleted.
func namespaceGoing() error {
	err := apierrors.NewForbidden(
		activitiestest.PodsResource.GroupResource(),
		"a",
		errors.New("unable to create new content in namespace web because it is being terminated"),
	)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: "NamespaceTerminating"})
	return err
}

func TestWhatTheAPIServerAnswers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer error
		kind   string
		why    string // the beginning and the end of the message
		end    string
		again  time.Duration // at the earliest; a fifth of it later at the latest
	}{
		"refused by a PDB that is not seen": {
			refusal("web"), drain.BlockedByBudget, "a PodDisruptionBudget that is not seen here keeps web/a: ",
			"The disruption budget web needs 2 healthy pods and has 2 currently", 10 * time.Second,
		},
		"the namespace is going":         {namespaceGoing(), drain.BlockedByNamespace, "namespace web is being deleted, and web/a with it", "", 30 * time.Second},
		"several PDBs that are not seen": {errSeveral, drain.BlockedByBudget, "a PodDisruptionBudget that is not seen here keeps web/a: ", "does not support.", time.Minute},
		"any error":                      {errWebhook, drain.BlockedByError, "request for web/a failed: ", "failed calling webhook", 5 * time.Second},
		"forbidden":                      {apierrors.NewForbidden(activitiestest.PodsResource.GroupResource(), "a", errors.New("no")), drain.BlockedByError, "request for web/a failed: ", "no", 5 * time.Second},
		"no answer at all":               {errors.New("connection refused"), drain.BlockedByError, "request for web/a failed: ", "connection refused", 5 * time.Second},
		"another pod of its name":        {apierrors.NewConflict(activitiestest.PodsResource.GroupResource(), "a", nil), drain.BlockedByError, "request for web/a failed: ", "", 5 * time.Second},
		"an answer that is too long":     {errors.New(longText), drain.BlockedByError, "request for web/a failed: ", "…", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			evicting(t, pods("a"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				d.Answer(row.answer, "a")
				e := d.Empty(in)
				e.GoesOn(t)
				assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since())
				seen, took := e.Ends(t)
				assert.Equal(t, time.Second, took, "it is told when it lasts")
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
				require.Len(t, seen.Blockers, 1)
				assert.Equal(t, row.kind, seen.Blockers[0].Kind)
				assert.Equal(t, 1, seen.Blockers[0].Pods)
				assert.Regexp(t, "^"+row.why+"(?s:.*)"+row.end+"$", seen.Blockers[0].Why)
				assert.Equal(t, []string{"web/a"}, seen.Left)
				assert.Equal(t, 30*time.Second, seen.Grace)
				assert.Zero(t, seen.Accepted)
				assert.Equal(t, drain.Counts{Blocked: 1}, seen.Picture.Counts)
				assert.Empty(t, d.Since(), "it is not tried again at once")
			})
			evicting(t, pods("a"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				d.Answer(row.answer, "a")
				in.Shown = []drain.Blocker{{Kind: row.kind, Name: "", Why: "as people were told"}}
				e := d.Empty(in)
				e.GoesOn(t)
				d.Answer(nil, "a")
				d.Since()
				activitiestest.After(row.again - time.Millisecond)
				e.GoesOn(t)
				assert.Empty(t, d.Since(), "too early")
				activitiestest.After(row.again/5 + 2*time.Millisecond)
				assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since(), "tried again")
				d.End("a")
				seen, _ := e.Ends(t)
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
	for _, means := range []drain.Means{drain.Evict, drain.Delete, drain.Kill} {
		t.Run("not found: "+string(means), func(t *testing.T) {
			evicting(t, pods("a"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				in.Means = means
				d.Answer(errGone, "a")
				e := d.Empty(in)
				seen, _ := e.Ends(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome, "whatever the watch says")
				assert.Zero(t, seen.Accepted)
				assert.Len(t, d.Since(), 1)
			})
		})
	}
}

// An API server without the eviction subresource answers 404 as well.
func TestAMissingSubresourceIsNoPodThatIsGone(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"in JSON":       &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{}}},
		"in plain text": apierrors.NewGenericServerResponse(404, "post", corev1.Resource("pods"), "a", "404 page not found", 0, true),
	} {
		t.Run(name, func(t *testing.T) {
			evicting(t, pods("a"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				d.Answer(answer, "a")
				e := d.Empty(in)
				e.GoesOn(t)
				assert.Len(t, d.Since(), 1)
			})
		})
	}
}

func TestABusyAPIServerBlocksNothing(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer error
		again  time.Duration
	}{
		"it does not say for how long":    {errBusy, 5 * time.Second},
		"it says how long":                {apierrors.NewTooManyRequests("too many requests", 20), 20 * time.Second},
		"it says so of a request by name": {apierrors.NewTooManyRequests("too many requests", 1), 5 * time.Second},
	} {
		for kept, objects := range map[string][]runtime.Object{"": pods("a"), ", with a budget that allows it": append(healthy("a"), budget(1))} {
			t.Run(name+kept, func(t *testing.T) {
				evicting(t, objects, func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
					d.Answer(row.answer, "a")
					e := d.Empty(in)
					e.GoesOn(t)
					assert.Len(t, d.Since(), 1)
					activitiestest.After(row.again - time.Millisecond)
					e.GoesOn(t) // no message
					assert.Empty(t, d.Since())
					d.Answer(nil, "a")
					activitiestest.After(row.again/5 + 2*time.Millisecond)
					assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since())
					d.End("a")
					seen, _ := e.Ends(t)
					assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
				})
			})
		}
	}
}

func TestARefusalThatPassesIsNoNews(t *testing.T) {
	t.Parallel()
	evicting(t, pods("a"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		d.Answer(refusal("web"), "a")
		e := d.Empty(in)
		e.GoesOn(t)
		activitiestest.After(900 * time.Millisecond)
		e.GoesOn(t)
		d.End("a") // its owner was faster
		seen, _ := e.Ends(t)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		assert.Empty(t, seen.Blockers)
	})
}

func TestPicturesThatDifferForMomentsAreNoNews(t *testing.T) {
	t.Parallel()
	protected := func(name string) *corev1.Pod { return activitiestest.Pod(name, protectedFor("true")) }
	job := activitiestest.Pod(
		"job",
		func(p *corev1.Pod) { p.Labels = map[string]string{"cluster.x-k8s.io/drain": "wait-completed"} },
	)
	evicting(t, []runtime.Object{job, protected("a")}, func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		in.Shown = []drain.Blocker{{Kind: drain.BlockedByWork}}
		e := d.Empty(in)
		for range 3 {
			e.GoesOn(t)
			activitiestest.After(900 * time.Millisecond)
			d.End("a")
			activitiestest.After(2 * time.Second)
			require.NoError(t, d.Target.Tracker().Create(activitiestest.PodsResource, protected("a"), "web"))
		}
		e.GoesOn(t)
		_, took := e.Ends(t)
		assert.Equal(t, time.Second, took)
	})
}

func TestWhatPeopleWereToldIsNotToldAgain(t *testing.T) {
	t.Parallel()
	known := []drain.Blocker{{Kind: drain.BlockedByError, Pods: 5, Why: "another sentence"}}
	evicting(t, pods("a", "b"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		in.Shown = known
		d.Answer(errWebhook, "a", "b")
		e := d.Empty(in)
		activitiestest.After(5 * time.Minute)
		e.GoesOn(t)
		d.Answer(nil, "a", "b")
		seen, took := e.Ends(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome, "that nothing blocks any more is news")
		assert.Empty(t, seen.Blockers)
		assert.Less(t, took, 2*time.Minute)
	})
}
