package migrate

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fakediscovery "k8s.io/client-go/discovery/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/starter/clitest"
	"millwright/starter/printers"
)

var updateGolden = flag.Bool("update", false, "rewrite what the commands print in testdata")

// readRecordedObjects returns the objects that a released machine-controller-manager left on the local stack, recorded
// by test/integration/takeover -record.
func readRecordedObjects(t *testing.T) (machines, nodes []runtime.Object) {
	t.Helper()
	type list struct {
		Items []json.RawMessage `json:"items"`
	}
	read := func(file string) (l list) {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &l))
		require.NotEmpty(t, l.Items)
		return l
	}
	for _, item := range read("objects.json").Items {
		var kind metav1.TypeMeta
		require.NoError(t, json.Unmarshal(item, &kind))
		object, known := map[string]runtime.Object{
			"MachineClass": &v1alpha1.MachineClass{}, "MachineDeployment": &v1alpha1.MachineDeployment{},
			"MachineSet": &v1alpha1.MachineSet{}, "Machine": &v1alpha1.Machine{},
		}[kind.Kind]
		require.True(t, known, kind.Kind)
		require.NoError(t, json.Unmarshal(item, object))
		machines = append(machines, object)
	}
	for _, item := range read("nodes.json").Items {
		node := &corev1.Node{}
		require.NoError(t, json.Unmarshal(item, node))
		nodes = append(nodes, node)
	}
	return machines, nodes
}

// timeAfterRecording returns a time after the recording: one minute after the creation of the youngest machine.
func timeAfterRecording(objects []runtime.Object) (at time.Time) {
	for _, o := range objects {
		if m, is := o.(*v1alpha1.Machine); is && m.CreationTimestamp.After(at) {
			at = m.CreationTimestamp.Time
		}
	}
	return at.Add(time.Minute)
}

// newFakeBackend returns a cluster with these objects. The API server serves Millwright's CRDs if ours is true,
// otherwise MCM's CRDs.
func newFakeBackend(t *testing.T, ours bool, machines, others []runtime.Object) *clitest.FakeBackend {
	t.Helper()
	w := clitest.NewFakeBackend(machines...)
	w.ClusterClient = kubefake.NewClientset(others...)
	kinds := []string{"machines", "machinesets", "machinedeployments", "machineclasses"}
	if ours {
		kinds = append(kinds, "machinedrainrules", "rolloutpolicies")
	}
	api := &metav1.APIResourceList{GroupVersion: v1alpha1.SchemeGroupVersion.String()}
	for _, kind := range kinds {
		api.APIResources = append(api.APIResources, metav1.APIResource{Name: kind})
	}
	discovery, is := w.MachineClient.Discovery().(*fakediscovery.FakeDiscovery)
	require.True(t, is)
	discovery.Resources = []*metav1.APIResourceList{api}
	return w
}

// runMigrateAtTime runs a subcommand of migrate with the clock at this time.
func runMigrateAtTime(t *testing.T, w *clitest.FakeBackend, at time.Time, args ...string) (string, error) {
	t.Helper()
	e := w.Environment()
	e.Now = func() time.Time { return at }
	return w.Run(t.Context(), Command(e), args...)
}

