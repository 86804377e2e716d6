package set_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// Each row tests one fact about a machine, with a value that differs from the fact's value for a new machine.
func TestScaleFactsOfAMachine(t *testing.T) {
	byDeployment := func(s *v1alpha1.MachineSet) {
		s.OwnerReferences = observetest.ControllerReferences(observetest.NewDeployment("d"), "MachineDeployment")
	}
	selecting := func(selector *metav1.LabelSelector) observetest.SetChange {
		return func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector }
	}
	moreLabels := func(s *v1alpha1.MachineSet) { s.Spec.Template.Labels["tier"] = "front" }
	is := observetest.WithPhase
	assertMemberRows(t, []memberRow{
		{fact: "Name", want: "m"},
		{fact: "UID", want: "uid-m"},
		{fact: "Version", machineChange: observetest.WithResourceVersion("9"), want: "9"},
		{
			fact:          "CreatedAt",
			machineChange: func(m *v1alpha1.Machine) { m.CreationTimestamp = observetest.MinutesBeforeNoon(5) },
			want:          observetest.MinutesBeforeNoon(5).Time,
		},

		{name: "its labels do", fact: "MatchesSelector", want: true},
		{name: "relabelled", fact: "MatchesSelector", machineChange: observetest.WithAppLabel("api"), want: false},
		{
			name:          "an empty selector lets go of nothing",
			fact:          "MatchesSelector",
			machineChange: observetest.WithAppLabel("api"),
			setChange:     selecting(&metav1.LabelSelector{}),
			want:          true,
		},
		{name: "all that it wants", fact: "MCM.Labelled", want: true},
		{name: "one is missing", fact: "MCM.Labelled", setChange: moreLabels, want: false},
		{
			name:      "by the template and not by the selector",
			fact:      "MCM.Labelled",
			setChange: selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}),
			want:      true,
		},
		{fact: "Deleting", machineChange: observetest.AsDeletingMachine, want: true},
		{
			fact:          "DeletingSince",
			machineChange: func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(observetest.MinutesBeforeNoon(2)) },
			want:          observetest.MinutesBeforeNoon(2).Time,
		},
		{fact: "Drift", setChange: moreLabels, want: "labels"},
		{
			name:       "as its deployment wants",
			fact:       "UpToDate",
			deployment: observetest.NewDeployment("d"),
			want:       scale.ConditionTrue,
		},
		{fact: "UpToDate", deployment: observetest.NewDeployment("d", observetest.WithNewClass), want: scale.ConditionFalse},
		{
			name:          "of another class than its set's template",
			fact:          "UpToDate",
			machineChange: withOldClass,
			want:          scale.ConditionFalse,
		},
		{
			name:          "of another class than its set's template",
			fact:          "UpToDate",
			machineChange: withOldClass,
			deployment:    observetest.NewDeployment("d"),
			want:          scale.ConditionFalse,
		},
		{
			name:          "its kind is changed in place",
			fact:          "UpToDate",
			machineChange: func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "Other" },
			want:          scale.ConditionTrue,
		},
		{
			name:          "of another class",
			fact:          "OutdatedReason",
			machineChange: withOldClass,
			want:          "MachineSet s has class small, the machine has class old",
		},
		{
			fact:       "OutdatedReason",
			deployment: observetest.NewDeployment("d", observetest.WithNewClass),
			want:       "MachineDeployment d has another template",
		},

		{fact: "Phase", machineChange: is(v1alpha1.MachinePending), want: "Pending"},
		{fact: "MCM.Failed", machineChange: is(v1alpha1.MachineFailed), want: true},
		{
			fact:          "MCM.LastOperationFailed",
			machineChange: func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed },
			want:          true,
		},
		{fact: "MCM.CreationFailing", machineChange: is(v1alpha1.MachineCrashLoopBackOff), want: true},
		{fact: "Updating", machineChange: is(v1alpha1.MachineInPlaceUpdating), want: true},
		{
			name:          "handed over",
			fact:          "MovedForUpdate",
			machineChange: func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = "successful" },
			want:          true,
		},
		{
			name:          "another result",
			fact:          "MovedForUpdate",
			machineChange: func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = "failed" },
			want:          false,
		},
		{fact: "Joined", machineChange: is(v1alpha1.MachineRunning), want: true},
		{fact: "NodeState", machineChange: is(v1alpha1.MachineUnknown), want: scale.NodeUnhealthy},
		{fact: "Ready", machineChange: is(v1alpha1.MachineRunning), want: scale.ConditionTrue},
		{fact: "NotReadyReason", machineChange: is(v1alpha1.MachinePending), want: "phase Pending"},
		{
			name:          "since its node is",
			fact:          "ReadySince",
			machineChange: observetest.WithReadyTime(observetest.MinutesBeforeNoon(4)),
			want:          observetest.MinutesBeforeNoon(4).Time,
		},
		{
			name:          "without a cluster to join",
			fact:          "MCM.ServesWithoutNode",
			machineChange: is(v1alpha1.MachineAvailable),
			want:          true,
		},
		{
			name:          "with one it has to join",
			fact:          "MCM.ServesWithoutNode",
			machineChange: is(v1alpha1.MachineRunning),
			want:          false,
		},
		{
			fact:          "MCM.CreationProblem.Reason",
			machineChange: observetest.WithBlockedCreation("InstanceReady", "ResourceExhausted"),
			want:          "ResourceExhausted",
		},
		{
			name:          "without the machine's name, which others add",
			fact:          "MCM.CreationProblem.Message",
			machineChange: observetest.WithBlockedCreation("InstanceReady", "ResourceExhausted"),
			want:          "no ResourceExhausted",
		},

		{fact: "MCM.Replaceable", machineChange: is(v1alpha1.MachineFailed), want: true},
		{fact: "MCM.Preserved", machineChange: observetest.AsPreservedMachine, want: true},
		{
			fact:          "MCM.PreservedUntil",
			machineChange: observetest.WithPreservationEnd(observetest.PreservationEnd),
			want:          observetest.PreservationEnd.Time,
		},
		{
			fact:          "MCM.AutoPreserved",
			machineChange: observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveAuto),
			want:          true,
		},
		{
			name:          "by a person",
			fact:          "MCM.AutoPreserved",
			machineChange: observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveNow),
			want:          false,
		},
		{
			name:          "the value false",
			fact:          "MCM.PreservationForbidden",
			machineChange: observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveFalse),
			want:          true,
		},
		{
			name:          "its set has asked once",
			fact:          "MCM.PreservationForbidden",
			machineChange: observetest.WithAnnotation(v1alpha1.AnnotationAutoPreserved, "2026-01-01T11:00:00Z"),
			want:          true,
		},
		{
			name:          "asks itself",
			fact:          "MCM.PreservationForbidden",
			machineChange: observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveWhenFailed),
			want:          false,
		},

		{fact: "DeleteFirst", machineChange: observetest.WithAnnotation(v1alpha1.AnnotationDeleteMachine, ""), want: true},
		{name: "none", fact: "Priority", want: 3},
		{fact: "Priority", machineChange: observetest.WithAnnotation(v1alpha1.AnnotationMachinePriority, "1"), want: 1},
		{
			name:          "marked",
			fact:          "MCM.ChosenAt",
			machineChange: observetest.WithAnnotation(v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T11:59:00Z"),
			want:          observetest.MinutesBeforeNoon(1).Time,
		},
		{
			name:          "no time",
			fact:          "MCM.ChosenAt",
			machineChange: observetest.WithAnnotation(v1alpha1.AnnotationMarkedForDeletionTime, "soon"),
			want:          time.Time{},
		},
		{
			fact:          "Healthy",
			machineChange: observetest.WithAnnotation(v1alpha1.AnnotationRemediateMachine, ""),
			want:          scale.ConditionFalse,
		},
		{fact: "Marked", machineChange: observetest.WithAnnotation(v1alpha1.AnnotationRemediateMachine, ""), want: true},
		{fact: "Urgent", machineChange: observetest.WithAnnotation(v1alpha1.AnnotationRemediateMachine, ""), want: true},
		{
			name:       "a deployment above says nothing of it",
			fact:       "Marked",
			setChange:  byDeployment,
			deployment: observetest.NewDeployment("d"),
			want:       false,
		},
	})
}

