// Tier: test for one case of each kind of failure; test-all for the other cases.

//go:build integration

// Package life tests the life of a machine before its deletion. The machine joins in time or fails at its timeout, and
// an unhealthy machine recovers or is replaced. An error that blocks the machine is reported, and the machine recovers
// without help. The package runs alone on its stack, because the breaker counts every node of the cluster.
package life

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	os.Exit(rig.MainOnSharedStack(m, func(up *rig.Rig) { testRig = up }))
}

const smallProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small"}`

// newPool creates a namespace and a pool with the same name. The parameter template is JSON that is merged into the
// spec of the machines.
func newPool(t *testing.T, name, providerSpec string, replicas int32, template string) *rig.Pool {
	t.Helper()
	testRig.CreateNamespace(t, name, providerSpec)
	p := testRig.CreatePool(t, name, name, replicas, func(d *v1alpha1.MachineDeployment) {
		if template != "" {
			require.NoError(t, json.Unmarshal([]byte(template), &d.Spec.Template.Spec))
		}
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = testRig.MachineClient.MachineV1alpha1().MachineDeployments(name).Delete(ctx, name, metav1.DeleteOptions{})
	})
	return p
}

var cloudBehaviourMutex sync.Mutex

// changeCloudBehaviour changes the behaviour of the cloud. A mutex orders the changes of parallel tests.
func changeCloudBehaviour(t *testing.T, change func(*admin.Behaviour)) {
	t.Helper()
	cloudBehaviourMutex.Lock()
	defer cloudBehaviourMutex.Unlock()
	require.NoError(t, testRig.Cloud.ChangeBehaviour(context.WithoutCancel(t.Context()), change))
}

// setNodeNotReady makes the kubelet of a node report that the node is not ready, or ready again.
func setNodeNotReady(t *testing.T, node string, sick bool) {
	t.Helper()
	setNodesNotReady(t, sick, node)
}

// setNodesNotReady changes several nodes like setNodeNotReady, but in one request, so that the nodes change at the same
// time.
func setNodesNotReady(t *testing.T, sick bool, nodes ...string) {
	t.Helper()
	change := "node-not-ready.stage.kwok.x-k8s.io-"
	if sick {
		change = "node-not-ready.stage.kwok.x-k8s.io=true"
	}
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		slices.Concat([]string{"label", "--overwrite", "node"}, nodes, []string{change})...)
	require.NoError(t, err)
}

func readMachine(t *testing.T, p *rig.Pool, name string) *v1alpha1.Machine {
	t.Helper()
	for _, m := range p.Machines(t) {
		if m.Name == name {
			return &m
		}
	}
	return nil
}

func machineNames(p *rig.Pool, t *testing.T) []string {
	t.Helper()
	var list []string
	for _, m := range p.Machines(t) {
		list = append(list, m.Name)
	}
	slices.Sort(list)
	return list
}

// awaitEvent waits for an event about a machine with this reason.
func awaitEvent(t *testing.T, namespace, name, reason string) corev1.Event {
	t.Helper()
	var found corev1.Event
	rig.Eventually(t, "event "+reason+" of "+name, func() (bool, any) {
		events, err := testRig.Kube.CoreV1().
			Events(namespace).
			List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		require.NoError(t, err)
		var reasons []string
		for _, e := range events.Items {
			reasons = append(reasons, e.Reason)
			if e.Reason == reason {
				found = e
				return true, nil
			}
		}
		return false, reasons
	})
	return found
}

func TestMachineThatNeverJoinsFailsOnTime(t *testing.T) {
	t.Parallel()
	// TestMachineThatNeverJoinsFailsAtItsDeadline of workflows/machine proves that a machine does not fail too late.
	const timeout = 15 * time.Second
	p := newPool(
		t,
		"nojoin",
		`{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`,
		3,
		`{"creationTimeout":"15s"}`,
	)
	failed := map[string]time.Duration{}
	most := 0
	rig.Eventually(t, "three machines have failed", func() (bool, any) {
		going := 0
		for _, m := range p.Machines(t) {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && failed[m.Name] == 0 {
				failed[m.Name] = m.Status.CurrentStatus.LastUpdateTime.Sub(m.CreationTimestamp.Time)
			}
			if m.DeletionTimestamp != nil {
				going++
			}
		}
		most = max(most, going)
		return len(failed) >= 3, failed
	})
	for name, after := range failed {
		require.GreaterOrEqual(t, after, timeout-time.Second, "machine %s", name) // both times are in whole seconds
	}
	require.LessOrEqual(t, most, 1, "the budget covers failed joins")
	require.LessOrEqual(t, len(p.Deployment(t).Status.Replacements), 1)
}

