package watch

import (
	"errors"
	"strings"
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

// longAgo is before the time of every bubble.
var longAgo = metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))

// capiSet is a calm set with one machine.
func capiSet(name string, change ...capitest.OnSet) *clusterv1.MachineSet {
	s := capitest.Set(name, 1, change...)
	return capiReporting(s, capitest.Related(capiMachine("m-"+name, s)))
}

// capiReporting gives a set the status for what is around it.
func capiReporting(s *clusterv1.MachineSet, related capi.Related) *clusterv1.MachineSet {
	plan := scale.Plan(
		capiset.Observed(capitest.Facts(capitest.Settings, cache.Preflight{}), s, related, capitest.Noon, 0),
	)
	capiset.ApplyStatus(
		s,
		related,
		plan.Status,
		capiset.Explained(s, related, plan.Status.Conditions, capitest.Noon).Blocked(capitest.Noon),
		longAgo,
	)
	return s
}

func capiMachine(name string, s *clusterv1.MachineSet, change ...capitest.OnMachine) *clusterv1.Machine {
	return capitest.Machine(name, s, append([]capitest.OnMachine{func(m *clusterv1.Machine) {
		m.CreationTimestamp = longAgo
		for i := range m.Status.Conditions {
			m.Status.Conditions[i].LastTransitionTime = longAgo
		}
	}}, change...)...)
}

// capiStack is a set with its machine, and what is around it.
func capiStack(more ...runtime.Object) []runtime.Object {
	s := capiSet("s", capitest.OfDeployment, note(clusterv1.RevisionAnnotation, "1"))
	return append([]runtime.Object{
		s, capiMachine("m-s", s), capitest.Cluster(), capitest.Deployment(),
		capitest.Bootstrap(capitest.Owned), capitest.Infrastructure(capitest.Owned), capitest.ControlPlane(),
	}, more...)
}

func note(key, value string) capitest.OnSet {
	return capitest.Annotated[*clusterv1.MachineSet](key, value)
}

// theSet returns the set of capiStack, changed.
func theSet(change ...capitest.OnSet) *clusterv1.MachineSet {
	return changed(capiStack()[0].(*clusterv1.MachineSet), change...)
}

// theMachine returns its machine, changed.
func theMachine(change ...capitest.OnMachine) *clusterv1.Machine {
	return changed(capiStack()[1].(*clusterv1.Machine), change...)
}

func awakeCAPI(name string) string {
	return "signal-with-start " +
		garden.ID(run.KindClusterAPISet, cache.Ref{Namespace: capitest.Shop, Name: name, UID: "uid-" + name})
}

// evaluations returns how often sets of Cluster API were evaluated.
func (w *world) evaluations() float64 { return w.evaluationsOf(run.KindClusterAPISet) }

// evaluationsOf returns how often objects of a kind were evaluated.
func (w *world) evaluationsOf(kind run.Kind) (n float64) {
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

// inCAPIWorld runs a test with a bridge that is idle.
func inCAPIWorld(t *testing.T, objects []runtime.Object, test func(w *world)) {
	t.Helper()
	inWorld(t, objects, func(w *world) {
		w.pass(3 * time.Second) // the caches of templates are full
		test(w)
	})
}

func TestACalmSetOfClusterAPISleeps(t *testing.T) {
	proveCAPISleeps(t, capiStack(), run.KindClusterAPISet)
}

// proveCAPISleeps checks that a calm object of a kind is evaluated and not signaled.
func proveCAPISleeps(t *testing.T, stack []runtime.Object, kind run.Kind) {
	t.Helper()
	inCAPIWorld(t, stack, func(w *world) {
		assert.Positive(t, w.evaluationsOf(kind))
		assert.Empty(t, w.asked())
		w.pass(aResync)
		assert.Empty(t, w.asked())
	})
}

// capiWakesRow is a change of an object, and when this change makes the bridge evaluate the calm object of a kind.
type capiWakesRow struct {
	name string
	o    runtime.Object
	want string
}

// The times of a capiWakesRow.
const never, atOnce, debounced = "never", "at once", "debounced"

// proveCAPIWakes checks when the change of each row makes the bridge evaluate the object of a kind.
func proveCAPIWakes(t *testing.T, stack []runtime.Object, kind run.Kind, rows []capiWakesRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inCAPIWorld(t, stack, func(w *world) {
				require.Empty(t, w.asked())
				before := w.evaluationsOf(kind)
				w.put(row.o)
				w.flush()
				assert.Equal(t, row.want == atOnce, w.evaluationsOf(kind) > before, "at once")
				before = w.evaluationsOf(kind)
				w.settle()
				if row.want != atOnce {
					assert.Equal(t, row.want == debounced, w.evaluationsOf(kind) > before, "debounced")
				}
			})
		})
	}
}