func TestCheckAndPlanWithRecordedMCMObjects(t *testing.T) {
	machines, nodes := readRecordedObjects(t)
	at := timeAfterRecording(machines)
	for file, args := range map[string][]string{
		"check.txt": {"check", "-n", "shoot", "--as-mcm"}, "check-plain.txt": {"check", "-n", "shoot"}, "plan.txt": {"plan", "-n", "shoot", "--as-mcm"},
	} {
		w := newFakeBackend(t, true, machines, nodes)
		out, err := runMigrateAtTime(t, w, at, args...)
		require.NoError(t, err, "nothing is in the way")
		path := filepath.Join("testdata", file)
		if *updateGolden {
			require.NoError(t, os.WriteFile(path, []byte(out), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), out, file)
		for _, action := range w.MachineClient.Actions() {
			create, creates := action.(clienttesting.CreateActionImpl)
			assert.True(
				t,
				slices.Contains([]string{"get", "list"}, action.GetVerb()) ||
					creates && slices.Contains(create.GetCreateOptions().DryRun, metav1.DryRunAll),
				"it changes nothing: %v",
				action,
			)
		}
	}
}

// findRunningMachine returns a recorded machine in phase Running, and its node.
func findRunningMachine(t *testing.T, machines, nodes []runtime.Object) (*v1alpha1.Machine, *corev1.Node) {
	t.Helper()
	for _, o := range machines {
		m, is := o.(*v1alpha1.Machine)
		if !is || m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			continue
		}
		for _, n := range nodes {
			if node, is := n.(*corev1.Node); is && node.Name == m.Labels[v1alpha1.LabelNode] {
				return m, node
			}
		}
	}
	require.Fail(t, "no machine runs")
	return nil, nil
}