// memberRow is a test row for one fact about a machine, derived from the machine, its set and its deployment.
type memberRow struct {
	name          string
	fact          string
	machineChange func(*v1alpha1.Machine)
	setChange     observetest.SetChange
	deployment    *v1alpha1.MachineDeployment
	want          any
}

// assertMemberRows checks each row, and checks that each fact has a row.
func assertMemberRows(t *testing.T, rows []memberRow) {
	missing := map[string]bool{}
	for _, name := range observetest.FieldNamesWithoutPart("ClusterAPI", reflect.TypeFor[scale.Member]()) {
		missing[name] = true
	}
	for _, row := range rows {
		t.Run(strings.TrimPrefix(row.name+", "+row.fact, ", "), func(t *testing.T) {
			m, s := observetest.MachineFromTemplate(), observetest.NewSet("s")
			if row.machineChange != nil {
				row.machineChange(m)
			}
			if row.setChange != nil {
				row.setChange(s)
			}
			before := m.DeepCopy()
			assert.Equal(t, row.want, observetest.FieldByName(observetest.MemberFacts(m, s, row.deployment), row.fact))
			assert.Equal(t, before, m, "what is looked at stays as it is")
		})
		if !reflect.ValueOf(row.want).IsZero() {
			delete(missing, row.fact)
		}
	}
	for name, lacks := range missing {
		assert.False(t, lacks, "fact %s has no row that shows it", name)
	}
}

