package deployment_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi/deployment"
	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
)

// newWorld returns a fake API server and the activities that use it. The API server has the given objects, and the
// Cluster and templates of a deployment.
func newWorld(t *testing.T, objects ...runtime.Object) (*activitiestest.World, *deployment.Activities) {
	t.Helper()
	return newWorldWithTemplates(
		t,
		capitest.NewBootstrapTemplate(capitest.WithClusterOwner),
		capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
		objects...,
	)
}

func newWorldWithTemplates(
	t *testing.T,
	bootstrap, infrastructure runtime.Object,
	objects ...runtime.Object,
) (*activitiestest.World, *deployment.Activities) {
	t.Helper()
	w := activitiestest.NewClusterAPIWorld(
		t,
		capitest.DefaultSettings,
		append(objects, capitest.NewCluster(), bootstrap, infrastructure)...)
	w.ForgetRequests()
	return w, &deployment.Activities{Kube: w.Kube, Cache: w.ClusterAPICache}
}

// newDeploymentInRollout returns a deployment with a set of a former template and two machines, and a set of the
// current template and one machine.
func newDeploymentInRollout(change ...capitest.DeploymentChange) (*clusterv1.MachineDeployment, []runtime.Object) {
	d := capitest.NewPreparedDeployment(
		3,
		func(d *clusterv1.MachineDeployment) { d.Annotations[clusterv1.RevisionAnnotation] = "2" },
	)
	former, current := capitest.NewSetOfDeployment(
		d,
		"d-1",
		2,
		1,
		capitest.AsSetReplacedByRevisionTwo,
	), capitest.NewSetOfDeployment(
		d,
		"d-2",
		1,
		2,
	)
	for _, f := range change {
		f(d)
	}
	return d, []runtime.Object{
		d,
		former,
		current,
		capitest.NewMachine("a", former),
		capitest.NewMachine("b", former),
		capitest.NewMachine("c", current),
	}
}

func newDecisionInput(d *clusterv1.MachineDeployment, live bool) activities.Input {
	in := activities.Input{ReadInput: activitiestest.NewReadInput(d)}
	in.Live = live
	return in
}

// decideDeployment returns the decision about a deployment. The decision from live reads must equal the decision from
// the caches.
func decideDeployment(w *activitiestest.World, d *clusterv1.MachineDeployment) activities.Decision {
	w.T.Helper()
	a := &deployment.Activities{Kube: w.Kube, Cache: w.ClusterAPICache}
	w.AwaitCaches()
	live, err := activitiestest.RunActivity[activities.Decision](
		w,
		a.DecideClusterAPIDeployment,
		newDecisionInput(d, true),
	)
	require.NoError(w.T, err)
	cached, err := activitiestest.RunActivity[activities.Decision](
		w,
		a.DecideClusterAPIDeployment,
		newDecisionInput(d, false),
	)
	require.NoError(w.T, err)
	for _, decision := range []*activities.Decision{&live, &cached} {
		decision.Blocked.Since, decision.Rollout.Recheck = decision.Blocked.At, decision.Blocked.At
		// the two decisions may be made in different seconds
		decision.Blocked.Message = regexp.MustCompile(`\d\d:\d\d:\d\d UTC`).
			ReplaceAllString(decision.Blocked.Message, "some time")
	}
	assert.Equal(w.T, live, cached)
	return live
}

func withOtherController(d *clusterv1.MachineDeployment) { d.Labels[clusterv1.WatchLabel] = "theirs" }

func withoutFinalizers(d *clusterv1.MachineDeployment) { d.Finalizers = nil }

// The Cluster owns the templates of a deployment, also while its rollouts are paused and before its first set exists.
func TestTemplatesOfADeploymentGetAnOwner(t *testing.T) {
	for name, row := range map[string]struct {
		change capitest.DeploymentChange
		want   bool
	}{
		"without a set":     {func(*clusterv1.MachineDeployment) {}, true},
		"rollouts paused":   {func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) }, true},
		"deployment paused": {capitest.WithAnnotation[*clusterv1.MachineDeployment](clusterv1.PausedAnnotation, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(1, row.change)
			w, a := newWorldWithTemplates(t, capitest.NewBootstrapTemplate(), capitest.NewInfrastructureTemplate(), d)
			assert.Equal(t, row.want, decideDeployment(w, d).Prepare)
			activitiestest.RunActivityTwice[string](
				w,
				a.FinalizeClusterAPIDeployment,
				kube.ReadInput{Ref: activitiestest.NewRef(d), Live: true},
			)
			for _, kind := range []*unstructured.Unstructured{capitest.NewBootstrapTemplate(), capitest.NewInfrastructureTemplate()} {
				template, err := w.ClusterAPIServer.ProviderObjects.
					Resource(capitest.ResourceOfObject(kind)).
					Namespace(d.Namespace).
					Get(t.Context(), kind.GetName(), metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, row.want, capi.HasOwner(template, string(capitest.NewCluster().UID)))
				assert.Equal(t, row.want, template.GetLabels()[clusterv1.ClusterNameLabel] == capitest.NewCluster().Name)
			}
		})
	}
}

