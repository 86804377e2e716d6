package watch

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
)

// fields lists the facts of a struct of facts; those of a nested struct as Outer.Inner.
func fields(t reflect.Type, prefix string) (names []string) {
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct {
			names = append(names, fields(f.Type, prefix+f.Name+".")...)
			continue
		}
		names = append(names, prefix+f.Name)
	}
	return names
}

// fact returns one fact by its name.
func fact(facts any, name string) any {
	v := reflect.ValueOf(facts)
	for part := range strings.SplitSeq(name, ".") {
		v = v.FieldByName(part)
	}
	return v.Interface()
}

// factRow changes one fact of a world that has come to rest, in a way that makes the object need something.
type factRow struct {
	fact   string
	name   string           // what changes it, where the fact alone does not tell
	before []runtime.Object // put instead of those of the calm stack
	change func(w *world)
}

func replace[T runtime.Object](o T, changes ...func(T)) func(*world) {
	return func(w *world) { w.put(changed(o, changes...)) }
}

// proveFacts shows for each fact that attention can read that a change of it reaches the object's workflow, at once or in a moment.
func proveFacts(t *testing.T, facts reflect.Type, object metav1.Object, read func(*world) any, rows []factRow, never map[string]string) {
	missing := map[string]bool{}
	for _, name := range fields(facts, "") {
		missing[name] = never[name] == ""
	}
	for _, row := range rows {
		delete(missing, row.fact)
		t.Run(strings.TrimPrefix(row.name+": "+row.fact, ": "), func(t *testing.T) {
			inWorld(t, calmStack(), func(w *world) {
				for _, o := range row.before {
					w.put(o)
				}
				w.pass(5 * time.Second)
				w.took()
				before := fact(read(w), row.fact)
				row.change(w)
				w.settle()
				require.NotEqual(t, before, fact(read(w), row.fact), "the row changes the fact")
				assert.Contains(t, w.asked(), awake(object))
			})
		})
	}
	for name, lacks := range missing {
		assert.False(t, lacks, "fact %s has no row: is it in a fingerprint?", name)
	}
}

func TestEveryFactOfAMachineWakesIt(t *testing.T) {
	read := func(w *world) any {
		m, found := w.cluster.Machine("ns/m")
		require.True(t, found)
		return observe.MachineFacts(m, w.cluster.Around(m), time.Time{})
	}
	pending, sick := changed(aMachine(), inPhase(v1alpha1.MachinePending)), changed(aMachine(), inPhase(v1alpha1.MachineUnknown))
	failedOne := changed(aMachine(), inPhase(v1alpha1.MachineFailed), func(m *v1alpha1.Machine) {
		m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.ValuePreserveNow
	})
	held := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady}} }
	rows := []factRow{
		{fact: "Deleting", change: replace(aMachine(), toBeDeleted[*v1alpha1.Machine])},
		{fact: "Finalizer", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Finalizers = nil })},
		{fact: "Phase", change: replace(aMachine(), inPhase(v1alpha1.MachineCrashLoopBackOff))},
		{fact: "ProviderID", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" })},
		{fact: "NodeName", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode] = "other" })},
		{fact: "NodeExists", change: func(w *world) { w.remove(aNode()) }},
		{fact: "NodeHealthy", change: replace(aNode(), unready)},
		{fact: "NodeWhy", before: []runtime.Object{pending, changed(aNode(), unready)}, change: func(w *world) {
			n := changed(aNode(), unready)
			n.Status.Conditions[0].Reason = "ContainerRuntimeDown"
			w.put(n)
		}},
		{fact: "NodeGoing", change: replace(aNode(), toBeDeleted[*corev1.Node])},
		{fact: "NodeHeld", before: []runtime.Object{pending, changed(aNode(), held)}, change: func(w *world) { w.put(aNode()) }},
		{fact: "Uncopied", change: replace(aNode(), func(n *corev1.Node) { n.Status.Conditions[0].Message = "kubelet is posting ready status" })},
		{fact: "Unsynced", change: replace(aNode(), func(n *corev1.Node) { n.Finalizers = nil })},
		{fact: "Unsynced", change: replace(aNode(), func(n *corev1.Node) { n.Labels = nil })},
		{fact: "Unsynced", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"team": "a"}
		})},
		{fact: "Unsynced", change: replace(aClass(), func(c *v1alpha1.MachineClass) {
			c.Generation, c.NodeTemplate = 2, &v1alpha1.NodeTemplate{VirtualCapacity: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}
		})},
		{fact: "Due", before: []runtime.Object{sick, changed(aNode(), unready)}, change: replace(sick, func(m *v1alpha1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.MachineReplacementDue, Status: corev1.ConditionTrue})
			m.OwnerReferences = nil // of a lone machine: else it is its deployment that has to know
		})},
		{fact: "Granted", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationReplacementGranted] = "2026-01-01T00:00:00Z"
		})},
		{fact: "UpdateStep", change: replace(aNode(), func(n *corev1.Node) { n.Labels[v1alpha1.LabelCandidateForUpdate] = "true" })},
		{fact: "Updated", before: []runtime.Object{changed(aMachine(), inPhase(v1alpha1.MachineInPlaceUpdating))}, change: replace(aNode(), func(n *corev1.Node) {
			n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
		})},
		{fact: "Preserved", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &born })},
		{fact: "Undrained", before: []runtime.Object{failedOne}, change: replace(failedOne, func(m *v1alpha1.Machine) {
			m.Status.CurrentStatus.PreserveExpiryTime = &born
		})},
		{fact: "Unpreserved", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.ValuePreserveNow
		})},
		{fact: "Unpreserved", change: replace(aNode(), annotated[*corev1.Node](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow))},
	}
	proveFacts(t, reflect.TypeFor[attention.MachineFacts](), aMachine(), read, rows, map[string]string{
		"NoTarget": "a flag of the process",
		"Emptied":  "our own record: from then on the machine hears less",
		"Alone":    "the owner of its set, or a wish to be preserved, which is told by itself: only a machine that is due needs it",
	})
}
