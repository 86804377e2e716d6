package watch

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubetesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
	"millwright/workflows/run"
)

// timeBeforeBubbleStart is before the start time of every synctest bubble.
var timeBeforeBubbleStart = metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))

// capiSet returns a set with one machine and without pending work.
func capiSet(name string, change ...capitest.SetChange) *clusterv1.MachineSet {
	s := capitest.NewSet(name, 1, change...)
	return fillCAPISetStatus(s, capitest.NewRelatedObjects(capiMachine("m-"+name, s)))
}

// fillCAPISetStatus writes the status that a set with these related objects has.
func fillCAPISetStatus(s *clusterv1.MachineSet, related capi.RelatedObjects) *clusterv1.MachineSet {
	plan := scale.PlanSet(
		capiset.ScaleFacts(
			capitest.NewOfflineCache(capitest.DefaultSettings, cache.PreflightConfig{}),
			s,
			related,
			capitest.Noon,
			0,
		),
	)
	capiset.ApplyStatus(
		s,
		related,
		plan.Status,
		capiset.ExplanationFacts(s, related, plan.Status.Conditions, capitest.Noon).BlockedSummary(capitest.Noon),
		timeBeforeBubbleStart,
	)
	return s
}

func capiMachine(name string, s *clusterv1.MachineSet, change ...capitest.MachineChange) *clusterv1.Machine {
	return capitest.NewMachine(name, s, append([]capitest.MachineChange{func(m *clusterv1.Machine) {
		m.CreationTimestamp = timeBeforeBubbleStart
		for i := range m.Status.Conditions {
			m.Status.Conditions[i].LastTransitionTime = timeBeforeBubbleStart
		}
	}}, change...)...)
}

// capiSetObjects returns a set with its machine and their related objects.
func capiSetObjects(more ...runtime.Object) []runtime.Object {
	s := capiSet("s", capitest.WithDeploymentOwner, withSetAnnotation(clusterv1.RevisionAnnotation, "1"))
	return append([]runtime.Object{
		s,
		capiMachine("m-s", s),
		capitest.NewCluster(),
		capitest.NewDeployment(),
		capitest.NewBootstrapTemplate(
			capitest.WithClusterOwner,
		),
		capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
		capitest.NewControlPlane(),
	}, more...)
}

func withSetAnnotation(key, value string) capitest.SetChange {
	return capitest.WithAnnotation[*clusterv1.MachineSet](key, value)
}

// changedCAPISet returns the changed set of capiSetObjects.
func changedCAPISet(change ...capitest.SetChange) *clusterv1.MachineSet {
	return changedCopy(capiSetObjects()[0].(*clusterv1.MachineSet), change...)
}

// changedCAPIMachine returns the changed machine of capiSetObjects.
func changedCAPIMachine(change ...capitest.MachineChange) *clusterv1.Machine {
	return changedCopy(capiSetObjects()[1].(*clusterv1.Machine), change...)
}

func capiSetSignal(name string) string {
	return "signal-with-start " +
		testInstallation.ID(
			run.KindClusterAPISet,
			cache.ObjectRef{Namespace: capitest.Namespace, Name: name, UID: "uid-" + name},
		)
}

// countCAPISetEvaluations returns the number of evaluations of Cluster API sets.
func (w *bridgeTestEnv) countCAPISetEvaluations() float64 {
	return w.countEvaluations(run.KindClusterAPISet)
}

// countEvaluations returns the number of evaluations of objects of a kind.
func (w *bridgeTestEnv) countEvaluations(kind run.Kind) (n float64) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		if name := family.GetName(); name != "millwright_bridge_calm_total" && name != "millwright_bridge_signals_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == string(kind) {
				n += metric.GetCounter().GetValue()
			}
		}
	}
	return n
}

// runCAPIBridgeTest runs a test with a bridge that is idle.
func runCAPIBridgeTest(t *testing.T, objects []runtime.Object, test func(w *bridgeTestEnv)) {
	t.Helper()
	runBridgeTest(t, objects, func(w *bridgeTestEnv) {
		w.advanceClock(3 * time.Second) // the caches of templates are filled
		test(w)
	})
}

