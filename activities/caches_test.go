package activities_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/activities/activitiestest"
	"millwright/activities/class"
	"millwright/activities/deployment"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/activities/orphan"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/health"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// twoObjectsOfEachKind returns two objects of each kind; one of them is being deleted, and its name begins with old-.
// The objects have values in all fields that an activity could change in place.
func twoObjectsOfEachKind() []runtime.Object {
	finalizers := []string{activitiestest.BackupFinalizer, v1alpha1.FinalizerMachine, "example.com/other"}
	since := metav1.Unix(1_700_000_000, 0)
	d := activitiestest.NewDeployment("d", 5)
	old := activitiestest.NewDeployment("old-d", 0, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment])
	for _, x := range []*v1alpha1.MachineDeployment{d, old} {
		x.Finalizers = finalizers
		x.Annotations = map[string]string{"note": "d", v1alpha1.AnnotationRevision: "7"}
		x.Status.Replacements = []v1alpha1.MachineReplacement{
			activitiestest.NewReplacementRecord("gone"),
			activitiestest.NewReplacementRecord("m"),
		}
		x.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "z"}}
		for _, kind := range []v1alpha1.MachineDeploymentConditionType{"Available", "SelectorOverlap", "ReplicaFailure", "ReplacementHeld", "Progressing"} {
			x.Status.Conditions = append(
				x.Status.Conditions,
				v1alpha1.MachineDeploymentCondition{Type: kind, Status: "Unknown", Message: "once"},
			)
		}
	}
	old.Spec.Selector.MatchLabels = map[string]string{"app": "old"}
	policy := activitiestest.NewRolloutPolicy(
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: new(int32(1))}},
	)
	d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 7, FailedMachines: []string{"z", "a"}}
	s := activitiestest.NewOwnedSet(d, "s", 3, activitiestest.WithScaleUpDisabled)
	other := activitiestest.NewOwnedSet(d, "s-2", 0, activitiestest.WithFormerTemplate, activitiestest.WithScaleUpDisabled)
	oldSet := activitiestest.NewMachineSet("old-s", 0, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineSet])
	for _, x := range []*v1alpha1.MachineSet{s, other, oldSet} {
		x.Finalizers = finalizers
		x.Annotations = map[string]string{
			"note":                             "s",
			v1alpha1.AnnotationRevision:        "7",
			v1alpha1.AnnotationRevisionHistory: "1,3",
		}
		x.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "z"}, {Name: "a"}}
		x.Status.Conditions = []v1alpha1.MachineSetCondition{
			{
				Type:    v1alpha1.MachineSetReplicaFailure,
				Status:  "True",
				Reason:  "Some",
				Message: "once",
			},
			{Type: v1alpha1.MachineSetFrozen, Status: "False"},
		}
	}
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithOwner[*v1alpha1.Machine](s),
		activitiestest.WithNode,
		setNodeTemplate,
	)
	oldMachine := activitiestest.NewMachine("old-m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
	for _, x := range []*v1alpha1.Machine{m, oldMachine} {
		x.Finalizers = finalizers
		x.Annotations = map[string]string{"note": "m", v1alpha1.AnnotationMarkedForDeletionTime: "2026-01-01T00:00:00Z"}
		x.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		x.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: activitiestest.OldTime}
		x.Status.CreationStopped = &v1alpha1.CreationStopped{Since: &since}
		x.Status.Addresses = []corev1.NodeAddress{
			{Type: "InternalIP", Address: "10.0.0.2"},
			{Type: "InternalIP", Address: "10.0.0.1"},
		}
		x.Status.Conditions = []corev1.NodeCondition{
			{
				Type:   v1alpha1.MachineInstanceReady,
				Status: "True",
			},
			{Type: "Ready", Status: "Unknown"},
			{Type: v1alpha1.MachineReplacementDue, Status: "True", Reason: "HealthTimeout"},
		}
	}
	m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
	due := activitiestest.NewMachine(
		"due",
		activitiestest.WithOwner[*v1alpha1.Machine](s),
		activitiestest.WithPhase(v1alpha1.MachineFailed),
		activitiestest.WithReplacementDue("CreationTimeout"),
	)
	n := activitiestest.NewNode(setForeignNodeMetadata, func(n *corev1.Node) {
		n.Finalizers = []string{activitiestest.BackupFinalizer, v1alpha1.FinalizerNode, "example.com/other"}
	})
	n.Status.Conditions[0].LastHeartbeatTime = since
	oldClass := activitiestest.NewClass(
		activitiestest.WithDeletionTimestamp[*v1alpha1.MachineClass],
		func(c *v1alpha1.MachineClass) { c.Name, c.UID, c.Finalizers = "old-c", "uid-old-c", finalizers },
	)
	return []runtime.Object{
		policy,
		d,
		old,
		s,
		other,
		oldSet,
		m,
		oldMachine,
		due,
		n,
		activitiestest.NewClass(activitiestest.WithVirtualCapacity, activitiestest.WithSecretRefs("a")),
		oldClass,
		activitiestest.NewSecretMetadata("a", activitiestest.BackupFinalizer),
		activitiestest.NewSecretMetadata("unused", activitiestest.BackupFinalizer, v1alpha1.FinalizerSecret),
	}
}

