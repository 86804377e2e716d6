package set_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/preflight"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
	"millwright/observe/observetest"
)

// relatedObjectsChange changes the objects related to a set.
type relatedObjectsChange = func(*capi.RelatedObjects)

func withSetAnnotation(key, value string) capitest.SetChange {
	return capitest.WithAnnotation[*clusterv1.MachineSet](key, value)
}

func withDeployment(change ...capitest.DeploymentChange) relatedObjectsChange {
	return func(a *capi.RelatedObjects) { a.Deployment = capitest.NewDeployment(change...) }
}

func withMaxInFlight(n intstr.IntOrString) relatedObjectsChange {
	return withDeployment(func(d *clusterv1.MachineDeployment) {
		d.Spec.Replicas, d.Spec.Remediation.MaxInFlight = new(int32(5)), &n
	})
}

func withMachineNaming(template string) capitest.SetChange {
	return func(s *clusterv1.MachineSet) { s.Spec.MachineNaming.Template = template }
}

func withDeletionOrder(order clusterv1.MachineSetDeletionOrder) capitest.SetChange {
	return func(s *clusterv1.MachineSet) { s.Spec.Deletion.Order = order }
}

func withReleasedByAnnotation(by string) capitest.MachineChange {
	return capitest.WithAnnotation[*clusterv1.Machine](v1alpha1.AnnotationReleasedBy, by)
}

func withoutReplicas(s *clusterv1.MachineSet) { s.Spec.Replicas = nil }

