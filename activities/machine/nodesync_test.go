package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

const dongleResource = "example.com/dongle" // a resource that a node has only if its class defines it

// withNodeTemplate gives a machine's node template one label, one annotation and one taint.
func withNodeTemplate(m *v1alpha1.Machine) {
	m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
	m.Spec.NodeTemplateSpec.Annotations = map[string]string{"team": "shop"}
	m.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "only", Value: "web", Effect: "NoSchedule"}}
}

// withVirtualDongleCapacity gives the nodes of a class two dongles.
func withVirtualDongleCapacity(c *v1alpha1.MachineClass) {
	c.NodeTemplate = &v1alpha1.NodeTemplate{VirtualCapacity: corev1.ResourceList{dongleResource: resource.MustParse("2")}}
}

// nodeCapacityTexts returns a node's capacity as text.
func nodeCapacityTexts(n *corev1.Node) map[string]string {
	result := map[string]string{}
	for name, q := range n.Status.Capacity {
		result[string(name)] = q.String()
	}
	return result
}

func TestSyncNode(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewClass(withVirtualDongleCapacity),
		activitiestest.NewNode(activitiestest.WithForeignMetadata),
	)
	before := w.Node()
	n := activitiestest.SyncNode(w, activitiestest.NewReadInput(m))
	assert.Equal(
		t,
		[]string{"patch nodes/status", "update nodes"},
		w.MutatingRequests(),
		"capacity first; and the second run writes nothing",
	)
	assert.Equal(
		t,
		map[string]string{"kubernetes.io/os": "linux", "pool": "web", v1alpha1.LabelMachineName: "m"},
		n.Labels,
	)
	assert.Equal(t, map[string]string{
		"volumes.kubernetes.io/x": "true", "team": "shop", v1alpha1.AnnotationMachineUID: "uid-m",
		v1alpha1.AnnotationLastAppliedTemplate: `{"metadata":{"annotations":{"team":"shop"},"labels":{"pool":"web"}},` +
			`"spec":{"taints":[{"key":"only","value":"web","effect":"NoSchedule"}]}}`,
		v1alpha1.AnnotationLastAppliedVirtualCapacity: `{"example.com/dongle":"2"}`,
	}, n.Annotations)
	assert.Equal(t, []string{activitiestest.BackupFinalizer, v1alpha1.FinalizerNode}, n.Finalizers)
	assert.Equal(
		t,
		append(before.Spec.Taints, corev1.Taint{Key: "only", Value: "web", Effect: "NoSchedule"}),
		n.Spec.Taints,
		"those of others stay, and so does when they were added",
	)
	assert.Equal(t, map[string]string{"cpu": "4", dongleResource: "2"}, nodeCapacityTexts(n))
	assert.Equal(t, before.Status.Conditions, n.Status.Conditions)
}

func TestSyncNodeFollowsTheTemplate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		template map[string]any
		node     map[string]any // a manual edit of the node
		check    func(*testing.T, *corev1.Node)
		writes   int
	}{
		"unchanged": {},
		"changed, added and deleted": {
			template: map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"pool": "db", "tier": "1"}, "annotations": map[string]any{"team": nil}},
				"spec": map[string]any{"taints": []any{
					map[string]any{"key": "only", "value": "web", "effect": "NoExecute"},
				}},
			},
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, map[string]string{"kubernetes.io/os": "linux", "pool": "db", "tier": "1", v1alpha1.LabelMachineName: "m"}, n.Labels)
				assert.NotContains(t, n.Annotations, "team")
				require.Len(t, n.Spec.Taints, 2)
				assert.Equal(t, corev1.Taint{Key: "only", Value: "web", Effect: "NoExecute"}, n.Spec.Taints[1])
			},
			writes: 1,
		},
		"a manual edit is reverted": {
			node: map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"pool": "mine"}, "annotations": map[string]any{"team": nil}},
				"spec": map[string]any{"taints": []any{
					map[string]any{"key": "only", "value": "mine", "effect": "NoSchedule"},
					map[string]any{"key": "only", "value": "mine", "effect": "NoExecute"},
				}},
			},
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, "web", n.Labels["pool"])
				assert.Equal(t, "shop", n.Annotations["team"])
				assert.Equal(t, []corev1.Taint{{Key: "only", Value: "mine", Effect: "NoExecute"}, {Key: "only", Value: "web", Effect: "NoSchedule"}}, n.Spec.Taints,
					"another effect is another taint")
			},
			writes: 1,
		},
		"a foreign key is kept": {
			node: map[string]any{"metadata": map[string]any{"labels": map[string]any{"mine": "1"}}},
			check: func(t *testing.T, n *corev1.Node) {
				assert.Equal(t, "1", n.Labels["mine"])
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
			w := activitiestest.NewWorld(
				t,
				m,
				activitiestest.NewClass(),
				activitiestest.NewNode(activitiestest.WithForeignMetadata),
			)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).SyncNode,
				activitiestest.NewReadInput(m),
			)
			require.NoError(t, err)
			w.EditObject(cache.NodesResource, "n", row.node)
			w.SetNodeTemplate(row.template)
			n := activitiestest.SyncNode(w, activitiestest.NewReadInput(m))
			assert.Len(t, w.MutatingRequests(), row.writes)
			if row.check != nil {
				row.check(t, n)
			}
		})
	}
}

