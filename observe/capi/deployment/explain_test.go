package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/capi/capitest"
	"millwright/observe/capi/deployment"
)

// A stalled deployment reports why it is stalled, and which command helps.
func TestExplanationFacts(t *testing.T) {
	newer := capitest.WithVersion("v1.32.0")
	for _, row := range []struct {
		name    string
		change  capitest.DeploymentChange
		tree    func(*deployment.ObjectTree)
		blocker string
		says    string
	}{
		{"nothing", nil, nil, "", ""},
		{"paused, and there is nothing to do", withAnnotation(clusterv1.PausedAnnotation, ""), nil, "", ""},
		{"paused in a rollout", func(d *clusterv1.MachineDeployment) {
			newer(d)
			withAnnotation(clusterv1.PausedAnnotation, "")(d)
		}, nil, "Paused", "MachineDeployment has the cluster.x-k8s.io/paused annotation (since 12:00:00 UTC); nothing is done until this has ended; " +
			"`kubectl annotate machinedeployments.cluster.x-k8s.io -n shop d cluster.x-k8s.io/paused-`"},
		{"its Cluster is paused in a rollout", newer, func(f *deployment.ObjectTree) { f.Cluster.Spec.Paused = new(true) }, "Paused", "Cluster spec.paused is set to true (since 12:00:00 UTC); nothing is done until this has ended; " +
			"`kubectl edit clusters.cluster.x-k8s.io -n shop c`"},
		{"spec.paused in a rollout", func(d *clusterv1.MachineDeployment) {
			newer(d)
			d.Spec.Paused = new(true)
			withAnnotation(v1alpha1.AnnotationRolloutPausedBy, "ann: lunch")(d)
		}, nil, "Paused", "paused by ann (lunch): the template is not rolled out (since 12:00:00 UTC); nothing is rolled out until somebody resumes it; `millwright rollout resume shop/d`"},
		{"no template", newer, func(f *deployment.ObjectTree) {
			f.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
		}, "TemplateNotFound", "ExampleMachineTemplate shop/small does not exist: no set is created for the template (since 12:00:00 UTC); " +
			"`kubectl get machinedeployments.cluster.x-k8s.io -n shop d -o yaml`"},
		{"no Cluster", newer, func(f *deployment.ObjectTree) { f.Cluster = nil }, "ScaleUpStopped", "Cluster c does not exist: no set is created for the template (since 12:00:00 UTC); " +
			"`kubectl get machinedeployments.cluster.x-k8s.io -n shop d -o yaml`"},
		{"contested", func(d *clusterv1.MachineDeployment) {
			d.Finalizers = append(d.Finalizers, clusterv1.MachineDeploymentFinalizer)
		}, nil, "Invalid", "another controller reconciles this MachineDeployment: it has added the finalizer cluster.x-k8s.io/machinedeployment; " +
			"install the admission policy of Millwright, then remove this finalizer (since 12:00:00 UTC); `kubectl edit machinedeployments.cluster.x-k8s.io -n shop d`"},
		{"a set stands still", nil, func(f *deployment.ObjectTree) {
			f.Members = f.Members[:2]
			f.Sets[0].Status.Conditions = []metav1.Condition{{Type: "MachinesCreated", Status: "False", Reason: "PreflightCheckFailed", Message: "upgrade", LastTransitionTime: capitest.MinutesBeforeNoon(5)}}
		}, "PreflightCheckFailed", "set s creates no machine: upgrade (since 11:55:00 UTC); it creates its machines by itself once the control plane passes the check; " +
			"`kubectl annotate machinesets.cluster.x-k8s.io -n shop s machineset.cluster.x-k8s.io/skip-preflight-checks=All`"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			set := capitest.NewSetOfDeployment(d, "s", 3, 1)
			if row.change != nil {
				row.change(d)
			}
			f := newObjectTree(d, set)
			f.Members = readyMachines(set, "a", "b", "c")
			if row.tree != nil {
				row.tree(&f)
			}
			_, blocked := plannedStatusAndBlockers(f, capitest.Noon)
			assert.Equal(t, row.says, blocked.Message)
			assert.Equal(t, row.blocker, blocked.Reason)
		})
	}
}

