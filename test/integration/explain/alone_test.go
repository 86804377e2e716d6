//go:build integration

package explain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

// Most nodes become not ready at once, and the breaker blocks the replacement of failed machines. The breaker counts
// all nodes of the cluster, so the test runs alone.
func TestAHeldReplacementIsExplained(t *testing.T) {
	testRig.CreateNamespace(t, "dark", "")
	p := testRig.CreatePool(t, "dark", "dark", 5, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: 10 * time.Second},
		}
	})
	p.AwaitRunningMachines(t, 5)
	nodes := p.Nodes(t)
	for _, n := range nodes {
		setNodeNotReady(t, n.Name)
	}
	s := situation{
		blockedReason: "ReplacementHeld",
		messageParts: []string{
			"failed machines are not replaced: ",
			"nodes look dead at once",
			"`kubectl get machines -n dark`",
		},
	}
	rig.Eventually(
		t,
		"the deployment is explained in all places",
		func() (bool, any) { return isDeploymentExplained(t, p, s) },
	)
	t.Log(blockedCondition(p.Deployment(t)).Message)
	requireTextsInRunbook(t, "10: the breaker holds replacements", s.messageParts...)
	for _, n := range nodes {
		labelNode(t, n.Name, "node-not-ready.stage.kwok.x-k8s.io-")
	}
	p.Delete(t)
}

// explain reports a call as hanging when the cloud has not answered for two minutes. During the first two minutes,
// millwright explain prints the time since when the call is open.
func TestExplainNamesAnOpenProviderCall(t *testing.T) {
	require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		b.HangPoints = map[admin.Operation]admin.HangPoint{admin.OperationCreate: admin.HangBeforeEffect}
	}))
	release := func() error {
		return testRig.Cloud.ChangeBehaviour(context.Background(), func(b *admin.Behaviour) { b.HangPoints = nil })
	}
	t.Cleanup(func() { _ = release() })
	p := newPool(t, "hanging", "", 1)
	rig.Eventually(t, "the open call is named", func() (bool, any) {
		machines := p.Machines(t)
		if len(machines) == 0 {
			return false, nil
		}
		lines := strings.Join(testRig.RunMillwright(t, "explain", "machine/"+machines[0].Name, "-n", p.Namespace), "\n")
		return strings.Contains(lines, "create-instance: attempt 1 is open since "), lines
	})
	require.Nil(t, blockedCondition(p.Deployment(t)), "a creation may take its time")
	s := situation{
		blockedReason: "ProviderCall",
		messageParts: []string{
			"1 of 1 machine waits for its instance",
			"the provider has not answered the call create-instance",
			"; if its instance is not ready, it is replaced at ",
			"`millwright explain machine/hanging-",
		},
	}
	rig.Eventually(
		t,
		"the deployment is explained in all places",
		func() (bool, any) { return isDeploymentExplained(t, p, s) },
	)
	requireTextsInRunbook(t, "12: the cloud does not answer", s.messageParts...)
	requireMachineExplained(t, p, s.blockedReason)
	require.NoError(t, release())
	p.AwaitRunningMachines(t, 1)
	p.Delete(t)
}

// Without worker and bridge, no process updates a status, so explain and doctor report that the worker and the bridge
// are missing. Without Temporal, explain and doctor report that Temporal does not answer.
func TestStoppedProcessesAreReported(t *testing.T) {
	p := newPool(t, "down", "", 1)
	p.AwaitRunningMachines(t, 1)
	testRig.RunMillwright(t, "doctor")
	start := func() error {
		var errs []error
		for _, name := range []string{component.Temporal, component.Worker, component.Bridge} {
			errs = append(errs, testRig.Stack.StartComponent(context.Background(), name))
		}
		return errors.Join(errs...)
	}
	t.Cleanup(func() { _ = start() })
	for _, name := range []string{component.Worker, component.Bridge} {
		require.NoError(t, testRig.Stack.StopComponent(t.Context(), name))
	}
	p.Scale(t, 2)
	rig.Eventually(t, "the missing processes are named before the sentence", func() (bool, any) {
		said := testRig.RunMillwright(t, "explain", "machinedeployment/down", "-n", p.Namespace)
		last := max(
			0,
			slices.IndexFunc(said, func(line string) bool { return strings.HasPrefix(line, "machinedeployment down/down") }),
		)
		down := strings.Join(said[:last], "\n")
		return strings.Contains(down, "No worker has been at work since ") &&
			strings.Contains(down, "No bridge has been at work since ") &&
			strings.Contains(down, "`millwright doctor` checks the whole installation") &&
			strings.Contains(down, "nobody has seen the change yet"), said
	})
	said, err := testRig.TryRunMillwright(t, "doctor")
	require.Error(t, err)
	for number, missing := range map[string]string{"13": "FAILED  heartbeats: No worker has been at work since ", "14": "FAILED  heartbeats: No bridge has been at work since "} {
		require.Contains(t, said, missing)
		requireTextsInRunbook(t, number, missing)
	}

	said, err = testRig.TryRunMillwright(t, "top", "-A")
	require.Error(t, err, "nobody writes what is in motion")
	require.Contains(t, said, "; no worker is at work since ")

	require.NoError(t, testRig.Stack.StopComponent(t.Context(), component.Temporal))
	said, err = testRig.TryRunMillwright(t, "doctor")
	require.Error(t, err)
	for _, part := range []string{"FAILED  Temporal and its namespace: ", "--temporal-address sets the address, else the variable TEMPORAL_ADDRESS"} {
		require.Contains(t, said, part)
		requireTextsInRunbook(t, "15", part)
	}
	require.Less(
		t,
		strings.Index(said, "Temporal and its namespace"),
		strings.Index(said, "FAILED  heartbeats"),
		"what others need comes first",
	)
	first := testRig.RunMillwright(t, "explain", "machinedeployment/down", "-n", p.Namespace)[0]
	require.Regexp(t, "^Temporal at .* does not answer: nothing moves until it does", first)
	requireTextsInRunbook(t, "15", "does not answer: nothing moves until it does")

	require.NoError(t, start())
	p.AwaitRunningMachines(t, 2)
	p.Delete(t)
}
