package deployment_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	"millwright/observe/capi/deployment"
	"millwright/observe/observetest"
)

// newObjectTree returns the ObjectTree of a deployment whose Cluster and templates exist.
func newObjectTree(d *clusterv1.MachineDeployment, sets ...*clusterv1.MachineSet) deployment.ObjectTree {
	return deployment.ObjectTree{
		Cache: capitest.NewOfflineCache(
			capitest.DefaultSettings,
			cache.PreflightConfig{},
		),
		Deployment: d,
		Sets:       sets,
		Cluster:    capitest.NewCluster(),
		Templates: []capi.ProviderObject{
			capitest.FoundObject(capitest.NewBootstrapTemplate()),
			capitest.FoundObject(capitest.NewInfrastructureTemplate()),
		},
	}
}

func withAnnotation(key, value string) capitest.DeploymentChange {
	return capitest.WithAnnotation[*clusterv1.MachineDeployment](key, value)
}

func withSetAnnotation(key, value string) capitest.SetChange {
	return capitest.WithAnnotation[*clusterv1.MachineSet](key, value)
}

func withStatus(s clusterv1.MachineDeploymentStatus) capitest.DeploymentChange {
	return func(d *clusterv1.MachineDeployment) { d.Status = s }
}

func withRolloutAfter(minutesAgo int) capitest.DeploymentChange {
	return func(d *clusterv1.MachineDeployment) { d.Spec.Rollout.After = capitest.MinutesBeforeNoon(minutesAgo) }
}

func withRollingUpdate(surge, unavailable *intstr.IntOrString) capitest.DeploymentChange {
	return func(d *clusterv1.MachineDeployment) {
		d.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
		d.Spec.Rollout.Strategy.RollingUpdate = clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{
			MaxSurge:       surge,
			MaxUnavailable: unavailable,
		}
	}
}

func withOnDeleteStrategy(d *clusterv1.MachineDeployment) {
	d.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
}

func policyWithTurns() *v1alpha1.RolloutPolicy {
	return &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet"},
		Spec: v1alpha1.RolloutPolicySpec{
			Turns: &v1alpha1.RolloutTurns{MaxConcurrent: 2, PauseBetween: &metav1.Duration{Duration: time.Minute}},
		},
	}
}

// A sibling has the facts of its own Cluster, and no machines. Deployments of other controllers are no siblings.
func TestSiblingsOfAPausedClusterAreSuspended(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	paused := capitest.NewPreparedDeployment(3, func(d *clusterv1.MachineDeployment) { d.Name = "a" })
	foreign := capitest.NewPreparedDeployment(3, func(d *clusterv1.MachineDeployment) { d.Name, d.Labels = "b", nil })
	f := newObjectTree(d)
	f.Policy = policyWithTurns()
	complete := func(s deployment.ObjectTree) deployment.ObjectTree {
		s.Cluster = capitest.NewCluster()
		s.Cluster.Spec.Paused = new(true)
		s.Sets = []*clusterv1.MachineSet{capitest.NewSetOfDeployment(s.Deployment, "s", 3, 1)}
		return s
	}
	f = f.WithSiblings([]*v1alpha1.RolloutPolicy{f.Policy}, []*clusterv1.MachineDeployment{foreign, paused, d}, complete)
	siblings := deployment.RolloutFacts(f, capitest.Noon).Turns.Siblings
	require.Len(t, siblings, 1)
	a := siblings[0]
	assert.Equal(t, []any{"a", true}, []any{a.Name, a.Earlier})
	assert.NotEmpty(t, a.Facts.ClusterAPI.SuspensionReason)
	assert.Len(t, a.Facts.Sets, 1)
	f.Policy = nil
	assert.Zero(t, deployment.RolloutFacts(f, capitest.Noon).Turns)
}

// assertEveryFactIsTested asserts that each fact of T has a row whose expected value differs from the default.
func assertEveryFactIsTested[T any](t *testing.T, plain T, told map[string][]any) {
	t.Helper()
	for _, name := range observetest.FieldNamesWithoutPart("MCM", reflect.TypeFor[T]()) {
		shown := false
		for _, want := range told[name] {
			shown = shown || !assert.ObjectsAreEqual(want, observetest.FieldByName(plain, name))
		}
		assert.True(t, shown, "fact %s has no row that shows it", name)
	}
}

