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

// stuck is a situation of docs/runbook.md, "What an object waits for".
type stuck struct {
	namespace string
	make      func(t *testing.T, namespace string) *rig.Pool
	reason    string   // of the condition Blocked
	says      []string // parts of the sentence of the deployment
	mend      func(t *testing.T, p *rig.Pool)
	after     int           // machines that run when it is mended
	within    time.Duration // what happens by itself comes so soon after the wait began; 0: later, or never
	alone     bool          // no machine waits: the deployment or its set does
}

const quotaZone = `{"region":"eu","zone":"eu-q","instanceType":"small"}`

// situations are the situations that concern one pool.
func situations() map[string]stuck {
	return map[string]stuck{
		"1: a budget blocks a drain": {
			namespace: "budget",
			make: func(t *testing.T, namespace string) *rig.Pool {
				p := hosts(t, namespace, 2)
				p.Budget(t, "web", 2)
				p.Scale(t, 1)
				return p
			},
			reason: "PodDisruptionBudget",
			says: []string{
				"1 of 2 machines waits to leave",
				"PodDisruptionBudget budget/web allows none",
				"its pods are deleted at ",
				"`kubectl edit pdb -n budget web`",
			},
			mend:  func(t *testing.T, p *rig.Pool) { p.RelaxBudget(t, "web", 0) },
			after: 1,
		},
		"4: a node is not reachable": {
			namespace: "silent",
			make: func(t *testing.T, namespace string) *rig.Pool {
				p := pool(t, namespace, "", 2)
				p.AwaitRunning(t, 2)
				silence(t, p.Machines(t)[0].Labels[v1alpha1.LabelNode])
				return p
			},
			reason: "NodeNotHealthy",
			says: []string{
				"1 of 2 machines waits for its node to recover",
				"Ready is False",
				"it fails and is replaced at ",
				"`kubectl describe node ",
			},
			mend: func(t *testing.T, p *rig.Pool) {
				for _, m := range p.Machines(t) {
					if m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown {
						label(t, m.Labels[v1alpha1.LabelNode], "node-not-ready.stage.kwok.x-k8s.io-")
					}
				}
			},
			after: 2,
		},
		"5: the quota is used up": {
			namespace: "quota",
			make:      func(t *testing.T, namespace string) *rig.Pool { return pool(t, namespace, quotaZone, 2) },
			reason:    "ResourceExhausted",
			says: []string{
				"1 of 2 machines waits for its instance",
				"it is tried again; it fails and is replaced at ",
				"`millwright explain machine/quota-",
			},
			mend:  func(t *testing.T, p *rig.Pool) { p.Scale(t, 1) },
			after: 1,
		},
		"6: the credentials are wrong": {
			namespace: "refused",
			make: func(t *testing.T, namespace string) *rig.Pool {
				p := pool(t, namespace, "", 0)
				secret(t, namespace, "wrong")
				p.Scale(t, 1)
				return p
			},
			reason: "Unauthenticated",
			says: []string{
				"1 of 1 machine waits for its instance",
				"; it is tried again at ",
				"`kubectl edit secret -n refused small`",
			},
			mend:  func(t *testing.T, p *rig.Pool) { secret(t, p.Namespace, rig.Canary) },
			after: 1,
		},
		"7a: the class does not exist": {
			namespace: "classless",
			alone:     true,
			make: func(t *testing.T, namespace string) *rig.Pool {
				r.Namespace(t, namespace, "")
				return r.Pool(
					t,
					namespace,
					namespace,
					1,
					func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "nosuch" },
				)
			},
			reason: "TemplateNotFound",
			says: []string{
				"creates no machine: MachineClass classless/nosuch does not exist",
				"`kubectl get machineclasses -n classless`",
			},
			mend: func(t *testing.T, p *rig.Pool) {
				class := rig.Class(p.Namespace, "")
				class.Name = "nosuch"
				_, err := r.Machines.MachineV1alpha1().
					MachineClasses(p.Namespace).
					Create(t.Context(), class, metav1.CreateOptions{})
				require.NoError(t, err)
			},
			after: 1,
		},
		"7b: the Secret does not exist": {
			namespace: "secretless",
			make: func(t *testing.T, namespace string) *rig.Pool {
				r.Namespace(t, namespace, "")
				class := rig.Class(namespace, "")
				class.Name, class.CredentialsSecretRef = "other", &corev1.SecretReference{Namespace: namespace, Name: "missing"}
				_, err := r.Machines.MachineV1alpha1().MachineClasses(namespace).Create(t.Context(), class, metav1.CreateOptions{})
				require.NoError(t, err)
				return r.Pool(
					t,
					namespace,
					namespace,
					2,
					func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "other" },
				)
			},
			reason: "SecretNotFound",
			says: []string{
				"2 of 2 machines wait for their instances",
				"Secret secretless/missing",
				"`kubectl create secret generic -n secretless missing --from-file …`",
			},
			mend: func(t *testing.T, p *rig.Pool) {
				credentials := rig.Credentials(p.Namespace)
				credentials.Name = "missing"
				_, err := r.Kube.CoreV1().Secrets(p.Namespace).Create(t.Context(), credentials, metav1.CreateOptions{})
				require.NoError(t, err)
			},
			after: 2,
		},
		"9: it is paused": {
			namespace: "paused",
			alone:     true,
			make: func(t *testing.T, namespace string) *rig.Pool {
				p := pool(t, namespace, "", 1)
				p.AwaitRunning(t, 1)
				r.Millwright(t, "rollout", "pause", p.Name, "-n", p.Namespace, "--as-user", "ann", "--reason", "lunch")
				p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
				return p
			},
			reason: "Paused",
			says: []string{
				"paused by ann (lunch): ",
				"; nothing is rolled out until somebody resumes it; `millwright rollout resume paused/paused`",
			},
			mend:  func(t *testing.T, p *rig.Pool) { r.Millwright(t, "rollout", "resume", p.Name, "-n", p.Namespace) },
			after: 1,
		},
		"11: no worker serves the provider": {
			namespace: "unserved",
			make: func(t *testing.T, namespace string) *rig.Pool {
				r.Namespace(t, namespace, "")
				class := rig.Class(namespace, "")
				class.Name, class.Provider = "elsewhere", "elsewhere"
				_, err := r.Machines.MachineV1alpha1().MachineClasses(namespace).Create(t.Context(), class, metav1.CreateOptions{})
				require.NoError(t, err)
				return r.Pool(
					t,
					namespace,
					namespace,
					2,
					func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "elsewhere" },
				)
			},
			reason: "NoWorker",
			says: []string{
				"2 of 2 machines wait for their instances",
				"no worker serves provider elsewhere",
				"they fail and are replaced ",
				"`millwright provider list -n unserved`",
			},
			mend: func(t *testing.T, p *rig.Pool) {
				_, err := r.Machines.MachineV1alpha1().
					MachineClasses(p.Namespace).
					Patch(t.Context(), "elsewhere", types.MergePatchType, []byte(`{"provider":"virtual"}`), metav1.PatchOptions{})
				require.NoError(t, err)
			},
			after: 2,
		},
		"2: two budgets for one pod": {
			namespace: "budgets",
			make: func(t *testing.T, namespace string) *rig.Pool {
				p := hosts(t, namespace, 2)
				p.Budget(t, "web", 0)
				second := &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Name: "second"},
					Spec: policyv1.PodDisruptionBudgetSpec{
						MinAvailable: new(intstr.FromInt32(0)),
						Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					},
				}
				_, err := r.Kube.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), second, metav1.CreateOptions{})
				require.NoError(t, err)
				p.Scale(t, 1)
				return p
			},
			reason: "PodDisruptionBudget",
			says: []string{
				"1 of 2 machines waits to leave",
				"budgets/second",
				"budgets/web",
				"its pods are deleted at ",
				"`kubectl edit pdb -n budgets ",
			},
			mend: func(t *testing.T, p *rig.Pool) {
				require.NoError(
					t,
					r.Kube.PolicyV1().PodDisruptionBudgets(p.Namespace).Delete(t.Context(), "second", metav1.DeleteOptions{}),
				)
			},
			after: 1,
		},
		"3: a volume is not detached": {
			namespace: "volume",
			make: func(t *testing.T, namespace string) *rig.Pool {
				r.Namespace(t, namespace, "")
				p := r.Pool(t, namespace, namespace, 1, rig.LabelNodes)
				p.AwaitRunning(t, 1)
				p.AwaitHosts(t, 1)
				p.RunStatefulSet(t, "db", 2) // one pod leaves, and the other waits until its volume is detached
				hold(t, p, true)
				p.Remove(t, p.Machines(t)[0].Name)
				return p
			},
			reason: "Volume",
			within: 2 * rig.DetachTimeout, // the time of the whole drain is two hours
			says: []string{
				"1 of 2 machines waits to leave",
				"volume ",
				"it goes on without the volume at ",
				"`kubectl describe pv ",
			},
			mend:  func(t *testing.T, p *rig.Pool) { hold(t, p, false) },
			after: 1,
		},
		"16: admission refuses machines": {
			namespace: "denied",
			alone:     true,
			make: func(t *testing.T, namespace string) *rig.Pool {
				r.Namespace(t, namespace, "")
				r.Refuse(t, namespace, `object.metadata.namespace != "denied"`, "no machines here")
				return r.Pool(t, namespace, namespace, 2)
			},
			reason: "MachineCreationFailed",
			says: []string{
				"creates no machine: ",
				"no machines here",
				"; it is tried again every 10s; ",
				"`kubectl describe machineset -n denied ",
			},
			mend:  func(t *testing.T, p *rig.Pool) { r.Permit(t, p.Namespace) },
			after: 2,
		},
	}
}
