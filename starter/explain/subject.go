package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/list"
	"millwright/observe/cache"
	"millwright/observe/machine"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// subject is the object that is explained.
type subject struct {
	kind                           string
	workflowKind                   run.Kind      // kind of the object's workflow; empty if the object has no workflow
	workflowObject                 metav1.Object // object whose name is in the workflow's ID; nil means the object itself
	object                         metav1.Object
	generation, observedGeneration int64 // seen: the generation that the status observed; 0 if the kind has none
	operation                      *v1alpha1.Operation
	idleText                       string // state of the object, for a status without a sentence
	provider                       string // provider of the object's class or of its machines' class; empty if not known
	counts                         *counts
	machine                        *member // the object itself, if the object is a machine
	members                        []member
}

// member is a machine with its wait.
type member struct {
	name, status string
	operation    *v1alpha1.Operation // nil if the machine is idle
	currentWait  explain.WaitState
}

// newMember returns the member for a machine. The argument of is the machine's class; nil if the class cannot be read.
func newMember(m *v1alpha1.Machine, of *v1alpha1.MachineClass, now time.Time) member {
	return member{
		m.Name,
		kubecli.StatusText(*m),
		m.Status.CurrentOperation,
		machine.ExplanationFacts(m, of, now).CurrentWait(),
	}
}

// sentence returns the sentence of the status, or a text that says that the status has no sentence.
func (s *subject) sentence() string {
	return cmp.Or(Sentence(s.kind, s.object, s.operation), kindAndName(s.kind, s.object)+s.idleSentence())
}

// idleSentence returns the state of an object, and says that the object's status names nothing to wait for. For an
// object without a workflow, idleSentence returns the state alone.
func (s *subject) idleSentence() string {
	if s.workflowKind == "" {
		return ": " + s.idleText
	}
	return ": its status names nothing that it waits for: " + s.idleText
}

// Sentence returns the name of an object and the sentence waitsFor of its status; empty if the status has no sentence.
func Sentence(kind string, o metav1.Object, operation *v1alpha1.Operation) string {
	if operation == nil || operation.WaitsFor == "" {
		return ""
	}
	return kindAndName(kind, o) + ": " + operation.WaitsFor
}

func kindAndName(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + kubecli.KeyOfObject(o)
}

// isStatusOutdated reports whether the status observed an earlier generation of the object.
func (s *subject) isStatusOutdated() bool {
	return s.observedGeneration != 0 && s.observedGeneration != s.generation
}

// tone returns the tone of the sentence. An object that waits only for time to pass is not stuck.
func (s *subject) tone() kubecli.Tone {
	if s.isStatusOutdated() || s.operation != nil && len(s.operation.BlockedBy) > 0 {
		return kubecli.Stuck
	}
	return kubecli.Good
}

// waitingMembers returns the machines that wait: blocked machines first, and within each group the longest wait first.
func (s *subject) waitingMembers() []member {
	waiting := list.Filter(s.members, func(m member) bool { return m.operation != nil })
	slices.SortStableFunc(waiting, func(a, b member) int {
		x, y := a.operation, b.operation
		return cmp.Or(list.CompareFalseFirst(len(x.BlockedBy) == 0, len(y.BlockedBy) == 0), x.Since.Compare(y.Since.Time))
	})
	return waiting
}

// writeTable writes a table of the machines that wait.
func (s *subject) writeTable(out io.Writer, now time.Time) error {
	waiting := s.waitingMembers()
	if len(waiting) == 0 {
		return nil
	}
	rows := [][]any{{"MACHINE", "STATUS", "STEP", "SINCE", "DEADLINE", "WAITS FOR"}}
	for _, m := range waiting[:min(len(waiting), maxMachineRows)] {
		o := m.operation
		rows = append(
			rows,
			[]any{
				m.name,
				m.status,
				o.Step,
				kubecli.AgeText(o.Since.Time, now),
				kubecli.ClockText(cache.TimeOrZero(o.Deadline), now),
				m.currentWait.Cause,
			},
		)
	}
	_, _ = fmt.Fprintln(out)
	if err := kubecli.WriteTable(out, rows); err != nil {
		return err
	}
	if rest := len(waiting) - maxMachineRows; rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d more\n", rest)
	}
	return nil
}
