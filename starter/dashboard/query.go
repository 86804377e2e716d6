package dashboard

import (
	"net/url"
	"slices"
	"strconv"
)

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
