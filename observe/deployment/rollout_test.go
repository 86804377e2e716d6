package deployment_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubetesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// rolloutRow is a test row for one fact about a deployment, derived from the deployment and its sets.
type rolloutRow struct {
	name             string
	fact             string
	deploymentChange observetest.DeploymentChange
	policy           *v1alpha1.RolloutPolicy
	sets             []*v1alpha1.MachineSet
	orphans          []*v1alpha1.MachineSet
	want             any
}

// assertEveryFactIsTested asserts that each fact of T has a row whose expected value differs from the default.
func assertEveryFactIsTested[T any](t *testing.T, plain T, told map[string][]any) {
	t.Helper()
	for _, name := range observetest.FieldNamesWithoutPart("ClusterAPI", reflect.TypeFor[T]()) {
		shown := false
		for _, want := range told[name] {
			shown = shown || !assert.ObjectsAreEqual(want, observetest.FieldByName(plain, name))
		}
		assert.True(t, shown, "fact %s has no row that shows it", name)
	}
}

func rowTitle(name, fact string) string { return strings.TrimPrefix(name+", "+fact, ", ") }

func withDeploymentAnnotation(key, value string) observetest.DeploymentChange {
	return func(d *v1alpha1.MachineDeployment) { metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value) }
}

func withStrategy(s v1alpha1.MachineDeploymentStrategy) observetest.DeploymentChange {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy = s }
}

// withSurgeAndUnavailable sets a strategy with these bounds; a nil bound is omitted.
func withSurgeAndUnavailable(
	kind v1alpha1.MachineDeploymentStrategyType,
	who v1alpha1.OrchestrationType,
	surge, unavailable *intstr.IntOrString,
) observetest.DeploymentChange {
	s := v1alpha1.MachineDeploymentStrategy{Type: kind}
	bounds := v1alpha1.UpdateConfiguration{MaxSurge: surge, MaxUnavailable: unavailable}
	if kind == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType {
		s.InPlaceUpdate = &v1alpha1.InPlaceUpdateMachineDeployment{UpdateConfiguration: bounds, OrchestrationType: who}
	} else {
		s.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: bounds}
	}
	return withStrategy(s)
}

func policyWithSteps(steps ...v1alpha1.RolloutStep) *v1alpha1.RolloutPolicy {
	return observetest.NewPolicy(v1alpha1.RolloutPolicySpec{Steps: steps})
}

func policyWithTurns() *v1alpha1.RolloutPolicy {
	return observetest.NewPolicy(v1alpha1.RolloutPolicySpec{
		Turns: &v1alpha1.RolloutTurns{MaxConcurrent: 2, PauseBetween: &metav1.Duration{Duration: time.Minute}},
	})
}

func policyWithMaxFailedMachines(most *int32) *v1alpha1.RolloutPolicy {
	return observetest.NewPolicy(
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: most}},
	)
}

