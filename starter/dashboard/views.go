package dashboard

import (
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"millwright/decide/phrase"
	"millwright/process/problems"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
)

// view is what every page has.
type view struct {
	Title     string
	Context   string // context of the kubeconfig
	Namespace string // namespace that is shown; empty: all
	Clock     string // time of the page
	Active    string // name of the entry of the navigation
	UI        string // address of Temporal's UI with all open workflows
	Alarms    []alarm
	IsLoading bool
	Status    string // one line that is read out when it changes

	Overview *overviewView
	Machines *machinesView
	Pool     *poolView
	Machine  *machineView
	Message  *messageView
}

// messageView is a page without objects: an error, or a name that no object has.
type messageView struct{ Text, Command string }

// alarm is a problem of the installation, or of the page itself.
type alarm struct {
	Text     string
	Command  string // command that says more
	IsSevere bool   // nothing moves, or the page is not complete
}

// link is the text of a link with its address.
type link struct{ Text, Href string }

func poolPath(o objectID) string    { return objectPath("pool", o) }
func machinePath(o objectID) string { return objectPath("machine", o) }

func objectPath(page string, o objectID) string {
	return "/" + page + "/" + url.PathEscape(o.Kind) + "/" + url.PathEscape(o.Namespace) + "/" + url.PathEscape(o.Name)
}

// alarms returns the problems of worker and bridge, and what cannot be read.
func (f *fleet) alarms() (all []alarm) {
	const doctor = "millwright doctor"
	for _, h := range f.processes {
		if h.MissingMessage != "" {
			all = append(all, alarm{h.MissingMessage, doctor, true})
		}
	}
	for _, line := range f.readErrors {
		all = append(all, alarm{upperFirst(line) + ". What is shown may be incomplete or old.", "", true})
	}
	for _, h := range f.processes {
		for _, text := range h.ProblemSentences("", f.now, func(problems.Problem) bool { return true }) {
			all = append(all, alarm{text, doctor, false})
		}
		_, isUnreachable := errors.AsType[*url.Error](h.Err) // then the objects cannot be read, either
		if text := h.DoubtText(f.now); text != "" && (!isUnreachable || len(f.readErrors) == 0) {
			all = append(all, alarm{upperFirst(text) + ".", doctor, false})
		}
	}
	return all
}

// moment is a time as pages show it.
type moment struct {
	ISO  string // for programs; empty: the time is zero
	Text string
}

func (f *fleet) since(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	return moment{t.UTC().Format(time.RFC3339), kubecli.AgeText(t, f.now) + " (since " + kubecli.ClockText(t, f.now) + ")"}
}

func (f *fleet) began(t time.Time) moment {
	return moment{t.UTC().Format(time.RFC3339), "began at " + kubecli.TimeWithAgeText(t, f.now)}
}

func (f *fleet) age(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	return moment{t.UTC().Format(time.RFC3339), kubecli.AgeText(t, f.now)}
}

func (f *fleet) deadline(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	return moment{t.UTC().Format(time.RFC3339), phrase.TimeText(t, f.now)}
}

func upperFirst(text string) string {
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(r)) + text[size:]
}

// causeView is one card about what stands still.
type causeView struct {
	Text        string
	Who         string // how many machines of which pools
	Next        string // what happens without a person
	Since       moment
	Deadline    moment
	When        string // at or from: the deadlines of several machines differ
	NeedsPerson bool
	Commands    []string
	Pools       []link
	MorePools   int
	Machine     link // a machine that waits for it; empty: none
}

// Bounds of a card: more would hide the next card.
const (
	maxCauses   = 12
	maxCommands = 2
	maxPools    = 6
)

func (f *fleet) causeViews(causes []*cause) (views []causeView) {
	for _, c := range causes {
		v := causeView{
			Text:        upperFirst(c.Text),
			Who:         whoText(c),
			Next:        upperFirst(c.Next),
			Since:       f.since(c.Since),
			Deadline:    f.deadline(c.NextAt),
			When:        "at",
			NeedsPerson: c.NeedsPerson,
			Commands:    shownCommands(c),
			MorePools:   max(0, len(c.Pools)-maxPools),
		}
		if c.TimesDiffer {
			v.When = "from"
		}
		for _, p := range c.Pools[:min(len(c.Pools), maxPools)] {
			v.Pools = append(v.Pools, link{p.Pool.name(), poolPath(p.Pool.id)})
		}
		for _, m := range c.First.Pool.machines {
			if m.id.Name == c.First.Machine {
				v.Machine = link{m.id.Name, machinePath(m.id)}
			}
		}
		views = append(views, v)
	}
	return views
}

// shownCommands returns the commands of a card. Of the commands that explain one machine each, one is enough.
func shownCommands(c *cause) []string {
	explains := func(command string) bool { return strings.HasPrefix(command, "millwright explain ") }
	commands := slices.Clone(c.Commands)
	if i := slices.IndexFunc(commands, explains); i >= 0 {
		commands = append(commands[:i+1], slices.DeleteFunc(commands[i+1:], explains)...)
	}
	return commands[:min(len(commands), maxCommands)]
}

