package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
)

// markDeleted sets the deletion timestamp and the finalizer of a deployment.
func markDeleted(d *v1alpha1.MachineDeployment) {
	d.DeletionTimestamp, d.Finalizers = new(metav1.NewTime(beginTime)), []string{v1alpha1.FinalizerMachine}
}

func removeClass(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "" }

func withRollbackRequest(to int64) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = &v1alpha1.RollbackConfig{Revision: to} }
}

// poolWithoutNewSet returns a deployment whose new template has no set yet.
func poolWithoutNewSet(edits ...poolDeploymentEdit) *pool {
	return webPool(edits...).addSet("web-a", 6, "small", 3).addRunningMachines("a-1", "a-2", "a-3")
}

func TestRolloutSentence(t *testing.T) {
	const (
		stop   = "To stop it where it is: millwright rollout pause shop/web"
		back   = "To go back: millwright rollout undo shop/web --reason …"
		goOn   = "To go on: millwright rollout resume shop/web"
		drains = "To see why machine a-2 is still there: millwright drain explain shop/a-2"
	)
	held := withAnnotation(v1alpha1.AnnotationRolloutHold, "7 ann: the image is bad")
	unsaid := completedPool()
	unsaid.sets[2].Status.ObservedReplicas = 2
	fewer := func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 2 }
	for _, c := range []struct {
		name   string
		pool   *pool
		want   string
		advice []string
	}{
		{"complete", completedPool(), "revision 7 is complete.", nil},
		{"complete, although paused", completedPool(setPaused), "revision 7 is complete.", nil},
		{"about to begin", poolWithoutNewSet(), "the new template is being rolled out; next: create a set of 1 machine for revision 7: the template has none.", []string{stop}},
		{
			"a step is due", poolWithoutNewSet().addSet("web-b", 7, "large", 0),
			"revision 7 is being rolled out; next: resize set web-b 0→1: room for 1 machine, 3 wanted.",
			[]string{stop, back},
		},
		{
			"it waits for machines", waitingPool(),
			"revision 7 waits: 1 new machine is not available yet: 2 are available, 3 are needed.",
			[]string{drains, stop, back},
		},
		{
			"it waits for a machine to go", webPool().addSet("web-a", 6, "small", 1).addRunningMachines("a-1").addMachine("a-2", v1alpha1.MachineTerminating).addSet("web-b", 7, "large", 2).addRunningMachines("b-1", "b-2"),
			"revision 7 waits: no room: 4 of at most 4 machines exist or are being deleted.",
			[]string{drains, stop, back},
		},
		{
			"the last old machine goes", webPool().addSet("web-a", 6, "small", 0).addMachine("a-2", v1alpha1.MachineTerminating).addSet("web-b", 7, "large", 3).addRunningMachines("b-1", "b-2", "b-3"),
			"revision 7 is being rolled out: 3 machines wanted, 3 available; 1 machine still being deleted.",
			[]string{drains, stop, back},
		},
		{"a set has yet to tell", unsaid, "3 machines wanted, 3 available.", []string{back}},
		{"only the number changes", completedPool(fewer), "next: resize set web-b 3→2: 2 wanted in all.", []string{back}},
		{"a machine is away", webPool().addSet("web-b", 7, "large", 3).addRunningMachines("b-1", "b-2").addMachine("b-3", v1alpha1.MachineUnknown), "revision 7 waits: 1 machine is not available yet: 2 are available, 3 are needed.", nil},
		{"paused", waitingPool(setPaused), "it is paused: 2 of 3 machines up to date.", []string{goOn}},
		{"paused by a request", waitingPool(setPaused, withAnnotation(v1alpha1.AnnotationRolloutPausedBy, "ann: lunch")), "it is paused by ann (lunch): 2 of 3 machines up to date.", []string{goOn}},
		{"paused before it began", poolWithoutNewSet(setPaused), "it is paused: its template is not rolled out.", []string{goOn}},
		{"held", waitingPool(held), "revision 7 is held by ann (the image is bad): 2 of 3 machines up to date.", []string{goOn, back}},
		{
			"a stage that a person passes", waitingPool().addPolicy(policyWithSteps(approvalStep(1), approvalStep(2))),
			"revision 7: step 1 of 2 done (1 of 3 machines), waits for approval.",
			[]string{"To pass the step: millwright rollout approve shop/web --reason …", back},
		},
		{
			"a stage by the clock", waitingPool().addPolicy(policyWithSteps(timedStep(intstr.FromInt32(1), time.Hour))),
			"revision 7: step 1 of 1 done (1 of 3 machines), waits until 15:06:07 UTC (in 1h).",
			[]string{"To pass the step: millwright rollout approve shop/web --reason …", back},
		},
		{
			"late", waitingPool(withProgressDeadline(600)),
			"revision 7 made no progress for 10m, and its progress deadline has passed: 1 new machine is not available yet: 2 are available, 3 are needed.",
			[]string{drains, stop, back},
		},
		{"late while paused", waitingPool(withProgressDeadline(600), setPaused), "it is paused: 2 of 3 machines up to date.", []string{goOn}},
		{"it gives up", waitingPool(withProgressDeadline(600)).addPolicy(policyWithRollbackAtDeadline).addInstance("b-2"), "revision 7 failed (no progress for 10m: 1 machine of it is not available): back on revision 6 since 14:06:07 UTC.", []string{drains}},
		{"undo", waitingPool(withRollbackRequest(0)), "an undo is asked for; next: return to revision 6, set web-a.", []string{drains}},
		{"deleted", waitingPool(markDeleted), "it is being deleted; sets left: 2.", []string{"To see why its machines are still there: millwright drain list -n shop"}},
		{
			"invalid", waitingPool(removeClass), "nothing can be done with it: the template names no machine class.",
			[]string{"To put it right: kubectl edit machinedeployment -n shop web"},
		},
		{
			"sets are prepared", webPool(withStrategy(v1alpha1.OnDeleteMachineDeploymentStrategyType)).addSet("web-a", 6, "small", 2).addRunningMachines("a-1", "a-2").addSet("web-b", 7, "large", 1).addRunningMachines("b-1"),
			"next: allow the current set to create machines, and no old set.",
			[]string{"To let an old machine go: kubectl delete machine -n shop a-1", back},
		},
	} {
		s := c.pool.newSnapshot()
		assert.Equal(t, "shop/web: "+c.want, s.statusSentence(), c.name)
		assert.Equal(t, c.advice, s.advice(), c.name)
	}
}