// A deployment of Cluster API has the same requests as a deployment of Millwright, in Cluster API's fields.
func TestRequestFactsAndPatches(t *testing.T) {
	d := capitest.NewPreparedDeployment(
		3,
		capitest.WithVersion("v1.32.0"),
		withRolloutAfter(30),
		withAnnotation(v1alpha1.AnnotationLastRequest, "before"),
	)
	f := newObjectTree(
		d,
		capitest.NewSetOfDeployment(d, "s", 1, 4),
		capitest.NewSetOfDeployment(d, "r", 2, 2, capitest.WithFormerTemplate),
		capitest.NewSetOfDeployment(d, "q", 0, 1, capitest.WithFormerTemplate),
		capitest.NewSetOfDeployment(d, "before-the-restart", 0, 3),
	)
	f.MissingBySet = map[types.UID]string{"uid-q": "X shop/x"}
	for _, s := range f.Sets {
		s.CreationTimestamp = capitest.MinutesBeforeNoon(20)
	}
	o := deployment.RolloutFacts(f, capitest.Noon)
	facts := deployment.RequestFacts(f, o, rollout.Decide(o))
	assert.Equal(t, request.DeploymentFacts{
		Name:                    "shop/d",
		UID:                     "uid-d",
		Now:                     capitest.Noon,
		LastRecord:              "before",
		Rolling:                 true,
		Revision:                4,
		EarlierRevisions:        []int64{2},
		MissingObjectByRevision: map[int64]string{1: "X shop/x"},
		PinFacts:                request.PinFacts{DuplicateRevisions: []int64{3}},
		RestartedAt:             "2026-01-01T11:30:00Z",
		IsClusterAPI:            true,
	}, facts)

	patch := func(o request.CommandOrder) map[string]any {
		o.Actor, o.RequestedAt = "ann", capitest.Noon
		d := request.Decide(o, facts)
		assert.Empty(t, d.RefusalReason)
		patch := deployment.RequestPatch(o.Command, d)
		delete(patch["metadata"].(map[string]any)["annotations"].(map[string]any), v1alpha1.AnnotationLastRequest)
		return patch
	}
	annotations := func(all map[string]any) map[string]any { return map[string]any{"annotations": all} }
	assert.Equal(
		t,
		map[string]any{"metadata": annotations(map[string]any{
			v1alpha1.AnnotationRollbackTo: "2", v1alpha1.AnnotationRolloutUndoBy: "2 ann",
		})},
		patch(request.CommandOrder{Command: request.Undo}),
	)
	assert.Equal(t, map[string]any{
		"metadata": annotations(map[string]any{v1alpha1.AnnotationChangeCause: "started by ann"}),
		"spec":     map[string]any{"rollout": map[string]any{"after": "2026-01-01T12:00:00Z"}},
	}, patch(request.CommandOrder{Command: request.Start}))
	assert.Equal(t, map[string]any{
		"metadata": annotations(map[string]any{v1alpha1.AnnotationRolloutPausedBy: "ann"}),
		"spec":     map[string]any{"paused": true},
	}, patch(request.CommandOrder{Command: request.Pause}))
	assert.Equal(
		t,
		map[string]any{"metadata": annotations(map[string]any{v1alpha1.AnnotationRolloutHold: "4 ann: bad"})},
		patch(request.CommandOrder{Command: request.Cancel, Reason: "bad"}),
	)

	facts.RestartedAt = "2026-02-01T00:00:00Z" // time of the planned restart
	assert.Equal(
		t,
		"wrote 2026-01-01T12:00:00Z into spec.rollout.after of deployment shop/d: all its machines are replaced; it overwrites the later time 2026-02-01T00:00:00Z",
		request.Decide(request.CommandOrder{Command: request.Start}, facts).Message,
	)

	refused := request.Decide(request.CommandOrder{Command: request.Undo, Revision: new(int64(1))}, facts)
	assert.Equal(
		t,
		"revision 1 of deployment shop/d cannot return: X shop/x does not exist any more; it can go back to 2",
		refused.RefusalReason,
	)
	assert.Nil(t, deployment.RequestPatch(request.Undo, refused))
}