func TestSyncNodeFollowsTheVirtualCapacity(t *testing.T) {
	t.Parallel()
	both := []string{"patch nodes/status", "update nodes"}
	for name, row := range map[string]struct {
		template map[string]any // new virtualCapacity of the class
		dongles  string         // the node's dongles before the next sync
		capacity map[string]string
		writes   []string
	}{
		"unchanged":           {nil, "2", map[string]string{"cpu": "4", dongleResource: "2"}, []string{}},
		"changed":             {map[string]any{"virtualCapacity": map[string]any{dongleResource: "3"}}, "2", map[string]string{"cpu": "4", dongleResource: "3"}, both},
		"added":               {map[string]any{"virtualCapacity": map[string]any{"example.com/key": "1"}}, "2", map[string]string{"cpu": "4", dongleResource: "2", "example.com/key": "1"}, both},
		"deleted":             {map[string]any{"virtualCapacity": nil}, "2", map[string]string{"cpu": "4"}, both},
		"zeroed by a kubelet": {nil, "0", map[string]string{"cpu": "4", dongleResource: "2"}, both[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode)
			w := activitiestest.NewWorld(
				t,
				m,
				activitiestest.NewClass(withVirtualDongleCapacity),
				activitiestest.NewNode(activitiestest.WithForeignMetadata),
			)
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).SyncNode,
				activitiestest.NewReadInput(m),
			)
			require.NoError(t, err)
			n := w.Node()
			n.Status.Capacity[dongleResource] = resource.MustParse(row.dongles)
			_, err = w.TargetClient.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
			require.NoError(t, err)
			w.EditObject(cache.ClassesResource, "small", map[string]any{"nodeTemplate": row.template})
			w.AwaitCaches()
			w.ForgetRequests()
			assert.Equal(t, row.capacity, nodeCapacityTexts(activitiestest.SyncNode(w, activitiestest.NewReadInput(m))))
			assert.Equal(t, row.writes, w.MutatingRequests())
		})
	}
}

func TestSyncNodeWithoutANodeTemplateInTheClass(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.MachineClass){
		"never had one": func(*v1alpha1.MachineClass) {},
		"lost it":       withVirtualDongleCapacity,
	} {
		for way, how := range map[string]func(metav1.Object) kube.ReadInput{"cached": activitiestest.NewReadInput, "live": activitiestest.NewLiveReadInput} {
			t.Run(name+", "+way, func(t *testing.T) {
				m := activitiestest.NewMachine("m", activitiestest.WithNode)
				w := activitiestest.NewWorld(
					t,
					m,
					activitiestest.NewClass(change),
					activitiestest.NewNode(activitiestest.WithForeignMetadata),
				)
				before := nodeCapacityTexts(activitiestest.SyncNode(w, how(m)))
				w.EditObject(cache.ClassesResource, "small", map[string]any{"nodeTemplate": nil})
				w.AwaitCaches()
				w.ForgetRequests()
				assert.Equal(t, before, nodeCapacityTexts(activitiestest.SyncNode(w, how(m))), "the capacity stays as it is")
				assert.Empty(t, w.MutatingRequests())
			})
		}
	}
	t.Run("no class at all", func(t *testing.T) {
		for way, how := range map[string]func(metav1.Object) kube.ReadInput{"cached": activitiestest.NewReadInput, "live": activitiestest.NewLiveReadInput} {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(activitiestest.WithForeignMetadata))
			assert.Equal(t, "web", activitiestest.SyncNode(w, how(m)).Labels["pool"], way)
			assert.Equal(t, []string{"update nodes"}, w.MutatingRequests())
		}
	})
}