func whoText(c *cause) string {
	if c.Machines == 0 {
		return phrase.CountText(len(c.Pools), "pool")
	}
	return fmt.Sprintf("%s of %s", phrase.CountText(c.Machines, "machine"), phrase.CountText(len(c.Pools), "pool"))
}

// name returns the name of a pool as pages show it.
func (p *pool) name() string {
	if p.id.Kind == kindLoose {
		return p.cluster.String() + " (machines without a set)"
	}
	return p.id.Key()
}

// kindText says what a pool is if it is no MachineDeployment of Millwright's own kinds.
func (p *pool) kindText() string {
	switch p.id.Kind {
	case kindSet:
		return "MachineSet"
	case kindClusterAPIDeployment:
		return "Cluster API"
	case kindClusterAPISet:
		return "MachineSet, Cluster API"
	default:
		return ""
	}
}

// stateView is a badge.
type stateView struct {
	Class string // class of the style and name of the symbol
	Group string
	Word  string
}

func viewOfState(s state) stateView { return stateView{string(s), string(s.Group()), s.Word()} }

// poolRow is a pool in a table.
type poolRow struct {
	Name, Href, Kind string
	Cluster          link
	HasCluster       bool // the cluster has another name than the namespace
	State            stateView
	Bar              bar
	Revision         string
	Step             string
	Since            moment
}

func (f *fleet) poolRow(p *pool) poolRow {
	r := poolRow{
		Name:       p.name(),
		Href:       poolPath(p.id),
		Kind:       p.kindText(),
		State:      viewOfState(p.state),
		Bar:        newBar(p.counts, p.names()),
		Step:       p.progressText(),
		Since:      f.age(p.since),
		HasCluster: p.cluster.Name != "",
		Cluster:    link{p.cluster.String(), query{cluster: p.cluster.String(), page: 1}.address("/")},
	}
	if p.revision > 0 {
		r.Revision = fmt.Sprint(p.revision)
	}
	return r
}

// progressText says what the pool does now: the revision of its pin, the step of its policy, how far its rollout is, or
// the step of its work.
func (p *pool) progressText() string {
	switch step := p.stepText(); {
	case p.isPinned():
		return fmt.Sprintf("pinned to revision %d", p.rollout.Pin.Revision)
	case step != "":
		return step
	case p.counts.byCategory[categoryOld] > 0:
		return fmt.Sprintf("%d of %d done", p.counts.byCategory[categoryUpToDate], p.counts.desired)
	case p.operation != nil:
		return strings.ReplaceAll(p.operation.Step, "-", " ")
	default:
		return ""
	}
}

// machineRowView is a machine in a table.
type machineRowView struct {
	Name, Href string
	Pool       link
	Class      string // class of the style: its category, or blocked
	Phase      string
	Since      moment
	Node       string
	Step       string
	Waits      string
}

func (f *fleet) machineRow(m *machineRow) machineRowView {
	v := machineRowView{
		Name: m.id.Name, Href: machinePath(m.id), Pool: link{m.pool.name(), poolPath(m.pool.id)},
		Class: categoryNames()[m.category].class, Phase: m.phase, Since: f.age(m.phaseSince), Node: m.node,
	}
	switch {
	case m.isBlocked():
		v.Class = "blocked"
	case m.category == categoryOld && !m.isReady:
		v.Class = categoryNames()[categoryStarting].class
	}
	if o := m.currentOperation; o != nil {
		v.Step, v.Since = o.Step, f.age(o.Since.Time)
		if waits := explain.WaitsOf(o); len(waits) > 0 {
			v.Waits = waits[0].Cause
		}
	}
	return v
}

//go:embed templates
var files embed.FS

// renderer makes the HTML of the pages. The templates escape each text for its place, so names and messages of objects
// cannot change a page.
type renderer struct {
	pages         *template.Template
	script, style string
}

func newRenderer() (*renderer, error) {
	script, err := files.ReadFile("templates/live.js")
	if err != nil {
		return nil, fmt.Errorf("read the script: %w", err)
	}
	style, err := files.ReadFile("templates/style.css")
	if err != nil {
		return nil, fmt.Errorf("read the style: %w", err)
	}
	r := &renderer{script: string(script), style: string(style)}
	r.pages, err = template.New("").Funcs(template.FuncMap{
		"script":   func() template.JS { return template.JS(r.script) },
		"style":    func() template.CSS { return template.CSS(r.style) },
		"legend":   categoryNames,
		"withPool": func(machines []machineRowView, with bool) machineTable { return machineTable{machines, with} },
	}).ParseFS(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("parse the templates: %w", err)
	}
	return r, nil
}

// machineTable is a table of machines, with or without a column for their pools.
type machineTable struct {
	Machines []machineRowView
	WithPool bool
}

// render writes a page, or only its main part.
func (r *renderer) render(out io.Writer, v view, onlyMain bool) error {
	name := "page"
	if onlyMain {
		name = "main"
	}
	return r.pages.ExecuteTemplate(out, name, v)
}
