package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	observedeployment "millwright/observe/deployment"
)

// After the changes of a decision are written, the next decision contains no changes. If the next decision repeated the
// changes, the workflow would loop for ever.
func TestChangeNodesConverges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]func(*corev1.Node){
		"nothing is there":     {},
		"a candidate":          {activitiestest.WithCandidateLabel},
		"selected":             {activitiestest.WithSelectedLabels},
		"a taint of this name": {withTaint(v1alpha1.TaintPreferNoSchedule, "x", "NoExecute")},
		"guarded otherwise":    {withNodeAnnotations(v1alpha1.AnnotationScaleDownDisabled, "no"), withScaleDownDisabledByMCM},
		"guarded by a user":    {withScaleDownDisabled},
		"an unknown result":    {func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelUpdateResult: "maybe"} }},
		"a failed result":      {func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelUpdateResult: "failed"} }},
		"updated":              successfulUpdateChanges,
		"updated by itself":    {func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelUpdateResult: "successful"} }},
	} {
		for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineRunning, v1alpha1.MachineInPlaceUpdating} {
			for _, current := range []bool{true, false} {
				for _, handed := range []bool{true, false} {
					t.Run(name, func(t *testing.T) {
						w, d := newWorldDuringUpdate(t, phase, current, handed, activitiestest.NewNode(change...))
						asked := 0
						for range 3 {
							w.AwaitCaches()
							next := rollout.Decide(
								observedeployment.RolloutFacts(observedeployment.ReadTree(w.Cluster, d), d.CreationTimestamp.Time),
							)
							require.Empty(
								t,
								len(next.AllowScaleUp)+len(next.ForbidScaleUp)+len(next.Sync),
								"a world in which nodes are decided about",
							)
							require.Nil(t, next.Revise)
							in := deployment.NodeChanges{
								Deployment: activitiestest.NewRef(d),
								NodeChanges: rollout.NodeChanges{
									FinishUpdate:            next.FinishUpdate,
									ClearUpdateLabels:       next.ClearUpdateLabels,
									Candidates:              next.Candidates,
									Select:                  next.Select,
									Taint:                   next.Taint,
									Untaint:                 next.Untaint,
									ProtectFromAutoscaler:   next.ProtectFromAutoscaler,
									UnprotectFromAutoscaler: next.UnprotectFromAutoscaler,
								},
							}
							asked = in.Len()
							w.ForgetRequests()
							_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeNodes, in)
							require.NoError(t, err)
							assert.Equal(t, asked > 0, len(w.MutatingRequests()) > 0, "%+v", in)
						}
						assert.Zero(t, asked, "it has come to an end")
					})
				}
			}
		}
	}
}

// newWorldDuringUpdate returns a world with a deployment that updates in place and two sets, one of which has a machine
// on the given node.
func newWorldDuringUpdate(
	t *testing.T,
	phased v1alpha1.MachinePhase,
	current, handed bool,
	n *corev1.Node,
) (*activitiestest.World, *v1alpha1.MachineDeployment) {
	d := activitiestest.NewDeployment("d", 2)
	d.Annotations = map[string]string{v1alpha1.AnnotationRevision: "2"}
	d.Spec.Strategy.Type = v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	d.Spec.Strategy.InPlaceUpdate = &v1alpha1.InPlaceUpdateMachineDeployment{
		OrchestrationType: v1alpha1.OrchestrationTypeAuto,
	}
	young := activitiestest.NewMachineSet("d-2", 1, activitiestest.WithOwner[*v1alpha1.MachineSet](d))
	young.Annotations = map[string]string{v1alpha1.AnnotationRevision: "2"}
	old := activitiestest.NewMachineSet("d-1", 1, activitiestest.WithOwner[*v1alpha1.MachineSet](d))
	old.Annotations = map[string]string{v1alpha1.AnnotationRevision: "1"}
	old.Labels = map[string]string{v1alpha1.LabelScaleUpDisabled: "true"}
	old.Spec.Template.Spec.Class.Name = "old"
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithPhase(phased),
		activitiestest.WithOwner[*v1alpha1.Machine](map[bool]*v1alpha1.MachineSet{true: young, false: old}[current]),
	)
	if handed {
		m.Labels[v1alpha1.LabelUpdateResult] = "successful"
	}
	return activitiestest.NewWorld(t, d, young, old, m, n), d
}