func TestAdviceForOnDeleteAndInPlaceManual(t *testing.T) {
	manual := inPlacePool(v1alpha1.OrchestrationTypeManual)
	assert.Contains(
		t,
		manual.newSnapshot().advice(),
		"To select a node, in its own cluster: kubectl label node n-a-1 node.machine.sapcloud.io/selected-for-update=true",
	)
	delete(manual.machines[0].Labels, v1alpha1.LabelNode)
	assert.NotContains(t, strings.Join(manual.newSnapshot().advice(), "\n"), "kubectl label node", "its node is not known")
	onDelete := webPool(withStrategy(v1alpha1.OnDeleteMachineDeploymentStrategyType)).
		addSet("web-a", 6, "small", 2).
		addMachine("a-1", v1alpha1.MachineTerminating).
		addRunningMachines("a-2").addSet("web-b", 7, "large", 1).addRunningMachines("b-1")
	onDelete.sets[0].Labels[v1alpha1.LabelScaleUpDisabled] = v1alpha1.ValueLowerTrue
	assert.Contains(t, onDelete.newSnapshot().advice(), "To let an old machine go: kubectl delete machine -n shop a-2")
	assert.NotContains(t, strings.Join(waitingPool().newSnapshot().advice(), "\n"), "kubectl delete")
}

func TestFollowCommands(t *testing.T) {
	held := withAnnotation(v1alpha1.AnnotationRolloutHold, "7")
	for name, p := range map[string]*pool{"complete": completedPool(), "paused": waitingPool(setPaused), "held": waitingPool(held), "deleted": waitingPool(markDeleted), "invalid": waitingPool(removeClass)} {
		assert.Empty(t, p.newSnapshot().followCommands(), name)
	}
	assert.Equal(
		t,
		[]string{"To follow it: millwright rollout watch shop/web"},
		waitingPool().newSnapshot().followCommands(),
	)
}

func TestSentenceOfAnOverdueStep(t *testing.T) {
	s := poolWithoutNewSet().newSnapshot()
	s.overdueSince = now.Add(-2 * time.Minute)
	assert.Contains(
		t,
		s.statusSentence(),
		"the template has none; that has been due since 14:04:07 UTC (2m ago): check that bridge and workers run.",
	)
}