// A decision depends on who reconciles the deployment, and on the stage of the deployment's deletion.
func TestDecideWhichDeploymentsMillwrightReconciles(t *testing.T) {
	set := func(change ...capitest.SetChange) *clusterv1.MachineSet {
		return capitest.NewSetOfDeployment(capitest.NewPreparedDeployment(0), "s", 0, 1, change...)
	}
	for _, row := range []struct {
		name                   string
		has                    []runtime.Object
		gone, prepare, release bool
		deletes                int
	}{
		{name: "ours", has: []runtime.Object{capitest.NewPreparedDeployment(0), set()}},
		{name: "gone", gone: true},
		{name: "another of this name", has: []runtime.Object{capitest.NewPreparedDeployment(0, func(d *clusterv1.MachineDeployment) { d.UID = "uid-new" })}, gone: true},
		{name: "handed over", has: []runtime.Object{capitest.NewPreparedDeployment(0, withOtherController), set()}, release: true},
		{name: "handed over, and without our finalizer", has: []runtime.Object{capitest.NewPreparedDeployment(0, withOtherController, withoutFinalizers)}, gone: true},
		{name: "new", has: []runtime.Object{capitest.NewPreparedDeployment(0, withoutFinalizers)}, prepare: true},
		{name: "being deleted, and no set is left", has: []runtime.Object{capitest.NewPreparedDeployment(0, capitest.AsDeletingObject[*clusterv1.MachineDeployment])}, release: true},
		{name: "being deleted, and a set is left", has: []runtime.Object{capitest.NewPreparedDeployment(0, capitest.AsDeletingObject[*clusterv1.MachineDeployment]), set()}, deletes: 1},
		{name: "being deleted, and so is its set", has: []runtime.Object{capitest.NewPreparedDeployment(0, capitest.AsDeletingObject[*clusterv1.MachineDeployment]), set(capitest.AsDeletingObject[*clusterv1.MachineSet])}},
		{name: "being deleted while it is paused", has: []runtime.Object{capitest.NewPreparedDeployment(0, capitest.AsDeletingObject[*clusterv1.MachineDeployment], capitest.WithAnnotation[*clusterv1.MachineDeployment](clusterv1.PausedAnnotation, "")), set()}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, _ := newWorld(t, row.has...)
			d := decideDeployment(w, capitest.NewPreparedDeployment(0))
			assert.Equal(t, []bool{row.gone, row.prepare, row.release}, []bool{d.Gone, d.Prepare, d.Release})
			assert.Len(t, d.Rollout.Delete, row.deletes)
			if row.gone {
				assert.Equal(t, kube.ObjectGoneDecision, d.Pending)
			}
			assert.Empty(t, w.MutatingRequests())
		})
	}
}

// A decision contains everything that a rollout needs, and uses no feature that Cluster API lacks.
func TestDecideDeploymentInARollout(t *testing.T) {
	d, objects := newDeploymentInRollout()
	w, _ := newWorld(t, objects...)
	got := decideDeployment(w, d)
	assert.True(t, got.Rollout.Rolling)
	assert.EqualValues(t, 2, got.Rollout.Revision)
	require.Len(t, got.Rollout.Resize, 1, "surge 1: %s", got.Rollout.Why)
	assert.Equal(
		t,
		[]any{"d-2", 1, 2},
		[]any{got.Rollout.Resize[0].Name, got.Rollout.Resize[0].From, got.Rollout.Resize[0].To},
	)
	assert.Equal(t, []int{3, 2}, []int{got.Picture.Wanted, got.Picture.Old})
	assert.True(t, got.Report)
	assert.Equal(t, kube.MinVersions{
		"machinedeployments.cluster.x-k8s.io":                     "900",
		"machinesets.cluster.x-k8s.io":                            "900",
		"machines.cluster.x-k8s.io":                               "900",
		"clusters.cluster.x-k8s.io":                               "900",
		"kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io":       "900",
		"examplemachinetemplates.infrastructure.cluster.x-k8s.io": "900",
	}, got.Seen)
	assert.Empty(t, got.Rollout.Mark)
	assert.Empty(t, got.Rollout.Taint)
	assert.Empty(t, got.Rollout.ProtectFromAutoscaler)
	assert.Empty(t, got.Rollout.Move)
	assert.False(t, got.Replace)
}