func policyWithRollbackOnDeadline() *v1alpha1.RolloutPolicy {
	return observetest.NewPolicy(
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
}

func policyWithMachineReplacement(when v1alpha1.MachineReplacementPolicy) *v1alpha1.RolloutPolicy {
	return observetest.NewPolicy(v1alpha1.RolloutPolicySpec{MachineReplacementPolicy: when})
}

func withRolloutStatus(r v1alpha1.RolloutStatus) observetest.DeploymentChange {
	return func(d *v1alpha1.MachineDeployment) { d.Status.Rollout = &r }
}

func withStatus(s v1alpha1.MachineDeploymentStatus) observetest.DeploymentChange {
	return func(d *v1alpha1.MachineDeployment) { d.Status = s }
}

func newSetOfRevision(number string, change ...observetest.SetChange) *v1alpha1.MachineSet {
	return observetest.NewSet(
		"s-"+number,
		append([]observetest.SetChange{observetest.WithSetAnnotation(v1alpha1.AnnotationRevision, number)}, change...)...)
}

// Each row tests one fact about a deployment, with a value that differs from the fact's value for an empty deployment.
func TestRolloutFacts(t *testing.T) {
	const rolling, inPlace = v1alpha1.RollingUpdateMachineDeploymentStrategyType, v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	spec := func(change func(*v1alpha1.MachineDeploymentSpec)) observetest.DeploymentChange {
		return func(d *v1alpha1.MachineDeployment) { change(&d.Spec) }
	}
	number := func(n int32) *intstr.IntOrString { return new(intstr.FromInt32(n)) }
	text := func(s string) *intstr.IntOrString { return new(intstr.FromString(s)) }
	hold, approve := v1alpha1.AnnotationRolloutHold, v1alpha1.AnnotationRolloutApprove
	seven := []*v1alpha1.MachineSet{newSetOfRevision("6", withOldClass), newSetOfRevision("7")}
	rows := []rolloutRow{
		{fact: "Now", want: observetest.Noon},
		{fact: "Replicas", deploymentChange: spec(func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas = 3 }), want: 3},
		{
			fact:             "Deleting",
			deploymentChange: func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = observetest.Now() },
			want:             true,
		},
		{
			fact:             "PausedBy",
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationRolloutPausedBy, "ann: lunch"),
			want:             "ann: lunch",
		},
		{fact: "Orphaning", deploymentChange: func(d *v1alpha1.MachineDeployment) {
			d.DeletionTimestamp, d.Finalizers = observetest.Now(), []string{"orphan"}
		}, want: true},
		{fact: "Orphans", orphans: []*v1alpha1.MachineSet{
			observetest.NewSet("ours", func(s *v1alpha1.MachineSet) { s.ResourceVersion = "7" }),
			observetest.NewSet(
				"left",
				observetest.AsDeletingSet,
				observetest.WithSetAnnotation(v1alpha1.AnnotationReleasedBy, "uid-d"),
				func(s *v1alpha1.MachineSet) { s.Labels = nil },
			),
		}, want: []rollout.Orphan{{Name: "ours", UID: "uid-ours", Version: "7", MatchesSelector: true}, {Name: "left", UID: "uid-left", Deleting: true, Released: true}}},
		{
			fact:             "MCM.Frozen",
			deploymentChange: func(d *v1alpha1.MachineDeployment) { d.Labels = map[string]string{v1alpha1.LabelFreeze: "True"} },
			want:             true,
		},
		{
			name:             "with another value",
			fact:             "MCM.Frozen",
			deploymentChange: func(d *v1alpha1.MachineDeployment) { d.Labels = map[string]string{v1alpha1.LabelFreeze: "true"} },
			want:             false,
		},
		{
			fact:             "MCM.UnfreezeRequested",
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationUnfreeze, ""),
			want:             true,
		},
		{fact: "Paused", deploymentChange: spec(func(s *v1alpha1.MachineDeploymentSpec) { s.Paused = true }), want: true},
		{
			name:             "its sets are paused, and not its rollout",
			fact:             "Paused",
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationPaused, ""),
			want:             false,
		},
		{fact: "MCM.ProtectsNodesFromAutoscaler", want: true},
		{
			fact:             "InvalidReason",
			deploymentChange: spec(func(s *v1alpha1.MachineDeploymentSpec) { s.Template.Spec.Class.Name = "" }),
			want:             "the template names no machine class",
		},

		{name: "left out", fact: "Strategy", want: rollout.RollingUpdate},
		{
			fact:             "Strategy",
			deploymentChange: withStrategy(v1alpha1.MachineDeploymentStrategy{Type: rolling}),
			want:             rollout.RollingUpdate,
		},
		{
			fact:             "Strategy",
			deploymentChange: withStrategy(v1alpha1.MachineDeploymentStrategy{Type: "Recreate"}),
			want:             rollout.Recreate,
		},
		{
			fact:             "Strategy",
			deploymentChange: withStrategy(v1alpha1.MachineDeploymentStrategy{Type: "OnDelete"}),
			want:             rollout.OnDelete,
		},
		{
			fact:             "Strategy",
			deploymentChange: withSurgeAndUnavailable(inPlace, v1alpha1.OrchestrationTypeAuto, nil, nil),
			want:             rollout.InPlaceAuto,
		},
		{
			fact:             "Strategy",
			deploymentChange: withSurgeAndUnavailable(inPlace, v1alpha1.OrchestrationTypeManual, nil, nil),
			want:             rollout.InPlaceManual,
		},

		{name: "left out", fact: "MaxSurge", want: rollout.IntOrPercent{Value: 1}},
		{name: "left out", fact: "MaxUnavailable", want: rollout.IntOrPercent{}},
		{
			name:             "left out of its block",
			fact:             "MaxSurge",
			deploymentChange: withSurgeAndUnavailable(rolling, "", nil, number(2)),
			want:             rollout.IntOrPercent{Value: 1},
		},
		{
			name:             "zero is a number",
			fact:             "MaxSurge",
			deploymentChange: withSurgeAndUnavailable(rolling, "", number(0), nil),
			want:             rollout.IntOrPercent{},
		},
		{fact: "MaxSurge.Value", deploymentChange: withSurgeAndUnavailable(rolling, "", number(3), nil), want: 3},
		{fact: "MaxSurge.IsPercent", deploymentChange: withSurgeAndUnavailable(rolling, "", text("25%"), nil), want: true},
		{
			name:             "percent",
			fact:             "MaxSurge",
			deploymentChange: withSurgeAndUnavailable(rolling, "", text("25%"), nil),
			want:             rollout.IntOrPercent{Value: 25, IsPercent: true},
		},
		{
			name:             "a string without the sign, as in MCM",
			fact:             "MaxSurge",
			deploymentChange: withSurgeAndUnavailable(rolling, "", text("25"), nil),
			want:             rollout.IntOrPercent{Value: 25, IsPercent: true},
		},
		{
			name:             "nonsense",
			fact:             "MaxSurge",
			deploymentChange: withSurgeAndUnavailable(rolling, "", text("many"), nil),
			want:             rollout.IntOrPercent{},
		},
		{fact: "MaxUnavailable.Value", deploymentChange: withSurgeAndUnavailable(rolling, "", nil, number(2)), want: 2},
		{
			fact:             "MaxUnavailable.IsPercent",
			deploymentChange: withSurgeAndUnavailable(rolling, "", nil, text("10%")),
			want:             true,
		},
		{
			name:             "of an in-place update",
			fact:             "MaxSurge",
			deploymentChange: withSurgeAndUnavailable(inPlace, v1alpha1.OrchestrationTypeAuto, text("20%"), number(2)),
			want:             rollout.IntOrPercent{Value: 20, IsPercent: true},
		},
		{
			name:             "of an in-place update",
			fact:             "MaxUnavailable",
			deploymentChange: withSurgeAndUnavailable(inPlace, v1alpha1.OrchestrationTypeManual, nil, number(2)),
			want:             rollout.IntOrPercent{Value: 2},
		},
		{
			name: "those of a rolling update are not an in-place update's",
			fact: "MaxUnavailable",
			deploymentChange: withStrategy(v1alpha1.MachineDeploymentStrategy{
				Type: inPlace,
				RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
					UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxUnavailable: number(4)},
				},
			}),
			want: rollout.IntOrPercent{},
		},

		{
			name:             "of another revision",
			fact:             "HoldReason",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(hold, "6 ann: it burns"),
			want:             "",
		},
		{
			fact:             "HoldReason",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(hold, "7 ann: it burns"),
			want:             "ann: it burns",
		},
		{
			name:             "without a word",
			fact:             "HoldReason",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(hold, "7"),
			want:             "no reason given",
		},
		{
			name:             "more blanks than one",
			fact:             "HoldReason",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(hold, "7   "),
			want:             "no reason given",
		},
		{
			name:             "of no revision",
			fact:             "HoldReason",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(hold, "ann"),
			want:             "",
		},
		{name: "nothing", fact: "HoldReason", sets: seven, deploymentChange: withDeploymentAnnotation(hold, ""), want: ""},
		{
			name:             "the current set is going",
			fact:             "HoldReason",
			sets:             []*v1alpha1.MachineSet{newSetOfRevision("7", observetest.AsDeletingSet)},
			deploymentChange: withDeploymentAnnotation(hold, "7 ann"),
			want:             "",
		},
		{
			name:             "the template is another by now",
			fact:             "HoldReason",
			sets:             seven,
			deploymentChange: observetest.CombineChanges(withDeploymentAnnotation(hold, "7 ann"), observetest.WithNewClass),
			want:             "",
		},
		{
			fact:             "ApprovedStepCount",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(approve, "7/2 ann: looks well"),
			want:             2,
		},
		{
			name:             "without a word",
			fact:             "ApprovedStepCount",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(approve, "7/2"),
			want:             2,
		},
		{
			name:             "of another revision",
			fact:             "ApprovedStepCount",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(approve, "6/2 ann"),
			want:             0,
		},
		{
			name:             "of no stage",
			fact:             "ApprovedStepCount",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(approve, "7 ann"),
			want:             0,
		},
		{
			name:             "nonsense",
			fact:             "ApprovedStepCount",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(approve, "7/-1"),
			want:             0,
		},
		{
			fact:             "RetryCount",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationRolloutRetry, "7/2 ann: quota"),
			want:             2,
		},
		{
			name:             "of another revision",
			fact:             "RetryCount",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationRolloutRetry, "6/2 ann"),
			want:             0,
		},
		{
			fact:             "PinRevision",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationRolloutPin, "7/3 ann: slow"),
			want:             int64(3),
		},
		{
			fact:             "PinRequestedBy",
			sets:             seven,
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationRolloutPin, "7/3 ann: slow"),
			want:             "ann: slow",
		},

		{fact: "Steps", policy: policyWithSteps(
			v1alpha1.RolloutStep{Replicas: intstr.FromInt32(1), Approve: true},
			v1alpha1.RolloutStep{Replicas: intstr.FromString("50%"), Wait: &metav1.Duration{Duration: time.Hour}},
		), want: []rollout.Step{{Size: rollout.IntOrPercent{Value: 1}, NeedsApproval: true}, {Size: rollout.IntOrPercent{Value: 50, IsPercent: true}, Wait: time.Hour}}},
		{
			fact:   "IgnoresDeletingMachines",
			policy: policyWithMachineReplacement(v1alpha1.MachineTerminationStarted),
			want:   true,
		},
		{
			fact:   "NextRolloutStepCount",
			policy: policyWithSteps(v1alpha1.RolloutStep{Replicas: intstr.FromInt32(1), Approve: true}),
			want:   1,
		},
		{
			name:   "the other policy",
			fact:   "IgnoresDeletingMachines",
			policy: policyWithMachineReplacement(v1alpha1.MachineTerminationComplete),
			want:   false,
		},
		{
			fact:             "HistoryLimit",
			deploymentChange: spec(func(s *v1alpha1.MachineDeploymentSpec) { s.RevisionHistoryLimit = new(int32(0)) }),
			want:             new(0),
		},
		{
			name:             "in seconds",
			fact:             "ProgressDeadline",
			deploymentChange: spec(func(s *v1alpha1.MachineDeploymentSpec) { s.ProgressDeadlineSeconds = new(int32(90)) }),
			want:             new(90 * time.Second),
		},
		{fact: "RollbackPolicy.RollsBackOnDeadline", policy: observetest.NewPolicy(v1alpha1.RolloutPolicySpec{
			AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true},
		}), want: true},
		{fact: "CreationProblem.Reason", policy: policyWithRollbackOnDeadline(), want: "PolicyInvalid"},
		{
			fact:   "CreationProblem.Message",
			policy: policyWithRollbackOnDeadline(),
			want: "RolloutPolicy careful rolls back at the progress deadline, " +
				"and the deployment has none: no set is created for the template",
		},
		{
			name:   "of a deployment with a deadline",
			fact:   "CreationProblem",
			policy: policyWithRollbackOnDeadline(),
			deploymentChange: func(d *v1alpha1.MachineDeployment) {
				d.Spec.ProgressDeadlineSeconds = new(int32(60))
			},
			want: rollout.Problem{},
		},
		{fact: "RollbackPolicy.MaxFailed", policy: policyWithMaxFailedMachines(new(int32(2))), want: 2},
		{fact: "RollbackPolicy.HasMaxFailed", policy: policyWithMaxFailedMachines(new(int32(2))), want: true},
		{fact: "RollbackPolicy.BakeTime", policy: observetest.NewPolicy(v1alpha1.RolloutPolicySpec{
			AutomaticRollback: &v1alpha1.AutomaticRollback{BakeTime: &metav1.Duration{Duration: time.Hour}},
		}), want: time.Hour},
		{
			name:   "none may fail",
			fact:   "RollbackPolicy",
			policy: policyWithMaxFailedMachines(new(int32(0))),
			want:   rollout.AutoRollback{HasMaxFailed: true},
		},
		{
			name:   "they are not counted",
			fact:   "RollbackPolicy",
			policy: policyWithMaxFailedMachines(nil),
			want:   rollout.AutoRollback{},
		},
		{
			fact: "RollbackTo",
			deploymentChange: spec(
				func(s *v1alpha1.MachineDeploymentSpec) { s.RollbackTo = &v1alpha1.RollbackConfig{Revision: 3} },
			),
			want: new(int64(3)),
		},
		{
			name:             "to the one before",
			fact:             "RollbackTo",
			deploymentChange: spec(func(s *v1alpha1.MachineDeploymentSpec) { s.RollbackTo = &v1alpha1.RollbackConfig{} }),
			want:             new(int64(0)),
		},

		{
			name:             "as it stands",
			fact:             "MCM.TriggerAnnotation",
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationTriggerDeletion, "a~x,b"),
			want:             "a~x,b",
		},
		{
			fact:             "MCM.AutoscaledAt",
			deploymentChange: withDeploymentAnnotation(v1alpha1.AnnotationLastScalerChange, "2026-01-01T00:00:00Z"),
			want:             "2026-01-01T00:00:00Z",
		},
		{fact: "Progress.Revision", deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{Revision: 7}), want: int64(7)},
		{fact: "Progress.Step", deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{Step: 2}), want: 2},
		{
			fact:             "Progress.Reached",
			deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{ReachedAt: new(observetest.MinutesBeforeNoon(5))}),
			want:             observetest.MinutesBeforeNoon(5).Time,
		},
		{
			fact:             "Progress.Failed",
			deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{FailedMachines: []string{"a"}}),
			want:             []string{"a"},
		},
		{fact: "Progress.Attempt", deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{Attempt: 2}), want: 2},
		{
			fact:             "Progress.Completed",
			deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{CompletedAt: new(observetest.MinutesBeforeNoon(5))}),
			want:             observetest.MinutesBeforeNoon(5).Time,
		},
		{
			fact: "Progress.Turn.Since",
			deploymentChange: withRolloutStatus(
				v1alpha1.RolloutStatus{Turn: &v1alpha1.RolloutTurn{Since: observetest.MinutesBeforeNoon(5)}},
			),
			want: observetest.MinutesBeforeNoon(5).Time,
		},
		{
			fact: "Progress.Turn.Ended",
			deploymentChange: withRolloutStatus(
				v1alpha1.RolloutStatus{Turn: &v1alpha1.RolloutTurn{EndedAt: new(observetest.MinutesBeforeNoon(5))}},
			),
			want: observetest.MinutesBeforeNoon(5).Time,
		},
		{fact: "Turns.Policy", policy: policyWithTurns(), want: policyWithTurns().Name},
		{fact: "Turns.MaxConcurrent", policy: policyWithTurns(), want: 2},
		{fact: "Turns.PauseBetween", policy: policyWithTurns(), want: time.Minute},
		{fact: "Progress.Set", deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{Set: "s"}), want: "s"},
		{fact: "Progress.Good", deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{LastGoodSet: "u"}), want: "u"},
		{
			fact:             "Progress.FormerGood",
			deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{FormerGoodSet: "u"}),
			want:             "u",
		},
		{
			fact: "Progress.FormerMachines",
			deploymentChange: withRolloutStatus(
				v1alpha1.RolloutStatus{FormerMachinesUntil: new(observetest.MinutesBeforeNoon(5))},
			),
			want: observetest.MinutesBeforeNoon(5).Time,
		},
		{
			fact: "Progress.Pin",
			deploymentChange: withRolloutStatus(v1alpha1.RolloutStatus{Pin: &v1alpha1.RolloutPin{
				Set:         "good",
				Revision:    6,
				Since:       observetest.MinutesBeforeNoon(5),
				Reason:      "why",
				RequestedBy: "ann",
			}}),
			want: &rollout.Pin{
				Set:      "good",
				Revision: 6,
				Since:    observetest.MinutesBeforeNoon(5).Time,
				Why:      "why",
				By:       "ann",
			},
		},
		{
			fact:             "ReportedStatus.Counts.Replicas",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{Replicas: 1}),
			want:             1,
		},
		{
			fact:             "ReportedStatus.Counts.Updated",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{UpdatedReplicas: 2}),
			want:             2,
		},
		{
			fact:             "ReportedStatus.Counts.Ready",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{ReadyReplicas: 3}),
			want:             3,
		},
		{
			fact:             "ReportedStatus.Counts.Available",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{AvailableReplicas: 4}),
			want:             4,
		},
		{
			fact:             "ReportedStatus.Counts.Unavailable",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{UnavailableReplicas: 5}),
			want:             5,
		},
		{
			fact:             "ReportedStatus.Counts.PreservedFailed",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{PreservedFailedReplicas: 6}),
			want:             6,
		},
		{
			fact: "ReportedStatus.Conditions",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{Conditions: []v1alpha1.MachineDeploymentCondition{
				{
					Type:               "Progressing",
					Status:             "True",
					Reason:             "R",
					Message:            "m",
					LastUpdateTime:     observetest.MinutesBeforeNoon(3),
					LastTransitionTime: observetest.MinutesBeforeNoon(9),
				},
			}}),
			want: []rollout.Condition{
				{
					Type:           "Progressing",
					Status:         "True",
					Reason:         "R",
					Message:        "m",
					LastUpdateTime: observetest.MinutesBeforeNoon(3).Time,
				},
			},
		},
		{
			fact: "ReportedStatus.FailedNames",
			deploymentChange: withStatus(
				v1alpha1.MachineDeploymentStatus{FailedMachines: []v1alpha1.MachineSummary{{Name: "a"}}},
			),
			want: []string{"a"},
		},
		{
			fact:             "HasFinalizer",
			deploymentChange: func(d *v1alpha1.MachineDeployment) { d.Finalizers = []string{v1alpha1.FinalizerMachine} },
			want:             true,
		},
		{fact: "Generation", deploymentChange: func(d *v1alpha1.MachineDeployment) { d.Generation = 7 }, want: int64(7)},
		{
			fact:             "ObservedGeneration",
			deploymentChange: withStatus(v1alpha1.MachineDeploymentStatus{ObservedGeneration: 7}),
			want:             int64(7),
		},
		{
			fact: "MCM.PendingGrantCount",
			deploymentChange: withStatus(
				v1alpha1.MachineDeploymentStatus{Replacements: []v1alpha1.MachineReplacement{{UID: "x"}}},
			),
			want: 1,
		},
	}
	told := map[string][]any{
		"WorkerDowntime":         {time.Minute}, // see TestWorkerAbsenceExtendsTheProgressDeadline
		"MCM.DueMachineCount":    {1},           // see TestMachinesThatWaitForReplacement
		"Sets":                   {nil},         // see TestRolloutFactsOfASet
		"MCM.FreezeEndsWithSets": {true},        // see TestDeploymentWithMCMBehavior
		"Turns.Siblings":         {"see TestSiblingsHaveFactsWithoutMachines"},
		"CreationError": {
			"refused",
		}, // the workflow sets this fact: see TestReportDeploymentShowsRefusedSetCreation
	}
	for _, row := range rows {
		t.Run(rowTitle(row.name, row.fact), func(t *testing.T) {
			d := observetest.NewDeployment("d")
			if row.deploymentChange != nil {
				row.deploymentChange(d)
			}
			before := d.DeepCopy()
			assert.Equal(
				t,
				row.want,
				observetest.FieldByName(
					deployment.RolloutFacts(
						deployment.ObjectTree{Deployment: d, Sets: row.sets, Orphans: row.orphans, Policy: row.policy, GuardsNodes: true},
						observetest.Noon,
					),
					row.fact,
				),
			)
			assert.Equal(t, before, d, "what is looked at stays as it is")
		})
		told[row.fact] = append(told[row.fact], row.want)
	}
	assertEveryFactIsTested(
		t,
		deployment.RolloutFacts(deployment.ObjectTree{Deployment: observetest.NewDeployment("plain")}, time.Time{}),
		told,
	)
}

