package drain_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/decide/drain"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/observe/observetest"
)

func TestVolumeFacts(t *testing.T) {
	cluster, _ := observetest.StartCachesForDrains(
		t,
		observetest.NewAttachment(
			"a",
			"n",
			"here",
		),
		observetest.NewAttachment("b", "n", "leaving", markDetaching),
		observetest.NewAttachment("c", "n", "coming", markUnattached),
		observetest.NewAttachment(
			"d",
			"other",
			"there",
		),
		observetest.NewAttachment("e", "other", "on-its-way", markUnattached),
		observetest.NewAttachment("f", "other", "leaving-there", markDetaching),
		observetest.NewAttachment(
			"g",
			"n",
			"both",
		),
		observetest.NewAttachment("h", "other", "both"),
		observetest.NewAttachment("i", "n", ""),
	)
	want := map[string]drain.VolumeState{
		"here":          {AttachedHere: true},
		"leaving":       {AttachedHere: true}, // a volume counts as attached while its VolumeAttachment exists
		"coming":        {AttachedHere: true},
		"there":         {AttachedElsewhere: true},
		"on-its-way":    {},
		"leaving-there": {},
		"both":          {AttachedHere: true, AttachedElsewhere: true},
		"nowhere":       {},
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	assert.Equal(t, want, observe.VolumeFacts(cluster.Target(""), "n", names))
	assert.Empty(t, observe.VolumeFacts(cluster.Target(""), "n", nil))
	assert.Equal(
		t,
		map[string]drain.VolumeState{"both": {AttachedHere: true, AttachedElsewhere: true}},
		observe.VolumeFacts(cluster.Target(""), "other", []string{"both"}),
	)
	assert.Equal(
		t,
		map[string]drain.VolumeState{"both": {AttachedElsewhere: true}},
		observe.VolumeFacts(cluster.Target(""), "third", []string{"both"}),
	)
}

func TestAttachedVolumeNames(t *testing.T) {
	cluster, _ := observetest.StartCachesForDrains(
		t,
		observetest.NewAttachment("c", "n", "pv-2"),
		observetest.NewAttachment("b", "n", "pv-1", markDetaching),
		observetest.NewAttachment("a", "n", "pv-3", markUnattached),
		observetest.NewAttachment("inline", "n", ""),
		observetest.NewAttachment("x", "other", "pv-4"),
	)
	for name, row := range map[string]struct {
		node string
		want []string
	}{
		"by their volumes, those included that come or go": {"n", []string{"inline", "pv-1", "pv-2", "pv-3"}},
		"those of another node":                            {"other", []string{"pv-4"}},
		"none":                                             {"third", nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, cluster.Target("").AttachedVolumeNames(row.node))
			assert.Len(t, cluster.Target("").AttachmentsOfNode(row.node), len(row.want))
		})
	}
}

func TestVolumeClaimsOfPod(t *testing.T) {
	for name, row := range map[string]struct {
		pod  func(*corev1.Pod)
		want []string
	}{
		"none":             {func(*corev1.Pod) {}, nil},
		"its own":          {withVolumeClaims("data", "logs"), []string{"data", "logs"}},
		"an ephemeral one": {withVolume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), []string{"p-scratch"}},
		"other volumes":    {withVolume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, observe.VolumeClaimsOfPod(newPod(row.pod)))
		})
	}
}

func withVolume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: source})
	}
}

// wasNotified waits until all goroutines of the synctest bubble are blocked, and reports whether a notification has
// arrived.
func wasNotified(news <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-news:
		return true
	default:
		return false
	}
}

// testChangeFilter selects the objects whose changes these tests expect.
var testChangeFilter = observe.ChangeFilter{
	BudgetMatters:     func(namespace string) bool { return namespace == "shop" },
	AttachmentMatters: func(node, volume string) bool { return node == "n" || volume == "pv-2" },
}

func TestADrainIsNotifiedOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, target := observetest.StartCachesForDrains(
			t,
			newBudget("web", nil),
			observetest.NewAttachment("a", "n", "pv-1"),
		)
		synctest.Wait() // wait until the fake's watches are open
		news, stop, err := observe.SubscribeToChanges(newChangeSources(cluster), "uid-m", testChangeFilter)
		require.NoError(t, err)
		other, stopOther, err := observe.SubscribeToChanges(newChangeSources(cluster), "uid-m", testChangeFilter)
		require.NoError(t, err)
		defer stopOther()
		wasNotified(news)
		wasNotified(other)
		assert.False(t, wasNotified(news), "nothing has happened")

		machines := cluster.Client().MachineV1alpha1().Machines("shop")
		budgets, attachments := target.PolicyV1().PodDisruptionBudgets("shop"), target.StorageV1().VolumeAttachments()
		yields := newBudget("web", nil, func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 1 })
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"the status of a budget changes", func() error { return errorOfResult(budgets.UpdateStatus(t.Context(), yields, metav1.UpdateOptions{})) }},
			{"there is another budget", func() error {
				return errorOfResult(budgets.Create(t.Context(), newBudget("new", nil), metav1.CreateOptions{}))
			}},
			{"a budget goes", func() error { return budgets.Delete(t.Context(), "web", metav1.DeleteOptions{}) }},
			{"a volume is attached", func() error {
				return errorOfResult(attachments.Create(t.Context(), observetest.NewAttachment("b", "other", "pv-2"), metav1.CreateOptions{}))
			}},
			{"and ready there", func() error {
				return errorOfResult(attachments.UpdateStatus(t.Context(), observetest.NewAttachment("b", "other", "pv-2", markUnattached), metav1.UpdateOptions{}))
			}},
			{"its machine comes", func() error {
				return errorOfResult(machines.Create(t.Context(), observetest.NewMachine("m"), metav1.CreateOptions{}))
			}},
			{"its machine changes", func() error {
				return errorOfResult(machines.Update(t.Context(), observetest.NewMachine("m", observetest.WithAnnotationKeys("drain.machine.sapcloud.io/force")), metav1.UpdateOptions{}))
			}},
			{"its machine goes", func() error { return machines.Delete(t.Context(), "m", metav1.DeleteOptions{}) }},
			{"a volume is detached", func() error { return attachments.Delete(t.Context(), "a", metav1.DeleteOptions{}) }},
		} {
			require.NoError(t, step.do(), step.what)
			assert.True(t, wasNotified(news), step.what)
			assert.False(t, wasNotified(news), "%s, once", step.what)
			assert.True(t, wasNotified(other), "%s: everybody who listens hears it", step.what)
		}
		require.NoError(
			t,
			errorOfResult(machines.Create(t.Context(), observetest.NewMachine("other"), metav1.CreateOptions{})),
		)
		assert.False(t, wasNotified(news), "of another machine nobody hears")
		elsewhere := newBudget("web", nil, func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" })
		require.NoError(
			t,
			errorOfResult(
				target.PolicyV1().PodDisruptionBudgets("other").Create(t.Context(), elsewhere, metav1.CreateOptions{}),
			),
		)
		require.NoError(
			t,
			errorOfResult(
				attachments.Create(t.Context(), observetest.NewAttachment("c", "other", "pv-3"), metav1.CreateOptions{}),
			),
		)
		require.NoError(t, attachments.Delete(t.Context(), "c", metav1.DeleteOptions{}))
		assert.False(t, wasNotified(news), "nor of what is none of its concern")
		for range 2 {
			stop()
			require.NoError(t, errorOfResult(budgets.Create(t.Context(), newBudget("late", nil), metav1.CreateOptions{})))
			assert.False(t, wasNotified(news), "who has stopped hears nothing")
			assert.True(t, wasNotified(other))
			require.NoError(t, budgets.Delete(t.Context(), "late", metav1.DeleteOptions{}))
			assert.True(t, wasNotified(other))
		}
	})
}

// newChangeSources returns the caches of a control cluster and its only target.
func newChangeSources(c *cache.Cluster) observe.ChangeSources {
	return observe.NewChangeSources(c.Informer(cache.MachinesResource), c.Informer(cache.DrainRulesResource), c.Target(""))
}

func errorOfResult[T any](_ T, err error) error { return err }

func TestADrainWithoutABudgetFilterGetsNoBudgetEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, target := observetest.StartCachesForDrains(t)
		synctest.Wait()
		news, stop, err := observe.SubscribeToChanges(
			newChangeSources(cluster),
			"uid-m",
			observe.ChangeFilter{AttachmentMatters: testChangeFilter.AttachmentMatters},
		)
		require.NoError(t, err)
		defer stop()
		require.NoError(
			t,
			errorOfResult(
				target.PolicyV1().PodDisruptionBudgets("shop").Create(t.Context(), newBudget("web", nil), metav1.CreateOptions{}),
			),
		)
		assert.False(t, wasNotified(news))
		require.NoError(
			t,
			errorOfResult(
				target.StorageV1().
					VolumeAttachments().
					Create(t.Context(), observetest.NewAttachment("a", "n", "pv-1"), metav1.CreateOptions{}),
			),
		)
		assert.True(t, wasNotified(news))
	})
}

func TestManyChangesNeverBlockTheNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, target := observetest.StartCachesForDrains(t)
		synctest.Wait()
		news, stop, err := observe.SubscribeToChanges(newChangeSources(cluster), "uid-m", testChangeFilter)
		require.NoError(t, err)
		defer stop()
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(
				t,
				errorOfResult(
					target.StorageV1().
						VolumeAttachments().
						Create(t.Context(), observetest.NewAttachment(name, "n", name), metav1.CreateOptions{}),
				),
			)
			synctest.Wait()
		}
		assert.Len(t, cluster.Target("").AttachmentsOfNode("n"), 3, "the cache goes on")
		assert.True(t, wasNotified(news))
		assert.False(t, wasNotified(news), "what nobody has looked at yet is told once")
	})
}

func TestSubscriptionWithoutATargetSendsNoNotifications(t *testing.T) {
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(), nil, nil)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrainResources())
	require.NoError(t, cluster.Start(t.Context()))
	news, stop, err := observe.SubscribeToChanges(newChangeSources(cluster), "uid-m", testChangeFilter)
	require.NoError(t, err)
	stop()
	assert.Empty(t, news)
	assert.Empty(t, cluster.Target("").AttachedVolumeNames("n"))
	assert.Equal(t, map[string]drain.VolumeState{"pv": {}}, observe.VolumeFacts(cluster.Target(""), "n", []string{"pv"}))
}

func TestSubscribeToChangesFailsAfterTheCachesHaveStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, err := cache.NewCluster(fake.NewSimpleClientset(), kubefake.NewClientset(), nil)
		require.NoError(t, err)
		require.NoError(t, cluster.WatchDrainResources())
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, cluster.Start(ctx))
		cancel()
		synctest.Wait()
		_, _, err = observe.SubscribeToChanges(newChangeSources(cluster), "uid-m", testChangeFilter)
		require.ErrorContains(t, err, " for the drain of machine uid-m: ")
	})
}