// A deployment gets its first set, then a new template, and then the old template again. In each step, the test runs
// the activities that the decision names. reconcileSets does the work of the sets' workflows.
func TestRollOutANewTemplateAndRestoreTheOldOne(t *testing.T) {
	w, a := newWorld(
		t,
		capitest.NewPreparedDeployment(
			2,
			withoutFinalizers,
			func(d *clusterv1.MachineDeployment) { delete(d.Annotations, clusterv1.RevisionAnnotation) },
		),
	)
	d := w.ClusterAPIDeployment("d")
	run := func() {
		t.Helper()
		for range 60 {
			settled := runDeploymentStep(w, a, d)
			if w.ClusterAPIDeployment("d") == nil || settled {
				return
			}
		}
		t.Fatal("it does not come to rest")
	}
	run()
	sets := w.ClusterAPISets()
	require.Len(t, sets, 1)
	first := sets[0]
	assert.EqualValues(t, 2, *first.Spec.Replicas)
	assert.Equal(t, "1", w.ClusterAPIDeployment("d").Annotations[clusterv1.RevisionAnnotation])

	changeDeployment(w, func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Version = "v1.32.0" })
	run()
	assert.Equal(t, map[string]int32{"1": 0, "2": 2}, sizesByRevision(w))
	assert.Equal(t, "2", w.ClusterAPIDeployment("d").Annotations[clusterv1.RevisionAnnotation])

	changeDeployment(w, func(d *clusterv1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRollbackTo] = "0" })
	run()
	assert.Equal(t, map[string]int32{"2": 0, "3": 2}, sizesByRevision(w), "the first set is the current one again")
	assert.Equal(t, "3", w.ClusterAPISet(first.Name).Annotations[clusterv1.RevisionAnnotation])
	assert.Equal(t, "v1.31.2", w.ClusterAPIDeployment("d").Spec.Template.Spec.Version)
	assert.NotContains(t, w.ClusterAPIDeployment("d").Annotations, v1alpha1.AnnotationRollbackTo)

	// the sets must be older than rollout.after, but all steps together take less than a second
	for _, s := range w.ClusterAPISets() {
		older := s.DeepCopy()
		older.CreationTimestamp = capitest.MinutesBeforeNoon(60)
		_, err := kube.PatchChanges(t.Context(), w.ClusterAPIServer.Client.MachineSets("shop"), s, older)
		require.NoError(t, err)
	}
	changeDeployment(w, func(d *clusterv1.MachineDeployment) { d.Spec.Rollout.After = metav1.Now().Rfc3339Copy() })
	run()
	assert.Equal(t, map[string]int32{"2": 0, "3": 0, "4": 2}, sizesByRevision(w), "a new set of the same template")

	changeDeployment(
		w,
		func(d *clusterv1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRevisionHistoryLimit] = "0" },
	)
	run()
	assert.Equal(t, map[string]int32{"4": 2}, sizesByRevision(w), "no former set is kept")

	require.NoError(t, w.ClusterAPIServer.Client.Deployments("shop").Delete(t.Context(), "d", metav1.DeleteOptions{}))
	run()
	assert.Nil(t, w.ClusterAPIDeployment("d"))
	assert.Empty(t, w.ClusterAPISets())
}

// sizesByRevision returns the sizes of the sets by the sets' revisions.
func sizesByRevision(w *activitiestest.World) map[string]int32 {
	all := map[string]int32{}
	for _, s := range w.ClusterAPISets() {
		all[s.Annotations[clusterv1.RevisionAnnotation]] = *s.Spec.Replicas
	}
	return all
}

// changeDeployment changes deployment d as a person does.
func changeDeployment(w *activitiestest.World, how capitest.DeploymentChange) {
	w.T.Helper()
	d := w.ClusterAPIDeployment("d")
	changed := d.DeepCopy()
	how(changed)
	_, err := kube.PatchChanges(w.T.Context(), w.ClusterAPIServer.Client.Deployments("shop"), d, changed)
	require.NoError(w.T, err)
}