func TestDeadNodeIsReplaced(t *testing.T) {
	t.Parallel()
	p := newPool(t, "dead", smallProviderSpec, 3, `{"healthTimeout":"5s"}`)
	p.AwaitRunningMachines(t, 3)
	victim := p.Machines(t)[0]
	setNodeNotReady(t, victim.Labels[v1alpha1.LabelNode], true)
	p.AwaitVersionWithCondition(t, victim, "is Unknown", func(m *v1alpha1.Machine) bool {
		return m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown && m.Status.Health != nil
	})
	rig.Eventually(t, "replaced", func() (bool, any) {
		return readMachine(t, p, victim.Name) == nil, machineNames(p, t)
	})
	p.AwaitRunningMachines(t, 3)
	for _, reason := range []string{"Joined", "Unhealthy", "ReplacementGranted"} {
		require.NotEmpty(t, awaitEvent(t, p.Namespace, victim.Name, reason).Message)
	}
	rig.Eventually(t, "the grant is given back", func() (bool, any) {
		left := p.Deployment(t).Status.Replacements
		return len(left) == 0, left
	})
}

func TestNodeThatRecoversInTimeKeepsItsMachine(t *testing.T) {
	t.Parallel()
	// the health timeout is long enough for both times at which the node is not ready
	p := newPool(t, "recovers", smallProviderSpec, 1, `{"healthTimeout":"24h"}`)
	p.AwaitRunningMachines(t, 1)
	before := p.Machines(t)[0]
	for range 2 { // the node becomes not ready and ready twice
		setNodeNotReady(t, before.Labels[v1alpha1.LabelNode], true)
		rig.Eventually(t, "Unknown", func() (bool, any) {
			return readMachine(t, p, before.Name).Status.CurrentStatus.Phase == v1alpha1.MachineUnknown, nil
		})
		setNodeNotReady(t, before.Labels[v1alpha1.LabelNode], false)
		rig.Eventually(t, "Running", func() (bool, any) {
			return readMachine(t, p, before.Name).Status.CurrentStatus.Phase == v1alpha1.MachineRunning, nil
		})
	}
	m := readMachine(t, p, before.Name)
	require.Equal(t, before.UID, m.UID)
	require.Equal(t, v1alpha1.MachineOperationHealthCheck, m.Status.LastOperation.Type)
}

func TestReplacementIsHeldIfMostNodesFailTogether(t *testing.T) {
	p := newPool(t, "breaker", smallProviderSpec, 6, `{"healthTimeout":"5s"}`)
	p.AwaitRunningMachines(t, 6)
	before := machineNames(p, t)
	var dead []string
	for _, m := range p.Machines(t)[:4] {
		dead = append(dead, m.Labels[v1alpha1.LabelNode])
	}
	setNodesNotReady(t, true, dead...)
	rig.Eventually(t, "held, and said so", func() (bool, any) {
		for _, c := range p.Deployment(t).Status.Conditions {
			if c.Type == v1alpha1.MachineDeploymentReplacementHeld {
				return true, nil
			}
		}
		return false, p.Deployment(t).Status.Conditions
	})
	rig.Eventually(t, "the timeouts of all are over", func() (bool, any) {
		due := 0
		for _, m := range p.Machines(t) {
			for _, c := range m.Status.Conditions {
				if c.Type == v1alpha1.MachineReplacementDue && c.Status == corev1.ConditionTrue {
					due++
				}
			}
		}
		return due == len(dead), due
	})
	p.ForceReconcile(t)
	for _, name := range before {
		testRig.ForceReconcile(t, run.KindMachine, p.Namespace, name)
	}
	p.ForceReconcile(t)
	require.Equal(t, before, machineNames(p, t), "none is replaced while most look dead")
	setNodesNotReady(t, false, dead...)
	p.AwaitRunningMachines(t, 6)
	require.Equal(t, before, machineNames(p, t), "each was judged by its own node, and kept")
	rig.Eventually(t, "held no more", func() (bool, any) {
		conditions := p.Deployment(t).Status.Conditions
		return !slices.ContainsFunc(conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
			return c.Type == v1alpha1.MachineDeploymentReplacementHeld
		}), conditions
	})
}