// Each row tests one fact about a deployment, with a value that differs from the fact's value for an empty deployment.
func TestRolloutFacts(t *testing.T) {
	const theCluster = "Cluster c does not exist: no set is created for the template"
	policy := func(spec v1alpha1.RolloutPolicySpec) func(*deployment.ObjectTree) {
		return func(f *deployment.ObjectTree) { f.Policy = &v1alpha1.RolloutPolicy{Spec: spec} }
	}
	revised := func(f *deployment.ObjectTree) {
		f.Sets = []*clusterv1.MachineSet{capitest.NewSetOfDeployment(f.Deployment, "s", 0, 2)}
	}
	told := map[string][]any{
		"Sets": {
			nil,
		},
		"ClusterAPI.Machines": {"TestStatusConditionsMatchClusterAPI"},
		"WorkerDowntime":      {"TestWorkerAbsenceExtendsTheProgressDeadline"},
		"CreationError":       {"the run knows what it was refused"},
		"Turns.Siblings":      {"TestSiblingsOfAPausedClusterAreSuspended"},
	}
	for _, name := range []string{
		"ReportedStatus.Counts.Unavailable", "ReportedStatus.Counts.PreservedFailed", "ReportedStatus.FailedNames",
	} {
		told[name] = []any{"Cluster API has nothing like it"}
	}
	for _, row := range []struct {
		name    string
		fact    string
		change  capitest.DeploymentChange
		related func(*deployment.ObjectTree)
		want    any
	}{
		{fact: "Now", want: capitest.Noon},
		{fact: "Replicas", want: 3},
		{fact: "Strategy", want: rollout.RollingUpdate},
		{fact: "Strategy", change: withOnDeleteStrategy, want: rollout.OnDelete},
		{name: "its default", fact: "MaxSurge.Value", want: 1},
		{name: "its default", fact: "MaxUnavailable.Value", want: 0},
		{fact: "MaxSurge.Value", change: withRollingUpdate(new(intstr.FromString("30%")), nil), want: 30},
		{fact: "MaxSurge.IsPercent", change: withRollingUpdate(new(intstr.FromString("30%")), nil), want: true},
		{fact: "MaxUnavailable.Value", change: withRollingUpdate(nil, new(intstr.FromInt32(2))), want: 2},
		{fact: "MaxUnavailable.IsPercent", change: withRollingUpdate(nil, new(intstr.FromString("20%"))), want: true},
		{fact: "Deleting", change: capitest.AsDeletingObject[*clusterv1.MachineDeployment], want: true},
		{fact: "Orphaning", change: func(d *clusterv1.MachineDeployment) {
			capitest.AsDeletingObject(d)
			d.Finalizers = append(d.Finalizers, metav1.FinalizerOrphanDependents)
		}, want: true},
		{fact: "HasFinalizer", want: true},
		{name: "that of Cluster API", fact: "HasFinalizer", change: func(d *clusterv1.MachineDeployment) { d.Finalizers = []string{clusterv1.MachineDeploymentFinalizer} }, want: false},
		{fact: "InvalidReason", change: func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = nil }, want: "Waiting for spec.replicas set"},
		{name: "no selector", fact: "InvalidReason", change: func(d *clusterv1.MachineDeployment) { d.Spec.Selector = metav1.LabelSelector{} }, want: "the selector is empty: it would match every machine"},
		{name: "other labels", fact: "InvalidReason", change: func(d *clusterv1.MachineDeployment) { d.Spec.Template.Labels = nil }, want: "the selector does not match the labels of the template"},
		{name: "unreadable", fact: "InvalidReason", change: func(d *clusterv1.MachineDeployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
		}, want: `the selector cannot be read: "Near" is not a valid label selector operator`},
		{name: "another strategy", fact: "InvalidReason", change: func(d *clusterv1.MachineDeployment) { d.Spec.Rollout.Strategy.Type = "Rush" }, want: `the strategy "Rush" does not exist`},
		{name: "contested", fact: "InvalidReason", change: func(d *clusterv1.MachineDeployment) {
			d.Finalizers = append(d.Finalizers, clusterv1.MachineDeploymentFinalizer)
		}, want: "another controller reconciles this MachineDeployment: it has added the finalizer cluster.x-k8s.io/machinedeployment; install the admission policy of Millwright, then remove this finalizer"},
		{name: "a step", fact: "InvalidReason", related: policy(v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromString("x%")}}}), want: `step 1 of RolloutPolicy : replicas is "x%", which is no percentage`},
		{fact: "ClusterAPI.SuspensionReason", change: withAnnotation(clusterv1.PausedAnnotation, ""), want: "MachineDeployment has the cluster.x-k8s.io/paused annotation"},
		{name: "its Cluster", fact: "ClusterAPI.SuspensionReason", related: func(f *deployment.ObjectTree) { f.Cluster.Spec.Paused = new(true) }, want: "Cluster spec.paused is set to true"},
		{fact: "CreationProblem.Reason", related: func(f *deployment.ObjectTree) { f.Cluster = nil }, want: "ScaleUpStopped"},
		{fact: "CreationProblem.Message", related: func(f *deployment.ObjectTree) { f.Cluster = nil }, want: theCluster},
		{name: "the Cluster goes", fact: "CreationProblem.Message", related: func(f *deployment.ObjectTree) { capitest.AsDeletingObject(f.Cluster) }, want: "Cluster c is being deleted: no set is created for the template"},
		{name: "no template", fact: "CreationProblem.Reason", related: func(f *deployment.ObjectTree) {
			f.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
		}, want: "TemplateNotFound"},
		{name: "no template", fact: "CreationProblem.Message", related: func(f *deployment.ObjectTree) {
			f.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
		}, want: "ExampleMachineTemplate shop/small does not exist: no set is created for the template"},
		{name: "no kind of clones", fact: "CreationProblem.Message", related: func(f *deployment.ObjectTree) { f.Templates[0].CloneKindMissing = true }, want: "the kind KubeadmConfig.bootstrap.cluster.x-k8s.io does not exist: no set is created for the template"},
		{name: "not read", fact: "CreationProblem.Message", related: func(f *deployment.ObjectTree) { f.Templates[0] = capi.ProviderObject{} }, want: "the templates were not read yet: no set is created for the template"},
		{fact: "ClusterAPI.RecheckTime", change: withRolloutAfter(-5), want: capitest.MinutesBeforeNoon(-5).Time},
		{name: "it is over", fact: "ClusterAPI.RecheckTime", change: withRolloutAfter(0), want: time.Time{}},
		{fact: "Paused", change: func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) }, want: true},
		{fact: "PausedBy", change: withAnnotation(v1alpha1.AnnotationRolloutPausedBy, "ann: lunch "), want: "ann: lunch"},
		{fact: "RollbackTo", change: withAnnotation(v1alpha1.AnnotationRollbackTo, "3"), want: new(int64(3))},
		{name: "no number", fact: "RollbackTo", change: withAnnotation(v1alpha1.AnnotationRollbackTo, "back"), want: new(int64(-1))},
		{name: "its default", fact: "HistoryLimit", want: new(10)},
		{fact: "HistoryLimit", change: withAnnotation(v1alpha1.AnnotationRevisionHistoryLimit, "0"), want: new(0)},
		{fact: "ClusterAPI.UsesExtension", change: withAnnotation(v1alpha1.AnnotationInPlaceUpdates, "true"), want: true},
		{name: "required", fact: "ClusterAPI.UsesExtension", change: withAnnotation(v1alpha1.AnnotationInPlaceUpdates, "required"), want: true},
		{fact: "ClusterAPI.TemplateOwner", change: func(d *clusterv1.MachineDeployment) {
			d.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""}
		}, want: "the topology of Cluster shop/c"},
		{fact: "ClusterAPI.RequiresExtension", change: withAnnotation(v1alpha1.AnnotationInPlaceUpdates, "required"), want: true},
		{name: "another value", fact: "ClusterAPI.RequiresExtension", change: withAnnotation(v1alpha1.AnnotationInPlaceUpdates, "true"), want: false},
		{name: "another value", fact: "ClusterAPI.UsesExtension", change: withAnnotation(v1alpha1.AnnotationInPlaceUpdates, "True"), want: false},
		{name: "its default", fact: "ProgressDeadline", want: new(10 * time.Minute)},
		{fact: "ProgressDeadline", change: withAnnotation(v1alpha1.AnnotationProgressDeadline, "60"), want: new(time.Minute)},
		{name: "none", fact: "ProgressDeadline", change: withAnnotation(v1alpha1.AnnotationProgressDeadline, "0"), want: (*time.Duration)(nil)},
		{fact: "IgnoresDeletingMachines", related: policy(v1alpha1.RolloutPolicySpec{MachineReplacementPolicy: v1alpha1.MachineTerminationStarted}), want: true},
		{fact: "Steps", related: policy(v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}}), want: []rollout.Step{{Size: rollout.IntOrPercent{Value: 1}, NeedsApproval: true}}},
		{name: "those that the rollout began with", fact: "Steps", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"steps":[{"replicas":"50%","wait":"1m"}]}`), related: revised, want: []rollout.Step{{Size: rollout.IntOrPercent{Value: 50, IsPercent: true}, Wait: time.Minute}}},
		{fact: "Progress.Revision", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2}`), want: int64(2)},
		{name: "unreadable", fact: "Progress.Revision", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{`), want: int64(0)},
		{fact: "Progress.Step", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"step":1}`), want: 1},
		{fact: "Progress.Reached", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"reachedAt":"2026-01-01T11:59:00Z"}`), want: capitest.MinutesBeforeNoon(1).Local()},
		{fact: "Progress.Failed", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"failedMachines":["a"]}`), want: []string{"a"}},
		{fact: "RollbackPolicy.RollsBackOnDeadline", related: policy(v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}}), want: true},
		{fact: "RollbackPolicy.HasMaxFailed", related: policy(v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: new(int32(2))}}), want: true},
		{fact: "RollbackPolicy.MaxFailed", related: policy(v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: new(int32(2))}}), want: 2},
		{fact: "HoldReason", change: withAnnotation(v1alpha1.AnnotationRolloutHold, "2 ann: bad"), related: revised, want: "ann: bad"},
		{name: "another revision", fact: "HoldReason", change: withAnnotation(v1alpha1.AnnotationRolloutHold, "1 ann: bad"), related: revised, want: ""},
		{fact: "ApprovedStepCount", change: withAnnotation(v1alpha1.AnnotationRolloutApprove, "2/3 ann"), related: revised, want: 3},
		{fact: "RetryCount", change: withAnnotation(v1alpha1.AnnotationRolloutRetry, "2/1 ann"), related: revised, want: 1},
		{fact: "PinRevision", change: withAnnotation(v1alpha1.AnnotationRolloutPin, "2/1 ann: slow"), related: revised, want: int64(1)},
		{fact: "PinRequestedBy", change: withAnnotation(v1alpha1.AnnotationRolloutPin, "2/1 ann: slow"), related: revised, want: "ann: slow"},
		{fact: "NextRolloutStepCount", related: policy(v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}}), want: 1},
		{fact: "RollbackPolicy.BakeTime", related: policy(v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{BakeTime: &metav1.Duration{Duration: time.Hour}}}), want: time.Hour},
		{fact: "Progress.Attempt", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"attempt":1}`), want: 1},
		{fact: "Progress.Completed", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"completedAt":"2026-01-01T11:59:00Z"}`), want: capitest.MinutesBeforeNoon(1).Local()},
		{fact: "Progress.Set", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"set":"s"}`), want: "s"},
		{fact: "Progress.FormerGood", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"formerGoodSet":"u"}`), want: "u"},
		{fact: "Progress.FormerMachines", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"formerMachinesUntil":"2026-01-01T11:59:00Z"}`), want: capitest.MinutesBeforeNoon(1).Local()},
		{fact: "Progress.Good", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"lastGoodSet":"u"}`), want: "u"},
		{fact: "Progress.Turn.Since", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"turn":{"since":"2026-01-01T11:59:00Z"}}`), want: capitest.MinutesBeforeNoon(1).Local()},
		{fact: "Progress.Turn.Ended", change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"turn":{"endedAt":"2026-01-01T11:59:00Z"}}`), want: capitest.MinutesBeforeNoon(1).Local()},
		{fact: "Turns.Policy", related: func(f *deployment.ObjectTree) { f.Policy = policyWithTurns() }, want: "fleet"},
		{fact: "Turns.MaxConcurrent", related: func(f *deployment.ObjectTree) { f.Policy = policyWithTurns() }, want: 2},
		{fact: "Turns.PauseBetween", related: func(f *deployment.ObjectTree) { f.Policy = policyWithTurns() }, want: time.Minute},
		{
			fact:   "Progress.Pin",
			change: withAnnotation(v1alpha1.AnnotationRolloutProgress, `{"revision":2,"pin":{"set":"good","revision":1,"since":"2026-01-01T11:59:00Z","reason":"why"}}`),
			want:   &rollout.Pin{Set: "good", Revision: 1, Since: capitest.MinutesBeforeNoon(1).Local(), Why: "why"},
		},
		{name: "without a controller", fact: "Orphans", related: func(f *deployment.ObjectTree) {
			f.Orphans = []*clusterv1.MachineSet{capitest.NewSetOfDeployment(f.Deployment, "s", 1, 1), capitest.NewSet("other", 1, capitest.AsDeletingObject)}
		}, want: []rollout.Orphan{{Name: "s", UID: "uid-s", Version: "900", MatchesSelector: true}, {Name: "other", UID: "uid-other", Version: "900", Deleting: true}}},
		{fact: "Generation", want: int64(1)},
		{fact: "ObservedGeneration", change: withStatus(clusterv1.MachineDeploymentStatus{ObservedGeneration: 7}), want: int64(7)},
		{fact: "ReportedStatus.Counts.Replicas", change: withStatus(clusterv1.MachineDeploymentStatus{Replicas: new(int32(2))}), want: 2},
		{fact: "ReportedStatus.Counts.Ready", change: withStatus(clusterv1.MachineDeploymentStatus{ReadyReplicas: new(int32(2))}), want: 2},
		{fact: "ReportedStatus.Counts.Available", change: withStatus(clusterv1.MachineDeploymentStatus{AvailableReplicas: new(int32(2))}), want: 2},
		{fact: "ReportedStatus.Counts.Updated", change: withStatus(clusterv1.MachineDeploymentStatus{UpToDateReplicas: new(int32(2))}), want: 2},
		{fact: "ReportedStatus.Conditions", change: withStatus(clusterv1.MachineDeploymentStatus{Conditions: []metav1.Condition{
			{Type: "Progressing", Status: "True", Reason: "R", Message: "m", LastTransitionTime: capitest.MinutesBeforeNoon(3)}, {Type: "Blocked", Status: "True"}, {Type: "Mine", Status: "True"},
		}}), want: []rollout.Condition{{Type: "Progressing", Status: "True", Reason: "R", Message: "m", LastUpdateTime: capitest.MinutesBeforeNoon(3).Time}}},
	} {
		t.Run(strings.TrimPrefix(row.name+", "+row.fact, ", "), func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			if row.change != nil {
				row.change(d)
			}
			f := newObjectTree(d)
			if row.related != nil {
				row.related(&f)
			}
			before := d.DeepCopy()
			assert.Equal(t, row.want, observetest.FieldByName(deployment.RolloutFacts(f, capitest.Noon), row.fact))
			assert.Equal(t, before, d, "what is looked at stays as it is")
		})
		told[row.fact] = append(told[row.fact], row.want)
	}
	assertEveryFactIsTested(t, deployment.RolloutFacts(newObjectTree(&clusterv1.MachineDeployment{}), time.Time{}), told)
}

