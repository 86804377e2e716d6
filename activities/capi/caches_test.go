package capi_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	registered "millwright/activities"
	"millwright/activities/activitiestest"
	"millwright/activities/capi"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/activities/set"
	"millwright/decide/scale"
	observecapi "millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

// oneObjectOfEachKind returns a MachineSet and one object of each other kind. Each object has a field that an activity
// could change in place. Objects named old are being deleted.
func oneObjectOfEachKind() (*clusterv1.MachineSet, []runtime.Object) {
	s := capitest.NewSet(
		"s",
		3,
		capitest.WithDeploymentOwner,
		withAnnotation(clusterv1.RevisionAnnotation, "0"),
		withAnnotation(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
		func(s *clusterv1.MachineSet) {
			s.Finalizers = []string{clusterv1.MachineSetFinalizer, "example.com/x"}
			s.Spec.Template.Spec.MinReadySeconds = new(int32(7))
			for _, kind := range []string{"Blocked", "ScalingUp", "Theirs", "MachinesReady"} {
				s.Status.Conditions = append(
					s.Status.Conditions,
					metav1.Condition{Type: kind, Status: "Unknown", Reason: "Once", Message: "once"},
				)
			}
			s.Status.Replicas, s.Status.Versions = new(int32(9)), []clusterv1.StatusVersion{{Version: "v1.0.0", Replicas: 9}}
		},
	)
	owned := func(m *clusterv1.Machine) {
		m.OwnerReferences = append(
			[]metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "x", UID: "uid-x"}},
			m.OwnerReferences...)
		m.Spec.MinReadySeconds = new(int32(1))
	}
	shared := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences(
			[]metav1.OwnerReference{
				{APIVersion: "v1", Kind: "X", Name: "x", UID: "uid-x"},
				{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "Cluster", Name: "c", UID: "uid-c"},
			},
		)
		o.SetLabels(map[string]string{"theirs": "x"})
	}
	return s, []runtime.Object{
		s,
		newReceivingSet("s"),
		capitest.NewSet(
			"old",
			0,
			capitest.AsDeletingObject,
			func(s *clusterv1.MachineSet) { s.Finalizers = []string{"a", observecapi.Finalizer, "z"} },
		),
		capitest.NewMachine(
			"m",
			s,
			owned,
		),
		capitest.NewMachine("sick", s, owned, capitest.AsUnhealthyMachine),
		capitest.NewMachine("old", s, owned, capitest.AsDeletingObject),
		capitest.NewMachine(
			"due",
			s,
			owned,
			capitest.WithAnnotation[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, ""),
		),
		capitest.NewMachine("free", s, func(m *clusterv1.Machine) { m.OwnerReferences = m.OwnerReferences[:0] }),
		capitest.NewMachine(
			"hooked",
			s,
			owned,
			capitest.AsMachineAtDrainHook,
		),
		capitest.NewCluster(),
		capitest.NewDeployment(),
		capitest.NewBootstrapTemplate(shared),
		capitest.NewInfrastructureTemplate(shared),
		capitest.NewControlPlane(),
		newClone(
			capitest.NewInfrastructureTemplate(),
			"stray",
		),
		newClone(capitest.NewInfrastructureTemplate(), "hooked"),
		newClone(capitest.NewBootstrapTemplate(), "due"),
		newClone(capitest.NewInfrastructureTemplate(), "due"),
	}
}