// A set without a deployment has no budget that limits concurrent replacements. A user deletes the Nodes of all
// machines of the set. The breaker counts Nodes that are being deleted, so no machine fails.
func TestNoMachineIsReplacedIfAllNodesOfASetAreDeleted(t *testing.T) {
	const name, size = "allnodes", 4
	testRig.CreateNamespace(t, name, smallProviderSpec)
	labels := map[string]string{"pool": name}
	sets := testRig.MachineClient.MachineV1alpha1().MachineSets(name)
	_, err := sets.Create(t.Context(), &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: name},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: size, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: rig.NewMachineSpec()},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	machines := func() []v1alpha1.Machine {
		list, err := testRig.MachineClient.MachineV1alpha1().Machines(name).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return list.Items
	}
	nodes := make([]string, 0, size)
	rig.Eventually(t, "all machines run, and their nodes carry our finalizer", func() (bool, any) {
		nodes = nodes[:0]
		for _, m := range machines() {
			n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && err == nil &&
				slices.Contains(n.Finalizers, v1alpha1.FinalizerNode) {
				nodes = append(nodes, n.Name)
			}
		}
		return len(nodes) == size, nodes
	})
	before := machines()
	// The bridge is stopped until all Nodes have a deletion timestamp. A running bridge would signal the first
	// deletion, and the first machine would be replaced at once.
	require.NoError(t, testRig.Stack.SignalComponent(t.Context(), component.Bridge, syscall.SIGSTOP))
	_, err = testRig.Stack.RunKubectl(t.Context(), slices.Concat([]string{"delete", "node", "--wait=false"}, nodes)...)
	require.NoError(
		t,
		testRig.Stack.SignalComponent(context.WithoutCancel(t.Context()), component.Bridge, syscall.SIGCONT),
	)
	require.NoError(t, err)
	rig.Eventually(t, "all are due, and held", func() (bool, any) {
		held := 0
		var saw []string
		for _, m := range machines() {
			require.NotEqual(t, v1alpha1.MachineFailed, m.Status.CurrentStatus.Phase, "%s", m.Status.LastOperation.Description)
			for _, c := range m.Status.Conditions {
				if c.Type == v1alpha1.MachineReplacementDue {
					saw = append(saw, c.Message)
					if c.Reason == v1alpha1.ReasonNodeDeleted && strings.Contains(c.Message, "nodes look dead at once") {
						held++
					}
				}
			}
		}
		return held == size, saw
	})
	kept := func() (uids []types.UID) {
		for _, m := range machines() {
			require.Nil(t, m.DeletionTimestamp)
			uids = append(uids, m.UID)
		}
		return uids
	}
	var first []types.UID
	for _, m := range before {
		first = append(first, m.UID)
	}
	require.ElementsMatch(t, first, kept(), "none is replaced")

	require.NoError(t, sets.Delete(t.Context(), name, metav1.DeleteOptions{}))
	rig.Eventually(t, "a person may delete them all the same", func() (bool, any) {
		left := machines()
		return len(left) == 0, len(left)
	})
}