func TestSyncNodeAddsCriticalTaintOnce(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate, func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Spec.Taints[0].Key = v1alpha1.TaintCriticalComponentsNotReady
	})
	w := activitiestest.NewWorld(t, m, activitiestest.NewClass(), activitiestest.NewNode())
	require.Len(t, activitiestest.SyncNode(w, activitiestest.NewReadInput(m)).Spec.Taints, 1)
	w.EditObject(cache.NodesResource, "n", map[string]any{"spec": map[string]any{"taints": nil}})
	w.ForgetRequests()
	assert.Empty(
		t,
		activitiestest.SyncNode(w, activitiestest.NewReadInput(m)).Spec.Taints,
		"its components run: it does not come back",
	)
	assert.Empty(t, w.MutatingRequests())
}

func TestSyncNodeSkipsNodesItMustNotWrite(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate)
	leaving := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		withNodeTemplate,
		activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
	)
	early := activitiestest.NewMachine("m", withNodeTemplate)
	for name, row := range map[string]struct {
		in      kube.ReadInput
		objects []runtime.Object
	}{
		"the node is missing":                       {activitiestest.NewReadInput(m), []runtime.Object{m, activitiestest.NewClass(withVirtualDongleCapacity)}},
		"the machine has no node yet":               {activitiestest.NewReadInput(early), []runtime.Object{early, activitiestest.NewClass(), activitiestest.NewNode()}},
		"the machine is gone":                       {activitiestest.NewReadInput(m), []runtime.Object{activitiestest.NewClass(), activitiestest.NewNode()}},
		"another machine has its name":              {kube.ReadInput{Ref: activitiestest.NewFormerObjectRef(m)}, []runtime.Object{m, activitiestest.NewClass(), activitiestest.NewNode()}},
		"the machine is being deleted":              {activitiestest.NewReadInput(leaving), []runtime.Object{leaving, activitiestest.NewClass(), activitiestest.NewNode()}},
		"the machine is being deleted, read live":   {activitiestest.NewLiveReadInput(leaving), []runtime.Object{leaving, activitiestest.NewClass(), activitiestest.NewNode()}},
		"another machine names the node as its own": {activitiestest.NewReadInput(m), []runtime.Object{m, activitiestest.NewMachine("other", activitiestest.WithNode), activitiestest.NewClass(), activitiestest.NewNode()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, row.objects...)
			before := w.Node()
			assert.Equal(t, before, activitiestest.SyncNode(w, row.in))
			assert.Empty(t, w.MutatingRequests())
		})
	}
	t.Run("because there is no target", func(t *testing.T) {
		w := activitiestest.NewWorld(t, m, activitiestest.NewClass())
		var err error
		w.Cluster, err = cache.NewCluster(w.MachineClient, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Cluster.Start(t.Context()))
		for _, in := range []kube.ReadInput{activitiestest.NewReadInput(m), activitiestest.NewLiveReadInput(m)} {
			versions, err := activitiestest.RunActivity[kube.MinVersions](w, newActivities(w.Kube).SyncNode, in)
			require.NoError(t, err)
			assert.Empty(t, versions)
		}
	})
	t.Run("but not because of a machine whose instance is gone", func(t *testing.T) {
		former := activitiestest.NewMachine(
			"former",
			activitiestest.WithNode,
			activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
		)
		former.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionNode}
		w := activitiestest.NewWorld(
			t,
			m,
			former,
			activitiestest.NewClass(),
			activitiestest.NewNode(func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelMachineName: "former"} }),
		)
		assert.Equal(t, "m", activitiestest.SyncNode(w, activitiestest.NewReadInput(m)).Labels[v1alpha1.LabelMachineName])
	})
	t.Run("and puts no finalizer on a node that is being deleted", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			m,
			activitiestest.NewClass(),
			activitiestest.NewNode(activitiestest.WithForeignMetadata, activitiestest.WithDeletionTimestamp[*corev1.Node]),
		)
		assert.Equal(
			t,
			[]string{activitiestest.BackupFinalizer},
			activitiestest.SyncNode(w, activitiestest.NewReadInput(m)).Finalizers,
		)
	})
}

