package run

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
	"millwright/decide/explain"
	"millwright/decide/phrase"
)

// Step is the current work of a workflow, as Temporal's UI, the search attributes and the object's status show it.
type Step struct {
	Name      string    // search attribute Step; empty if nothing is left to do
	Why       string    // reason for the step, one sentence
	Phase     string    // phase of the machine
	Node      string    // node of the machine
	BlockedBy []string  // what blocks the step; nil if nothing blocks the step
	Stuck     bool      // the step can only continue after a person has changed something or the deadline has passed
	Table     string    // list or table that the page shows below Why; see the function FormatTable
	Deadline  time.Time // end of the step; zero if it has no deadline
	Since     time.Time // time at which the step with this name began
	Cause     string    // reason for the duration, a clause without the object's name; empty: Why contains the reason
	WaitsFor  string    // sentence from decide/explain; empty if it is not known yet, or if nothing is left to do
}

// WithBlockers returns the step with the blockers of the object and of the objects below it.
func (s Step) WithBlockers(blocked explain.Summary) Step {
	if blocked.IsBlocked() {
		s.WaitsFor, s.BlockedBy, s.Stuck = blocked.Message, blocked.Blockers, true
		if s.Deadline.IsZero() {
			s.Deadline = blocked.At
		}
	}
	return s
}

// FormatTable formats rows as aligned columns; the first row is the header. The text is preformatted, because
// Temporal's UI shows the cells of a markdown table without space between them.
func FormatTable(rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+columnGapWidth)
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return "```\n" + text.String() + "```"
}

// columnGapWidth is the number of spaces between two columns, as in kubectl's output.
const columnGapWidth = 3

// ReasonList returns the reason as a list for Step.BlockedBy, or nil if the reason is empty.
func ReasonList(reason string) []string {
	if reason == "" {
		return nil
	}
	return []string{reason}
}

// ShowStep sets the current details in Temporal's UI. ShowStep does not set the search attributes, which
// SetSearchAttributes sets before the workflow waits. If the step has not changed, ShowStep keeps the field WaitsFor
// from the status. ShowStep keeps only the first five blockers, for Temporal's UI, the status and the search attribute.
func (o *WorkflowState) ShowStep(ctx workflow.Context, s Step) {
	was := o.Shown
	s.BlockedBy = firstBlockers(s.BlockedBy)
	if s.Since = workflow.Now(ctx); s.Name == was.Name {
		s.Since = was.Since
	}
	if s.Name == was.Name && s.Why == was.Why && s.WaitsFor == "" {
		s.WaitsFor = was.WaitsFor
		if s.BlockedBy == nil {
			s.BlockedBy, s.Stuck = was.BlockedBy, was.Stuck
		}
	}
	o.Shown = s
	workflow.SetCurrentDetails(ctx, s.markdown())
}

// firstBlockers returns the first blockers, at most explain.MaxBlockers.
func firstBlockers(blockers []string) []string {
	return blockers[:min(len(blockers), explain.MaxBlockers)]
}

// AddWaitMessage adds the message from the status, which says what the object waits for, to the step. Activity results
// of earlier versions do not have this message.
func (o *WorkflowState) AddWaitMessage(ctx workflow.Context, said kube.ReportResult) {
	if said.WaitsFor == "" {
		return
	}
	o.Shown.WaitsFor, o.Shown.BlockedBy = said.WaitsFor, firstBlockers(said.BlockedBy)
	o.Shown.Stuck = len(said.BlockedBy) > 0
	workflow.SetCurrentDetails(ctx, o.Shown.markdown())
}

// SetSearchAttributes sets the search attributes that have changed since the last call. Call SetSearchAttributes only
// before work that may take more than a second, because each change costs the server as much as a signal.
func (o *WorkflowState) SetSearchAttributes(ctx workflow.Context) error {
	updates := o.Shown.attributeUpdates(o.publishedStep)
	o.publishedStep = o.Shown
	if len(updates) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}

// publishLastStep publishes the last step of a run that ends with err, and returns err. Before continue-as-new,
// publishLastStep resets the search attributes, as if nothing were left to do.
func (o *WorkflowState) publishLastStep(ctx workflow.Context, err error) error {
	if workflow.IsContinueAsNewError(err) {
		o.Shown = Step{}
	}
	if failed := o.SetSearchAttributes(ctx); err == nil {
		return failed
	}
	return err
}

// markdown returns the text at the top of the workflow's page in Temporal. The text has the sentence about the wait,
// and then the step.
func (s Step) markdown() string {
	why := cmp.Or(s.WaitsFor, s.Why)
	name := cmp.Or(s.Name, phrase.TextIf(len(s.BlockedBy) > 0, "waits"), "calm")
	text := why + "\n\n**" + name + "**"
	if !s.Since.IsZero() {
		text += " since " + phrase.ClockText(s.Since, time.Time{})
	}
	if s.WaitsFor != "" && s.Why != "" && !strings.Contains(s.WaitsFor, s.Why) {
		text += ": " + s.Why
	}
	if s.Table != "" {
		text += "\n\n" + s.Table
	}
	if len(s.BlockedBy) > 0 {
		text += "\n\nblocked by **" + strings.Join(s.BlockedBy, "**, **") + "**"
	}
	if s.Stuck && s.Deadline.IsZero() && explain.NeedsPerson(s.BlockedBy) {
		text += "\n\n**stuck**: nothing moves until somebody changes what blocks it"
	}
	if !s.Deadline.IsZero() {
		text += "\n\nthe next step begins at " + phrase.ClockText(s.Deadline, time.Time{})
	}
	return text
}

// attributeUpdates returns updates for the search attributes that have changed since the previous step.
func (s Step) attributeUpdates(before Step) (updates []temporal.SearchAttributeUpdate) {
	for _, a := range []struct{ name, from, to string }{
		{"Step", before.Name, s.Name}, {"Phase", before.Phase, s.Phase}, {"Node", before.Node, s.Node},
	} {
		if a.from != a.to {
			updates = append(updates, keywordUpdate(a.name, a.to))
		}
	}
	if !slices.Equal(s.BlockedBy, before.BlockedBy) {
		updates = append(updates, keywordListUpdate("BlockedBy", s.BlockedBy))
	}
	if s.Stuck != before.Stuck {
		updates = append(updates, temporal.NewSearchAttributeKeyBool("Stuck").ValueSet(s.Stuck))
	}
	if !s.Deadline.Equal(before.Deadline) {
		key := temporal.NewSearchAttributeKeyTime("Deadline")
		update := key.ValueUnset()
		if !s.Deadline.IsZero() {
			update = key.ValueSet(s.Deadline)
		}
		updates = append(updates, update)
	}
	return updates
}

// StatusStep returns the step as the object's status shows it.
func (o *WorkflowState) StatusStep() *kube.Step {
	s := o.Shown
	return &kube.Step{
		WorkflowID: o.ID,
		Name:       s.Name,
		Since:      s.Since,
		Deadline:   s.Deadline,
		BlockedBy:  s.BlockedBy,
		Cause:      cmp.Or(s.Cause, s.Why),
	}
}
