package workflowstest

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities/capi"
	activitiesdrain "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	workflowsdrain "millwright/workflows/drain"
)

// drainWorld is a node that is drained. A real Ladder makes the decisions, and each call of EvictPods returns the next
// answer.
type drainWorld struct {
	mu              sync.Mutex
	Env             *testsuite.TestWorkflowEnvironment
	Ladder          drain.EscalationLadder
	Hold            string
	Retry           string
	Result          string // result of DecideDrain; if empty, the ladder's result
	evictionAnswers []func(context.Context, activitiesdrain.Eviction) (activitiesdrain.EvictionResult, error)
	Asked           []activitiesdrain.Eviction
	Reports         []machine.Report
	// returns the error of a status write, which is then not recorded; if nil, all status writes succeed
	Failing func(machine.Report) error

	// For a machine of Cluster API:
	// next decisions for a machine of Cluster API: Why, and ClusterAPI's Step, Cordon and Queue
	Hook     activitiesdrain.Decision
	Looks    []time.Time // times of the decisions
	Cordons  int
	Released []capi.HookRelease
	Halts    []activitiesdrain.HoldInput
}

func NewDrainWorld(t *testing.T) *drainWorld {
	e := &drainWorld{Env: NewEnvironment(t), Ladder: drain.EscalationLadder{Timeout: time.Hour}}
	decide := func(_ context.Context, in activitiesdrain.Input) (activitiesdrain.Decision, error) {
		defer e.Lock()()
		l := e.Ladder
		l.Now, l.Grace, l.NoPassYet = in.At, in.Grace, in.Unasked
		step := drain.DecideStep(l)
		d := activitiesdrain.Decision{
			Hold:     e.Hold,
			Retry:    e.Retry,
			Step:     step,
			Recorded: string(l.Reached),
			Started:  l.Started,
			Why:      step.Why,
			Result:   e.Result,
		}
		if step.Over {
			d.Result = vocabulary.DrainForced
		}
		return d, nil
	}
	report := func(_ context.Context, in machine.Report) (kube.ReportResult, error) {
		defer e.Lock()()
		if e.Failing != nil {
			if err := e.Failing(in); err != nil {
				return kube.ReportResult{}, err
			}
		}
		e.Reports = append(e.Reports, in)
		AssertWorkflowTime(t, e.Env, in.Read)
		if d := in.Deletion; d != nil && d.Means != "" {
			if e.Ladder.Started.IsZero() {
				e.Ladder.Started = e.Env.Now()
			}
			e.Ladder.Reached, e.Ladder.ReachedAt = drain.RemovalMeans(d.Means), e.Env.Now()
			if at := e.Asked; len(at) > 0 && at[len(at)-1].Until.After(e.Env.Now()) {
				e.Ladder.ReachedAt = at[len(at)-1].Until // in the test environment activities take no time
			}
		}
		reported := kube.ReportResult{Version: "9"}
		if in.Step != nil {
			reported.WaitsFor, reported.BlockedBy = in.Step.Cause, in.Step.BlockedBy
		}
		return reported, nil
	}
	evict := func(ctx context.Context, in activitiesdrain.Eviction) (activitiesdrain.EvictionResult, error) {
		unlock := e.Lock()
		e.Asked = append(e.Asked, in)
		answer := e.evictionAnswers[0]
		e.evictionAnswers = e.evictionAnswers[1:]
		unlock()
		return answer(ctx, in)
	}
	for name, does := range map[string]any{
		"DecideDrain": decide, "ReportMachine": report, "EvictPods": evict,
		"DecideClusterAPIDrain": e.decideHook(decide), "ReportClusterAPIDrain": report, "EvictClusterAPIPods": evict,
		"CordonClusterAPINode": e.countCordon, "ReleaseClusterAPIHook": e.recordRelease, "HoldClusterAPIDrain": e.recordHold,
	} {
		e.Env.OnActivity(name, mock.Anything, mock.Anything).Return(does).Maybe()
	}
	return e
}

