package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/api/workflowservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/workflows/run"
)

// rolloutKinds returns the kinds of rollouts, by the kind of their deployment.
func rolloutKinds() map[run.Kind]run.Kind {
	return map[run.Kind]run.Kind{
		run.KindMachineDeployment:    run.KindRollout,
		run.KindClusterAPIDeployment: run.KindClusterAPIRollout,
	}
}

// openRunPageSize is the page size for listing open runs. Source: the maximum of Temporal's server.
const openRunPageSize = 1000

// signalRunsWithoutObject signals each open run whose object no longer exists or is no longer in a namespace of
// Millwright. If an object is deleted while no bridge is the leader, no bridge gets an event of the deletion, and a run
// without a timer would stay open forever. The run itself detects that its object is gone.
func (b *Bridge) signalRunsWithoutObject(ctx context.Context) error {
	known, kinds := map[string]bool{}, []string{}
	for kind, informer := range b.informersByKind() {
		for _, item := range informer.GetStore().List() {
			if o := item.(metav1.Object); b.actsOnNamespace(kind, o.GetNamespace()) {
				known[string(o.GetUID())] = true
			}
		}
		kinds = append(kinds, string(kind))
		if rollout := rolloutKinds()[kind]; rollout != "" {
			kinds = append(kinds, string(rollout))
		}
	}
	slices.Sort(kinds)
	query := fmt.Sprintf("ExecutionStatus = 'Running' AND WorkflowType IN ('%s')", strings.Join(kinds, "', '"))
	var page []byte
	for {
		answer, err := b.workflowClient.ListWorkflow(
			ctx,
			&workflowservice.ListWorkflowExecutionsRequest{Query: query, PageSize: openRunPageSize, NextPageToken: page},
		)
		if err != nil {
			return fmt.Errorf("list open runs: %w", err)
		}
		for _, open := range answer.GetExecutions() {
			id := open.GetExecution().GetWorkflowId()
			kind, ref, ours := b.shard.Installation.ParseID(id)
			if !ours || known[ref.UID] || !b.endsRunsOfDeletedObjects(ref.Namespace) {
				continue
			}
			for of, rollout := range rolloutKinds() {
				if kind == rollout { // the rollout's object is the deployment
					kind = of
				}
			}
			b.log.Info("a run is open whose object is gone", "workflow", id)
			b.enqueueInAnyShard(
				objectKey{kind, ref.Namespace, ref.Name},
				signalRequest{deletedObjects: []deletedObject{{uid: ref.UID, workflowIDs: []string{id}}}},
				0,
			)
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}