// namesOfMachinesToDelete returns the names of the machines that a set would delete next.
func namesOfMachinesToDelete(s *v1alpha1.MachineSet, machines ...*v1alpha1.Machine) []string {
	doomed := []string{}
	for _, target := range scale.Decide(set.ScaleFacts(s, set.RelatedObjects{Members: machines}, observetest.Noon, 0)).Delete {
		doomed = append(doomed, target.Name)
	}
	return doomed
}

// A set deletes each failed machine that it may replace, and deletes it once.
func TestFailedMachinesToReplace(t *testing.T) {
	expired := metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	terminating := observetest.WithPhase(v1alpha1.MachineTerminating)
	type row struct {
		name    string
		machine *v1alpha1.Machine
		alone   bool // a set without a deployment replaces the machine
		below   bool // a set with a deployment replaces the machine
		going   bool // the machine is already being deleted
	}
	for _, row := range []row{
		{"failed", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed)), true, false, false},
		{"failed and granted", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithReplacementGrant), true, true, false},
		{"failed and preserved", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.AsPreservedMachine), false, false, false},
		{"failed, granted and preserved", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithReplacementGrant, observetest.AsPreservedMachine), false, false, false},
		{"nobody has judged yet whether its time is over", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithPreservationEnd(expired)), false, false, false},
		{"asks to be preserved now", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveNow)), false, false, false},
		{"asks to be preserved when it fails", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveWhenFailed)), false, false, false},
		{"nobody wants it", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveFalse)), true, false, false},
		{"its set wants it", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithPreserveAnnotation(v1alpha1.ValuePreserveAuto)), false, false, false},
		{"failed and being deleted", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineFailed), observetest.WithReplacementGrant, observetest.AsDeletingMachine), true, true, true},
		{"failed, and its phase says so no more", observetest.MachineFromTemplate(terminating, observetest.WithReplacementDue, observetest.WithReplacementGrant, observetest.AsDeletingMachine), true, true, true},
		{"being deleted, and was well", observetest.MachineFromTemplate(terminating, observetest.AsDeletingMachine), false, false, true},
		{"failed, and deleted by a person", observetest.MachineFromTemplate(terminating, observetest.WithReplacementDue, observetest.AsDeletingMachine), true, false, true},
		{"due", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithReplacementDue), false, false, false},
		{"due and granted: it will fail", observetest.MachineFromTemplate(observetest.WithPhase(v1alpha1.MachineUnknown), observetest.WithReplacementDue, observetest.WithReplacementGrant), false, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			for s, want := range map[*v1alpha1.MachineSet]bool{observetest.NewSet("alone"): row.alone, observetest.NewSet("below", observetest.WithDeploymentOwner): row.below} {
				s.Spec.Replicas = 1
				doomed := []string{}
				if want && !row.going {
					doomed = []string{"m"}
				}
				assert.Equal(t, want, observetest.MemberFacts(row.machine, s, nil).MCM.Replaceable, s.Name)
				assert.Equal(t, doomed, namesOfMachinesToDelete(s, row.machine), s.Name)
			}
		})
	}
}

func withOldClass(m *v1alpha1.Machine) { m.Spec.Class.Name = "old" }