// newer gives an object another generation.
func newer(o metav1.Object) { o.SetGeneration(o.GetGeneration() + 1) }

// saying sets a condition of a machine without changing its time.
func saying(kind string, status metav1.ConditionStatus) capitest.OnMachine {
	return func(m *clusterv1.Machine) {
		meta.SetStatusCondition(
			&m.Status.Conditions,
			metav1.Condition{Type: kind, Status: status, Reason: "R", LastTransitionTime: longAgo},
		)
	}
}

// ownedInfrastructure is the infrastructure template of the stacks, changed.
func ownedInfrastructure(change ...capitest.OnForeign) runtime.Object {
	return capitest.Infrastructure(append([]capitest.OnForeign{capitest.Owned}, change...)...)
}

// Which change of which object makes the bridge evaluate the set, and when.
func TestWhoWakesASetOfClusterAPI(t *testing.T) {
	set := func(change func(*clusterv1.MachineSet)) runtime.Object { return theSet(change) }
	machine := func(change capitest.OnMachine) runtime.Object { return theMachine(change) }
	says := func(kind string, status metav1.ConditionStatus) runtime.Object { return machine(saying(kind, status)) }
	at := func(kind string) runtime.Object {
		return machine(func(m *clusterv1.Machine) {
			meta.FindStatusCondition(m.Status.Conditions, kind).LastTransitionTime = metav1.NewTime(longAgo.Add(time.Hour))
		})
	}
	infrastructure := ownedInfrastructure
	proveCAPIWakes(t, capiStack(), run.KindClusterAPISet, []capiWakesRow{
		{"nothing but a version: the set", set(func(*clusterv1.MachineSet) {}), never},
		{"nothing but a version: its machine", machine(func(*clusterv1.Machine) {}), never},
		{"nothing but a version: its Cluster", capitest.Cluster(), never},
		{"nothing but a version: its deployment", capitest.Deployment(), never},
		{"nothing but a version: its template", infrastructure(), never},
		{"nothing but a version: the control plane", capitest.ControlPlane(), never},

		{"the spec of the set", set(func(s *clusterv1.MachineSet) { newer(s) }), atOnce},
		{"its own status", set(func(s *clusterv1.MachineSet) {
			s.Status.Replicas, s.Status.Conditions[0].Reason = new(int32(9)), "Other"
		}), never},
		{"an annotation of the set", set(note(clusterv1.DisableMachineCreateAnnotation, "true")), atOnce},
		{
			"the set gets to move its surplus",
			set(capitest.Annotated[*clusterv1.MachineSet](clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, "next")),
			atOnce,
		},
		{
			"the set counts a machine that has moved to it",
			set(capitest.Annotated[*clusterv1.MachineSet](clusterv1.AcknowledgedMoveAnnotation, "m")),
			atOnce,
		},
		{"the deletion of the set", set(capitest.Going[*clusterv1.MachineSet]), atOnce},
		{"the set is handed over", set(func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = "theirs" }), atOnce},
		{"the controller of the set", set(func(s *clusterv1.MachineSet) { s.OwnerReferences = nil }), atOnce},

		{"a machine is ready no more", says(clusterv1.MachineReadyCondition, "False"), debounced},
		{"a machine is ready since another time", at(clusterv1.MachineReadyCondition), debounced},
		{"a machine is not up to date", says(clusterv1.MachineUpToDateCondition, "False"), debounced},
		{"a machine is up to date since another time", at(clusterv1.MachineUpToDateCondition), never},
		{"the health of its node", says(clusterv1.MachineNodeHealthyCondition, "Unknown"), debounced},
		{"a health check", says(clusterv1.MachineHealthCheckSucceededCondition, "False"), debounced},
		{"a request for remediation", says(clusterv1.MachineOwnerRemediatedCondition, "False"), debounced},
		{
			"what a machine that does not come up lacks: bootstrap data",
			says(clusterv1.MachineBootstrapConfigReadyCondition, "False"),
			debounced,
		},
		{
			"what a machine that does not come up lacks: its instance",
			says(clusterv1.MachineInfrastructureReadyCondition, "False"),
			debounced,
		},
		{"its update in place", says(clusterv1.MachineUpdatingCondition, "True"), debounced},
		{"why a deleted machine is still there", says(clusterv1.MachineDeletingCondition, "True"), debounced},
		{"when its drain began", machine(func(m *clusterv1.Machine) {
			m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: longAgo}
		}), debounced},
		{"another condition", says(clusterv1.MachineNodeReadyCondition, "False"), never},
		{
			"another status",
			machine(func(m *clusterv1.Machine) { m.Status.Addresses = clusterv1.MachineAddresses{{Address: "10.0.0.1"}} }),
			never,
		},
		{"the phase", machine(func(m *clusterv1.Machine) { m.Status.Phase = "Deleting" }), debounced},
		{"the node", machine(func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }), debounced},
		{
			"the version of the kubelet",
			machine(func(m *clusterv1.Machine) { m.Status.NodeInfo.KubeletVersion = "v1.32.0" }),
			debounced,
		},
		{"a label of a machine", machine(func(m *clusterv1.Machine) { m.Labels["x"] = "y" }), debounced},
		{
			"an annotation of a machine",
			machine(capitest.Annotated[*clusterv1.Machine](clusterv1.DeleteMachineAnnotation, "")),
			debounced,
		},
		{"the spec of a machine", machine(func(m *clusterv1.Machine) { m.Spec.MinReadySeconds = new(int32(5)) }), debounced},
		{"the deletion of a machine", machine(capitest.Going[*clusterv1.Machine]), debounced},
		{"a new machine", capiMachine("new", theSet()), debounced},
		{"a machine that the set lost", machine(capitest.Unowned[*clusterv1.Machine]), atOnce},
		{"a machine of another controller", capiMachine("other", capitest.Set("other", 1)), never},

		{
			"the Cluster is paused",
			capitest.Cluster(func(c *clusterv1.Cluster) { newer(c); c.Spec.Paused = new(true) }),
			atOnce,
		},
		{
			"the Cluster's step of an upgrade",
			capitest.Cluster(capitest.Annotated[*clusterv1.Cluster](clusterv1.ClusterTopologyUpgradeStepAnnotation, "v1")),
			atOnce,
		},
		{"the Cluster is deleted", capitest.Cluster(capitest.Going[*clusterv1.Cluster]), atOnce},
		{"the Cluster's status", capitest.Cluster(func(c *clusterv1.Cluster) { c.Status.Phase = "Provisioned" }), never},
		{"another Cluster", capitest.Cluster(func(c *clusterv1.Cluster) { c.Name, c.UID = "other", "uid-other" }), never},

		{
			"the revision of the deployment",
			capitest.Deployment(func(d *clusterv1.MachineDeployment) { d.Annotations[clusterv1.RevisionAnnotation] = "2" }),
			atOnce,
		},
		{
			"maxInFlight of the deployment",
			capitest.Deployment(
				func(d *clusterv1.MachineDeployment) { d.Spec.Remediation.MaxInFlight = new(intstr.FromInt32(2)) },
			),
			atOnce,
		},
		{
			"the size of the deployment",
			capitest.Deployment(func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = new(int32(5)) }),
			atOnce,
		},
		{
			"the template of the deployment reaches the set as its own",
			capitest.Deployment(func(d *clusterv1.MachineDeployment) { newer(d); d.Spec.Template.Spec.Version = "v1.0.0" }),
			never,
		},
		{"another deployment", capitest.Deployment(func(d *clusterv1.MachineDeployment) {
			d.Name, d.UID, d.Spec.Replicas = "other", "uid-other", new(int32(5))
		}), never},

		{"the template", infrastructure(func(o *unstructured.Unstructured) { newer(o) }), atOnce},
		{
			"an annotation of the template",
			infrastructure(
				capitest.Annotated[*unstructured.Unstructured](clusterv1.MachineSetSkipPreflightChecksAnnotation, "All"),
			),
			atOnce,
		},
		{"the owner of the template", infrastructure(capitest.Unowned[*unstructured.Unstructured]), atOnce},
		{
			"another template",
			infrastructure(func(o *unstructured.Unstructured) { o.SetName("other"); o.SetUID("uid-other") }),
			never,
		},
		{
			"a template in another namespace",
			infrastructure(func(o *unstructured.Unstructured) { o.SetNamespace("garden"); o.SetUID("uid-other") }),
			never,
		},
		{
			"the status of the control plane",
			capitest.ControlPlane(capitest.Field(int64(1), "status", "availableReplicas")),
			atOnce,
		},
		{
			"another control plane",
			capitest.ControlPlane(func(o *unstructured.Unstructured) { o.SetName("other"); o.SetUID("uid-other") }),
			never,
		},
	})
}

