package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
)

// Step is what a workflow is doing, as its page in Temporal, its search attributes and the object's status show it.
type Step struct {
	Name      string    // search attribute Step; empty: the object is calm
	Why       string    // one sentence
	Phase     string    // of a machine
	Node      string    // of a machine
	BlockedBy []string  // nil when nothing blocks
	Stuck     bool      // nothing changes until a person changes something or the deadline passes
	Table     string    // markdown below the sentence
	Deadline  time.Time // zero means none
	Since     time.Time // when a step of this name began
}

// Reasons returns the reason as a list for BlockedBy: nil if it is empty.
func Reasons(reason string) []string {
	if reason == "" {
		return nil
	}
	return []string{reason}
}

// Show sets the current details in Temporal's UI. Publish sets the search attributes, before the workflow waits.
func (o *Object) Show(ctx workflow.Context, s Step) {
	s.Since = workflow.Now(ctx)
	if s.Name == o.Shown.Name {
		s.Since = o.Shown.Since
	}
	o.Shown = s
	workflow.SetCurrentDetails(ctx, s.markdown())
}

// Publish sets the search attributes that differ from those set last. Call it before work that may take longer than a second:
// each call that changes something costs the server as much as a signal.
func (o *Object) Publish(ctx workflow.Context) error {
	updates := o.Shown.updates(o.search)
	o.search = o.Shown
	if len(updates) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}

// close publishes the last step of a run that ends with err, and returns err. The run that continues this one starts with the
// search attributes of a calm object.
func (o *Object) close(ctx workflow.Context, err error) error {
	if workflow.IsContinueAsNewError(err) {
		o.Shown = Step{}
	}
	if failed := o.Publish(ctx); err == nil {
		return failed
	}
	return err
}

// markdown is the text at the top of the workflow's page.
func (s Step) markdown() string {
	text := fmt.Sprintf("**%s** since %s\n\n%s", cmp.Or(s.Name, "calm"), s.Since.UTC().Format(time.TimeOnly+" MST"), s.Why)
	if s.Table != "" {
		text += "\n\n" + s.Table
	}
	if len(s.BlockedBy) > 0 {
		text += "\n\nblocked by **" + strings.Join(s.BlockedBy, "**, **") + "**"
	}
	if s.Stuck && s.Deadline.IsZero() {
		text += "\n\n**stuck**: nothing moves until somebody changes what blocks it"
	}
	if !s.Deadline.IsZero() {
		text += "\n\ngiven up at " + s.Deadline.UTC().Format(time.DateTime+" MST")
	}
	return text
}

// updates returns the search attributes that differ from those of the step before.
func (s Step) updates(before Step) (updates []temporal.SearchAttributeUpdate) {
	for _, a := range []struct{ name, from, to string }{
		{"Step", before.Name, s.Name}, {"Phase", before.Phase, s.Phase}, {"Node", before.Node, s.Node},
	} {
		if a.from != a.to {
			updates = append(updates, keyword(a.name).ValueSet(a.to))
		}
	}
	if !slices.Equal(s.BlockedBy, before.BlockedBy) {
		key := temporal.NewSearchAttributeKeyKeywordList("BlockedBy")
		updates = append(updates, key.ValueSet(append([]string{}, s.BlockedBy...)))
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
	return &kube.Step{WorkflowID: o.ID, Name: s.Name, Since: s.Since, Deadline: s.Deadline, BlockedBy: s.BlockedBy}
}