func TestClusterAPISetWithoutPendingWorkIsNotSignaled(t *testing.T) {
	assertNoCAPISignals(t, capiSetObjects(), run.KindClusterAPISet)
}

// assertNoCAPISignals checks that an object without pending work is evaluated but not signaled.
func assertNoCAPISignals(t *testing.T, stack []runtime.Object, kind run.Kind) {
	t.Helper()
	runCAPIBridgeTest(t, stack, func(w *bridgeTestEnv) {
		assert.Positive(t, w.countEvaluations(kind))
		assert.Empty(t, w.takeRequests())
		w.advanceClock(maxResyncInterval)
		assert.Empty(t, w.takeRequests())
	})
}

// capiEvaluationTestCase is a change of an object, and the time at which the bridge then evaluates the tested set or
// deployment.
type capiEvaluationTestCase struct {
	name   string
	object runtime.Object
	want   string
}

// The times in a capiEvaluationTestCase.
const neverEvaluated, evaluatedAtOnce, evaluatedDebounced = "never", "at once", "debounced"

// assertCAPIEvaluations makes the change of each row, and checks when the bridge evaluates the tested set or
// deployment.
func assertCAPIEvaluations(t *testing.T, stack []runtime.Object, kind run.Kind, rows []capiEvaluationTestCase) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			runCAPIBridgeTest(t, stack, func(w *bridgeTestEnv) {
				require.Empty(t, w.takeRequests())
				before := w.countEvaluations(kind)
				w.putObject(row.object)
				w.runDueWork()
				assert.Equal(t, row.want == evaluatedAtOnce, w.countEvaluations(kind) > before, "at once")
				before = w.countEvaluations(kind)
				w.runDebouncedWork()
				if row.want != evaluatedAtOnce {
					assert.Equal(t, row.want == evaluatedDebounced, w.countEvaluations(kind) > before, "debounced")
				}
			})
		})
	}
}

func incrementGeneration(o metav1.Object) { o.SetGeneration(o.GetGeneration() + 1) }

// withCondition sets a condition of a machine without changing the condition's time.
func withCondition(kind string, status metav1.ConditionStatus) capitest.MachineChange {
	return func(m *clusterv1.Machine) {
		meta.SetStatusCondition(
			&m.Status.Conditions,
			metav1.Condition{Type: kind, Status: status, Reason: "R", LastTransitionTime: timeBeforeBubbleStart},
		)
	}
}

// infrastructureTemplate returns the changed infrastructure template of the stacks.
func infrastructureTemplate(change ...capitest.ProviderObjectChange) runtime.Object {
	return capitest.NewInfrastructureTemplate(
		append([]capitest.ProviderObjectChange{capitest.WithClusterOwner}, change...)...)
}

