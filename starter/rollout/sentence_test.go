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

// deleted makes a deployment one that is being deleted.
func deleted(d *v1alpha1.MachineDeployment) {
	d.DeletionTimestamp, d.Finalizers = new(metav1.NewTime(begun)), []string{v1alpha1.FinalizerMachine}
}

func classless(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "" }

func undone(to int64) poolEdit {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = &v1alpha1.RollbackConfig{Revision: to} }
}

// before is a deployment whose new template has no set yet.
func before(edits ...poolEdit) *pool {
	return webPool(edits...).set("web-a", 6, "small", 3).running("a-1", "a-2", "a-3")
}

func TestRolloutSentence(t *testing.T) {
	const (
		stop   = "To stop it where it is: millwright rollout pause shop/web"
		back   = "To go back: millwright rollout undo shop/web --reason …"
		goOn   = "To go on: millwright rollout resume shop/web"
		drains = "To see why machine a-2 is still there: millwright drain explain shop/a-2"
	)
	held := annotated(v1alpha1.AnnotationRolloutHold, "7 ann: the image is bad")
	unsaid := rolled()
	unsaid.sets[2].Status.ObservedReplicas = 2
	fewer := func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 2 }
	for _, c := range []struct {
		name   string
		pool   *pool
		want   string
		advice []string
	}{
		{"complete", rolled(), "revision 7 is complete.", nil},
		{"complete, although paused", rolled(paused), "revision 7 is complete.", nil},
		{"about to begin", before(), "the new template is being rolled out; next: create a set of 1 machine for revision 7: the template has none.", []string{stop}},
		{
			"a step is due", before().set("web-b", 7, "large", 0),
			"revision 7 is being rolled out; next: resize set web-b 0→1: room for 1 machine, 3 wanted.",
			[]string{stop, back},
		},
		{
			"it waits for machines", midway(),
			"revision 7 waits: 1 new machine is not available yet: 2 are available, 3 are needed.",
			[]string{drains, stop, back},
		},
		{
			"it waits for a machine to go", webPool().set("web-a", 6, "small", 1).running("a-1").machine("a-2", v1alpha1.MachineTerminating).set("web-b", 7, "large", 2).running("b-1", "b-2"),
			"revision 7 waits: 4 machines existing or being deleted, 4 allowed.",
			[]string{drains, stop, back},
		},
		{
			"the last old machine goes", webPool().set("web-a", 6, "small", 0).machine("a-2", v1alpha1.MachineTerminating).set("web-b", 7, "large", 3).running("b-1", "b-2", "b-3"),
			"revision 7 is being rolled out: 3 machines wanted, 3 available; 1 machine still being deleted.",
			[]string{drains, stop, back},
		},
		{"a set has yet to tell", unsaid, "3 machines wanted, 3 available.", []string{back}},
		{"only the number changes", rolled(fewer), "next: resize set web-b 3→2: 2 wanted in all.", []string{back}},
		{"a machine is away", webPool().set("web-b", 7, "large", 3).running("b-1", "b-2").machine("b-3", v1alpha1.MachineUnknown), "revision 7 waits: 1 machine is not available yet: 2 are available, 3 are needed.", nil},
		{"paused", midway(paused), "it is paused: 2 of 3 machines up to date.", []string{goOn}},
		{"paused by a request", midway(paused, annotated(v1alpha1.AnnotationRolloutPausedBy, "ann: lunch")), "it is paused by ann (lunch): 2 of 3 machines up to date.", []string{goOn}},
		{"paused before it began", before(paused), "it is paused: its template is not rolled out.", []string{goOn}},
		{"held", midway(held), "revision 7 is held by ann (the image is bad): 2 of 3 machines up to date.", []string{goOn, back}},
		{
			"a stage that a person passes", midway().under(steps(approved(1), approved(2))),
			"revision 7 waits: step 1 of 2 has its 1 machine, and lasts until a person passes it.",
			[]string{"To pass the step: millwright rollout approve shop/web --reason …", back},
		},
		{
			"a stage by the clock", midway().under(steps(lasting(intstr.FromInt32(1), time.Hour))),
			"revision 7 waits: step 1 of 1 has its 1 machine, and lasts until 15:06:07 UTC (in 1h).",
			[]string{"To pass the step: millwright rollout approve shop/web --reason …", back},
		},
		{
			"late", midway(patient(600)),
			"revision 7 made no progress for 10m, and its progress deadline has passed: 1 new machine is not available yet: 2 are available, 3 are needed.",
			[]string{drains, stop, back},
		},
		{"late while paused", midway(patient(600), paused), "it is paused: 2 of 3 machines up to date.", []string{goOn}},
		{"it gives up", midway(patient(600)).under(atDeadline), "revision 7 is given up; next: return to revision 6, set web-a: no progress for 10m.", []string{drains}},
		{"undo", midway(undone(0)), "an undo is asked for; next: return to revision 6, set web-a.", []string{drains}},
		{"deleted", midway(deleted), "it is being deleted; sets left: 2.", []string{"To see why its machines are still there: millwright drain list -n shop"}},
		{
			"invalid", midway(classless), "nothing can be done with it: the template names no machine class.",
			[]string{"To put it right: kubectl edit machinedeployment -n shop web"},
		},
		{
			"sets are prepared", webPool(strategy(v1alpha1.OnDeleteMachineDeploymentStrategyType)).set("web-a", 6, "small", 2).running("a-1", "a-2").set("web-b", 7, "large", 1).running("b-1"),
			"next: allow the current set to create machines, and no old set.",
			[]string{"To let an old machine go: kubectl delete machine -n shop a-1", back},
		},
	} {
		s := c.pool.snapshot()
		assert.Equal(t, "shop/web: "+c.want, s.sentence(), c.name)
		assert.Equal(t, c.advice, s.advice(), c.name)
	}
}