// Each row tests one fact about a set, with a value that differs from the fact's value for an empty set.
func TestScaleFacts(t *testing.T) {
	const (
		invalid = "the selector does not match the labels of the template"
		unread  = "templates or control plane were not read yet"
	)
	record := capiset.GenerationAnnotation(scale.GenerationRecord{Failed: 2, Last: capitest.Noon})
	withPolicy := func(a *capi.RelatedObjects) {
		a.Policy = observetest.NewPolicy(v1alpha1.RolloutPolicySpec{Remediation: &v1alpha1.MachineSetRemediation{
			Backoff: &metav1.Duration{
				Duration: 2 * time.Minute,
			},
			MaxBackoff: &metav1.Duration{Duration: 30 * time.Minute},
			MaxRetry:   new(int32(3)),
			MaxSurge:   new(intstr.FromString("10%")),
		}})
	}
	outdated := func(s *clusterv1.MachineSet) {
		capitest.WithDeploymentOwner(s)
		withSetAnnotation(clusterv1.RevisionAnnotation, "0")(s)
	}
	current := func(s *clusterv1.MachineSet) {
		capitest.WithDeploymentOwner(s)
		withSetAnnotation(clusterv1.RevisionAnnotation, "1")(s)
	}
	orphan := func(labels map[string]string, change ...capitest.MachineChange) relatedObjectsChange {
		return func(a *capi.RelatedObjects) {
			m := capitest.NewMachine("o", capitest.NewSet("s", 1), append(change, capitest.WithoutOwner[*clusterv1.Machine])...)
			m.Labels = labels
			a.Orphans = []*clusterv1.Machine{m}
		}
	}
	withoutCluster := func(a *capi.RelatedObjects) { a.Cluster, a.ControlPlane = nil, nil }
	wanted := map[string]string{"pool": "s", clusterv1.ClusterNameLabel: "c"}
	rows := []struct {
		name, fact string
		set        capitest.SetChange
		related    relatedObjectsChange
		want       any
	}{
		{fact: "Now", want: capitest.Noon},
		{fact: "NameSeed", want: uint64(7)},
		{fact: "Replicas", want: 3},
		{name: "not set", fact: "Replicas", set: withoutReplicas, want: 0},
		{name: "the document's default", fact: "DeletionOrder", want: scale.DeletionOrder("")},
		{fact: "DeletionOrder", set: withDeletionOrder(clusterv1.OldestMachineSetDeletionOrder), want: scale.OldestFirst},
		{fact: "DeletionOrder", set: withDeletionOrder(clusterv1.NewestMachineSetDeletionOrder), want: scale.NewestFirst},
		{fact: "DeletionOrder", set: withDeletionOrder(clusterv1.RandomMachineSetDeletionOrder), want: scale.RandomOrder},
		{
			name: "in seconds",
			fact: "MinReadyDuration",
			set:  func(s *clusterv1.MachineSet) { s.Spec.Template.Spec.MinReadySeconds = new(int32(90)) },
			want: 90 * time.Second,
		},
		{fact: "Deleting", set: capitest.AsDeletingObject[*clusterv1.MachineSet], want: true},
		{fact: "Orphaning", set: func(s *clusterv1.MachineSet) {
			capitest.AsDeletingObject(s)
			s.Finalizers = append(s.Finalizers, "orphan")
		}, want: true},
		{name: "foreground deletion", fact: "Orphaning", set: func(s *clusterv1.MachineSet) {
			capitest.AsDeletingObject(s)
			s.Finalizers = append(s.Finalizers, "foregroundDeletion")
		}, want: false},
		{fact: "HasFinalizer", want: true},
		{
			name: "that of others",
			fact: "HasFinalizer",
			set:  func(s *clusterv1.MachineSet) { s.Finalizers = []string{clusterv1.MachineSetFinalizer} },
			want: false,
		},
		{fact: "Generation", want: int64(1)},
		{fact: "ObservedGeneration", set: func(s *clusterv1.MachineSet) { s.Status.ObservedGeneration = 7 }, want: int64(7)},

		{name: "fine", fact: "InvalidReason", want: ""},
		{name: "no size", fact: "InvalidReason", set: withoutReplicas, want: "Waiting for spec.replicas set"},
		{
			name: "unreadable",
			fact: "InvalidReason",
			set:  capitest.WithSelector(*observetest.InvalidSelector()),
			want: `the selector cannot be read: "Nonsense" is not a valid label selector operator`,
		},
		{
			name: "of other labels",
			fact: "InvalidReason",
			set:  capitest.WithSelector(metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}),
			want: invalid,
		},
		{
			name: "of a label that only machines get",
			fact: "InvalidReason",
			set: capitest.WithSelector(
				metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineSetNameLabel: "s"}},
			),
			want: "",
		},
		{
			name: "an empty one is not invalid",
			fact: "InvalidReason",
			set:  capitest.WithSelector(metav1.LabelSelector{}),
			want: "",
		},
		{name: "another controller at work", fact: "InvalidReason", set: func(s *clusterv1.MachineSet) {
			s.Finalizers = append(s.Finalizers, clusterv1.MachineSetFinalizer)
		}, want: "another controller reconciles this MachineSet: it has added the finalizer cluster.x-k8s.io/machineset; install the admission policy of Millwright, then remove this finalizer"},
		{
			name: "another controller before Millwright",
			fact: "InvalidReason",
			set:  func(s *clusterv1.MachineSet) { s.Finalizers = []string{clusterv1.MachineSetFinalizer} },
			want: "",
		},
		{
			name: "an object instead of a template",
			fact: "InvalidReason",
			set:  func(s *clusterv1.MachineSet) { s.Spec.Template.Spec.InfrastructureRef.Kind = "ExampleMachine" },
			want: "the template of the machines refers to a ExampleMachine, which is no template: all machines would share one object",
		},
		{
			name: "bootstrap data without a reference",
			fact: "InvalidReason",
			set: func(s *clusterv1.MachineSet) {
				s.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{}
			},
			want: "",
		},
		{
			name: "no random characters",
			fact: "InvalidReason",
			set:  withMachineNaming("{{ .machineSet.name }}"),
			want: "spec.machineNaming.template cannot be used: it has no {{ .random }}",
		},
		{
			name: "it cannot be parsed",
			fact: "InvalidReason",
			set:  withMachineNaming("{{ .random"),
			want: "spec.machineNaming.template cannot be used: parse: template: name:1: unclosed action",
		},
		{name: "no size and unreadable", fact: "Orphans", set: func(s *clusterv1.MachineSet) {
			withoutReplicas(s)
			capitest.WithSelector(*observetest.InvalidSelector())(s)
		}, related: orphan(wanted), want: []scale.Orphan{{Name: "o", UID: "uid-o", Version: "900"}}},
		{fact: "SelectsAll", set: capitest.WithSelector(metav1.LabelSelector{}), want: true},
		{
			name: "one that cannot be read",
			fact: "SelectsAll",
			set:  capitest.WithSelector(*observetest.InvalidSelector()),
			want: false,
		},

		{name: "the default", fact: "NameParts", want: []string{"s-", ""}},
		{
			name: "its variables",
			fact: "NameParts",
			set:  withMachineNaming("{{ .cluster.name }}-{{ .machineSet.name }}-{{ .random }}"),
			want: []string{"c-s-", ""},
		},
		{name: "in the middle", fact: "NameParts", set: withMachineNaming("a-{{ .random }}-b"), want: []string{"a-", "-b"}},
		{
			name: "twice",
			fact: "NameParts",
			set:  withMachineNaming("{{ .random }}-{{ .random }}"),
			want: []string{"", "-", ""},
		},
		{name: "one that cannot be used", fact: "NameParts", set: withMachineNaming("{{ .random"), want: []string(nil)},

		{
			name:    "of all whether they match",
			fact:    "Orphans",
			related: orphan(wanted),
			want:    []scale.Orphan{{Name: "o", UID: "uid-o", Version: "900", MatchesSelector: true}},
		},
		{
			name:    "and those that are being deleted",
			fact:    "Orphans",
			related: orphan(nil, capitest.AsDeletingObject),
			want:    []scale.Orphan{{Name: "o", UID: "uid-o", Version: "900"}},
		},
		{
			name:    "not one that is being deleted, nor one of another set",
			fact:    "ReleasedMachineCount",
			related: orphan(wanted, withReleasedByAnnotation("uid-s"), capitest.AsDeletingObject),
			want:    0,
		},
		{
			name:    "of another set",
			fact:    "ReleasedMachineCount",
			related: orphan(wanted, withReleasedByAnnotation("uid-x")),
			want:    0,
		},
		{fact: "ReleasedMachineCount", related: orphan(wanted, withReleasedByAnnotation("uid-s")), want: 1},
		{
			name:    "an unreadable selector matches none",
			fact:    "Orphans",
			set:     capitest.WithSelector(*observetest.InvalidSelector()),
			related: orphan(wanted),
			want:    []scale.Orphan{{Name: "o", UID: "uid-o", Version: "900"}},
		},

		{
			name: "itself",
			fact: "PauseSentences",
			set:  withSetAnnotation(clusterv1.PausedAnnotation, ""),
			want: []string{"MachineSet has the cluster.x-k8s.io/paused annotation"},
		},
		{
			name:    "its Cluster",
			fact:    "PauseSentences",
			related: func(a *capi.RelatedObjects) { a.Cluster.Spec.Paused = new(true) },
			want:    []string{"Cluster spec.paused is set to true"},
		},
		{
			name:    "said to be not",
			fact:    "PauseSentences",
			related: func(a *capi.RelatedObjects) { a.Cluster.Spec.Paused = new(false) },
			want:    []string(nil),
		},
		{name: "no Cluster", fact: "PauseSentences", related: withoutCluster, want: []string(nil)},

		{name: "nothing", fact: "StopReasons", want: []string(nil)},
		{
			name: "by the rollout",
			fact: "StopReasons",
			set:  withSetAnnotation(clusterv1.DisableMachineCreateAnnotation, "true"),
			want: []string{"MachineSet has the annotation cluster.x-k8s.io/disable-machine-create"},
		},
		{
			name: "another value",
			fact: "StopReasons",
			set:  withSetAnnotation(clusterv1.DisableMachineCreateAnnotation, "false"),
			want: []string(nil),
		},
		{name: "no Cluster", fact: "StopReasons", related: withoutCluster, want: []string{"Cluster c does not exist"}},
		{
			name:    "its Cluster goes",
			fact:    "StopReasons",
			related: func(a *capi.RelatedObjects) { capitest.AsDeletingObject(a.Cluster) },
			want:    []string{"Cluster c is being deleted"},
		},
		{
			name:    "a template was not read",
			fact:    "StopReasons",
			related: func(a *capi.RelatedObjects) { a.Templates[1] = capi.ProviderObject{Ref: a.Templates[1].Ref} },
			want:    []string{unread},
		},
		{
			name:    "the control plane was not read",
			fact:    "StopReasons",
			related: func(a *capi.RelatedObjects) { a.ControlPlane = &capi.ProviderObject{Ref: a.ControlPlane.Ref} },
			want:    []string{unread},
		},

		{fact: "ClusterAPI.ReportsReconciling", want: true},
		{name: "none", fact: "ClusterAPI.DeletingUpToDateCount", want: 0},
		{
			name: "of three machines one is being deleted and up to date",
			fact: "ClusterAPI.DeletingUpToDateCount",
			related: func(a *capi.RelatedObjects) {
				s := capitest.NewSet("s", 1)
				a.Members = []*clusterv1.Machine{
					capitest.NewMachine("a", s, capitest.AsDeletingObject),
					capitest.NewMachine("b", s),
					capitest.NewMachine(
						"c",
						s,
						capitest.AsDeletingObject,
						capitest.WithoutCondition(clusterv1.MachineUpToDateCondition),
					),
				}
			},
			want: 1,
		},
		{
			fact: "ClusterAPI.MoveTarget",
			set:  withSetAnnotation(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
			want: "next",
		},
		{
			fact: "ClusterAPI.NoMoveReason",
			set:  withSetAnnotation(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
			want: "it does not exist",
		},

		{name: "none", fact: "MissingObjectKinds", want: []string(nil)},
		{
			name: "one",
			fact: "MissingObjectKinds",
			related: func(a *capi.RelatedObjects) {
				a.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
			},
			want: []string{"ExampleMachineTemplate"},
		},
		{name: "both", fact: "MissingObjectKinds", related: func(a *capi.RelatedObjects) {
			a.Templates = []capi.ProviderObject{
				capitest.MissingObject(capitest.NewBootstrapTemplate()),
				capitest.MissingObject(capitest.NewInfrastructureTemplate()),
			}
		}, want: []string{"KubeadmConfigTemplate", "ExampleMachineTemplate"}},
		{
			name:    "not before it was looked for",
			fact:    "MissingObjectKinds",
			related: func(a *capi.RelatedObjects) { a.Templates[0].Object, a.Templates[0].WasRead = nil, false },
			want:    []string(nil),
		},

		{name: "no deployment", fact: "Remediation.HasMaxInFlight", want: false},
		{name: "a deployment without a limit", fact: "Remediation.HasMaxInFlight", related: withDeployment(), want: false},
		{
			name:    "the limit of the deployment",
			fact:    "Remediation.HasMaxInFlight",
			related: withMaxInFlight(intstr.FromInt32(2)),
			want:    true,
		},
		{
			name:    "the limit of the deployment",
			fact:    "Remediation.MaxInFlight",
			related: withMaxInFlight(intstr.FromInt32(2)),
			want:    2,
		},
		{fact: "Remediation.MaxInFlightText", related: withMaxInFlight(intstr.FromString("21%")), want: "21%"},
		{fact: "Remediation.Blocker", set: func(s *clusterv1.MachineSet) {
			s.Labels[clusterv1.MachineDeploymentNameLabel] = "d"
		}, want: "MachineDeployment shop/d does not exist"},
		{name: "the deployment exists", fact: "Remediation.Blocker", related: withDeployment(), want: ""},
		{name: "rounded up", fact: "Remediation.MaxInFlight", related: withMaxInFlight(intstr.FromString("21%")), want: 2},
		{
			name:    "without a rest",
			fact:    "Remediation.MaxInFlight",
			related: withMaxInFlight(intstr.FromString("40%")),
			want:    2,
		},
		{
			name:    "neither number nor percentage",
			fact:    "Remediation.MaxInFlight",
			related: withMaxInFlight(intstr.FromString("many")),
			want:    0,
		},
		{
			name:    "which is a limit, too",
			fact:    "Remediation.HasMaxInFlight",
			related: withMaxInFlight(intstr.FromString("many")),
			want:    true,
		},
		{name: "no policy", fact: "Remediation.Backoff", want: time.Duration(0)},
		{fact: "Remediation.Backoff", related: withPolicy, want: 2 * time.Minute},
		{name: "its default", fact: "Remediation.MaxBackoff", want: time.Hour},
		{fact: "Remediation.MaxBackoff", related: withPolicy, want: 30 * time.Minute},
		{name: "no policy", fact: "Remediation.HasMaxRetry", want: false},
		{fact: "Remediation.HasMaxRetry", related: withPolicy, want: true},
		{fact: "Remediation.MaxRetry", related: withPolicy, want: 3},
		{name: "no policy", fact: "Remediation.MaxSurge", want: 0},
		{name: "a percentage, rounded up", fact: "Remediation.MaxSurge", related: withPolicy, want: 1},
		{
			name: "the deployment owns maxInFlight", fact: "Remediation.HasMaxInFlight",
			related: func(a *capi.RelatedObjects) {
				withDeployment()(a)
				withPolicy(a)
				a.Policy.Spec.Remediation.MaxInFlight = new(intstr.FromInt32(1))
			},
			want: false,
		},
		{fact: "Generations.Failed", set: withSetAnnotation(v1alpha1.AnnotationFailedGenerations, record), want: 2},
		{
			fact: "Generations.Last",
			set:  withSetAnnotation(v1alpha1.AnnotationFailedGenerations, record),
			want: capitest.Noon.Local(),
		},
		{
			name: "nobody can read it",
			fact: "Generations.Failed",
			set:  withSetAnnotation(v1alpha1.AnnotationFailedGenerations, "two"),
			want: 0,
		},
		{name: "another revision", fact: "Remediation.SetIsOutdated", set: outdated, related: withDeployment(), want: true},
		{
			name:    "no revision",
			fact:    "Remediation.SetIsOutdated",
			set:     capitest.WithDeploymentOwner,
			related: withDeployment(),
			want:    true,
		},
		{name: "the current one", fact: "Remediation.SetIsOutdated", set: current, related: withDeployment(), want: false},
		{
			name:    "another revision, and the deployment is paused",
			fact:    "Remediation.SetIsOutdated",
			set:     outdated,
			related: withDeployment(func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) }),
			want:    false,
		},
		{
			name: "another revision, and people delete the machines",
			fact: "Remediation.SetIsOutdated",
			set:  outdated,
			related: withDeployment(func(d *clusterv1.MachineDeployment) {
				d.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
			}),
			want: false,
		},
		{
			name: "another revision, closed, and people delete the machines: the current set creates the substitutes",
			fact: "Remediation.SubstitutesElsewhere",
			set: func(s *clusterv1.MachineSet) {
				outdated(s)
				withSetAnnotation(clusterv1.DisableMachineCreateAnnotation, "true")(s)
			},
			related: withDeployment(),
			want:    "MachineSet has the annotation cluster.x-k8s.io/disable-machine-create",
		},
		{
			name: "the current one, closed by a person",
			fact: "StopReasons",
			set: func(s *clusterv1.MachineSet) {
				current(s)
				withSetAnnotation(clusterv1.DisableMachineCreateAnnotation, "true")(s)
			},
			related: withDeployment(),
			want:    []string{"MachineSet has the annotation cluster.x-k8s.io/disable-machine-create"},
		},
		{
			name: "another revision, and the rollout waits for an approval",
			fact: "Remediation.SetIsOutdated",
			set:  outdated,
			related: withDeployment(func(d *clusterv1.MachineDeployment) {
				d.Status.Conditions = []metav1.Condition{{Type: "Blocked", Status: metav1.ConditionTrue, Reason: "Approval"}}
			}),
			want: false,
		},
		{
			name: "alone",
			fact: "Remediation.SetIsOutdated",
			set:  withSetAnnotation(clusterv1.RevisionAnnotation, "0"),
			want: false,
		},

		{name: "not written yet", fact: "ReportedStatus.Counts", want: (*scale.MachineCounts)(nil)},
		{fact: "ReportedStatus.Counts", set: func(s *clusterv1.MachineSet) {
			s.Status.Replicas = new(int32(4))
			s.Status.ReadyReplicas = new(int32(3))
			s.Status.AvailableReplicas = new(int32(2))
			s.Status.UpToDateReplicas = new(int32(1))
		}, want: &scale.MachineCounts{Replicas: 4, Ready: 3, Available: 2, UpToDate: 1}},
		{
			name: "in a fixed order, without those of others and Blocked",
			fact: "ReportedStatus.Conditions",
			set: func(s *clusterv1.MachineSet) {
				for _, kind := range []string{"Theirs", "ScalingUp", "Blocked", "MachinesCreated"} {
					s.Status.Conditions = append(
						s.Status.Conditions,
						metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "R", Message: "m"},
					)
				}
			},
			want: []scale.Condition{
				{Type: "MachinesCreated", Status: scale.ConditionTrue, Reason: "R", Message: "m"},
				{Type: "ScalingUp", Status: scale.ConditionTrue, Reason: "R", Message: "m"},
			},
		},
		{name: "as many as wanted", fact: "ReportedStatus.PeakReplicas", want: 3},
		{
			name: "more machines",
			fact: "ReportedStatus.PeakReplicas",
			set:  func(s *clusterv1.MachineSet) { s.Spec.Replicas = new(int32(0)) },
			related: func(a *capi.RelatedObjects) {
				s := capitest.NewSet("s", 1)
				a.Members = []*clusterv1.Machine{
					capitest.NewMachine("a", s),
					capitest.NewMachine("b", s, capitest.AsDeletingObject),
				}
			},
			want: 1,
		},
		{fact: "ReportedStatus.ObservedReplicas", want: 3},
	}
	never := map[string]string{
		"Members":                            "TestMemberFacts",
		"ClusterAPI.ReportsReconciling":      "it is true for each set of Cluster API",
		"LastWriteFailure.Deleting":          "the run knows what it was refused",
		"LastWriteFailure.Changing":          "the run knows what it was refused",
		"LastWriteFailure.Message":           "the run knows what it was refused",
		"Preflight.ControlPlane":             "TestPreflightFactsOfTheControlPlane",
		"Preflight.Machines.Version":         "TestPreflightFactsOfTheControlPlane",
		"Preflight.Machines.Kubeadm":         "TestPreflightFactsOfTheControlPlane",
		"Preflight.Settings.Checks":          "TestPreflightFactsOfTheControlPlane",
		"Preflight.Settings.Strict":          "TestPreflightFactsOfTheControlPlane",
		"Preflight.Settings.Skip":            "TestPreflightFactsOfTheControlPlane",
		"Preflight.Settings.RequireReplicas": "TestPreflightFactsOfTheControlPlane",
	}
	for _, name := range []string{
		"ReportedStatus.Overshoot", "ReportedStatus.FailedNames",
	} {
		never[name] = "Cluster API has nothing like it"
	}
	missing := map[string]bool{}
	for _, name := range observetest.FieldNamesWithoutPart("MCM", reflect.TypeFor[scale.Facts]()) {
		missing[name] = never[name] == ""
	}
	plain := capiset.ScaleFacts(
		newCache(),
		&clusterv1.MachineSet{},
		capi.RelatedObjects{Cluster: capitest.NewCluster()},
		time.Time{},
		0,
	)
	for _, row := range rows {
		t.Run(strings.TrimPrefix(row.name+", "+row.fact, ", "), func(t *testing.T) {
			s, related := capitest.NewSet("s", 3), capitest.NewRelatedObjects()
			if row.set != nil {
				row.set(s)
			}
			if row.related != nil {
				row.related(&related)
			}
			assert.Equal(
				t,
				row.want,
				observetest.FieldByName(capiset.ScaleFacts(newCache(), s, related, capitest.Noon, 7), row.fact),
			)
		})
		if !assert.ObjectsAreEqual(row.want, observetest.FieldByName(plain, row.fact)) {
			delete(missing, row.fact)
		}
	}
	for name, lacks := range missing {
		assert.False(t, lacks, "fact %s has no row that shows it", name)
	}
	for name, why := range never {
		if strings.HasPrefix(why, "Cluster API") {
			assert.Zero(
				t,
				observetest.FieldByName(
					capiset.ScaleFacts(newCache(), capitest.NewSet("s", 3), capitest.NewRelatedObjects(), capitest.Noon, 7),
					name,
				),
				name,
			)
		}
	}
}

