package rollout

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"millwright/decide/list"
	"millwright/decide/rollout/simulate"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

// writeSetTable writes the table of setRows.
func (s snapshot) writeSetTable(out io.Writer) {
	rows, rest := s.setRows()
	if rows == nil {
		return
	}
	_, _ = fmt.Fprintln(out)
	_ = printers.WriteTable(out, rows) // a write to a buffer never fails
	if rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d without machines: millwright rollout history %s\n", rest, s.tree.argument)
	}
}

// setRows returns the header, a row for the current set, and a row for each other set with machines or with replicas
// above 0, the newest revision first; rest is the number of the other sets. Without a row, setRows returns nil.
func (s snapshot) setRows() (rows [][]any, rest int) {
	shown := s.shownSets()
	if len(shown) == 0 {
		return nil, 0
	}
	rows = [][]any{
		{
			"REVISION",
			"SET",
			"REPLICAS",
			"MACHINES",
			"READY",
			"AVAILABLE",
			"TERMINATING",
			strings.ToUpper(s.tree.templateWord),
			"CURRENT",
		},
	}
	for _, i := range shown {
		a := s.setAnswer(i)
		rows = append(rows, []any{
			revisionCell(a.Revision), a.Name, a.Replicas, a.Machines, a.Ready, a.Available, a.Terminating,
			a.Template, yesOrEmptyCell(a.Current),
		})
	}
	return rows, len(s.facts.Sets) - len(shown)
}

// shownSets returns the indices of the current set, and of each other set with machines or with replicas above 0, the
// newest revision first.
func (s snapshot) shownSets() (shown []int) {
	for _, i := range slices.Backward(s.setIndicesByRevision()) {
		if set := s.facts.Sets[i]; i == s.currentSetIndex() || set.Replicas > 0 || len(set.Machines) > 0 {
			shown = append(shown, i)
		}
	}
	return shown
}

// maxMachineRows is the maximum number of awaited machines in the table. Ten rows fit on a screen below the rest of the
// output.
const maxMachineRows = 10

// writeMachineTable writes a row for each machine that the rollout waits for.
func (s snapshot) writeMachineTable(out io.Writer) {
	awaited := s.awaitedMachines()
	if len(awaited) == 0 {
		return
	}
	rows := [][]any{{"MACHINE", "PHASE", "SINCE", "LAST OPERATION"}}
	for _, m := range awaited[:min(len(awaited), maxMachineRows)] {
		rows = append(
			rows,
			[]any{
				m.name,
				printers.NewStateWord(m.phase),
				kubecli.AgeText(m.phaseBeginTime, s.now),
				kubecli.CollapseSpaces(m.lastOperation),
			},
		)
	}
	_, _ = fmt.Fprintln(out)
	_ = printers.WriteTable(out, rows) // a write to a buffer never fails
	if rest := len(awaited) - maxMachineRows; rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d more\n", rest)
	}
}

// awaitedMachines returns the machines that the rollout waits for: first the machines of the current set that are not
// available, then the machines of other sets that are being deleted or updated in place.
func (s snapshot) awaitedMachines() []treeMachine {
	first, then := map[string]bool{}, map[string]bool{}
	for i, set := range s.facts.Sets {
		for _, m := range set.Machines {
			if i == s.currentSetIndex() {
				first[m.Name] = !m.Available
			} else {
				then[m.Name] = m.Deleting || m.Updating
			}
		}
	}
	return slices.Concat(
		list.Filter(s.tree.Machines, func(m treeMachine) bool { return first[m.name] }),
		list.Filter(s.tree.Machines, func(m treeMachine) bool { return then[m.name] }),
	)
}

// revisionCell formats a revision for a table; empty if the set has no revision yet.
func revisionCell(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func yesOrEmptyCell(yes bool) string {
	if yes {
		return "yes"
	}
	return ""
}

// writeStepTable writes a numbered row for each step, with the size of every set after the step.
func (s snapshot) writeStepTable(out io.Writer, steps []simulate.PredictedStep) {
	now := simulate.PredictedStep{Action: "as it is now"}
	for _, set := range s.facts.Sets {
		now.Sizes = append(now.Sizes, simulate.PredictedSetSize{Set: set.Name, Replicas: set.Replicas})
	}
	steps = slices.Insert(steps, 0, now)
	names := namesOfNonemptySets(steps)
	rows := [][]any{{"#"}}
	for _, name := range names {
		rows[0] = append(rows[0], name)
	}
	rows[0] = append(rows[0], "STEP")
	for i, step := range steps {
		row := []any{i}
		if i == 0 {
			row[0] = "-"
		}
		for _, name := range names {
			row = append(row, sizeOfSet(step.Sizes, name))
		}
		rows = append(rows, append(row, step.Action))
	}
	_ = printers.WriteTable(out, rows) // a write to a buffer never fails
}

// namesOfNonemptySets returns the names of the sets with replicas after at least one step, from the oldest to the
// newest.
func namesOfNonemptySets(steps []simulate.PredictedStep) []string {
	var names []string
	for _, step := range steps {
		for _, size := range step.Sizes {
			if !slices.Contains(names, size.Set) {
				names = append(names, size.Set)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(steps, func(step simulate.PredictedStep) bool { return sizeOfSet(step.Sizes, name) > 0 })
	})
}

// sizeOfSet returns the size of a set; 0 if the set is not in the list.
func sizeOfSet(row []simulate.PredictedSetSize, set string) int {
	for _, size := range row {
		if size.Set == set {
			return size.Replicas
		}
	}
	return 0
}