// With --as-mcm, a deployment ignores minReadySeconds and unfreezes together with its sets.
func TestDeploymentWithMCMBehavior(t *testing.T) {
	set := observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 500 })
	ready := observetest.NewMachine("m", observetest.WithOwnerSet(set), func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{
			Phase:          v1alpha1.MachineRunning,
			LastUpdateTime: observetest.MinutesBeforeNoon(1),
		}
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: observetest.MinutesBeforeNoon(1)},
		}
	})
	for _, asMCM := range []bool{false, true} {
		tree := deployment.ObjectTree{
			Deployment:   observetest.NewDeployment("d"),
			Sets:         []*v1alpha1.MachineSet{set},
			Members:      []*v1alpha1.Machine{ready},
			BehavesAsMCM: asMCM,
		}
		o := deployment.RolloutFacts(tree, observetest.Noon)
		assert.Equal(t, asMCM, o.Sets[0].Machines[0].Available)
		assert.Equal(t, asMCM, o.MCM.FreezeEndsWithSets)
	}
}

// Admission rejects most invalid deployments. An invalid deployment that was stored anyway is not rolled out.
func TestInvalidDeploymentsAreNotRolledOut(t *testing.T) {
	selecting := func(selector *metav1.LabelSelector) observetest.DeploymentChange {
		return func(d *v1alpha1.MachineDeployment) { d.Spec.Selector = selector }
	}
	const inPlace = v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	for name, row := range map[string]struct {
		deployment observetest.DeploymentChange
		invalid    string
	}{
		"as it should be":                       {func(*v1alpha1.MachineDeployment) {}, ""},
		"selector mismatch":                     {selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}), "the selector does not match the labels of the template"},
		"an empty selector":                     {selecting(&metav1.LabelSelector{}), "the selector is empty: it would match every machine"},
		"no selector":                           {selecting(nil), "the selector does not match the labels of the template"},
		"one that nobody can read":              {selecting(observetest.InvalidSelector()), `the selector cannot be read: "Nonsense" is not a valid label selector operator`},
		"no name of a class":                    {func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "" }, "the template names no machine class"},
		"in place, and nobody picks":            {withStrategy(v1alpha1.MachineDeploymentStrategy{Type: inPlace}), "the strategy InPlaceUpdate needs an orchestrationType, Auto or Manual"},
		"no surge and no unavailable: defaults": {withSurgeAndUnavailable("RollingUpdate", "", nil, nil), ""},
		"the same in place":                     {withSurgeAndUnavailable(inPlace, v1alpha1.OrchestrationTypeAuto, nil, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := observetest.NewDeployment("d", row.deployment)
			o := deployment.RolloutFacts(deployment.ObjectTree{Deployment: d}, observetest.Noon)
			assert.Equal(t, row.invalid, o.InvalidReason)
			next := rollout.Decide(o)
			assert.Equal(t, row.invalid == "", next.HasActions())
			assert.Equal(t, row.invalid, next.Hold)
		})
	}
}