// A variable that Cluster API does not define is an error. An unknown variable does not become an empty part of the
// name.
func TestUnknownVariablesInANameAreAnError(t *testing.T) {
	for _, template := range []string{"{{ .nobody }}-{{ .random }}", "{{ .cluster.size }}-{{ .random }}", "{{ .machineSet }}{{ .random | nothing }}"} {
		o := capiset.ScaleFacts(
			newCache(),
			capitest.NewSet("s", 3, withMachineNaming(template)),
			capitest.NewRelatedObjects(),
			capitest.Noon,
			7,
		)
		assert.Contains(t, o.InvalidReason, "spec.machineNaming.template cannot be used", template)
		assert.Empty(t, scale.Decide(o).Create)
	}
}

func TestPreflightFactsOfTheControlPlane(t *testing.T) {
	foreign := func(change ...capitest.ProviderObjectChange) relatedObjectsChange {
		return func(a *capi.RelatedObjects) {
			a.ControlPlane = new(capitest.FoundObject(capitest.NewControlPlane(change...)))
		}
	}
	topology := func(version string, annotations map[string]string) relatedObjectsChange {
		return func(a *capi.RelatedObjects) {
			a.Cluster.Spec.Topology.Version, a.Cluster.Annotations = version, annotations
		}
	}
	step := func(version string) map[string]string {
		return map[string]string{clusterv1.ClusterTopologyUpgradeStepAnnotation: version}
	}
	fine := preflight.ControlPlane{
		Kind:      "KubeadmControlPlane",
		Name:      "shop/cp",
		Version:   "v1.31.2",
		Replicas:  3,
		Available: 3,
	}
	but := func(change func(*preflight.ControlPlane)) *preflight.ControlPlane {
		c := fine
		change(&c)
		return &c
	}
	versions := func(all ...string) []any {
		var list []any
		for _, v := range all {
			list = append(list, map[string]any{"version": v, "replicas": int64(1)})
		}
		return list
	}
	for _, row := range []struct {
		name    string
		related relatedObjectsChange
		want    *preflight.ControlPlane
	}{
		{"in order", foreign(), &fine},
		{"none", func(a *capi.RelatedObjects) { a.ControlPlane = nil }, nil},
		{"without a version", foreign(capitest.WithField(nil, "spec", "version")), nil},
		{"not there", func(a *capi.RelatedObjects) { a.ControlPlane = new(capitest.MissingObject(capitest.NewControlPlane())) }, &preflight.ControlPlane{Kind: "KubeadmControlPlane", Name: "shop/cp", Absent: true}},
		{"not read yet", func(a *capi.RelatedObjects) { a.ControlPlane = &capi.ProviderObject{Ref: a.ControlPlane.Ref} }, &preflight.ControlPlane{Kind: "KubeadmControlPlane", Name: "shop/cp", Unread: true}},

		{"no version reported", foreign(capitest.WithField(nil, "status")), but(func(c *preflight.ControlPlane) { c.Provisioning, c.Available = true, 0 })},
		{"an empty list of versions", foreign(capitest.WithField([]any{}, "status", "versions")), but(func(c *preflight.ControlPlane) { c.Provisioning = true })},
		{"a part has the old version", foreign(capitest.WithField(versions("v1.30.0", "v1.31.2"), "status", "versions")), but(func(c *preflight.ControlPlane) { c.Upgrading = true })},
		{"all have the old version", foreign(capitest.WithField(versions("v1.30.0"), "status", "versions")), but(func(c *preflight.ControlPlane) { c.Upgrading = true })},
		{"upgrading, by status.version of the former contract", foreign(capitest.WithField(nil, "status", "versions"), capitest.WithField("v1.30.0", "status", "version")), but(func(c *preflight.ControlPlane) { c.Upgrading = true })},
		{"a newer patch version, as of a managed control plane", foreign(capitest.WithField(versions("v1.31.4"), "status", "versions")), &fine},
		{"a vendor's name of a newer version", foreign(capitest.WithField(versions("v1.31.4-eks-abc"), "status", "versions")), &fine},
		{"the same version without a v", foreign(capitest.WithField(versions("1.31.2"), "status", "versions")), &fine},
		{"a wanted version without a patch version", foreign(capitest.WithField("v1.31", "spec", "version"), capitest.WithField(versions("v1.31.4"), "status", "versions")), but(func(c *preflight.ControlPlane) { c.Version = "v1.31" })},
		{"in order, by status.version of the former contract", foreign(capitest.WithField(nil, "status", "versions"), capitest.WithField("v1.31.2", "status", "version")), &fine},
		{"the list of versions goes before status.version", foreign(capitest.WithField("v1.30.0", "status", "version")), &fine},

		{"replicas: of the contract", foreign(capitest.WithField(int64(2), "status", "availableReplicas")), but(func(c *preflight.ControlPlane) { c.Available = 2 })},
		{"replicas: of the former contract", foreign(capitest.WithField(nil, "status", "availableReplicas"), capitest.WithField(int64(1), "status", "readyReplicas")), but(func(c *preflight.ControlPlane) { c.Available = 1 })},
		{"replicas: the present contract goes first", foreign(capitest.WithField(int64(2), "status", "availableReplicas"), capitest.WithField(int64(1), "status", "readyReplicas")), but(func(c *preflight.ControlPlane) { c.Available = 2 })},
		{"replicas: not counted", foreign(capitest.WithField(nil, "spec", "replicas")), but(func(c *preflight.ControlPlane) { c.Replicas, c.Available = 0, 0 })},
		{"replicas: no number", foreign(capitest.WithField("three", "spec", "replicas")), but(func(c *preflight.ControlPlane) { c.Replicas, c.Available = 0, 0 })},

		{"the version of the topology", topology("v1.31.2", nil), but(func(c *preflight.ControlPlane) { c.Topology = true })},
		{"another version of the topology", topology("v1.33.0", nil), but(func(c *preflight.ControlPlane) { c.Topology, c.Pending = true, "v1.33.0" })},
		{"the step of the upgrade", topology("v1.33.0", step("v1.32.0")), but(func(c *preflight.ControlPlane) { c.Topology, c.Pending = true, "v1.32.0" })},
		{"the step is reached", topology("v1.33.0", step("v1.31.2")), but(func(c *preflight.ControlPlane) { c.Topology = true })},
		{"an annotation without a topology", func(a *capi.RelatedObjects) { a.Cluster.Annotations = step("v1.32.0") }, &fine},
	} {
		t.Run(row.name, func(t *testing.T) {
			related := capitest.NewRelatedObjects()
			row.related(&related)
			assert.Equal(
				t,
				row.want,
				capiset.ScaleFacts(newCache(), capitest.NewSet("s", 1), related, capitest.Noon, 0).Preflight.ControlPlane,
			)
		})
	}
	t.Run("the failure names the step", func(t *testing.T) {
		related := capitest.NewRelatedObjects()
		topology("v1.33.0", step("v1.32.0"))(&related)
		c := capitest.NewOfflineCache(
			capitest.DefaultSettings,
			cache.PreflightConfig{Checks: []string{preflight.CheckAll}, IsStrict: true},
		)
		failures := preflight.Decide(capiset.ScaleFacts(c, capitest.NewSet("s", 1), related, capitest.Noon, 0).Preflight)
		assert.Equal(t, []preflight.CheckFailure{
			{
				Check: "ControlPlaneIsStable",
				Why:   `KubeadmControlPlane shop/cp has a pending version upgrade to v1.32.0 ("ControlPlaneIsStable" preflight check failed)`,
			},
		}, failures)
	})
}

