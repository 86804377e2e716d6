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
	s := capitest.Set(
		"s",
		3,
		capitest.OfDeployment,
		annotatedSet(clusterv1.RevisionAnnotation, "0"),
		annotatedSet(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next"),
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
		receivingSet("s"),
		capitest.Set(
			"old",
			0,
			capitest.Going,
			func(s *clusterv1.MachineSet) { s.Finalizers = []string{"a", observecapi.Finalizer, "z"} },
		),
		capitest.Machine(
			"m",
			s,
			owned,
		),
		capitest.Machine("sick", s, owned, capitest.Unhealthy),
		capitest.Machine("old", s, owned, capitest.Going),
		capitest.Machine("due", s, owned, capitest.Annotated[*clusterv1.Machine](clusterv1.UpdateInProgressAnnotation, "")),
		capitest.Machine("free", s, func(m *clusterv1.Machine) { m.OwnerReferences = m.OwnerReferences[:0] }),
		capitest.Machine(
			"hooked",
			s,
			owned,
			capitest.AtTheHook,
		),
		capitest.Cluster(),
		capitest.Deployment(),
		capitest.Bootstrap(shared),
		capitest.Infrastructure(shared),
		capitest.ControlPlane(),
		cloneOfTemplate(
			capitest.Infrastructure(),
			"stray",
		),
		cloneOfTemplate(capitest.Infrastructure(), "hooked"),
		cloneOfTemplate(capitest.Bootstrap(), "due"),
		cloneOfTemplate(capitest.Infrastructure(), "due"),
	}
}

// activityInputs returns the inputs of each activity, by the activity's name.
func activityInputs(s *clusterv1.MachineSet) map[string][]any {
	machines := func(names ...string) set.Batch {
		b := set.Batch{Set: activitiestest.Ref(s)}
		for _, name := range names {
			b.Machines = append(b.Machines, scale.Target{Name: name, UID: "uid-" + name, Version: "900"})
		}
		return b
	}
	extraWrites := func(like *unstructured.Unstructured, name string) set.ExtraWritesInput {
		resource := capitest.ResourceOf(like)
		return set.ExtraWritesInput{Set: activitiestest.Ref(s), Objects: []set.Object{
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
	old, hooked := capitest.Set("old", 0), capitest.Machine("hooked", s)
	remark := extraWrites(capitest.Infrastructure(), "sick")
	remark.Objects[0].UID = "uid-sick"
	return map[string][]any{
		"DecideClusterAPISet": {
			activitiestest.ClusterAPIRead(s, false),
			activitiestest.ClusterAPIRead(s, true),
			activitiestest.ClusterAPIRead(old, false),
		},
		"FinalizeClusterAPISet":    {activitiestest.Read(s), activitiestest.Read(old)},
		"ReportClusterAPISet":      {reportInput(s), reportInput(old)},
		"CreateClusterAPIMachines": {activitiestest.CreateClusterAPI(s, "s-a")},
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
		"OwnTemplates":             {extraWrites(capitest.Infrastructure(), "small")},
		"CollectClones":            {extraWrites(cloneOfTemplate(capitest.Infrastructure(), "stray"), "stray")},
		"DecideClusterAPIDrain":    {drain.Input{Read: activitiestest.Read(hooked)}},
		"CordonClusterAPINode":     {activitiestest.Read(hooked)},
		"EvictClusterAPIPods":      {drain.Eviction{Machine: activitiestest.Ref(hooked), NodeName: "node-hooked"}},
		"ReportClusterAPIDrain": {
			machine.Report{
				Read:       activitiestest.Read(hooked),
				Step:       &kube.Step{Name: "drain"},
				Conditions: []machine.Condition{{Type: "Drained", Reason: "Draining"}},
			},
		},
		"HoldClusterAPIDrain":   {drain.Holding{Read: activitiestest.Read(hooked), Why: "x"}},
		"ReleaseClusterAPIHook": {capi.HookRelease{Read: activitiestest.Read(hooked)}},
	}
}

func TestNoActivityChangesACachedObject(t *testing.T) {
	s, _ := oneObjectOfEachKind()
	kind := reflect.TypeFor[*capi.Activities]()
	for method := range kind.Methods() {
		name := method.Name
		t.Run(name, func(t *testing.T) {
			with := activityInputs(s)[name]
			require.NotEmpty(t, with, "inputs has no row for this activity")
			for _, in := range with {
				_, objects := oneObjectOfEachKind()
				w := activitiestest.NewClusterAPI(t, capitest.Settings, objects...)
				cached, _ := w.API.Set("shop/s")
				_, err := w.API.Read(t.Context(), cached) // the informers of the templates start here
				require.NoError(t, err)
				before := w.Cached()
				require.Len(t, before, len(objects)-4, "all but the clones")
				w.Hold() // a watch event would replace the cached object
				env := activitiestest.ActivityEnvironment()
				for _, owner := range registered.OnClusterAPI(w.Kube, w.API, w.Workloads) {
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
