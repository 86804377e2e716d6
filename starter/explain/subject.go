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
	kind             string
	workflow         run.Kind      // kind of the workflow that works on it; empty: none does
	of               metav1.Object // object whose name is in the workflow's ID; nil: the object itself
	object           metav1.Object
	generation, seen int64 // seen: the generation that the status observed; zero if the kind has none
	operation        *v1alpha1.Operation
	calm             string // text for an object whose status names nothing that it waits for
	provider         string // provider of its class or of its machines' class; empty: not known
	counts           *counts
	self             *member // the machine, if the object is one
	members          []member
}

// member is a machine.
type member struct {
	name, status string
	operation    *v1alpha1.Operation // nil: it is calm
	wait         explain.Wait
}

// memberOf returns a machine with what it waits for. Of is its class; nil if the class cannot be read.
func memberOf(m *v1alpha1.Machine, of *v1alpha1.MachineClass, now time.Time) member {
	return member{m.Name, kubecli.Status(*m), m.Status.CurrentOperation, machine.Explained(m, of, now).WaitsFor()}
}

// sentence is the sentence of the status, or says that the status has none.
func (s *subject) sentence() string {
	return cmp.Or(Sentence(s.kind, s.object, s.operation), named(s.kind, s.object)+s.silence())
}

// silence returns the state of an object, and says that its status names nothing that it waits for. It says only the
// state if no workflow works on the object.
func (s *subject) silence() string {
	if s.workflow == "" {
		return ": " + s.calm
	}
	return ": its status names nothing that it waits for: " + s.calm
}

// Sentence returns the name of an object and the sentence of its status that says what it waits for; empty if the
// status has no such sentence.
func Sentence(kind string, o metav1.Object, operation *v1alpha1.Operation) string {
	if operation == nil || operation.WaitsFor == "" {
		return ""
	}
	return named(kind, o) + ": " + operation.WaitsFor
}

func named(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + kubecli.KeyOf(o)
}

// unseen reports whether the status observed an earlier generation of the object.
func (s *subject) unseen() bool { return s.seen != 0 && s.seen != s.generation }

// tone is the tone of the sentence. An object that waits for something that only takes time is not stuck.
func (s *subject) tone() kubecli.Tone {
	if s.unseen() || s.operation != nil && len(s.operation.BlockedBy) > 0 {
		return kubecli.Stuck
	}
	return kubecli.Good
}

// waiting returns the machines that wait: blocked machines first, and among them those that have waited longest.
func (s *subject) waiting() []member {
	waiting := list.Where(s.members, func(m member) bool { return m.operation != nil })
	slices.SortStableFunc(waiting, func(a, b member) int {
		x, y := a.operation, b.operation
		return cmp.Or(list.FalseFirst(len(x.BlockedBy) == 0, len(y.BlockedBy) == 0), x.Since.Compare(y.Since.Time))
	})
	return waiting
}

// table lists the machines that wait.
func (s *subject) table(out io.Writer, now time.Time) error {
	waiting := s.waiting()
	if len(waiting) == 0 {
		return nil
	}
	rows := [][]any{{"MACHINE", "STATUS", "STEP", "SINCE", "DEADLINE", "WAITS FOR"}}
	for _, m := range waiting[:min(len(waiting), mostMachines)] {
		o := m.operation
		rows = append(
			rows,
			[]any{
				m.name,
				m.status,
				o.Step,
				kubecli.Age(o.Since.Time, now),
				kubecli.Clock(cache.TimeOf(o.Deadline), now),
				m.wait.Cause,
			},
		)
	}
	_, _ = fmt.Fprintln(out)
	if err := kubecli.WriteTable(out, rows); err != nil {
		return err
	}
	if rest := len(waiting) - mostMachines; rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d more\n", rest)
	}
	return nil
}
