//go:build integration

package capi

import (
	"fmt"
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

// runsOf is a query for the runs of a workflow.
func runsOf(id string) string { return fmt.Sprintf("WorkflowId = %q", id) }

// TestRecord records the histories of the kinds of workflow that exist for Cluster API alone.
func TestRecord(t *testing.T) {
	record.Begin(t)
	for name, situation := range map[string]func(*testing.T){
		"sets": recordSets, "a deployment": recordDeployment, "a staged deployment": recordStages, "a deployment that goes back": recordRollback, "drains": recordDrains,
		"a deployment that is updated in place": recordInPlace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			situation(t)
		})
	}
}

// A set waits for a template, grows, changes its machines, lets a machine go and takes it back, is handed over, and
// goes.
func recordSets(t *testing.T) {
	p := newPool(t, "recorded", 0)
	query := runsOf(rig.Installation.ID(run.KindClusterAPISet, p.ref(t)))
	p.merge(t, machineSets, p.set, `{"spec":{"replicas":2,"template":{"spec":{"infrastructureRef":{"name":"nowhere"}}}}}`)
	p.awaitMessage(t, "MachinesCreated", "False", "TemplateNotFound", "")
	record.Save(t, r, "clusterapiset/without-a-template", query+record.Open)
	p.merge(t, machineSets, p.set, fmt.Sprintf(`{"spec":{"template":{"spec":{"infrastructureRef":{"name":%q}}}}}`, p.name))
	p.awaitStatus(t, 2)
	calm := func() string { // with the run of the set ended, the next situation is in another history
		t.Helper()
		lastOf(t, query)
		return query + record.Ended
	}
	record.Save(t, r, "clusterapiset/created", calm(), "CreateClusterAPIMachines")

	p.merge(t, machineSets, p.set, `{"spec":{"template":{"metadata":{"labels":{"rank":"new"}}}}}`)
	p.awaitLabel(t, "rank", "new")
	record.Save(t, r, "clusterapiset/synced", calm(), "SyncClusterAPIMachines")

	m := p.members(t)[0]
	p.merge(t, machines, m.GetName(), `{"metadata":{"labels":{"pool":"elsewhere"}}}`)
	p.awaitStatus(t, 2)
	record.Save(t, r, "clusterapiset/released", calm(), "ReleaseClusterAPIMachines")
	p.merge(t, machines, m.GetName(), fmt.Sprintf(`{"metadata":{"labels":{"pool":%q}}}`, p.set))
	p.awaitCounts(t, 2)
	p.awaitStatus(t, 2)
	record.Save(t, r, "clusterapiset/adopted", calm(), "AdoptClusterAPIMachines")

	p.resize(t, 1)
	p.awaitStatus(t, 1)
	record.Save(t, r, "clusterapiset/shrunk", calm(), "DeleteClusterAPIMachines")
	p.give(t, component.UpstreamFilter, theirFinalizer)
	p.give(t, component.OurFilter, ourFinalizer)
	require.NoError(t, p.of(machineSets).Delete(t.Context(), p.set, metav1.DeleteOptions{}))
	p.gone(t)
	record.Save(t, r, "clusterapiset/deleted", lastOf(t, query))
}

// A deployment is updated in place by a runtime extension: its former set hands machines over, and the current one
// begins their updates.
func recordInPlace(t *testing.T) {
	u := newUpdated(t, "recorded-updates", inPlace(1, 0)...)
	u.change(t, u.set+"-2")
	u.awaitUpdated(t, 2)
	record.Save(t, r, "clusterapirollout/updated-in-place", u.rolloutOf(t, 2)+record.Ended, "AskExtension")
	sets := fmt.Sprintf(`WorkflowType = "ClusterAPISet" AND MachineDeployment = %q`, u.set) + record.Ended
	record.Save(t, r, "clusterapiset/moved", sets, "MoveClusterAPIMachines")
	record.Save(t, r, "clusterapiset/updated-in-place", sets, "UpdateClusterAPIMachines")
}

// lastOf narrows a query to the newest run, which has ended.
func lastOf(t *testing.T, query string) string {
	t.Helper()
	rig.Eventually(t, "all runs have ended", func() (bool, any) {
		open := r.Workflows(t, query+record.Open)
		return len(open) == 0, open
	})
	return query + fmt.Sprintf(" AND RunId = %q", r.Workflows(t, query)[0].Execution.RunId)
}

