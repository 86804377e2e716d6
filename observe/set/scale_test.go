package set_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// relatedObjectsWithRemediation returns the RelatedObjects of a set with this remediation policy.
func relatedObjectsWithRemediation(change func(*v1alpha1.MachineSetRemediation)) set.RelatedObjects {
	r := &v1alpha1.MachineSetRemediation{}
	change(r)
	return set.RelatedObjects{Policy: observetest.NewPolicy(v1alpha1.RolloutPolicySpec{Remediation: r})}
}

func relatedObjectsWithDeletionOrder(order v1alpha1.DeletionOrder) set.RelatedObjects {
	return set.RelatedObjects{Policy: observetest.NewPolicy(v1alpha1.RolloutPolicySpec{DeletionOrder: order})}
}

func withFiveReplicas(s *v1alpha1.MachineSet) { s.Spec.Replicas = 5 }

func relatedObjectsWithMaxRetry(n int32) set.RelatedObjects {
	return relatedObjectsWithRemediation(func(r *v1alpha1.MachineSetRemediation) { r.MaxRetry = &n })
}

func relatedObjectsWithMaxInFlight(n intstr.IntOrString) set.RelatedObjects {
	return relatedObjectsWithRemediation(func(r *v1alpha1.MachineSetRemediation) { r.MaxInFlight = &n })
}

// relatedObjectsWithDeployment returns the RelatedObjects of a set of deployment d.
func relatedObjectsWithDeployment(change ...observetest.DeploymentChange) set.RelatedObjects {
	return set.RelatedObjects{Deployment: observetest.NewDeployment("d", change...)}
}

func relatedObjectsWithOrphans(machines ...*v1alpha1.Machine) set.RelatedObjects {
	return set.RelatedObjects{Orphans: machines}
}

func withReleasedByAnnotation(uid string) func(*v1alpha1.Machine) {
	return observetest.WithSingleAnnotation(v1alpha1.AnnotationReleasedBy, uid)
}

func withMCMBehavior(related set.RelatedObjects) set.RelatedObjects {
	related.BehavesAsMCM = true
	return related
}