// Each row has a change of an object, and the time at which the bridge then evaluates the set.
func TestRelevantChangesTriggerEvaluationOfAClusterAPISet(t *testing.T) {
	set := func(change func(*clusterv1.MachineSet)) runtime.Object { return changedCAPISet(change) }
	machine := func(change capitest.MachineChange) runtime.Object { return changedCAPIMachine(change) }
	says := func(kind string, status metav1.ConditionStatus) runtime.Object {
		return machine(withCondition(kind, status))
	}
	at := func(kind string) runtime.Object {
		return machine(func(m *clusterv1.Machine) {
			meta.FindStatusCondition(m.Status.Conditions, kind).LastTransitionTime = metav1.NewTime(
				timeBeforeBubbleStart.Add(time.Hour),
			)
		})
	}
	infrastructure := infrastructureTemplate
	assertCAPIEvaluations(t, capiSetObjects(), run.KindClusterAPISet, []capiEvaluationTestCase{
		{"nothing but a version: the set", set(func(*clusterv1.MachineSet) {}), neverEvaluated},
		{"nothing but a version: its machine", machine(func(*clusterv1.Machine) {}), neverEvaluated},
		{"nothing but a version: its Cluster", capitest.NewCluster(), neverEvaluated},
		{"nothing but a version: its deployment", capitest.NewDeployment(), neverEvaluated},
		{"nothing but a version: its template", infrastructure(), neverEvaluated},
		{"nothing but a version: the control plane", capitest.NewControlPlane(), neverEvaluated},

		{"the spec of the set", set(func(s *clusterv1.MachineSet) { incrementGeneration(s) }), evaluatedAtOnce},
		{"its own status", set(func(s *clusterv1.MachineSet) {
			s.Status.Replicas, s.Status.Conditions[0].Reason = new(int32(9)), "Other"
		}), neverEvaluated},
		{
			"an annotation of the set",
			set(withSetAnnotation(clusterv1.DisableMachineCreateAnnotation, "true")),
			evaluatedAtOnce,
		},
		{
			"the set gets to move its surplus",
			set(capitest.WithAnnotation[*clusterv1.MachineSet](clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next")),
			evaluatedAtOnce,
		},
		{
			"the set counts a machine that has moved to it",
			set(capitest.WithAnnotation[*clusterv1.MachineSet](clusterv1.AcknowledgedMoveAnnotation, "m")),
			evaluatedAtOnce,
		},
		{"the deletion of the set", set(capitest.AsDeletingObject[*clusterv1.MachineSet]), evaluatedAtOnce},
		{
			"the set is handed over",
			set(func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "theirs" }),
			evaluatedAtOnce,
		},
		{"the controller of the set", set(func(s *clusterv1.MachineSet) { s.OwnerReferences = nil }), evaluatedAtOnce},

		{"a machine is ready no more", says(clusterv1.MachineReadyCondition, "False"), evaluatedDebounced},
		{"a machine is ready since another time", at(clusterv1.MachineReadyCondition), evaluatedDebounced},
		{"a machine is not up to date", says(clusterv1.MachineUpToDateCondition, "False"), evaluatedDebounced},
		{"a machine is up to date since another time", at(clusterv1.MachineUpToDateCondition), neverEvaluated},
		{"the health of its node", says(clusterv1.MachineNodeHealthyCondition, "Unknown"), evaluatedDebounced},
		{"a health check", says(clusterv1.MachineHealthCheckSucceededCondition, "False"), evaluatedDebounced},
		{"a request for remediation", says(clusterv1.MachineOwnerRemediatedCondition, "False"), evaluatedDebounced},
		{
			"what a machine that does not come up lacks: bootstrap data",
			says(clusterv1.MachineBootstrapConfigReadyCondition, "False"),
			evaluatedDebounced,
		},
		{
			"what a machine that does not come up lacks: its instance",
			says(clusterv1.MachineInfrastructureReadyCondition, "False"),
			evaluatedDebounced,
		},
		{"its update in place", says(clusterv1.MachineUpdatingCondition, "True"), evaluatedDebounced},
		{"why a deleted machine is still there", says(clusterv1.MachineDeletingCondition, "True"), evaluatedDebounced},
		{"when its drain began", machine(func(m *clusterv1.Machine) {
			m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: timeBeforeBubbleStart}
		}), evaluatedDebounced},
		{"another condition", says(clusterv1.MachineNodeReadyCondition, "False"), neverEvaluated},
		{
			"another status",
			machine(func(m *clusterv1.Machine) { m.Status.Addresses = clusterv1.MachineAddresses{{Address: "10.0.0.1"}} }),
			neverEvaluated,
		},
		{"the phase", machine(func(m *clusterv1.Machine) { m.Status.Phase = "Deleting" }), evaluatedDebounced},
		{"the node", machine(func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }), evaluatedDebounced},
		{
			"the version of the kubelet",
			machine(func(m *clusterv1.Machine) { m.Status.NodeInfo.KubeletVersion = "v1.32.0" }),
			evaluatedDebounced,
		},
		{"a label of a machine", machine(func(m *clusterv1.Machine) { m.Labels["x"] = "y" }), evaluatedDebounced},
		{
			"an annotation of a machine",
			machine(capitest.WithAnnotation[*clusterv1.Machine](clusterv1.DeleteMachineAnnotation, "")),
			evaluatedDebounced,
		},
		{
			"the spec of a machine",
			machine(func(m *clusterv1.Machine) { m.Spec.MinReadySeconds = new(int32(5)) }),
			evaluatedDebounced,
		},
		{"the deletion of a machine", machine(capitest.AsDeletingObject[*clusterv1.Machine]), evaluatedDebounced},
		{"a new machine", capiMachine("new", changedCAPISet()), evaluatedDebounced},
		{"a machine that the set lost", machine(capitest.WithoutOwner[*clusterv1.Machine]), evaluatedAtOnce},
		{"a machine of another controller", capiMachine("other", capitest.NewSet("other", 1)), neverEvaluated},

		{
			"the Cluster is paused",
			capitest.NewCluster(func(c *clusterv1.Cluster) { incrementGeneration(c); c.Spec.Paused = new(true) }),
			evaluatedAtOnce,
		},
		{
			"the Cluster's step of an upgrade",
			capitest.NewCluster(
				capitest.WithAnnotation[*clusterv1.Cluster](clusterv1.ClusterTopologyUpgradeStepAnnotation, "v1"),
			),
			evaluatedAtOnce,
		},
		{"the Cluster is deleted", capitest.NewCluster(capitest.AsDeletingObject[*clusterv1.Cluster]), evaluatedAtOnce},
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

		{
			"the revision of the deployment",
			capitest.NewDeployment(func(d *clusterv1.MachineDeployment) { d.Annotations[clusterv1.RevisionAnnotation] = "2" }),
			evaluatedAtOnce,
		},
		{
			"maxInFlight of the deployment",
			capitest.NewDeployment(
				func(d *clusterv1.MachineDeployment) { d.Spec.Remediation.MaxInFlight = new(intstr.FromInt32(2)) },
			),
			evaluatedAtOnce,
		},
		{
			"the deployment's machines are deleted by people from now on",
			capitest.NewDeployment(func(d *clusterv1.MachineDeployment) {
				d.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
			}),
			evaluatedAtOnce,
		},
		{
			"a label of the deployment: RolloutPolicies select by labels",
			capitest.NewDeployment(func(d *clusterv1.MachineDeployment) { d.Labels = map[string]string{"team": "shop"} }),
			evaluatedAtOnce,
		},
		{"a RolloutPolicy", policyInNamespace(capitest.Namespace), evaluatedAtOnce},
		{
			"the record of failed generations of the set",
			set(withSetAnnotation(v1alpha1.AnnotationFailedGenerations, "{}")),
			neverEvaluated,
		},
		{
			"the size of the deployment",
			capitest.NewDeployment(func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = new(int32(5)) }),
			evaluatedAtOnce,
		},
		{
			"the template of the deployment reaches the set as its own",
			capitest.NewDeployment(
				func(d *clusterv1.MachineDeployment) { incrementGeneration(d); d.Spec.Template.Spec.Version = "v1.0.0" },
			),
			neverEvaluated,
		},
		{"another deployment", capitest.NewDeployment(func(d *clusterv1.MachineDeployment) {
			d.Name, d.UID, d.Spec.Replicas = "other", "uid-other", new(int32(5))
		}), neverEvaluated},

		{"the template", infrastructure(func(o *unstructured.Unstructured) { incrementGeneration(o) }), evaluatedAtOnce},
		{
			"an annotation of the template",
			infrastructure(
				capitest.WithAnnotation[*unstructured.Unstructured](clusterv1.MachineSetSkipPreflightChecksAnnotation, "All"),
			),
			evaluatedAtOnce,
		},
		{"the owner of the template", infrastructure(capitest.WithoutOwner[*unstructured.Unstructured]), evaluatedAtOnce},
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
			"the status of the control plane",
			capitest.NewControlPlane(capitest.WithField(int64(1), "status", "availableReplicas")),
			evaluatedAtOnce,
		},
		{
			"another control plane",
			capitest.NewControlPlane(func(o *unstructured.Unstructured) { o.SetName("other"); o.SetUID("uid-other") }),
			neverEvaluated,
		},
	})
}