func TestCheckReportsBlockers(t *testing.T) {
	for name, row := range map[string]struct {
		change func(m *v1alpha1.Machine, n *corev1.Node)
		others func(at time.Time) []runtime.Object
		theirs bool // the CRDs are MCM's
		says   string
	}{
		"MCM renews its Lease": {others: func(at time.Time) []runtime.Object {
			return []runtime.Object{&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "machine-controller"},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("pod-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(at.Add(-time.Second)))},
			}}
		}, says: "first   machine-controller-manager: it is at work: pod-1 renewed Lease machine-controller at "},
		"a Deployment would start MCM": {others: func(time.Time) []runtime.Object {
			return []runtime.Object{&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "machine-controller-manager"}}}
		}, says: "first   machine-controller-manager: Deployment machine-controller-manager has 1 replica\n"},
		"the CRDs are MCM's": {theirs: true, says: "first   CRDs: the API server has no machinedrainrules, rolloutpolicies\n"},
		"the node is of another instance": {
			change: func(_ *v1alpha1.Machine, n *corev1.Node) { n.Spec.ProviderID = "virtual:///eu/i-99" },
			says:   "belongs to instance virtual:///eu/i-99, and the machine names ",
		},
		"another machine names the instance": {
			change: func(m *v1alpha1.Machine, _ *corev1.Node) { m.Name = "twin" }, says: "name the same instance ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			machines, nodes := readRecordedObjects(t)
			at := timeAfterRecording(machines)
			if row.change != nil {
				m, n := findRunningMachine(t, machines, nodes)
				twin := m.DeepCopy()
				if row.change(twin, n); twin.Name != m.Name {
					machines = append(machines, twin)
				}
			}
			if row.others != nil {
				nodes = append(nodes, row.others(at)...)
			}
			out, err := runMigrateAtTime(
				t,
				newFakeBackend(t, !row.theirs, machines, nodes),
				at,
				"check",
				"-n",
				"shoot",
				"--as-mcm",
			)
			require.ErrorContains(t, err, " to be done first")
			assert.Contains(t, out, row.says)
			assert.True(t, strings.HasPrefix(out, "first "), "it comes first")
		})
	}
	t.Run("the Deployment is the one that answers the autoscaler", func(t *testing.T) {
		machines, nodes := readRecordedObjects(t)
		guard := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shoot",
			Name:      "machine-controller-manager",
			Labels:    map[string]string{"app.kubernetes.io/part-of": "millwright"},
		}}
		_, err := runMigrateAtTime(
			t,
			newFakeBackend(t, true, machines, append(nodes, guard)),
			timeAfterRecording(machines),
			"check",
			"-n",
			"shoot",
		)
		require.NoError(t, err)
	})
	t.Run("the API server takes no machine of a template", func(t *testing.T) {
		machines, nodes := readRecordedObjects(t)
		w := newFakeBackend(t, true, machines, nodes)
		w.MachineClient.PrependReactor("create", "machines", func(action clienttesting.Action) (bool, runtime.Object, error) {
			m := action.(clienttesting.CreateAction).GetObject().(*v1alpha1.Machine)
			if !strings.HasPrefix(m.Name, "calm-") {
				return false, nil, nil
			}
			kind := schema.GroupKind{Group: v1alpha1.GroupName, Kind: "Machine"}
			return true, nil, apierrors.NewInvalid(
				kind,
				m.Name,
				field.ErrorList{field.Invalid(field.NewPath("spec", "drainTimeout"), "-1s", "must not be negative")},
			)
		})
		out, err := runMigrateAtTime(t, w, timeAfterRecording(machines), "check", "-n", "shoot", "--as-mcm")
		require.EqualError(t, err, "1 thing has to be done first")
		assert.Contains(
			t,
			out,
			`first   machinedeployment/calm: the API server takes no machine of its template: Machine.machine.sapcloud.io "calm-check" is invalid: spec.drainTimeout: Invalid value: "-1s": must not be negative`+"\n",
		)
	})
	t.Run("a class uses a Secret of another namespace", func(t *testing.T) {
		machines, nodes := readRecordedObjects(t)
		for _, o := range machines {
			if c, is := o.(*v1alpha1.MachineClass); is {
				c.SecretRef = &corev1.SecretReference{Namespace: "credentials", Name: "account"}
			}
		}
		const key = "machine.sapcloud.io/allowed-class-namespaces"
		account := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "credentials", Name: "account"}}
		out, err := runMigrateAtTime(
			t,
			newFakeBackend(t, true, machines, append(nodes, account)),
			timeAfterRecording(machines),
			"check",
			"-n",
			"shoot",
		)
		require.ErrorContains(t, err, " to be done first")
		assert.Contains(t, out, "it uses Secret credentials/account of another namespace, which does not allow that: ")
		assert.Contains(t, out, "kubectl annotate secret --namespace credentials account --overwrite '"+key+"=shoot'")

		account.Annotations = map[string]string{key: "shoot"}
		out, err = runMigrateAtTime(
			t,
			newFakeBackend(t, true, machines, append(nodes, account)),
			timeAfterRecording(machines),
			"check",
			"-n",
			"shoot",
		)
		require.NoError(t, err)
		assert.NotContains(t, out, "credentials/account")

		out, err = runMigrateAtTime(
			t,
			newFakeBackend(t, true, machines, nodes),
			timeAfterRecording(machines),
			"check",
			"-n",
			"shoot",
		)
		require.NoError(t, err, "it is not known")
		assert.Contains(t, out, `which cannot be read: secrets "account" not found; without the annotation `+key)
	})
	t.Run("another namespace has Machines", func(t *testing.T) {
		machines, nodes := readRecordedObjects(t)
		elsewhere := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "bakery", Name: "m"}}
		at := timeAfterRecording(machines)
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bakery", Name: "machine-controller"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("pod-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(at)),
			},
		}
		w := newFakeBackend(t, true, append(machines, elsewhere), append(nodes, lease))
		out, err := runMigrateAtTime(t, w, at, "check", "-n", "shoot")
		require.EqualError(t, err, "1 thing has to be done first")
		assert.Contains(
			t,
			out,
			"first   namespace/bakery: Millwright acts on its 1 Machine, too, with the same target cluster, "+
				"while machine-controller-manager is at work there\n",
		)
		assert.Contains(t, out, "--namespaces=shoot")
		for _, flag := range []string{"--namespaces=shoot", "--except-namespaces=bakery"} {
			out, err = runMigrateAtTime(t, w, at, "check", "-n", "shoot", flag)
			require.NoError(t, err)
			assert.NotContains(t, out, "bakery", flag)
		}
		_, err = runMigrateAtTime(t, w, at, "check", "-n", "shoot", "--namespaces=shoot--*")
		require.ErrorContains(t, err, "is no name of a namespace")
	})
	t.Run("Leases may not be read", func(t *testing.T) {
		machines, nodes := readRecordedObjects(t)
		w := newFakeBackend(t, true, machines, nodes)
		w.ClusterClient.(*kubefake.Clientset).PrependReactor(
			"get",
			"leases",
			func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "machine-controller", nil)
			},
		)
		out, err := runMigrateAtTime(t, w, timeAfterRecording(machines), "check", "-n", "shoot")
		require.ErrorContains(t, err, "2 things have to be done first")
		assert.Contains(t, out, "first   rights: leases ")
	})
}

