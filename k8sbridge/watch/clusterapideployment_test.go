package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	"millwright/observe/capi/deployment"
	"millwright/workflows/run"
)

// capiDeploymentObjects returns a deployment without pending work, its set, the set's machine and their related
// objects.
func capiDeploymentObjects() []runtime.Object {
	d := capiDeployment()
	s := capiSetOfDeployment(d)
	m := capiMachine("m-s", s)
	setCAPIDeploymentStatus(d, s, m)
	return []runtime.Object{
		d,
		s,
		m,
		capitest.NewCluster(),
		capitest.NewBootstrapTemplate(capitest.WithClusterOwner),
		capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
		capitest.NewControlPlane(),
	}
}

// capiDeployment returns a deployment with one machine that Millwright has prepared.
func capiDeployment() *clusterv1.MachineDeployment {
	like := capitest.NewSet("s", 1)
	d := capitest.NewDeployment(
		capitest.WithAnnotation[*clusterv1.MachineDeployment](
			v1alpha1.AnnotationRolloutProgress,
			`{"revision":1,"completedAt":"2026-01-01T00:00:00Z","set":"s","lastGoodSet":"s"}`,
		),
	)
	d.Labels, d.Finalizers, d.OwnerReferences = like.Labels, like.Finalizers, like.OwnerReferences
	d.Spec.Replicas, d.Spec.Selector, d.Spec.Template = like.Spec.Replicas, like.Spec.Selector, like.Spec.Template
	return d
}

// capiSetOfDeployment returns the set of a deployment's current template.
func capiSetOfDeployment(d *clusterv1.MachineDeployment) *clusterv1.MachineSet {
	s := capiSet(
		"s",
		capitest.WithDeploymentOwner,
		withSetAnnotation(clusterv1.RevisionAnnotation, "1"),
		withSetAnnotation(clusterv1.DesiredReplicasAnnotation, "1"),
		withSetAnnotation(clusterv1.MaxReplicasAnnotation, "2"),
	)
	s.Status.ObservedGeneration = s.Generation
	newCAPITree(d, s).CopyDeploymentFields(s, true)
	return s
}

func newCAPITree(
	d *clusterv1.MachineDeployment,
	s *clusterv1.MachineSet,
	machines ...*clusterv1.Machine,
) deployment.ObjectTree {
	return deployment.ObjectTree{
		Cache: capitest.NewOfflineCache(
			capitest.DefaultSettings,
			cache.PreflightConfig{},
		),
		Deployment: d,
		Sets:       []*clusterv1.MachineSet{s},
		Members:    machines,
		Cluster:    capitest.NewCluster(),
		Templates:  capitest.NewRelatedObjects().Templates,
	}
}

// setCAPIDeploymentStatus writes the status that a deployment with this set and this machine has.
func setCAPIDeploymentStatus(d *clusterv1.MachineDeployment, s *clusterv1.MachineSet, machines ...*clusterv1.Machine) {
	f := newCAPITree(d, s, machines...)
	plan := rollout.PlanDeployment(deployment.RolloutFacts(f, capitest.Noon))
	deployment.ApplyStatus(
		f,
		&d.Status,
		plan.Status,
		deployment.ExplanationFacts(f, plan, capitest.Noon).BlockedSummary(capitest.Noon),
		timeBeforeBubbleStart,
	)
}

func changedCAPIDeployment(change func(*clusterv1.MachineDeployment)) runtime.Object {
	return changedCopy(capiDeploymentObjects()[0].(*clusterv1.MachineDeployment), change)
}

func changedSetOfCAPIDeployment(change func(*clusterv1.MachineSet)) runtime.Object {
	return changedCopy(capiDeploymentObjects()[1].(*clusterv1.MachineSet), change)
}

func changedMachineOfCAPIDeployment(change func(*clusterv1.Machine)) runtime.Object {
	return changedCopy(capiDeploymentObjects()[2].(*clusterv1.Machine), change)
}

var capiDeploymentSignal = "signal-with-start " + testInstallation.ID(
	run.KindClusterAPIDeployment,
	objectRef(capitest.NewDeployment()),
)