// A change of a machine with a controller signals only the set that controls the machine. A change of a machine without
// a controller signals the sets that select the machine. No other set is signaled.
func TestClusterAPIMachineSignalsItsSetOrTheSetsThatSelectIt(t *testing.T) {
	selecting := func(pool string) capitest.SetChange {
		return func(s *clusterv1.MachineSet) {
			s.Spec.Selector.MatchLabels["pool"], s.Spec.Template.Labels["pool"] = pool, pool
		}
	}
	empty := func(s *clusterv1.MachineSet) { s.Spec.Selector = metav1.LabelSelector{} }
	elsewhere := func(s *clusterv1.MachineSet) { s.Namespace = "garden" }
	foreign := func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel], s.Finalizers = "theirs", nil }
	var sets []runtime.Object
	for name, change := range map[string][]capitest.SetChange{
		"a": {selecting("a")}, "twin": {selecting("a")}, "b": {selecting("b")}, "everything": {empty}, "far": {selecting("a"), elsewhere}, "theirs": {selecting("a"), foreign},
	} {
		s, related := capitest.NewSet(name, 0, change...), capitest.NewRelatedObjects()
		if s.Namespace != capitest.Namespace { // this set has neither a Cluster nor templates
			related = capi.RelatedObjects{
				Templates: []capi.ProviderObject{
					capitest.MissingObject(capitest.NewBootstrapTemplate()),
					capitest.MissingObject(capitest.NewInfrastructureTemplate()),
				},
			}
		}
		sets = append(sets, fillCAPISetStatus(s, related))
	}
	orphan := func(pool string) *clusterv1.Machine {
		return capiMachine(
			"o",
			capitest.NewSet("a", 0),
			capitest.WithoutOwner[*clusterv1.Machine],
			func(m *clusterv1.Machine) { m.Labels["pool"] = pool },
		)
	}
	owned := capiMachine("o", capitest.NewSet("a", 0), func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
	foreigner := orphan("a")
	foreigner.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "MachineSet", Name: "a", UID: "uid-x", Controller: new(true)},
	}
	for _, row := range []struct {
		name string
		o    *clusterv1.Machine
		want []string
	}{
		{"owned: its owner", owned, []string{capiSetSignal("a")}},
		{"an orphan: the sets that match it", orphan("a"), []string{capiSetSignal("a"), capiSetSignal("twin")}},
		{"an orphan of others", orphan("b"), []string{capiSetSignal("b")}},
		{"an orphan that nobody matches", orphan("c"), []string{}},
		{"of a controller that is no set of Cluster API", foreigner, []string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			// the stack without its own set
			runCAPIBridgeTest(t, append(sets, capiSetObjects()[2:]...), func(w *bridgeTestEnv) {
				require.Empty(t, w.takeRequests())
				before := w.countCAPISetEvaluations()
				w.putObject(row.o)
				w.runDebouncedWork()
				assert.Equal(t, row.want, w.takeRequests())
				assert.InDelta(t, len(row.want), w.countCAPISetEvaluations()-before, 0, "no other set is evaluated")
			})
		})
	}
}