// A machine with a controller signals that set, an orphan the sets that select it, and no others.
func TestWhoHearsOfAMachineOfClusterAPI(t *testing.T) {
	selecting := func(pool string) capitest.OnSet {
		return func(s *clusterv1.MachineSet) {
			s.Spec.Selector.MatchLabels["pool"], s.Spec.Template.Labels["pool"] = pool, pool
		}
	}
	empty := func(s *clusterv1.MachineSet) { s.Spec.Selector = metav1.LabelSelector{} }
	elsewhere := func(s *clusterv1.MachineSet) { s.Namespace = "garden" }
	foreign := func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel], s.Finalizers = "theirs", nil }
	var sets []runtime.Object
	for name, change := range map[string][]capitest.OnSet{
		"a": {selecting("a")}, "twin": {selecting("a")}, "b": {selecting("b")}, "everything": {empty}, "far": {selecting("a"), elsewhere}, "theirs": {selecting("a"), foreign},
	} {
		s, related := capitest.Set(name, 0, change...), capitest.Related()
		if s.Namespace != capitest.Shop { // it has neither Cluster nor templates
			related = capi.Related{
				Templates: []capi.Foreign{capitest.Gone(capitest.Bootstrap()), capitest.Gone(capitest.Infrastructure())},
			}
		}
		sets = append(sets, capiReporting(s, related))
	}
	orphan := func(pool string) *clusterv1.Machine {
		return capiMachine(
			"o",
			capitest.Set("a", 0),
			capitest.Unowned[*clusterv1.Machine],
			func(m *clusterv1.Machine) { m.Labels["pool"] = pool },
		)
	}
	owned := capiMachine("o", capitest.Set("a", 0), func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
	foreigner := orphan("a")
	foreigner.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "MachineSet", Name: "a", UID: "uid-x", Controller: new(true)},
	}
	for _, row := range []struct {
		name string
		o    *clusterv1.Machine
		want []string
	}{
		{"owned: its owner", owned, []string{awakeCAPI("a")}},
		{"an orphan: the sets that match it", orphan("a"), []string{awakeCAPI("a"), awakeCAPI("twin")}},
		{"an orphan of others", orphan("b"), []string{awakeCAPI("b")}},
		{"an orphan that nobody matches", orphan("c"), []string{}},
		{"of a controller that is no set of Cluster API", foreigner, []string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inCAPIWorld(t, append(sets, capiStack()[2:]...), func(w *world) { // without the set s
				require.Empty(t, w.asked())
				before := w.evaluations()
				w.put(row.o)
				w.settle()
				assert.Equal(t, row.want, w.asked())
				assert.InDelta(t, len(row.want), w.evaluations()-before, 0, "no other set is evaluated")
			})
		})
	}
}