func TestClusterAPIDeploymentWithoutPendingWorkIsNotSignaled(t *testing.T) {
	assertNoCAPISignals(t, capiDeploymentObjects(), run.KindClusterAPIDeployment)
}

// Each row has a change of an object, and the time at which the bridge then evaluates the deployment.
func TestRelevantChangesTriggerEvaluationOfAClusterAPIDeployment(t *testing.T) {
	of, set, machine := changedCAPIDeployment, changedSetOfCAPIDeployment, changedMachineOfCAPIDeployment
	says := func(kind string, status metav1.ConditionStatus) runtime.Object {
		return machine(withCondition(kind, status))
	}
	noted := capitest.WithAnnotation[*clusterv1.MachineDeployment]
	notedSet := capitest.WithAnnotation[*clusterv1.MachineSet]
	infrastructure := infrastructureTemplate
	orphan := func(change ...capitest.SetChange) runtime.Object {
		return capitest.NewSet(
			"orphan",
			0,
			append(
				[]capitest.SetChange{
					capitest.WithoutOwner[*clusterv1.MachineSet],
					func(s *clusterv1.MachineSet) { s.Labels["pool"] = "s" },
				},
				change...)...)
	}
	assertCAPIEvaluations(t, capiDeploymentObjects(), run.KindClusterAPIDeployment, []capiEvaluationTestCase{
		{"nothing but a version: the deployment", of(func(*clusterv1.MachineDeployment) {}), neverEvaluated},
		{"nothing but a version: its set", set(func(*clusterv1.MachineSet) {}), neverEvaluated},
		{"nothing but a version: its machine", machine(func(*clusterv1.Machine) {}), neverEvaluated},
		{"nothing but a version: its Cluster", capitest.NewCluster(), neverEvaluated},
		{"nothing but a version: its template", infrastructure(), neverEvaluated},

		{"the spec of the deployment", of(func(d *clusterv1.MachineDeployment) { incrementGeneration(d) }), evaluatedAtOnce},
		{"its own status", of(func(d *clusterv1.MachineDeployment) {
			d.Status.Replicas, d.Status.Conditions[0].Reason = new(int32(9)), "Other"
		}), neverEvaluated},
		{"the record of its rollout", of(noted(v1alpha1.AnnotationRolloutProgress, `{"revision":2}`)), neverEvaluated},
		{"its operation", of(noted(v1alpha1.AnnotationOperation, `{"step":"roll"}`)), neverEvaluated},
		{"its revision", of(noted(clusterv1.RevisionAnnotation, "7")), neverEvaluated},
		{"who asked for what", of(noted(v1alpha1.AnnotationLastRequest, "ann requested pause")), neverEvaluated},
		{"a hold", of(noted(v1alpha1.AnnotationRolloutHold, "1 ann: wait")), evaluatedAtOnce},
		{"an approval", of(noted(v1alpha1.AnnotationRolloutApprove, "1/1 ann: well")), evaluatedAtOnce},
		{"a request to return", of(noted(v1alpha1.AnnotationRollbackTo, "1")), evaluatedAtOnce},
		{"the progress deadline", of(noted(v1alpha1.AnnotationProgressDeadline, "5")), evaluatedAtOnce},
		{"updates in place", of(noted(v1alpha1.AnnotationInPlaceUpdates, "true")), evaluatedAtOnce},
		{"an annotation for its sets", of(noted("team", "shop")), evaluatedAtOnce},
		{"it is paused", of(noted(clusterv1.PausedAnnotation, "")), evaluatedAtOnce},
		{"its deletion", of(capitest.AsDeletingObject[*clusterv1.MachineDeployment]), evaluatedAtOnce},
		{
			"it is handed over",
			of(func(d *clusterv1.MachineDeployment) { d.Labels[clusterv1.WatchLabel] = "theirs" }),
			evaluatedAtOnce,
		},
		{"another controller", of(func(d *clusterv1.MachineDeployment) {
			d.Finalizers = append(d.Finalizers, clusterv1.MachineDeploymentFinalizer)
		}), evaluatedAtOnce},
		{
			"its finalizer is gone",
			of(func(d *clusterv1.MachineDeployment) { d.Finalizers = []string{"example.com/x"} }),
			evaluatedAtOnce,
		},

		{
			"the template of its set",
			set(func(s *clusterv1.MachineSet) { incrementGeneration(s); s.Spec.Template.Spec.Version = "v1.0.0" }),
			evaluatedAtOnce,
		},
		{
			"the size of its set, which it wrote",
			set(func(s *clusterv1.MachineSet) { incrementGeneration(s); s.Spec.Replicas = new(int32(3)) }),
			neverEvaluated,
		},
		{"what it wrote on its set", set(notedSet(clusterv1.DesiredReplicasAnnotation, "3")), neverEvaluated},
		{
			"which set gets its surplus, which it wrote",
			set(notedSet(clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next")),
			neverEvaluated,
		},
		{
			"which machines its set counts, which it wrote",
			set(notedSet(clusterv1.AcknowledgedMoveAnnotation, "m")),
			neverEvaluated,
		},
		{"what an extension said, which it wrote", set(notedSet(v1alpha1.AnnotationInPlaceAnswer, "{}")), neverEvaluated},
		{"what others wrote on its set", set(notedSet("x", "y")), evaluatedAtOnce},
		{
			"its set creates no machines any more",
			set(notedSet(clusterv1.DisableMachineCreateAnnotation, "true")),
			evaluatedAtOnce,
		},
		{"the deletion of its set", set(capitest.AsDeletingObject[*clusterv1.MachineSet]), evaluatedAtOnce},
		{"its set has another controller", set(func(s *clusterv1.MachineSet) { s.OwnerReferences = nil }), evaluatedAtOnce},
		{
			"its set has the value of another filter",
			set(func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "theirs" }),
			evaluatedAtOnce,
		},
		{
			"the counts of its set",
			set(func(s *clusterv1.MachineSet) { s.Status.AvailableReplicas = new(int32(0)) }),
			evaluatedDebounced,
		},
		{
			"its set has seen another generation",
			set(func(s *clusterv1.MachineSet) { s.Status.ObservedGeneration = 7 }),
			evaluatedDebounced,
		},
		{
			"a condition of its set",
			set(func(s *clusterv1.MachineSet) { s.Status.Conditions[0].Message = "because" }),
			evaluatedDebounced,
		},
		{
			"a condition of its set at another time",
			set(func(s *clusterv1.MachineSet) {
				s.Status.Conditions[0].LastTransitionTime = capitest.MinutesBeforeNoon(1)
			}),
			neverEvaluated,
		},
		{"a set that it may adopt", orphan(), evaluatedAtOnce},
		{
			"a set that it has released",
			orphan(notedSet(v1alpha1.AnnotationReleasedBy, "uid-d"), func(s *clusterv1.MachineSet) { s.Labels["pool"] = "x" }),
			evaluatedAtOnce,
		},
		{"a set that nobody adopts", orphan(func(s *clusterv1.MachineSet) { s.Labels["pool"] = "x" }), neverEvaluated},
		{
			"a set of another deployment",
			capitest.NewSet(
				"other",
				0,
				capitest.WithDeploymentOwner,
				func(s *clusterv1.MachineSet) { s.OwnerReferences[0].Name, s.OwnerReferences[0].UID = "e", "uid-e" },
			),
			neverEvaluated,
		},

		{"a machine is ready no more", says(clusterv1.MachineReadyCondition, "False"), evaluatedAtOnce},
		{
			"a machine has moved to its set",
			machine(capitest.WithAnnotation[*clusterv1.Machine](clusterv1.PendingAcknowledgeMoveAnnotation, "")),
			evaluatedDebounced,
		},
		{"the deletion of a machine", machine(capitest.AsDeletingObject[*clusterv1.Machine]), evaluatedAtOnce},
		{"a new machine", capiMachine("new", capiDeploymentObjects()[1].(*clusterv1.MachineSet)), evaluatedAtOnce},
		{"a machine is not up to date", says(clusterv1.MachineUpToDateCondition, "False"), evaluatedDebounced},
		{"a health check", says(clusterv1.MachineHealthCheckSucceededCondition, "False"), evaluatedDebounced},
		{
			"the mark of the autoscaler",
			machine(capitest.WithAnnotation[*clusterv1.Machine](clusterv1.DeleteMachineAnnotation, "")),
			evaluatedDebounced,
		},
		{"another condition of a machine", says(clusterv1.MachineNodeReadyCondition, "False"), neverEvaluated},
		{"a machine of a set without a deployment", capiMachine("other", capitest.NewSet("other", 1)), neverEvaluated},

		{
			"the Cluster is paused",
			capitest.NewCluster(func(c *clusterv1.Cluster) { incrementGeneration(c); c.Spec.Paused = new(true) }),
			evaluatedAtOnce,
		},
		{
			"the Cluster's status",
			capitest.NewCluster(func(c *clusterv1.Cluster) { c.Status.Phase = "Provisioned" }),
			neverEvaluated,
		},
		{
			"another Cluster",
			capitest.NewCluster(func(c *clusterv1.Cluster) { c.Name, c.UID = "other", "uid-other" }),
			neverEvaluated,
		},
		{"its template", infrastructure(func(o *unstructured.Unstructured) { incrementGeneration(o) }), evaluatedAtOnce},
		{
			"another template",
			infrastructure(func(o *unstructured.Unstructured) { o.SetName("other"); o.SetUID("uid-other") }),
			neverEvaluated,
		},
		{
			"a template in another namespace",
			infrastructure(func(o *unstructured.Unstructured) { o.SetNamespace("garden"); o.SetUID("uid-other") }),
			neverEvaluated,
		},
		{
			"the control plane",
			capitest.NewControlPlane(capitest.WithField(int64(1), "status", "availableReplicas")),
			neverEvaluated,
		},
		{"a RolloutPolicy", policyInNamespace(capitest.Namespace), evaluatedAtOnce},
		{"a RolloutPolicy of another namespace", policyInNamespace("garden"), neverEvaluated},
	})
}

// A deployment also depends on the templates of its former sets: without these templates, no rollback to the sets is
// possible.
func TestATemplateOfAFormerSetSignalsTheDeployment(t *testing.T) {
	former := capiSet("former", capitest.WithDeploymentOwner, func(s *clusterv1.MachineSet) {
		s.Spec.Replicas, s.Spec.Template.Spec.InfrastructureRef.Name = new(int32(0)), "former"
	})
	runCAPIBridgeTest(t, append(capiDeploymentObjects(), former), func(w *bridgeTestEnv) {
		w.advanceClock(5 * time.Second)
		evaluations := func(template string) float64 {
			before := w.countEvaluations(run.KindClusterAPIDeployment)
			w.putObject(infrastructureTemplate(func(o *unstructured.Unstructured) {
				o.SetName(template)
				o.SetUID(types.UID("uid-" + template))
			}))
			w.runDueWork()
			return w.countEvaluations(run.KindClusterAPIDeployment) - before
		}
		assert.Zero(t, evaluations("other"))
		assert.InDelta(t, 1, evaluations("former"), 0)
	})
}

func policyInNamespace(namespace string) *v1alpha1.RolloutPolicy {
	p := &v1alpha1.RolloutPolicy{}
	p.Namespace, p.Name, p.UID = namespace, "p", "uid-p"
	p.Spec.Steps = []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}
	return p
}

