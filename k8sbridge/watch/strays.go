package watch

import (
	"context"
	"fmt"

	"go.temporal.io/api/workflowservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/observe/cache"
	"millwright/workflows/run"
)

// strayPage is the number of open runs in a page of Temporal's list. Source: the largest page that Temporal's server returns.
const strayPage = 1000

// wakeStrays signals each open run whose object does not exist any more. A deletion that no leader has seen is in no cache, and a
// run that waits without a timer would stay open for ever. The run itself finds out that its object is gone.
func (b *Bridge) wakeStrays(ctx context.Context) error {
	known := map[string]bool{}
	for _, resource := range []cache.Resource{cache.Machines, cache.Sets, cache.Deployments, cache.Classes} {
		for _, item := range b.cluster.Informer(resource).GetStore().List() {
			known[string(item.(metav1.Object).GetUID())] = true
		}
	}
	query := fmt.Sprintf("ExecutionStatus = 'Running' AND WorkflowType IN ('%s', '%s', '%s', '%s', '%s')",
		run.KindMachine, run.KindMachineSet, run.KindMachineDeployment, run.KindMachineClass, run.KindRollout)
	var page []byte
	for {
		list, err := b.starter.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query, PageSize: strayPage, NextPageToken: page})
		if err != nil {
			return fmt.Errorf("list open runs: %w", err)
		}
		for _, open := range list.GetExecutions() {
			id := open.GetExecution().GetWorkflowId()
			kind, ref, ours := b.installation.ParseID(id)
			if !ours || known[ref.UID] {
				continue
			}
			if kind == run.KindRollout { // its object is the deployment
				kind = run.KindMachineDeployment
			}
			b.log.Info("a run is open whose object is gone", "workflow", id)
			b.enqueue(key{kind, ref.Namespace, ref.Name}, wake{deleted: []deleted{{uid: ref.UID, workflows: []string{id}}}}, 0)
		}
		if page = list.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}
