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
	"millwright/api/v1alpha1"
	"millwright/decide/health"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/decide/steer"
	"millwright/decide/verb"
	"millwright/observe"
)

// crowd is one of each, with something to change wherever an activity could change it in place. Everything that is going
// is called old-.
func crowd() []runtime.Object {
	finalizers := []string{backup, v1alpha1.FinalizerMachine, "example.com/other"}
	since := metav1.Unix(1_700_000_000, 0)
	d, old := deployment("d", 5), deployment("old-d", 0, going[*v1alpha1.MachineDeployment])
	for _, x := range []*v1alpha1.MachineDeployment{d, old} {
		x.Finalizers = finalizers
		x.Annotations = map[string]string{"note": "d", v1alpha1.AnnotationRevision: "7"}
		x.Status.Replacements = []v1alpha1.MachineReplacement{recordedFor("gone"), recordedFor("m")}
		x.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "z"}}
		for _, kind := range []v1alpha1.MachineDeploymentConditionType{"Available", "SelectorOverlap", "ReplicaFailure", "ReplacementHeld", "Progressing"} {
			x.Status.Conditions = append(x.Status.Conditions, v1alpha1.MachineDeploymentCondition{Type: kind, Status: "Unknown", Message: "once"})
		}
	}
	old.Spec.Selector.MatchLabels = map[string]string{"app": "old"}
	d.Spec.Rollout = &v1alpha1.RolloutPolicy{AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: new(int32(1))}}
	d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 7, FailedMachines: []string{"z", "a"}}
	s, other, oldSet := owned(d, "s", 3, forbidden), owned(d, "s-2", 0, former, forbidden), set("old-s", 0, going[*v1alpha1.MachineSet])
	for _, x := range []*v1alpha1.MachineSet{s, other, oldSet} {
		x.Finalizers = finalizers
		x.Annotations = map[string]string{"note": "s", v1alpha1.AnnotationRevision: "7", v1alpha1.AnnotationRevisionHistory: "1,3"}
		x.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "z"}, {Name: "a"}}
		x.Status.Conditions = []v1alpha1.MachineSetCondition{
			{Type: v1alpha1.MachineSetReplicaFailure, Status: "True", Reason: "Some", Message: "once"}, {Type: v1alpha1.MachineSetFrozen, Status: "False"},
		}
	}
	m, oldMachine := machine("m", ownedBy[*v1alpha1.Machine](s), onNode, wishing), machine("old-m", going[*v1alpha1.Machine])
	for _, x := range []*v1alpha1.Machine{m, oldMachine} {
		x.Finalizers = finalizers
		x.Annotations = map[string]string{"note": "m", v1alpha1.AnnotationMarkedForDeletionTime: "2026-01-01T00:00:00Z"}
		x.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		x.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: longAgo}
		x.Status.CreationStopped = &v1alpha1.CreationStopped{Since: &since}
		x.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.2"}, {Type: "InternalIP", Address: "10.0.0.1"}}
		x.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.MachineInstanceReady, Status: "True"}, {Type: "Ready", Status: "Unknown"}, {Type: v1alpha1.MachineReplacementDue, Status: "True", Reason: "HealthTimeout"},
		}
	}
	m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
	due := machine("due", ownedBy[*v1alpha1.Machine](s), phase(v1alpha1.MachineFailed), dueFor("CreationTimeout"))
	n := node(used, func(n *corev1.Node) { n.Finalizers = []string{backup, v1alpha1.FinalizerNode, "example.com/other"} })
	n.Status.Conditions[0].LastHeartbeatTime = since
	oldClass := class(going[*v1alpha1.MachineClass], func(c *v1alpha1.MachineClass) { c.Name, c.UID, c.Finalizers = "old-c", "uid-old-c", finalizers })
	return []runtime.Object{
		d, old, s, other, oldSet, m, oldMachine, due, n, class(rich, needing("a")), oldClass, keys("a", backup), keys("unused", backup, v1alpha1.FinalizerSecret),
	}
}

// forbidden makes a set one that makes no machine.
func forbidden(s *v1alpha1.MachineSet) {
	s.Labels = map[string]string{v1alpha1.LabelScaleUpDisabled: v1alpha1.ValueLowerTrue, "app": "web"}
}