// The signal contains the version of each object that the decision read.
func TestClusterAPIDeploymentSignalHasTheVersionsTheBridgeRead(t *testing.T) {
	runCAPIBridgeTest(t, capiDeploymentObjects(), func(w *bridgeTestEnv) {
		versions := map[cache.Resource]string{
			capi.ClustersResource: w.putObject(capitest.NewCluster()),
			capi.MachinesResource: w.putObject(capiDeploymentObjects()[2]),
			capi.SetsResource:     w.putObject(capiDeploymentObjects()[1]),
			"examplemachinetemplates.infrastructure.cluster.x-k8s.io": w.putObject(
				capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
			),
			cache.RolloutPoliciesResource: w.putObject(policyInNamespace(capitest.Namespace)),
		}
		w.advanceClock(2 * time.Second)
		w.takeCalls()
		versions[capi.DeploymentsResource] = w.putObject(
			changedCAPIDeployment(func(d *clusterv1.MachineDeployment) { d.Generation, d.Spec.Replicas = 2, new(int32(3)) }),
		)
		w.runDueWork()
		calls := w.takeCalls()
		require.Len(t, calls, 1)
		assert.Equal(t, capiDeploymentSignal, calls[0].verb+" "+calls[0].workflowID)
		assert.Equal(t, "ClusterAPIDeployment", calls[0].workflow)
		for resource, version := range versions {
			assert.Equal(t, version, calls[0].signalContent.Versions[resource], resource)
		}
	})
}

