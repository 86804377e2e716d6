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
func TestCreationConflictsWithObjectsOfAnotherSet(t *testing.T) {
	s, other := capitest.NewSet("s", 1), capitest.NewSet("other", 1)
	m := capitest.NewMachine("s-a", other)
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
		{"a machine with its clones", []runtime.Object{m, newClone(capitest.NewBootstrapTemplate(), "s-a", withMachineOwner(m)), newClone(capitest.NewInfrastructureTemplate(), "s-a", withMachineOwner(m))}},
		{"a clone", []runtime.Object{newClone(capitest.NewBootstrapTemplate(), "s-a", ownedByOther)}},
		{"a machine without clones", []runtime.Object{m}},
		{"a machine without a controller", []runtime.Object{capitest.NewMachine("s-a", s, capitest.WithoutOwner[*clusterv1.Machine])}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, a := newWorld(t, append(row.has, s, other)...)
			before := w.Snapshot()
			_, err := activitiestest.RunActivity[set.WriteResult](
				w,
				a.CreateClusterAPIMachines,
				activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
			)
			activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
			assert.Equal(t, before, w.Snapshot())
		})
	}
}

// The deletion of the Cluster between decision and write causes a Conflict, which leads to a new decision. Temporal
// must not retry the activity while the Cluster is gone.
func TestOwnTemplatesConflictsIfClusterIsDeleted(t *testing.T) {
	s := capitest.NewSet("s", 1)
	template := capitest.NewInfrastructureTemplate()
	w := activitiestest.NewClusterAPIWorld(t, capitest.DefaultSettings, s, template)
	resource := capitest.ResourceOfObject(template)
	_, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		newActivities(w).OwnTemplates,
		set.ExtraWritesInput{Set: activitiestest.NewRef(s), Objects: []set.ExtraObject{
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
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
}

// If another controller also reconciles a set, the set, its machines and its clones are not written.
func TestAContestedSetHasNoExtraWrites(t *testing.T) {
	s := capitest.NewSet(
		"s",
		1,
		func(s *clusterv1.MachineSet) { s.Finalizers = append(s.Finalizers, clusterv1.MachineSetFinalizer) },
	)
	w := activitiestest.NewClusterAPIWorld(
		t,
		capitest.DefaultSettings,
		s,
		capitest.NewCluster(),
		capitest.NewBootstrapTemplate(),
		capitest.NewInfrastructureTemplate(),
		capitest.NewControlPlane(),
		newClone(capitest.NewInfrastructureTemplate(), "stray"),
	)
	d := decideSet(t, w, s)
	require.False(t, d.Scale.HasListEntries())
	assert.Empty(t, d.Extra)
}

// A clone kind that is not installed is reported like a missing template.
func TestMissingCloneKindIsReported(t *testing.T) {
	s := capitest.NewSet("s", 1)
	kind := newClone(capitest.NewInfrastructureTemplate(), "x").GroupVersionKind()
	w := activitiestest.NewClusterAPIWorld(
		t,
		capitest.DefaultSettings,
		s,
		capitest.NewCluster(),
		capitest.NewBootstrapTemplate(capitest.WithClusterOwner),
		capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
		capitest.NewControlPlane(),
		capitest.NewCustomResourceDefinition(kind, nil),
	)
	written, err := activitiestest.RunActivity[set.WriteResult](
		w,
		newActivities(w).CreateClusterAPIMachines,
		activitiestest.NewClusterAPIMachineCreation(s, "s-a"),
	)
	if err == nil {
		assert.NotEmpty(t, written.Failure.Message)
	} else {
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.False(t, retryable, "the attempt is repeated without end, and the status says nothing: %v", err)
	}
	assert.Nil(t, bootstrapCloneOf(w, "s-a"))
}