// Each row tests one fact about a set, with a value that differs from the zero value.
func TestRolloutFactsOfASet(t *testing.T) {
	lagging := func(s *clusterv1.MachineSet) {
		s.Generation = 2
		s.Annotations[v1alpha1.AnnotationFormerReplicas] = "5"
	}
	told := map[string][]any{
		"Machines":         {"TestRolloutFactsOfAMachine"},
		"MCM.Frozen":       {"no label freeze in Cluster API"},
		"MCM.Unselected":   {"an owner is enough, as in Cluster API"},
		"MCM.MissingClass": {"ClusterAPI.MissingObject"},

		"Source.Provider":     {"unknown in Cluster API"},
		"Source.Account":      {"unknown in Cluster API"},
		"Source.InstanceType": {"unknown in Cluster API"},
	}
	for _, row := range []struct {
		name string
		fact string
		set  capitest.SetChange
		tree func(*deployment.ObjectTree)
		want any
	}{
		{fact: "Name", want: "s"},
		{fact: "UID", want: "uid-s"},
		{fact: "Version", want: "900"},
		{fact: "CreatedAt", want: capitest.MinutesBeforeNoon(60).Time},
		{fact: "Current", want: true},
		{name: "another template", fact: "Current", set: capitest.WithFormerTemplate, want: false},
		{name: "being deleted", fact: "Current", set: capitest.AsDeletingObject[*clusterv1.MachineSet], want: false},
		{name: "before spec.rollout.after", fact: "ClusterAPI.DuplicatesTemplate", tree: func(f *deployment.ObjectTree) { withRolloutAfter(1)(f.Deployment) }, want: true},
		{name: "another template", fact: "ClusterAPI.DuplicatesTemplate", set: capitest.WithFormerTemplate, want: false},
		{fact: "ClusterAPI.MissingObject", set: capitest.WithFormerTemplate, tree: func(f *deployment.ObjectTree) { f.MissingBySet = map[types.UID]string{"uid-s": "X shop/x"} }, want: "X shop/x"},
		{fact: "Deleting", set: capitest.AsDeletingObject[*clusterv1.MachineSet], want: true},
		{fact: "Orphaning", set: func(s *clusterv1.MachineSet) {
			capitest.AsDeletingObject(s)
			s.Finalizers = append(s.Finalizers, metav1.FinalizerOrphanDependents)
		}, want: true},
		{fact: "HasFinalizer", want: true},
		{fact: "Replicas", want: 3},
		{fact: "StatusMachineCount", want: 3},
		{name: "read from the API server", fact: "StatusMachineCount", tree: func(f *deployment.ObjectTree) { f.IsLive = true }, want: 0},
		{fact: "ObservedReplicas", want: 3},
		{name: "it has not acted yet", fact: "ObservedReplicas", set: lagging, want: 5},
		{name: "another controller made it", fact: "ObservedReplicas", set: func(s *clusterv1.MachineSet) {
			lagging(s)
			delete(s.Annotations, v1alpha1.AnnotationFormerReplicas)
		}, want: 3},
		{fact: "Revision", want: int64(1)},
		{name: "no number", fact: "Revision", set: withSetAnnotation(clusterv1.RevisionAnnotation, "x"), want: int64(0)},
		{fact: "History", set: withSetAnnotation(deployment.AnnotationRevisionHistory, "1,2"), want: "1,2"},
		{fact: "DesiredReplicas", want: 3},
		{fact: "MaxReplicas", want: 4},
		{name: "none", fact: "MaxReplicas", set: func(s *clusterv1.MachineSet) { delete(s.Annotations, clusterv1.MaxReplicasAnnotation) }, want: -1},
		{fact: "ScaleUpDisabled", set: withSetAnnotation(clusterv1.DisableMachineCreateAnnotation, "true"), want: true},
		{name: "as Cluster API writes it", fact: "ScaleUpDisabled", set: withSetAnnotation(clusterv1.DisableMachineCreateAnnotation, "false"), want: false},
		{name: "nothing differs", fact: "Drifted", want: false},
		{fact: "Drifted", set: func(s *clusterv1.MachineSet) { s.Spec.MachineNaming.Template = "x" }, want: false},
		{fact: "Drifted", set: ownedTemplate(capi.DeploymentFieldManager), want: true},
		{fact: "Drifted", set: ownedTemplate("kubectl-patch"), want: false},
		{name: "of another template", fact: "Drifted", set: func(s *clusterv1.MachineSet) {
			capitest.WithFormerTemplate(s)
			s.Labels[clusterv1.WatchLabel] = "theirs"
		}, want: true},
		{name: "the deployment has another revision", fact: "Drifted", set: withSetAnnotation(clusterv1.RevisionAnnotation, "2"), want: true},
		{fact: "ClusterAPI.ExtensionAnswer.TargetSetUID", set: withExtensionAnswer, want: "uid-next"},
		{fact: "ClusterAPI.ExtensionAnswer.Possible", set: withExtensionAnswer, want: true},
		{fact: "ClusterAPI.ExtensionAnswer.Failed", set: withExtensionAnswer, want: true},
		{fact: "ClusterAPI.ExtensionAnswer.Why", set: withExtensionAnswer, want: "because"},
		{fact: "ClusterAPI.ExtensionAnswer.RequestedAt", set: withExtensionAnswer, want: capitest.Noon.Local()},
		{name: "no JSON", fact: "ClusterAPI.ExtensionAnswer.TargetSetUID", set: withSetAnnotation(v1alpha1.AnnotationInPlaceAnswer, "yes"), want: ""},
		{fact: "ClusterAPI.Transfer.To", set: withSetAnnotation(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"), want: "next"},
		{fact: "ClusterAPI.Transfer.From", set: withSetAnnotation(clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation, "a,b"), want: "a,b"},
		{fact: "ClusterAPI.Transfer.Acknowledged", set: withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "m,n"), want: "m,n"},
		{name: "its annotations about moves", fact: "Drifted", set: func(s *clusterv1.MachineSet) {
			withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "m")(s)
			withSetAnnotation(v1alpha1.AnnotationInPlaceAnswer, "{}")(s)
		}, want: false},
		{fact: "Failure.Reason", set: withReplicaFailure, want: "FailedCreate"},
		{fact: "Failure.Message", set: withReplicaFailure, want: "no room"},
		{fact: "Source.Object", want: infrastructureTemplateName()},
	} {
		t.Run(strings.TrimPrefix(row.name+", "+row.fact, ", "), func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			s := capitest.NewSetOfDeployment(d, "s", 3, 1)
			if row.set != nil {
				row.set(s)
			}
			f := newObjectTree(d, s)
			if row.tree != nil {
				row.tree(&f)
			}
			before := s.DeepCopy()
			assert.Equal(t, row.want, observetest.FieldByName(deployment.RolloutFacts(f, capitest.Noon).Sets[0], row.fact))
			assert.Equal(t, before, s, "what is looked at stays as it is")
		})
		told[row.fact] = append(told[row.fact], row.want)
	}
	assertEveryFactIsTested(t, rollout.MachineSet{}, told)
}