// A deployment that has lost Millwright's label is signaled until Millwright's finalizer is removed, and never after
// that.
func TestHandedOverDeploymentIsSignaledUntilItsFinalizerIsRemoved(t *testing.T) {
	theirs := func(d *clusterv1.MachineDeployment) { d.Labels[clusterv1.WatchLabel] = "theirs" }
	freed := func(d *clusterv1.MachineDeployment) {
		theirs(d)
		d.Finalizers = nil
	}
	runCAPIBridgeTest(t, capiDeploymentObjects(), func(w *bridgeTestEnv) {
		w.putObject(changedCAPIDeployment(theirs))
		w.runDueWork()
		assert.Equal(t, []string{capiDeploymentSignal}, w.takeRequests())
		w.putObject(changedCAPIDeployment(freed))
		w.advanceClock(maxResyncInterval)
		w.takeCalls()
		w.putObject(changedCAPIDeployment(func(d *clusterv1.MachineDeployment) { freed(d); d.Generation++ }))
		w.putObject(changedSetOfCAPIDeployment(capitest.WithAnnotation[*clusterv1.MachineSet]("x", "y")))
		w.advanceClock(maxResyncInterval)
		assert.NotContains(t, w.takeRequests(), capiDeploymentSignal, "it is not Millwright's any more")
	})
}

