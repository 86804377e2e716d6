package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	observe "millwright/observe/drain"
	"millwright/observe/observetest"
)

func markUnattached(a *storagev1.VolumeAttachment) { a.Status.Attached = false }

func markDetaching(a *storagev1.VolumeAttachment) {
	a.DeletionTimestamp = observetest.Now()
	a.Finalizers = []string{"external-attacher"}
}

func newBudget(
	name string,
	selector *metav1.LabelSelector,
	change ...func(*policyv1.PodDisruptionBudget),
) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: observetest.NewMetadata(name)}
	b.Spec.Selector = selector
	for _, f := range change {
		f(b)
	}
	return b
}

// newPod returns a running pod named p.
func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: observetest.NewMetadata("p")}
	p.Labels = map[string]string{"app": "web"}
	p.Status.Phase = corev1.PodRunning
	for _, f := range change {
		f(p)
	}
	return p
}

func withOwnerReference(kind, name string, controls bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(
			p.OwnerReferences,
			metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "uid-x", Controller: &controls},
		)
	}
}

func TestPodFacts(t *testing.T) {
	started, ends := metav1.Unix(1_700_000_000, 0), metav1.Unix(1_700_000_300, 0)
	for name, row := range map[string]struct {
		pod  func(*corev1.Pod)
		want func(*drain.Pod) // changes the facts that all rows share
	}{
		"no priority is zero": {func(*corev1.Pod) {}, func(*drain.Pod) {}},
		"its priority":        {func(p *corev1.Pod) { p.Spec.Priority = new(int32(7)) }, func(f *drain.Pod) { f.Priority = 7 }},
		"its grace period":    {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(90)) }, func(f *drain.Pod) { f.Grace = 90 * time.Second }},
		"that of its deletion": {func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds, p.DeletionGracePeriodSeconds = new(int64(90)), new(int64(5))
		}, func(f *drain.Pod) { f.Grace = 5 * time.Second }},
		"none at all":                     {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64) }, func(f *drain.Pod) { f.Grace = 0 }},
		"it has succeeded":                {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, func(f *drain.Pod) { f.Finished = true }},
		"it has failed":                   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, func(f *drain.Pod) { f.Finished = true }},
		"it is pending":                   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, func(f *drain.Pod) { f.Pending = true }},
		"it is ready":                     {withPodCondition("Ready", "True"), func(f *drain.Pod) { f.Ready = true }},
		"it is not":                       {withPodCondition("Ready", "False"), func(*drain.Pod) {}},
		"it is something else":            {withPodCondition("Initialized", "True"), func(*drain.Pod) {}},
		"it terminates":                   {func(p *corev1.Pod) { p.DeletionTimestamp = &ends }, func(f *drain.Pod) { f.DeletedAt = ends.Time }},
		"it has started":                  {func(p *corev1.Pod) { p.Status.StartTime = &started }, func(f *drain.Pod) { f.Started = started.Time }},
		"it mirrors a static pod":         {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }, func(f *drain.Pod) { f.Mirror = true }},
		"a DaemonSet controls it":         {withOwnerReference("DaemonSet", "x", true), func(f *drain.Pod) { f.DaemonSet = true }},
		"a DaemonSet merely owns it":      {withOwnerReference("DaemonSet", "x", false), func(*drain.Pod) {}},
		"a StatefulSet controls it":       {withOwnerReference("StatefulSet", "db", true), func(f *drain.Pod) { f.StatefulSet = "shop/db" }},
		"a StatefulSet merely owns it":    {withOwnerReference("StatefulSet", "db", false), func(*drain.Pod) {}},
		"something else controls it":      {withOwnerReference("ReplicaSet", "x", true), func(*drain.Pod) {}},
		"its label":                       {func(p *corev1.Pod) { p.Labels[v1alpha1.LabelDrain] = "Skip" }, func(f *drain.Pod) { f.Label = "Skip" }},
		"the annotation that protects it": {func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationDoNotDisrupt: "1h"} }, func(f *drain.Pod) { f.Protected = "1h" }},
		"its volumes are for the asker":   {withVolumeClaims("data"), func(*drain.Pod) {}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(row.pod)
			before := p.DeepCopy()
			want := drain.Pod{UID: "uid-p", Namespace: "shop", Name: "p", Grace: 30 * time.Second}
			row.want(&want)
			assert.Equal(t, want, observe.PodFacts(p))
			assert.Equal(t, before, p)
		})
	}
}

