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

// factTestCase changes one fact, so that an object without pending work gets pending work.
type factTestCase struct {
	fact           string
	name           string           // the cause of the change, if the fact's name does not describe it
	initialObjects []runtime.Object // objects that replace objects of the test stack before the change
	change         func(w *bridgeTestEnv)
	// only the object's own workflow writes this fact: if another client writes it, the signal waits for the resync
	waitsForResync bool
}

func putChangedObject[T runtime.Object](o T, changes ...func(T)) func(*bridgeTestEnv) {
	return func(w *bridgeTestEnv) { w.putObject(changedCopy(o, changes...)) }
}

// assertFactsSendSignals changes each fact that determines pending work, and checks when the object's workflow is
// signaled: at once, debounced, or at the next resync.
func assertFactsSendSignals(
	t *testing.T,
	facts reflect.Type,
	object metav1.Object,
	read func(*bridgeTestEnv) any,
	rows []factTestCase,
	never map[string]string,
) {
	missing := map[string]bool{}
	for _, name := range observetest.FieldNames(facts, "", reflect.TypeFor[preserve.Annotation]()) {
		missing[name] = never[name] == ""
	}
	for _, row := range rows {
		delete(missing, row.fact)
		t.Run(strings.TrimPrefix(row.name+": "+row.fact, ": "), func(t *testing.T) {
			runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
				for _, o := range row.initialObjects {
					w.putObject(o)
				}
				w.advanceClock(5 * time.Second)
				w.takeCalls()
				before := observetest.FieldByName(read(w), row.fact)
				row.change(w)
				w.runDebouncedWork()
				require.NotEqual(t, before, observetest.FieldByName(read(w), row.fact), "the row changes the fact")
				if !row.waitsForResync {
					assert.Contains(t, w.takeRequests(), signalWithStartLine(object))
					return
				}
				assert.NotContains(t, w.takeRequests(), signalWithStartLine(object), "no row of the resync")
				w.advanceClock(maxResyncInterval)
				asked := w.takeRequests()
				assert.True(
					t,
					slices.Contains(asked, signalWithStartLine(object)) || slices.Contains(asked, "start "+workflowIDOf(object)),
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

func TestEveryMachineFactSignalsTheMachine(t *testing.T) {
	read := func(w *bridgeTestEnv) any {
		m, found := w.cluster.Machine("ns/m")
		require.True(t, found)
		return machine.Facts(m, machine.ReadRelatedObjects(w.cluster, m), time.Time{})
	}
	pending := changedCopy(testMachine(), withPhase(v1alpha1.MachinePending))
	unhealthy := changedCopy(testMachine(), withPhase(v1alpha1.MachineUnknown))
	failedOne := changedCopy(testMachine(), withPhase(v1alpha1.MachineFailed), func(m *v1alpha1.Machine) {
		m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.ValuePreserveNow
	})
	nameless := changedCopy(pending, func(m *v1alpha1.Machine) {
		delete(m.Labels, v1alpha1.LabelNode)
		m.Status.NodeName = ""
	})
	ofInstance := func(id string) *corev1.Node {
		return changedCopy(nodeWithName("ip-10-0-0-1"), func(n *corev1.Node) { n.Spec.ProviderID = id })
	}
	elsewhere := changedCopy(testNode(), func(n *corev1.Node) { n.Spec.ProviderID = "virtual:///i-x" })
	unmarked := changedCopy(testNode(), func(n *corev1.Node) { n.Annotations = nil })
	rival := changedCopy(testMachine(), func(m *v1alpha1.Machine) { m.Name, m.UID = "copy", "uid-copy" })
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
				LastTransitionTime: creationTime,
			})
		}
	}
	chosen := labelled(v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate)
	updateFailed := func(n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateFailed }
	template := func(c *v1alpha1.NodeTemplateSpec) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Spec.NodeTemplateSpec = *c }
	}
	tainted := changedCopy(
		testMachine(),
		template(
			&v1alpha1.NodeTemplateSpec{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "only", Effect: "NoExecute"}}}},
		),
	)
	withCapacity := changedCopy(testClass(), func(c *v1alpha1.MachineClass) {
		c.Generation = 2
		c.NodeTemplate = &v1alpha1.NodeTemplate{
			VirtualCapacity: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")},
		}
	})
	kept := changedCopy(
		testMachine(),
		withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
		func(m *v1alpha1.Machine) {
			m.Status.CurrentStatus.PreserveExpiryTime = &creationTime
		},
	)
	whenFailed := changedCopy(
		testMachine(),
		withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveWhenFailed),
	)
	ill := []runtime.Object{unhealthy, changedCopy(testNode(), setNodeUnready)}
	rows := []factTestCase{
		{fact: "Deleting", change: putChangedObject(testMachine(), setDeleting[*v1alpha1.Machine])},
		{fact: "Preservation.Deleting", change: putChangedObject(testMachine(), setDeleting[*v1alpha1.Machine])},
		{fact: "Finalizer", change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) { m.Finalizers = nil })},
		{
			fact:           "ProviderID",
			waitsForResync: true,
			change:         putChangedObject(testMachine(), func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" }),
		},
		{
			fact:           "Phase",
			waitsForResync: true,
			change:         putChangedObject(testMachine(), withPhase(v1alpha1.MachineCrashLoopBackOff)),
		},
		{
			fact:   "NodeName",
			change: putChangedObject(testMachine(), withNode("other")),
		},
		{
			name:           "that of a node that is there",
			fact:           "NodeName",
			initialObjects: []runtime.Object{changedCopy(nodeWithName("n-other"), setNodeUnready)},
			change:         putChangedObject(testMachine(), withNode("n-other")),
		},
		{
			fact:           "NodeFound",
			initialObjects: []runtime.Object{nameless, elsewhere, ofInstance("")},
			change:         func(w *bridgeTestEnv) { w.putObject(ofInstance("virtual:///i-m")) },
		},
		{
			name:           "a node that is new",
			fact:           "NodeFound",
			initialObjects: []runtime.Object{nameless, elsewhere},
			change:         func(w *bridgeTestEnv) { w.putObject(ofInstance("virtual:///i-m")) },
		},
		{
			name: "the machine was later",
			fact: "NodeFound",
			initialObjects: []runtime.Object{
				changedCopy(nameless, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" }),
				elsewhere, ofInstance("virtual:///i-m"),
			},
			change: func(w *bridgeTestEnv) { w.putObject(nameless) },
		},
		{
			fact:           "Owner.Whose",
			initialObjects: []runtime.Object{unmarked},
			change:         func(w *bridgeTestEnv) { w.putObject(rival) },
		},
		{
			name:           "the doubt ends",
			fact:           "Owner.Whose",
			initialObjects: []runtime.Object{unmarked, rival},
			change:         func(w *bridgeTestEnv) { w.deleteObject(rival) },
		},
		{
			name:           "the copy names another instance",
			fact:           "Owner.Why",
			initialObjects: []runtime.Object{unmarked, rival},
			change:         putChangedObject(rival, func(m *v1alpha1.Machine) { m.Spec.ProviderID = "virtual:///i-copy" }),
		},
		{
			fact:           "Owner.Ask",
			initialObjects: []runtime.Object{changedCopy(unmarked, func(n *corev1.Node) { n.Spec.ProviderID = "" })},
			waitsForResync: true,
			change:         putChangedObject(testMachine(), func(m *v1alpha1.Machine) { m.Status.NodeName = "" }),
		},
		{fact: "NodeDeleting", change: putChangedObject(testNode(), setDeleting[*corev1.Node])},
		{
			fact:           "NodeWaits",
			initialObjects: []runtime.Object{pending, changedCopy(testNode(), held)},
			change:         func(w *bridgeTestEnv) { w.putObject(testNode()) },
		},
		{
			fact:           "Due",
			waitsForResync: true,
			initialObjects: ill,
			change: putChangedObject(unhealthy, func(m *v1alpha1.Machine) {
				m.Status.Conditions = append(
					m.Status.Conditions,
					corev1.NodeCondition{Type: v1alpha1.MachineReplacementDue, Status: corev1.ConditionTrue},
				)
				m.OwnerReferences = nil // the machine has no set, because otherwise the set's deployment is signaled
			}),
		},
		{fact: "Granted", change: putChangedObject(testMachine(), func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationReplacementGranted] = "2026-01-01T00:00:00Z"
		})},
		{
			fact:           "Preserved",
			waitsForResync: true,
			change: putChangedObject(
				testMachine(),
				func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &creationTime },
			),
		},
		{
			fact:           "Timeout",
			initialObjects: ill,
			change: putChangedObject(
				unhealthy,
				spec(func(c *v1alpha1.MachineConfiguration) { c.MachineHealthTimeout = hour }),
			),
		},
		{
			fact:           "NoTimeout",
			initialObjects: ill,
			change: putChangedObject(
				unhealthy,
				spec(func(c *v1alpha1.MachineConfiguration) { c.DisableHealthTimeout = new(true) }),
			),
		},
		{
			fact:           "UpdateTimeout",
			initialObjects: ill,
			change: putChangedObject(
				unhealthy,
				spec(func(c *v1alpha1.MachineConfiguration) { c.MachineInPlaceUpdateTimeout = hour }),
			),
		},
		{
			fact:           "CreateBy",
			initialObjects: []runtime.Object{pending},
			change: putChangedObject(
				pending,
				spec(func(c *v1alpha1.MachineConfiguration) { c.MachineCreationTimeout = hour }),
			),
		},
		{
			fact:           "UpdateResult",
			initialObjects: []runtime.Object{changedCopy(testMachine(), withPhase(v1alpha1.MachineInPlaceUpdating))},
			change: putChangedObject(testNode(), func(n *corev1.Node) {
				n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
			}),
		},
		{fact: "NodeExists", change: func(w *bridgeTestEnv) { w.deleteObject(testNode()) }},
		{fact: "Preservation.NodeExists", change: func(w *bridgeTestEnv) { w.deleteObject(testNode()) }},
		{fact: "Conditions", change: putChangedObject(testNode(), setNodeUnready)},
		{
			fact:           "Conditions",
			name:           "another reason",
			initialObjects: []runtime.Object{pending, changedCopy(testNode(), setNodeUnready)},
			change: putChangedObject(changedCopy(testNode(), setNodeUnready), func(n *corev1.Node) {
				n.Status.Conditions[0].Reason = "ContainerRuntimeDown"
			}),
		},
		{
			fact:           "Bad",
			initialObjects: ill,
			change: putChangedObject(
				unhealthy,
				spec(func(c *v1alpha1.MachineConfiguration) { c.NodeConditions = new("MemoryPressure") }),
			),
		},
		{
			fact: "Uncopied",
			change: putChangedObject(
				testNode(),
				func(n *corev1.Node) { n.Status.Conditions[0].Message = "kubelet is posting ready status" },
			),
		},
		{fact: "Carries.Finalizer", change: putChangedObject(testNode(), func(n *corev1.Node) { n.Finalizers = nil })},
		{fact: "Carries.Labels", change: putChangedObject(testNode(), func(n *corev1.Node) { n.Labels = nil })},
		{
			fact: "Carries.Annotations",
			change: putChangedObject(
				testNode(),
				withAnnotation[*corev1.Node](v1alpha1.AnnotationNotManaged, v1alpha1.ValueNotManaged),
			),
		},
		{
			fact:           "Carries.Taints",
			initialObjects: []runtime.Object{tainted},
			change: putChangedObject(testNode(), func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "only", Value: "other", Effect: "NoExecute"}}
			}),
		},
		{
			fact:           "Carries.Capacity",
			initialObjects: []runtime.Object{withCapacity},
			change: putChangedObject(testNode(), func(n *corev1.Node) {
				n.Status.Capacity = corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}
			}),
		},
		{fact: "Carries.Deleting", change: putChangedObject(testNode(), setDeleting[*corev1.Node])},
		{
			fact: "Wanted.Labels",
			change: putChangedObject(
				testMachine(),
				template(&v1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}}}),
			),
		},
		{
			fact: "Wanted.Annotations",
			change: putChangedObject(
				testMachine(),
				template(&v1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"team": "a"}}}),
			),
		},
		{fact: "Wanted.Taints", change: func(w *bridgeTestEnv) { w.putObject(tainted) }},
		{fact: "Wanted.Capacity", change: func(w *bridgeTestEnv) { w.putObject(withCapacity) }},
		{fact: "Update.Candidate", change: putChangedObject(testNode(), labelled(v1alpha1.LabelCandidateForUpdate))},
		{fact: "Update.Selected", change: putChangedObject(testNode(), chosen)},
		{fact: "Update.Result", change: putChangedObject(testNode(), updateFailed)},
		{
			fact: "Update.FailedReason",
			initialObjects: []runtime.Object{
				changedCopy(testNode(), updateFailed, says("UpdateFailed", "The agent on the node gave no reason.")),
			},
			change: putChangedObject(
				testNode(),
				updateFailed,
				says(
					"UpdateFailed",
					"The agent on the node gave no reason.",
				),
				withAnnotation[*corev1.Node](v1alpha1.AnnotationUpdateFailedReason, "disk full"),
			),
		},
		{
			fact:           "Update.Reason",
			initialObjects: []runtime.Object{changedCopy(testNode(), chosen)},
			change:         putChangedObject(testNode(), chosen, says("SelectedForUpdate", "")),
		},
		{
			fact:           "Update.Message",
			initialObjects: []runtime.Object{changedCopy(testNode(), updateFailed, says("UpdateFailed", ""))},
			change:         putChangedObject(testNode(), updateFailed, says("UpdateFailed", "somebody's")),
		},
		{
			fact:           "Update.Since",
			initialObjects: []runtime.Object{changedCopy(testNode(), chosen)},
			change:         putChangedObject(testNode(), chosen, says("SelectedForUpdate", "")),
		},
		{
			fact:           "Update.Cordoned",
			initialObjects: []runtime.Object{changedCopy(testNode(), chosen, says("DrainSuccessful", ""))},
			change: putChangedObject(testNode(), chosen, says("DrainSuccessful", ""), func(n *corev1.Node) {
				n.Spec.Unschedulable = true
			}),
		},
		{
			fact: "Preservation.OnMachine",
			change: putChangedObject(
				testMachine(),
				withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
			),
		},
		{
			fact: "Preservation.OnNode",
			change: putChangedObject(
				testNode(),
				withAnnotation[*corev1.Node](v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveNow),
			),
		},
		{
			fact:           "Preservation.Failed",
			waitsForResync: true,
			initialObjects: []runtime.Object{whenFailed},
			change:         putChangedObject(whenFailed, withPhase(v1alpha1.MachineFailed)),
		},
		{
			fact:           "Preservation.Expiry",
			waitsForResync: true,
			initialObjects: []runtime.Object{failedOne},
			change: putChangedObject(failedOne, func(m *v1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = &creationTime
			}),
		},
		{
			fact:           "Preservation.Timeout",
			initialObjects: []runtime.Object{kept},
			change: putChangedObject(
				kept,
				spec(func(c *v1alpha1.MachineConfiguration) { c.MachinePreserveTimeout = hour }),
			),
		},
		{
			fact:           "Preservation.ScaleDownDisabled",
			initialObjects: []runtime.Object{kept},
			change: putChangedObject(
				testNode(),
				withAnnotation[*corev1.Node](v1alpha1.AnnotationScaleDownDisabled, "true"),
			),
		},
		{
			fact:           "Preservation.DisabledByUs",
			initialObjects: []runtime.Object{kept},
			change: putChangedObject(
				testNode(),
				withAnnotation[*corev1.Node](v1alpha1.AnnotationScaleDownDisabledByMCM, "true"),
			),
		},
		{fact: "Preservation.Tainted", change: putChangedObject(testNode(), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPreserved, Effect: v1alpha1.TaintPreservedEffect}}
		})},
		{fact: "Preservation.Condition", change: putChangedObject(testNode(), func(n *corev1.Node) {
			n.Status.Conditions = append(
				n.Status.Conditions,
				corev1.NodeCondition{Type: v1alpha1.NodePreserved, Status: corev1.ConditionTrue},
			)
		})},
	}
	const byPlan, byTime, record = "the plan fills it in", "the bridge judges no time", "our own record: who writes it looks at it"
	assertFactsSendSignals(t, reflect.TypeFor[attention.MachineFacts](), testMachine(), read, rows, map[string]string{
		"NoTargetCluster":          "a flag of the process",
		"TargetAbsent":             byTime,
		"TargetDown":               "WakeMachines enqueues the machines when the target is ready again",
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
