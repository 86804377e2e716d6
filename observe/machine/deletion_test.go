package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/ownership"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

// relatedObjectsWithOwnedNode returns the RelatedObjects of a machine whose node provably belongs to it.
func relatedObjectsWithOwnedNode(node *corev1.Node) machine.RelatedObjects {
	return machine.RelatedObjects{Node: node, NodeOwner: ownership.OwnerAnswer{Whose: ownership.OwnerSelf}}
}

func TestDeletionFacts(t *testing.T) {
	const preDrain, preTerminate = v1alpha1.AnnotationPreDrainHook, v1alpha1.AnnotationPreTerminateHook
	bare := deletion.Facts{NodeName: "n", HasNode: true}
	with := func(change func(*deletion.Facts)) deletion.Facts {
		f := bare
		change(&f)
		return f
	}
	cluster, _ := observetest.StartCachesForDrains(
		t,
		observetest.NewAttachment("a", "n", "pv-1"),
		observetest.NewAttachment("b", "n", ""),
		observetest.NewAttachment("c", "other", "pv-2"),
	)
	bare.AttachedVolumeCount = 2
	for name, row := range map[string]struct {
		machine func(*v1alpha1.Machine)
		want    deletion.Facts
	}{
		"nothing is recorded": {observetest.WithPhase(v1alpha1.MachineTerminating), bare},
		"a stage is recorded": {observetest.InDeletionStage("Drain", nil), with(func(f *deletion.Facts) { f.RecordedStage = deletion.StageDrain })},
		"a drain that goes on": {
			observetest.InDeletionStage("Drain", &v1alpha1.MachineDrain{StartedAt: *observetest.Now(), Means: "Evict"}),
			with(func(f *deletion.Facts) { f.RecordedStage = deletion.StageDrain }),
		},
		"a drain that has ended": {
			observetest.InDeletionStage("Instance", &v1alpha1.MachineDrain{StartedAt: *observetest.Now(), Result: "Forced"}),
			with(func(f *deletion.Facts) { f.RecordedStage, f.DrainResult = deletion.StageDeleteInstance, "Forced" }),
		},
		"whatever its last operation says": {
			func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "Initiate VM deletion" }, bare,
		},
		"a hook without a name":        {observetest.WithAnnotationKeys(preDrain), with(func(f *deletion.Facts) { f.PreDrainHooks = []string{preDrain} })},
		"hooks with names":             {observetest.WithAnnotationKeys(preDrain+"/a", preDrain+"/b"), with(func(f *deletion.Facts) { f.PreDrainHooks = []string{preDrain + "/a", preDrain + "/b"} })},
		"a hook before its instance":   {observetest.WithAnnotationKeys(preTerminate + "/etcd"), with(func(f *deletion.Facts) { f.PreTerminateHooks = []string{preTerminate + "/etcd"} })},
		"another one without a name":   {observetest.WithAnnotationKeys(preTerminate), with(func(f *deletion.Facts) { f.PreTerminateHooks = []string{preTerminate} })},
		"a key that only begins alike": {observetest.WithAnnotationKeys(preDrain+"s", preDrain+".example.com/a", preTerminate+"-x", "x/"+preDrain), bare},
		"excluded from draining": {observetest.WithAnnotationKeys(v1alpha1.AnnotationExcludeDraining), with(func(f *deletion.Facts) {
			f.SkipDrainReason = "annotation " + v1alpha1.AnnotationExcludeDraining + " is set"
		})},
		"excluded from the wait": {observetest.WithAnnotationKeys(v1alpha1.AnnotationExcludeDetach), with(func(f *deletion.Facts) {
			f.SkipDetachReason = "annotation " + v1alpha1.AnnotationExcludeDetach + " is set"
		})},
		"a person wants no drain, and says why": {
			func(m *v1alpha1.Machine) {
				m.Annotations = map[string]string{v1alpha1.AnnotationSkipDrain: "alice: it is empty", v1alpha1.AnnotationExcludeDraining: "true"}
			},
			with(func(f *deletion.Facts) {
				f.SkipDrainReason = "annotation " + v1alpha1.AnnotationSkipDrain + ": alice: it is empty"
			}),
		},
		"a person holds it": {observetest.WithAnnotationKeys(v1alpha1.AnnotationHold), with(func(f *deletion.Facts) { f.HoldReason = "no reason given" })},
		"a person abandons it": {observetest.WithAnnotationKeys(v1alpha1.AnnotationAbandonInstance), with(func(f *deletion.Facts) {
			f.AbandonReason = "annotation " + v1alpha1.AnnotationAbandonInstance + " is set"
		})},
		"a machine without a node": {observetest.WithNodeLabel(""), deletion.Facts{}},
		"a node without volumes":   {observetest.WithNodeLabel("empty"), deletion.Facts{NodeName: "empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := observetest.NewMachine("m", observetest.WithNodeLabel("n"), row.machine)
			var n machine.RelatedObjects
			if row.want.HasNode {
				n = relatedObjectsWithOwnedNode(observetest.NewNode())
				row.want.Owner = n.NodeOwner
			}
			before := m.DeepCopy()
			facts := machine.DeletionFacts(cluster, m, n, "")
			slices.Sort(facts.PreDrainHooks) // DeletionFacts returns the hooks in random order
			assert.Equal(t, row.want, facts)
			row.want.CompletedStage = deletion.StageDetachVolumes
			facts = machine.DeletionFacts(cluster, m, n, deletion.StageDetachVolumes)
			slices.Sort(facts.PreDrainHooks)
			assert.Equal(t, row.want, facts)
			assert.Equal(t, before, m)
		})
	}
	t.Run("without a target nothing is attached", func(t *testing.T) {
		alone, err := cache.NewCluster(cluster.Client(), nil, nil)
		require.NoError(t, err)
		require.NoError(t, alone.WatchDrainResources())
		require.NoError(t, alone.Start(t.Context()))
		assert.Equal(
			t,
			deletion.Facts{NodeName: "n"},
			machine.DeletionFacts(
				alone,
				observetest.NewMachine("m", observetest.WithNodeLabel("n")),
				machine.RelatedObjects{},
				"",
			),
		)
	})
	t.Run("nor where nobody watches attachments", func(t *testing.T) {
		blind, _ := observetest.StartCaches(t, []runtime.Object{observetest.NewAttachment("a", "n", "pv-1")})
		assert.Zero(
			t,
			machine.DeletionFacts(
				blind,
				observetest.NewMachine("m", observetest.WithNodeLabel("n")),
				relatedObjectsWithOwnedNode(observetest.NewNode()),
				"",
			).AttachedVolumeCount,
		)
	})
}

