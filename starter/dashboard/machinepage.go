package dashboard

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"millwright/decide/drain"
	"millwright/decide/list"
	"millwright/decide/phrase"
	drains "millwright/starter/drain"
	"millwright/starter/explain"
	"millwright/starter/history"
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
	History   string // command that lists all runs
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
	runs     []history.Run // newest first
	hasOlder bool          // Temporal has older runs
	runsNote string
}

// maxRuns is how many runs a page of a machine shows.
const maxRuns = 20

// machinePage returns the page of a machine; m is nil if the machine is gone.
func (f *fleet) machinePage(id objectID, m *machineRow, d machineDetails, ui kubecli.UIPages) *machineView {
	v := &machineView{
		Name: id.Key(), Explain: "millwright explain " + id.String(),
		History: "millwright history " + id.Key(), IsGone: m == nil, Phase: "gone", Class: "gone",
		UI: ui.List(kubecli.MachineRunsQuery(id.namespacedName())), Calls: d.calls, RunsNote: d.runsNote,
	}
	if m != nil {
		row := f.machineRow(m)
		v.Pool, v.Class, v.Phase = row.Pool, row.Class, m.phase
		v.Facts = f.machineFacts(m)
		if waits := m.poolWaits(); len(waits) > 0 {
			v.Waits = &f.causeViews(explain.GroupByCause(waits, f.now))[0]
			v.Waits.Who = ""
		}
	}
	if d.drain != nil {
		v.Drain = f.drainView(d.drain)
	}
	v.MoreRuns = d.hasOlder
	first := f.firstStart(d.runs)
	v.Runs, v.LifeTitle = f.runViews(d.runs, first, ui), "From "+kubecli.ClockText(first, f.now)+" to now"
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
func (f *fleet) firstStart(runs []history.Run) time.Time {
	first := f.now
	for _, r := range runs {
		first = phrase.EarlierTime(first, r.Start)
	}
	return first
}

// runViews places the runs on one line of time, from first to now.
func (f *fleet) runViews(runs []history.Run, first time.Time, ui kubecli.UIPages) (views []runView) {
	whole := max(f.now.Sub(first), time.Second)
	percent := func(t time.Time) float64 { return min(100, max(0, float64(t.Sub(first))*100/float64(whole))) }
	for _, r := range runs {
		ended := r.End
		if ended.IsZero() {
			ended = f.now
		}
		v := runView{
			Workflow: r.Kind, Began: f.began(r.Start), Lasted: phrase.AgeText(max(ended.Sub(r.Start), 0)),
			Outcome: r.Text(), Class: classOfRun(r), X: percent(r.Start),
			Timeline: ui.Run(r.WorkflowID, r.RunID, kubecli.TabTimeline), Details: r.Page,
		}
		v.Width = max(0.8, percent(ended)-v.X) // a short run stays visible
		v.X = min(v.X, 100-v.Width)
		views = append(views, v)
	}
	return views
}

// classOfRun returns the class of the style of a run.
func classOfRun(r history.Run) string {
	switch r.Outcome {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING.String():
		return "open"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED.String(),
		enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT.String(),
		enumspb.WORKFLOW_EXECUTION_STATUS_FAILED.String():
		return "bad"
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED.String():
		return "ended"
	default:
		return "done"
	}
}
