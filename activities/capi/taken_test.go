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

// A name that another set took is a Conflict: the next decision takes another name. What is there stays as it is.
func TestANameThatAnotherSetTook(t *testing.T) {
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
		{"a machine with its clones", []runtime.Object{m, clone(capitest.Bootstrap(), "s-a", ownedByMachine(m)), clone(capitest.Infrastructure(), "s-a", ownedByMachine(m))}},
		{"a clone", []runtime.Object{clone(capitest.Bootstrap(), "s-a", ownedByOther)}},
		{"a machine without clones", []runtime.Object{m}},
		{"a machine without a controller", []runtime.Object{capitest.Machine("s-a", s, capitest.Unowned[*clusterv1.Machine])}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, a := world(t, append(row.has, s, other)...)
			before := w.Snapshot()
			_, err := activitiestest.Run[set.Written](w, a.CreateClusterAPIMachines, activitiestest.CreateClusterAPI(s, "s-a"))
			activitiestest.AssertFailure(t, err, kube.TypeConflict, false)
			assert.Equal(t, before, w.Snapshot())
		})
	}
}

// The Cluster may be deleted between the decision and the write: that is a Conflict, and no error that is repeated
// until the Cluster is back.
func TestOwnTemplatesOfAClusterThatIsGone(t *testing.T) {
	s := capitest.Set("s", 1)
	template := capitest.Infrastructure()
	w := activitiestest.NewClusterAPI(t, capitest.Settings, s, template)
	resource := capitest.ResourceOf(template)
	_, err := activitiestest.Run[kube.MinVersions](
		w,
		activities(w).OwnTemplates,
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

// A set that another controller reconciles as well is not touched: neither are its machines and clones.
func TestAContestedSetHasNoErrands(t *testing.T) {
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
		clone(capitest.Infrastructure(), "stray"),
	)
	d := decide(t, w, s)
	require.False(t, d.Scale.Acting())
	assert.Empty(t, d.Extra)
}

// A kind of clones that is not installed is reported as a missing template is.
func TestTheKindOfTheClonesIsMissing(t *testing.T) {
	s := capitest.Set("s", 1)
	kind := clone(capitest.Infrastructure(), "x").GroupVersionKind()
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
		activities(w).CreateClusterAPIMachines,
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
