package replace

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/capi/capitest"
	"millwright/starter/clitest"
)

func newSet(replicas int32) *v1alpha1.MachineSet {
	return &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-7f", UID: "u-set"},
		Spec:       v1alpha1.MachineSetSpec{Replicas: replicas},
	}
}

func newMachine(name string, edits ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: "u-1",
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(newSet(0), v1alpha1.SchemeGroupVersion.WithKind("MachineSet")),
		},
		Labels:      map[string]string{v1alpha1.LabelNode: "node-" + name},
		Annotations: map[string]string{},
	}}
	m.Spec.ProviderID = "virtual:///i-1"
	m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	for _, edit := range edits {
		edit(m)
	}
	return m
}

// backend has the fakes of a test.
type backend struct {
	*clitest.FakeBackend
	core *kubefake.Clientset
}

func newBackend(objects ...runtime.Object) backend {
	w := backend{clitest.NewFakeBackend(objects...), kubefake.NewClientset()}
	w.ClusterClient = w.core
	return w
}

func (w backend) run(ctx context.Context, args ...string) (string, error) {
	return w.Run(ctx, Command(w.Environment()), args...)
}

// deletions returns the deletions that were sent to a fake clientset.
func deletions(actions []clienttesting.Action) (found []clienttesting.DeleteActionImpl) {
	for _, a := range actions {
		if d, is := a.(clienttesting.DeleteActionImpl); is {
			found = append(found, d)
		}
	}
	return found
}

func TestReplaceDeletesTheMachineThatItRead(t *testing.T) {
	t.Setenv("USER", "ann")
	w := newBackend(newMachine("web-1"), newMachine("web-2"), newSet(2))
	out, err := w.run(t.Context(), "mc", "web-1", "-n", "shop", "--reason", "slow\n disk")
	require.NoError(t, err)
	assert.Equal(
		t,
		`The pods of node node-web-1 of machine shop/web-1 are evicted for at most 2h, then deleted, and its instance virtual:///i-1 is deleted.
Its set web-7f, which wants 2 machines, makes a new one from its template.
machine shop/web-1: deletion requested
To follow it: millwright drain watch shop/web-1
To see the new machine: millwright explain machineset/shop/web-7f
`,
		out,
	)
	sent := deletions(w.MachineClient.Actions())
	require.Len(t, sent, 1)
	assert.Equal(t, "web-1", sent[0].Name)
	assert.Equal(t, "u-1", string(*sent[0].DeleteOptions.Preconditions.UID))
	assert.Empty(t, sent[0].DeleteOptions.DryRun)
	events, err := w.core.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, events.Items, 1)
	assert.Equal(t, "ann requested replace: slow disk", events.Items[0].Message)
	assert.Equal(t, corev1.ObjectReference{
		APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "Machine", Namespace: "shop", Name: "web-1", UID: "u-1",
	}, events.Items[0].InvolvedObject)
}

func TestReplaceInADryRunDeletesNothing(t *testing.T) {
	w := newBackend(newMachine("web-1"), newSet(1))
	out, err := w.run(t.Context(), "shop/web-1", "--dry-run")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"makes a new one from its template.\nDry run: the API server accepts the deletion, and nothing was deleted.\n",
	)
	sent := deletions(w.MachineClient.Actions())
	require.Len(t, sent, 1)
	assert.Equal(t, []string{metav1.DryRunAll}, sent[0].DeleteOptions.DryRun)
	assert.Empty(t, w.core.Actions(), "no event")
}

