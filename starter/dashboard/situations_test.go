package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/starter/clitest"
)

// situation is a state of a fleet that a picture of docs/dashboard.md shows.
type situation struct {
	name          string // name of the picture
	path          string
	width, height int
	isDark        bool
	pools         []*poolBuilder
	workerDown    time.Duration // age of the last heartbeat of the workers; 0: they are at work
	runs          []*workflowpb.WorkflowExecutionInfo
	drain         *drain.Overview
	drainWorkflow string
}

// healthyPools are pools of a small fleet without a problem.
func healthyPools() []*poolBuilder {
	var pools []*poolBuilder
	for i, name := range []string{"shop/web", "shop/db", "pay/api", "pay/batch", "search/index", "search/query", "ci/runner"} {
		namespace, pool, _ := strings.Cut(name, "/")
		size := []int{12, 3, 8, 4, 9, 6, 20}[i]
		pools = append(pools, newPool(namespace, pool, size).atRevision(int64(2+i)).with(size, int64(2+i)))
	}
	return pools
}

// carefulSteps are the steps of the policy of shop/web.
func carefulSteps() []v1alpha1.RolloutStep {
	return []v1alpha1.RolloutStep{approvedStep(2), timedStep("50%", 10*time.Minute), approvedStep(10)}
}

// rollingPool is a pool in the middle of a rollout with steps.
func rollingPool() *poolBuilder {
	return newPool("shop", "web", 10).atRevision(8).withStep(vocabulary.StepReplaceMachines).
		withSteps(carefulSteps()...).
		with(3, 8, createdBefore(30*time.Minute)).with(1, 8, starting(70*time.Second)...).
		with(6, 7).with(1, 7, leaving(40*time.Second)).
		edited(func(d *v1alpha1.MachineDeployment) {
			d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 8, Set: "web-8", Step: 1, Steps: carefulSteps()}
			d.Annotations[v1alpha1.AnnotationRolloutApprove] = "8/1"
		})
}

// waitingPool is a pool whose rollout waits for the approval of its first step.
func waitingPool() *poolBuilder {
	return newPool("shop", "web", 10).atRevision(8).withStep(vocabulary.StepAwaitApproval).
		withSteps(carefulSteps()...).
		withOwnWait(vocabulary.ReasonRolloutWaiting, "revision 8: 2 of 10 machines done (20%), waits for approval of step 1 of 3", 24*time.Minute).
		with(2, 8, createdBefore(40*time.Minute)).with(8, 7).
		edited(func(d *v1alpha1.MachineDeployment) {
			d.Status.Rollout = &v1alpha1.RolloutStatus{
				Revision:  8,
				Set:       "web-8",
				Steps:     carefulSteps(),
				ReachedAt: new(ago(24 * time.Minute)),
			}
		})
}

// pinnedPool is a pool whose last rollout was rolled back.
func pinnedPool() *poolBuilder {
	b := newPool("pay", "api", 8).atRevision(6).with(6, 5).with(1, 5, starting(50*time.Second)...).
		with(1, 6, leaving(30*time.Second))
	b.pin = &v1alpha1.RolloutPin{
		Set:      "api-5",
		Revision: 5,
		Since:    ago(9 * time.Minute),
		Reason:   "2 machines of it failed, 1 allowed",
	}
	return b
}

// blockedPool is a pool with a drain that a budget blocks.
func blockedPool() *poolBuilder {
	return newPool("shop", "web", 10).atRevision(8).withStep(vocabulary.StepReplaceMachines).
		with(4, 8, createdBefore(90*time.Minute)).with(5, 7).with(2, 7, blockedByBudget(83*time.Minute)...)
}

// quotaPool is a pool whose machines the cloud refuses.
func quotaPool(namespace, name string) *poolBuilder {
	return newPool(namespace, name, 9).with(6, 4).with(3, 4, refusedByQuota(17*time.Minute)...)
}

// failingPool is a pool whose failed machines are replaced one by one.
func failingPool() *poolBuilder {
	return newPool("search", "index", 9).withStep(vocabulary.StepAwaitReplacements).
		with(5, 4).with(1, 4, starting(95*time.Second)...).
		with(1, 4, append(failed(6*time.Minute), leaving(80*time.Second))...).
		with(2, 4, append(failed(7*time.Minute),
			waiting(vocabulary.StepAwaitReplacement, "the deployment replaces 1 machine at a time", 5*time.Minute, 0))...).
		edited(func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation.RolloutOf = "" })
}

// manyClusters are 300 namespaces with 10,000 machines, of which few have a problem.
func manyClusters() (pools []*poolBuilder) {
	for i := range 300 {
		namespace := fmt.Sprintf("shoot--p%02d--c%03d", i%23, i)
		large, small := newPool(namespace, "worker", 24), newPool(namespace, "infra", 9)
		switch {
		case i == 17, i == 112, i == 205:
			large.with(22, 4).with(2, 4, refusedByQuota(time.Duration(17+i%7)*time.Minute)...)
		case i == 44:
			large.atRevision(5).withStep(vocabulary.StepReplaceMachines).with(9, 5).with(14, 4).
				with(1, 4, blockedByBudget(83*time.Minute)...)
		case i%75 == 3:
			large.atRevision(5).
				withStep(vocabulary.StepReplaceMachines).
				with(11, 5).
				with(1, 5, starting(time.Minute)...).
				with(13, 4)
		case i == 250:
			large.atRevision(5).withStep(vocabulary.StepAwaitApproval).with(3, 5).with(21, 4).
				withOwnWait(vocabulary.ReasonRolloutWaiting, "revision 5: 3 of 24 machines done (12%), waits for approval of step 1 of 2", 3*time.Hour)
		default:
			large.with(24, 4)
		}
		small.with(9+i%3/2, 4)
		small.desired = 9 + i%3/2
		pools = append(pools, large, small)
	}
	return pools
}

