package deployment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	"millwright/observe/capi/deployment"
)

// inPlaceChanges returns changes of a template that update existing machines without a rollout.
func inPlaceChanges() map[string]capitest.DeploymentChange {
	return map[string]capitest.DeploymentChange{
		"a label":         func(d *clusterv1.MachineDeployment) { d.Spec.Template.Labels["tier"] = "front" },
		"an annotation":   func(d *clusterv1.MachineDeployment) { d.Spec.Template.Annotations["tier"] = "front" },
		"minReadySeconds": func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.MinReadySeconds = new(int32(5)) },
		"readinessGates": func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Tested"}}
		},
		"nodeDrainTimeoutSeconds": func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(5))
		},
		"nodeVolumeDetachTimeoutSeconds": func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = new(int32(5))
		},
		"nodeDeletionTimeoutSeconds": func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.Deletion.NodeDeletionTimeoutSeconds = new(int32(5))
		},
		"taints": func(d *clusterv1.MachineDeployment) {
			d.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{
				{Key: "a", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways},
			}
		},
	}
}

// rolloutChanges returns changes of a template that replace machines.
func rolloutChanges() map[string]capitest.DeploymentChange {
	return map[string]capitest.DeploymentChange{
		"version":                     capitest.WithVersion("v1.32.0"),
		"failureDomain":               func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.FailureDomain = "b" },
		"the infrastructure template": func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.InfrastructureRef.Name = "large" },
		"the bootstrap template":      func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "join-2" },
		"dataSecretName":              func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Bootstrap.DataSecretName = new("s") },
	}
}

func TestIsSameTemplate(t *testing.T) {
	for name, change := range inPlaceChanges() {
		d := capitest.NewPreparedDeployment(3)
		s := capitest.NewSetOfDeployment(d, "s", 3, 1)
		change(d)
		assert.True(t, deployment.IsSameTemplate(&s.Spec.Template, &d.Spec.Template), name)
		f := newObjectTree(d, s)
		assert.True(t, deployment.RolloutFacts(f, capitest.Noon).Sets[0].Drifted, "%s reaches the set", name)
		require.True(t, f.CopyDeploymentFields(s, true), name)
		assert.False(t, f.CopyDeploymentFields(s, true), "%s: again", name)
		assert.False(t, deployment.RolloutFacts(f, capitest.Noon).Sets[0].Drifted, name)
	}
	for name, change := range rolloutChanges() {
		d := capitest.NewPreparedDeployment(3)
		s := capitest.NewSetOfDeployment(d, "s", 3, 1)
		change(d)
		assert.False(t, deployment.IsSameTemplate(&s.Spec.Template, &d.Spec.Template), name)
		f := newObjectTree(d, s)
		assert.False(t, deployment.RolloutFacts(f, capitest.Noon).Sets[0].Drifted, "%s does not reach the set", name)
		assert.False(t, f.CopyDeploymentFields(s, true), name)
	}
}

// A set copies more than the template from its deployment. A set keeps the labels and annotations of other writers.
func TestCopyDeploymentFields(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	s := capitest.NewSetOfDeployment(d, "s", 3, 1)
	s.Labels["of-others"], s.Annotations["of-others"] = "stays", "stays"
	s.Labels[clusterv1.WatchLabel] = "upstream" // the other controller created the set with this label
	d.Spec.Deletion.Order = clusterv1.OldestMachineSetDeletionOrder
	d.Spec.MachineNaming.Template = "{{ .machineSet.name }}-x-{{ .random }}"
	d.Annotations["team"] = "web"
	d.Annotations[v1alpha1.AnnotationRolloutHold], d.Annotations[clusterv1.PausedAnnotation] = "1 ann: bad", ""
	d.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	d.Annotations[clusterv1.DisableMachineCreateAnnotation] = "true"
	f := newObjectTree(d, s)
	require.True(t, f.CopyDeploymentFields(s, true))
	assert.Equal(t, capitest.WatchFilter, s.Labels[clusterv1.WatchLabel])
	assert.Equal(t, "d", s.Labels[clusterv1.MachineDeploymentNameLabel])
	assert.Equal(t, "s", s.Labels[clusterv1.MachineDeploymentUniqueLabel], "the hash stays")
	assert.Equal(t, "s", s.Spec.Template.Labels[clusterv1.MachineDeploymentUniqueLabel])
	assert.Equal(t, "stays", s.Labels["of-others"])
	assert.Equal(t, map[string]string{
		"of-others": "stays", "team": "web", clusterv1.RevisionAnnotation: "1", clusterv1.DesiredReplicasAnnotation: "3",
		clusterv1.MaxReplicasAnnotation: "4", v1alpha1.AnnotationFormerReplicas: "0",
	}, s.Annotations)
	assert.Equal(t, clusterv1.OldestMachineSetDeletionOrder, s.Spec.Deletion.Order)
	assert.Equal(t, d.Spec.MachineNaming, s.Spec.MachineNaming)
	assert.EqualValues(t, 3, *s.Spec.Replicas)
	assert.False(t, f.CopyDeploymentFields(s, true), "again")
}

