package watch

import (
	"reflect"
	"slices"
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
	"millwright/decide/preserve"
	"millwright/observe/machine"
	"millwright/observe/observetest"
)

// factRow changes one fact of a calm world so that the object has pending work.
type factRow struct {
	fact   string
	name   string           // what changes it, if the fact does not say so
	before []runtime.Object // objects to put instead of those of the calm stack
	change func(w *world)
	resync bool // normally only the object's own workflow writes it: a write of somebody else waits for the resync
}

func replace[T runtime.Object](o T, changes ...func(T)) func(*world) {
	return func(w *world) { w.put(changed(o, changes...)) }
}

// proveFacts checks for each fact that decides about pending work that its change signals the object's workflow: at
// once, debounced, or by the resync.
func proveFacts(
	t *testing.T,
	facts reflect.Type,
	object metav1.Object,
	read func(*world) any,
	rows []factRow,
	never map[string]string,
) {
	missing := map[string]bool{}
	for _, name := range observetest.Facts(facts, "", reflect.TypeFor[preserve.Annotation]()) {
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
				before := observetest.Fact(read(w), row.fact)
				row.change(w)
				w.settle()
				require.NotEqual(t, before, observetest.Fact(read(w), row.fact), "the row changes the fact")
				if !row.resync {
					assert.Contains(t, w.asked(), awake(object))
					return
				}
				assert.NotContains(t, w.asked(), awake(object), "no row of the resync")
				w.pass(aResync)
				asked := w.asked()
				assert.True(
					t,
					slices.Contains(asked, awake(object)) || slices.Contains(asked, "start "+idOf(object)),
					"asked for %s",
					asked,
				)
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
		return machine.Facts(m, machine.Read(w.cluster, m), time.Time{})
	}
	pending := changed(aMachine(), inPhase(v1alpha1.MachinePending))
	unhealthy := changed(aMachine(), inPhase(v1alpha1.MachineUnknown))
	failedOne := changed(aMachine(), inPhase(v1alpha1.MachineFailed), func(m *v1alpha1.Machine) {
		m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.ValuePreserveNow
	})
	nameless := changed(pending, func(m *v1alpha1.Machine) {
		delete(m.Labels, v1alpha1.LabelNode)
		m.Status.NodeName = ""
	})
	ofInstance := func(id string) *corev1.Node {
		return changed(nodeNamed("ip-10-0-0-1"), func(n *corev1.Node) { n.Spec.ProviderID = id })
	}
	elsewhere := changed(aNode(), func(n *corev1.Node) { n.Spec.ProviderID = "virtual:///i-x" })
	unmarked := changed(aNode(), func(n *corev1.Node) { n.Annotations = nil })
	rival := changed(aMachine(), func(m *v1alpha1.Machine) { m.Name, m.UID = "copy", "uid-copy" })
	held := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady}} }
	spec := func(change func(*v1alpha1.MachineConfiguration)) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{}
			change(m.Spec.MachineConfiguration)
		}
	}
	hour := &metav1.Duration{Duration: time.Hour}
	labelled := func(keys ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			for _, key := range keys {
				n.Labels[key] = "true"
			}
		}
	}
	says := func(reason, message string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type:               v1alpha1.NodeInPlaceUpdate,
				Status:             corev1.ConditionTrue,
				Reason:             reason,
				Message:            message,
				LastTransitionTime: born,
			})
		}
	}
	chosen := labelled(v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate)
	updateFailed := func(n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateFailed }
	template := func(c *v1alpha1.NodeTemplateSpec) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Spec.NodeTemplateSpec = *c }
	}
	tainted := changed(
		aMachine(),
		template(
			&v1alpha1.NodeTemplateSpec{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "only", Effect: "NoExecute"}}}},
		),
	)
	withCapacity := changed(aClass(), func(c *v1alpha1.MachineClass) {
		c.Generation = 2
		c.NodeTemplate = &v1alpha1.NodeTemplate{
			VirtualCapacity: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")},
		}
	})
	kept := changed(
		aMachine(),
		annotated[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
		func(m *v1alpha1.Machine) {
			m.Status.CurrentStatus.PreserveExpiryTime = &born
		},
	)
	whenFailed := changed(
		aMachine(),
		annotated[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveWhenFailed),
	)
	ill := []runtime.Object{unhealthy, changed(aNode(), unready)}
	rows := []factRow{
		{fact: "Deleting", change: replace(aMachine(), toBeDeleted[*v1alpha1.Machine])},
		{fact: "Preservation.Deleting", change: replace(aMachine(), toBeDeleted[*v1alpha1.Machine])},
		{fact: "Finalizer", change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Finalizers = nil })},
		{fact: "ProviderID", resync: true, change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" })},
		{fact: "Phase", resync: true, change: replace(aMachine(), inPhase(v1alpha1.MachineCrashLoopBackOff))},
		{
			fact:   "NodeName",
			change: replace(aMachine(), onNode("other")),
		},
		{
			name:   "that of a node that is there",
			fact:   "NodeName",
			before: []runtime.Object{changed(nodeNamed("n-other"), unready)},
			change: replace(aMachine(), onNode("n-other")),
		},
		{
			fact:   "NodeFound",
			before: []runtime.Object{nameless, elsewhere, ofInstance("")},
			change: func(w *world) { w.put(ofInstance("virtual:///i-m")) },
		},
		{
			name:   "a node that is new",
			fact:   "NodeFound",
			before: []runtime.Object{nameless, elsewhere},
			change: func(w *world) { w.put(ofInstance("virtual:///i-m")) },
		},
		{
			name: "the machine was later",
			fact: "NodeFound",
			before: []runtime.Object{
				changed(nameless, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" }),
				elsewhere, ofInstance("virtual:///i-m"),
			},
			change: func(w *world) { w.put(nameless) },
		},
		{fact: "Owner.Whose", before: []runtime.Object{unmarked}, change: func(w *world) { w.put(rival) }},
		{
			name:   "the doubt ends",
			fact:   "Owner.Whose",
			before: []runtime.Object{unmarked, rival},
			change: func(w *world) { w.remove(rival) },
		},
		{
			name:   "the copy names another instance",
			fact:   "Owner.Why",
			before: []runtime.Object{unmarked, rival},
			change: replace(rival, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "virtual:///i-copy" }),
		},
		{
			fact:   "Owner.Ask",
			before: []runtime.Object{changed(unmarked, func(n *corev1.Node) { n.Spec.ProviderID = "" })},
			resync: true,
			change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Status.NodeName = "" }),
		},
		{fact: "NodeDeleting", change: replace(aNode(), toBeDeleted[*corev1.Node])},
		{
			fact:   "NodeWaits",
			before: []runtime.Object{pending, changed(aNode(), held)},
			change: func(w *world) { w.put(aNode()) },
		},
		{fact: "Due", resync: true, before: ill, change: replace(unhealthy, func(m *v1alpha1.Machine) {
			m.Status.Conditions = append(
				m.Status.Conditions,
				corev1.NodeCondition{Type: v1alpha1.MachineReplacementDue, Status: corev1.ConditionTrue},
			)
			m.OwnerReferences = nil // a machine without a set: otherwise its deployment is signaled
		})},
		{fact: "Granted", change: replace(aMachine(), func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationReplacementGranted] = "2026-01-01T00:00:00Z"
		})},
		{
			fact:   "Preserved",
			resync: true,
			change: replace(aMachine(), func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &born }),
		},
		{
			fact:   "Timeout",
			before: ill,
			change: replace(unhealthy, spec(func(c *v1alpha1.MachineConfiguration) { c.MachineHealthTimeout = hour })),
		},
		{
			fact:   "NoTimeout",
			before: ill,
			change: replace(unhealthy, spec(func(c *v1alpha1.MachineConfiguration) { c.DisableHealthTimeout = new(true) })),
		},
		{
			fact:   "UpdateTimeout",
			before: ill,
			change: replace(unhealthy, spec(func(c *v1alpha1.MachineConfiguration) { c.MachineInPlaceUpdateTimeout = hour })),
		},
		{
			fact:   "CreateBy",
			before: []runtime.Object{pending},
			change: replace(pending, spec(func(c *v1alpha1.MachineConfiguration) { c.MachineCreationTimeout = hour })),
		},
		{
			fact:   "UpdateResult",
			before: []runtime.Object{changed(aMachine(), inPhase(v1alpha1.MachineInPlaceUpdating))},
			change: replace(aNode(), func(n *corev1.Node) {
				n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
			}),
		},
		{fact: "NodeExists", change: func(w *world) { w.remove(aNode()) }},
		{fact: "Preservation.NodeExists", change: func(w *world) { w.remove(aNode()) }},
		{fact: "Conditions", change: replace(aNode(), unready)},
		{
			fact:   "Conditions",
			name:   "another reason",
			before: []runtime.Object{pending, changed(aNode(), unready)},
			change: replace(changed(aNode(), unready), func(n *corev1.Node) {
				n.Status.Conditions[0].Reason = "ContainerRuntimeDown"
			}),
		},
		{
			fact:   "Bad",
			before: ill,
			change: replace(
				unhealthy,
				spec(func(c *v1alpha1.MachineConfiguration) { c.NodeConditions = new("MemoryPressure") }),
			),
		},
		{
			fact: "Uncopied",
			change: replace(
				aNode(),
				func(n *corev1.Node) { n.Status.Conditions[0].Message = "kubelet is posting ready status" },
			),
		},
		{fact: "Carries.Finalizer", change: replace(aNode(), func(n *corev1.Node) { n.Finalizers = nil })},
		{fact: "Carries.Labels", change: replace(aNode(), func(n *corev1.Node) { n.Labels = nil })},
		{
			fact:   "Carries.Annotations",
			change: replace(aNode(), annotated[*corev1.Node](v1alpha1.AnnotationNotManaged, v1alpha1.ValueNotManaged)),
		},
		{fact: "Carries.Taints", before: []runtime.Object{tainted}, change: replace(aNode(), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "only", Value: "other", Effect: "NoExecute"}}
		})},
		{fact: "Carries.Capacity", before: []runtime.Object{withCapacity}, change: replace(aNode(), func(n *corev1.Node) {
			n.Status.Capacity = corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}
		})},
		{fact: "Carries.Deleting", change: replace(aNode(), toBeDeleted[*corev1.Node])},
		{
			fact: "Wanted.Labels",
			change: replace(
				aMachine(),
				template(&v1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}}}),
			),
		},
		{
			fact: "Wanted.Annotations",
			change: replace(
				aMachine(),
				template(&v1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"team": "a"}}}),
			),
		},
		{fact: "Wanted.Taints", change: func(w *world) { w.put(tainted) }},
		{fact: "Wanted.Capacity", change: func(w *world) { w.put(withCapacity) }},
		{fact: "Update.Candidate", change: replace(aNode(), labelled(v1alpha1.LabelCandidateForUpdate))},
		{fact: "Update.Selected", change: replace(aNode(), chosen)},
		{fact: "Update.Result", change: replace(aNode(), updateFailed)},
		{
			fact: "Update.FailedReason",
			before: []runtime.Object{
				changed(aNode(), updateFailed, says("UpdateFailed", "The agent on the node gave no reason.")),
			},
			change: replace(
				aNode(),
				updateFailed,
				says(
					"UpdateFailed",
					"The agent on the node gave no reason.",
				),
				annotated[*corev1.Node](v1alpha1.AnnotationUpdateFailedReason, "disk full"),
			),
		},
		{
			fact:   "Update.Reason",
			before: []runtime.Object{changed(aNode(), chosen)},
			change: replace(aNode(), chosen, says("SelectedForUpdate", "")),
		},
		{
			fact:   "Update.Message",
			before: []runtime.Object{changed(aNode(), updateFailed, says("UpdateFailed", ""))},
			change: replace(aNode(), updateFailed, says("UpdateFailed", "somebody's")),
		},
		{
			fact:   "Update.Since",
			before: []runtime.Object{changed(aNode(), chosen)},
			change: replace(aNode(), chosen, says("SelectedForUpdate", "")),
		},
		{
			fact:   "Update.Cordoned",
			before: []runtime.Object{changed(aNode(), chosen, says("DrainSuccessful", ""))},
			change: replace(aNode(), chosen, says("DrainSuccessful", ""), func(n *corev1.Node) {
				n.Spec.Unschedulable = true
			}),
		},
		{
			fact:   "Preservation.OnMachine",
			change: replace(aMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow)),
		},
		{
			fact:   "Preservation.OnNode",
			change: replace(aNode(), annotated[*corev1.Node](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow)),
		},
		{
			fact:   "Preservation.Failed",
			resync: true,
			before: []runtime.Object{whenFailed},
			change: replace(whenFailed, inPhase(v1alpha1.MachineFailed)),
		},
		{
			fact:   "Preservation.Expiry",
			resync: true,
			before: []runtime.Object{failedOne},
			change: replace(failedOne, func(m *v1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = &born
			}),
		},
		{
			fact:   "Preservation.Timeout",
			before: []runtime.Object{kept},
			change: replace(kept, spec(func(c *v1alpha1.MachineConfiguration) { c.MachinePreserveTimeout = hour })),
		},
		{
			fact:   "Preservation.ScaleDownDisabled",
			before: []runtime.Object{kept},
			change: replace(aNode(), annotated[*corev1.Node](v1alpha1.AnnotationScaleDownDisabled, "true")),
		},
		{
			fact:   "Preservation.DisabledByUs",
			before: []runtime.Object{kept},
			change: replace(aNode(), annotated[*corev1.Node](v1alpha1.AnnotationScaleDownDisabledByMCM, "true")),
		},
		{fact: "Preservation.Tainted", change: replace(aNode(), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPreserved, Effect: v1alpha1.TaintPreservedEffect}}
		})},
		{fact: "Preservation.Condition", change: replace(aNode(), func(n *corev1.Node) {
			n.Status.Conditions = append(
				n.Status.Conditions,
				corev1.NodeCondition{Type: v1alpha1.NodePreserved, Status: corev1.ConditionTrue},
			)
		})},
	}
	const byPlan, byTime, record = "the plan fills it in", "the bridge judges no time", "our own record: who writes it looks at it"
	proveFacts(t, reflect.TypeFor[attention.MachineFacts](), aMachine(), read, rows, map[string]string{
		"NoTarget":                 "a flag of the process",
		"Name":                     "never changes",
		"Created":                  "never changes",
		"Wanted.MachineName":       "never changes",
		"Wanted.MachineUID":        "never changes",
		"Alone":                    "the owner of its set: only a machine that is due needs it",
		"Instance":                 byPlan,
		"Healthy":                  byPlan,
		"Why":                      byPlan,
		"BadSince":                 byPlan,
		"Now":                      byTime,
		"Preservation.Now":         byTime,
		"Breaker":                  byTime,
		"Since":                    record,
		"UnhealthySince":           record,
		"RecoveredAt":              record,
		"InstanceGoneAt":           record,
		"Preservation.Drained":     record,
		"Preservation.LastApplied": record,
		"Stuck":                    "for the activity to say",
		"NodeGone":                 "the activity asks the API server; the row of NodeExists wakes the machine",
		"Emptied":                  "our own record: from then on the machine hears less",
	})
}
