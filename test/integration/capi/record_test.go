//go:build integration

package capi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/devstack/component"
	"millwright/test/integration/record"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// runsQuery returns a query for the runs of a workflow ID.
func runsQuery(id string) string { return fmt.Sprintf("WorkflowId = %q", id) }

// TestRecordClusterAPIHistories records the histories of the kinds of workflow that exist only for Cluster API.
func TestRecordClusterAPIHistories(t *testing.T) {
	record.SkipUnlessEnabled(t)
	for name, situation := range map[string]func(*testing.T){
		"sets": recordSetHistories, "a deployment": recordDeploymentHistories, "a staged deployment": recordStagedRolloutHistories, "a deployment that goes back": recordRollbackHistories, "drains": recordDrainHistories,
		"a deployment that is updated in place": recordInPlaceHistories,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			situation(t)
		})
	}
}

// recordSetHistories records a set that waits for a template, grows, and changes its machines. The set also releases
// and adopts a machine, is handed over, and is deleted.
func recordSetHistories(t *testing.T) {
	p := newPool(t, "recorded", 0)
	query := runsQuery(rig.Installation.ID(run.KindClusterAPISet, p.kubeRef(t)))
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		`{"spec":{"replicas":2,"template":{"spec":{"infrastructureRef":{"name":"nowhere"}}}}}`,
	)
	p.awaitConditionMessage(t, "MachinesCreated", "False", "TemplateNotFound", "")
	record.SaveLongestHistory(t, testRig, "clusterapiset/without-a-template", query+record.OpenRunsCondition)
	p.applyMergePatch(
		t,
		machineSetResource,
		p.poolName,
		fmt.Sprintf(`{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q}}}}}`, p.name),
	)
	p.awaitReplicaStatus(t, 2)
	calm := func() string { // calm waits for the end of the set's run, so that the next situation has its own history
		t.Helper()
		awaitLastRunQuery(t, query)
		return query + record.EndedRunsCondition
	}
	record.SaveLongestHistory(t, testRig, "clusterapiset/created", calm(), "CreateClusterAPIMachines")

	p.applyMergePatch(t, machineSetResource, p.poolName, `{"spec":{"template":{"metadata":{"labels":{"rank":"new"}}}}}`)
	p.awaitMachineLabel(t, "rank", "new")
	record.SaveLongestHistory(t, testRig, "clusterapiset/synced", calm(), "SyncClusterAPIMachines")

	m := p.listMachines(t)[0]
	p.applyMergePatch(t, machineResource, m.GetName(), `{"metadata":{"labels":{"pool":"elsewhere"}}}`)
	p.awaitReplicaStatus(t, 2)
	record.SaveLongestHistory(t, testRig, "clusterapiset/released", calm(), "ReleaseClusterAPIMachines")
	p.applyMergePatch(t, machineResource, m.GetName(), fmt.Sprintf(`{"metadata":{"labels":{"pool":%q}}}`, p.poolName))
	p.awaitObjectCounts(t, 2)
	p.awaitReplicaStatus(t, 2)
	record.SaveLongestHistory(t, testRig, "clusterapiset/adopted", calm(), "AdoptClusterAPIMachines")

	p.scale(t, 1)
	p.awaitReplicaStatus(t, 1)
	record.SaveLongestHistory(t, testRig, "clusterapiset/shrunk", calm(), "DeleteClusterAPIMachines")
	p.handOver(t, component.UpstreamFilterValue, upstreamSetFinalizer)
	p.handOver(t, component.MillwrightFilterValue, millwrightFinalizer)
	require.NoError(t, p.resourceClient(machineSetResource).Delete(t.Context(), p.poolName, metav1.DeleteOptions{}))
	p.awaitPoolGone(t)
	record.SaveLongestHistory(t, testRig, "clusterapiset/deleted", awaitLastRunQuery(t, query))
}

