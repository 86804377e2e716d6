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

// rolloutsOf returns the kinds of rollouts by the kinds of their deployments.
func rolloutsOf() map[run.Kind]run.Kind {
	return map[run.Kind]run.Kind{
		run.KindMachineDeployment:    run.KindRollout,
		run.KindClusterAPIDeployment: run.KindClusterAPIRollout,
	}
}

// strayPage is the number of open runs in a page of Temporal's list. Source: the largest page that Temporal's server
// returns.
const strayPage = 1000

// wakeStrays signals each open run whose object does not exist any more, or is not in a namespace of Millwright any
// more. A deletion that no leader has seen is in no cache, and a run that waits without a timer would stay open for
// ever. The run itself finds out that its object is gone.
func (b *Bridge) wakeStrays(ctx context.Context) error {
	known, kinds := map[string]bool{}, []string{}
	for kind, informer := range b.watched() {
		for _, item := range informer.GetStore().List() {
			if o := item.(metav1.Object); b.ours(kind, o.GetNamespace()) {
				known[string(o.GetUID())] = true
			}
		}
		kinds = append(kinds, string(kind))
		if rollout := rolloutsOf()[kind]; rollout != "" {
			kinds = append(kinds, string(rollout))
		}
	}
	slices.Sort(kinds)
	query := fmt.Sprintf("ExecutionStatus = 'Running' AND WorkflowType IN ('%s')", strings.Join(kinds, "', '"))
	var page []byte
	for {
		answer, err := b.starter.ListWorkflow(
			ctx,
			&workflowservice.ListWorkflowExecutionsRequest{Query: query, PageSize: strayPage, NextPageToken: page},
		)
		if err != nil {
			return fmt.Errorf("list open runs: %w", err)
		}
		for _, open := range answer.GetExecutions() {
			id := open.GetExecution().GetWorkflowId()
			kind, ref, ours := b.installation.ParseID(id)
			if !ours || known[ref.UID] {
				continue
			}
			for of, rollout := range rolloutsOf() {
				if kind == rollout { // its object is the deployment
					kind = of
				}
			}
			b.log.Info("a run is open whose object is gone", "workflow", id)
			b.enqueue(key{kind, ref.Namespace, ref.Name}, wake{deleted: []deleted{{uid: ref.UID, workflows: []string{id}}}}, 0)
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}
