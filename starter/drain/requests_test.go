package drain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
)

// annotationPatches returns the only patch that writes this annotation on a machine of newDeletedMachine.
func annotationPatches(annotation, value string) []string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return []string{
		`application/merge-patch+json {"metadata":{"annotations":{"` + annotation + `":` + string(
			text,
		) + `},"resourceVersion":"7","uid":"u-1"}}`,
	}
}

func TestRequestsWriteTheirAnnotation(t *testing.T) {
	t.Setenv("USER", "ann")
	for _, c := range []struct {
		name       string
		machine    *v1alpha1.Machine
		args       []string
		annotation string
		value      string
		says       []string
	}{
		{
			"force", newDeletedMachine(withRemovalMeans("Evict")),
			[]string{"force", "--yes", "--reason", "it burns"},
			v1alpha1.AnnotationForce, "ann: it burns",
			[]string{"machine shop/m-1: wrote drain.machine.sapcloud.io/force: \"ann: it burns\"\n", "Next: all pods of node n-1 are deleted without a grace period", "To follow it: millwright drain watch shop/m-1\n"},
		},
		{
			"a reason becomes one line", newDeletedMachine(withRemovalMeans("Evict")), []string{"force", "--yes", "--reason", " it\n burns ", "--as-user", "bob"}, v1alpha1.AnnotationForce, "bob: it burns", nil,
		},
		{
			"skip", newDeletedMachine(withRemovalMeans("Evict"), withAnnotation(v1alpha1.AnnotationSkipDrain, "bob: old")),
			[]string{"skip", "--reason", "nothing to save"},
			v1alpha1.AnnotationSkipDrain, "ann: nothing to save",
			[]string{`; before: "bob: old"` + "\n", "Next: no pod of node n-1 is evicted any more"},
		},
		{
			"hold", newDeletedMachine(withRemovalMeans("Evict")),
			[]string{"hold", "--reason", "looking"},
			v1alpha1.AnnotationHold, "ann: looking",
			[]string{"no more pods of node n-1 are evicted, and it stays cordoned; the drain's deadline is not moved: resumed after 15:51:07 UTC (in 1h45m), it deletes pods", "To take it back: millwright drain resume shop/m-1\n"},
		},
		{
			"hold before the drain", newDeletedMachine(withStage(v1alpha1.MachineDeletionPreDrainHooks)),
			[]string{"hold", "--reason", "looking"},
			v1alpha1.AnnotationHold, "ann: looking",
			[]string{"Next: no more pods of node n-1 are evicted, and nothing else is done to the node."},
		},
		{
			"hold in a later stage", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance)),
			[]string{"hold", "--reason", "looking"},
			v1alpha1.AnnotationHold, "ann: looking",
			[]string{"Next: the deletion goes no further than stage Instance"},
		},
		{
			"hold in advance", newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning)),
			[]string{"hold", "--in-advance", "--reason", "evidence"},
			v1alpha1.AnnotationHold, "ann: evidence",
			[]string{"Next: nothing, until the machine is deleted; then no more pods"},
		},
		{
			"force in advance", newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning)),
			[]string{"force", "--yes", "--in-advance", "--reason", "spot"},
			v1alpha1.AnnotationForce, "ann: spot",
			[]string{"To take it back: kubectl annotate machine -n shop m-1 drain.machine.sapcloud.io/force-\n"},
		},
		{
			"force of what is held", newDeletedMachine(withRemovalMeans("Evict"), withAnnotation(v1alpha1.AnnotationHold, "bob")),
			[]string{"force", "--yes", "--reason", "it burns"},
			v1alpha1.AnnotationForce, "ann: it burns",
			[]string{"Next: nothing, while the deletion is held (millwright drain resume shop/m-1); then all pods"},
		},
		{
			"retry", newDeletedMachine(withRemovalMeans("Evict")), []string{"retry"}, v1alpha1.AnnotationRetry, "2026-11-21T14:06:07Z ann", []string{"every pod of node n-1 that is not terminating is evicted again at once"},
		},
		{
			"retry of the provider", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance)),
			[]string{"retry", "--reason", "mended"},
			v1alpha1.AnnotationRetry, "2026-11-21T14:06:07Z ann: mended",
			[]string{"checks again what it waits for in stage Instance"},
		},
		{
			"extend by", newDeletedMachine(withRemovalMeans("Evict")),
			[]string{"extend", "--for", "1h", "--reason", "backup"},
			v1alpha1.AnnotationExtend, "2026-11-21T16:51:07Z ann: backup",
			[]string{"Next: pods are evicted until 16:51:07 UTC (in 2h45m), and the remaining pods are deleted then.\n"},
		},
		{
			"extend by, where pods are deleted in order", newDeletedMachine(withRemovalMeans("DeleteInOrder")),
			[]string{"extend", "--for", "1h", "--reason", "backup"},
			v1alpha1.AnnotationExtend, "2026-11-21T16:51:07Z ann: backup",
			[]string{"Next: pods are deleted in order until 16:51:07 UTC (in 2h45m), and the remaining pods are deleted then.\n"},
		},
		{
			"hold, where pods are deleted in order", newDeletedMachine(withRemovalMeans("DeleteInOrder")),
			[]string{"hold", "--reason", "look"},
			v1alpha1.AnnotationHold, "ann: look",
			[]string{"the drain's deadline is not moved: resumed after 15:51:07 UTC (in 1h45m), it deletes pods"},
		},
		{
			"extend by, again", newDeletedMachine(withRemovalMeans("Evict"), withAnnotation(v1alpha1.AnnotationExtend, "2026-11-21T16:51:07Z ann: backup")), []string{"extend", "--for", "1h"}, v1alpha1.AnnotationExtend, "2026-11-21T17:51:07Z ann", nil,
		},
		{
			"extend until, in another zone", newDeletedMachine(withRemovalMeans("Evict")), []string{"extend", "--until", "2026-11-21T19:00:00+01:00"}, v1alpha1.AnnotationExtend, "2026-11-21T18:00:00Z ann", nil,
		},
		{
			"extend before the drain began", newDeletedMachine(withStage(v1alpha1.MachineDeletionPreDrainHooks)),
			[]string{"extend", "--for", "3h"},
			v1alpha1.AnnotationExtend, "2026-11-21T17:06:07Z ann",
			[]string{"unless its drainTimeout of 2h, which begins with the drain, ends later"},
		},
		{
			"extend in advance", newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning)),
			[]string{"extend", "--in-advance", "--for", "3h"},
			v1alpha1.AnnotationExtend, "2026-11-21T17:06:07Z ann",
			[]string{"Next: nothing, until the machine is deleted; then pods are evicted until 17:06:07 UTC (in 3h)"},
		},
		{
			"abandon", newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance)),
			[]string{"abandon-instance", "--yes", "--reason", "account closed"},
			v1alpha1.AnnotationAbandonInstance, "ann: account closed",
			[]string{"Next: the Node and Machine objects are removed, and the provider gets no more requests. Instance virtual:///i-1 at the provider is left running: only a sweep for orphans of its MachineClass deletes it later"},
		},
		{
			"abandon when the instance is gone", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionNode, "Drained")),
			[]string{"abandon-instance", "--yes", "--reason", "that cluster is gone"},
			v1alpha1.AnnotationAbandonInstance, "ann: that cluster is gone",
			[]string{"Next: the Machine object is removed, even if its node's cluster does not answer. The instance is gone; what cannot be removed in the cluster of node n-1 is left there"},
		},
		{
			"force of a node that is emptied", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate)),
			[]string{"force", "--yes", "--reason", "it burns"},
			v1alpha1.AnnotationForce, "ann: it burns",
			[]string{"regardless of disruption budgets; the request stays on the machine, for its later drains and its deletion, until somebody removes it.\n", "To take it back: kubectl annotate", "To follow it: millwright drain watch shop/m-1\n"},
		},
		{
			"skip of a node that is emptied", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForPreservation)),
			[]string{"skip", "--reason", "nothing to save"},
			v1alpha1.AnnotationSkipDrain, "ann: nothing to save",
			[]string{"Next: no pod of node n-1 is evicted any more; the remaining pods stay, and the preservation continues; the request stays"},
		},
		{
			"hold of a node that is emptied", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate)),
			[]string{"hold", "--reason", "looking"},
			v1alpha1.AnnotationHold, "ann: looking",
			[]string{"Next: no more pods of node n-1 are evicted; the drain's deadline is not moved: resumed after 15:51:07 UTC (in 1h45m), it deletes pods.\n"},
		},
		{
			"retry of such a drain, while it is held", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate), withAnnotation(v1alpha1.AnnotationHold, "bob")),
			[]string{"retry"},
			v1alpha1.AnnotationRetry, "2026-11-21T14:06:07Z ann",
			[]string{"Next: nothing, while the drain is held (millwright drain resume shop/m-1); then every pod"},
		},
		{
			"extend such a drain", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate)),
			[]string{"extend", "--for", "1h"},
			v1alpha1.AnnotationExtend, "2026-11-21T16:51:07Z ann",
			[]string{"Next: pods are evicted until 16:51:07 UTC (in 2h45m)"},
		},
		{
			"abandon before its time", newDeletedMachine(withRemovalMeans("Evict"), func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" }),
			[]string{"abandon-instance", "--yes", "--reason", "account closed"},
			v1alpha1.AnnotationAbandonInstance, "ann: account closed",
			[]string{"the deletion continues to stage Instance; the provider gets no request", "Whatever instance the machine has at the provider is left running"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeBackend(c.machine)
			out, err := w.run(t.Context(), append(c.args, "shop/m-1")...)
			require.NoError(t, err)
			assert.Equal(t, annotationPatches(c.annotation, c.value), w.Patches())
			m, err := findMachine(t.Context(), kubecli.Clients{MachineClient: w.MachineClient}, newMachineKey("shop", "m-1"))
			require.NoError(t, err)
			assert.Equal(t, c.value, m.Annotations[c.annotation])
			for _, says := range c.says {
				assert.Contains(t, out, says)
			}
		})
	}
}