func TestAdviceForPeopleWhoChooseTheMachines(t *testing.T) {
	manual := updating(v1alpha1.OrchestrationTypeManual)
	assert.Contains(
		t,
		manual.snapshot().advice(),
		"To select a node, in its own cluster: kubectl label node n-a-1 node.machine.sapcloud.io/selected-for-update=true",
	)
	delete(manual.machines[0].Labels, v1alpha1.LabelNode)
	assert.NotContains(t, strings.Join(manual.snapshot().advice(), "\n"), "kubectl label node", "its node is not known")
	onDelete := webPool(strategy(v1alpha1.OnDeleteMachineDeploymentStrategyType)).
		set("web-a", 6, "small", 2).
		machine("a-1", v1alpha1.MachineTerminating).running("a-2").set("web-b", 7, "large", 1).running("b-1")
	onDelete.sets[0].Labels[v1alpha1.LabelScaleUpDisabled] = v1alpha1.ValueLowerTrue
	assert.Contains(t, onDelete.snapshot().advice(), "To let an old machine go: kubectl delete machine -n shop a-2")
	assert.NotContains(t, strings.Join(midway().snapshot().advice(), "\n"), "kubectl delete")
}

func TestWhoIsToldToFollow(t *testing.T) {
	held := annotated(v1alpha1.AnnotationRolloutHold, "7")
	for name, p := range map[string]*pool{"complete": rolled(), "paused": midway(paused), "held": midway(held), "deleted": midway(deleted), "invalid": midway(classless)} {
		assert.Empty(t, p.snapshot().follow(), name)
	}
	assert.Equal(t, []string{"To follow it: millwright rollout watch shop/web"}, midway().snapshot().follow())
}

func TestSentenceDoubtsThatAnybodyWorks(t *testing.T) {
	s := before().snapshot()
	s.idle = now.Add(-2 * time.Minute)
	assert.Contains(
		t,
		s.sentence(),
		"the template has none; that has been due since 14:04:07 UTC (2m ago): check that bridge and workers run.",
	)
}
