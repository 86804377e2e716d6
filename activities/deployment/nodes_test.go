package deployment_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

// targetsOf returns machines as targets of a rollout.
func targetsOf(machines ...*v1alpha1.Machine) []rollout.ObjectTarget {
	var list []rollout.ObjectTarget
	for _, m := range machines {
		list = append(
			list,
			rollout.ObjectTarget{
				Name:    m.Name,
				UID:     string(m.UID),
				Version: m.ResourceVersion,
				Node:    m.Labels[v1alpha1.LabelNode],
				Why:     "so",
			},
		)
	}
	return list
}

// newNodeChanges returns changes of nodes of deployment d.
func newNodeChanges(change func(*deployment.NodeChanges)) deployment.NodeChanges {
	in := deployment.NodeChanges{Deployment: activitiestest.NewRef(activitiestest.NewDeployment("d", 3))}
	change(&in)
	return in
}

func withTaint(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func withNodeAnnotations(pairs ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations = maps.Clone(n.Annotations)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			n.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

var (
	withPreferNoScheduleTaint = withTaint(
		"deployment.machine.sapcloud.io/prefer-no-schedule",
		"True",
		"PreferNoSchedule",
	)
	withDedicatedTaint          = withTaint("dedicated", "db", "NoSchedule")
	withCriticalComponentsTaint = withTaint("node.gardener.cloud/critical-components-not-ready", "", "NoSchedule")

	withScaleDownDisabled      = withNodeAnnotations("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true")
	withScaleDownDisabledByMCM = withNodeAnnotations("cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm", "true")
	withNoteAnnotation         = withNodeAnnotations("example.com/note", "mine")

	withPoolLabel = func(n *corev1.Node) {
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels["pool"] = "web"
	}
	successfulUpdateChanges = []func(*corev1.Node){
		activitiestest.WithUpdateResult("successful"),
		withPoolLabel,
		activitiestest.WithCordon,
		activitiestest.WithUpdateCondition("UpdateSuccessful"),
	}
)

func TestChangeNodes(t *testing.T) {
	t.Parallel()
	type states []func(*corev1.Node)
	updating := activitiestest.WithPhase(v1alpha1.MachineInPlaceUpdating)
	running := activitiestest.WithPhase(v1alpha1.MachineRunning)
	isKept := func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &activitiestest.PreservationEnd }
	list := map[string]func(*deployment.NodeChanges, []rollout.ObjectTarget){
		"settle":    func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.FinishUpdate = l },
		"strip":     func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.ClearUpdateLabels = l },
		"candidate": func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.Candidates = l },
		"select":    func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.Select = l },
		"taint":     func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.Taint = l },
		"untaint":   func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.Untaint = l },
		"guard":     func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.ProtectFromAutoscaler = l },
		"unguard":   func(in *deployment.NodeChanges, l []rollout.ObjectTarget) { in.UnprotectFromAutoscaler = l },
	}
	for name, row := range map[string]struct {
		list    string
		machine func(*v1alpha1.Machine)
		before  states
		after   states // nil: nothing is written
	}{
		"the taint":                                {"taint", running, states{withDedicatedTaint, activitiestest.WithCordon}, states{withDedicatedTaint, activitiestest.WithCordon, withPreferNoScheduleTaint}},
		"it is there":                              {"taint", running, states{withPreferNoScheduleTaint, withDedicatedTaint}, nil},
		"it is there with another effect":          {"taint", running, states{withTaint(v1alpha1.TaintPreferNoSchedule, "", "NoSchedule")}, nil},
		"it goes, those of others stay":            {"untaint", running, states{withCriticalComponentsTaint, withPreferNoScheduleTaint, withDedicatedTaint}, states{withCriticalComponentsTaint, withDedicatedTaint}},
		"it was the only one":                      {"untaint", running, states{withPreferNoScheduleTaint}, states{}},
		"it goes with whatever effect it is there": {"untaint", running, states{withTaint(v1alpha1.TaintPreferNoSchedule, "", "NoSchedule"), withDedicatedTaint}, states{withDedicatedTaint}},
		"there is none to go":                      {"untaint", running, states{withDedicatedTaint}, nil},

		"none before":                       {"guard", running, states{}, states{withScaleDownDisabled, withScaleDownDisabledByMCM}},
		"others before":                     {"guard", running, states{withNoteAnnotation}, states{withNoteAnnotation, withScaleDownDisabled, withScaleDownDisabledByMCM}},
		"the same, from a user":             {"guard", running, states{withScaleDownDisabled, withNoteAnnotation}, nil},
		"the same, from us":                 {"guard", running, states{withScaleDownDisabled, withScaleDownDisabledByMCM}, nil},
		"a differing one":                   {"guard", running, states{withNodeAnnotations(v1alpha1.AnnotationScaleDownDisabled, "false")}, states{withScaleDownDisabled, withScaleDownDisabledByMCM}},
		"ours is taken off":                 {"unguard", running, states{withScaleDownDisabled, withScaleDownDisabledByMCM, withNoteAnnotation}, states{withNoteAnnotation}},
		"that of a user stays":              {"unguard", running, states{withScaleDownDisabled, withNoteAnnotation}, nil},
		"that of a preserved machine stays": {"unguard", isKept, states{withScaleDownDisabled, withScaleDownDisabledByMCM}, nil},

		"a candidate":                 {"candidate", running, states{withPoolLabel}, states{activitiestest.WithCandidateLabel, withPoolLabel}},
		"it is one":                   {"candidate", running, states{activitiestest.WithCandidateLabel}, nil},
		"selected":                    {"select", running, states{activitiestest.WithCandidateLabel, withPoolLabel}, states{activitiestest.WithSelectedLabels, withPoolLabel}},
		"it is selected":              {"select", running, states{activitiestest.WithSelectedLabels}, nil},
		"it is no candidate any more": {"select", running, states{withPoolLabel}, nil},
		"it serves again":             {"settle", running, successfulUpdateChanges, states{func(n *corev1.Node) { n.Annotations = map[string]string{} }, withPoolLabel, activitiestest.WithUpdateCondition("UpdateSuccessful"), withCriticalComponentsTaint}},
		"it serves again, and components are awaited": {"settle", running, append(states{withCriticalComponentsTaint}, successfulUpdateChanges...), states{withCriticalComponentsTaint, func(n *corev1.Node) { n.Annotations = map[string]string{} }, withPoolLabel, activitiestest.WithUpdateCondition("UpdateSuccessful")}},
		"it was settled, and its components run":      {"settle", running, states{withPoolLabel, activitiestest.WithUpdateCondition("UpdateSuccessful")}, nil},
		"it was settled, and a user cordoned it":      {"settle", running, states{withPoolLabel, activitiestest.WithCordon, activitiestest.WithUpdateCondition("UpdateSuccessful")}, nil},
		"its machine does not say so yet":             {"settle", updating, successfulUpdateChanges, nil},
		"its condition does not say so yet":           {"settle", running, states{activitiestest.WithUpdateResult("successful"), activitiestest.WithCordon, activitiestest.WithUpdateCondition("ReadyForUpdate")}, nil},
		"its next update has begun":                   {"settle", running, states{activitiestest.WithSelectedLabels, activitiestest.WithCordon, activitiestest.WithUpdateCondition("SelectedForUpdate")}, nil},
		"there is nothing to update":                  {"strip", running, states{activitiestest.WithCandidateLabel, withPoolLabel, activitiestest.WithCordon}, states{activitiestest.WithUpdateLabels(), withPoolLabel, activitiestest.WithCordon}},
		"there is nothing to update any more":         {"strip", running, states{func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelUpdateResult: "failed"} }, withPoolLabel}, states{activitiestest.WithUpdateLabels(), withPoolLabel}},
		"no label is there":                           {"strip", running, states{withPoolLabel}, nil},
		"a person selected it":                        {"strip", running, states{activitiestest.WithSelectedLabels}, nil},
		"it is under update":                          {"strip", updating, states{activitiestest.WithCandidateLabel}, nil},
		"it was updated, and has to be uncordoned":    {"strip", running, successfulUpdateChanges, nil},
		"it was updated, and is selected no more": {"strip", running, states{activitiestest.WithUpdateCondition("UpdateSuccessful"), activitiestest.WithCordon, func(n *corev1.Node) {
			n.Labels = map[string]string{v1alpha1.LabelUpdateResult: "successful"}
		}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, row.machine)
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(row.before...))
			versions := activitiestest.RunActivityTwice[kube.MinVersions](
				w,
				newActivities(w.Kube).ChangeNodes,
				newNodeChanges(func(in *deployment.NodeChanges) { list[row.list](in, targetsOf(m)) }),
			)
			assert.Equal(t, w.NodeMinVersions(), versions, "the version to decide with")
			want := activitiestest.NewNode(row.after...)
			if row.after == nil {
				assert.Empty(t, w.MutatingRequests())
				want = activitiestest.NewNode(row.before...)
			}
			n := w.Node()
			want.ResourceVersion, want.Generation = n.ResourceVersion, n.Generation
			assert.Equal(t, activitiestest.EncodeObject(want), activitiestest.EncodeObject(n), "and nothing else")
			assert.Empty(t, w.TakeNewEvents())
		})
	}
}