func withExtensionAnswer(s *clusterv1.MachineSet) {
	answer := rollout.ExtensionAnswer{
		TargetSetUID: "uid-next",
		Possible:     true,
		Failed:       true,
		Why:          "because",
		RequestedAt:  capitest.Noon.Add(time.Millisecond),
	}
	withSetAnnotation(v1alpha1.AnnotationInPlaceAnswer, deployment.ExtensionAnswerText(answer))(s)
}

// infrastructureTemplateName returns the name of the infrastructure template of capitest's sets, as sourceOfSet writes
// it.
func infrastructureTemplateName() string {
	ref := capitest.ObjectReference(capitest.NewInfrastructureTemplate())
	return ref.APIGroup + "/" + ref.Kind + "/" + ref.Name
}

func withReplicaFailure(s *clusterv1.MachineSet) {
	s.Status.Conditions = []metav1.Condition{
		{Type: "ReplicaFailure", Status: "True", Reason: "FailedCreate", Message: "no room"},
	}
}

// asMovedMachine marks a machine that another set moved to the machine's present set for an in-place update.
var asMovedMachine = capitest.WithAnnotation[*clusterv1.Machine](clusterv1.PendingAcknowledgeMoveAnnotation, "")

// asDeletingUnhealthyMachine makes a machine that is being deleted, and that a health check finds unhealthy.
var asDeletingUnhealthyMachine = observetest.CombineChanges(
	capitest.AsDeletingObject[*clusterv1.Machine],
	capitest.WithCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse),
)