func TestPreflightFactsOfMachinesAndSettings(t *testing.T) {
	const skip = clusterv1.MachineSetSkipPreflightChecksAnnotation
	configured := capitest.NewOfflineCache(
		capitest.DefaultSettings,
		cache.PreflightConfig{Checks: []string{"KubeadmVersionSkew"}, RequiresReplicas: true},
	)
	onTemplate := func(index int, value string) relatedObjectsChange {
		return func(a *capi.RelatedObjects) { a.Templates[index].Object.SetAnnotations(map[string]string{skip: value}) }
	}
	for _, row := range []struct {
		name    string
		set     capitest.SetChange
		related relatedObjectsChange
		skip    string
		version string
		kubeadm bool
	}{
		{name: "kubeadm", version: "v1.31.2", kubeadm: true},
		{name: "another bootstrap provider of that kind", set: func(s *clusterv1.MachineSet) {
			s.Spec.Template.Spec.Bootstrap.ConfigRef.APIGroup = "bootstrap.example.com"
		}, version: "v1.31.2"},
		{name: "another kind", set: func(s *clusterv1.MachineSet) { s.Spec.Template.Spec.Bootstrap.ConfigRef.Kind = "OtherTemplate" }, version: "v1.31.2"},
		{name: "no version", set: func(s *clusterv1.MachineSet) { s.Spec.Template.Spec.Version = "" }, kubeadm: true},
		{name: "by the set", set: withSetAnnotation(skip, "All"), skip: "All", version: "v1.31.2", kubeadm: true},
		{name: "by the bootstrap template", related: onTemplate(0, "All"), skip: "All", version: "v1.31.2", kubeadm: true},
		{name: "not by the infrastructure template", related: onTemplate(1, "All"), version: "v1.31.2", kubeadm: true},
		{name: "the set goes before the template", set: withSetAnnotation(skip, "KubeadmVersionSkew"), related: onTemplate(0, "All"), skip: "KubeadmVersionSkew", version: "v1.31.2", kubeadm: true},
		{name: "a template that does not exist", related: func(a *capi.RelatedObjects) { a.Templates[0].Object = nil }, version: "v1.31.2", kubeadm: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, related := capitest.NewSet("s", 1), capitest.NewRelatedObjects()
			if row.set != nil {
				row.set(s)
			}
			if row.related != nil {
				row.related(&related)
			}
			o := capiset.ScaleFacts(configured, s, related, capitest.Noon, 0).Preflight
			assert.Equal(t, preflight.MachineFacts{Version: row.version, Kubeadm: row.kubeadm}, o.Machines)
			assert.Equal(t, preflight.Settings{
				Checks: []string{"KubeadmVersionSkew"}, Strict: true, RequireReplicas: true, Skip: row.skip,
			}, o.Settings)
		})
	}
}

// ScaleFacts must not change its arguments, because they belong to caches.
func TestScaleFactsChangesNoArgument(t *testing.T) {
	s := capitest.NewSet("s", 1)
	related := capitest.NewRelatedObjects(
		capitest.NewMachine(
			"m",
			s,
			capitest.AsUnhealthyMachine,
			capitest.WithManagedFields(capi.MachineSetFieldManager, "x", "y"),
		),
	)
	related.Deployment = capitest.NewDeployment()
	was, wasMember, wasTemplate := s.DeepCopy(), related.Members[0].DeepCopy(), related.Templates[0].Object.DeepCopy()
	capiset.ScaleFacts(newCache(), s, related, capitest.Noon, 0)
	assert.Equal(t, was, s)
	assert.Equal(t, wasMember, related.Members[0])
	assert.Equal(t, wasTemplate, related.Templates[0].Object)
}