// recordInPlaceHistories records a deployment that a runtime extension updates in place: the old set hands machines
// over, and the current set begins the machines' updates.
func recordInPlaceHistories(t *testing.T) {
	u := newInPlaceFleet(t, "recorded-updates", inPlaceReplacements(1, 0)...)
	u.setInfrastructureTemplate(t, u.poolName+"-2")
	u.awaitUpdatedMachines(t, 2)
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapirollout/updated-in-place",
		u.rolloutQueryForRevision(t, 2)+record.EndedRunsCondition,
		"AskExtension",
	)
	sets := fmt.Sprintf(
		`WorkflowType = "ClusterAPISet" AND MachineDeployment = %q`,
		u.poolName,
	) + record.EndedRunsCondition
	record.SaveLongestHistory(t, testRig, "clusterapiset/moved", sets, "MoveClusterAPIMachines")
	record.SaveLongestHistory(t, testRig, "clusterapiset/updated-in-place", sets, "UpdateClusterAPIMachines")
}

// awaitLastRunQuery waits until all runs of a query have ended, and returns the query for the newest run.
func awaitLastRunQuery(t *testing.T, query string) string {
	t.Helper()
	rig.Eventually(t, "all runs have ended", func() (bool, any) {
		open := testRig.WorkflowRuns(t, query+record.OpenRunsCondition)
		return len(open) == 0, open
	})
	return query + fmt.Sprintf(" AND RunId = %q", testRig.WorkflowRuns(t, query)[0].Execution.RunId)
}

// recordDeploymentHistories records a deployment that is created, rolled out, scaled during the rollout, and deleted.
// recordDeploymentHistories also starts a second rollout before the first rollout has ended.
func recordDeploymentHistories(t *testing.T) {
	f := newFleet(t, "recorded-fleet", 2)
	query := runsQuery(rig.Installation.ID(run.KindClusterAPIDeployment, f.kubeRef(t)))
	f.awaitMachinesOfTemplate(t, f.name, 2)
	f.setInfrastructureTemplate(t, "recorded-fleet-2")
	f.awaitConditionMessage(t, "Blocked", "True", "TemplateNotFound", "recorded-fleet-2")
	record.SaveLongestHistory(t, testRig, "clusterapideployment/without-a-template", query+record.OpenRunsCondition)
	f.newInfrastructureTemplate(t, "recorded-fleet-2")
	rig.Eventually(t, "a machine of the new template", func() (bool, any) {
		made := f.countMachinesByTemplate(t)
		return made["recorded-fleet-2"] > 0, made
	})
	record.SaveLongestHistory(t, testRig, "clusterapideployment/rolling", query+record.OpenRunsCondition)
	record.SaveLongestHistory(t, testRig, "clusterapirollout/rolling", f.rolloutsQuery()+record.OpenRunsCondition)
	f.scale(t, 3)
	f.newInfrastructureTemplate(t, "recorded-fleet-3")
	f.setInfrastructureTemplate(t, "recorded-fleet-3")
	f.awaitMachinesOfTemplate(t, "recorded-fleet-3", 3)
	f.awaitConditionMessage(t, "RollingOut", "False", "NotRollingOut", "")
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapirollout/superseded",
		f.rolloutQueryForRevision(t, 2)+record.EndedRunsCondition,
	)
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapirollout/completed",
		f.rolloutQueryForRevision(t, 3)+record.EndedRunsCondition,
	)
	rig.Eventually(t, "it has settled", func() (bool, any) {
		list := testRig.WorkflowRuns(t, query+` AND ExecutionStatus = "ContinuedAsNew"`)
		return len(list) > 0, list
	})
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapideployment/continued-as-new",
		query+` AND ExecutionStatus = "ContinuedAsNew"`,
	)
	require.NoError(t, f.resourceClient(machineDeploymentResource).Delete(t.Context(), f.poolName, metav1.DeleteOptions{}))
	f.awaitPoolGone(t)
	record.SaveLongestHistory(t, testRig, "clusterapideployment/deleted", awaitLastRunQuery(t, query))
}