// A set without Millwright's label is never signaled. A set that was handed over is signaled until Millwright's
// finalizer is removed. A set that loses its machines one after the other must be signaled for each.
func TestASetIsEvaluatedForAMachineThatItReleased(t *testing.T) {
	released := capiMachine(
		"o",
		capitest.NewSet("s", 0),
		capitest.WithoutOwner[*clusterv1.Machine],
		func(m *clusterv1.Machine) {
			m.Labels["pool"] = "another"
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReleasedBy, "uid-s")
		},
	)
	runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
		before := w.countCAPISetEvaluations()
		w.putObject(released)
		w.runDebouncedWork()
		assert.InDelta(t, 1, w.countCAPISetEvaluations()-before, 0)
	})
}

func TestSetsWithAnotherLabelAreNotSignaled(t *testing.T) {
	label := func(value string) capitest.SetChange {
		return func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = value }
	}
	bare := func(s *clusterv1.MachineSet) { s.Finalizers = nil }
	theirs := capitest.NewSet("theirs", 3, label("theirs"), bare)
	none := capitest.NewSet("none", 3, bare, func(s *clusterv1.MachineSet) { s.Labels = nil })
	runCAPIBridgeTest(t, capiSetObjects(theirs, none), func(w *bridgeTestEnv) {
		for _, s := range []*clusterv1.MachineSet{theirs, none} {
			w.putObject(changedCopy(s, func(s *clusterv1.MachineSet) { s.Generation++ }))
			w.putObject(capiMachine("x-"+s.Name, s))
		}
		w.advanceClock(maxResyncInterval)
		assert.Empty(t, w.takeRequests())

		w.putObject(changedCAPISet(label("theirs")))
		w.runDueWork()
		assert.Equal(t, []string{capiSetSignal("s")}, w.takeRequests())
		w.putObject(changedCAPISet(label("theirs"), bare))
		w.advanceClock(maxResyncInterval)
		w.takeCalls()
		w.putObject(changedCopy(changedCAPIMachine(), func(m *clusterv1.Machine) { m.Labels["x"] = "y" }))
		w.advanceClock(maxResyncInterval)
		assert.Empty(t, w.takeRequests(), "it is not Millwright's any more")
	})
}

