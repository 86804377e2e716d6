package rollout

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/rollout"
	"millwright/starter/kubecli"
)

// setTable shows the current set and all that have or want machines, the newest revision first.
func (s snapshot) setTable(out io.Writer) {
	var shown []int
	for _, i := range slices.Backward(s.byRevision()) {
		if set := s.facts.Sets[i]; i == s.current() || set.Replicas > 0 || len(set.Machines) > 0 {
			shown = append(shown, i)
		}
	}
	if len(shown) == 0 {
		return
	}
	rows := [][]any{{"REVISION", "SET", "REPLICAS", "MACHINES", "READY", "AVAILABLE", "TERMINATING", "CLASS", "CURRENT"}}
	for _, i := range shown {
		set := s.facts.Sets[i]
		rows = append(rows, []any{
			revisionCell(set.Revision), set.Name, set.Replicas, len(set.Machines),
			list.Count(set.Machines, func(m rollout.Member) bool { return m.Ready && !m.Deleting }),
			list.Count(set.Machines, func(m rollout.Member) bool { return m.Available }),
			list.Count(set.Machines, func(m rollout.Member) bool { return m.Deleting }),
			s.family.Sets[i].Spec.Template.Spec.Class.Name, yesCell(i == s.current()),
		})
	}
	_, _ = fmt.Fprintln(out)
	_ = kubecli.WriteTable(out, rows) // a buffer never fails
	if rest := len(s.facts.Sets) - len(shown); rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d without machines: starter rollout history %s\n", rest, s.key())
	}
}

// mostMachines is how many awaited machines are shown. Source: what fits on a screen below the rest.
const mostMachines = 10

// machineTable shows the machines that the rollout waits for.
func (s snapshot) machineTable(out io.Writer) {
	awaited := s.awaited()
	if len(awaited) == 0 {
		return
	}
	rows := [][]any{{"MACHINE", "PHASE", "SINCE", "LAST OPERATION"}}
	for _, m := range awaited[:min(len(awaited), mostMachines)] {
		operation := kubecli.OneLine(m.Status.LastOperation.Description)
		rows = append(rows, []any{m.Name, kubecli.Status(*m), kubecli.Age(phaseSince(m), s.now), operation})
	}
	_, _ = fmt.Fprintln(out)
	_ = kubecli.WriteTable(out, rows) // a buffer never fails
	if rest := len(awaited) - mostMachines; rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d more\n", rest)
	}
}

// awaited returns the machines that the rollout waits for: those of the current set that are not available, then those of other
// sets that are being deleted or updated in place.
func (s snapshot) awaited() []*v1alpha1.Machine {
	first, then := map[string]bool{}, map[string]bool{}
	for i, set := range s.facts.Sets {
		for _, m := range set.Machines {
			if i == s.current() {
				first[m.Name] = !m.Available
			} else {
				then[m.Name] = m.Deleting || m.Updating
			}
		}
	}
	return slices.Concat(
		list.Where(s.family.Members, func(m *v1alpha1.Machine) bool { return first[m.Name] }),
		list.Where(s.family.Members, func(m *v1alpha1.Machine) bool { return then[m.Name] }),
	)
}

// phaseSince is when a machine entered its phase.
func phaseSince(m *v1alpha1.Machine) time.Time {
	switch {
	case m.DeletionTimestamp != nil:
		return m.DeletionTimestamp.Time
	case m.Status.CurrentStatus.LastUpdateTime.IsZero():
		return m.CreationTimestamp.Time
	default:
		return m.Status.CurrentStatus.LastUpdateTime.Time
	}
}

// revisionCell is a revision in a table; empty if the set has none yet.
func revisionCell(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func yesCell(yes bool) string {
	if yes {
		return "yes"
	}
	return ""
}