// Only the set of a revision has the revision's change-cause annotation; former sets do not have it.
func TestOnlyTheCurrentSetHasTheChangeCause(t *testing.T) {
	d := capitest.NewPreparedDeployment(3, withAnnotation(v1alpha1.AnnotationChangeCause, "the new image"))
	current := capitest.NewSetOfDeployment(d, "s", 3, 2)
	former := capitest.NewSetOfDeployment(
		d,
		"r",
		0,
		1,
		capitest.WithFormerTemplate,
		withSetAnnotation(v1alpha1.AnnotationChangeCause, "the old image"),
	)
	assert.Equal(t, "the new image", current.Annotations[v1alpha1.AnnotationChangeCause])
	f := newObjectTree(d, current, former)
	for _, s := range deployment.RolloutFacts(f, capitest.Noon).Sets {
		assert.Equal(t, s.Name == "s", s.Drifted, "the deployment has revision 1: %s", s.Name)
	}
	d.Annotations[v1alpha1.AnnotationChangeCause] = "the new image, really"
	require.True(t, f.CopyDeploymentFields(current, true))
	assert.Equal(t, "the new image, really", current.Annotations[v1alpha1.AnnotationChangeCause])
	assert.False(t, f.CopyDeploymentFields(former, false))
	deployment.RestoreTemplateFromSet(d, former, capitest.Noon)
	assert.Equal(t, "the old image", d.Annotations[v1alpha1.AnnotationChangeCause])
	delete(former.Annotations, v1alpha1.AnnotationChangeCause)
	deployment.RestoreTemplateFromSet(d, former, capitest.Noon)
	assert.NotContains(t, d.Annotations, v1alpha1.AnnotationChangeCause)
}

// If a former set has machines, its template names the revision that replaces these machines, so that core reconciles
// them.
func TestTheTemplateOfAFormerSetNamesTheNextRevision(t *testing.T) {
	const key = v1alpha1.AnnotationReplacedByRevision
	d := capitest.NewPreparedDeployment(3)
	d.Spec.Template.Annotations = map[string]string{"team": "web"}
	current, former := capitest.NewSetOfDeployment(
		d,
		"s",
		3,
		2,
	), capitest.NewSetOfDeployment(
		d,
		"r",
		2,
		1,
		capitest.WithFormerTemplate,
	)
	f := newObjectTree(d, current, former)
	f.CopyDeploymentFields(former, false)
	assert.NotContains(t, former.Spec.Template.Annotations, key, "the deployment has revision 1 still")
	d.Annotations[clusterv1.RevisionAnnotation] = "2"
	require.True(t, f.CopyDeploymentFields(former, false))
	assert.Equal(t, map[string]string{"team": "web", key: "2"}, former.Spec.Template.Annotations)
	assert.False(t, f.CopyDeploymentFields(former, false), "again")
	assert.False(t, f.CopyDeploymentFields(current, true))
	assert.Equal(t, map[string]string{"team": "web"}, current.Spec.Template.Annotations)
	assert.Equal(t, map[string]string{"team": "web"}, d.Spec.Template.Annotations)

	d.Annotations[clusterv1.RevisionAnnotation] = "3"
	former.Spec.Replicas, former.Status.Replicas = new(int32(0)), new(int32(1))
	require.True(t, f.CopyDeploymentFields(former, false), "a machine is left")
	assert.Equal(t, "3", former.Spec.Template.Annotations[key])
	d.Annotations[clusterv1.RevisionAnnotation] = "4"
	former.Status.Replicas = new(int32(0))
	require.False(t, f.CopyDeploymentFields(former, false), "no machine is left, and nothing is written")
	require.True(t, f.CopyDeploymentFields(former, true), "it is put back")
	assert.NotContains(t, former.Spec.Template.Annotations, key)
	d.Spec.Template.Annotations = nil
	capitest.WithFieldsOf[*clusterv1.MachineSet](
		capi.DeploymentFieldManager,
		`{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:team":{}}}}}}`,
	)(former)
	former.Spec.Replicas = new(int32(1))
	require.True(t, f.CopyDeploymentFields(former, false), "the deployment's template has no annotations")
	assert.Equal(t, map[string]string{key: "4"}, former.Spec.Template.Annotations)
}