// asRemediatedMachine makes a machine that its set deletes because a health check requested the deletion.
var asRemediatedMachine = capitest.WithConditionReason(
	clusterv1.MachineOwnerRemediatedCondition,
	metav1.ConditionFalse,
	clusterv1.MachineSetMachineRemediationMachineDeletingReason,
	"",
)

// asMachineUnreadyForAnHour makes a machine whose node is not ready, with the conditions that Cluster API wrote when it
// first looked at the machine, an hour ago.
func asMachineUnreadyForAnHour(m *clusterv1.Machine) {
	for _, kind := range []string{
		clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition, clusterv1.MachineNodeReadyCondition,
	} {
		setFalseConditionSince(m, kind, 60)
	}
}

// asJustDeletedMachine makes a machine whose deletion has just begun.
var asJustDeletedMachine = observetest.CombineChanges(
	capitest.AsDeletingObject[*clusterv1.Machine],
	func(m *clusterv1.Machine) { setFalseConditionSince(m, clusterv1.MachineDeletingCondition, 0) },
)

func withUnavailableSince(minutesAgo int) capitest.MachineChange {
	return func(m *clusterv1.Machine) { setFalseConditionSince(m, clusterv1.MachineAvailableCondition, minutesAgo) }
}

// setFalseConditionSince sets a condition that has been False for some minutes.
func setFalseConditionSince(m *clusterv1.Machine, kind string, minutesAgo int) {
	meta.RemoveStatusCondition(&m.Status.Conditions, kind)
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             metav1.ConditionFalse,
		Reason:             "Because",
		LastTransitionTime: capitest.MinutesBeforeNoon(minutesAgo),
	})
}