func TestReplaceRefusals(t *testing.T) {
	ago := metav1.NewTime(clitest.Now.Add(-time.Minute))
	until := metav1.NewTime(clitest.Now.Add(time.Hour))
	for want, m := range map[string]*v1alpha1.Machine{
		"machine shop/web-1 is being deleted already, since 14:05:07 UTC: `millwright drain watch shop/web-1`":                                           newMachine("web-1", func(m *v1alpha1.Machine) { m.DeletionTimestamp = &ago }),
		"machine shop/web-1 is preserved until 15:06:07 UTC (in 1h): somebody wants to look at it. To end that: `millwright preserve shop/web-1 --stop`": newMachine("web-1", func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = &until }),
		"machine shop/web-1 is preserved: somebody wants to look at it. To end that: `millwright preserve shop/web-1 --stop`":                            newMachine("web-1", func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationPreserve] = "now" }),
		"no MachineSet controls machine shop/web-1, so nothing replaces it: to delete it nevertheless, give --without-set":                               newMachine("web-1", func(m *v1alpha1.Machine) { m.OwnerReferences = nil }),
		"machine shop/web-1 belongs to KubeadmControlPlane cp, and no MachineSet replaces it: to delete it nevertheless, give --without-set": newMachine("web-1", func(m *v1alpha1.Machine) {
			m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = "KubeadmControlPlane", "cp"
		}),
		"machine shop/web-1 belongs to MachineSet web-7f, and no MachineSet replaces it: to delete it nevertheless, give --without-set": newMachine("web-1", func(m *v1alpha1.Machine) { m.OwnerReferences[0].APIVersion = "other.io/v1" }),
	} {
		w := newBackend(m, newSet(1))
		_, err := w.run(t.Context(), "shop/web-1")
		require.EqualError(t, err, want)
		assert.Empty(t, deletions(w.MachineClient.Actions()), want)
	}
	_, err := newBackend(newMachine("web-1")).run(t.Context(), "shop/wbe-1")
	require.ErrorContains(t, err, "there is no machine shop/wbe-1; did you mean web-1?")
}

func TestReplaceWithoutASetIsStated(t *testing.T) {
	w := newBackend(newMachine("web-1", func(m *v1alpha1.Machine) { m.OwnerReferences, m.Labels = nil, nil }))
	out, err := w.run(t.Context(), "shop/web-1", "--without-set")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"Machine shop/web-1 has no node, so nothing is drained, and its instance virtual:///i-1 is deleted.\nNothing makes a new machine.\n",
	)
	assert.NotContains(t, out, "To see the new machine")
	assert.Len(t, deletions(w.MachineClient.Actions()), 1)
}

func TestReplaceSaysWhenNoMachineFollows(t *testing.T) {
	edited := func(replicas int32, edit func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
		set := newSet(replicas)
		edit(set)
		return set
	}
	for want, set := range map[string]*v1alpha1.MachineSet{
		"Its set web-7f makes no new machine: it wants 1, and has 1 without this one.":  newSet(1),
		"Its set web-7f makes no new machine now: it is frozen.":                        edited(2, func(s *v1alpha1.MachineSet) { s.Labels = map[string]string{v1alpha1.LabelFreeze: "True"} }),
		"Its set web-7f makes no new machine now: it is paused.":                        edited(2, func(s *v1alpha1.MachineSet) { s.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} }),
		"Its set web-7f makes no new machine now: it is being deleted.":                 edited(2, func(s *v1alpha1.MachineSet) { s.DeletionTimestamp = new(metav1.NewTime(clitest.Now)) }),
		"Its set web-7f makes no new machine now: a rollout has disabled its scale-up.": edited(2, func(s *v1alpha1.MachineSet) { s.Labels = map[string]string{v1alpha1.LabelScaleUpDisabled: "true"} }),
	} {
		gone := newMachine("web-3", func(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(clitest.Now)) })
		w := newBackend(newMachine("web-1"), newMachine("web-2"), gone, set)
		out, err := w.run(t.Context(), "shop/web-1", "--dry-run")
		require.NoError(t, err)
		assert.Contains(t, out, want)
	}
	out, err := newBackend(newMachine("web-1")).run(t.Context(), "shop/web-1", "--dry-run")
	require.NoError(t, err)
	assert.Contains(t, out, "the set cannot be read (machinesets.machine.sapcloud.io \"web-7f\" not found)")
	held := newMachine("web-1", func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationHold] = "bob: looking" })
	out, err = newBackend(held, newSet(1)).run(t.Context(), "shop/web-1", "--dry-run")
	require.NoError(t, err)
	assert.Contains(t, out, "The deletion is held, and waits: millwright drain resume shop/web-1.\n")
}