// If a deployment loses a label or annotation that Millwright copied to its sets, the sets lose it, too.
func TestCopyDeploymentFieldsRemovesLostEntries(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	s := capitest.NewSetOfDeployment(d, "s", 3, 1)
	s.Labels["was"], s.Annotations["was"], s.Annotations["of-others"] = "there", "there", "stays"
	owned := func(manager string) {
		capitest.WithFieldsOf[*clusterv1.MachineSet](
			manager,
			`{"f:metadata":{"f:labels":{"f:was":{}},"f:annotations":{"f:was":{},"f:machinedeployment.clusters.x-k8s.io/revision":{}}}}`,
		)(
			s,
		)
	}
	f := newObjectTree(d, s)
	owned("kubectl")
	require.False(t, f.CopyDeploymentFields(s, true), "another manager wrote it")
	owned("capi-machinedeployment")
	require.True(t, f.CopyDeploymentFields(s, true))
	assert.NotContains(t, s.Labels, "was")
	assert.NotContains(t, s.Annotations, "was")
	assert.Equal(t, "stays", s.Annotations["of-others"])
	assert.Equal(t, "1", s.Annotations[clusterv1.RevisionAnnotation])
	assert.False(t, f.CopyDeploymentFields(s, true), "again")
}

// ownedTemplate adds what the template of the deployment lacks to the template of a set. The fields belong to this
// manager; without a manager they are the values of a webhook.
func ownedTemplate(manager string) capitest.SetChange {
	return func(s *clusterv1.MachineSet) {
		s.Spec.Deletion.Order = clusterv1.OldestMachineSetDeletionOrder
		s.Spec.MachineNaming.Template = "x-{{ .random }}"
		s.Spec.Template.Labels["theirs"] = "x"
		s.Spec.Template.Annotations = labels.Merge(s.Spec.Template.Annotations, labels.Set{"theirs": "x"})
		s.Spec.Template.Spec.MinReadySeconds = new(int32(7))
		s.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(7))
		s.Spec.Template.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "x"}}
		s.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		if manager != "" {
			capitest.WithFieldsOf[*clusterv1.MachineSet](manager, `{"f:spec":{
				"f:deletion":{"f:order":{}},"f:machineNaming":{"f:template":{}},
				"f:template":{
					"f:metadata":{"f:labels":{"f:theirs":{}},"f:annotations":{"f:theirs":{}}},
					"f:spec":{"f:minReadySeconds":{},"f:deletion":{"f:nodeDrainTimeoutSeconds":{}},
						"f:readinessGates":{"k:{\"conditionType\":\"x\"}":{".":{},"f:conditionType":{}}},
						"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"x\"}":{".":{},"f:effect":{},"f:key":{}}}}}}}`)(s)
		}
	}
}

// A set has what the deployment lacks. If Millwright or Cluster API's controller copied it from the deployment, the next
// copy removes it. If another client or a webhook added it, it stays, and the deployment does not write the set again
// and again.
func TestCopyDeploymentFieldsRemovesOnlyWhatADeploymentWrote(t *testing.T) {
	for manager, removed := range map[string]bool{
		capi.DeploymentFieldManager: true, "capi-machinedeployment": true, "kubectl-patch": false, "": false,
	} {
		t.Run(manager, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			s := capitest.NewSetOfDeployment(d, "s", 3, 1, ownedTemplate(manager))
			before := s.DeepCopy()
			f := newObjectTree(d, s)
			require.Equal(t, removed, f.CopyDeploymentFields(s, true))
			if !removed {
				assert.Equal(t, before, s)
				return
			}
			want := capitest.NewSetOfDeployment(d, "s", 3, 1)
			assert.Equal(t, want.Spec, s.Spec)
			assert.False(t, f.CopyDeploymentFields(s, true), "again")
		})
	}
}

