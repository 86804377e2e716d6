// Tier: test for the command line; test-all for every situation in which an object is blocked.

//go:build integration

// Package explain tests that the same sentence explains a blocked object in four places: the status, its printer
// column, the page of the workflow in Temporal's UI, and the command millwright explain.
package explain

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	os.Exit(rig.MainOnSharedStack(m, func(up *rig.Rig) { testRig = up }))
}

func TestBlockedObjectsAreExplained(t *testing.T) {
	require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		b.Quotas, b.AcceptedTokens = map[string]int{"eu-q": 1}, []string{rig.CanaryToken}
	}))
	for name, s := range situations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.createPool(t, s.namespace)
			rig.Eventually(
				t,
				"the deployment is explained in all places",
				func() (bool, any) { return isDeploymentExplained(t, p, s) },
			)
			kind := "machinedeployment"
			rig.Eventually(t, "explain and rollout status say what the status says", func() (bool, any) {
				// the sentence changes if a new attempt names another machine
				said := fmt.Sprintf("%s %s/%s: %s", kind, p.Namespace, p.Name, p.Deployment(t).Status.CurrentOperation.WaitsFor)
				explained := testRig.RunMillwright(t, "explain", kind+"/"+p.Name, "-n", p.Namespace)[0]
				status := testRig.RunMillwright(t, "rollout", "status", p.Name, "-n", p.Namespace)[0]
				return explained == said && status == said, []string{said, explained, status}
			})
			requireTextsInRunbook(t, name, s.messageParts...)
			if operation := p.Deployment(t).Status.CurrentOperation; s.maxWait > 0 {
				require.LessOrEqual(t, operation.Deadline.Sub(operation.Since.Time), s.maxWait, operation.WaitsFor)
			}
			if !s.noMachineWaits {
				requireMachineExplained(t, p, s.blockedReason)
			}
			if s.removeCause == nil {
				p.Delete(t)
				return
			}
			s.removeCause(t, p)
			rig.Eventually(t, "nothing is blocked any more", func() (bool, any) {
				d := p.Deployment(t)
				return blockedCondition(d) == nil && int(d.Status.AvailableReplicas) == s.runningMachineCount, d.Status
			})
		})
	}
}

// requireTextsInRunbook requires that the section of a situation in docs/runbook.md contains these texts. The headings
// of the sections and the names of the situations begin with the same number.
func requireTextsInRunbook(t *testing.T, situation string, says ...string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/runbook.md")
	require.NoError(t, err)
	number, _, _ := strings.Cut(situation, ":")
	_, section, found := strings.Cut(string(page), "\n### "+number+". ")
	require.True(t, found, "the runbook has no section %s", number)
	section, _, _ = strings.Cut(section, "\n### ")
	for _, part := range says {
		require.Contains(t, section, part)
	}
}

// isDeploymentExplained reports whether four places explain a deployment with the same sentence: the condition Blocked,
// the current operation, the printer column and the workflow's page.
func isDeploymentExplained(t *testing.T, p *rig.Pool, s situation) (bool, any) {
	d := p.Deployment(t)
	blocked, operation := blockedCondition(d), d.Status.CurrentOperation
	if blocked == nil || operation == nil || blocked.Reason != s.blockedReason {
		var saw []string
		for _, m := range p.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil {
				saw = append(saw, fmt.Sprintf("machine %s: %s %v", m.Name, o.WaitsFor, o.BlockedBy))
			}
		}
		return false, append(saw, fmt.Sprint(d.Status))
	}
	for _, part := range s.messageParts {
		if !strings.Contains(blocked.Message, part) {
			return false, blocked.Message + " lacks " + part
		}
	}
	if operation.WaitsFor != blocked.Message || len(operation.BlockedBy) == 0 {
		return false, operation
	}
	column, err := testRig.Stack.RunKubectl(
		t.Context(),
		"get",
		"machinedeployment",
		"-n",
		p.Namespace,
		p.Name,
		"--no-headers",
	)
	require.NoError(t, err)
	if operation.Summary == "" || !strings.HasSuffix(strings.TrimSpace(string(column)), "  "+operation.Summary) {
		return false, string(column)
	}
	id := operation.WorkflowID
	if id == "" || operation.RolloutOf == "" {
		id = fmt.Sprintf("devstack/machinedeployment/%s/%s/%s", p.Namespace, p.Name, d.UID)
	}
	page := testRig.WorkflowDetails(t, id)
	if first, _, _ := strings.Cut(page, "\n"); first != blocked.Message {
		return false, page
	}
	open := testRig.WorkflowRuns(
		t,
		fmt.Sprintf(
			`Stuck = true AND ExecutionStatus = "Running" AND MachineNamespace = %q AND MachineDeployment = %q`,
			p.Namespace,
			p.Name,
		),
	)
	return len(open) > 0, "no open run is Stuck"
}