// While the deployment's rollout is open, the rollout is signaled instead of the deployment. After the deletion of the
// deployment, both the deployment's workflow and the rollout are signaled.
func TestTheRolloutOfAClusterAPIDeploymentIsSignaled(t *testing.T) {
	rollout := testInstallation.ID(run.KindClusterAPIRollout, objectRef(capitest.NewDeployment()), 1)
	rolling := func(d *clusterv1.MachineDeployment) {
		capitest.WithAnnotation[*clusterv1.MachineDeployment](
			v1alpha1.AnnotationOperation,
			`{"step":"roll","workflowID":"`+rollout+`","rolloutOf":"uid-d"}`,
		)(d)
	}
	runCAPIBridgeTest(
		t,
		append([]runtime.Object{changedCAPIDeployment(rolling)}, capiDeploymentObjects()[1:]...),
		func(w *bridgeTestEnv) {
			w.takeCalls()
			w.putObject(
				changedCAPIDeployment(
					func(d *clusterv1.MachineDeployment) { rolling(d); d.Generation, d.Spec.Replicas = 2, new(int32(3)) },
				),
			)
			w.runDueWork()
			assert.Equal(t, []string{"signal " + rollout}, w.takeRequests())
			w.deleteObject(changedCAPIDeployment(rolling))
			w.advanceClock(deletionGracePeriod + time.Second)
			assert.Subset(
				t,
				w.takeRequests(),
				[]string{
					"signal " + rollout,
					"signal " + testInstallation.ID(run.KindClusterAPIDeployment, objectRef(capitest.NewDeployment())),
				},
			)
		},
	)
}

// A deployment that waits for its template is signaled when the template is created.
func TestATemplateSignalsTheDeploymentsThatWaitForIt(t *testing.T) {
	waiting := changedCAPIDeployment(
		func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.InfrastructureRef.Name = "large" },
	)
	runCAPIBridgeTest(t, append([]runtime.Object{waiting}, capiDeploymentObjects()[1:]...), func(w *bridgeTestEnv) {
		w.advanceClock(3 * time.Second)
		w.takeCalls()
		w.putObject(
			capitest.NewInfrastructureTemplate(
				capitest.WithClusterOwner,
				func(o *unstructured.Unstructured) { o.SetName("large"); o.SetUID("uid-large") },
			),
		)
		w.runDueWork()
		assert.Contains(t, w.takeRequests(), capiDeploymentSignal)
	})
}