// clusterctl move and a restore of a backup make all fields their own, and an API server may lose managed fields. The
// next copy makes Millwright the owner of what the deployment has, so that Millwright later removes what leaves the
// deployment.
func TestCopyDeploymentFieldsClaimsTheFieldsOfTheDeployment(t *testing.T) {
	d := capitest.NewPreparedDeployment(3, withAnnotation("team", "web"), func(d *clusterv1.MachineDeployment) {
		d.Spec.Deletion.Order = clusterv1.OldestMachineSetDeletionOrder
		d.Spec.Template.Labels["x"] = "x"
		d.Spec.Template.Spec.MinReadySeconds = new(int32(7))
	})
	s := capitest.NewSetOfDeployment(d, "s", 3, 1, capitest.WithoutManagedFields[*clusterv1.MachineSet])
	s.Labels["theirs"] = "stays"
	f := newObjectTree(d, s)
	require.True(t, f.CopyDeploymentFields(s, true))
	assert.False(t, f.CopyDeploymentFields(s, true), "again")
	require.Len(t, s.ManagedFields, 1)
	assert.Equal(t, capi.DeploymentFieldManager, s.ManagedFields[0].Manager)
	assert.JSONEq(t, `{
		"f:metadata":{
			"f:annotations":{"f:team":{}},
			"f:labels":{"f:cluster.x-k8s.io/cluster-name":{},"f:cluster.x-k8s.io/deployment-name":{},
				"f:cluster.x-k8s.io/watch-filter":{},"f:machine-template-hash":{},"f:pool":{},"f:x":{}}},
		"f:spec":{
			"f:deletion":{"f:order":{}},
			"f:template":{
				"f:metadata":{
					"f:annotations":{"f:team":{}},
					"f:labels":{"f:cluster.x-k8s.io/cluster-name":{},"f:machine-template-hash":{},"f:pool":{},"f:x":{}}},
				"f:spec":{"f:minReadySeconds":{}}}}}`,
		s.ManagedFields[0].FieldsV1.GetRawString())

	d.Spec.Deletion.Order, d.Spec.Template.Spec.MinReadySeconds = "", nil
	delete(d.Spec.Template.Labels, "x")
	delete(d.Annotations, "team")
	require.True(t, f.CopyDeploymentFields(s, true))
	assert.Empty(t, s.Spec.Deletion.Order)
	assert.Nil(t, s.Spec.Template.Spec.MinReadySeconds)
	assert.NotContains(t, s.Spec.Template.Labels, "x")
	assert.NotContains(t, s.Labels, "x")
	assert.NotContains(t, s.Annotations, "team")
	assert.Equal(t, "stays", s.Labels["theirs"])
}

// With the finalizer of the topology, Cluster API
// With the finalizer of the topology, Cluster API deletes the templates of a ClusterClass with their last set.
func TestNewSetOfATopologyHasTheTopologyFinalizer(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	as := rollout.SetCreation{Replicas: 1, Revision: 2, Desired: 3, Max: 4}
	s, err := newObjectTree(d).NewSet(as, 0, capitest.Noon)
	require.NoError(t, err)
	assert.Equal(t, []string{capi.Finalizer}, s.Finalizers)
	d.Labels[clusterv1.ClusterTopologyOwnedLabel] = ""
	s, err = newObjectTree(d).NewSet(as, 0, capitest.Noon)
	require.NoError(t, err)
	assert.Equal(t, []string{capi.Finalizer, clusterv1.MachineSetTopologyFinalizer}, s.Finalizers)
}

