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

// Step is what a workflow is doing, as its page in Temporal, its search attributes and the object's status show it.
type Step struct {
	Name      string    // search attribute Step; empty: the object is calm
	Why       string    // one sentence
	Phase     string    // of a machine
	Node      string    // of a machine
	BlockedBy []string  // nil when nothing blocks
	Stuck     bool      // nothing changes until a person changes something or the deadline passes
	Table     string    // below the sentence; see Table
	Deadline  time.Time // zero means none
	Since     time.Time // when a step of this name began
	Cause     string    // why it takes time, as a clause without the name of the object; empty: Why says it
	WaitsFor  string    // the sentence of decide/explain; empty: not known yet, or the object is calm
}

// Explained returns the step with what blocks the object and those below it.
func (s Step) Explained(blocked explain.Summary) Step {
	if blocked.Blocked() {
		s.WaitsFor, s.BlockedBy, s.Stuck = blocked.Message, blocked.Blockers, true
		if s.Deadline.IsZero() {
			s.Deadline = blocked.At
		}
	}
	return s
}

// Table returns rows in columns, the first row being the head. It is preformatted text: Temporal's UI draws the cells
// of a markdown table without space between them.
func Table(rows [][]string) string {
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
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+columnGap)
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return "```\n" + text.String() + "```"
}

// columnGap is the number of spaces between two columns, as kubectl prints them.
const columnGap = 3

// Reasons returns the reason as a list for BlockedBy: nil if it is empty.
func Reasons(reason string) []string {
	if reason == "" {
		return nil
	}
	return []string{reason}
}

// Show sets the current details in Temporal's UI. SetSearchAttributes sets the search attributes, before the workflow
// waits. A step that is shown again keeps what the status says about it. A step may have any number of blockers: the
// first five are shown, here, in the status and as a search attribute.
func (o *Object) Show(ctx workflow.Context, s Step) {
	was := o.Shown
	s.BlockedBy = first(s.BlockedBy)
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

// first returns the blockers that a step shows.
func first(blockers []string) []string { return blockers[:min(len(blockers), explain.MaxBlockers)] }

// Explain adds to the step the sentence of the status about what the object waits for. Results of earlier versions lack
// this sentence.
func (o *Object) Explain(ctx workflow.Context, said kube.Reported) {
	if said.WaitsFor == "" {
		return
	}
	o.Shown.WaitsFor, o.Shown.BlockedBy = said.WaitsFor, first(said.BlockedBy)
	o.Shown.Stuck = len(said.BlockedBy) > 0
	workflow.SetCurrentDetails(ctx, o.Shown.markdown())
}

// SetSearchAttributes sets the search attributes that differ from those set last. Call it before work that may take
// longer than a second: each call that changes something costs the server as much as a signal.
func (o *Object) SetSearchAttributes(ctx workflow.Context) error {
	updates := o.Shown.updates(o.search)
	o.search = o.Shown
	if len(updates) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}

// close publishes the last step of a run that ends with err, and returns err. The run that continues this one starts
// with the search attributes of a calm object.
func (o *Object) close(ctx workflow.Context, err error) error {
	if workflow.IsContinueAsNewError(err) {
		o.Shown = Step{}
	}
	if failed := o.SetSearchAttributes(ctx); err == nil {
		return failed
	}
	return err
}

// markdown is the text at the top of the workflow's page: first what the object waits for, then the step.
func (s Step) markdown() string {
	why := cmp.Or(s.WaitsFor, s.Why)
	name := cmp.Or(s.Name, phrase.If(len(s.BlockedBy) > 0, "waits"), "calm")
	text := why + "\n\n**" + name + "**"
	if !s.Since.IsZero() {
		text += " since " + phrase.Clock(s.Since, time.Time{})
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
		text += "\n\nthe next step begins at " + phrase.Clock(s.Deadline, time.Time{})
	}
	return text
}

// updates returns the search attributes that differ from those of the step before.
func (s Step) updates(before Step) (updates []temporal.SearchAttributeUpdate) {
	for _, a := range []struct{ name, from, to string }{
		{"Step", before.Name, s.Name}, {"Phase", before.Phase, s.Phase}, {"Node", before.Node, s.Node},
	} {
		if a.from != a.to {
			updates = append(updates, word(a.name, a.to))
		}
	}
	if !slices.Equal(s.BlockedBy, before.BlockedBy) {
		updates = append(updates, words("BlockedBy", s.BlockedBy))
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

// Operation is the step as the object's status shows it.
func (o *Object) Operation() *kube.Step {
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