func TestEscalationFacts(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	began, climbed := metav1.NewTime(noon.Add(-time.Hour)), metav1.NewTime(noon.Add(-time.Minute))
	facts := func(change func(*v1alpha1.Machine)) drain.EscalationFacts {
		m := observetest.NewMachine("m", observetest.WithNodeLabel("n"), observetest.AsDeletingMachine, change)
		return observedrain.EscalationFacts(
			m,
			observedrain.FindRecord(m, attention.DrainPurpose{}),
			observetest.NewNode(observetest.NewNodeCondition("Ready", "True")),
			time.Minute,
			noon,
		)
	}
	common := drain.EscalationFacts{Now: noon, Timeout: v1alpha1.DefaultDrainTimeout, Grace: time.Minute}
	with := func(change func(*drain.EscalationFacts)) drain.EscalationFacts {
		l := common
		change(&l)
		return l
	}
	label := func(value string) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelForceDeletion] = value }
	}
	configured := func(c v1alpha1.MachineConfiguration) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Spec.MachineConfiguration = &c }
	}
	forced := with(func(l *drain.EscalationFacts) { l.Force = "label force-deletion is set" })
	three := int32(3)
	for name, row := range map[string]struct {
		machine func(*v1alpha1.Machine)
		want    drain.EscalationFacts
	}{
		"by default no retries limit it": {observetest.WithPhase(v1alpha1.MachineTerminating), common},
		"more than two hours":            {configured(v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: 5 * time.Hour}}), with(func(l *drain.EscalationFacts) { l.Timeout = 5 * time.Hour })},
		"its own retries":                {configured(v1alpha1.MachineConfiguration{MaxEvictRetries: &three}), with(func(l *drain.EscalationFacts) { l.Retries = &three })},
		"none of them":                   {configured(v1alpha1.MachineConfiguration{MaxEvictRetries: new(int32)}), with(func(l *drain.EscalationFacts) { l.Retries = new(int32) })},
		"a deletion without a drain":     {observetest.InDeletionStage("PreDrainHooks", nil), common},
		"a drain that has begun": {
			observetest.InDeletionStage("Drain", &v1alpha1.MachineDrain{StartedAt: began, Means: "Delete", MeansSince: &climbed}),
			with(func(l *drain.EscalationFacts) {
				l.Started, l.Reached, l.ReachedAt = noon.Add(-time.Hour), drain.MeansDelete, noon.Add(-time.Minute)
			}),
		},
		"one that has just begun": {
			observetest.InDeletionStage("Drain", &v1alpha1.MachineDrain{StartedAt: began}), with(func(l *drain.EscalationFacts) { l.Started = noon.Add(-time.Hour) }),
		},
		"the label: true": {label("true"), forced},
		"the label: True": {label("True"), forced},
		"the label: 1":    {label("1"), forced},
		"an annotation, with words": {
			observetest.WithSingleAnnotation(v1alpha1.AnnotationForce, "bob: now"),
			with(func(l *drain.EscalationFacts) { l.Force = "annotation " + v1alpha1.AnnotationForce + ": bob: now" }),
		},
		"an extension":                {observetest.WithSingleAnnotation(v1alpha1.AnnotationExtend, "2026-01-01T15:00:00Z"), with(func(l *drain.EscalationFacts) { l.Extended = noon.Add(3 * time.Hour) })},
		"an extension, with words":    {observetest.WithSingleAnnotation(v1alpha1.AnnotationExtend, "2026-01-01T16:00:00+01:00 bob: the backup runs"), with(func(l *drain.EscalationFacts) { l.Extended = noon.Add(3 * time.Hour) })},
		"an extension without a time": {observetest.WithSingleAnnotation(v1alpha1.AnnotationExtend, "tomorrow"), common},
		"the label: false":            {label("false"), common},
		"the label: no":               {label("no"), common},
		"the label: yes":              {label("yes"), common},
		"the label with nothing":      {label(""), common},
	} {
		t.Run(name, func(t *testing.T) {
			got := facts(row.machine)
			assert.True(t, row.want.Extended.Equal(got.Extended), "%s", got.Extended)
			got.Extended = row.want.Extended
			assert.Equal(t, row.want, got)
		})
	}
}