func TestNewSetCopiesDeploymentFields(t *testing.T) {
	d := capitest.NewPreparedDeployment(3, withAnnotation("team", "web"))
	f := newObjectTree(d)
	as := rollout.SetCreation{Replicas: 1, Revision: 2, Desired: 3, Max: 4}
	s, err := f.NewSet(as, 0, capitest.Noon)
	require.NoError(t, err)
	hash := s.Labels[clusterv1.MachineDeploymentUniqueLabel]
	require.NotEmpty(t, hash)
	assert.Equal(t, "d-"+hash[:5], s.Name)
	assert.Equal(t, map[string]string{
		clusterv1.WatchLabel:                   capitest.WatchFilter,
		clusterv1.ClusterNameLabel:             "c",
		clusterv1.MachineDeploymentNameLabel:   "d",
		clusterv1.MachineDeploymentUniqueLabel: hash,
		"pool":                                 "pool",
	}, s.Labels)
	assert.Equal(
		t,
		map[string]string{"pool": "pool", clusterv1.ClusterNameLabel: "c", clusterv1.MachineDeploymentUniqueLabel: hash},
		s.Spec.Selector.MatchLabels,
	)
	assert.Equal(t, s.Spec.Selector.MatchLabels, s.Spec.Template.Labels)
	assert.Equal(t, map[string]string{
		"team":                              "web",
		clusterv1.RevisionAnnotation:        "2",
		clusterv1.DesiredReplicasAnnotation: "3",
		clusterv1.MaxReplicasAnnotation:     "4",
		v1alpha1.AnnotationFormerReplicas:   "0",
	}, s.Annotations)
	assert.True(t, metav1.IsControlledBy(s, d))
	assert.Equal(t, []string{capi.Finalizer}, s.Finalizers)
	assert.EqualValues(t, 1, *s.Spec.Replicas)
	assert.True(t, deployment.IsSameTemplate(&s.Spec.Template, &d.Spec.Template))
	assert.True(t, f.IsWantedSet(s, as))
	assert.False(t, f.IsWantedSet(s, rollout.SetCreation{Revision: 3}), "of another revision")
	assert.False(t, f.CopyDeploymentFields(s, true), "nothing differs")
	again, err := f.NewSet(as, 0, capitest.Noon)
	require.NoError(t, err)
	assert.Equal(t, s, again)
	for name, change := range map[string]func() (*clusterv1.MachineSet, error){
		"another attempt": func() (*clusterv1.MachineSet, error) { return f.NewSet(as, 1, capitest.Noon) },
		"another revision": func() (*clusterv1.MachineSet, error) {
			return f.NewSet(rollout.SetCreation{Revision: 3}, 0, capitest.Noon)
		},
		"another template": func() (*clusterv1.MachineSet, error) {
			return newObjectTree(capitest.NewPreparedDeployment(3, capitest.WithVersion("v1.32.0"))).NewSet(as, 0, capitest.Noon)
		},
	} {
		other, err := change()
		require.NoError(t, err)
		assert.NotEqual(t, s.Name, other.Name, name)
	}
}

// A machine's name has at most 63 bytes. A machine's name is the set's name and six more bytes.
func TestNewSetShortensALongDeploymentName(t *testing.T) {
	for _, row := range []struct {
		name string
		want int
	}{{strings.Repeat("long-", 50), 57}, {"x" + strings.Repeat("long-", 50), 56}} {
		d := capitest.NewPreparedDeployment(3, func(d *clusterv1.MachineDeployment) { d.Name = row.name })
		s, err := newObjectTree(d).NewSet(rollout.SetCreation{Revision: 1}, 0, capitest.Noon)
		require.NoError(t, err)
		assert.Len(t, s.Name, row.want)
		assert.NotContains(t, s.Name, "--", "the dash before the hash is not doubled")
	}
}

// A set that is created because of spec.rollout.after has an annotation with that time.
func TestNewSetRecordsTheRolloutAfterTime(t *testing.T) {
	for name, row := range map[string]struct {
		change capitest.DeploymentChange
		want   string
	}{
		"no time":  {func(*clusterv1.MachineDeployment) {}, ""},
		"not over": {withRolloutAfter(-1), ""},
		"over":     {withRolloutAfter(30), "2026-01-01T11:30:00Z"},
		"in a second": {func(d *clusterv1.MachineDeployment) {
			d.Spec.Rollout.After = metav1.NewTime(capitest.Noon.Add(time.Second))
		}, ""},
	} {
		s, err := newObjectTree(
			capitest.NewPreparedDeployment(3, row.change),
		).NewSet(rollout.SetCreation{Revision: 1}, 0, capitest.Noon)
		require.NoError(t, err)
		assert.Equal(t, row.want, s.Annotations[v1alpha1.AnnotationCreatedFor], name)
	}
}

