package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
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
	Healthy    link // the healthy pools, if the table leaves them out; empty: it has them
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
	causes := groupCauses(pools, f.now)
	o := &overviewView{
		Headline:   f.headline(pools, causes),
		Tiles:      f.tiles(q),
		Causes:     f.causeViews(causes[:min(len(causes), maxCauses)]),
		MoreCauses: max(0, len(causes)-maxCauses),
		Filter:     f.filter(q, "/"),
	}
	if len(pools) > poolsPerPage && q.state == "" && q.page == 1 {
		before := len(pools)
		pools = list.Filter(pools, func(p *pool) bool { return p.state != stateHealthy })
		if healthy := before - len(pools); healthy > 0 {
			q := q
			q.state = string(groupHealthy)
			o.Healthy = link{countText(healthy, "healthy pool"), q.address("/")}
		}
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
		for _, p := range c.Pools {
			stopped[p.Pool] = true
		}
	}
	var parts []string
	doubt := f.doubtText()
	if len(causes) == 0 && doubt == "" {
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
	return phrase.TextIf(doubt != "", "%s. By the last statuses: ", doubt) + strings.Join(parts, "; ") + "."
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
		if i.state != stateUnreachable && i.state != stateUnserved && i.state != stateMoving {
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
	return clusterView{
		Name: c.key.String(), Href: query{cluster: c.key.String(), page: 1}.address("/"), State: viewOfState(c.state),
		Machines: fmt.Sprintf("%d/%d", c.counts.ready, c.counts.desired), Text: c.problem,
	}
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

// query is what a page is asked to show.
type query struct {
	namespace, cluster, state, pool string // empty: all
	page                            int    // from 1
}

// maxPage bounds the number of a page, so that a product with the size of a page does not overflow.
const maxPage = 1_000_000

func parseQuery(v url.Values) query {
	page, err := strconv.Atoi(v.Get("page"))
	if err != nil || page < 1 || page > maxPage {
		page = 1
	}
	return query{
		namespace: v.Get("namespace"), cluster: v.Get("cluster"), state: v.Get("state"), pool: v.Get("pool"), page: page,
	}
}

// address returns the address of a page with this query. The first page has no number.
func (q query) address(path string) string {
	v := url.Values{}
	for key, value := range map[string]string{
		"namespace": q.namespace, "cluster": q.cluster, "state": q.state, "pool": q.pool,
	} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.page > 1 {
		v.Set("page", strconv.Itoa(q.page))
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

func (q query) isFiltered() bool { return q.namespace+q.cluster+q.state+q.pool != "" }

func (q query) withPage(page int) query {
	q.page = page
	return q
}

// acceptsCluster reports whether the filter of namespace and cluster accepts a cluster.
func (q query) acceptsCluster(k clusterKey) bool {
	return (q.namespace == "" || q.namespace == k.Namespace) && (q.cluster == "" || q.cluster == k.String())
}

func (q query) acceptsPool(p *pool) bool {
	return q.acceptsCluster(p.cluster) && p.state.matches(q.state) && (q.pool == "" || q.pool == p.id.String())
}

// acceptsMachine is acceptsPool for a machine, whose state is a category or blocked.
func (q query) acceptsMachine(m *machineRow) bool {
	if !q.acceptsCluster(m.pool.cluster) || q.pool != "" && q.pool != m.pool.id.String() {
		return false
	}
	switch q.state {
	case "":
		return true
	case "blocked":
		return m.isBlocked()
	case "ready":
		return m.isReady && !m.isDeleting
	default:
		return q.state == categoryNames()[m.category].class
	}
}

// paging says which part of a list a page shows, and has the addresses of its neighbours.
type paging struct {
	First, Last, Total int // numbers of the first and last item, from 1
	Previous, Next     string
}

// pageOf returns the items of a page. A number beyond the last page means the last page.
func pageOf[T any](items []T, size int, q query, path string) ([]T, paging) {
	pages := max(1, (len(items)+size-1)/size)
	page := min(q.page, pages)
	first := (page - 1) * size
	last := min(first+size, len(items))
	p := paging{First: first + 1, Last: last, Total: len(items)}
	if page > 1 {
		p.Previous = q.withPage(page - 1).address(path)
	}
	if page < pages {
		p.Next = q.withPage(page + 1).address(path)
	}
	return slices.Clip(items[first:last]), p
}

// HasOthers reports whether the list has more than one page.
func (p paging) HasOthers() bool { return p.Previous+p.Next != "" }
