package watch

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
)

type deploymentOption = func(*v1alpha1.MachineDeployment)

func deploymentTestCases() []factTestCase {
	with := func(change deploymentOption) func(*bridgeTestEnv) { return putChangedObject(testDeployment(), change) }
	return []factTestCase{
		{fact: "Deleting", change: with(setDeleting[*v1alpha1.MachineDeployment])},
		{
			name:           "the garbage collector is done",
			fact:           "Orphaning",
			initialObjects: initialObjects(changedCopy(testDeployment(), markDeletedWithOrphans[*v1alpha1.MachineDeployment])),
			change:         with(setDeleting[*v1alpha1.MachineDeployment]),
		},
		{fact: "Finalizer", change: with(func(d *v1alpha1.MachineDeployment) { d.Finalizers = nil })},
		{fact: "Generation", change: with(func(d *v1alpha1.MachineDeployment) { d.Generation = 2 })},
		{
			fact:           "ObservedGeneration",
			waitsForResync: true,
			change:         with(func(d *v1alpha1.MachineDeployment) { d.Status.ObservedGeneration = 0 }),
		},
		{name: "one more that runs", fact: "Machines", change: putChangedObject(machineWithName("second"))},
		{name: "handed to another one's set", fact: "Machines", change: func(w *bridgeTestEnv) {
			w.putObject(changedCopy(testMachine(), func(m *v1alpha1.Machine) { m.OwnerReferences = nil }))
			w.runDueWork()
			w.putObject(
				changedCopy(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Status.Replicas = 0 }),
			) // its status follows
		}},
		{fact: "Due", change: putChangedObject(testMachine(), withPhase(v1alpha1.MachineFailed))},
		{fact: "Replacing", waitsForResync: true, change: with(func(d *v1alpha1.MachineDeployment) {
			d.Status.Replacements = []v1alpha1.MachineReplacement{{UID: "uid-m"}}
		})},
		{
			name:   "the template",
			fact:   "Rolling",
			change: with(func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "large" }),
		},
		{
			name:           "cancelled",
			fact:           "Rolling",
			initialObjects: objectsDuringRollout(),
			change:         putChangedObject(deploymentDuringRollout(), withRolloutHold),
		},
		{
			name:           "resumed",
			fact:           "Rolling",
			initialObjects: objectsDuringRollout(withRolloutHold),
			change:         putChangedObject(deploymentDuringRollout()),
		},
		{
			name:           "the progress deadline",
			fact:           "Recheck",
			initialObjects: objectsDuringRollout(),
			change:         putChangedObject(deploymentDuringRollout(withProgressDeadline)),
		},
		{
			name:           "paused, and the deadline stands still",
			fact:           "Recheck",
			initialObjects: objectsDuringRollout(withProgressDeadline),
			change: putChangedObject(
				deploymentDuringRollout(withProgressDeadline),
				func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true },
			),
		},
		{
			name:           "the class of a former set is gone",
			fact:           "Lacks",
			initialObjects: objectsDuringRollout(),
			change:         func(w *bridgeTestEnv) { w.deleteObject(testClass()) },
		},
		{
			name: "the class of a former set is there again",
			fact: "Lacks",
			initialObjects: append(objectsDuringRollout(), changedCopy(testMachineSet(), func(s *v1alpha1.MachineSet) {
				s.Spec.Template.Spec.Class.Name = "other"
			})),
			change: putChangedObject(classWithName("other")),
		},
		{
			name:           "what it waits for",
			fact:           "Says",
			initialObjects: objectsDuringRollout(),
			change:         putChangedObject(machineOfNewRevision(), setJoined),
		},
		{
			name:           "paused",
			fact:           "Says",
			initialObjects: objectsDuringRollout(),
			change: putChangedObject(
				deploymentDuringRollout(),
				func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true },
			),
		},
	}
}

// deploymentActionTestCases change the next action of the deployment.
func deploymentActionTestCases() []factTestCase {
	named := func(name string, change deploymentOption) factTestCase {
		return factTestCase{name: name, fact: "Next", change: putChangedObject(testDeployment(), change)}
	}
	set := func(name string, change setChange) factTestCase {
		return factTestCase{name: name, fact: "Next", change: putChangedObject(testMachineSet(), change)}
	}
	return []factTestCase{
		named("the size", func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 2 }),
		named("the template", func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "large" }),
		named(
			"to return to a former revision",
			func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = &v1alpha1.RollbackConfig{} },
		),
		named("what its set copies", func(d *v1alpha1.MachineDeployment) { d.Spec.MinReadySeconds = 7 }),
		named("an annotation for its sets", withAnnotation[*v1alpha1.MachineDeployment]("team", "shop")),
		{
			name:           "its revision",
			fact:           "Next",
			waitsForResync: true,
			change: putChangedObject(
				testDeployment(),
				withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRevision, "7"),
			),
		},
		named("maxSurge, of which its set tells", func(d *v1alpha1.MachineDeployment) {
			d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: new(intstr.FromInt32(7))},
			}
		}),
		{
			name:           "what is recorded of the rollout",
			fact:           "Next",
			waitsForResync: true,
			change:         putChangedObject(testDeployment(), func(d *v1alpha1.MachineDeployment) { d.Status.Rollout = nil }),
		},
		named(
			"what the autoscaler chose",
			withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationTriggerDeletion, "m"),
		),
		{
			name: "what it does not choose any more",
			fact: "Next",
			change: putChangedObject(
				testMachine(),
				withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationMachinePriority, "1"),
				withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:00:00Z"),
			),
		},
		{
			name:           "the size of its set",
			fact:           "Next",
			initialObjects: initialObjects(machineWithName("second")),
			change:         putChangedObject(newSizedSet(2, nil, testMachine(), machineWithName("second"))),
		},
		set("its set is being deleted", setDeleting[*v1alpha1.MachineSet]),
		set("its set is another one's", func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil }),
		set("its set has another template", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "large" }),
		set("its set may make no machines", withSetLabel(v1alpha1.LabelScaleUpDisabled, v1alpha1.ValueLowerTrue)),
		{name: "its set is gone", fact: "Next", change: func(w *bridgeTestEnv) { w.deleteObject(testMachineSet()) }},
		{
			name:           "a new machine runs: an old one may go",
			fact:           "Next",
			initialObjects: objectsDuringRollout(),
			change:         putChangedObject(machineOfNewRevision(), setJoined),
		},
		{
			name:           "a person passes a step",
			fact:           "Next",
			initialObjects: objectsBeforeApproval(),
			change: putChangedObject(
				deploymentBeforeApproval(),
				withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutApprove, "2/1 ann"),
			),
		},
	}
}

