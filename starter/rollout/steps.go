package rollout

import (
	"io"
	"slices"

	"millwright/decide/rollout/simulate"
	"millwright/starter/kubecli"
)

// stepTable numbers the steps, with the size of every set after each.
func (s snapshot) stepTable(out io.Writer, steps []simulate.Foreseen) {
	now := simulate.Foreseen{Step: "as it is now"}
	for _, set := range s.facts.Sets {
		now.Sizes = append(now.Sizes, simulate.Size{Set: set.Name, Replicas: set.Replicas})
	}
	steps = slices.Insert(steps, 0, now)
	names := columns(steps)
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
			row = append(row, sizeIn(step.Sizes, name))
		}
		rows = append(rows, append(row, step.Step))
	}
	_ = kubecli.WriteTable(out, rows) // a buffer never fails
}

// columns are the sets that have machines after any step, from the oldest to the newest.
func columns(steps []simulate.Foreseen) []string {
	var names []string
	for _, step := range steps {
		for _, size := range step.Sizes {
			if !slices.Contains(names, size.Set) {
				names = append(names, size.Set)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(steps, func(step simulate.Foreseen) bool { return sizeIn(step.Sizes, name) > 0 })
	})
}

// sizeIn is the size of a set in a list that leaves out sets without machines.
func sizeIn(row []simulate.Size, set string) int {
	for _, size := range row {
		if size.Set == set {
			return size.Replicas
		}
	}
	return 0
}