func TestRequestHasADefaultActor(t *testing.T) {
	t.Setenv("USER", "")
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	_, err := w.run(t.Context(), "retry", "shop/m-1")
	require.NoError(t, err)
	assert.Equal(t, annotationPatches(v1alpha1.AnnotationRetry, "2026-11-21T14:06:07Z somebody"), w.Patches())

	// several people may share the login root, so the command requests the user name from the API server
	t.Setenv("USER", "root")
	w = newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	kube := kubefake.NewClientset()
	kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ann"}},
		}, nil
	})
	w.ReviewClient = kube
	_, err = w.run(t.Context(), "retry", "shop/m-1")
	require.NoError(t, err)
	assert.Equal(t, annotationPatches(v1alpha1.AnnotationRetry, "2026-11-21T14:06:07Z ann"), w.Patches())
}

func TestResumeRemovesTheHold(t *testing.T) {
	passed := func(m *v1alpha1.Machine) { m.Status.Deletion.Drain.StartedAt = metav1.NewTime(now.Add(-3 * time.Hour)) }
	hold := withAnnotation(v1alpha1.AnnotationHold, "bob: wait")
	for want, m := range map[string]*v1alpha1.Machine{
		"Next: the drain of node n-1 continues.\n":                                                     newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate), hold),
		"Next: the deletion continues in stage Drain.\n":                                               newDeletedMachine(withRemovalMeans("Evict"), hold),
		"continues in stage Drain; its deadline has passed at 13:06:07 UTC: pods are deleted.\n":       newDeletedMachine(withRemovalMeans("Evict"), hold, passed),
		"Next: nothing: the machine is not being deleted, and its deletion would not stop any more.\n": newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning), hold),
	} {
		w := newFakeBackend(m)
		out, err := w.run(t.Context(), "resume", "shop/m-1")
		require.NoError(t, err)
		assert.Equal(
			t,
			[]string{
				`application/merge-patch+json {"metadata":{"annotations":{"drain.machine.sapcloud.io/hold":null},"resourceVersion":"7","uid":"u-1"}}`,
			},
			w.Patches(),
		)
		assert.Contains(t, out, "machine shop/m-1: removed drain.machine.sapcloud.io/hold: \"bob: wait\"\n")
		assert.Contains(t, out, want)
	}
}