// A deployment is made, rolled out, scaled meanwhile, rolled out again before that is over, and deleted.
func recordDeployment(t *testing.T) {
	f := newFleet(t, "recorded-fleet", 2)
	query := runsOf(rig.Installation.ID(run.KindClusterAPIDeployment, f.ref(t)))
	f.awaitMade(t, f.name, 2)
	f.change(t, "recorded-fleet-2")
	f.awaitMessage(t, "Blocked", "True", "TemplateNotFound", "recorded-fleet-2")
	record.Save(t, r, "clusterapideployment/without-a-template", query+record.Open)
	f.template(t, "recorded-fleet-2")
	rig.Eventually(t, "a machine of the new template", func() (bool, any) {
		made := f.made(t)
		return made["recorded-fleet-2"] > 0, made
	})
	record.Save(t, r, "clusterapideployment/rolling", query+record.Open)
	record.Save(t, r, "clusterapirollout/rolling", f.rollouts()+record.Open)
	f.resize(t, 3)
	f.template(t, "recorded-fleet-3")
	f.change(t, "recorded-fleet-3")
	f.awaitMade(t, "recorded-fleet-3", 3)
	f.awaitMessage(t, "RollingOut", "False", "NotRollingOut", "")
	record.Save(t, r, "clusterapirollout/superseded", f.rolloutOf(t, 2)+record.Ended)
	record.Save(t, r, "clusterapirollout/completed", f.rolloutOf(t, 3)+record.Ended)
	rig.Eventually(t, "it has settled", func() (bool, any) {
		list := r.Workflows(t, query+` AND ExecutionStatus = "ContinuedAsNew"`)
		return len(list) > 0, list
	})
	record.Save(t, r, "clusterapideployment/continued-as-new", query+` AND ExecutionStatus = "ContinuedAsNew"`)
	require.NoError(t, f.of(machineDeployments).Delete(t.Context(), f.set, metav1.DeleteOptions{}))
	f.gone(t)
	record.Save(t, r, "clusterapideployment/deleted", lastOf(t, query))
}

// rollouts is a query for the rollouts of the fleet.
func (f fleet) rollouts() string {
	return fmt.Sprintf("WorkflowType = %q AND MachineDeployment = %q", run.KindClusterAPIRollout, f.set)
}

// rolloutOf is a query for the rollout of a revision.
func (f fleet) rolloutOf(t *testing.T, revision int64) string {
	t.Helper()
	return runsOf(rig.Installation.ID(run.KindClusterAPIRollout, f.ref(t), revision))
}