// requireMachineExplained waits until the four places have the same sentence for at least one blocked machine.
func requireMachineExplained(t *testing.T, p *rig.Pool, reason string) {
	rig.Eventually(t, "a machine is explained in all places", func() (bool, any) {
		var saw []any
		for _, m := range p.Machines(t) {
			i := -1
			for j, c := range m.Status.Conditions {
				if c.Type == v1alpha1.MachineBlocked && c.Reason == reason {
					i = j
				}
			}
			if i < 0 {
				continue
			}
			sentence, operation := m.Status.Conditions[i].Message, m.Status.CurrentOperation
			lines := testRig.RunMillwright(t, "explain", "machine/"+m.Name, "-n", p.Namespace)
			page, _, _ := strings.Cut(testRig.WorkflowDetails(t, operation.WorkflowID), "\n")
			column, err := testRig.Stack.RunKubectl(t.Context(), "get", "machine", "-n", p.Namespace, m.Name, "--no-headers")
			require.NoError(t, err)
			// the output of explain does not contain the hint to run explain
			own := fmt.Sprintf("; `millwright explain machine/%s -n %s`", m.Name, p.Namespace)
			printed := strings.TrimSuffix(sentence, own)
			said := m.DeletionTimestamp == nil ||
				strings.TrimSuffix(testRig.RunMillwright(t, "drain", "explain", m.Name, "-n", p.Namespace)[0], own) == lines[0]
			if said && operation.WaitsFor == sentence && page == sentence && strings.HasSuffix(lines[0], ": "+printed) &&
				operation.Summary != "" && strings.HasSuffix(strings.TrimSpace(string(column)), "  "+operation.Summary) {
				return true, nil
			}
			saw = append(saw, sentence, page, lines[0], string(column))
		}
		return false, saw
	})
}

func blockedCondition(d *v1alpha1.MachineDeployment) *v1alpha1.MachineDeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == v1alpha1.MachineDeploymentBlocked {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

func newPool(t *testing.T, namespace, providerSpec string, replicas int32) *rig.Pool {
	t.Helper()
	testRig.CreateNamespace(t, namespace, providerSpec)
	return testRig.CreatePool(t, namespace, namespace, replicas)
}

// newPoolWithPods creates a pool with one pod of the app web on each node.
func newPoolWithPods(t *testing.T, namespace string, replicas int32) *rig.Pool {
	t.Helper()
	testRig.CreateNamespace(t, namespace, "")
	p := testRig.CreatePool(t, namespace, namespace, replicas, rig.WithNodeLabel)
	p.AwaitRunningMachines(t, int(replicas))
	p.AwaitLabelledNodes(t, int(replicas))
	p.DeployPods(t, "web", replicas, func(pod *corev1.PodTemplateSpec) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	})
	return p
}

// setCloudToken writes a token for the cloud into the Secret of a namespace's class.
func setCloudToken(t *testing.T, namespace, token string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"stringData":{"token":%q}}`, token)
	_, err := testRig.Kube.CoreV1().
		Secrets(namespace).
		Patch(t.Context(), "small", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// setNodeNotReady makes the kubelet of a node report that the node is not ready.
func setNodeNotReady(t *testing.T, node string) {
	labelNode(t, node, "node-not-ready.stage.kwok.x-k8s.io=true")
}

func labelNode(t *testing.T, node, change string) {
	t.Helper()
	_, err := testRig.Stack.RunKubectl(t.Context(), "label", "node", node, change)
	require.NoError(t, err)
}

// setVolumesInUse makes the nodes of a pool report the volumes of the pool's pods as in use, or as not in use.
// Kubernetes detaches no volume that is in use.
func setVolumesInUse(t *testing.T, p *rig.Pool, inUse bool) {
	t.Helper()
	volumes := map[string][]string{}
	for volume, attachment := range p.AttachmentsByVolume(t) {
		volumes[attachment.Spec.NodeName] = append(
			volumes[attachment.Spec.NodeName],
			"kubernetes.io/csi/"+rig.CSIDriverName+"^"+volume,
		)
	}
	for node, of := range volumes {
		if !inUse {
			of = nil
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": of}})
		require.NoError(t, err)
		_, err = testRig.Kube.CoreV1().
			Nodes().
			Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
}
