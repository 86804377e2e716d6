//go:build integration

package apifaults

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

const webhookName = "dead.example.com"

// failRequestsByWebhook makes requests with a verb and a resource fail: the API server calls a webhook that is down.
// The webhook is called for objects whose namespace begins with prefix. For an object without a namespace, the name
// must begin with prefix. The returned function removes the webhook.
func failRequestsByWebhook(t *testing.T, prefix, group, resource string, verb admissionv1.OperationType) (mend func()) {
	t.Helper()
	webhooks := testRig.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: prefix},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    webhookName,
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionv1.SideEffectClassNone),
			FailurePolicy:           new(admissionv1.Fail),
			ClientConfig:            admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/x")},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{verb},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
			}},
			MatchConditions: []admissionv1.MatchCondition{{
				Name:       "ours",
				Expression: `(has(request.namespace) ? request.namespace : request.name).startsWith("` + prefix + `")`,
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return func() {
		require.NoError(t, webhooks.Delete(context.WithoutCancel(t.Context()), prefix, metav1.DeleteOptions{}))
	}
}

// The API server rejects a write of Millwright because an admission webhook is down. The status of the waiting object
// contains the webhook's message as the only reason. When the webhook is removed, the object is reconciled.
func TestStatusNamesAWebhookThatIsDown(t *testing.T) {
	const name = "webhook"
	testRig.CreateNamespace(t, name, "")
	verify := startNamespaceChecker(t, name)
	before := cloudStats(t)
	p := testRig.CreatePool(t, name, name, 2)
	p.AwaitRunningMachines(t, 2)

	ofDeployment := func(t *testing.T) string {
		if o := p.Deployment(t).Status.CurrentOperation; o != nil {
			return o.WaitsFor
		}
		return ""
	}
	ofMachine := func(t *testing.T) string {
		for _, m := range p.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil && strings.Contains(o.WaitsFor, webhookName) {
				return o.WaitsFor
			}
		}
		return ""
	}
	ofEvents := func(t *testing.T) string {
		list, err := testRig.Kube.CoreV1().Events(name).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Machine" && e.Type == corev1.EventTypeWarning &&
				strings.Contains(e.Message, webhookName) {
				return e.Message
			}
		}
		return ""
	}
	for _, row := range []struct {
		group, resource string
		verb            admissionv1.OperationType
		change          func(t *testing.T)
		says            func(t *testing.T) string
		machines        int
	}{
		{v1alpha1.GroupName, "machines", admissionv1.Create, func(t *testing.T) { p.Scale(t, 3) }, ofDeployment, 3},
		{v1alpha1.GroupName, "machines", admissionv1.Update, func(t *testing.T) { p.Scale(t, 4) }, ofMachine, 4},
		{v1alpha1.GroupName, "machines", admissionv1.Delete, func(t *testing.T) { p.Scale(t, 3) }, ofDeployment, 3},
		{"", "nodes", admissionv1.Update, func(t *testing.T) { p.Scale(t, 2) }, ofMachine, 2},
		{v1alpha1.GroupName, "machinesets", admissionv1.Create, func(t *testing.T) {
			p.Patch(t, `{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`)
		}, ofDeployment, 2},
		{v1alpha1.GroupName, "machines/status", admissionv1.Update, func(t *testing.T) { p.Scale(t, 3) }, ofEvents, 3},
	} {
		t.Run(string(row.verb)+" "+row.resource, func(t *testing.T) {
			mend := failRequestsByWebhook(t, name, row.group, row.resource, row.verb)
			defer func() {
				if t.Failed() {
					mend()
				}
			}()
			row.change(t)
			var said string
			rig.Eventually(t, "somebody names the webhook", func() (bool, any) {
				said = row.says(t)
				return strings.Contains(said, webhookName), said
			})
			t.Log(said)
			require.NotContains(t, said, "does not answer")
			mend()
			p.AwaitRunningMachines(t, row.machines)
		})
	}
	requireCreateCount(t, before, 2+1+1+2+1)
	verify()
}

// If the API server refuses a label of the node template, the status of the machine names the label. After the template
// is corrected, the node has the labels of the template.
func TestStatusNamesAnInvalidNodeLabel(t *testing.T) {
	const name = "unfit"
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, 1)
	p.AwaitRunningMachines(t, 1)
	label := func(value string) {
		p.Patch(t, `{"spec":{"template":{"spec":{"nodeTemplate":{"metadata":{"labels":{"good":"yes","bad":"`+value+`"}}}}}}}`)
	}
	label("a b")
	rig.Eventually(t, "the machine names the label", func() (bool, any) {
		for _, m := range p.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil && strings.Contains(o.WaitsFor, "a b") {
				return true, o.WaitsFor
			}
		}
		return false, p.Machines(t)
	})
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"wait",
		"-n",
		name,
		"machine",
		"--all",
		"--for=condition=Blocked",
		"--timeout=5s",
	)
	require.NoError(t, err)
	label("ab")
	rig.Eventually(t, "the node has both labels", func() (bool, any) {
		for _, node := range p.Nodes(t) {
			if node.Labels["good"] == "yes" && node.Labels["bad"] == "ab" {
				return true, nil
			}
		}
		return false, p.Nodes(t)
	})
	rig.Eventually(t, "the machine waits for nothing", func() (bool, any) {
		machines := p.Machines(t)
		return len(machines) == 1 && machines[0].Status.CurrentOperation == nil, machines
	})
}