// A set with another label, or without one, is never signaled. One that was handed over is, until Millwright's
// finalizer is gone. A set that loses its machines one after the other must notice that it does.
func TestASetHearsOfAMachineThatItLetGoOf(t *testing.T) {
	released := capiMachine("o", capitest.Set("s", 0), capitest.Unowned[*clusterv1.Machine], func(m *clusterv1.Machine) {
		m.Labels["pool"] = "another"
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReleasedBy, "uid-s")
	})
	inCAPIWorld(t, capiStack(), func(w *world) {
		before := w.evaluations()
		w.put(released)
		w.settle()
		assert.InDelta(t, 1, w.evaluations()-before, 0)
	})
}

func TestSetsOfOtherFilters(t *testing.T) {
	label := func(value string) capitest.OnSet {
		return func(s *clusterv1.MachineSet) { s.Labels[clusterv1.WatchLabel] = value }
	}
	bare := func(s *clusterv1.MachineSet) { s.Finalizers = nil }
	theirs := capitest.Set("theirs", 3, label("theirs"), bare)
	none := capitest.Set("none", 3, bare, func(s *clusterv1.MachineSet) { s.Labels = nil })
	inCAPIWorld(t, capiStack(theirs, none), func(w *world) {
		for _, s := range []*clusterv1.MachineSet{theirs, none} {
			w.put(changed(s, func(s *clusterv1.MachineSet) { s.Generation++ }))
			w.put(capiMachine("x-"+s.Name, s))
		}
		w.pass(aResync)
		assert.Empty(t, w.asked())

		w.put(theSet(label("theirs")))
		w.flush()
		assert.Equal(t, []string{awakeCAPI("s")}, w.asked())
		w.put(theSet(label("theirs"), bare))
		w.pass(aResync)
		w.took()
		w.put(changed(theMachine(), func(m *clusterv1.Machine) { m.Labels["x"] = "y" }))
		w.pass(aResync)
		assert.Empty(t, w.asked(), "it is not Millwright's any more")
	})
}