// runDeploymentStep makes and carries out one decision, and then runs reconcileSets. runDeploymentStep returns true if
// there was nothing to do.
func runDeploymentStep(
	w *activitiestest.World,
	a *deployment.Activities,
	d *clusterv1.MachineDeployment,
) (settled bool) {
	w.T.Helper()
	got := decideDeployment(w, d)
	ref := activitiestest.NewRef(d)
	at := newDecisionInput(d, true).ReadInput
	r := got.Rollout
	switch {
	case got.Gone:
		return true
	case got.Prepare || got.Release:
		_, err := activitiestest.RunActivity[string](w, a.FinalizeClusterAPIDeployment, at)
		require.NoError(w.T, err)
	case r.Record != nil:
		reportDeploymentTwice(w, a, d, activities.Report{Input: newDecisionInput(d, true), Record: r.Record})
	case r.Rollback != nil:
		activitiestest.RunActivityTwice[kube.MinVersions](
			w,
			a.RollBackClusterAPIDeployment,
			activities.RollbackInput{Deployment: ref, Version: got.Version, Rollback: *r.Rollback},
		)
	case r.Create != nil:
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			a.CreateClusterAPISet,
			activities.SetCreation{Deployment: ref, Version: got.Version, SetCreation: *r.Create},
		)
		require.NoError(w.T, err)
	case r.HasActions():
		_, err := activitiestest.RunActivity[kube.MinVersions](w, a.ChangeClusterAPISets, activities.SetChanges{
			Deployment: ref,
			SetChanges: rollout.SetChanges{
				Adopt:         r.Adopt,
				AllowScaleUp:  r.AllowScaleUp,
				ForbidScaleUp: r.ForbidScaleUp,
				Revise:        r.Revise,
				Sync:          r.Sync,
				Resize:        r.Resize,
				Delete:        r.Delete,
			},
		})
		require.NoError(w.T, err)
	case got.Report:
		reportDeploymentTwice(w, a, d, activities.Report{Input: newDecisionInput(d, true)})
	default:
		settled = true
	}
	return !reconcileSets(w) && settled
}

func reportDeploymentTwice(
	w *activitiestest.World,
	a *deployment.Activities,
	d *clusterv1.MachineDeployment,
	in activities.Report,
) {
	w.T.Helper()
	version := activitiestest.RunActivityTwice[string](w, a.ReportClusterAPIDeployment, in)
	assert.Equal(w.T, w.ClusterAPIDeployment(d.Name).ResourceVersion, version, "the version to wait for")
}

// reconcileSets gives each set its desired number of machines, and writes the status of the set. reconcileSets
// reports whether anything changed.
func reconcileSets(w *activitiestest.World) (acted bool) {
	w.T.Helper()
	sets, machines := w.ClusterAPIServer.Client.MachineSets("shop"), w.ClusterAPIServer.Client.Machines("shop")
	for _, s := range w.ClusterAPISets() {
		list, err := machines.List(w.T.Context(), metav1.ListOptions{})
		require.NoError(w.T, err)
		var own []*clusterv1.Machine
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], s) {
				own = append(own, &list.Items[i])
			}
		}
		wanted := int(*s.Spec.Replicas)
		if s.DeletionTimestamp != nil {
			wanted = 0
		}
		for i := len(own); i < wanted; i++ {
			m := capitest.NewMachine(s.Name+"-"+string(rune('a'+i)), s)
			m.ResourceVersion = ""
			m.Finalizers = nil
			_, err := machines.Create(w.T.Context(), m, metav1.CreateOptions{})
			require.NoError(w.T, err)
			acted = true
		}
		for i := wanted; i < len(own); i++ {
			require.NoError(w.T, machines.Delete(w.T.Context(), own[i].Name, metav1.DeleteOptions{}))
			acted = true
		}
		if s.DeletionTimestamp != nil && len(own) == 0 {
			released := s.DeepCopy()
			released.Finalizers = kube.WithoutItem(s.Finalizers, capi.Finalizer)
			_, err := kube.PatchChanges(w.T.Context(), sets, s, released)
			require.NoError(w.T, err)
			acted = true
			continue
		}
		if s.Status.ObservedGeneration != s.Generation || capi.ValueOrZero(s.Status.Replicas) != int32(wanted) {
			counted := s.DeepCopy()
			counted.Status.ObservedGeneration, counted.Status.Replicas = s.Generation, new(int32(wanted))
			_, err := kube.PatchChanges(w.T.Context(), sets, s, counted, "status")
			require.NoError(w.T, err)
			acted = true
		}
	}
	return acted
}