// inputsByActivity returns the inputs of each activity, by the activity's name.
func inputsByActivity(s *clusterv1.MachineSet) map[string][]any {
	machines := func(names ...string) set.MachineBatch {
		b := set.MachineBatch{Set: activitiestest.NewRef(s)}
		for _, name := range names {
			b.Machines = append(b.Machines, scale.MachineTarget{Name: name, UID: "uid-" + name, Version: "900"})
		}
		return b
	}
	extraWrites := func(like *unstructured.Unstructured, name string) set.ExtraWritesInput {
		resource := capitest.ResourceOfObject(like)
		return set.ExtraWritesInput{Set: activitiestest.NewRef(s), Objects: []set.ExtraObject{
			{
				Group:      resource.Group,
				APIVersion: resource.Version,
				Resource:   resource.Resource,
				Name:       name,
				UID:        string(like.GetUID()),
				Version:    "900",
				Reason:     "Some",
				Why:        "x",
			},
		}}
	}
	old, hooked := capitest.NewSet("old", 0), capitest.NewMachine("hooked", s)
	remark := extraWrites(capitest.NewInfrastructureTemplate(), "sick")
	remark.Objects[0].UID = "uid-sick"
	return map[string][]any{
		"DecideClusterAPISet": {
			activitiestest.NewClusterAPISetInput(s, false),
			activitiestest.NewClusterAPISetInput(s, true),
			activitiestest.NewClusterAPISetInput(old, false),
		},
		"FinalizeClusterAPISet":    {activitiestest.NewReadInput(s), activitiestest.NewReadInput(old)},
		"ReportClusterAPISet":      {newReport(s), newReport(old)},
		"CreateClusterAPIMachines": {activitiestest.NewClusterAPIMachineCreation(s, "s-a")},
		"DeleteClusterAPIMachines": {machines("m", "sick")},
		"AdoptClusterAPIMachines":  {machines("free")},
		"ReleaseClusterAPIMachines": {
			machines("m", "sick"),
		},
		"UnmarkClusterAPIMachines": {machines("sick")},
		"SyncClusterAPIMachines":   {machines("old")},
		"MoveClusterAPIMachines":   {machines("m", "sick")},
		"UpdateClusterAPIMachines": {machines("due")},
		"PostponeRemediation":      {remark},
		"OwnTemplates":             {extraWrites(capitest.NewInfrastructureTemplate(), "small")},
		"CollectClones":            {extraWrites(newClone(capitest.NewInfrastructureTemplate(), "stray"), "stray")},
		"DecideClusterAPIDrain":    {drain.Input{ReadInput: activitiestest.NewReadInput(hooked)}},
		"CordonClusterAPINode":     {activitiestest.NewReadInput(hooked)},
		"EvictClusterAPIPods":      {drain.Eviction{Machine: activitiestest.NewRef(hooked), NodeName: "node-hooked"}},
		"ReportClusterAPIDrain": {
			machine.Report{
				Read:       activitiestest.NewReadInput(hooked),
				Step:       &kube.Step{Name: "drain"},
				Conditions: []machine.Condition{{Type: "Drained", Reason: "Draining"}},
			},
		},
		"HoldClusterAPIDrain":   {drain.HoldInput{Read: activitiestest.NewReadInput(hooked), Why: "x"}},
		"ReleaseClusterAPIHook": {capi.HookRelease{Read: activitiestest.NewReadInput(hooked)}},
	}
}

func TestNoActivityChangesACachedObject(t *testing.T) {
	s, _ := oneObjectOfEachKind()
	kind := reflect.TypeFor[*capi.Activities]()
	for method := range kind.Methods() {
		name := method.Name
		t.Run(name, func(t *testing.T) {
			with := inputsByActivity(s)[name]
			require.NotEmpty(t, with, "inputs has no row for this activity")
			for _, in := range with {
				_, objects := oneObjectOfEachKind()
				w := activitiestest.NewClusterAPIWorld(t, capitest.DefaultSettings, objects...)
				cached, _ := w.ClusterAPICache.MachineSet("shop/s")
				_, err := w.ClusterAPICache.ReadRelatedObjects(t.Context(), cached) // the informers of the templates start here
				require.NoError(t, err)
				before := w.CachedObjects()
				require.Len(t, before, len(objects)-4, "all but the clones")
				w.HoldEvents() // a watch event would replace the cached object
				env := activitiestest.NewActivityEnvironment()
				for _, owner := range registered.ClusterAPIActivities(w.Kube, w.ClusterAPICache, w.WorkloadClusters) {
					env.RegisterActivity(owner)
				}
				_, err = env.ExecuteActivity(name, in)
				require.NoError(t, err)
				for was, is := range before {
					assert.Equal(t, was, is)
				}
			}
		})
	}
}