// Each row tests one fact about a set, with a value that differs from the fact's value for an empty set.
func TestScaleFacts(t *testing.T) {
	pausing := func(d *v1alpha1.MachineDeployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationPaused, "")
	}
	freezing := func(d *v1alpha1.MachineDeployment) {
		metav1.SetMetaDataLabel(&d.ObjectMeta, v1alpha1.LabelFreeze, "True")
	}
	ending := func(d *v1alpha1.MachineDeployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationUnfreeze, "")
	}
	surging := func(d *v1alpha1.MachineDeployment) {
		d.Spec.Replicas = 3
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: new(intstr.FromInt32(2))},
		}
	}
	selecting := func(selector *metav1.LabelSelector) observetest.SetChange {
		return func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector }
	}
	generations := func(s *v1alpha1.MachineSet) {
		s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 2, LastFailedAt: observetest.MinutesBeforeNoon(3)}
	}
	const (
		setPaused        = "MachineSet has the cluster.x-k8s.io/paused annotation"
		deploymentPaused = "MachineDeployment has the cluster.x-k8s.io/paused annotation"
	)
	const invalid = "the selector does not match the labels of the template"
	assertSetRows(t, []setRow{
		{fact: "Now", want: observetest.Noon},
		{fact: "NameParts", want: []string{"s-", ""}},
		{fact: "Replicas", setChange: func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 3 }, want: 3},
		{
			fact:    "DeletionOrder",
			related: relatedObjectsWithDeletionOrder(v1alpha1.DeletionOrderOldest),
			want:    scale.OldestFirst,
		},
		{
			fact:    "DeletionOrder",
			related: relatedObjectsWithDeletionOrder(v1alpha1.DeletionOrderNewest),
			want:    scale.NewestFirst,
		},
		{
			fact:    "DeletionOrder",
			related: relatedObjectsWithDeletionOrder(v1alpha1.DeletionOrderRandom),
			want:    scale.RandomOrder,
		},
		{
			fact:      "MCM.MaxAutoPreserved",
			setChange: func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = 2 },
			want:      2,
		},
		{
			name:      "in seconds",
			fact:      "MinReadyDuration",
			setChange: func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 90 },
			want:      90 * time.Second,
		},
		{fact: "Deleting", setChange: observetest.AsDeletingSet, want: true},
		{
			fact:      "Orphaning",
			setChange: func(s *v1alpha1.MachineSet) { observetest.AsDeletingSet(s); s.Finalizers = []string{"orphan"} },
			want:      true,
		},
		{
			name:      "not before the deletion",
			fact:      "Orphaning",
			setChange: func(s *v1alpha1.MachineSet) { s.Finalizers = []string{"orphan"} },
			want:      false,
		},
		{
			name: "foreground deletion",
			fact: "Orphaning",
			setChange: func(s *v1alpha1.MachineSet) {
				observetest.AsDeletingSet(s)
				s.Finalizers = []string{"foregroundDeletion"}
			},
			want: false,
		},
		{fact: "NameSeed", want: uint64(7)},
		{
			name:      "unreadable",
			fact:      "InvalidReason",
			setChange: selecting(observetest.InvalidSelector()),
			want:      `the selector cannot be read: "Nonsense" is not a valid label selector operator`,
		},
		{
			name:      "of other labels",
			fact:      "InvalidReason",
			setChange: selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}),
			want:      invalid,
		},
		{name: "none at all", fact: "InvalidReason", setChange: selecting(nil), want: invalid},
		{name: "an empty one is not invalid", fact: "InvalidReason", setChange: selecting(&metav1.LabelSelector{}), want: ""},
		{name: "an empty one", fact: "SelectsAll", setChange: selecting(&metav1.LabelSelector{}), want: true},
		{
			name:      "one that cannot be read",
			fact:      "SelectsAll",
			setChange: selecting(observetest.InvalidSelector()),
			want:      false,
		},
		{name: "none at all", fact: "SelectsAll", setChange: selecting(nil), want: false},
		{
			name: "of all of them whether they match",
			fact: "Orphans",
			related: relatedObjectsWithOrphans(
				observetest.NewMachine("a", observetest.WithResourceVersion("9")),
				observetest.NewMachine("b", observetest.WithAppLabel("api"), observetest.AsDeletingMachine),
			),
			want: []scale.Orphan{
				{Name: "a", UID: "uid-a", Version: "9", MatchesSelector: true}, {Name: "b", UID: "uid-b", MayNotBeAdopted: true},
			},
		},
		{
			name:      "an unreadable selector matches none",
			fact:      "Orphans",
			setChange: selecting(observetest.InvalidSelector()),
			related:   relatedObjectsWithOrphans(observetest.NewMachine("a")),
			want:      []scale.Orphan{{Name: "a", UID: "uid-a"}},
		},
		{
			name: "by this set",
			fact: "ReleasedMachineCount",
			related: relatedObjectsWithOrphans(
				observetest.NewMachine("a", withReleasedByAnnotation("uid-s")),
				observetest.NewMachine("b", withReleasedByAnnotation("uid-s"), observetest.WithAppLabel("api")),
			),
			want: 2,
		},
		{
			name: "by another, by nobody, or going",
			fact: "ReleasedMachineCount",
			related: relatedObjectsWithOrphans(
				observetest.NewMachine("a", withReleasedByAnnotation("uid-x")),
				observetest.NewMachine("b"),
				observetest.NewMachine("c", withReleasedByAnnotation("uid-s"), observetest.AsDeletingMachine),
			),
			want: 0,
		},
		{name: "nobody", fact: "PauseSentences", related: relatedObjectsWithDeployment(), want: []string(nil)},
		{
			name:    "its deployment",
			fact:    "PauseSentences",
			related: relatedObjectsWithDeployment(pausing),
			want:    []string{deploymentPaused},
		},
		{
			name:      "itself, below a deployment that is not paused",
			fact:      "PauseSentences",
			setChange: observetest.WithSetAnnotation(v1alpha1.AnnotationPaused, ""),
			related:   relatedObjectsWithDeployment(),
			want:      []string{setPaused},
		},
		{
			name:      "both",
			fact:      "PauseSentences",
			setChange: observetest.WithSetAnnotation(v1alpha1.AnnotationPaused, ""),
			related:   relatedObjectsWithDeployment(pausing),
			want:      []string{deploymentPaused, setPaused},
		},
		{fact: "MCM.Freeze.HasLabel", setChange: observetest.WithSetLabel(v1alpha1.LabelFreeze, "True"), want: true},
		{
			name:      "another value",
			fact:      "MCM.Freeze.HasLabel",
			setChange: observetest.WithSetLabel(v1alpha1.LabelFreeze, "true"),
			want:      false,
		},
		{
			fact:      "MCM.Freeze.UnfreezeRequested",
			setChange: observetest.WithSetAnnotation(v1alpha1.AnnotationUnfreeze, ""),
			want:      true,
		},
		{
			name:    "its deployment",
			fact:    "MCM.Freeze.OwnerIsFrozen",
			related: relatedObjectsWithDeployment(freezing),
			want:    true,
		},
		{
			name:    "its deployment's freeze ended",
			fact:    "MCM.Freeze.OwnerIsFrozen",
			related: relatedObjectsWithDeployment(freezing, ending),
			want:    false,
		},
		{
			name:    "a deployment that is not frozen",
			fact:    "MCM.Freeze.OwnerIsFrozen",
			related: relatedObjectsWithDeployment(),
			want:    false,
		},
		{
			name:    "as MCM: 3 replicas, surge 2 and 1 more",
			fact:    "MCM.Freeze.EndsAtMachineCount",
			related: withMCMBehavior(relatedObjectsWithDeployment(surging)),
			want:    6,
		},
		{
			name:      "as MCM: a set alone, twice 3 and 1 more",
			fact:      "MCM.Freeze.EndsAtMachineCount",
			setChange: func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 3 },
			related:   withMCMBehavior(set.RelatedObjects{}),
			want:      7,
		},
		{name: "as MCM", fact: "DeletionOrder", related: withMCMBehavior(set.RelatedObjects{}), want: scale.OldestFirst},
		{
			name:    "as MCM, with a policy",
			fact:    "DeletionOrder",
			related: withMCMBehavior(relatedObjectsWithDeletionOrder(v1alpha1.DeletionOrderNewest)),
			want:    scale.NewestFirst,
		},
		{
			name:      "as MCM",
			fact:      "MinReadyDuration",
			setChange: func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 500 },
			related:   withMCMBehavior(set.RelatedObjects{}),
			want:      time.Duration(0),
		},
		{name: "nothing", fact: "StopReasons", want: []string(nil)},
		{
			name:      "by the presence of the label",
			fact:      "StopReasons",
			setChange: observetest.WithSetLabel(v1alpha1.LabelScaleUpDisabled, ""),
			want:      []string{"MachineSet has the label scale-up-disabled"},
		},
		{
			name:      "when the size changed",
			fact:      "MCM.AutoscaledAt",
			setChange: observetest.WithSetAnnotation(v1alpha1.AnnotationLastScalerChange, "2026-01-01T11:00:00Z"),
			want:      observetest.Noon.Add(-time.Hour),
		},
		{
			name:      "no time",
			fact:      "MCM.AutoscaledAt",
			setChange: observetest.WithSetAnnotation(v1alpha1.AnnotationLastScalerChange, "yesterday"),
			want:      time.Time{},
		},
		{
			fact:      "Remediation.HasMaxInFlight",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithMaxInFlight(intstr.FromInt32(2)),
			want:      true,
		},
		{
			name:      "nothing said of it",
			fact:      "Remediation.HasMaxInFlight",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithRemediation(func(*v1alpha1.MachineSetRemediation) {}),
			want:      false,
		},
		{
			fact:      "Remediation.MaxInFlight",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithMaxInFlight(intstr.FromInt32(2)),
			want:      2,
		},
		{
			name:      "rounded up",
			fact:      "Remediation.MaxInFlight",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithMaxInFlight(intstr.FromString("21%")),
			want:      2,
		},
		{
			fact:      "Remediation.MaxInFlightText",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithMaxInFlight(intstr.FromString("21%")),
			want:      "21%",
		},
		{
			name:      "neither number nor percentage",
			fact:      "Remediation.MaxInFlight",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithMaxInFlight(intstr.FromString("many")),
			want:      0,
		},
		{
			name:      "which is a limit, too",
			fact:      "Remediation.HasMaxInFlight",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithMaxInFlight(intstr.FromString("many")),
			want:      true,
		},
		{name: "its default", fact: "Remediation.Backoff", want: time.Minute},
		{
			fact:      "Remediation.Backoff",
			setChange: withFiveReplicas,
			related: relatedObjectsWithRemediation(
				func(r *v1alpha1.MachineSetRemediation) { r.Backoff = &metav1.Duration{Duration: time.Second} },
			),
			want: time.Second,
		},
		{
			name:      "none",
			fact:      "Remediation.Backoff",
			setChange: withFiveReplicas,
			related:   relatedObjectsWithRemediation(func(r *v1alpha1.MachineSetRemediation) { r.Backoff = &metav1.Duration{} }),
			want:      time.Duration(0),
		},
		{
			name:      "the deployment has one",
			fact:      "Remediation.Backoff",
			setChange: observetest.WithDeploymentOwner,
			related:   relatedObjectsWithDeployment(),
			want:      time.Duration(0),
		},
		{
			name:      "also one that is not there yet",
			fact:      "Remediation.Backoff",
			setChange: observetest.WithDeploymentOwner,
			want:      time.Duration(0),
		},
		{name: "its default", fact: "Remediation.MaxBackoff", want: time.Hour},
		{
			fact:      "Remediation.MaxBackoff",
			setChange: withFiveReplicas,
			related: relatedObjectsWithRemediation(
				func(r *v1alpha1.MachineSetRemediation) { r.MaxBackoff = &metav1.Duration{Duration: time.Minute} },
			),
			want: time.Minute,
		},
		{name: "its default", fact: "Remediation.MaxSurge", want: 0},
		{
			name: "a percentage, rounded up", fact: "Remediation.MaxSurge", setChange: withFiveReplicas,
			related: relatedObjectsWithRemediation(
				func(r *v1alpha1.MachineSetRemediation) { r.MaxSurge = new(intstr.FromString("21%")) },
			),
			want: 2,
		},
		{
			name: "neither number nor percentage", fact: "Remediation.MaxSurge", setChange: withFiveReplicas,
			related: relatedObjectsWithRemediation(
				func(r *v1alpha1.MachineSetRemediation) { r.MaxSurge = new(intstr.FromString("many")) },
			),
			want: 0,
		},
		{name: "its default", fact: "Remediation.HasMaxRetry", want: false},
		{fact: "Remediation.HasMaxRetry", related: relatedObjectsWithMaxRetry(0), want: true},
		{fact: "Remediation.MaxRetry", related: relatedObjectsWithMaxRetry(3), want: 3},
		{
			name:      "also with a deployment",
			fact:      "Remediation.MaxRetry",
			setChange: observetest.WithDeploymentOwner,
			related:   relatedObjectsWithMaxRetry(3),
			want:      3,
		},
		{fact: "Remediation.SetIsOutdated", related: relatedObjectsWithDeployment(observetest.WithNewClass), want: true},
		{
			name: "people delete the machines", fact: "Remediation.SetIsOutdated",
			related: relatedObjectsWithDeployment(observetest.WithNewClass, func(d *v1alpha1.MachineDeployment) {
				d.Spec.Strategy.Type = v1alpha1.OnDeleteMachineDeploymentStrategyType
			}),
			want: false,
		},
		{
			name: "people select the machines", fact: "Remediation.SetIsOutdated",
			related: relatedObjectsWithDeployment(observetest.WithNewClass, func(d *v1alpha1.MachineDeployment) {
				d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
					Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
					InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
						OrchestrationType: v1alpha1.OrchestrationTypeManual,
					},
				}
			}),
			want: false,
		},
		{
			name: "the deployment is paused", fact: "Remediation.SetIsOutdated",
			related: relatedObjectsWithDeployment(
				observetest.WithNewClass,
				func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true },
			),
			want: false,
		},
		{
			fact:      "Remediation.SubstitutesElsewhere",
			setChange: observetest.WithSetLabel(v1alpha1.LabelScaleUpDisabled, "true"),
			related:   relatedObjectsWithDeployment(observetest.WithNewClass),
			want:      "MachineSet has the label scale-up-disabled",
		},
		{
			name: "the current set, closed by a person", fact: "StopReasons",
			setChange: observetest.WithSetLabel(v1alpha1.LabelScaleUpDisabled, "true"),
			related:   relatedObjectsWithDeployment(),
			want:      []string{"MachineSet has the label scale-up-disabled"},
		},
		{name: "the current set", fact: "Remediation.SetIsOutdated", related: relatedObjectsWithDeployment(), want: false},
		{fact: "Generations.Failed", setChange: generations, want: 2},
		{fact: "Generations.Last", setChange: generations, want: observetest.MinutesBeforeNoon(3).Time},
		{
			fact:      "HasFinalizer",
			setChange: func(s *v1alpha1.MachineSet) { s.Finalizers = []string{v1alpha1.FinalizerMachine} },
			want:      true,
		},
		{fact: "Generation", setChange: func(s *v1alpha1.MachineSet) { s.Generation = 7 }, want: int64(7)},
		{
			fact:      "ObservedGeneration",
			setChange: func(s *v1alpha1.MachineSet) { s.Status.ObservedGeneration = 7 },
			want:      int64(7),
		},
		{fact: "ReportedStatus.Counts", setChange: func(s *v1alpha1.MachineSet) {
			s.Status.Replicas, s.Status.FullyLabeledReplicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas = 1, 2, 3, 4
			s.Status.UpToDateReplicas, s.Status.PreservedFailedReplicas, s.Status.AutoPreserveFailedMachineCount = 5, 6, 7
		}, want: &scale.MachineCounts{Replicas: 1, Labelled: 2, Ready: 3, Available: 4, UpToDate: 5, PreservedFailed: 6, AutoPreserved: 7}},
		{fact: "ReportedStatus.Conditions", setChange: func(s *v1alpha1.MachineSet) {
			s.Status.Conditions = []v1alpha1.MachineSetCondition{
				{Type: "Ready", Status: "True", Reason: "R", Message: "m", LastTransitionTime: observetest.MinutesBeforeNoon(1)},
			}
		}, want: []scale.Condition{{Type: "Ready", Status: scale.ConditionTrue, Reason: "R", Message: "m"}}},
		{fact: "ReportedStatus.Overshoot", setChange: func(s *v1alpha1.MachineSet) { s.Status.Overshoot = 4 }, want: 4},
		{fact: "ReportedStatus.PeakReplicas", setChange: func(s *v1alpha1.MachineSet) { s.Status.PeakReplicas = 4 }, want: 4},
		{
			fact:      "ReportedStatus.ObservedReplicas",
			setChange: func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas = 4 },
			want:      4,
		},
		{fact: "ReportedStatus.FailedNames", setChange: func(s *v1alpha1.MachineSet) {
			s.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "a"}, {Name: "b"}}
		}, want: []string{"a", "b"}},
		{
			fact:    "MissingObjectKinds",
			related: set.RelatedObjects{MissingKinds: []string{"MachineClass"}},
			want:    []string{"MachineClass"},
		},
	}, map[string]string{
		"Members":                   "TestScaleFactsOfAMachine",
		"Remediation.Blocker":       "only a set of Cluster API has one",
		"LastWriteFailure.Deleting": "the run knows what it was refused",
		"LastWriteFailure.Changing": "the run knows what it was refused",
		"LastWriteFailure.Message":  "the run knows what it was refused",

		"Preflight.ControlPlane":             "TestPreflightFactsOfASet",
		"Preflight.Machines.Version":         "TestPreflightFactsOfASet",
		"Preflight.Machines.Kubeadm":         "TestPreflightFactsOfASet",
		"Preflight.Settings.Checks":          "TestPreflightFactsOfASet",
		"Preflight.Settings.Strict":          "TestPreflightFactsOfASet",
		"Preflight.Settings.Skip":            "TestPreflightFactsOfASet",
		"Preflight.Settings.RequireReplicas": "TestPreflightFactsOfASet",
	})
}