// RestoreTemplateFromSet restores a former template without the parts that change in place, and without a time that
// would replace the restored machines.
func TestRestoreTemplateFromSet(t *testing.T) {
	for _, row := range []struct {
		name   string
		change capitest.DeploymentChange
		after  bool
	}{
		{"asked for", func(*clusterv1.MachineDeployment) {}, false},
		{"the set is older than a time that is over", withRolloutAfter(30), false},
		{"the time is to come", withRolloutAfter(-30), true},
		{"the set is younger", withRolloutAfter(90), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			s := capitest.NewSetOfDeployment(d, "s", 0, 1, capitest.WithFormerTemplate)
			d.Spec.Template.Spec.MinReadySeconds = new(int32(5))
			d.Spec.Template.Labels["tier"] = "front"
			row.change(d)
			deployment.RestoreTemplateFromSet(d, s, capitest.Noon)
			assert.True(t, deployment.IsSameTemplate(&s.Spec.Template, &d.Spec.Template))
			assert.Equal(t, "v1.30.0", d.Spec.Template.Spec.Version)
			assert.EqualValues(t, 5, *d.Spec.Template.Spec.MinReadySeconds)
			assert.Equal(t, "front", d.Spec.Template.Labels["tier"])
			assert.NotContains(t, d.Spec.Template.Labels, clusterv1.MachineDeploymentUniqueLabel)
			assert.Equal(t, row.after, !d.Spec.Rollout.After.IsZero())
		})
	}
}

func TestLastHandledReplicas(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	s := capitest.NewSetOfDeployment(d, "s", 3, 1)
	assert.Equal(t, 3, deployment.LastHandledReplicas(s), "it has acted on its size")
	s.Annotations[v1alpha1.AnnotationFormerReplicas], s.Generation = "7", 2
	assert.Equal(t, 7, deployment.LastHandledReplicas(s), "it has not: the former size stays")
}

func TestPreparedDeployment(t *testing.T) {
	theirs := func(d *clusterv1.MachineDeployment) {
		d.Finalizers = []string{"x", clusterv1.MachineDeploymentFinalizer}
		d.OwnerReferences, d.Labels = nil, map[string]string{clusterv1.WatchLabel: capitest.WatchFilter}
	}
	d := capitest.NewPreparedDeployment(3, theirs)
	f := newObjectTree(d)
	o := deployment.RolloutFacts(f, capitest.Noon)
	require.True(t, deployment.NeedsPreparation(f, o))
	p := deployment.PreparedDeployment(f)
	assert.Equal(t, []string{"x", capi.Finalizer}, p.Finalizers)
	assert.Equal(t, capitest.NewPreparedDeployment(3).Labels, p.Labels)
	assert.Equal(t, capitest.NewPreparedDeployment(3).OwnerReferences, p.OwnerReferences)
	f.Deployment = p
	assert.Nil(t, deployment.PreparedDeployment(f), "again")
	for name, change := range map[string]func(*deployment.ObjectTree){
		"it is paused, and has its finalizer": func(f *deployment.ObjectTree) {
			withAnnotation(clusterv1.PausedAnnotation, "")(f.Deployment)
			f.Deployment.Finalizers = []string{capi.Finalizer}
		},
		"its Cluster is paused": func(f *deployment.ObjectTree) {
			f.Cluster.Spec.Paused, f.Deployment.Finalizers = new(true), []string{capi.Finalizer}
		},
		"it is being deleted": func(f *deployment.ObjectTree) { capitest.AsDeletingObject(f.Deployment) },
		"it is contested": func(f *deployment.ObjectTree) {
			f.Deployment.Finalizers = append(f.Deployment.Finalizers, capi.Finalizer)
		},
	} {
		f := newObjectTree(capitest.NewPreparedDeployment(3, theirs))
		change(&f)
		assert.False(t, deployment.NeedsPreparation(f, deployment.RolloutFacts(f, capitest.Noon)), name)
	}
}