func setNodeTemplate(m *v1alpha1.Machine) {
	m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
	m.Spec.NodeTemplateSpec.Annotations = map[string]string{"team": "shop"}
	m.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "only", Value: "web", Effect: "NoSchedule"}}
}

func setForeignNodeMetadata(n *corev1.Node) {
	n.Labels = map[string]string{"pool": "mine", v1alpha1.LabelCandidateForUpdate: "true"}
	n.Annotations = map[string]string{
		"volumes":                                 "true",
		v1alpha1.AnnotationScaleDownDisabled:      "true",
		v1alpha1.AnnotationScaleDownDisabledByMCM: "true",
	}
	n.Spec.Taints = []corev1.Taint{
		{
			Key:    v1alpha1.TaintPreferNoSchedule,
			Effect: "PreferNoSchedule",
		},
		{Key: "only", Value: "mine", Effect: "NoSchedule"},
		{Key: "theirs", Effect: "NoSchedule"},
	}
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")}
}

// inputsByActivity returns the inputs of the activities that need more than a kube.ReadInput, by activity name.
func inputsByActivity() map[string][]any {
	m, s, d := activitiestest.NewMachine("m"), activitiestest.NewMachineSet("s", 3), activitiestest.NewDeployment("d", 5)
	marked := []rollout.ObjectTarget{{Name: "m", UID: "uid-m", Version: "900", Node: "n"}}
	current := []rollout.ObjectTarget{{Name: "s", UID: "uid-s", Version: "900"}}
	report := machine.Report{
		Read:           activitiestest.NewReadInput(m),
		Phase:          "Unknown",
		LastKnownState: "x",
		Clock:          &health.UnhealthyTimes{RecoveredAt: activitiestest.OldTime.Time},
		InstanceGone:   true,
		Operation:      &machine.LastOperation{Type: "HealthCheck"},
		Step:           &kube.Step{Name: "x"},
		Addresses:      []kube.Address{{Type: "InternalIP", Address: "10.0.0.3"}},
		Conditions: []machine.Condition{
			{Type: "InstanceReady", Reason: "Some"},
			{Type: "ReplacementDue", Reason: "Recovered"},
		},
	}
	batch := set.MachineBatch{
		Set:      activitiestest.NewRef(s),
		Machines: []scale.MachineTarget{{Name: "m", UID: "uid-m", Version: "900"}},
	}
	return map[string][]any{
		"RequestPreservation": {batch},
		"AdoptMachines":       {batch},
		"ReleaseMachines":     {batch},
		"UnmarkMachines":      {batch},
		"SyncMachines":        {batch},
		"DecideSet":           {activitiestest.NewSetInput(s)},
		"MarkInPlace":         {machine.InPlaceCondition{Read: activitiestest.NewReadInput(m), Reason: "Some", Message: "x"}},
		"RecordInstance": {
			machine.InstanceRecord{Read: activitiestest.NewReadInput(m), ProviderID: "fake:///new", NodeName: "new"},
			machine.InstanceRecord{Read: activitiestest.NewReadInput(m), ProviderID: "fake:///n", NodeName: "n"},
		},
		"RecordCreateIntent": {report},
		"DecideAfterCreate":  {report},
		"ReportMachine":      {report, machine.Report{Read: activitiestest.NewReadInput(m), Stopped: true}},
		"ReleaseMachine": {
			machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(activitiestest.NewMachine("old-m"))},
		},
		"HoldDrain": {
			drain.HoldInput{Read: activitiestest.NewReadInput(activitiestest.NewMachine("old-m")), Why: "x"},
		},
		"DecideDrain": {
			drain.Input{ReadInput: activitiestest.NewReadInput(m)},
			drain.Input{ReadInput: activitiestest.NewReadInput(activitiestest.NewMachine("old-m"))},
		},
		"EvictPods":   {drain.Eviction{Machine: activitiestest.NewRef(m), NodeName: "n", Means: "Evict"}},
		"AwaitDetach": {drain.DetachWait{Machine: activitiestest.NewRef(m), NodeName: "n"}},
		"ApplyRequest": {
			activitiestest.NewMachineRequest(
				m,
				request.CommandOrder{Command: request.Preserve},
			),
			activitiestest.NewMachineRequest(m, request.CommandOrder{Command: request.Hold, Reason: "x", ValidInAdvance: true}),
			activitiestest.NewDeploymentRequest(
				d,
				request.CommandOrder{Command: request.Pause},
			),
			activitiestest.NewDeploymentRequest(d, request.CommandOrder{Command: request.Start}),
		},
		"DeleteNode": {machine.NodeRemoval{Machine: activitiestest.NewRef(m), NodeName: "n"}},
		"IssueToken": {
			machine.TokenRequest{Read: activitiestest.NewReadInput(m), Attempt: "1", Expires: activitiestest.TokenExpiration()},
		},
		"RevokeTokens":   {activitiestest.NewRef(m)},
		"CreateMachines": {activitiestest.NewMachineCreation(s, "s-a")},
		"DeleteMachines": {batch},
		"ReportSet":      {set.Report{Input: activitiestest.NewSetInput(s), Step: &kube.Step{Name: "x"}}},
		"DecideDeployment": {
			deployment.Input{ReadInput: activitiestest.NewReadInput(d)},
			deployment.Input{ReadInput: activitiestest.NewLiveReadInput(d), WorkflowID: "rollout/shop/d"},
			activitiestest.NewDeploymentInput(activitiestest.NewDeployment("old-d", 0)),
		},
		"CreateSet": {activitiestest.NewSetCreation(d)},
		"ChangeSets": {
			deployment.SetChanges{Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{AllowScaleUp: current}},
			deployment.SetChanges{Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{ForbidScaleUp: current}},
			deployment.SetChanges{
				Deployment: activitiestest.NewRef(d),
				SetChanges: rollout.SetChanges{Revise: &rollout.RevisionChange{ObjectTarget: current[0], Revision: 8}},
			},
			deployment.SetChanges{Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{Sync: current}},
			deployment.SetChanges{Deployment: activitiestest.NewRef(d), SetChanges: rollout.SetChanges{Delete: current}},
			deployment.SetChanges{
				Deployment: activitiestest.NewRef(d),
				SetChanges: rollout.SetChanges{
					Resize: []rollout.SetResize{{Name: "s", UID: "uid-s", Version: "900", From: 3, To: 5}},
				},
			},
		},
		"ChangeNodes": {
			deployment.NodeChanges{
				Deployment: activitiestest.NewRef(d),
				NodeChanges: rollout.NodeChanges{
					Candidates:              marked,
					Select:                  marked,
					Taint:                   marked,
					Untaint:                 marked,
					ProtectFromAutoscaler:   marked,
					UnprotectFromAutoscaler: marked,
				},
			},
			deployment.NodeChanges{
				Deployment:  activitiestest.NewRef(d),
				NodeChanges: rollout.NodeChanges{FinishUpdate: marked, ClearUpdateLabels: marked},
			},
		},
		"ChangeMachines": {
			deployment.MachineChanges{
				Deployment:     activitiestest.NewRef(d),
				MachineChanges: rollout.MachineChanges{ClearUpdateResult: marked},
			},
			deployment.MachineChanges{
				Deployment: activitiestest.NewRef(d),
				MachineChanges: rollout.MachineChanges{
					Move: []rollout.MachineMove{{Machine: marked[0], From: "s", To: "s-2", ToUID: "uid-s-2"}},
				},
			},
		},
		"MarkMachines": {
			deployment.MachineMarks{
				Deployment: activitiestest.NewRef(d),
				Version:    "900",
				Trigger:    &rollout.TriggerAnnotationUpdate{Drop: []string{"m"}},
				Mark:       []rollout.ChoiceMark{{ObjectTarget: marked[0], At: "x"}},
			},
			deployment.MachineMarks{
				Deployment: activitiestest.NewRef(d),
				Version:    "900",
				Trigger:    &rollout.TriggerAnnotationUpdate{},
				Unmark:     marked,
			},
		},
		"RollBackDeployment": {
			deployment.RollbackInput{
				Deployment: activitiestest.NewRef(d),
				Version:    "900",
				Rollback:   rollout.Rollback{Set: &rollout.ObjectTarget{Name: "s-2", UID: "uid-s-2"}},
			},
		},
		"ReportDeployment": {
			deployment.Report{
				Input:  activitiestest.NewDeploymentInput(d),
				Step:   &kube.Step{Name: "x"},
				Record: &rollout.Progress{Revision: 8, Failed: []string{"m"}},
			},
		},
		"MarkNodes": {orphan.NodeSweep{Namespace: activitiestest.TestNamespace, At: time.Now().Add(time.Hour)}},
		"ReportOrphans": {
			orphan.Report{
				Class:     activitiestest.NewRef(activitiestest.NewClass()),
				Collected: []string{"i-1"},
				Held:      "too many",
				Unclear:   []string{"i-2"},
			},
		},
		"ReportServing": {
			class.ServingState{
				ReadInput: activitiestest.NewReadInput(activitiestest.NewClass()),
				Provider:  "fake",
				Unserved:  true,
			},
		},
		"FinalizeSecrets": {
			class.SecretChanges{
				Class: activitiestest.NewRef(activitiestest.NewClass()),
				Secrets: []class.SecretTarget{
					activitiestest.NewSecretTarget("a", activitiestest.BackupFinalizer, v1alpha1.FinalizerSecret),
				},
			},
		},
	}
}