func run(
	kind, id string,
	began, lasted time.Duration,
	status enumspb.WorkflowExecutionStatus,
) *workflowpb.WorkflowExecutionInfo {
	r := &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: fmt.Sprintf("0190a%07d", int(began.Seconds()))},
		Type:      &commonpb.WorkflowType{Name: kind},
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			"Step": clitest.EncodePayloads(map[string]string{"Drain": "evict-pods", "Machine": "drain"}[kind]).GetPayloads()[0],
		}},
		StartTime: timestamppb.New(now.Add(-began)), Status: status,
	}
	if status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		r.CloseTime = timestamppb.New(now.Add(-began + lasted))
	}
	return r
}

// drainWorkflow is the ID of the workflow that drains the first blocked machine of blockedPool.
func drainWorkflow() string {
	m := blockedPool().machines[9]
	return "garden/drain/shop/" + m.Name + "/" + string(m.UID)
}

// runsOfBlockedMachine are the runs of a machine whose drain is blocked.
func runsOfBlockedMachine() []*workflowpb.WorkflowExecutionInfo {
	const done, open = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	return []*workflowpb.WorkflowExecutionInfo{
		run("Drain", drainWorkflow(), 83*time.Minute, 0, open),
		run("Machine", "garden/machine/shop/web-7", 84*time.Minute, 0, open),
		run("Machine", "garden/machine/shop/web-7", 5*time.Hour, 12*time.Minute, done),
		run(
			"Machine",
			"garden/machine/shop/web-7",
			8*time.Hour,
			4*time.Minute,
			enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
		),
		run("Machine", "garden/machine/shop/web-7", 9*time.Hour, 21*time.Minute, done),
	}
}

func blockedOverview() *drain.Overview {
	return &drain.Overview{
		Counts: drain.PodCounts{Gone: 14, Terminating: 1, Blocked: 2, Waiting: 3, Skipped: 4},
		Rows: []drain.PodRow{
			{
				Pod:       "shop/web-6d5f8c9b7-k2x8q",
				State:     drain.StateBlocked,
				Since:     now.Add(-81 * time.Minute),
				Attempts:  163,
				BlockedBy: "shop/web",
				Budgets:   []string{"shop/web"},
				Bad:       true,
				Next:      now.Add(20 * time.Second),
			},
			{
				Pod:       "shop/web-6d5f8c9b7-p9w4m",
				State:     drain.StateBlocked,
				Since:     now.Add(-81 * time.Minute),
				Attempts:  160,
				BlockedBy: "shop/web",
				Budgets:   []string{"shop/web"},
				Bad:       true,
				Next:      now.Add(50 * time.Second),
			},
			{Pod: "shop/cart-0", State: drain.StateTerminating, Since: now.Add(-20 * time.Second), Attempts: 1},
			{Pod: "shop/cart-1", State: drain.StateWaiting},
			{Pod: "shop/cart-2", State: drain.StateWaiting},
			{Pod: "shop/session-1", State: drain.StateWaiting},
		},
		Why: "6 pods left: " + budgetCause + "; 1 is terminating; 3 wait for their turn",
	}
}

// blockedMachineName is the name of the first blocked machine of blockedPool.
func blockedMachineName() string { return blockedPool().machines[9].Name }

// situations are the pictures of docs/dashboard.md.
func situations() []situation {
	others := func(without string, and ...*poolBuilder) []*poolBuilder {
		pools := slices.DeleteFunc(healthyPools(), func(p *poolBuilder) bool { return p.namespace+"/"+p.name == without })
		return append(pools, and...)
	}
	withoutBatch := slices.DeleteFunc(others("shop/web"), func(p *poolBuilder) bool { return p.name == "batch" })
	troubled := slices.Concat(withoutBatch, []*poolBuilder{blockedPool(), quotaPool("pay", "batch")})
	return []situation{
		{name: "healthy", path: "/", pools: healthyPools(), height: 1100},
		{name: "rollout", path: "/pool/mcd/shop/web", pools: others("shop/web", rollingPool()), height: 1500},
		{name: "approval", path: "/", pools: others("shop/web", waitingPool()), height: 900},
		{
			name:          "drain",
			path:          "/machine/mc/shop/" + blockedMachineName(),
			pools:         others("shop/web", blockedPool()),
			height:        1350,
			runs:          runsOfBlockedMachine(),
			drain:         blockedOverview(),
			drainWorkflow: drainWorkflow(),
		},
		{
			name: "quota", path: "/", height: 900,
			pools: slices.DeleteFunc(others("pay/batch", quotaPool("pay", "batch"), quotaPool("shop", "query")),
				func(p *poolBuilder) bool { return p.namespace == "search" && p.name == "query" }),
		},
		{name: "worker-down", path: "/", pools: others("shop/web", rollingPool()), workerDown: 7 * time.Minute, height: 900},
		{name: "failed", path: "/pool/mcd/search/index", pools: others("search/index", failingPool()), height: 1250},
		{name: "rollback", path: "/pool/mcd/pay/api", pools: others("pay/api", pinnedPool()), height: 1250},
		{name: "clusters", path: "/", pools: manyClusters(), height: 1950},
		{name: "telephone", path: "/", pools: troubled, width: 360, height: 1700},
		{name: "dark", path: "/", pools: troubled, height: 1000, isDark: true},
	}
}