func withPodCondition(kind, status string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodConditionType(kind), Status: corev1.ConditionStatus(status)},
		}
	}
}

func withVolumeClaims(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i, name := range names {
			v := corev1.Volume{Name: fmt.Sprintf("v%d", i)}
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
	}
}

func TestBudgetsOfPod(t *testing.T) {
	matching := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	other := func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }
	unknown := &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Resembles"}},
	}
	cluster, _ := observetest.StartCachesForDrains(
		t,
		newBudget(
			"web",
			matching("app", "web"),
		),
		newBudget("all", &metav1.LabelSelector{}),
		newBudget("none", nil),
		newBudget("db", matching("app", "db")),
		newBudget(
			"all-of-another",
			&metav1.LabelSelector{},
			other,
		),
		newBudget("web", matching("app", "web"), other),
		newBudget("broken", unknown),
	)
	for name, row := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"by its labels, and by none": {newPod(), []string{"shop/all", "shop/web"}},
		"an empty selector is all":   {newPod(func(p *corev1.Pod) { p.Labels = nil }), []string{"shop/all"}},
		"those of its namespace":     {newPod(func(p *corev1.Pod) { p.Namespace = "other" }), []string{"other/all-of-another", "other/web"}},
		"no selector is nothing":     {newPod(func(p *corev1.Pod) { p.Namespace = "empty" }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			for _, b := range observe.BudgetsOfPod(cluster.Target(""), row.pod) {
				keys = append(keys, b.Namespace+"/"+b.Name)
			}
			assert.Equal(t, row.want, keys)
		})
	}
	t.Run("none where nobody watches them", func(t *testing.T) {
		blind, _ := observetest.StartCaches(t, []runtime.Object{newBudget("all", &metav1.LabelSelector{})})
		assert.Empty(t, observe.BudgetsOfPod(blind.Target(""), newPod()))
	})
}

func TestBudgetFacts(t *testing.T) {
	counted := func(b *policyv1.PodDisruptionBudget) {
		b.Generation = 3
		b.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 3, DisruptionsAllowed: 1, CurrentHealthy: 4, DesiredHealthy: 3, ExpectedPods: 5,
			DisruptedPods: map[string]metav1.Time{"a": *observetest.Now(), "b": *observetest.Now()},
		}
	}
	whole := drain.DisruptionBudget{
		Key:                "shop/web",
		DisruptionsAllowed: 1,
		CurrentHealthy:     4,
		DesiredHealthy:     3,
		ExpectedPods:       5,
		DisruptedCount:     2,
		IsUpToDate:         true,
	}
	assert.Equal(t, whole, observe.BudgetFacts(newBudget("web", nil, counted)))
	for name, row := range map[string]struct {
		change func(*policyv1.PodDisruptionBudget)
		want   func(*drain.DisruptionBudget)
	}{
		"it has changed since":     {func(b *policyv1.PodDisruptionBudget) { b.Generation = 4 }, func(f *drain.DisruptionBudget) { f.IsUpToDate = false }},
		"always those not ready":   {withEvictionPolicy(policyv1.AlwaysAllow), func(f *drain.DisruptionBudget) { f.AlwaysAllowsUnhealthy = true }},
		"those while it has spare": {withEvictionPolicy(policyv1.IfHealthyBudget), func(*drain.DisruptionBudget) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := whole
			row.want(&want)
			assert.Equal(t, want, observe.BudgetFacts(newBudget("web", nil, counted, row.change)))
		})
	}
	assert.Equal(
		t,
		drain.DisruptionBudget{Key: "shop/new"},
		observe.BudgetFacts(newBudget("new", nil)),
		"one that nobody has counted yet",
	)
}

func withEvictionPolicy(p policyv1.UnhealthyPodEvictionPolicyType) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &p }
}