// A set that waits for its template is signaled when the template is created, and reads no older state.
func TestATemplateWakesTheSetsThatWaitForIt(t *testing.T) {
	waiting := capitest.Set("s", 1)
	related := capitest.Related()
	related.Templates[1] = capitest.Gone(capitest.Infrastructure())
	capiReporting(waiting, related)
	inCAPIWorld(
		t,
		[]runtime.Object{waiting, capitest.Cluster(), capitest.Bootstrap(capitest.Owned), capitest.ControlPlane()},
		func(w *world) {
			w.took()
			version := w.put(capitest.Infrastructure(capitest.Owned))
			w.flush()
			calls := w.took()
			require.Len(t, calls, 1)
			assert.Equal(t, awakeCAPI("s"), calls[0].verb+" "+calls[0].id)
			assert.Equal(t, version, calls[0].changed.Versions["examplemachinetemplates.infrastructure.cluster.x-k8s.io"])
			assert.Equal(t, "ClusterAPISet", calls[0].workflow)
		},
	)
}

// The workflow must see what the bridge saw.
func TestASetOfClusterAPIReadsWhatTheBridgeRead(t *testing.T) {
	inCAPIWorld(t, capiStack(), func(w *world) {
		versions := map[cache.Resource]string{
			"clusters.cluster.x-k8s.io":                          w.put(capitest.Cluster()),
			"machinedeployments.cluster.x-k8s.io":                w.put(capitest.Deployment()),
			"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io": w.put(capitest.ControlPlane()),
			"machines.cluster.x-k8s.io":                          w.put(theMachine()),
		}
		w.pass(2 * time.Second)
		require.Empty(t, w.asked())
		versions["machinesets.cluster.x-k8s.io"] = w.put(
			theSet(func(s *clusterv1.MachineSet) { s.Generation, s.Spec.Replicas = 2, new(int32(3)) }),
		)
		w.flush()
		calls := w.took()
		require.Len(t, calls, 1)
		for resource, version := range versions {
			assert.Equal(t, version, calls[0].changed.Versions[resource], resource)
		}
		assert.Equal(t, int64(2), calls[0].changed.Generation)
	})
}