func TestUselessRequestsAreRefused(t *testing.T) {
	running := newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning))
	for _, c := range []struct {
		name    string
		machine *v1alpha1.Machine
		args    string
		want    string
	}{
		{"no such machine", newDeletedMachine(), "retry shop/m-2", "there is no machine shop/m-2"},
		{"force without a reason", newDeletedMachine(), "force shop/m-1", "force needs a reason: --reason TEXT"},
		{"skip with an empty reason", newDeletedMachine(), "skip shop/m-1 --reason=", "skip needs a reason"},
		{"hold without a reason", newDeletedMachine(), "hold shop/m-1", "hold needs a reason"},
		{"abandon without a reason", newDeletedMachine(), "abandon-instance shop/m-1 --yes", "abandon-instance needs a reason"},
		{"force of a machine that is not deleted", running, "force shop/m-1 --reason=x", "machine shop/m-1 is not being deleted: its phase is Running; with --in-advance, force waits for its deletion"},
		{"extend of a machine that is not deleted", running, "extend shop/m-1 --for=1h", "with --in-advance, extend waits"},
		{"retry of a machine that is not deleted", running, "retry shop/m-1", "machine shop/m-1 is not being deleted: its phase is Running"},
		{"retry in advance", running, "retry shop/m-1 --in-advance", "unknown flag: --in-advance"},
		{"abandon of a machine that is not deleted", running, "abandon-instance shop/m-1 --yes --reason=x", "machine shop/m-1 is not being deleted: its phase is Running"},
		{"abandon in advance", running, "abandon-instance shop/m-1 --in-advance", "unknown flag: --in-advance"},
		{"abandon of a machine that is emptied", newDeletedMachine(withDrainWithoutDeletion(v1alpha1.DrainForUpdate)), "abandon-instance shop/m-1 --yes --reason=x", "machine shop/m-1 is not being deleted: its phase is Running"},
		{"resume of what is not held", newDeletedMachine(), "resume shop/m-1", "machine shop/m-1 is not held"},
		{"force after the drain", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionInstance, "Drained")), "force shop/m-1 --reason=x", "the drain of machine shop/m-1 is over, and its deletion is in stage Instance: force would change nothing"},
		{"skip after a drain that never was", newDeletedMachine(withStage(v1alpha1.MachineDeletionPreTerminateHooks)), "skip shop/m-1 --reason=x", "the drain of machine shop/m-1 is over"},
		{"extend when the drain has just ended", newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionDrain, "Forced")), "extend shop/m-1 --for=1h", "the drain of machine shop/m-1 is over"},
		{"extend when pods are deleted", newDeletedMachine(withRemovalMeans("Delete")), "extend shop/m-1 --for=1h", "extend comes too late"},
		{"extend when pods are killed", newDeletedMachine(withRemovalMeans("Kill")), "extend shop/m-1 --for=1h", "extend comes too late"},
		{"extend without a time", newDeletedMachine(withRemovalMeans("Evict")), "extend shop/m-1", "extend needs either --for DURATION or --until TIME"},
		{"extend with two times", newDeletedMachine(withRemovalMeans("Evict")), "extend shop/m-1 --for=1h --until=2026-11-21T18:00:00Z", "extend needs either"},
		{"extend by less", newDeletedMachine(withRemovalMeans("Evict")), "extend shop/m-1 --for=-1h", "--for -1h would shorten"},
		{"extend by nothing that can be written", newDeletedMachine(withRemovalMeans("Evict")), "extend shop/m-1 --for=1ms", "extend until 15:51:07 UTC is not later than the present deadline"},
		{"extend until no time", newDeletedMachine(withRemovalMeans("Evict")), "extend shop/m-1 --until=tomorrow", "--until is not an RFC 3339 time such as 2026-11-21T18:00:00Z"},
		{"extend until the past", newDeletedMachine(withRemovalMeans("Evict")), "extend shop/m-1 --until=2026-11-21T14:06:07Z", "extend until 14:06:07 UTC is not in the future: it is 14:06:07 UTC"},
		{"extend until before an earlier wish", newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning), withAnnotation(v1alpha1.AnnotationExtend, "2026-11-21T18:00:00Z bob")), "extend shop/m-1 --in-advance --until=2026-11-21T17:00:00Z", "extend until 17:00:00 UTC is not later than the present deadline of machine shop/m-1, 18:00:00 UTC"},
		{"extend until before the deadline", newDeletedMachine(withRemovalMeans("Evict")), "extend shop/m-1 --until=2026-11-21T15:51:07Z", "extend until 15:51:07 UTC is not later than the present deadline of machine shop/m-1, 15:51:07 UTC (in 1h45m): extend only gives more time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeBackend(c.machine)
			_, err := w.run(t.Context(), strings.Fields(c.args)...)
			require.ErrorContains(t, err, c.want)
			assert.Empty(t, w.Patches())
		})
	}
}

func TestExtendWarnsAboutAnUnhealthyNode(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict"), func(m *v1alpha1.Machine) {
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))},
		}
	}))
	out, err := w.run(t.Context(), "extend", "shop/m-1", "--until=2026-11-21T18:00:00Z")
	require.NoError(t, err)
	assert.Contains(t, out, "but the node is not well, and if it stays so, they are deleted at 14:10:07 UTC (in 4m).")
}
