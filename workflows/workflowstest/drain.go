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

// drainTestEnv is a node that is drained. A real Escalation makes the decisions, and each call of EvictPods returns the
// next answer.
type drainTestEnv struct {
	mu                 sync.Mutex
	Env                *testsuite.TestWorkflowEnvironment
	Escalation         drain.EscalationFacts
	HoldReason         string
	RetryRequest       string
	Result             string // result of DecideDrain; if empty, the ladder's result
	evictionAnswers    []func(context.Context, activitiesdrain.Eviction) (activitiesdrain.EvictionResult, error)
	RequestedEvictions []activitiesdrain.Eviction
	Reports            []machine.Report
	// returns the error of a status write, which is then not recorded; if nil, all status writes succeed
	ReportError func(machine.Report) error

	// next decisions for a machine of Cluster API: Why, and ClusterAPI's Step, Cordon and Queue
	HookDecision  activitiesdrain.Decision
	DecisionTimes []time.Time // times of the decisions
	CordonCount   int
	HookReleases  []capi.HookRelease
	HoldRecords   []activitiesdrain.HoldInput
}

func NewDrainTestEnv(t *testing.T) *drainTestEnv {
	e := &drainTestEnv{Env: NewEnvironment(t), Escalation: drain.EscalationFacts{Timeout: time.Hour}}
	decide := func(_ context.Context, in activitiesdrain.Input) (activitiesdrain.Decision, error) {
		defer e.Lock()()
		l := e.Escalation
		l.Now, l.Grace, l.NoPassYet, l.Unanswered = in.At, in.Grace, in.Unasked, cmp.Or(
			e.Escalation.Unanswered,
			in.Unanswered,
		)
		step := drain.DecideStep(l)
		d := activitiesdrain.Decision{
			Hold:     e.HoldReason,
			Retry:    e.RetryRequest,
			Step:     step,
			Recorded: string(l.Reached),
			Started:  l.Started,
			Why:      step.Why,
			Result:   e.Result,

			Unanswered: l.Unanswered,
		}
		if step.Over {
			d.Result = vocabulary.DrainResultForced
		}
		return d, nil
	}
	report := func(_ context.Context, in machine.Report) (kube.ReportResult, error) {
		defer e.Lock()()
		if e.ReportError != nil {
			if err := e.ReportError(in); err != nil {
				return kube.ReportResult{}, err
			}
		}
		e.Reports = append(e.Reports, in)
		AssertWorkflowTime(t, e.Env, in.Read)
		if d := in.Deletion; d != nil && d.Means != "" {
			if e.Escalation.Started.IsZero() {
				e.Escalation.Started = e.Env.Now()
			}
			e.Escalation.Reached, e.Escalation.ReachedAt = drain.RemovalMeans(d.Means), e.Env.Now()
			if at := e.RequestedEvictions; len(at) > 0 && at[len(at)-1].Until.After(e.Env.Now()) {
				e.Escalation.ReachedAt = at[len(at)-1].Until // in the test environment activities take no time
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
		e.RequestedEvictions = append(e.RequestedEvictions, in)
		answer := e.evictionAnswers[0]
		e.evictionAnswers = e.evictionAnswers[1:]
		unlock()
		return answer(ctx, in)
	}
	for name, does := range map[string]any{
		"DecideDrain": decide, "ReportMachine": report, "EvictPods": evict,
		"DecideClusterAPIDrain": e.addClusterAPIFields(decide), "ReportClusterAPIDrain": report, "EvictClusterAPIPods": evict,
		"CordonClusterAPINode": e.recordCordon, "ReleaseClusterAPIHook": e.recordHookRelease, "HoldClusterAPIDrain": e.recordHold,
	} {
		e.Env.OnActivity(name, mock.Anything, mock.Anything).Return(does).Maybe()
	}
	return e
}

// addClusterAPIFields adds the Cluster API fields to the decision of a drain.
func (e *drainTestEnv) addClusterAPIFields(
	decide func(context.Context, activitiesdrain.Input) (activitiesdrain.Decision, error),
) func(context.Context, activitiesdrain.Input) (activitiesdrain.Decision, error) {
	return func(ctx context.Context, in activitiesdrain.Input) (activitiesdrain.Decision, error) {
		d, err := decide(ctx, in)
		defer e.Lock()()
		e.DecisionTimes = append(e.DecisionTimes, e.Env.Now())
		d.ClusterAPI.NodeName, d.ClusterAPI.Step, d.ClusterAPI.Cordon, d.ClusterAPI.Queue = "n", e.HookDecision.ClusterAPI.Step, e.HookDecision.ClusterAPI.Cordon, e.HookDecision.ClusterAPI.Queue
		d.Why = cmp.Or(e.HookDecision.Why, d.Why)
		return d, err
	}
}

func (e *drainTestEnv) recordCordon(context.Context, kube.ReadInput) (kube.MinVersions, error) {
	defer e.Lock()()
	e.CordonCount++
	e.HookDecision.ClusterAPI.Cordon = false
	return nil, nil
}

func (e *drainTestEnv) recordHookRelease(_ context.Context, in capi.HookRelease) (string, error) {
	defer e.Lock()()
	e.HookReleases = append(e.HookReleases, in)
	return "9", nil
}

func (e *drainTestEnv) recordHold(_ context.Context, in activitiesdrain.HoldInput) (string, error) {
	defer e.Lock()()
	e.HoldRecords = append(e.HoldRecords, in)
	return "9", nil
}

// RunClusterAPIDrain is RunDrain for a machine of Cluster API.
func (e *drainTestEnv) RunClusterAPIDrain(t *testing.T) (result workflowsdrain.Result) {
	e.Env.ExecuteWorkflow(workflowsdrain.ClusterAPIDrain, workflowsdrain.Input{Ref: ObjectRef})
	require.NoError(t, e.Env.GetWorkflowError())
	require.NoError(t, e.Env.GetWorkflowResult(&result))
	return result
}

func (e *drainTestEnv) Lock() (unlock func()) {
	e.mu.Lock()
	return e.mu.Unlock
}

func (e *drainTestEnv) AddEvictionAnswers(outcomes ...activitiesdrain.EvictionResult) {
	for _, o := range outcomes {
		e.evictionAnswers = append(
			e.evictionAnswers,
			func(context.Context, activitiesdrain.Eviction) (activitiesdrain.EvictionResult, error) { return o, nil },
		)
	}
}

// AddLongEviction makes the next call of EvictPods run for an hour, from the workflow's view.
func (e *drainTestEnv) AddLongEviction() {
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

func (e *drainTestEnv) RunDrain(t *testing.T) workflowsdrain.Result {
	e.Env.ExecuteWorkflow(workflowsdrain.Drain, workflowsdrain.Input{Ref: ObjectRef, NodeName: "n"})
	require.NoError(t, e.Env.GetWorkflowError())
	var result workflowsdrain.Result
	require.NoError(t, e.Env.GetWorkflowResult(&result))
	return result
}

// ReportedReasons returns the reasons of the machine's condition and event, in the order of the reports.
func (e *drainTestEnv) ReportedReasons() (conditions, events []string) {
	for _, r := range e.Reports {
		conditions = append(conditions, r.Conditions[0].Reason)
		if r.Event != nil {
			events = append(events, r.Event.Reason)
		}
	}
	return conditions, events
}