// rolloutsQuery returns a query for the rollouts of the fleet.
func (f fleet) rolloutsQuery() string {
	return fmt.Sprintf("WorkflowType = %q AND MachineDeployment = %q", run.KindClusterAPIRollout, f.poolName)
}

// rolloutQueryForRevision returns a query for the rollout of a revision.
func (f fleet) rolloutQueryForRevision(t *testing.T, revision int64) string {
	t.Helper()
	return runsQuery(rig.Installation.ID(run.KindClusterAPIRollout, f.kubeRef(t), revision))
}

// recordStagedRolloutHistories records a rollout that waits for an approval. A person pauses, resumes, cancels and
// approves the rollout. After the rollout, another run of the deployment's workflow starts. Then the deployment is
// handed over.
func recordStagedRolloutHistories(t *testing.T) {
	f := newFleet(t, "recorded-stages", 2)
	testRig.CreatePolicy(
		t,
		f.name,
		f.poolName,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	id := rig.Installation.ID(run.KindClusterAPIDeployment, f.kubeRef(t))
	f.awaitMachinesOfTemplate(t, f.name, 2)
	f.newInfrastructureTemplate(t, "recorded-stages-2")
	f.setInfrastructureTemplate(t, "recorded-stages-2")
	waits := func(revision int64) {
		t.Helper()
		rig.Eventually(t, "it waits for a person", func() (bool, any) {
			list := testRig.WorkflowRuns(
				t,
				f.rolloutQueryForRevision(t, revision)+record.OpenRunsCondition+" AND Step = 'await-approval'",
			)
			return len(list) == 1, f.conditionLines(t)
		})
	}
	ask := func(command request.Command) {
		t.Helper()
		f.sendRequestByUpdate(t, run.RequestInput{Command: command, Reason: "a recording"})
	}
	waits(2)
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapirollout/waiting",
		f.rolloutQueryForRevision(t, 2)+record.OpenRunsCondition,
	)
	ask(request.Pause)
	ask(request.Resume)
	waits(2)
	require.NoError(
		t,
		testRig.Temporal.CancelWorkflow(t.Context(), rig.Installation.ID(run.KindClusterAPIRollout, f.kubeRef(t), 2), ""),
	)
	rig.Eventually(t, "the rollout is held", func() (bool, any) {
		held := f.getObject(t, machineDeploymentResource, f.poolName).GetAnnotations()[v1alpha1.AnnotationRolloutHold]
		return held != "", f.conditionLines(t)
	})
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapirollout/cancelled",
		f.rolloutQueryForRevision(t, 2)+record.EndedRunsCondition,
	)
	ask(request.Resume)
	waits(2)
	require.NoError(t, testRig.Temporal.TerminateWorkflow(t.Context(), id, "", "a recording"))
	f.scale(t, 3)
	rig.Eventually(t, "another run", func() (bool, any) {
		open := testRig.WorkflowRuns(t, runsQuery(id)+record.OpenRunsCondition)
		return len(open) == 1, open
	})
	testRig.AwaitDeploymentFollowsRollout(t, rig.Installation.ID(run.KindClusterAPIRollout, f.kubeRef(t), 2), id)
	ask(request.Approve)
	f.awaitMachinesOfTemplate(t, "recorded-stages-2", 3)
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapirollout/followed",
		f.rolloutQueryForRevision(t, 2)+record.EndedRunsCondition,
	)
	record.SaveLongestHistory(t, testRig, "clusterapideployment/following", runsQuery(id))
	f.handOver(t, component.UpstreamFilterValue, upstreamDeploymentFinalizer)
	record.SaveLongestHistory(t, testRig, "clusterapideployment/handed-over", awaitLastRunQuery(t, runsQuery(id)))
	require.NoError(t, f.resourceClient(machineDeploymentResource).Delete(t.Context(), f.poolName, metav1.DeleteOptions{}))
	f.awaitPoolGone(t)
}

