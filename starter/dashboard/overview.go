package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// overviewView is the first page: what stands still, the pools, and the clusters.
type overviewView struct {
	Headline   string
	Tiles      []tile
	Causes     []causeView
	MoreCauses int
	Filter     filterView
	Pools      []poolRow
	Paging     paging
	Groups     []clusterGroup
}

// tile is a number with its meaning, and a link to the objects that it counts.
type tile struct {
	Number, Label, Href, Class string
}

// filterView is the form with which a person selects what a page shows.
type filterView struct {
	Path                      string
	Namespace, Cluster, State string
	Pool                      string
	Namespaces, Clusters      []string
	States                    []option
	IsFiltered                bool
	Reset                     string
}

// option is one choice of a form.
type option struct {
	Value, Text string
	IsChosen    bool
}

// clusterGroup are the clusters in one group of states.
type clusterGroup struct {
	Title    string
	Class    string
	Clusters []clusterView
}

// clusterView is one cluster in the list of all clusters.
type clusterView struct {
	Name, Href string
	State      stateView
	Machines   string // ready and wanted machines
	Text       string // what is wrong with the connection to the cluster
}

// poolsPerPage is how many pools a page of the overview shows. Source: a table of 25 rows is read at a glance on two
// screens, and what needs a person comes first.
const poolsPerPage = 25

func (f *fleet) overview(q query) *overviewView {
	pools := list.Filter(f.pools, q.acceptsPool)
	causes := groupCauses(pools)
	o := &overviewView{
		Headline:   f.headline(pools, causes),
		Tiles:      f.tiles(q),
		Causes:     f.causeViews(causes[:min(len(causes), maxCauses)]),
		MoreCauses: max(0, len(causes)-maxCauses),
		Filter:     f.filter(q, "/"),
	}
	shown, paging := pageOf(pools, poolsPerPage, q, "/")
	o.Pools, o.Paging = list.Map(shown, f.poolRow), paging
	o.Groups = f.clusterGroups(q)
	return o
}

// headline says in one sentence how the fleet is.
func (f *fleet) headline(pools []*pool, causes []*cause) string {
	var sum counts
	stopped, moving := map[*pool]bool{}, 0
	for _, p := range pools {
		sum.add(p.counts)
		if p.state.Group() == groupMotion {
			moving++
		}
	}
	for _, c := range causes {
		for _, p := range c.pools {
			stopped[p] = true
		}
	}
	var parts []string
	switch doubt := f.doubtText(); {
	case doubt != "":
		parts = append(parts, doubt)
	case len(causes) == 0:
		parts = append(parts, "Nothing stands still")
	}
	if n := len(stopped); n > 0 {
		parts = append(parts, fmt.Sprintf(
			"%d %s still, for %s", n, phrase.SingularOrPlural(n, "pool stands", "pools stand"),
			phrase.CountText(len(causes), "cause"),
		))
	}
	if moving > 0 {
		parts = append(parts, phrase.CountText(moving, "pool")+" in motion")
	}
	parts = append(parts, fmt.Sprintf("%s of %s ready", groupedNumber(sum.ready), countText(sum.desired, "machine")))
	return strings.Join(parts, "; ") + "."
}

// doubtText says why nobody knows what stands still now; empty if the statuses are current and complete.
func (f *fleet) doubtText() string {
	if f.isLoading {
		return "The objects are being read"
	}
	for _, h := range f.processes {
		if h.MissingMessage != "" {
			return fmt.Sprintf("What moves now is not known: no %s is at work", h.Process)
		}
	}
	if len(f.readErrors) > 0 {
		return "What moves now is not known: not all objects can be read"
	}
	return ""
}