// Each row tests one fact about a machine, with a value that differs from the zero value.
func TestRolloutFactsOfAMachine(t *testing.T) {
	told := map[string][]any{}
	no, yes := metav1.ConditionFalse, metav1.ConditionTrue
	for _, row := range []struct {
		name    string
		fact    string
		machine capitest.MachineChange
		set     capitest.SetChange
		want    any
	}{
		{fact: "Name", want: "m"},
		{fact: "UID", want: "uid-m"},
		{fact: "Version", want: "900"},
		{fact: "CreatedAt", want: capitest.MinutesBeforeNoon(60).Time},
		{fact: "Deleting", machine: capitest.AsDeletingObject[*clusterv1.Machine], want: true},
		{fact: "Ready", want: true},
		{name: "no", fact: "Ready", machine: capitest.WithCondition(clusterv1.MachineReadyCondition, no), want: false},
		{fact: "Available", want: true},
		{name: "not for long enough", fact: "Available", set: func(s *clusterv1.MachineSet) { s.Spec.Template.Spec.MinReadySeconds = new(int32(3601)) }, want: false},
		{name: "being deleted", fact: "Available", machine: capitest.AsDeletingObject[*clusterv1.Machine], want: false},
		{name: "being updated", fact: "Available", machine: capitest.WithAnnotation[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, ""), want: false},
		{fact: "Unhealthy", machine: capitest.WithCondition(clusterv1.MachineNodeHealthyCondition, no), want: true},
		{name: "healthy", fact: "Unhealthy", want: false},
		{name: "of a set with a surplus", fact: "Unhealthy", machine: capitest.WithCondition(clusterv1.MachineNodeHealthyCondition, no), set: func(s *clusterv1.MachineSet) { s.Spec.Replicas = new(int32(0)) }, want: false},
		{fact: "Failed", machine: capitest.WithCondition(clusterv1.MachineHealthCheckSucceededCondition, no), want: true},
		{name: "healthy", fact: "Failed", machine: capitest.WithCondition(clusterv1.MachineHealthCheckSucceededCondition, yes), want: false},
		{name: "its set deletes it because of that", fact: "Failed", machine: observetest.CombineChanges(asDeletingUnhealthyMachine, asRemediatedMachine), want: true},
		{name: "a person deletes it", fact: "Failed", machine: asDeletingUnhealthyMachine, want: false},
		{name: "a person deletes it before its set does", fact: "Failed", machine: observetest.CombineChanges(capitest.AsUnhealthyMachine, capitest.AsDeletingObject[*clusterv1.Machine]), want: false},
		{fact: "Joined", machine: capitest.WithCondition(clusterv1.MachineNodeReadyCondition, yes), want: true},
		{name: "that was available once", fact: "Joined", machine: observetest.CombineChanges(asMachineUnreadyForAnHour, withUnavailableSince(10)), want: true},
		{name: "that was available once, and is deleted", fact: "Joined", machine: observetest.CombineChanges(asMachineUnreadyForAnHour, withUnavailableSince(10), asJustDeletedMachine), want: true},
		{name: "that was not available since the first look at it", fact: "Joined", machine: observetest.CombineChanges(asMachineUnreadyForAnHour, withUnavailableSince(60)), want: false},
		{name: "that is available", fact: "Joined", machine: observetest.CombineChanges(asMachineUnreadyForAnHour, capitest.WithCondition(clusterv1.MachineAvailableCondition, yes)), want: true},
		{name: "that never became ready", fact: "Joined", machine: capitest.WithCondition(clusterv1.MachineNodeReadyCondition, no), want: false},
		{fact: "RemovalRequested", machine: capitest.WithAnnotation[*clusterv1.Machine](clusterv1.RemediateMachineAnnotation, ""), want: true},
		{fact: "DenialReason", machine: func(m *clusterv1.Machine) { m.Spec.ProviderID, m.Status.NodeRef = "", clusterv1.MachineNodeReference{} }, want: rollout.DeniedByTemplate},
		{fact: "Priority", want: v1alpha1.PriorityDefault},
		{fact: "DeleteFirst", machine: capitest.WithAnnotation[*clusterv1.Machine](clusterv1.DeleteMachineAnnotation, ""), want: true},
		{fact: "Updating", machine: capitest.WithAnnotation[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, ""), want: true},
		{fact: "ClusterAPI.Moved", machine: asMovedMachine, want: true},
		{fact: "ClusterAPI.Unacknowledged", machine: asMovedMachine, want: true},
		{name: "its set counts it", fact: "ClusterAPI.Unacknowledged", machine: asMovedMachine, set: withSetAnnotation(clusterv1.AcknowledgedMoveAnnotation, "a,m"), want: false},
	} {
		t.Run(strings.TrimPrefix(row.name+", "+row.fact, ", "), func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			s := capitest.NewSetOfDeployment(d, "s", 3, 1)
			if row.set != nil {
				row.set(s)
			}
			m := capitest.NewMachine("m", s)
			if row.machine != nil {
				row.machine(m)
			}
			f := newObjectTree(d, s)
			f.Members = []*clusterv1.Machine{m}
			assert.Equal(
				t,
				row.want,
				observetest.FieldByName(deployment.RolloutFacts(f, capitest.Noon).Sets[0].Machines[0], row.fact),
			)
		})
		told[row.fact] = append(told[row.fact], row.want)
	}
	assertEveryFactIsTested(t, rollout.Member{}, told)
}