func TestChangeNodesWritesANodeOnce(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(
			append(slices.Clone(successfulUpdateChanges), withPreferNoScheduleTaint, withScaleDownDisabled)...),
	)
	activitiestest.RunActivityTwice[kube.MinVersions](
		w,
		newActivities(w.Kube).ChangeNodes,
		newNodeChanges(func(in *deployment.NodeChanges) {
			in.FinishUpdate, in.Untaint, in.ProtectFromAutoscaler = targetsOf(m), targetsOf(m), targetsOf(m)
		}),
	)
	assert.Equal(t, []string{"patch nodes"}, w.MutatingRequests())
	n := w.Node()
	assert.Equal(t, []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: "NoSchedule"}}, n.Spec.Taints)
	assert.False(t, n.Spec.Unschedulable)
	assert.Equal(t, map[string]string{"pool": "web"}, n.Labels)
}

func TestChangeNodesSkipsUnsuitableMachines(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	toGo := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
	)
	early := activitiestest.NewMachine("m", activitiestest.WithPhase(v1alpha1.MachinePending))
	for name, objects := range map[string][]runtime.Object{
		"a machine that is gone":               {activitiestest.NewNode(successfulUpdateChanges...)},
		"a machine that is being deleted":      {toGo, activitiestest.NewNode(successfulUpdateChanges...)},
		"one whose node is gone":               {m},
		"one that has no node yet":             {early, activitiestest.NewNode(successfulUpdateChanges...)},
		"one whose node another machine names": {m, activitiestest.NewMachine("other", activitiestest.WithNode), activitiestest.NewNode(successfulUpdateChanges...)},
		"another machine of that name":         {activitiestest.NewMachine("m", activitiestest.WithNode, func(m *v1alpha1.Machine) { m.UID = "uid-other" }), activitiestest.NewNode(successfulUpdateChanges...)},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, objects...)
			activitiestest.RunActivityTwice[kube.MinVersions](
				w,
				newActivities(w.Kube).ChangeNodes,
				newNodeChanges(func(in *deployment.NodeChanges) {
					in.FinishUpdate, in.Taint, in.ProtectFromAutoscaler, in.Candidates = targetsOf(
						m,
					), targetsOf(
						m,
					), targetsOf(
						m,
					), targetsOf(
						m,
					)
				}),
			)
			assert.Empty(t, w.MutatingRequests())
		})
	}
	t.Run("a node that is emptied for a deletion that the caches do not know yet", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode(successfulUpdateChanges...))
		w.HoldEvents()
		require.NoError(
			t,
			w.MachineClient.MachineV1alpha1().
				Machines(activitiestest.TestNamespace).
				Delete(t.Context(), "m", metav1.DeleteOptions{}),
		)
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).ChangeNodes,
			newNodeChanges(func(in *deployment.NodeChanges) { in.Taint, in.FinishUpdate = targetsOf(m), targetsOf(m) }),
		)
		require.NoError(t, err)
		assert.True(t, w.Node().Spec.Unschedulable)
	})
}