func TestInvalidStepsAreReported(t *testing.T) {
	for size, invalid := range map[intstr.IntOrString]string{
		intstr.FromString("half"): `step 2 of RolloutPolicy careful: replicas is "half", which is no percentage`,
		intstr.FromString("-5%"):  `step 2 of RolloutPolicy careful: replicas is "-5%", which is no percentage`,
		intstr.FromInt32(3):       "", intstr.FromString("100%"): "",
	} {
		policy := policyWithSteps(
			v1alpha1.RolloutStep{Replicas: intstr.FromString("10%")},
			v1alpha1.RolloutStep{Replicas: size},
		)
		o := deployment.RolloutFacts(
			deployment.ObjectTree{Deployment: observetest.NewDeployment("d"), Policy: policy},
			observetest.Noon,
		)
		assert.Equal(t, invalid, o.InvalidReason)
	}
}

// A rollout keeps the steps that the policy had when the rollout started, even if the policy changes.
func TestARolloutKeepsItsSteps(t *testing.T) {
	recorded := v1alpha1.RolloutStatus{
		Revision: 7,
		Steps:    []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(2), Approve: true}},
	}
	sets := []*v1alpha1.MachineSet{newSetOfRevision("7")}
	for name, policy := range map[string]*v1alpha1.RolloutPolicy{"deleted": nil, "changed": policyWithSteps(v1alpha1.RolloutStep{Replicas: intstr.FromInt32(5), Approve: true})} {
		d := observetest.NewDeployment("d", withRolloutStatus(recorded))
		o := deployment.RolloutFacts(deployment.ObjectTree{Deployment: d, Sets: sets, Policy: policy}, observetest.Noon)
		assert.Equal(t, []rollout.Step{{Size: rollout.IntOrPercent{Value: 2}, NeedsApproval: true}}, o.Steps, name)
		d.Status.Rollout.Revision = 6
		o = deployment.RolloutFacts(deployment.ObjectTree{Deployment: d, Sets: sets, Policy: policy}, observetest.Noon)
		assert.NotContains(
			t,
			o.Steps,
			rollout.Step{Size: rollout.IntOrPercent{Value: 2}, NeedsApproval: true},
			"of another revision, %s",
			name,
		)
	}
}

