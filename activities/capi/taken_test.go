package capi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/observe/capi/capitest"
)

// If another set's machine or clone already has the name, the activity fails with a Conflict, and the other set's
// objects stay unchanged. The next decision chooses another name.
func TestANameThatAnotherSetUses(t *testing.T) {
	s, other := capitest.Set("s", 1), capitest.Set("other", 1)
	m := capitest.Machine("s-a", other)
	ownedByOther := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences(
			[]metav1.OwnerReference{
				{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "other", UID: "uid-other"},
			},
		)
	}
	for _, row := range []struct {
		name string
		has  []runtime.Object
	}{
		{"a machine with its clones", []runtime.Object{m, cloneOfTemplate(capitest.Bootstrap(), "s-a", ownedByMachine(m)), cloneOfTemplate(capitest.Infrastructure(), "s-a", ownedByMachine(m))}},
		{"a clone", []runtime.Object{cloneOfTemplate(capitest.Bootstrap(), "s-a", ownedByOther)}},
		{"a machine without clones", []runtime.Object{m}},
		{"a machine without a controller", []runtime.Object{capitest.Machine("s-a", s, capitest.Unowned[*clusterv1.Machine])}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, a := newWorld(t, append(row.has, s, other)...)
			before := w.Snapshot()
			_, err := activitiestest.Run[set.Written](w, a.CreateClusterAPIMachines, activitiestest.CreateClusterAPI(s, "s-a"))
			activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
			assert.Equal(t, before, w.Snapshot())
		})
	}
}

// The deletion of the Cluster between decision and write causes a Conflict, which leads to a new decision. The error
// must not be retried until the Cluster is back.
func TestOwnTemplatesOfAClusterThatIsGone(t *testing.T) {
	s := capitest.Set("s", 1)
	template := capitest.Infrastructure()
	w := activitiestest.NewClusterAPI(t, capitest.Settings, s, template)
	resource := capitest.ResourceOf(template)
	_, err := activitiestest.Run[kube.MinVersions](
		w,
		newActivities(w).OwnTemplates,
		set.ExtraWritesInput{Set: activitiestest.Ref(s), Objects: []set.Object{
			{
				Group:      resource.Group,
				APIVersion: resource.Version,
				Resource:   resource.Resource,
				Name:       "small",
				UID:        "uid-small",
				Version:    "900",
			},
		}},
	)
	activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
}

// If another controller also reconciles a set, the set, its machines and its clones are not written.
func TestAContestedSetHasNoExtraWrites(t *testing.T) {
	s := capitest.Set(
		"s",
		1,
		func(s *clusterv1.MachineSet) { s.Finalizers = append(s.Finalizers, clusterv1.MachineSetFinalizer) },
	)
	w := activitiestest.NewClusterAPI(
		t,
		capitest.Settings,
		s,
		capitest.Cluster(),
		capitest.Bootstrap(),
		capitest.Infrastructure(),
		capitest.ControlPlane(),
		cloneOfTemplate(capitest.Infrastructure(), "stray"),
	)
	d := decideSet(t, w, s)
	require.False(t, d.Scale.Acting())
	assert.Empty(t, d.Extra)
}

// A clone kind that is not installed is reported like a missing template.
func TestTheKindOfTheClonesIsMissing(t *testing.T) {
	s := capitest.Set("s", 1)
	kind := cloneOfTemplate(capitest.Infrastructure(), "x").GroupVersionKind()
	w := activitiestest.NewClusterAPI(
		t,
		capitest.Settings,
		s,
		capitest.Cluster(),
		capitest.Bootstrap(capitest.Owned),
		capitest.Infrastructure(capitest.Owned),
		capitest.ControlPlane(),
		capitest.Definition(kind, nil),
	)
	written, err := activitiestest.Run[set.Written](
		w,
		newActivities(w).CreateClusterAPIMachines,
		activitiestest.CreateClusterAPI(s, "s-a"),
	)
	if err == nil {
		assert.NotEmpty(t, written.Failure.Message)
	} else {
		_, retryable := activitiestest.Failure(t, err)
		assert.False(t, retryable, "the attempt is repeated without end, and the status says nothing: %v", err)
	}
	assert.Nil(t, bootstrapOf(w, "s-a"))
}