// If a kind cannot be looked up, the workflow finds out: a set must not sleep for an API server that did not answer.
func TestASetWhoseTemplatesCannotBeRead(t *testing.T) {
	inCAPIWorld(t, capiStack(), func(w *world) {
		fails := true
		w.provider.Definitions.PrependReactor("get", "*", func(kubetesting.Action) (bool, runtime.Object, error) {
			return fails, nil, errors.New("connection refused")
		})
		w.pass(11 * time.Minute) // the answers about kinds are old
		w.took()
		w.put(theSet(note("x", "y")))
		w.flush()
		assert.Equal(t, []string{awakeCAPI("s")}, w.asked())
		fails = false
		w.put(theSet(note("x", "z")))
		w.pass(2 * time.Second)
		w.took()
		w.pass(aResync)
		assert.Empty(t, w.asked())
	})
}

// The workflow of a set that is gone ends.
func TestTheWorkflowOfASetOfClusterAPIThatIsGoneHearsOfIt(t *testing.T) {
	inCAPIWorld(t, capiStack(), func(w *world) {
		w.took()
		w.remove(theSet())
		w.pass(goneAfter + time.Second)
		assert.Equal(t, []string{"signal " + garden.ID(run.KindClusterAPISet, refOf(theSet()))}, w.asked())
		require.Equal(t, types.UID("uid-s"), theSet().UID)
	})
}

// hookedMachine is the machine of capiStack with Millwright's hook.
func hookedMachine(change ...capitest.OnMachine) *clusterv1.Machine {
	return theMachine(append([]capitest.OnMachine{func(m *clusterv1.Machine) {
		m.Annotations[capidrain.AnnotationHook] = "millwright"
	}}, change...)...)
}

func goingAtTheHook(m *clusterv1.Machine) {
	capitest.Going(m)
	m.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreDrainHookStartTime: longAgo}
	capitest.SaysWhy(
		clusterv1.MachineDeletingCondition,
		metav1.ConditionTrue,
		clusterv1.MachineDeletingWaitingForPreDrainHookReason,
		"",
	)(m)
}

func drainOf(name string) string {
	return garden.ID(run.KindClusterAPIDrain, cache.Ref{Namespace: capitest.Shop, Name: name, UID: "uid-" + name})
}

// drainsAsked are the requests about drains of Cluster API since the last call.
func (w *world) drainsAsked() (all []string) {
	for _, request := range w.asked() {
		if strings.Contains(request, "/clusterapidrain/") {
			all = append(all, request)
		}
	}
	return all
}

func TestWhoWakesADrainForClusterAPI(t *testing.T) {
	woken := []string{"signal-with-start " + drainOf("m-s")}
	for _, row := range []struct {
		name     string
		is, gets *clusterv1.Machine
		other    runtime.Object // what changes instead
		want     []string
	}{
		{"it is deleted", hookedMachine(), hookedMachine(capitest.Going), nil, woken},
		{"without the hook", theMachine(), theMachine(capitest.Going), nil, nil},
		{"an alive one changes", hookedMachine(), hookedMachine(func(m *clusterv1.Machine) { m.Labels["x"] = "y" }), nil, nil},
		{"Cluster API has come to the hook", hookedMachine(capitest.Going), hookedMachine(goingAtTheHook), nil, woken},
		{"a request", hookedMachine(goingAtTheHook), hookedMachine(goingAtTheHook, capitest.Annotated[*clusterv1.Machine](v1alpha1.AnnotationSkipDrain, "")), nil, woken},
		{"its timeout", hookedMachine(goingAtTheHook), hookedMachine(goingAtTheHook, func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(1)) }), nil, woken},
		{"its node is silent", hookedMachine(goingAtTheHook), hookedMachine(goingAtTheHook, capitest.Says(clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown)), nil, woken},
		{"its own record", hookedMachine(goingAtTheHook), hookedMachine(goingAtTheHook, capitest.Annotated[*clusterv1.Machine](v1alpha1.AnnotationDrainStatus, "{}")), nil, nil},
		{"its own condition", hookedMachine(goingAtTheHook), hookedMachine(goingAtTheHook, capitest.Says("Drained", metav1.ConditionFalse)), nil, nil},
		{"its Cluster is deleted", hookedMachine(goingAtTheHook), nil, capitest.Cluster(capitest.Going), woken},
	} {
		t.Run(row.name, func(t *testing.T) {
			objects := capiStack()
			objects[1] = row.is
			inCAPIWorld(t, objects, func(w *world) {
				w.took()
				if row.other != nil {
					w.put(row.other)
				} else {
					w.put(row.gets)
				}
				w.flush()
				assert.Equal(t, row.want, w.drainsAsked())
			})
		})
	}
}