func rich(c *v1alpha1.MachineClass) {
	c.NodeTemplate = &v1alpha1.NodeTemplate{VirtualCapacity: corev1.ResourceList{"example.com/seat": resource.MustParse("2")}}
}

func wishing(m *v1alpha1.Machine) {
	m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
	m.Spec.NodeTemplateSpec.Annotations = map[string]string{"team": "shop"}
	m.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "only", Value: "web", Effect: "NoSchedule"}}
}

func used(n *corev1.Node) {
	n.Labels = map[string]string{"pool": "mine", v1alpha1.LabelCandidateForUpdate: "true"}
	n.Annotations = map[string]string{"volumes": "true", v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true"}
	n.Spec.Taints = []corev1.Taint{
		{Key: v1alpha1.TaintPreferNoSchedule, Effect: "PreferNoSchedule"}, {Key: "only", Value: "mine", Effect: "NoSchedule"}, {Key: "theirs", Effect: "NoSchedule"},
	}
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")}
}

// inputs are those of the activities that take more than a Read.
func inputs() map[string][]any {
	m, s, d := machine("m"), set("s", 3), deployment("d", 5)
	marked, current := []rollout.Target{{Name: "m", UID: "uid-m", Version: "900", Node: "n"}}, []rollout.Target{{Name: "s", UID: "uid-s", Version: "900"}}
	report := activities.MachineReport{
		Read: read(m), Phase: "Unknown", LastKnownState: "x", Clock: &health.Clock{RecoveredAt: longAgo.Time}, InstanceGone: true,
		Operation: &activities.LastOperation{Type: "HealthCheck"}, Step: &activities.Step{Name: "x"},
		Addresses:  []activities.Address{{Type: "InternalIP", Address: "10.0.0.3"}},
		Conditions: []activities.Condition{{Type: "InstanceReady", Reason: "Some"}, {Type: "ReplacementDue", Reason: "Recovered"}},
	}
	batch := activities.Batch{Set: ref(s), Machines: []scale.Target{{Name: "m", UID: "uid-m", Version: "900"}}}
	return map[string][]any{
		"KeepMachines":     {batch},
		"AdoptMachines":    {batch},
		"ReleaseMachines":  {batch},
		"UnmarkMachines":   {batch},
		"SyncMachines":     {batch},
		"DecideScale":      {setRead(s)},
		"MarkInPlace":      {activities.InPlaceMark{Read: read(m), Reason: "Some", Message: "x"}},
		"RecordInstance":   {activities.Recorded{Read: read(m), ProviderID: "fake:///new", NodeName: "new"}, activities.Recorded{Read: read(m), ProviderID: "fake:///n", NodeName: "n"}},
		"BeginCreation":    {report},
		"DecideMade":       {report},
		"ReportMachine":    {report, activities.MachineReport{Read: read(m), Stopped: true}},
		"ReleaseMachine":   {activities.Releasing{Read: read(machine("old-m"))}},
		"HoldDrain":        {activities.Holding{Read: read(machine("old-m")), Why: "x"}},
		"DecideDrain":      {activities.DrainRead{Read: read(m)}, activities.DrainRead{Read: read(machine("old-m"))}},
		"EvictPods":        {activities.Eviction{Machine: ref(m), NodeName: "n", Means: "Evict"}},
		"AwaitDetach":      {activities.Detaching{Machine: ref(m), NodeName: "n"}},
		"GiveVerb":         {ordered(m, verb.Order{Verb: verb.Preserve}), ordered(m, verb.Order{Verb: verb.Hold, Reason: "x", InAdvance: true})},
		"DeleteNode":       {activities.NodeRemoval{Machine: ref(m), NodeName: "n"}},
		"IssueToken":       {activities.TokenRequest{Read: read(m), Attempt: "1", Expires: soon()}},
		"RevokeTokens":     {ref(m)},
		"CreateMachines":   {create(s, "s-a")},
		"DeleteMachines":   {batch},
		"ReportSet":        {activities.SetReport{SetRead: setRead(s), Step: &activities.Step{Name: "x"}}},
		"DecideDeployment": {activities.DeploymentRead{Read: read(d)}, activities.DeploymentRead{Read: live(d), WorkflowID: "rollout/shop/d"}, deploymentRead(deployment("old-d", 0))},
		"CreateSet":        {createSet(d)},
		"ChangeSets": {
			activities.SetChanges{Deployment: ref(d), Open: current},
			activities.SetChanges{Deployment: ref(d), Close: current},
			activities.SetChanges{Deployment: ref(d), Revise: &rollout.Revise{Target: current[0], Revision: 8}},
			activities.SetChanges{Deployment: ref(d), Sync: current},
			activities.SetChanges{Deployment: ref(d), Delete: current},
			activities.SetChanges{Deployment: ref(d), Resize: []rollout.Resize{{Name: "s", UID: "uid-s", Version: "900", From: 3, To: 5}}},
		},
		"ChangeNodes": {
			activities.NodeChanges{Deployment: ref(d), Candidates: marked, Select: marked, Taint: marked, Untaint: marked, Guard: marked, Unguard: marked},
			activities.NodeChanges{Deployment: ref(d), Settle: marked, Strip: marked},
		},
		"ChangeMachines": {
			activities.MachineChanges{Deployment: ref(d), Accept: marked},
			activities.MachineChanges{Deployment: ref(d), Move: []rollout.Move{{Machine: marked[0], From: "s", To: "s-2", ToUID: "uid-s-2"}}},
		},
		"MarkMachines": {
			activities.Marks{Deployment: ref(d), Version: "900", Trigger: &rollout.Trigger{Drop: []string{"m"}}, Mark: []rollout.Mark{{Target: marked[0], At: "x"}}},
			activities.Marks{Deployment: ref(d), Version: "900", Trigger: &rollout.Trigger{}, Unmark: marked},
		},
		"RollBackDeployment": {activities.RollBack{Deployment: ref(d), Version: "900", Rollback: rollout.Rollback{Set: &rollout.Target{Name: "s-2", UID: "uid-s-2"}, Automatic: true}}},
		"GiveSteer":          {steered(d, steer.Order{Verb: steer.Pause}), steered(d, steer.Order{Verb: steer.Start})},
		"ReportDeployment":   {activities.DeploymentReport{DeploymentRead: deploymentRead(d), Step: &activities.Step{Name: "x"}, Record: &rollout.Progress{Revision: 8, Failed: []string{"m"}}}},
		"MarkNodes":          {activities.NodeSweep{Namespace: shop, At: time.Now().Add(time.Hour)}},
		"ReportOrphans":      {activities.OrphanReport{Class: ref(class()), Collected: []string{"i-1"}, Held: "too many", Unclear: []string{"i-2"}}},
		"FinalizeSecrets":    {activities.SecretChanges{Class: ref(class()), Secrets: []activities.SecretTarget{target("a", backup, v1alpha1.FinalizerSecret)}}},
	}
}

// An activity that takes a Read alone is run with each of these.
func reads() []any {
	var all []any
	for _, o := range crowd() {
		if _, isNode := o.(*corev1.Node); !isNode {
			all = append(all, read(accessor(o)), live(accessor(o)))
		}
	}
	return all
}

func TestD21_NoActivityChangesWhatIsInACache(t *testing.T) {
	t.Parallel()
	kind := reflect.TypeFor[*activities.Activities]()
	for i := range kind.NumMethod() {
		name := kind.Method(i).Name
		t.Run("D21: "+name, func(t *testing.T) {
			t.Parallel()
			with := inputs()[name]
			if kind.Method(i).Type.In(2) == reflect.TypeFor[activities.Read]() {
				with = reads()
			}
			require.NotEmpty(t, with, "inputs has no row for this activity")
			succeeded := 0
			for _, in := range with {
				w := newWorld(t, crowd()...)
				before := w.cached()
				w.hold() // what is written must not take the place of what is looked at
				_, err := run[any](w, name, in)
				if err == nil {
					succeeded++
				}
				for was, is := range before {
					assert.Equal(t, was, is)
				}
			}
			assert.Positive(t, succeeded, "none of the inputs leads anywhere")
		})
	}
}

// cached returns the objects in the caches, each behind a copy of it.
func (w *world) cached() map[runtime.Object]runtime.Object {
	objects := map[runtime.Object]runtime.Object{}
	for _, resource := range []observe.Resource{observe.Machines, observe.Sets, observe.Deployments, observe.Classes, observe.Nodes, observe.Secrets} {
		for _, o := range w.Cluster.Informer(resource).GetStore().List() {
			objects[o.(runtime.Object).DeepCopyObject()] = o.(runtime.Object)
		}
	}
	return objects
}
