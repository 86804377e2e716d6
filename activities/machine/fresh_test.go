package machine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/observe/cache"
)

func TestDecideMachineForANewMachine(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithoutFinalizers)
	w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
	d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
	require.NotEmpty(t, d.Call)
	d.Call = ""
	createBy := m.CreationTimestamp.Add(20 * time.Minute).In(d.CreateBy.Location())
	assert.Equal(t, machine.Decision{
		MachinePlan: attention.MachinePlan{
			Decision: attention.Decision{Need: attention.NeedInstance, Why: "new: our finalizer is missing"},
			Health:   &health.Verdict{Deadline: createBy, Why: "the provider has not created its instance"},
		},
		Version:    "900",
		CallInputs: machine.CallInputs{Class: "small", Versions: "uid-small/900 ", Provider: "fake"},
		Prepare:    true,
		Target:     true,
		NeverTried: true,
		CreateBy:   createBy,
	}, d)
	assert.Empty(t, w.Requests(), "all of it is in the caches")

	t.Run("needs a bootstrap token when its class says what it boots with", func(t *testing.T) {
		assert.True(
			t,
			activitiestest.DecideMachine(
				activitiestest.NewWorld(t, m, activitiestest.NewClassWithSecrets("a", "")),
				activitiestest.NewReadInput(m),
			).Token,
		)
		assert.False(
			t,
			activitiestest.DecideMachine(
				activitiestest.NewWorld(t, m, activitiestest.NewClassWithSecrets("", "a")),
				activitiestest.NewReadInput(m),
			).Token,
		)
	})
}

// While the cloud creates fifty machines of a set, further machines of the same set yield to other sets.
func TestDecideMachineYieldsToOtherSets(t *testing.T) {
	t.Parallel()
	huge, small := activitiestest.NewMachineSet("huge", 60), activitiestest.NewMachineSet("small", 60)
	yields := func(set *v1alpha1.MachineSet, others int) bool {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithoutFinalizers,
			activitiestest.WithOwner[*v1alpha1.Machine](set),
		)
		objects := []runtime.Object{activitiestest.NewClass(), huge, small, m}
		for i := range others {
			objects = append(
				objects,
				activitiestest.NewMachine(
					fmt.Sprint("m-", i),
					activitiestest.WithOwner[*v1alpha1.Machine](huge),
					func(m *v1alpha1.Machine) {
						m.Spec.ProviderID = ""
						m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
						m.Status.LastOperation.State = v1alpha1.MachineStateProcessing
					},
				),
			)
		}
		w := activitiestest.NewWorld(t, objects...)
		w.FairCalls = 50
		return activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Yields
	}
	assert.Equal(t, []bool{false, true, false}, []bool{yields(huge, 49), yields(huge, 50), yields(small, 50)})
}

// newWorldWithIdleMachine returns a world with an idle machine that runs on node n.
func newWorldWithIdleMachine(t *testing.T, m *v1alpha1.Machine, objects ...runtime.Object) *activitiestest.World {
	t.Helper()
	w := activitiestest.NewWorld(t, append(objects, m, activitiestest.NewNode())...)
	activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).SyncNode, activitiestest.NewReadInput(m))
	activitiestest.RunActivityTwice[kube.ReportResult](
		w,
		newActivities(w.Kube).ReportMachine,
		machine.Report{Read: activitiestest.NewReadInput(m), Phase: "Running"},
	)
	w.ForgetRequests()
	return w
}

func TestDecideMachineForAMachineInUse(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	m.Status.LastKnownState, m.Status.LastOperation.Type = "state-7", v1alpha1.MachineOperationCreate
	d := activitiestest.DecideMachine(
		newWorldWithIdleMachine(t, m, activitiestest.NewClass()),
		activitiestest.NewReadInput(m),
	)
	assert.Equal(t, attention.NeedNothing, d.Need)
	assert.Equal(t, "Running", d.Phase)
	assert.Equal(t, []string{"fake:///n", "n", "state-7"}, []string{d.ProviderID, d.NodeName, d.LastKnownState})
	assert.False(t, d.NeverTried)
	assert.False(t, d.Prepare)
	assert.Nil(t, d.Problem)
	assert.Nil(t, d.Health)
}

func TestDecideMachineThatIsGone(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
	for name, in := range map[string]kube.ReadInput{
		"no such object":                         {Ref: kube.Ref{Namespace: activitiestest.TestNamespace, Name: "x", UID: "uid-x"}},
		"no such object, read live":              {Ref: kube.Ref{Namespace: activitiestest.TestNamespace, Name: "x", UID: "uid-x"}, Live: true},
		"another object has its name":            {Ref: activitiestest.NewFormerObjectRef(m)},
		"another object has its name, read live": {Ref: activitiestest.NewFormerObjectRef(m), Live: true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(
				t,
				machine.Decision{
					Gone:        true,
					MachinePlan: attention.MachinePlan{Decision: attention.Decision{Why: "the object is gone"}},
				},
				activitiestest.DecideMachine(w, in),
			)
		})
	}
}

func TestDecideMachineWithoutAUsableClass(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	for name, row := range map[string]struct {
		w       *activitiestest.World
		reason  string
		message string
	}{
		"it does not exist": {activitiestest.NewWorld(t, m), "ClassNotFound", "MachineClass small does not exist in namespace shop"},
		"it names no provider": {
			activitiestest.NewWorld(t, m, activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Provider = "" })),
			"ClassInvalid", "MachineClass small cannot be used: name of provider is empty",
		},
	} {
		for way, in := range map[string]kube.ReadInput{"cached": activitiestest.NewReadInput(m), "live": activitiestest.NewLiveReadInput(m)} {
			t.Run(name+", "+way, func(t *testing.T) {
				d := activitiestest.DecideMachine(row.w, in)
				require.NotNil(t, d.Problem)
				assert.Equal(
					t,
					kube.Problem{Reason: row.reason, Message: row.message, React: kube.ReactionUntilCredentialChange},
					*d.Problem,
				)
				assert.Empty(t, d.Provider)
				assert.Equal(t, attention.NeedInstance, d.Need, "what it needs does not change")
			})
		}
	}
}