func TestUnusableNodeReasons(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	since := func(kind, status string, minutes int) corev1.NodeCondition {
		c := observetest.NewNodeCondition(kind, status)
		c.LastTransitionTime = metav1.NewTime(noon.Add(-time.Duration(minutes) * time.Minute))
		return c
	}
	const notReady, readonly = "node n is not ready", "the file system of node n is read-only"
	for name, row := range map[string]struct {
		conditions []corev1.NodeCondition
		why        string
		minutes    int
		means      drain.RemovalMeans
	}{
		"a node that is well":                         {[]corev1.NodeCondition{since("Ready", "True", 60)}, "", 0, drain.MeansEvict},
		"one that says nothing":                       {nil, "", 0, drain.MeansEvict},
		"not ready for more than 5 minutes":           {[]corev1.NodeCondition{since("Ready", "False", 6)}, notReady, 6, drain.MeansKill},
		"not heard of for more than 5 minutes":        {[]corev1.NodeCondition{since("Ready", "Unknown", 6)}, notReady, 6, drain.MeansKill},
		"not ready for less":                          {[]corev1.NodeCondition{since("Ready", "Unknown", 4)}, notReady, 4, drain.MeansEvict},
		"read-only for more than 5 minutes":           {[]corev1.NodeCondition{since("Ready", "True", 60), since("ReadonlyFilesystem", "True", 6)}, readonly, 6, drain.MeansKill},
		"that cannot be told for more than 5 minutes": {[]corev1.NodeCondition{since("ReadonlyFilesystem", "Unknown", 6)}, readonly, 6, drain.MeansKill},
		"both, not ready first":                       {[]corev1.NodeCondition{since("ReadonlyFilesystem", "True", 6), since("Ready", "False", 8)}, notReady, 8, drain.MeansKill},
		"both, read-only first":                       {[]corev1.NodeCondition{since("ReadonlyFilesystem", "True", 8), since("Ready", "False", 6)}, readonly, 8, drain.MeansKill},
		"in another order":                            {[]corev1.NodeCondition{since("Ready", "False", 6), since("ReadonlyFilesystem", "True", 8)}, readonly, 8, drain.MeansKill},
		"one of both for long enough":                 {[]corev1.NodeCondition{since("Ready", "False", 1), since("ReadonlyFilesystem", "True", 8)}, readonly, 8, drain.MeansKill},
		"read-only for less than 5 minutes":           {[]corev1.NodeCondition{since("Ready", "True", 60), since("ReadonlyFilesystem", "True", 4)}, readonly, 4, drain.MeansEvict},
		"ReadonlyFilesystem is False":                 {[]corev1.NodeCondition{since("Ready", "True", 60), since("ReadonlyFilesystem", "False", 60)}, "", 0, drain.MeansEvict},
		"a condition of another name":                 {[]corev1.NodeCondition{since("KernelDeadlock", "True", 60), since("ReadonlyFileSystem", "True", 60)}, "", 0, drain.MeansEvict},
	} {
		t.Run(name, func(t *testing.T) {
			l := observedrain.EscalationFacts(
				observetest.NewMachine("m", observetest.WithNodeLabel("n")),
				nil,
				observetest.NewNode(row.conditions...),
				0,
				noon,
			)
			assert.Equal(t, row.why, l.Unusable)
			if row.why == "" {
				assert.Zero(t, l.UnusableSince)
			} else {
				assert.True(t, l.UnusableSince.Equal(noon.Add(-time.Duration(row.minutes)*time.Minute)), "%s", l.UnusableSince)
			}
			assert.Equal(t, row.means, drain.DecideStep(l).Means)
		})
	}
}