// Versions that kept the steps in spec.rollout recorded no steps. A rollout from such a version must not skip the gates
// of the policy that replaced spec.rollout.
func TestARolloutWithoutRecordedStepsFollowsThePolicy(t *testing.T) {
	policy := policyWithSteps(v1alpha1.RolloutStep{Replicas: intstr.FromInt32(2), Approve: true})
	for name, row := range map[string]struct {
		recorded []v1alpha1.RolloutStep
		want     []rollout.Step
	}{
		"recorded by an earlier version": {nil, []rollout.Step{{Size: rollout.IntOrPercent{Value: 2}, NeedsApproval: true}}},
		"began without steps":            {[]v1alpha1.RolloutStep{}, nil},
	} {
		d := observetest.NewDeployment("d", withRolloutStatus(v1alpha1.RolloutStatus{Revision: 7, Steps: row.recorded}))
		o := deployment.RolloutFacts(
			deployment.ObjectTree{Deployment: d, Sets: []*v1alpha1.MachineSet{newSetOfRevision("7")}, Policy: policy},
			observetest.Noon,
		)
		assert.Equal(t, row.want, o.Steps, name)
	}
}

// A machine belongs to the set that controls it, whatever labels the machine has.
func TestRolloutFactsGiveEachSetItsMachines(t *testing.T) {
	a, b := observetest.NewSet("a"), observetest.NewSet("b", withOldClass)
	loose := observetest.NewMachine("loose")
	loose.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "a", UID: a.UID}} // controller: unset
	o := deployment.RolloutFacts(
		deployment.ObjectTree{
			Deployment: observetest.NewDeployment("d"),
			Sets:       []*v1alpha1.MachineSet{a, b},
			Members: []*v1alpha1.Machine{
				observetest.NewMachine(
					"m-1",
					observetest.WithOwnerSet(a),
				),
				observetest.NewMachine("m-2", observetest.WithOwnerSet(b), observetest.WithAppLabel("api")),
				observetest.NewMachine("m-3", observetest.WithOwnerSet(b)),
				loose,
				observetest.NewMachine("alone"),
				observetest.NewMachine("other", observetest.WithOwnerSet(observetest.NewSet("other"))),
			},
		},
		observetest.Noon,
	)
	members := map[string][]string{}
	for _, s := range o.Sets {
		for _, m := range s.Machines {
			members[s.Name] = append(members[s.Name], m.Name)
		}
	}
	assert.Equal(t, map[string][]string{"a": {"m-1"}, "b": {"m-2", "m-3"}}, members)
}