// A set that waits for its template is signaled when the template is created. The set's workflow must not read a state
// in which the template is missing.
func TestATemplateSignalsTheSetsThatWaitForIt(t *testing.T) {
	waiting := capitest.NewSet("s", 1)
	related := capitest.NewRelatedObjects()
	related.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
	fillCAPISetStatus(waiting, related)
	runCAPIBridgeTest(
		t,
		[]runtime.Object{
			waiting,
			capitest.NewCluster(),
			capitest.NewBootstrapTemplate(capitest.WithClusterOwner),
			capitest.NewControlPlane(),
		},
		func(w *bridgeTestEnv) {
			w.takeCalls()
			version := w.putObject(capitest.NewInfrastructureTemplate(capitest.WithClusterOwner))
			w.runDueWork()
			calls := w.takeCalls()
			require.Len(t, calls, 1)
			assert.Equal(t, capiSetSignal("s"), calls[0].verb+" "+calls[0].workflowID)
			assert.Equal(t, version, calls[0].signalContent.Versions["examplemachinetemplates.infrastructure.cluster.x-k8s.io"])
			assert.Equal(t, "ClusterAPISet", calls[0].workflow)
		},
	)
}

// The workflow must read at least the versions that the bridge read.
func TestClusterAPISetSignalHasTheVersionsTheBridgeRead(t *testing.T) {
	runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
		versions := map[cache.Resource]string{
			"clusters.cluster.x-k8s.io":                          w.putObject(capitest.NewCluster()),
			"machinedeployments.cluster.x-k8s.io":                w.putObject(capitest.NewDeployment()),
			"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io": w.putObject(capitest.NewControlPlane()),
			"machines.cluster.x-k8s.io":                          w.putObject(changedCAPIMachine()),
		}
		w.advanceClock(2 * time.Second)
		require.Empty(t, w.takeRequests())
		versions["machinesets.cluster.x-k8s.io"] = w.putObject(
			changedCAPISet(func(s *clusterv1.MachineSet) { s.Generation, s.Spec.Replicas = 2, new(int32(3)) }),
		)
		w.runDueWork()
		calls := w.takeCalls()
		require.Len(t, calls, 1)
		for resource, version := range versions {
			assert.Equal(t, version, calls[0].signalContent.Versions[resource], resource)
		}
		assert.Equal(t, int64(2), calls[0].signalContent.Generation)
	})
}

// If the bridge cannot look up a kind, it signals the workflow: a set must not stay idle because an API server did
// not answer.
func TestSetWhoseTemplatesCannotBeReadIsSignaled(t *testing.T) {
	runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
		var fails atomic.Bool
		fails.Store(true)
		w.capiServer.CustomResourceDefinitions.PrependReactor(
			"get",
			"*",
			func(kubetesting.Action) (bool, runtime.Object, error) {
				return fails.Load(), nil, errors.New("connection refused")
			},
		)
		w.startLeader()                  // the goroutines of the bridge start after the change of the fake API server
		w.advanceClock(11 * time.Minute) // the cached answers about kinds have expired
		w.takeCalls()
		w.putObject(changedCAPISet(withSetAnnotation("x", "y")))
		w.runDueWork()
		assert.Equal(t, []string{capiSetSignal("s")}, w.takeRequests())
		fails.Store(false)
		w.putObject(changedCAPISet(withSetAnnotation("x", "z")))
		w.advanceClock(2 * time.Second)
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		assert.Empty(t, w.takeRequests())
	})
}