func TestCreationsContinueWhenTheQuotaHasRoom(t *testing.T) {
	t.Parallel()
	room := func(instances int) {
		changeCloudBehaviour(t, func(b *admin.Behaviour) { b.Quotas = map[string]int{"eu-q": instances} })
	}
	room(0)
	p := newPool(t, "quota", `{"region":"eu","zone":"eu-q","instanceType":"small"}`, 2, "")
	rig.Eventually(t, "machine, set and deployment say so", func() (bool, any) {
		set, deployment := "", ""
		for _, s := range p.Sets(t) {
			for _, c := range s.Status.Conditions {
				if c.Type == v1alpha1.MachineSetReplicaFailure {
					set = c.Reason
				}
			}
		}
		for _, c := range p.Deployment(t).Status.Conditions {
			if c.Type == v1alpha1.MachineDeploymentReplicaFailure {
				deployment = c.Reason
			}
		}
		machines := 0
		for _, m := range p.Machines(t) {
			if m.Status.LastOperation.ErrorCode == "ResourceExhausted" {
				machines++
			}
		}
		return set == "ResourceExhausted" && deployment == set && machines == 2, []any{set, deployment, machines}
	})
	before := machineNames(p, t)
	room(2)
	p.AwaitRunningMachines(t, 2)
	require.Equal(t, before, machineNames(p, t), "nobody was replaced for it")
	rig.Eventually(t, "the reason is gone", func() (bool, any) {
		for _, s := range p.Sets(t) {
			for _, c := range s.Status.Conditions {
				if c.Type == v1alpha1.MachineSetReplicaFailure {
					return false, c
				}
			}
		}
		return true, nil
	})
}

// tokenWithSpecialCharacters is a token that each kind of escaping changes. Each escaped form contains the canary.
const tokenWithSpecialCharacters = "odd/" + rig.CanaryToken + "+?"