// groupedNumber writes a number with a comma between thousands.
func groupedNumber(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func countText(n int, thing string) string {
	return groupedNumber(n) + " " + phrase.SingularOrPlural(n, thing, thing+"s")
}

// tiles count the pools by group of states, and the clusters and machines.
func (f *fleet) tiles(q query) []tile {
	byGroup := map[stateGroup]int{}
	var sum counts
	scope := query{namespace: q.namespace, cluster: q.cluster, page: 1}
	for _, p := range f.pools {
		if scope.acceptsPool(p) {
			byGroup[p.state.Group()]++
			sum.add(p.counts)
		}
	}
	in := func(state string) string {
		q := scope
		q.state = state
		return q.address("/")
	}
	clusters := list.CountWhere(f.clusters, func(c *cluster) bool { return scope.acceptsCluster(c.key) })
	ofGroup := func(group stateGroup, one, several string) tile {
		n := byGroup[group]
		return tile{
			Number: groupedNumber(n), Label: phrase.SingularOrPlural(n, one, several), Href: in(string(group)),
			Class: phrase.TextIf(n > 0, "%s", group),
		}
	}
	return []tile{
		ofGroup(groupStill, "pool needs attention", "pools need attention"),
		ofGroup(groupMotion, "pool in motion", "pools in motion"),
		ofGroup(groupHealthy, "healthy pool", "healthy pools"),
		{groupedNumber(clusters), phrase.SingularOrPlural(clusters, "cluster", "clusters"), "#clusters", ""},
		{
			groupedNumber(sum.ready) + " / " + groupedNumber(sum.desired), "machines ready", scope.address("/machines"), "",
		},
	}
}

// filter returns the form of a page.
func (f *fleet) filter(q query, path string) filterView {
	v := filterView{
		Path: path, Namespace: q.namespace, Cluster: q.cluster, State: q.state, Pool: q.pool,
		IsFiltered: q.isFiltered(), Reset: path,
	}
	for _, c := range f.clusters {
		if !slices.Contains(v.Namespaces, c.key.Namespace) {
			v.Namespaces = append(v.Namespaces, c.key.Namespace)
		}
		if c.key.Name != "" {
			v.Clusters = append(v.Clusters, c.key.String())
		}
	}
	slices.Sort(v.Namespaces)
	slices.Sort(v.Clusters)
	v.States = []option{
		{"", "all states", q.state == ""},
		{string(groupStill), "needs attention", q.state == string(groupStill)},
		{string(groupMotion), "in motion", q.state == string(groupMotion)},
	}
	for _, i := range stateInfos() {
		if i.state != stateUnreachable && i.state != stateMoving {
			v.States = append(v.States, option{string(i.state), i.word, q.state == string(i.state)})
		}
	}
	if path == "/machines" {
		v.States = []option{
			{"", "all states", q.state == ""},
			{"blocked", "blocked", q.state == "blocked"},
			{"ready", "ready", q.state == "ready"},
		}
		for _, name := range categoryNames() {
			v.States = append(v.States, option{name.class, name.legend, q.state == name.class})
		}
	}
	return v
}

// clusterGroups lists all clusters that the filter accepts: first those that need attention.
func (f *fleet) clusterGroups(q query) (groups []clusterGroup) {
	for _, g := range []struct {
		group        stateGroup
		one, several string
	}{
		{groupStill, "cluster that needs attention", "clusters that need attention"},
		{groupMotion, "cluster in motion", "clusters in motion"},
		{groupHealthy, "healthy cluster", "healthy clusters"},
	} {
		group := clusterGroup{Class: string(g.group)}
		for _, c := range f.clusters {
			if c.state.Group() != g.group || !q.acceptsCluster(c.key) || !c.matches(q.state) {
				continue
			}
			group.Clusters = append(group.Clusters, c.view())
		}
		if n := len(group.Clusters); n > 0 {
			group.Title = groupedNumber(n) + " " + phrase.SingularOrPlural(n, g.one, g.several)
			groups = append(groups, group)
		}
	}
	return groups
}

func (c *cluster) matches(state string) bool { return c.state.matches(state) }

func (c *cluster) view() clusterView {
	v := clusterView{
		Name: c.key.String(), Href: query{cluster: c.key.String(), page: 1}.address("/"), State: viewOfState(c.state),
		Machines: fmt.Sprintf("%d/%d", c.counts.ready, c.counts.desired),
	}
	if c.target != nil && isUnreachable(*c.target) {
		v.Text = string(c.target.State) + phrase.TextIf(c.target.Why != "", ": %s", c.target.Why)
	}
	return v
}

// machinesView is the list of all machines, in pages.
type machinesView struct {
	Filter   filterView
	Machines []machineRowView
	Paging   paging
}

// machinesPerPage is how many machines a page of the list shows.
const machinesPerPage = 100

func (f *fleet) machineList(q query) *machinesView {
	var found []*machineRow
	for _, p := range f.pools {
		for _, m := range p.machines {
			if q.acceptsMachine(m) {
				found = append(found, m)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *machineRow) int { return cmp.Compare(machineRank(a), machineRank(b)) })
	shown, paging := pageOf(found, machinesPerPage, q, "/machines")
	return &machinesView{Filter: f.filter(q, "/machines"), Machines: list.Map(shown, f.machineRow), Paging: paging}
}