// While a node joins, its kubelet, the taint controllers and a cloud controller manager write the node within the same
// second.
func TestSyncNodeWritesNewNodeOnce(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		withNodeTemplate,
		func(m *v1alpha1.Machine) { m.Spec.NodeTemplateSpec.Spec.Taints = nil },
	)
	lived := func(n *corev1.Node) { n.UID = "uid-n" }
	t.Run("although the node has changed since", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			m,
			activitiestest.NewClass(),
			activitiestest.NewNode(activitiestest.WithForeignMetadata, lived),
		)
		release := w.HoldEvents()
		w.EditObject(cache.NodesResource, "n", map[string]any{
			"metadata": map[string]any{
				"labels":     map[string]any{"theirs": "1"},
				"finalizers": []any{activitiestest.BackupFinalizer, "theirs/late"},
			},
			"spec": map[string]any{"taints": []any{map[string]any{"key": "theirs", "effect": "NoSchedule"}}},
		})
		w.ForgetRequests()
		versions, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).SyncNode,
			activitiestest.NewReadInput(m),
		)
		require.NoError(t, err)
		n := w.Node()
		assert.Equal(t, kube.MinVersions{cache.NodesResource: n.ResourceVersion}, versions)
		assert.Equal(t, []string{"patch nodes"}, w.Requests(), "it reads nothing live")
		assert.Equal(
			t,
			map[string]string{"kubernetes.io/os": "linux", "theirs": "1", "pool": "web", v1alpha1.LabelMachineName: "m"},
			n.Labels,
		)
		assert.ElementsMatch(t, []string{activitiestest.BackupFinalizer, "theirs/late", v1alpha1.FinalizerNode}, n.Finalizers)
		assert.Equal(t, []corev1.Taint{{Key: "theirs", Effect: "NoSchedule"}}, n.Spec.Taints)
		assert.NotContains(t, n.Annotations, v1alpha1.AnnotationNotManaged)
		assert.Equal(t, "shop", n.Annotations["team"])
		release()
		w.AwaitCaches()
		w.ForgetRequests()
		activitiestest.SyncNode(w, activitiestest.NewReadInput(m))
		assert.Empty(t, w.MutatingRequests(), "nothing is missing afterwards")
	})
	t.Run("but not of a node that is being deleted meanwhile", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			m,
			activitiestest.NewClass(),
			activitiestest.NewNode(activitiestest.WithForeignMetadata, lived),
		)
		defer w.HoldEvents()()
		require.NoError(t, w.TargetClient.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}))
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).SyncNode,
			activitiestest.NewReadInput(m),
		)
		require.NoError(t, err)
		assert.Equal(t, []string{activitiestest.BackupFinalizer}, w.Node().Finalizers)
		assert.Equal(t, "web", w.Node().Labels["pool"])
	})
	t.Run("nor of another node of that name", func(t *testing.T) {
		w := activitiestest.NewWorld(
			t,
			m,
			activitiestest.NewClass(),
			activitiestest.NewNode(activitiestest.WithForeignMetadata, lived),
		)
		defer w.HoldEvents()()
		nodes := corev1.SchemeGroupVersion.WithResource("nodes")
		require.NoError(t, w.TargetClient.Tracker().Delete(nodes, "", "n"))
		require.NoError(t, w.TargetClient.Tracker().Create(nodes, activitiestest.NewNode(func(n *corev1.Node) {
			n.UID, n.Labels = "uid-new", map[string]string{v1alpha1.LabelMachineName: "m", "pool": "web"}
			n.Finalizers = []string{v1alpha1.FinalizerNode}
		}), ""))
		before := w.Node()
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).SyncNode,
			activitiestest.NewReadInput(m),
		)
		require.NoError(t, err)
		assert.Equal(t, before.Finalizers, w.Node().Finalizers)
		assert.Equal(t, "uid-new", string(w.Node().UID))
	})
}