// The cloud refuses the token of a class for longer than the creation timeout of the machines. The test sets the
// timeout only after the creation has stopped: the timeout includes the time before the stop, which is long on a slow
// computer.
func TestCreationsContinueWhenTheSecretIsCorrected(t *testing.T) {
	t.Parallel()
	const namespace, stopped = "rotated", time.Minute
	accept := func(tokens ...string) { // the cloud accepts these tokens for all classes
		changeCloudBehaviour(t, func(b *admin.Behaviour) { b.AcceptedTokens = tokens })
	}
	accept(rig.CanaryToken, tokenWithSpecialCharacters)
	t.Cleanup(func() { accept() })
	testRig.CreateNamespace(t, namespace, smallProviderSpec)
	token := func(value string) {
		patch := fmt.Appendf(nil, `{"stringData":{"token":%q}}`, value)
		_, err := testRig.Kube.CoreV1().
			Secrets(namespace).
			Patch(t.Context(), "small", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	token("expired-" + rig.CanaryToken)
	p := testRig.CreatePool(t, namespace, namespace, 2)
	rig.Eventually(t, "two machines are stuck", func() (bool, any) {
		stuck := 0
		for _, m := range p.Machines(t) {
			if m.Status.CreationStopped != nil && m.Status.CreationStopped.Since != nil {
				stuck++
			}
		}
		return stuck == 2, p.Machines(t)
	})
	before, timeouts := machineNames(p, t), map[string]time.Duration{}
	for _, m := range p.Machines(t) {
		timeouts[m.Name] = time.Since(m.CreationTimestamp.Time).Round(time.Second) + stopped
		value := strconv.Quote(timeouts[m.Name].String())
		annotateMachine(t, p, m.Name, v1alpha1.AnnotationEffectiveCreationTimeout, value)
	}
	for _, m := range p.Machines(t) { // while the credentials are wrong, the creation timeout is paused
		// wait until the machine is older than the creation timeout; both times are in whole seconds
		time.Sleep(time.Until(m.CreationTimestamp.Add(timeouts[m.Name] + time.Second)))
		testRig.ForceReconcile(t, run.KindMachine, namespace, m.Name)
	}
	for _, m := range p.Machines(t) {
		require.Equal(
			t,
			v1alpha1.MachineCrashLoopBackOff,
			m.Status.CurrentStatus.Phase,
			"%s",
			m.Status.LastOperation.Description,
		)
		require.Equal(t, "Unauthenticated", m.Status.LastOperation.ErrorCode)
		require.Contains(t, m.Status.LastOperation.Description, "the credentials are not valid")
	}
	token(rig.CanaryToken)
	p.AwaitRunningMachines(t, 2)
	require.Equal(t, before, machineNames(p, t), "nobody was replaced for it")
}

// The error message of a cloud contains the token of the request, in plain text and in encoded forms. Without this
// test, no error of the cloud would contain the canary. The package searches Millwright's output for the canary.
func TestSecretsInCloudErrorsAreRedacted(t *testing.T) {
	t.Parallel()
	const namespace = "quoted"
	message := fmt.Sprintf(
		"token %s may not do that; Authorization: Basic %s; GET /instances?token=%s",
		tokenWithSpecialCharacters,
		base64.StdEncoding.EncodeToString(
			[]byte("millwright:"+tokenWithSpecialCharacters),
		),
		url.QueryEscape(tokenWithSpecialCharacters),
	)
	require.NoError(t, testRig.Cloud.AddFault(t.Context(), admin.Fault{
		Operation: admin.OperationCreate, Code: "PermissionDenied", Message: message, Class: namespace + "/small",
	}))
	testRig.CreateNamespace(t, namespace, smallProviderSpec)
	patch := fmt.Appendf(nil, `{"stringData":{"token":%q}}`, tokenWithSpecialCharacters)
	_, err := testRig.Kube.CoreV1().
		Secrets(namespace).
		Patch(t.Context(), "small", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	p := testRig.CreatePool(t, namespace, namespace, 1)
	rig.Eventually(t, "the machine says what the cloud said, without the token", func() (bool, any) {
		list := p.Machines(t)
		if len(list) == 0 {
			return false, nil
		}
		said := list[0].Status.LastOperation.Description
		return strings.Count(said, "[redacted]") == 3 && strings.Contains(said, "may not do that"), said
	})
	// FindSecretLeaks also searches for the base64 of each form
	for _, form := range []string{tokenWithSpecialCharacters, url.QueryEscape(tokenWithSpecialCharacters)} {
		places, _, err := testRig.FindSecretLeaks(t.Context(), form)
		require.NoError(t, err)
		require.Empty(t, places)
	}
	p.Delete(t)
	p.AwaitPoolGone(t)
}

func TestVanishedInstanceIsReplacedEarly(t *testing.T) {
	t.Parallel()
	p := newPool(
		t,
		"vanished",
		smallProviderSpec,
		2,
		`{"healthTimeout":"24h","nodeTemplate":{"metadata":{"labels":{"pool":"vanished"}}}}`,
	)
	p.AwaitRunningMachines(t, 2)
	p.AwaitLabelledNodes(t, 2)
	p.DeployPods(t, "web", 2, func(pod *corev1.PodTemplateSpec) {
		// the host port limits each node to one pod
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	})
	p.CreateBudget(t, "web", 2) // dead pods behind a budget would block a drain until the deadline
	victim := p.Machines(t)[0]
	require.NoError(t, testRig.Cloud.MakeInstanceVanish(t.Context(), admin.VanishRequest{Machine: victim.Name}))
	node := victim.Labels[v1alpha1.LabelNode]
	rig.Eventually(t, "the node has no kubelet", func() (bool, any) {
		n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(t, err)
		return n.Labels["type"] == "", n.Labels
	})
	// The node controller would set Ready to Unknown after 60 s. This test does not wait for the node controller.
	silent := fmt.Appendf(
		nil,
		`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`,
		time.Now().UTC().Format(time.RFC3339),
	)
	_, err := testRig.Kube.CoreV1().
		Nodes().
		Patch(t.Context(), node, types.StrategicMergePatchType, silent, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	rig.Eventually(t, "replaced long before the health timeout", func() (bool, any) {
		return readMachine(t, p, victim.Name) == nil, machineNames(p, t)
	})
	p.AwaitRunningMachines(t, 2)
	awaitEvent(t, p.Namespace, victim.Name, "InstanceGone")
	_, err = testRig.Stack.RunKubectl(t.Context(), "delete", "deployment", "-n", p.Namespace, "web", "--wait=false")
	require.NoError(t, err)
}

// Without Millwright's finalizer a deleted Node is gone at once. The instance of a deleted Node still runs, so the
// provider does not report it as gone. Millwright still replaces the machine, because its Node is missing, long before
// the health timeout. The tests TestEvery...SignalsThe... of k8sbridge/watch prove that a write of one workflow, and
// not the resync, wakes the next of the four workflows.
func TestMachineWithoutNodeIsReplacedImmediately(t *testing.T) {
	t.Parallel()
	newPool(t, "beside", smallProviderSpec, 2, "").AwaitRunningMachines(t, 2)
	p := newPool(t, "nodegone", smallProviderSpec, 1, `{"healthTimeout":"24h"}`)
	p.AwaitRunningMachines(t, 1)
	victim := p.Machines(t)[0]
	node := victim.Labels[v1alpha1.LabelNode]
	rig.Eventually(t, "the node is gone", func() (bool, any) {
		_, err := testRig.Kube.CoreV1().
			Nodes().
			Patch(t.Context(), node, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err == nil {
			err = testRig.Kube.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{})
		}
		_, gone := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		return apierrors.IsNotFound(gone), []any{err, gone}
	})
	p.AwaitMachineGone(t, victim)
	p.AwaitRunningMachines(t, 1)
	// only a deployment allows the replacement of a failed machine
	awaitEvent(t, p.Namespace, victim.Name, "ReplacementGranted")
}

func TestNodesDeletedByHandAreReplacedWithinTheBudget(t *testing.T) {
	t.Parallel()
	// without the 4 nodes of this pool, 3 of 3 nodes would be gone, and the breaker would hold all replacements
	newPool(t, "others", smallProviderSpec, 4, "").AwaitRunningMachines(t, 4)
	p := newPool(t, "byhand", smallProviderSpec, 3, "")
	p.AwaitRunningMachines(t, 3)
	before := p.Machines(t)
	var deleted []string
	p.AwaitSyncedNodes(t)      // without Millwright's finalizer the node would be gone at once
	for _, m := range before { // all nodes at once, as kubectl delete nodes --all does
		node := m.Labels[v1alpha1.LabelNode]
		require.NoError(t, testRig.Kube.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
		deleted = append(deleted, m.Name)
	}
	most := 0
	rig.Eventually(t, "all were replaced, one after the other", func() (bool, any) {
		left, going := 0, 0
		for _, m := range p.Machines(t) {
			if slices.Contains(deleted, m.Name) {
				left++
				if m.DeletionTimestamp != nil {
					going++
				}
			}
		}
		most = max(most, going)
		return left == 0, fmt.Sprintf("%d left", left)
	})
	require.LessOrEqual(t, most, 1, "the budget guards against it")
	p.AwaitRunningMachines(t, 3)
}

func TestNodeGetsTheFieldsOfItsTemplate(t *testing.T) {
	t.Parallel()
	p := newPool(
		t,
		"sync",
		smallProviderSpec,
		1,
		`{"nodeTemplate":{"metadata":{"labels":{"team":"a"},"annotations":{"note":"b"}},"spec":{"taints":[{"key":"dedicated","value":"x","effect":"NoSchedule"}]}}}`,
	)
	p.AwaitRunningMachines(t, 1)
	m := p.Machines(t)[0]
	nodes := testRig.Kube.CoreV1().Nodes()
	carries := func() {
		t.Helper()
		rig.Eventually(t, "label, annotation, taint, finalizer and machine name", func() (bool, any) {
			n, err := nodes.Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			require.NoError(t, err)
			tainted := slices.ContainsFunc(
				n.Spec.Taints,
				func(taint corev1.Taint) bool { return taint.Key == "dedicated" && taint.Value == "x" },
			)
			return tainted && n.Labels["team"] == "a" && n.Annotations["note"] == "b" &&
				n.Labels[v1alpha1.LabelMachineName] == m.Name &&
				slices.Contains(n.Finalizers, v1alpha1.FinalizerNode), n
		})
	}
	carries()
	_, err := nodes.Patch(
		t.Context(),
		m.Name,
		types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"team":"z","foreign":"stays"}},"spec":{"taints":null}}`),
		metav1.PatchOptions{},
	)
	require.NoError(t, err)
	carries()
	p.Patch(
		t,
		`{"spec":{"template":{"spec":{"nodeTemplate":{"metadata":{"labels":{"team":null}},"spec":{"taints":null}}}}}}`,
	)
	rig.Eventually(t, "what left the template left the node", func() (bool, any) {
		n, err := nodes.Get(t.Context(), m.Name, metav1.GetOptions{})
		require.NoError(t, err)
		_, has := n.Labels["team"]
		return !has && n.Labels["foreign"] == "stays" && len(n.Spec.Taints) == 0, n
	})
}

func TestBootstrapTokenExistsOnlyDuringTheJoin(t *testing.T) {
	t.Parallel()
	const namespace = "tokens"
	testRig.CreateNamespace(t, namespace, smallProviderSpec)
	_, err := testRig.Kube.CoreV1().Secrets(namespace).Patch(t.Context(), "small", types.MergePatchType,
		[]byte(
			`{"stringData":{"userData":"join <<BOOTSTRAP_TOKEN>> as <<MACHINE_NAME>> %3C%3CMACHINE_NAME%3E%3E"}}`,
		), metav1.PatchOptions{})
	require.NoError(t, err)
	ours := metav1.ListOptions{LabelSelector: v1alpha1.LabelMachineUID}
	// a bootstrap token is deleted as soon as its node has joined
	seen, err := testRig.Kube.CoreV1().Secrets(metav1.NamespaceSystem).Watch(t.Context(), ours)
	require.NoError(t, err)
	defer seen.Stop()
	p := testRig.CreatePool(t, namespace, namespace, 2)
	p.AwaitRunningMachines(t, 2)
	uids, byMachine := []string{}, map[string]string{}
	for _, m := range p.Machines(t) {
		require.NotNil(t, m.Status.JoinedAt, "it is on record when the node joined")
		uids = append(uids, string(m.UID))
	}
	for len(byMachine) < 2 {
		event, open := <-seen.ResultChan()
		require.True(t, open, "the watch has ended; tokens: %v", byMachine)
		s, isSecret := event.Object.(*corev1.Secret)
		require.True(t, isSecret, "%v", event.Object)
		if uid := s.Labels[v1alpha1.LabelMachineUID]; event.Type == watch.Added && slices.Contains(uids, uid) {
			require.Empty(t, byMachine[uid], "one for each machine")
			byMachine[uid] = string(s.Data["token-id"]) + "." + string(s.Data["token-secret"])
		}
	}
	instances, err := testRig.Cloud.Instances(t.Context())
	require.NoError(t, err)
	for _, i := range instances {
		if token := byMachine[i.Tags.MachineUID]; token != "" {
			data, err := testRig.Cloud.UserData(t.Context(), i.ID)
			require.NoError(t, err)
			require.Equal(t, "join "+token+" as "+i.Tags.MachineName+" "+i.Tags.MachineName, string(data))
		}
	}
	rig.Eventually(t, "the tokens are gone", func() (bool, any) {
		list, err := testRig.Kube.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), ours)
		require.NoError(t, err)
		left := slices.DeleteFunc(
			list.Items,
			func(s corev1.Secret) bool { return !slices.Contains(uids, s.Labels[v1alpha1.LabelMachineUID]) },
		)
		return len(left) == 0, len(left)
	})
	p.Delete(t)
	p.AwaitPoolGone(t)
}

// The worker is killed after the cloud has created the instance and before the provider ID is written to the Machine.
func TestWorkerKilledAfterACreationMakesNoSecondInstance(t *testing.T) {
	require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		b.HonorClientTokens = false
		b.HangPoints = map[admin.Operation]admin.HangPoint{admin.OperationCreate: admin.HangAfterEffect}
	}))
	t.Cleanup(func() {
		require.NoError(t, testRig.Cloud.SetBehaviour(context.WithoutCancel(t.Context()), admin.DefaultBehaviour()))
	})
	before, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	testRig.CreateNamespace(t, "killed", smallProviderSpec)
	p := testRig.CreatePool(t, "killed", "killed", 1)
	rig.Eventually(t, "the instance is made, and nobody knows", func() (bool, any) {
		return len(p.ProviderIDs(t)) == 1 && p.Machines(t)[0].Spec.ProviderID == "", p.ProviderIDs(t)
	})
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.Worker))
	require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) { b.HangPoints = nil }))
	p.AwaitRunningMachines(t, 1)
	after, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, after.CreatedInstances-before.CreatedInstances)
	p.Delete(t)
	p.AwaitPoolGone(t)
}