// decideHook adds the Cluster API fields to the decision of a drain.
func (e *drainWorld) decideHook(
	decide func(context.Context, activitiesdrain.Input) (activitiesdrain.Decision, error),
) func(context.Context, activitiesdrain.Input) (activitiesdrain.Decision, error) {
	return func(ctx context.Context, in activitiesdrain.Input) (activitiesdrain.Decision, error) {
		d, err := decide(ctx, in)
		defer e.Lock()()
		e.Looks = append(e.Looks, e.Env.Now())
		d.ClusterAPI.NodeName, d.ClusterAPI.Step, d.ClusterAPI.Cordon, d.ClusterAPI.Queue = "n", e.Hook.ClusterAPI.Step, e.Hook.ClusterAPI.Cordon, e.Hook.ClusterAPI.Queue
		d.Why = cmp.Or(e.Hook.Why, d.Why)
		return d, err
	}
}

func (e *drainWorld) countCordon(context.Context, kube.ReadInput) (kube.MinVersions, error) {
	defer e.Lock()()
	e.Cordons++
	e.Hook.ClusterAPI.Cordon = false
	return nil, nil
}

func (e *drainWorld) recordRelease(_ context.Context, in capi.HookRelease) (string, error) {
	defer e.Lock()()
	e.Released = append(e.Released, in)
	return "9", nil
}

func (e *drainWorld) recordHold(_ context.Context, in activitiesdrain.HoldInput) (string, error) {
	defer e.Lock()()
	e.Halts = append(e.Halts, in)
	return "9", nil
}

// RunClusterAPIDrain is RunDrain for a machine of Cluster API.
func (e *drainWorld) RunClusterAPIDrain(t *testing.T) (result workflowsdrain.Result) {
	e.Env.ExecuteWorkflow(workflowsdrain.ClusterAPIDrain, workflowsdrain.Input{Ref: ObjectRef})
	require.NoError(t, e.Env.GetWorkflowError())
	require.NoError(t, e.Env.GetWorkflowResult(&result))
	return result
}

func (e *drainWorld) Lock() (unlock func()) {
	e.mu.Lock()
	return e.mu.Unlock
}

func (e *drainWorld) AddEvictionAnswers(outcomes ...activitiesdrain.EvictionResult) {
	for _, o := range outcomes {
		e.evictionAnswers = append(
			e.evictionAnswers,
			func(context.Context, activitiesdrain.Eviction) (activitiesdrain.EvictionResult, error) { return o, nil },
		)
	}
}

// AddLongEviction makes the next call of EvictPods run for an hour, from the workflow's view.
func (e *drainWorld) AddLongEviction() {
	e.evictionAnswers = append(
		e.evictionAnswers,
		func(context.Context, activitiesdrain.Eviction) (activitiesdrain.EvictionResult, error) {
			return activitiesdrain.EvictionResult{}, temporal.NewApplicationErrorWithOptions(
				"goes on",
				"GoesOn",
				temporal.ApplicationErrorOptions{NextRetryDelay: time.Hour},
			)
		},
	)
}

func (e *drainWorld) RunDrain(t *testing.T) workflowsdrain.Result {
	e.Env.ExecuteWorkflow(workflowsdrain.Drain, workflowsdrain.Input{Ref: ObjectRef, NodeName: "n"})
	require.NoError(t, e.Env.GetWorkflowError())
	var result workflowsdrain.Result
	require.NoError(t, e.Env.GetWorkflowResult(&result))
	return result
}

// ReportedReasons returns the reasons of the machine's condition and event, in the order of the reports.
func (e *drainWorld) ReportedReasons() (conditions, events []string) {
	for _, r := range e.Reports {
		conditions = append(conditions, r.Conditions[0].Reason)
		if r.Event != nil {
			events = append(events, r.Event.Reason)
		}
	}
	return conditions, events
}
