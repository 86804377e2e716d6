package dashboard

import (
	"fmt"
	"strings"

	"millwright/decide/list"
	"millwright/starter/kubecli"
	"millwright/starter/rollout"
)

// poolView is the page of one pool.
type poolView struct {
	Name     string
	Kind     string
	Row      poolRow
	Causes   []causeView
	Rollout  *rolloutView
	Note     string // why the rollout is not shown
	Sets     table
	Machines []machineRowView
	Paging   paging
	History  table
	UI       string // page of Temporal's UI
}

// rolloutView is the state of a pool's rollout.
type rolloutView struct {
	Sentence string
	Steps    []stepView
	Facts    []fact
	Commands []advice
}

// stepView is one step of a rollout policy.
type stepView struct {
	Number int
	Text   string
	Word   string // passed, in progress or next
	Class  string
}

// fact is a fact with its name.
type fact struct{ Name, Text string }

// advice is a command with what it does.
type advice struct{ Text, Command string }

// table is a table of texts.
type table struct {
	Header []string
	Rows   [][]string
}

// machinesOfPool is how many machines a page of a pool shows.
const machinesOfPool = 50

// poolPage returns the page of a pool. The report is what the API server says about its rollout now; note says why it is
// missing.
func (f *fleet) poolPage(p *pool, q query, report *rollout.Report, note, ui string) *poolView {
	v := &poolView{
		Name:   p.name(),
		Kind:   p.kindText(),
		Row:    f.poolRow(p),
		Causes: f.causeViews(groupCauses([]*pool{p}, f.now)),
		Note:   note,
		UI:     ui,
	}
	shown, paging := pageOf(p.machines, machinesOfPool, q, poolPath(p.id))
	v.Machines, v.Paging = list.Map(shown, f.machineRow), paging
	switch {
	case report != nil:
		v.Rollout, v.Sets, v.History = newRolloutView(report), newTable(report.Sets), newTable(report.History)
	case len(p.sets) > 0:
		v.Sets = p.setTable()
	}
	return v
}

// setTable returns the table of the sets if no report has it.
func (p *pool) setTable() table {
	t := table{Header: []string{"Set", "Replicas", "Revision"}}
	for _, set := range p.sets {
		t.Rows = append(t.Rows, []string{set.id.Name, fmt.Sprint(set.desired), fmt.Sprint(set.revision)})
	}
	return t
}

func newRolloutView(r *rollout.Report) *rolloutView {
	v := &rolloutView{Sentence: r.State}
	for i, step := range r.Steps {
		s := stepView{Number: i + 1, Text: step.String(), Word: "next", Class: "next"}
		switch {
		case step.IsPassed:
			s.Word, s.Class = "passed", "passed"
		case step.IsCurrent:
			s.Word, s.Class = "in progress", "current"
		}
		v.Steps = append(v.Steps, s)
	}
	for _, row := range r.Facts {
		v.Facts = append(v.Facts, fact{fmt.Sprint(row[0]), fmt.Sprint(row[1])})
	}
	for _, line := range r.Commands {
		text, command, found := strings.Cut(line, ": ")
		if !found {
			text, command = "", line
		}
		v.Commands = append(v.Commands, advice{text, command})
	}
	return v
}

// newTable returns a table whose first row is the header, in capitals.
func newTable(rows [][]any) (t table) {
	for i, row := range rows {
		texts := list.Map(row, func(cell any) string { return kubecli.CollapseSpaces(fmt.Sprint(cell)) })
		if i == 0 {
			t.Header = list.Map(texts, func(text string) string { return upperFirst(strings.ToLower(text)) })
			continue
		}
		t.Rows = append(t.Rows, texts)
	}
	return t
}