func TestReadTreeFromCaches(t *testing.T) {
	d := observetest.NewDeployment("d")
	s := observetest.NewSet(
		"s",
		func(s *v1alpha1.MachineSet) {
			s.OwnerReferences = observetest.ControllerReferences(d, "MachineDeployment")
		},
	)
	foreign := observetest.NewSet("foreign")
	n := observetest.NewNode()
	cluster, _ := observetest.StartCaches(
		t,
		[]runtime.Object{n},
		d,
		s,
		foreign,
		observetest.NewMachine("a", observetest.WithOwnerSet(s), observetest.WithInstanceAndNode("n")),
		observetest.NewMachine("b", observetest.WithOwnerSet(foreign)),
	)
	tree := deployment.ReadTree(cluster, d)
	assert.Equal(t, []string{"s"}, observetest.ObjectNames(tree.Sets))
	assert.Equal(t, []string{"a"}, observetest.ObjectNames(tree.Members))
	assert.True(t, tree.GuardsNodes, "unless somebody wants none")
	require.NotNil(t, tree.NodeOfMachine(tree.Members[0]))
	cluster.WithoutAutoscalerGuard = true
	assert.False(t, deployment.ReadTree(cluster, d).GuardsNodes)
}

func TestRequestsAreForTheRevisionOfTheOldestCurrentSet(t *testing.T) {
	older := newSetOfRevision(
		"7",
		func(s *v1alpha1.MachineSet) { s.CreationTimestamp = observetest.MinutesBeforeNoon(60) },
	)
	younger := newSetOfRevision(
		"8",
		func(s *v1alpha1.MachineSet) { s.CreationTimestamp = observetest.MinutesBeforeNoon(5) },
	)
	d := observetest.NewDeployment("d", withDeploymentAnnotation(v1alpha1.AnnotationRolloutHold, "7 ann"))
	for _, sets := range [][]*v1alpha1.MachineSet{{older, younger}, {younger, older}} {
		assert.Equal(
			t,
			"ann",
			deployment.RolloutFacts(deployment.ObjectTree{Deployment: d, Sets: sets}, observetest.Noon).HoldReason,
		)
	}
	none := observetest.NewDeployment("d", withDeploymentAnnotation(v1alpha1.AnnotationRolloutHold, "0 ann"))
	assert.Empty(
		t,
		deployment.RolloutFacts(deployment.ObjectTree{Deployment: none}, observetest.Noon).HoldReason,
		"no revision is 0",
	)
}