// A rollout waits for a person, who pauses, resumes, cancels and approves it; it is followed by another run of the
// deployment's workflow; the deployment is handed over.
func recordStages(t *testing.T) {
	f := newFleet(t, "recorded-stages", 2)
	r.Policy(
		t,
		f.name,
		f.set,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	id := rig.Installation.ID(run.KindClusterAPIDeployment, f.ref(t))
	f.awaitMade(t, f.name, 2)
	f.template(t, "recorded-stages-2")
	f.change(t, "recorded-stages-2")
	waits := func(revision int64) {
		t.Helper()
		rig.Eventually(t, "it waits for a person", func() (bool, any) {
			list := r.Workflows(t, f.rolloutOf(t, revision)+record.Open+" AND Step = 'await-approval'")
			return len(list) == 1, f.says(t)
		})
	}
	ask := func(command request.Command) {
		t.Helper()
		f.request(t, run.RequestInput{Command: command, Reason: "a recording"})
	}
	waits(2)
	record.Save(t, r, "clusterapirollout/waiting", f.rolloutOf(t, 2)+record.Open)
	ask(request.Pause)
	ask(request.Resume)
	waits(2)
	require.NoError(
		t,
		r.Temporal.CancelWorkflow(t.Context(), rig.Installation.ID(run.KindClusterAPIRollout, f.ref(t), 2), ""),
	)
	rig.Eventually(t, "the rollout is held", func() (bool, any) {
		held := f.get(t, machineDeployments, f.set).GetAnnotations()[v1alpha1.AnnotationRolloutHold]
		return held != "", f.says(t)
	})
	record.Save(t, r, "clusterapirollout/cancelled", f.rolloutOf(t, 2)+record.Ended)
	ask(request.Resume)
	waits(2)
	require.NoError(t, r.Temporal.TerminateWorkflow(t.Context(), id, "", "a recording"))
	f.resize(t, 3)
	rig.Eventually(t, "another run", func() (bool, any) {
		open := r.Workflows(t, runsOf(id)+record.Open)
		return len(open) == 1, open
	})
	r.AwaitFollowed(t, rig.Installation.ID(run.KindClusterAPIRollout, f.ref(t), 2), id)
	ask(request.Approve)
	f.awaitMade(t, "recorded-stages-2", 3)
	record.Save(t, r, "clusterapirollout/followed", f.rolloutOf(t, 2)+record.Ended)
	record.Save(t, r, "clusterapideployment/following", runsOf(id))
	f.give(t, component.UpstreamFilter, theirDeploymentsFinalizer)
	record.Save(t, r, "clusterapideployment/handed-over", lastOf(t, runsOf(id)))
	require.NoError(t, f.of(machineDeployments).Delete(t.Context(), f.set, metav1.DeleteOptions{}))
	f.gone(t)
}

// A rollout that makes no progress goes back on its own.
func recordRollback(t *testing.T) {
	f := newFleet(t, "recorded-late", 1)
	r.Policy(
		t,
		f.name,
		f.set,
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
	f.awaitMade(t, f.name, 1)
	f.template(t, "recorded-late-2", "1h", "backend", "inMemory", "vm", "provisioning", "startupDuration")
	f.patch(
		t,
		fmt.Sprintf(
			`{"metadata":{"annotations":{%q:"10"}},"spec":{"template":{"spec":{"infrastructureRef":{"name":"recorded-late-2"}}}}}`,
			annotationProgressDeadline,
		),
	)
	rig.Eventually(t, "it goes back by itself", func() (bool, any) {
		return f.get(t, machineDeployments, f.set).GetAnnotations()[v1alpha1.AnnotationAutomaticRollbackTo] != "", f.says(t)
	})
	f.awaitMade(t, f.name, 1)
	record.Save(t, r, "clusterapirollout/rolled-back", f.rolloutOf(t, 2)+record.Ended, "RollBackClusterAPIDeployment")
}

// A budget blocks a drain, which is held and goes on; another one is skipped, and a third one is cancelled.
func recordDrains(t *testing.T) {
	p := drainedPool(t, "recorded-drains", 3)
	all := p.members(t)
	remove := func(n int) (name, query string) {
		t.Helper()
		m := all[n]
		app := fmt.Sprintf("app-%d", n)
		p.place(t, app, nodeOf(m), map[string]string{"app": app})
		p.budget(t, app)
		p.merge(t, machines, m.GetName(), `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`)
		p.resize(t, len(all)-1-n)
		p.awaitBlocked(t, m.GetName(), "PodDisruptionBudget "+p.name+"/"+app)
		return m.GetName(), runsOf(
			rig.Installation.ID(
				run.KindClusterAPIDrain,
				kube.Ref{Namespace: p.name, Name: m.GetName(), UID: string(m.GetUID())},
			),
		)
	}
	name, query := remove(0)
	record.Save(t, r, "clusterapidrain/blocked", query+record.Open)
	r.Millwright(t, "drain", "hold", "--reason", "a recording", p.name+"/"+name)
	p.awaitBlocked(t, name, "a recording")
	r.Millwright(t, "drain", "resume", p.name+"/"+name)
	p.awaitBlocked(t, name, "PodDisruptionBudget")
	_, err := r.Kube.PolicyV1().
		PodDisruptionBudgets(p.name).
		Patch(t.Context(), "app-0", types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	p.told(t, "app-0")
	p.awaitMachineGone(t, name)
	record.Save(t, r, "clusterapidrain/drained", query+record.Ended)

	name, query = remove(1)
	r.Millwright(t, "drain", "skip", "--reason", "a recording", p.name+"/"+name)
	p.awaitMachineGone(t, name)
	record.Save(t, r, "clusterapidrain/skipped", query+record.Ended)

	name, query = remove(2)
	open := r.Workflows(t, query+record.Open)
	require.Len(t, open, 1)
	require.NoError(t, r.Temporal.CancelWorkflow(t.Context(), open[0].Execution.WorkflowId, ""))
	p.awaitBlocked(t, name, "was cancelled in Temporal")
	record.Save(t, r, "clusterapidrain/cancelled", query+` AND ExecutionStatus = "Canceled"`)
	r.Millwright(t, "drain", "skip", "--reason", "a recording", p.name+"/"+name)
	p.awaitMachineGone(t, name)
}