// The test rows come from Cluster API: the candidates for the current set, and spec.rollout.after.
func TestCurrentSet(t *testing.T) {
	created := func(minutesAgo int) capitest.SetChange {
		return func(s *clusterv1.MachineSet) { s.CreationTimestamp = capitest.MinutesBeforeNoon(minutesAgo) }
	}
	createdFor := func(minutesAgo int) capitest.SetChange {
		return withSetAnnotation(
			v1alpha1.AnnotationCreatedFor,
			capitest.MinutesBeforeNoon(minutesAgo).UTC().Format(time.RFC3339),
		)
	}
	none := func(*clusterv1.MachineDeployment) {}
	for _, row := range []struct {
		name   string
		change capitest.DeploymentChange
		sets   func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet
		want   string
	}{
		{"no set", none, func(*clusterv1.MachineDeployment) []*clusterv1.MachineSet { return nil }, ""},
		{"another template", none, func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1, capitest.WithFormerTemplate)}
		}, ""},
		{"it is being deleted", none, func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1, capitest.AsDeletingObject)}
		}, ""},
		{"the one with the most replicas", none, func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1, created(90)), capitest.NewSetOfDeployment(d, "b", 2, 2)}
		}, "b"},
		{"then the oldest", none, func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1, created(30)), capitest.NewSetOfDeployment(d, "b", 1, 2, created(40))}
		}, "b"},
		{"then the first by name", none, func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "b", 1, 1), capitest.NewSetOfDeployment(d, "a", 1, 2)}
		}, "a"},
		{"spec.rollout.after is not over", withRolloutAfter(-1), func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1)}
		}, "a"},
		{"spec.rollout.after is over: all are too old", withRolloutAfter(30), func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1)}
		}, ""},
		{"spec.rollout.after is over now", withRolloutAfter(0), func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1)}
		}, ""},
		{"a set that was created at that time", withRolloutAfter(30), func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 9, 1), capitest.NewSetOfDeployment(d, "b", 1, 2, created(30))}
		}, "b"},
		{"the clock of the API server is late: a set that was created because of that time", withRolloutAfter(30), func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1, created(31), createdFor(30))}
		}, "a"},
		{"a set that was created because of an earlier time", withRolloutAfter(30), func(d *clusterv1.MachineDeployment) []*clusterv1.MachineSet {
			return []*clusterv1.MachineSet{capitest.NewSetOfDeployment(d, "a", 1, 1, created(50), createdFor(50))}
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			sets := row.sets(d)
			row.change(d)
			name := ""
			if set := newObjectTree(d, sets...).CurrentSet(capitest.Noon); set != nil {
				name = set.Name
			}
			assert.Equal(t, row.want, name)
		})
	}
}