func TestUnknownStrategyIsInvalid(t *testing.T) {
	for _, who := range []v1alpha1.OrchestrationType{"", "auto"} {
		d := observetest.NewDeployment(
			"d",
			withSurgeAndUnavailable(v1alpha1.InPlaceUpdateMachineDeploymentStrategyType, who, nil, nil),
		)
		assert.Contains(
			t,
			deployment.RolloutFacts(deployment.ObjectTree{Deployment: d}, observetest.Noon).InvalidReason,
			"needs an orchestrationType, Auto or Manual",
		)
	}
	d := observetest.NewDeployment("d", withStrategy(v1alpha1.MachineDeploymentStrategy{Type: "Sideways"}))
	assert.Contains(
		t,
		deployment.RolloutFacts(deployment.ObjectTree{Deployment: d}, observetest.Noon).InvalidReason,
		"Sideways",
	)
}

// The deployment counts the machines in a set's status, unless the tree is at least as new as the status.
func TestATreeCountsMachinesThatItHasNotRead(t *testing.T) {
	s := observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Status.Replicas = 4 })
	for _, row := range []struct {
		name, counted, read string
		want                int
	}{
		{"neither is known", "", "", 4},
		{"it is not known what was counted", "", "7", 4},
		{"it is not known what was read", "7", "", 4},
		{"read less far", "10", "9", 4},
		{"read as far", "10", "10", 0},
		{"read further", "9", "10", 0},
		{"nonsense was counted", "x", "10", 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.Status.ObservedMachines = row.counted
			f := deployment.ObjectTree{
				Deployment:      observetest.NewDeployment("d"),
				Sets:            []*v1alpha1.MachineSet{s},
				MachinesVersion: row.read,
			}
			assert.Equal(t, row.want, deployment.RolloutFacts(f, observetest.Noon).Sets[0].StatusMachineCount)
		})
	}
}