func TestStaleCachesCauseFailureOrLiveRead(t *testing.T) {
	t.Parallel()
	type mode = func(w *activitiestest.World, activity, in any) (machine.Decision, error)
	local, regular := activitiestest.RunLocalActivity[machine.Decision], activitiestest.RunActivity[machine.Decision]
	for name, row := range map[string]struct {
		how  mode
		live bool   // the read bypasses the caches
		read string // expected freshness label of the read in the metric
	}{
		"a local activity gives up early and says so":             {local, false, "behind"},
		"a regular one reads live":                                {regular, false, "late"},
		"a live read waits for no cache, in a local activity too": {local, true, "live"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine("m")
				w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
				registry := prometheus.NewRegistry()
				w.Metrics = kube.NewMetrics(registry)
				w.HoldEvents()
				w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch("note", "new"))
				in := kube.ReadInput{
					Ref:      activitiestest.NewRef(m),
					Versions: kube.MinVersions{cache.MachinesResource: w.Machine("m").ResourceVersion},
					Live:     row.live,
				}
				begun := time.Now()
				d, err := row.how(w, newActivities(w.Kube).DecideMachine, in)
				assert.Equal(t, map[string]float64{row.read: 1}, countFactReads(t, registry))
				if row.read == "behind" {
					activitiestest.AssertFailure(t, err, kube.FailureTypeCacheBehind, true)
					assert.Less(t, time.Since(begun), 2*time.Second, "a local activity has two seconds")
					return
				}
				require.NoError(t, err)
				assert.Equal(t, in.Versions[cache.MachinesResource], d.Version)
			})
		})
	}
}

// countFactReads returns the number of fact reads by the metric's freshness label.
func countFactReads(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "millwright_fact_reads_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return counts
}

// An API server that was restored to an older state never reaches the resource versions that were seen before the
// restore.
func TestRestoredAPIServerIsReportedAsRewound(t *testing.T) {
	t.Parallel()
	for _, resource := range []cache.Resource{cache.MachinesResource, cache.NodesResource, cache.ClassesResource} {
		t.Run(string(resource), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine("m")
				w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
				in := kube.ReadInput{Ref: activitiestest.NewRef(m), Versions: kube.MinVersions{resource: "999999"}}
				_, err := activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideMachine, in)
				activitiestest.AssertFailure(t, err, kube.FailureTypeRewound, false)
			})
		})
	}
}

func TestALiveDecisionReadsAllObjectsLive(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachinePending))
	w := activitiestest.NewWorld(t, m)
	w.HoldEvents() // the caches do not yet contain the node and the class that are created next
	w.CreateObjects(activitiestest.NewNode(), activitiestest.NewClass())
	in := kube.ReadInput{
		Ref:      activitiestest.NewRef(m),
		Versions: kube.MinVersions{cache.NodesResource: w.Node().ResourceVersion},
	}
	d, err := activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideMachine, in)
	require.NoError(t, err)
	assert.Equal(t, attention.NeedStatusUpdate, d.Need, "the node has joined: nobody tells us a second time")
	assert.Equal(t, "fake", d.Provider)
}

func TestAReadWaitsForTheRequiredVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
		release := w.HoldEvents()
		w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch("note", "new"))
		in := kube.ReadInput{
			Ref:      activitiestest.NewRef(m),
			Versions: kube.MinVersions{cache.MachinesResource: w.Machine("m").ResourceVersion},
		}
		w.ForgetRequests()
		time.AfterFunc(20*time.Millisecond, release)
		d, err := activitiestest.RunActivity[machine.Decision](w, newActivities(w.Kube).DecideMachine, in)
		require.NoError(t, err)
		assert.Equal(t, in.Versions[cache.MachinesResource], d.Version)
		assert.Empty(t, w.Requests(), "waiting costs the API server nothing")
	})
}

// The hash of a provider call depends on the call's inputs. Annotations and labels that the call does not use do not
// change the hash.
func TestDecideMachineReturnsProviderCallInputs(t *testing.T) {
	t.Parallel()
	of := func(change func(*v1alpha1.Machine)) string {
		m := activitiestest.NewMachine("m", activitiestest.WithoutFinalizers, change)
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
		return activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Call
	}
	annotated := func(key, value string) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Annotations = map[string]string{key: value} }
	}
	before := of(func(*v1alpha1.Machine) {})
	require.Equal(t, before, of(annotated("seen.example.com/at", "12:00")))
	for name, change := range map[string]func(*v1alpha1.Machine){
		"spec":    func(m *v1alpha1.Machine) { m.Generation++ },
		"force":   annotated(v1alpha1.AnnotationForce, ""),
		"abandon": annotated(v1alpha1.AnnotationAbandonInstance, "ann: gone"),
		"retry":   annotated(v1alpha1.AnnotationRetry, "2026"),
		"label":   func(m *v1alpha1.Machine) { m.Labels = map[string]string{v1alpha1.LabelForceDeletion: "True"} },
	} {
		require.NotEqual(t, before, of(change), name)
	}
	class := activitiestest.NewClass()
	class.Generation++
	m := activitiestest.NewMachine("m", activitiestest.WithoutFinalizers)
	w := activitiestest.NewWorld(t, m, class)
	require.NotEqual(t, before, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Call, "class")
}
