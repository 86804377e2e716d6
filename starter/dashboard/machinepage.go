package dashboard

import (
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"millwright/decide/drain"
	"millwright/decide/list"
	"millwright/decide/phrase"
	drains "millwright/starter/drain"
	"millwright/starter/kubecli"
)

// machineView is the page of one machine.
type machineView struct {
	Name      string
	Explain   string // command that explains the machine
	Pool      link
	Class     string // class of the style
	Phase     string
	IsGone    bool
	Facts     []fact
	Waits     *causeView
	Calls     []string // pending activities of its workflow
	Drain     *drainView
	Runs      []runView // newest first
	LifeTitle string    // from when on the line of time is
	MoreRuns  bool
	RunsNote  string // why the runs are not shown
	UI        string // list of its workflows in Temporal's UI
}

// drainView is the drain of a machine's node.
type drainView struct {
	Headline, Sentence, Counts, Result, Note string
	Commands                                 []string
	Pods                                     []podView
}

// podView is a pod that a drain waits for.
type podView struct {
	Name, State, Since, BlockedBy, Next string
	Attempts                            int
	IsBad                               bool // a person must act
	Class, Icon                         string
}

// runView is one run of a workflow of a machine.
type runView struct {
	Workflow string // kind of the workflow
	Began    moment
	Lasted   string
	Outcome  string
	Class    string
	X, Width float64 // place on the line of time, in percent
	Timeline string  // page of Temporal's UI
	Details  string  // page of Temporal's UI with the sentence
}

// machineDetails is what is read for the page of one machine, besides the caches.
type machineDetails struct {
	drain    *drains.Report
	calls    []string
	runs     []*workflowpb.WorkflowExecutionInfo // newest first
	runsNote string
}

// maxRuns is how many runs a page of a machine shows.
const maxRuns = 20

// machinePage returns the page of a machine; m is nil if the machine is gone.
func (f *fleet) machinePage(id objectID, m *machineRow, d machineDetails, ui kubecli.UIPages) *machineView {
	v := &machineView{
		Name: id.Key(), Explain: "millwright explain " + id.String(), IsGone: m == nil, Phase: "gone", Class: "gone",
		UI: ui.List(kubecli.MachineRunsQuery(id.namespacedName())), Calls: d.calls, RunsNote: d.runsNote,
	}
	if m != nil {
		row := f.machineRow(m)
		v.Pool, v.Class, v.Phase = row.Pool, row.Class, m.phase
		v.Facts = f.machineFacts(m)
		if w := newWait(m.currentOperation); w != nil {
			c := cause{wait: *w, pools: []*pool{m.pool}, machineCount: 1, needsPerson: needsPerson(w.blockers)}
			c.commands = phrase.NonEmptyTexts(w.command)
			v.Waits = &f.causeViews([]*cause{&c})[0]
			v.Waits.Who = ""
		}
	}
	if d.drain != nil {
		v.Drain = f.drainView(d.drain)
	}
	v.MoreRuns = len(d.runs) > maxRuns
	runs := d.runs[:min(len(d.runs), maxRuns)]
	first := f.firstStart(runs)
	v.Runs, v.LifeTitle = f.runViews(runs, first, ui), "From "+kubecli.ClockText(first, f.now)+" to now"
	return v
}

func (f *fleet) machineFacts(m *machineRow) []fact {
	created := ""
	if !m.created.IsZero() {
		created = kubecli.TimeWithAgeText(m.created, f.now)
	}
	facts := []fact{
		{
			"phase",
			m.phase + phrase.TextIf(!m.phaseSince.IsZero(), ", since %s", kubecli.TimeWithAgeText(m.phaseSince, f.now)),
		},
		{"set", m.setName},
		{"class", m.class},
		{"node", m.node},
		{"instance", m.providerID},
		{"created", created},
		{"last operation", m.lastOperation},
	}
	if o := m.currentOperation; o != nil {
		facts = append(facts, fact{"step", o.Step})
	}
	return list.Filter(facts, func(of fact) bool { return of.Text != "" })
}

func (f *fleet) drainView(r *drains.Report) *drainView {
	v := &drainView{
		Headline: r.Headline,
		Sentence: r.Statement,
		Counts:   r.PodCounts,
		Result:   r.Result,
		Note:     r.Note,
		Commands: r.Commands,
	}
	for _, row := range r.Pods[:min(len(r.Pods), drain.MaxOverviewRows)] {
		class, icon := "motion", "leaving"
		switch {
		case row.BlockedBy != "":
			class, icon = string(groupStill), "still"
		case row.State == drain.StateWaiting:
			class, icon = "", "paused"
		}
		v.Pods = append(v.Pods, podView{
			Class: class, Icon: icon,
			Name: row.Pod, State: row.State, Since: kubecli.AgeText(row.Since, f.now), Attempts: row.Attempts,
			BlockedBy: row.BlockedBy, Next: kubecli.ClockText(row.Next, f.now), IsBad: row.Bad,
		})
	}
	return v
}

// firstStart returns when the oldest run began; now without a run.
func (f *fleet) firstStart(runs []*workflowpb.WorkflowExecutionInfo) time.Time {
	first := f.now
	for _, r := range runs {
		first = phrase.EarlierTime(first, r.GetStartTime().AsTime())
	}
	return first
}

// runViews places the runs on one line of time, from first to now.
func (f *fleet) runViews(
	runs []*workflowpb.WorkflowExecutionInfo,
	first time.Time,
	ui kubecli.UIPages,
) (views []runView) {
	whole := max(f.now.Sub(first), time.Second)
	percent := func(t time.Time) float64 { return min(100, max(0, float64(t.Sub(first))*100/float64(whole))) }
	for _, r := range runs {
		began, ended := r.GetStartTime().AsTime(), f.now
		if r.GetCloseTime() != nil {
			ended = r.GetCloseTime().AsTime()
		}
		id, run := r.GetExecution().GetWorkflowId(), r.GetExecution().GetRunId()
		v := runView{
			Workflow: r.GetType().GetName(), Began: f.began(began), Lasted: phrase.AgeText(max(ended.Sub(began), 0)),
			X: percent(began), Timeline: ui.Run(id, run, kubecli.TabTimeline), Details: ui.Run(id, run, kubecli.TabUserMetadata),
		}
		v.Width = max(0.8, percent(ended)-v.X) // a short run stays visible
		v.X = min(v.X, 100-v.Width)
		v.Outcome, v.Class = outcomeOfRun(r)
		views = append(views, v)
	}
	return views
}

// outcomeOfRun says how a run ended, and the class of its style.
func outcomeOfRun(r *workflowpb.WorkflowExecutionInfo) (word, class string) {
	switch r.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		word, class = "open", "open"
		if step := keyword(r, "Step"); step != "" {
			word += fmt.Sprintf(": %s", step)
		}
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		word, class = "completed", "done"
	case enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		word, class = "continued in the next run", "done"
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:
		word, class = "cancelled", "ended"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		word, class = "terminated", "bad"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		word, class = "timed out", "bad"
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:
		word, class = "failed", "bad"
	default:
		word, class = "not known", "ended"
	}
	if outcome := keyword(r, "Outcome"); outcome != "" {
		word += ", " + outcome
	}
	return word, class
}

// keyword returns the value of a search attribute; empty if the run does not have it.
func keyword(r *workflowpb.WorkflowExecutionInfo, name string) (value string) {
	payload := r.GetSearchAttributes().GetIndexedFields()[name]
	if payload == nil || converter.GetDefaultDataConverter().FromPayload(payload, &value) != nil {
		return ""
	}
	return value
}