func TestChangeNodesReturnsWriteErrors(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode)
	other := activitiestest.NewMachine("other", func(m *v1alpha1.Machine) {
		m.Labels[v1alpha1.LabelNode], m.Status.NodeName, m.Spec.ProviderID = "n-2", "n-2", "fake:///n-2"
	})
	second := activitiestest.NewNode(func(n *corev1.Node) { n.Name, n.UID = "n-2", "uid-n-2" })
	both := newNodeChanges(func(in *deployment.NodeChanges) { in.Taint = targetsOf(m, other) })
	isTainted := func(n *corev1.Node) bool { return len(n.Spec.Taints) > 0 }
	for name, row := range map[string]struct {
		err       error
		kind      string
		retryable bool
	}{
		"one node, for good": {apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil), kube.FailureTypeRefused, false},
		"one node, for now":  {apierrors.NewTooManyRequests("later", 1), "StatusError", true},
	} {
		t.Run(name+": the other one is written", func(t *testing.T) {
			w := activitiestest.NewWorld(t, m, other, activitiestest.NewNode(), second)
			activitiestest.FailRequests(w.TargetClient, "patch", "nodes", 1, row.err, nil)
			_, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeNodes, both)
			if row.retryable {
				require.ErrorContains(t, err, "later")
				kind, _ := activitiestest.FailureTypeOf(t, err)
				assert.NotEqual(t, kube.FailureTypeRefused, kind)
			} else {
				activitiestest.AssertFailure(t, err, row.kind, false)
			}
			two := activitiestest.ReadStoredObject[corev1.Node](w.TargetClient.Tracker(), "nodes", "", "n-2")
			assert.NotEqual(t, isTainted(w.Node()), isTainted(two), "one of them")
			versions, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).ChangeNodes, both)
			require.NoError(t, err)
			two = activitiestest.ReadStoredObject[corev1.Node](w.TargetClient.Tracker(), "nodes", "", "n-2")
			assert.True(t, isTainted(w.Node()) && isTainted(two), "and by the next attempt both")
			assert.NotEmpty(t, versions[cache.NodesResource])
		})
	}
	t.Run("what somebody else wrote meanwhile stays", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		activitiestest.FailRequests(w.TargetClient, "patch", "nodes", 1, nil, func() {
			w.EditObject(
				cache.NodesResource,
				"n",
				map[string]any{
					"spec": map[string]any{"taints": []any{map[string]any{"key": "dedicated", "value": "db", "effect": "NoSchedule"}}},
				},
			)
		})
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).ChangeNodes,
			newNodeChanges(func(in *deployment.NodeChanges) { in.Taint = targetsOf(m) }),
		)
		require.NoError(t, err)
		assert.Equal(
			t,
			activitiestest.NewNode(withDedicatedTaint, withPreferNoScheduleTaint).Spec.Taints,
			w.Node().Spec.Taints,
		)
	})
}