func TestReplaceReportsRefusedDeletions(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "machines"}
	for want, refused := range map[string]error{
		"machine shop/web-1 is gone meanwhile: nothing was deleted":                                     apierrors.NewNotFound(resource, "web-1"),
		"machine shop/web-1 was replaced by another one of that name meanwhile: nothing was deleted":    apierrors.NewConflict(resource, "web-1", errors.New("UID")),
		`delete machine shop/web-1: machines.machine.sapcloud.io "web-1" is forbidden: not an operator`: apierrors.NewForbidden(resource, "web-1", errors.New("not an operator")),
	} {
		w := newBackend(newMachine("web-1"), newSet(1))
		w.MachineClient.PrependReactor("delete", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, refused
		})
		_, err := w.run(t.Context(), "shop/web-1")
		require.EqualError(t, err, want)
		assert.Empty(t, w.core.Actions(), "no event")
	}
	w := newBackend(newMachine("web-1"), newSet(1))
	w.core.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	_, err := w.run(t.Context(), "shop/web-1")
	require.EqualError(
		t,
		err,
		"the machine is being deleted, but the event with actor and reason was not created: forbidden",
	)
}

func TestReplaceDeletesMachinesOfClusterAPI(t *testing.T) {
	set := capitest.NewSet("s", 1)
	for name, row := range map[string]struct {
		machine *clusterv1.Machine
		args    []string
		says    string
	}{
		"drained by Cluster API": {
			capitest.NewMachine("m-1", set),
			[]string{"shop/m-1"},
			"Cluster API drains node node-m-1 of machine shop/m-1, within its nodeDrainTimeoutSeconds, and its instance is deleted.\nIts set s, which wants 1 machine, makes a new one from its template.\n",
		},
		"drained by Millwright": {
			capitest.NewMachine("m-1", set, capitest.WithDrainHook),
			[]string{"machine.cluster.x-k8s.io", "shop/m-1"},
			"The pods of node node-m-1 of machine shop/m-1 are evicted, without a deadline, and its instance is deleted.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBackend()
			w.ClusterAPI = capitest.NewFakeServer(row.machine, set)
			out, err := w.run(t.Context(), row.args...)
			require.NoError(t, err)
			assert.Contains(t, out, row.says)
			assert.Contains(t, out, "To see the new machine: millwright explain machineset.cluster.x-k8s.io/shop/s\n")
			sent := deletions(w.ClusterAPI.Clientset.Actions())
			require.Len(t, sent, 1)
			assert.Equal(t, row.machine.UID, *sent[0].DeleteOptions.Preconditions.UID)
			events, err := w.core.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, events.Items, 1)
			assert.Equal(t, "cluster.x-k8s.io/v1beta2", events.Items[0].InvolvedObject.APIVersion)
		})
	}
	w := newBackend()
	w.ClusterAPI = capitest.NewFakeServer()
	_, err := w.run(t.Context(), "machine.cluster.x-k8s.io/shop/m-1")
	require.ErrorContains(t, err, "there is no machine shop/m-1")
	_, err = w.run(t.Context(), "shop/m-1")
	require.ErrorContains(t, err, "there is no machine shop/m-1")
	w = newBackend(newMachine("m-1"), newSet(1))
	w.ClusterAPI = capitest.NewFakeServer(capitest.NewMachine("m-1", set), set)
	_, err = w.run(t.Context(), "machine.cluster.x-k8s.io/shop/m-1", "--dry-run")
	require.NoError(t, err)
	assert.Empty(t, deletions(w.MachineClient.Actions()), "the user named the other API group")
}