func TestOutputFormats(t *testing.T) {
	machines, nodes := readRecordedObjects(t)
	at := timeAfterRecording(machines)
	out, err := runMigrateAtTime(t, newFakeBackend(t, true, machines, nodes), at, "check", "-n", "shoot", "-o", "json")
	require.NoError(t, err)
	var list struct {
		Items []struct{ Weight, Object, Says, Do string } `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.NotEmpty(t, list.Items)
	assert.Equal(t, "note", list.Items[0].Weight)
	out, err = runMigrateAtTime(
		t,
		newFakeBackend(t, true, machines, nodes),
		at,
		"check",
		"-n",
		"shoot",
		"-o",
		string(printers.OutputName),
	)
	require.NoError(t, err)
	assert.Equal(t, len(list.Items), strings.Count(out, "\n"))
	out, err = runMigrateAtTime(t, newFakeBackend(t, true, machines, nodes), at, "plan", "-n", "shoot", "-o", "yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "takeover:\n- commands:\n")
	_, err = runMigrateAtTime(t, newFakeBackend(t, true, machines, nodes), at, "plan", "-n", "shoot", "-o", "wide")
	require.ErrorContains(t, err, `"wide" is no format of a plan`)
}

// newFleetBackend returns a backend with the recorded namespace shoot, whose machines join no cluster, and the
// namespace bakery, in which MCM is at work and whose target is not known.
func newFleetBackend(t *testing.T) (w *clitest.FakeBackend, at time.Time) {
	t.Helper()
	machines, others := readRecordedObjects(t)
	at = timeAfterRecording(machines)
	elsewhere := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "bakery", Name: "m"}}
	others = append(others, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "target"},
		Data:       map[string][]byte{"kubeconfig": []byte("none")},
	})
	return newFakeBackend(t, true, append(machines, elsewhere), others), at
}

func TestCheckAllNamespaces(t *testing.T) {
	w, at := newFleetBackend(t)
	out, err := runMigrateAtTime(t, w, at, "check", "--all-namespaces", "--target-secret=target")
	require.EqualError(t, err, "1 of 2 namespaces cannot be taken over yet")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	assert.Regexp(
		t,
		`^bakery +no .* rights: the target cluster of namespace bakery is not known: Secret bakery/target `,
		lines[1],
	)
	assert.Regexp(t, `^shoot +yes `, lines[2])

	out, err = runMigrateAtTime(t, w, at, "check", "-A", "--target-secret=target", "--namespaces=shoot", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"namespace": "shoot"`)
	assert.NotContains(t, out, "bakery")
	_, err = runMigrateAtTime(t, w, at, "check", "-A", "--target-secret=target", "--target-kubeconfig=none")
	assert.ErrorContains(t, err, "set only one of the two")
}

func TestPlanOfAllNamespacesHasWaves(t *testing.T) {
	w, at := newFleetBackend(t)
	out, err := runMigrateAtTime(t, w, at, "plan", "-A", "--target-secret=target", "--as-mcm")
	require.NoError(t, err)
	assert.Contains(
		t,
		out,
		"2. Correct what is in the way in 1 namespace, which no wave contains\n   - bakery: rights: the target",
	)
	assert.Contains(t, out, "3. Wave 1: 1 namespace with ")
	assert.Contains(t, out, "millwright migrate check --all-namespaces --namespaces shoot --as-mcm ")
	assert.Contains(t, out, "kubectl label namespace NAMESPACE millwright-\n")
}