// A time without a working worker does not count for the progress deadline.
func TestWorkerAbsenceExtendsTheProgressDeadline(t *testing.T) {
	d := capitest.NewPreparedDeployment(
		3,
		withStatus(
			clusterv1.MachineDeploymentStatus{
				Conditions: []metav1.Condition{{Type: "Progressing", LastTransitionTime: capitest.MinutesBeforeNoon(10)}},
			},
		),
	)
	f := newObjectTree(d)
	f.Absences = cache.WorkerAbsences{{From: capitest.MinutesBeforeNoon(5).Time, To: capitest.MinutesBeforeNoon(3).Time}}
	assert.Equal(t, 2*time.Minute, deployment.RolloutFacts(f, capitest.Noon).WorkerDowntime)
}

// MissingTemplateText names the first template that does not exist.
func TestMissingTemplateText(t *testing.T) {
	bootstrap, infrastructure := capitest.FoundObject(
		capitest.NewBootstrapTemplate(),
	), capitest.MissingObject(
		capitest.NewInfrastructureTemplate(),
	)
	assert.Empty(t, deployment.MissingTemplateText("shop", []capi.ProviderObject{bootstrap}))
	assert.Equal(
		t,
		"ExampleMachineTemplate shop/small",
		deployment.MissingTemplateText("shop", []capi.ProviderObject{bootstrap, infrastructure}),
	)
	assert.Empty(
		t,
		deployment.MissingTemplateText("shop", []capi.ProviderObject{{Ref: infrastructure.Ref}}),
		"not read: nothing is known",
	)
}