// The workflow of a deleted set ends.
func TestWorkflowOfADeletedClusterAPISetIsSignaled(t *testing.T) {
	runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.deleteObject(changedCAPISet())
		w.advanceClock(deletionGracePeriod + time.Second)
		assert.Equal(
			t,
			[]string{"signal " + testInstallation.ID(run.KindClusterAPISet, objectRef(changedCAPISet()))},
			w.takeRequests(),
		)
		require.Equal(t, types.UID("uid-s"), changedCAPISet().UID)
	})
}

// machineWithDrainHook returns the machine of capiSetObjects with Millwright's hook.
func machineWithDrainHook(change ...capitest.MachineChange) *clusterv1.Machine {
	return changedCAPIMachine(append([]capitest.MachineChange{func(m *clusterv1.Machine) {
		m.Annotations[capidrain.AnnotationPreDrainHook] = "millwright"
	}}, change...)...)
}

func setWaitingForPreDrainHook(m *clusterv1.Machine) {
	capitest.AsDeletingObject(m)
	m.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreDrainHookStartTime: timeBeforeBubbleStart}
	capitest.WithConditionReason(
		clusterv1.MachineDeletingCondition,
		metav1.ConditionTrue,
		clusterv1.MachineDeletingWaitingForPreDrainHookReason,
		"",
	)(m)
}

func drainWorkflowID(name string) string {
	return testInstallation.ID(
		run.KindClusterAPIDrain,
		cache.ObjectRef{Namespace: capitest.Namespace, Name: name, UID: "uid-" + name},
	)
}

// takeDrainRequests returns the requests about drains of Cluster API since the last call.
func (w *bridgeTestEnv) takeDrainRequests() (all []string) {
	for _, request := range w.takeRequests() {
		if strings.Contains(request, "/clusterapidrain/") {
			all = append(all, request)
		}
	}
	return all
}

func TestRelevantChangesSignalAClusterAPIDrain(t *testing.T) {
	woken := []string{"signal-with-start " + drainWorkflowID("m-s")}
	for _, row := range []struct {
		name     string
		is, gets *clusterv1.Machine
		other    runtime.Object // the object that changes instead of the machine
		want     []string
	}{
		{"it is deleted", machineWithDrainHook(), machineWithDrainHook(capitest.AsDeletingObject), nil, woken},
		{"without the hook", changedCAPIMachine(), changedCAPIMachine(capitest.AsDeletingObject), nil, nil},
		{"an alive one changes", machineWithDrainHook(), machineWithDrainHook(func(m *clusterv1.Machine) { m.Labels["x"] = "y" }), nil, nil},
		{"Cluster API has come to the hook", machineWithDrainHook(capitest.AsDeletingObject), machineWithDrainHook(setWaitingForPreDrainHook), nil, woken},
		{"a request", machineWithDrainHook(setWaitingForPreDrainHook), machineWithDrainHook(setWaitingForPreDrainHook, capitest.WithAnnotation[*clusterv1.Machine](v1alpha1.AnnotationSkipDrain, "")), nil, woken},
		{"its timeout", machineWithDrainHook(setWaitingForPreDrainHook), machineWithDrainHook(setWaitingForPreDrainHook, func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(1)) }), nil, woken},
		{"its node is silent", machineWithDrainHook(setWaitingForPreDrainHook), machineWithDrainHook(setWaitingForPreDrainHook, capitest.WithCondition(clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown)), nil, woken},
		{"its own record", machineWithDrainHook(setWaitingForPreDrainHook), machineWithDrainHook(setWaitingForPreDrainHook, capitest.WithAnnotation[*clusterv1.Machine](v1alpha1.AnnotationDrainStatus, "{}")), nil, nil},
		{"its own condition", machineWithDrainHook(setWaitingForPreDrainHook), machineWithDrainHook(setWaitingForPreDrainHook, capitest.WithCondition("Drained", metav1.ConditionFalse)), nil, nil},
		{"its Cluster is deleted", machineWithDrainHook(setWaitingForPreDrainHook), nil, capitest.NewCluster(capitest.AsDeletingObject), woken},
	} {
		t.Run(row.name, func(t *testing.T) {
			objects := capiSetObjects()
			objects[1] = row.is
			runCAPIBridgeTest(t, objects, func(w *bridgeTestEnv) {
				w.takeCalls()
				if row.other != nil {
					w.putObject(row.other)
				} else {
					w.putObject(row.gets)
				}
				w.runDueWork()
				assert.Equal(t, row.want, w.takeDrainRequests())
			})
		})
	}
}