// newReadInputs returns the inputs of the activities that need only a kube.ReadInput.
func newReadInputs() []any {
	var all []any
	for _, o := range twoObjectsOfEachKind() {
		if _, isNode := o.(*corev1.Node); !isNode {
			all = append(
				all,
				activitiestest.NewReadInput(activitiestest.MetadataOf(o)),
				activitiestest.NewLiveReadInput(activitiestest.MetadataOf(o)),
			)
		}
	}
	return all
}

func TestActivitiesChangeNoCachedObject(t *testing.T) {
	t.Parallel()
	for i, owner := range activities.ClusterActivities(nil) {
		kind := reflect.TypeOf(owner)
		for method := range kind.Methods() {
			name := method.Name
			with := inputsByActivity()[name]
			if method.Type.In(2) == reflect.TypeFor[kube.ReadInput]() {
				with = newReadInputs()
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				require.NotEmpty(t, with, "inputs has no row for this activity")
				assertNoCacheChange(t, i, name, with)
			})
		}
	}
}

// assertNoCacheChange asserts that an activity changes no cached object with any of these inputs.
func assertNoCacheChange(t *testing.T, owner int, name string, with []any) {
	succeeded := 0
	for _, in := range with {
		w := activitiestest.NewWorld(t, twoObjectsOfEachKind()...)
		before := w.CachedObjects()
		w.HoldEvents() // without this call, watch events would replace the cached objects
		env := activitiestest.NewActivityEnvironment()
		env.RegisterActivity(activities.ClusterActivities(w.Kube)[owner])
		if _, err := env.ExecuteActivity(name, in); err == nil {
			succeeded++
		}
		for was, is := range before {
			assert.Equal(t, was, is)
		}
	}
	assert.Positive(t, succeeded, "none of the inputs leads anywhere")
}
