//go:build integration

package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// situation describes a situation from the section "What an object waits for" of docs/runbook.md.
type situation struct {
	namespace           string
	createPool          func(t *testing.T, namespace string) *rig.Pool
	blockedReason       string   // reason of the condition Blocked
	messageParts        []string // parts of the sentence that explains the deployment
	removeCause         func(t *testing.T, p *rig.Pool)
	runningMachineCount int           // number of running machines after removeCause
	maxWait             time.Duration // maximum time from the start of the wait to the operation's deadline; 0: no maximum
	noMachineWaits      bool          // only the deployment or its set waits, and no machine waits
}

const quotaZoneProviderSpec = `{"region":"eu","zone":"eu-q","instanceType":"small"}`

// situations returns the situations that concern one pool.
func situations() map[string]situation {
	return map[string]situation{
		"1: a budget blocks a drain": {
			namespace: "budget",
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				p := newPoolWithPods(t, namespace, 2)
				p.CreateBudget(t, "web", 2)
				p.Scale(t, 1)
				return p
			},
			blockedReason: "PodDisruptionBudget",
			messageParts: []string{
				"1 of 2 machines waits to leave",
				"PodDisruptionBudget budget/web allows none",
				"the pods still on its node are deleted at ",
				"`kubectl edit pdb -n budget web`",
			},
			removeCause:         func(t *testing.T, p *rig.Pool) { p.RelaxBudget(t, "web", 0) },
			runningMachineCount: 1,
		},
		"4: a node is not reachable": {
			namespace: "silent",
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				p := newPool(t, namespace, "", 2)
				p.AwaitRunningMachines(t, 2)
				setNodeNotReady(t, p.Machines(t)[0].Labels[v1alpha1.LabelNode])
				return p
			},
			blockedReason: "NodeNotHealthy",
			messageParts: []string{
				"1 of 2 machines waits for its node to recover",
				"Ready is False",
				"if its node has not recovered, it is replaced at ",
				"`kubectl describe node ",
			},
			removeCause: func(t *testing.T, p *rig.Pool) {
				for _, m := range p.Machines(t) {
					if m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown {
						labelNode(t, m.Labels[v1alpha1.LabelNode], "node-not-ready.stage.kwok.x-k8s.io-")
					}
				}
			},
			runningMachineCount: 2,
		},
		"5: the quota is used up": {
			namespace:     "quota",
			createPool:    func(t *testing.T, namespace string) *rig.Pool { return newPool(t, namespace, quotaZoneProviderSpec, 2) },
			blockedReason: "ResourceExhausted",
			messageParts: []string{
				"1 of 2 machines waits for its instance",
				"it is tried again: ask the cloud for more, or scale down; if its instance is not ready, it is replaced at ",
				"`millwright explain machine/quota-",
			},
			removeCause:         func(t *testing.T, p *rig.Pool) { p.Scale(t, 1) },
			runningMachineCount: 1,
		},
		"6: the credentials are wrong": {
			namespace: "refused",
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				p := newPool(t, namespace, "", 0)
				setCloudToken(t, namespace, "wrong")
				p.Scale(t, 1)
				return p
			},
			blockedReason: "Unauthenticated",
			messageParts: []string{
				"1 of 1 machine waits for its instance",
				"; it is tried again at ",
				"`kubectl edit secret -n refused small`",
			},
			removeCause:         func(t *testing.T, p *rig.Pool) { setCloudToken(t, p.Namespace, rig.CanaryToken) },
			runningMachineCount: 1,
		},
		"7a: the class does not exist": {
			namespace:      "classless",
			noMachineWaits: true,
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				testRig.CreateNamespace(t, namespace, "")
				return testRig.CreatePool(
					t,
					namespace,
					namespace,
					1,
					func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "nosuch" },
				)
			},
			blockedReason: "TemplateNotFound",
			messageParts: []string{
				"creates no machine: MachineClass classless/nosuch does not exist",
				"`kubectl get machineclasses -n classless`",
			},
			removeCause: func(t *testing.T, p *rig.Pool) {
				class := rig.NewClass(p.Namespace, "")
				class.Name = "nosuch"
				_, err := testRig.MachineClient.MachineV1alpha1().
					MachineClasses(p.Namespace).
					Create(t.Context(), class, metav1.CreateOptions{})
				require.NoError(t, err)
			},
			runningMachineCount: 1,
		},
		"7b: the Secret does not exist": {
			namespace: "secretless",
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				testRig.CreateNamespace(t, namespace, "")
				class := rig.NewClass(namespace, "")
				class.Name, class.CredentialsSecretRef = "other", &corev1.SecretReference{Namespace: namespace, Name: "missing"}
				_, err := testRig.MachineClient.MachineV1alpha1().
					MachineClasses(namespace).
					Create(t.Context(), class, metav1.CreateOptions{})
				require.NoError(t, err)
				return testRig.CreatePool(
					t,
					namespace,
					namespace,
					2,
					func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "other" },
				)
			},
			blockedReason: "SecretNotFound",
			messageParts: []string{
				"2 of 2 machines wait for their instances",
				"Secret secretless/missing",
				"`kubectl create secret generic -n secretless missing --from-file …`",
			},
			removeCause: func(t *testing.T, p *rig.Pool) {
				credentials := rig.NewClassSecret(p.Namespace)
				credentials.Name = "missing"
				_, err := testRig.Kube.CoreV1().Secrets(p.Namespace).Create(t.Context(), credentials, metav1.CreateOptions{})
				require.NoError(t, err)
			},
			runningMachineCount: 2,
		},
		"9: it is paused": {
			namespace:      "paused",
			noMachineWaits: true,
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				p := newPool(t, namespace, "", 1)
				p.AwaitRunningMachines(t, 1)
				testRig.RunMillwright(t, "rollout", "pause", p.Name, "-n", p.Namespace, "--as-user", "ann", "--reason", "lunch")
				p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
				return p
			},
			blockedReason: "Paused",
			messageParts: []string{
				"paused by ann (lunch): ",
				"; nothing is rolled out until somebody resumes it; `millwright rollout resume paused/paused`",
			},
			removeCause: func(t *testing.T, p *rig.Pool) {
				testRig.RunMillwright(t, "rollout", "resume", p.Name, "-n", p.Namespace)
			},
			runningMachineCount: 1,
		},
		"11: no worker serves the provider": {
			namespace: "unserved",
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				testRig.CreateNamespace(t, namespace, "")
				class := rig.NewClass(namespace, "")
				class.Name, class.Provider = "elsewhere", "elsewhere"
				_, err := testRig.MachineClient.MachineV1alpha1().
					MachineClasses(namespace).
					Create(t.Context(), class, metav1.CreateOptions{})
				require.NoError(t, err)
				return testRig.CreatePool(
					t,
					namespace,
					namespace,
					2,
					func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "elsewhere" },
				)
			},
			blockedReason: "NoWorker",
			messageParts: []string{
				"2 of 2 machines wait for their instances",
				"no worker serves provider elsewhere",
				"if their instances are not ready, they are replaced ",
				"`millwright provider list -n unserved`",
			},
			removeCause: func(t *testing.T, p *rig.Pool) {
				_, err := testRig.MachineClient.MachineV1alpha1().
					MachineClasses(p.Namespace).
					Patch(t.Context(), "elsewhere", types.MergePatchType, []byte(`{"provider":"virtual"}`), metav1.PatchOptions{})
				require.NoError(t, err)
			},
			runningMachineCount: 2,
		},
		"2: two budgets for one pod": {
			namespace: "budgets",
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				p := newPoolWithPods(t, namespace, 2)
				p.CreateBudget(t, "web", 0)
				second := &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Name: "second"},
					Spec: policyv1.PodDisruptionBudgetSpec{
						MinAvailable: new(intstr.FromInt32(0)),
						Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					},
				}
				_, err := testRig.Kube.PolicyV1().
					PodDisruptionBudgets(namespace).
					Create(t.Context(), second, metav1.CreateOptions{})
				require.NoError(t, err)
				p.Scale(t, 1)
				return p
			},
			blockedReason: "PodDisruptionBudget",
			messageParts: []string{
				"1 of 2 machines waits to leave",
				"budgets/second",
				"budgets/web",
				"the pods still on its node are deleted at ",
				"`kubectl edit pdb -n budgets ",
			},
			removeCause: func(t *testing.T, p *rig.Pool) {
				require.NoError(
					t,
					testRig.Kube.PolicyV1().PodDisruptionBudgets(p.Namespace).Delete(t.Context(), "second", metav1.DeleteOptions{}),
				)
			},
			runningMachineCount: 1,
		},
		"3: a volume is not detached": {
			namespace: "volume",
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				testRig.CreateNamespace(t, namespace, "")
				p := testRig.CreatePool(t, namespace, namespace, 1, rig.WithNodeLabel)
				p.AwaitRunningMachines(t, 1)
				p.AwaitLabelledNodes(t, 1)
				p.RunStatefulSet(t, "db", 2) // the second pod waits until the volume of the first pod is detached
				setVolumesInUse(t, p, true)
				p.DeleteMachine(t, p.Machines(t)[0].Name)
				return p
			},
			blockedReason: "Volume",
			maxWait:       2 * rig.VolumeDetachTimeout, // the timeout of the whole drain is two hours
			messageParts: []string{
				"1 of 2 machines waits to leave",
				"volume ",
				"it goes on without the volume at ",
				"`kubectl describe pv ",
			},
			removeCause:         func(t *testing.T, p *rig.Pool) { setVolumesInUse(t, p, false) },
			runningMachineCount: 1,
		},
		"16: admission refuses machines": {
			namespace:      "denied",
			noMachineWaits: true,
			createPool: func(t *testing.T, namespace string) *rig.Pool {
				testRig.CreateNamespace(t, namespace, "")
				testRig.RefuseMachines(t, namespace, `object.metadata.namespace != "denied"`, "no machines here")
				return testRig.CreatePool(t, namespace, namespace, 2)
			},
			blockedReason: "MachineCreationFailed",
			messageParts: []string{
				"creates no machine: ",
				"no machines here",
				"; it is tried again every 10s; ",
				"`kubectl describe machineset -n denied ",
			},
			removeCause:         func(t *testing.T, p *rig.Pool) { testRig.AllowMachines(t, p.Namespace) },
			runningMachineCount: 2,
		},
	}
}