// The bridge starts a run for a pending drain at each resync. The drain of a deleted machine is signaled.
func TestAPendingClusterAPIDrainIsRestartedAtEachResync(t *testing.T) {
	objects := capiSetObjects()
	objects[1] = machineWithDrainHook(setWaitingForPreDrainHook)
	runCAPIBridgeTest(t, objects, func(w *bridgeTestEnv) {
		assert.NotEmpty(t, w.takeDrainRequests(), "a new leader evaluates it")
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		assert.Equal(t, []string{"start " + drainWorkflowID("m-s")}, w.takeDrainRequests())
		w.takeCalls()
		w.deleteObject(objects[1].(*clusterv1.Machine))
		w.advanceClock(deletionGracePeriod + time.Second)
		assert.Equal(t, []string{"signal " + drainWorkflowID("m-s")}, w.takeDrainRequests())
	})
}

// The end of a drain wakes the queued drains of the same Cluster.
func TestTheEndOfAClusterAPIDrainSignalsQueuedDrains(t *testing.T) {
	queued := `{"deletion":{"stage":"Drain","since":"2026-01-01T11:59:00Z","queued":true}}`
	objects := capiSetObjects(
		machineWithDrainHook(
			setWaitingForPreDrainHook,
			func(m *clusterv1.Machine) { m.Name, m.UID = "next", "uid-next" },
			capitest.WithAnnotation[*clusterv1.Machine](v1alpha1.AnnotationDrainStatus, queued),
		),
	)
	objects[1] = machineWithDrainHook(setWaitingForPreDrainHook)
	runCAPIBridgeTest(t, objects, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.putObject(changedCAPIMachine(setWaitingForPreDrainHook)) // remove the hook from the machine
		w.runDueWork()
		assert.Equal(t, []string{"signal-with-start " + drainWorkflowID("next")}, w.takeDrainRequests())
	})
}

// If a set, its deployment or its Cluster opts into or out of drains by Millwright, the set is evaluated, because the
// set writes its machines' hooks.
func TestSetIsSignaledWhenItOptsIntoDrains(t *testing.T) {
	for name, o := range map[string]runtime.Object{
		"the set":        changedCAPISet(withSetAnnotation(v1alpha1.AnnotationClusterAPIDrain, "true")),
		"the deployment": changedCopy(capitest.NewDeployment(), capitest.WithAnnotation[*clusterv1.MachineDeployment](v1alpha1.AnnotationClusterAPIDrain, "true")),
		"the Cluster":    changedCopy(capitest.NewCluster(), capitest.WithAnnotation[*clusterv1.Cluster](v1alpha1.AnnotationClusterAPIDrain, "true")),
	} {
		t.Run(name, func(t *testing.T) {
			runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
				w.putObject(o)
				w.runDueWork()
				assert.Equal(t, []string{capiSetSignal("s")}, w.takeRequests())
			})
		})
	}
}

// The runs of Cluster API sets and drains are signaled if their objects were deleted while no bridge was the leader.
func TestRunsOfDeletedClusterAPISetsAndDrainsAreSignaled(t *testing.T) {
	gone := func(kind run.Kind) string {
		return testInstallation.ID(kind, cache.ObjectRef{Namespace: capitest.Namespace, Name: "x", UID: "uid-gone"})
	}
	runCAPIBridgeTest(t, capiSetObjects(), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.openRunIDs = []string{
			gone(run.KindClusterAPISet),
			gone(run.KindClusterAPIDrain),
			testInstallation.ID(run.KindClusterAPISet, objectRef(changedCAPISet())),
			drainWorkflowID("m-s"),
		}
		w.startLeader()
		w.advanceClock(time.Second)
		assert.Equal(
			t,
			[]string{"signal " + gone(run.KindClusterAPIDrain), "signal " + gone(run.KindClusterAPISet)},
			w.takeRequests(),
		)
	})
}