// setRow is a test row for one fact about a set, derived from the set and its related objects.
type setRow struct {
	name      string
	fact      string
	setChange observetest.SetChange
	related   set.RelatedObjects
	want      any
}

// assertSetRows checks each row, and checks that each fact has a row whose value differs from the value for an empty
// set.
func assertSetRows(t *testing.T, rows []setRow, never map[string]string) {
	missing := map[string]bool{}
	for _, name := range observetest.FieldNamesWithoutPart("ClusterAPI", reflect.TypeFor[scale.Facts]()) {
		missing[name] = never[name] == ""
	}
	plain := set.ScaleFacts(observetest.NewSet("plain"), set.RelatedObjects{}, time.Time{}, 0)
	for _, row := range rows {
		name := strings.TrimPrefix(row.name+", "+row.fact, ", ")
		t.Run(name, func(t *testing.T) {
			s := observetest.NewSet("s")
			if row.setChange != nil {
				row.setChange(s)
			}
			assert.Equal(t, row.want, observetest.FieldByName(set.ScaleFacts(s, row.related, observetest.Noon, 7), row.fact))
		})
		if !assert.ObjectsAreEqual(row.want, observetest.FieldByName(plain, row.fact)) ||
			strings.HasPrefix(row.name, "its default") {
			delete(missing, row.fact)
		}
	}
	for name, lacks := range missing {
		assert.False(t, lacks, "fact %s has no row that shows it", name)
	}
}