// A drain that is pending gets an open run each minute, and the run of a machine that is gone hears of it.
func TestADrainForClusterAPIIsStartedAgainAndEnds(t *testing.T) {
	objects := capiStack()
	objects[1] = hookedMachine(goingAtTheHook)
	inCAPIWorld(t, objects, func(w *world) {
		assert.NotEmpty(t, w.drainsAsked(), "a new leader evaluates it")
		w.took()
		w.pass(aResync)
		assert.Equal(t, []string{"start " + drainOf("m-s")}, w.drainsAsked())
		w.took()
		w.remove(objects[1].(*clusterv1.Machine))
		w.pass(goneAfter + time.Second)
		assert.Equal(t, []string{"signal " + drainOf("m-s")}, w.drainsAsked())
	})
}

// The end of a drain wakes those of the same Cluster that wait for their turn.
func TestTheNextDrainForClusterAPIHearsOfItsTurn(t *testing.T) {
	queued := `{"deletion":{"stage":"Drain","since":"2026-01-01T11:59:00Z","queued":true}}`
	objects := capiStack(
		hookedMachine(
			goingAtTheHook,
			func(m *clusterv1.Machine) { m.Name, m.UID = "next", "uid-next" },
			capitest.Annotated[*clusterv1.Machine](v1alpha1.AnnotationDrainStatus, queued),
		),
	)
	objects[1] = hookedMachine(goingAtTheHook)
	inCAPIWorld(t, objects, func(w *world) {
		w.took()
		w.put(theMachine(goingAtTheHook)) // without its hook
		w.flush()
		assert.Equal(t, []string{"signal-with-start " + drainOf("next")}, w.drainsAsked())
	})
}

// When a set, its deployment or its Cluster opts into drains by Millwright or out of them, the set looks at its
// machines.
func TestWhoWakesASetThatOptsIntoDrains(t *testing.T) {
	for name, o := range map[string]runtime.Object{
		"the set":        theSet(note(v1alpha1.AnnotationClusterAPIDrain, "true")),
		"the deployment": changed(capitest.Deployment(), capitest.Annotated[*clusterv1.MachineDeployment](v1alpha1.AnnotationClusterAPIDrain, "true")),
		"the Cluster":    changed(capitest.Cluster(), capitest.Annotated[*clusterv1.Cluster](v1alpha1.AnnotationClusterAPIDrain, "true")),
	} {
		t.Run(name, func(t *testing.T) {
			inCAPIWorld(t, capiStack(), func(w *world) {
				w.put(o)
				w.flush()
				assert.Equal(t, []string{awakeCAPI("s")}, w.asked())
			})
		})
	}
}

// The runs of sets and drains of Cluster API are signaled if their objects vanished while no bridge led.
func TestRunsOfClusterAPIWhoseObjectsAreGoneAreSignaled(t *testing.T) {
	gone := func(kind run.Kind) string {
		return garden.ID(kind, cache.Ref{Namespace: capitest.Shop, Name: "x", UID: "uid-gone"})
	}
	inCAPIWorld(t, capiStack(), func(w *world) {
		w.took()
		w.runs = []string{
			gone(run.KindClusterAPISet),
			gone(run.KindClusterAPIDrain),
			garden.ID(run.KindClusterAPISet, refOf(theSet())),
			drainOf("m-s"),
		}
		w.lead()
		w.pass(time.Second)
		assert.Equal(
			t,
			[]string{"signal " + gone(run.KindClusterAPIDrain), "signal " + gone(run.KindClusterAPISet)},
			w.asked(),
		)
	})
}