// recordRollbackHistories records a rollout that makes no progress and rolls back automatically.
func recordRollbackHistories(t *testing.T) {
	f := newFleet(t, "recorded-late", 1)
	testRig.CreatePolicy(
		t,
		f.name,
		f.poolName,
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
	f.awaitMachinesOfTemplate(t, f.name, 1)
	f.newInfrastructureTemplate(t, "recorded-late-2", "1h", "backend", "inMemory", "vm", "provisioning", "startupDuration")
	f.patchPool(
		t,
		fmt.Sprintf(
			`{"metadata":{"annotations":{%q:"10"}},"spec":{"template":{"spec":{"infrastructureRef":{"name":"recorded-late-2"}}}}}`,
			progressDeadlineAnnotation,
		),
	)
	rig.Eventually(t, "it goes back by itself", func() (bool, any) {
		progress := f.getObject(t, machineDeploymentResource, f.poolName).GetAnnotations()[v1alpha1.AnnotationRolloutProgress]
		return strings.Contains(progress, `"pin":`), f.conditionLines(t)
	})
	f.awaitMachinesOfTemplate(t, f.name, 1)
	record.SaveLongestHistory(
		t,
		testRig,
		"clusterapirollout/rolled-back",
		f.rolloutQueryForRevision(t, 2)+record.EndedRunsCondition,
		"ReportClusterAPIDeployment",
	)
}

// recordDrainHistories records a drain that a budget blocks, and that a person holds and resumes. recordDrainHistories
// also records a drain that is skipped, and a drain that is cancelled.
func recordDrainHistories(t *testing.T) {
	p := newPoolWithDrains(t, "recorded-drains", 3)
	all := p.listMachines(t)
	remove := func(n int) (name, query string) {
		t.Helper()
		m := all[n]
		app := fmt.Sprintf("app-%d", n)
		p.placePod(t, app, nodeNameOfMachine(m), map[string]string{"app": app})
		p.newBudget(t, app)
		p.applyMergePatch(
			t,
			machineResource,
			m.GetName(),
			`{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`,
		)
		p.scale(t, len(all)-1-n)
		p.awaitBlockedDrain(t, m.GetName(), "PodDisruptionBudget "+p.name+"/"+app)
		return m.GetName(), runsQuery(
			rig.Installation.ID(
				run.KindClusterAPIDrain,
				kube.Ref{Namespace: p.name, Name: m.GetName(), UID: string(m.GetUID())},
			),
		)
	}
	name, query := remove(0)
	record.SaveLongestHistory(t, testRig, "clusterapidrain/blocked", query+record.OpenRunsCondition)
	testRig.RunMillwright(t, "drain", "hold", "--reason", "a recording", p.name+"/"+name)
	p.awaitBlockedDrain(t, name, "a recording")
	testRig.RunMillwright(t, "drain", "resume", p.name+"/"+name)
	p.awaitBlockedDrain(t, name, "PodDisruptionBudget")
	_, err := testRig.Kube.PolicyV1().
		PodDisruptionBudgets(p.name).
		Patch(t.Context(), "app-0", types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	p.awaitPodDeletion(t, "app-0")
	p.awaitMachineGone(t, name)
	record.SaveLongestHistory(t, testRig, "clusterapidrain/drained", query+record.EndedRunsCondition)

	name, query = remove(1)
	testRig.RunMillwright(t, "drain", "skip", "--reason", "a recording", p.name+"/"+name)
	p.awaitMachineGone(t, name)
	record.SaveLongestHistory(t, testRig, "clusterapidrain/skipped", query+record.EndedRunsCondition)

	name, query = remove(2)
	open := testRig.WorkflowRuns(t, query+record.OpenRunsCondition)
	require.Len(t, open, 1)
	require.NoError(t, testRig.Temporal.CancelWorkflow(t.Context(), open[0].Execution.WorkflowId, ""))
	p.awaitBlockedDrain(t, name, "was cancelled in Temporal")
	record.SaveLongestHistory(t, testRig, "clusterapidrain/cancelled", query+` AND ExecutionStatus = "Canceled"`)
	testRig.RunMillwright(t, "drain", "skip", "--reason", "a recording", p.name+"/"+name)
	p.awaitMachineGone(t, name)
}