// deploymentStatusTestCases clear each field of a deployment's status, or make the field out of date.
func deploymentStatusTestCases() []factTestCase {
	status := func(name string, change func(*v1alpha1.MachineDeploymentStatus)) factTestCase {
		return factTestCase{
			name:           "status, " + name,
			fact:           "Unreported",
			waitsForResync: true,
			change:         putChangedObject(testDeployment(), func(d *v1alpha1.MachineDeployment) { change(&d.Status) }),
		}
	}
	set := func(name string, change setChange) factTestCase {
		return factTestCase{name: name, fact: "Unreported", change: putChangedObject(testMachineSet(), change)}
	}
	return []factTestCase{
		status("replicas", func(s *v1alpha1.MachineDeploymentStatus) { s.Replicas = 0 }),
		status("ready", func(s *v1alpha1.MachineDeploymentStatus) { s.ReadyReplicas = 0 }),
		status("available", func(s *v1alpha1.MachineDeploymentStatus) { s.AvailableReplicas = 0 }),
		status("unavailable", func(s *v1alpha1.MachineDeploymentStatus) { s.UnavailableReplicas = 1 }),
		status("up to date", func(s *v1alpha1.MachineDeploymentStatus) { s.UpdatedReplicas = 0 }),
		status("preserved", func(s *v1alpha1.MachineDeploymentStatus) { s.PreservedFailedReplicas = 1 }),
		status(
			"failed machines",
			func(s *v1alpha1.MachineDeploymentStatus) { s.FailedMachines = []v1alpha1.MachineSummary{{Name: "m"}} },
		),
		status("no conditions", func(s *v1alpha1.MachineDeploymentStatus) { s.Conditions = nil }),
		status("the message of a condition", func(s *v1alpha1.MachineDeploymentStatus) { s.Conditions[0].Message = "odd" }),

		{
			name:   "it runs no more",
			fact:   "Unreported",
			change: putChangedObject(testMachine(), withPhase(v1alpha1.MachineUnknown)),
		},
		{
			name:   "it is being deleted",
			fact:   "Unreported",
			change: putChangedObject(testMachine(), setDeleting[*v1alpha1.Machine]),
		},
		set("frozen with its set", withSetLabel(v1alpha1.LabelFreeze, v1alpha1.ValueTrue)),
		set("machines get no instance", func(s *v1alpha1.MachineSet) {
			s.Status.Conditions = append(s.Status.Conditions, v1alpha1.MachineSetCondition{
				Type: v1alpha1.MachineSetReplicaFailure, Status: v1alpha1.ConditionTrue, Reason: "ResourceExhausted",
			})
		}),
		{name: "frozen", fact: "Unreported", change: putChangedObject(testDeployment(), func(d *v1alpha1.MachineDeployment) {
			d.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue
		})},
	}
}

// deploymentFacts contains the facts and the plan that determine a deployment's pending work.
type deploymentFacts struct {
	Deleting, Orphaning, Finalizer, Unreported, Recheck bool
	Rolling                                             bool
	Generation, ObservedGeneration                      int64
	Machines, Due, Replacing                            int
	Next, Says, Lacks                                   string
}

func TestEveryDeploymentFactSignalsTheDeployment(t *testing.T) {
	read := func(w *bridgeTestEnv) any {
		d, found := w.cluster.Deployment("ns/d")
		require.True(t, found)
		tree := deployment.ReadTree(w.cluster, d)
		o := deployment.RolloutFacts(tree, creationTime.Time)
		plan := rollout.PlanDeployment(o)
		facts := deploymentFacts{
			Deleting:           o.Deleting,
			Orphaning:          o.Orphaning,
			Finalizer:          o.HasFinalizer,
			Generation:         o.Generation,
			ObservedGeneration: o.ObservedGeneration,
			Machines:           len(tree.Members),
			Due:                o.MCM.DueMachineCount,
			Replacing:          o.MCM.PendingGrantCount,
			Unreported:         plan.NeedsStatusWrite,
			Recheck:            !plan.Decision.Recheck.IsZero(),
			Rolling:            plan.Decision.Rolling && plan.Decision.HoldBy != rollout.HeldByCancel,
			Says:               plan.Decision.Why,
		}
		for _, set := range o.Sets {
			facts.Lacks += set.MissingObject()
		}
		if plan.Decision.HasActions() {
			facts.Next = plan.Decision.Why
		}
		return facts
	}
	rows := append(append(deploymentTestCases(), deploymentActionTestCases()...), deploymentStatusTestCases()...)
	assertFactsSendSignals(t, reflect.TypeFor[deploymentFacts](), testDeployment(), read, rows, map[string]string{})
}