func TestNewNodeDuringRolloutGetsScaleDownDisabledAnnotation(t *testing.T) {
	t.Parallel()
	const key = v1alpha1.AnnotationScaleDownDisabled
	for name, row := range map[string]struct {
		rolled   types.UID // UID of the deployment whose rollout is named in the status
		node     string    // the node's own annotation
		template string    // the node template's annotation
		off      bool      // rollouts are configured not to annotate nodes for the autoscaler
		want     string
		ours     bool
	}{
		"a rollout is under way":            {rolled: "uid-d", want: "true", ours: true},
		"none is":                           {},
		"the status is that of another one": {rolled: "uid-former"},
		"somebody else has said so":         {rolled: "uid-d", node: "false", want: "false"},
		"the template says so":              {rolled: "uid-d", template: "true", want: "true"},
		"rollouts keep it off no node":      {rolled: "uid-d", off: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := activitiestest.NewDeployment("d", 1, func(d *v1alpha1.MachineDeployment) {
				d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "rollout", RolloutOf: row.rolled}
			})
			s := activitiestest.NewMachineSet("s", 1, activitiestest.WithOwner[*v1alpha1.MachineSet](d))
			m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithOwner[*v1alpha1.Machine](s))
			if row.template != "" {
				m.Spec.NodeTemplateSpec.Annotations = map[string]string{key: row.template}
			}
			w := activitiestest.NewWorld(t, d, s, m, activitiestest.NewClass(), activitiestest.NewNode(func(n *corev1.Node) {
				if row.node != "" {
					n.Annotations = map[string]string{key: row.node}
				}
			}))
			w.Cluster.WithoutAutoscalerGuard = row.off
			n := activitiestest.SyncNode(w, activitiestest.NewReadInput(m))
			assert.Equal(t, []string{"patch nodes"}, w.MutatingRequests())
			assert.Equal(t, row.want, n.Annotations[key])
			assert.Equal(t, row.ours, n.Annotations[v1alpha1.AnnotationScaleDownDisabledByMCM] != "")
		})
	}
}

// A person has removed the finalizers of a machine and its node; the worker's cache still shows the finalizers.
func TestSyncNodeAddsNoFinalizerIfMachineIsGone(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"before the node is read": false, "before the node is read again": true} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithNode, withNodeTemplate, activitiestest.WithoutFinalizers)
			w := activitiestest.NewWorld(t, m, activitiestest.NewClass(), activitiestest.NewNode(func(n *corev1.Node) {
				n.Labels = map[string]string{v1alpha1.LabelMachineName: "m"} // the node had Millwright's finalizer
			}))
			w.HoldEvents()
			force := func() {
				assert.NoError(
					t,
					w.MachineClient.MachineV1alpha1().Machines(m.Namespace).Delete(t.Context(), m.Name, metav1.DeleteOptions{}),
				)
			}
			if again {
				conflict := apierrors.NewConflict(corev1.Resource("nodes"), "n", nil)
				w.FailWrites(activitiestest.WriteKind{Verb: "update", Resource: "nodes"}, 1, conflict, force)
			} else {
				force()
			}
			_, err := activitiestest.RunActivity[kube.MinVersions](
				w,
				newActivities(w.Kube).SyncNode,
				activitiestest.NewReadInput(m),
			)
			require.NoError(t, err)
			assert.NotContains(t, w.Node().Finalizers, v1alpha1.FinalizerNode)
		})
	}
}
