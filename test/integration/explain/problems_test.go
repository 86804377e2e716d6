//go:build integration

package explain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/devstack/component"
	"millwright/process/problems"
	"millwright/test/integration/rig"
)

// missingRightRemedy is the beginning of the advice when a process lacks a right.
const missingRightRemedy = "is each of its roles bound, and of its version? kubectl get clusterrolebindings,rolebindings -A -o wide | grep "

// A worker loses its role, but keeps its Lease. The worker reports the problem, and explain prints why the worker
// cannot write the object.
func TestWorkerReportsItsMissingRole(t *testing.T) {
	p := newPool(t, "roleless", "", 1)
	p.AwaitRunningMachines(t, 1)
	restore := revokeRights(t, component.WorkerIdentity)
	p.Scale(t, 2)
	awaitReportedProblem(t, "worker", "the worker may not ", missingRightRemedy+"millwright-worker")
	rig.Eventually(t, "explain says it before the sentence", func() (bool, any) {
		said := testRig.RunMillwright(t, "explain", "machinedeployment/roleless", "-n", p.Namespace)
		return strings.HasPrefix(said[0], "The worker may not "), said
	})
	requireTextsInRunbook(t, "17", missingRightRemedy+"millwright-worker")
	restore()
	p.AwaitRunningMachines(t, 2)
	awaitNoProblems(t)
	p.Delete(t)
	p.AwaitPoolGone(t)
}

// A bridge starts without its role. The bridge writes on its Lease which right is missing.
func TestBridgeReportsItsMissingRoleAtStart(t *testing.T) {
	restore := revokeRights(t, component.BridgeIdentity)
	started := restartBridge(t)
	awaitReportedProblem(t, "bridge", "the bridge may not ", missingRightRemedy+"millwright-bridge")
	restore()
	require.NoError(t, <-started)
	awaitNoProblems(t)
}

// The API server no longer serves a resource that the worker and the bridge watch.
func TestBridgeReportsAResourceThatIsNotServed(t *testing.T) {
	const crd = "rolloutpolicies.machine.sapcloud.io"
	serve := func(served string) {
		require.NoError(t, testRig.Kube.Discovery().RESTClient().Patch(types.JSONPatchType).
			AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).
			Body([]byte(`[{"op":"replace","path":"/spec/versions/0/served","value":`+served+`}]`)).
			Do(context.WithoutCancel(t.Context())).Error())
	}
	serve("false")
	t.Cleanup(func() { serve("true") })
	started := restartBridge(t) // without a restart, the open watch of the bridge would end only minutes later
	awaitReportedProblem(
		t,
		"bridge",
		"the bridge cannot list "+crd,
		"is the CRD installed? kubectl api-resources --api-group=machine.sapcloud.io",
	)
	serve("true")
	require.NoError(t, <-started)
	awaitNoProblems(t)
}

// revokeRights deletes the rights of a user, and returns the function that restores them.
func revokeRights(t *testing.T, user string) (restore func()) {
	t.Helper()
	rights, err := testRig.RightsOfUser(t.Context(), user)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rights.Restore(context.Background()) })
	require.NoError(t, rights.Revoke(t.Context()))
	return func() { require.NoError(t, rights.Restore(t.Context())) }
}

// restartBridge stops the bridge, and starts it. The returned channel gets the result when the bridge is ready.
func restartBridge(t *testing.T) (started <-chan error) {
	t.Helper()
	require.NoError(t, testRig.Stack.StopComponent(t.Context(), component.Bridge))
	done := make(chan error, 1)
	go func() { done <- testRig.Stack.StartComponent(context.WithoutCancel(t.Context()), component.Bridge) }()
	return done
}

// problemTexts returns the problems on the Leases of a process.
func problemTexts(t *testing.T, process string) (texts []string) {
	t.Helper()
	leases, err := testRig.Kube.CoordinationV1().Leases(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, lease := range leases.Items {
		if lease.Name == "millwright-"+process {
			texts = append(texts, problemTextsOfLease(&lease, process)...)
		}
	}
	return texts
}

func problemTextsOfLease(lease *coordinationv1.Lease, process string) (texts []string) {
	for _, report := range problems.ReadReports(lease, time.Now()) {
		for _, p := range report.Problems {
			texts = append(texts, p.Text(process))
		}
	}
	return texts
}

// awaitReportedProblem waits until Lease, doctor and top name a problem of a process.
func awaitReportedProblem(t *testing.T, process, text, remedy string) {
	t.Helper()
	rig.Eventually(t, "the Lease of the "+process+" says: "+text, func() (bool, any) {
		texts := strings.Join(problemTexts(t, process), "\n")
		return strings.Contains(texts, text), texts
	})
	rig.Eventually(t, "doctor and top say: "+text, func() (bool, any) {
		doctor, failed := testRig.TryRunMillwright(t, "doctor")
		top, exits := testRig.TryRunMillwright(t, "top", "-A")
		return failed != nil && strings.Contains(doctor, "FAILED  "+process+" ") && strings.Contains(doctor, text) &&
			strings.Contains(doctor, remedy) && exits != nil && strings.Contains("\n"+top, "\n"+process+" ") &&
			strings.Contains(top, text), []string{doctor, top}
	})
}

// awaitNoProblems waits until no Lease has a problem, and doctor and top find none.
func awaitNoProblems(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "no process has a problem", func() (bool, any) {
		texts := append(problemTexts(t, "worker"), problemTexts(t, "bridge")...)
		return len(texts) == 0, texts
	})
	rig.Eventually(t, "doctor and top are content", func() (bool, any) {
		doctor, failed := testRig.TryRunMillwright(t, "doctor")
		top, exits := testRig.TryRunMillwright(t, "top", "-A")
		return failed == nil && exits == nil, []string{doctor, top}
	})
}