func TestReadTreeRecordsTheVersionOfItsMachines(t *testing.T) {
	d, m := observetest.NewDeployment(
		"d",
	), observetest.NewMachine(
		"m",
		func(m *v1alpha1.Machine) { m.ResourceVersion = "12" },
	)
	s := observetest.NewSet("s")
	cluster, machines := observetest.StartCaches(t, nil, d, s, m)
	machines.PrependReactor("list", "machines", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &v1alpha1.MachineList{ListMeta: metav1.ListMeta{ResourceVersion: "40"}}, nil
	})
	require.NoError(
		t,
		cluster.Informer(cache.MachinesResource).
			GetStore().
			Update(observetest.NewMachine("m", func(m *v1alpha1.Machine) { m.ResourceVersion = "30" })),
	)
	assert.Equal(t, "30", deployment.ReadTree(cluster, d).MachinesVersion)
	assert.Equal(t, "30", set.ReadRelatedObjects(cluster, s).MachinesVersion)
	live, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
	require.NoError(t, err)
	assert.Equal(t, "40", live.MachinesVersion, "the API server's list is newer")
}

// Time without a running worker does not use up the progress deadline.
func TestWorkerAbsenceExtendsTheProgressDeadline(t *testing.T) {
	d := observetest.NewDeployment("d")
	d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{
		{Type: v1alpha1.MachineDeploymentProgressing, LastUpdateTime: observetest.MinutesBeforeNoon(10)},
	}
	away := cache.WorkerAbsences{{From: observetest.MinutesBeforeNoon(12).Time, To: observetest.MinutesBeforeNoon(4).Time}}
	o := deployment.RolloutFacts(deployment.ObjectTree{Deployment: d, Absences: away}, observetest.Noon)
	assert.Equal(t, 6*time.Minute, o.WorkerDowntime)
}
