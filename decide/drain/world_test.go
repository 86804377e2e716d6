package drain_test

import (
	"strings"
	"time"

	"millwright/decide/drain"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at returns epoch plus d.
func at(d time.Duration) time.Time { return epoch.Add(d) }

// pod returns a running pod of the namespace shop, with these changes.
func pod(name string, changes ...func(*drain.Pod)) drain.Pod {
	p := drain.Pod{
		UID: "uid-" + name, Namespace: "shop", Name: name, Grace: 30 * time.Second, Started: at(-time.Hour), Ready: true,
	}
	return with(p, changes...)
}

func with(p drain.Pod, changes ...func(*drain.Pod)) drain.Pod {
	for _, change := range changes {
		change(&p)
	}
	return p
}

func budgets(keys ...string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Budgets = keys }
}

func volumes(names ...string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Volumes = names }
}

func priority(n int32) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Priority = n }
}

func protected(value string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Protected = value }
}

func labelled(value string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Label = value }
}

// ruled is a pod that a drain rule selects.
func ruled(behavior string, order int32) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Rule = &drain.Rule{Name: "rule", Behavior: behavior, Order: order} }
}

// terminating is a pod whose grace period ends then.
func terminating(end time.Time) func(*drain.Pod) {
	return func(p *drain.Pod) { p.DeletedAt = end }
}

// answered makes a pod whose one request got this answer, this long ago.
func answered(a drain.Answer, ago time.Duration) func(*drain.Pod) {
	if a.Means == "" {
		a.Means = drain.Evict
	}
	return func(p *drain.Pod) { p.Tries = drain.After(p.Tries, a, at(-ago)) }
}

func mirror(p *drain.Pod)    { p.Mirror = true }
func daemonSet(p *drain.Pod) { p.DaemonSet = true }
func finished(p *drain.Pod)  { p.Finished = true }
func pending(p *drain.Pod)   { p.Pending, p.Ready = true, false }
func unready(p *drain.Pod)   { p.Ready = false }

// web is a budget of the namespace shop with a status that is up to date.
func web(allowed, healthy, desired, expected int) drain.Budget {
	return drain.Budget{
		Key:      "shop/web",
		Allowed:  allowed,
		Healthy:  healthy,
		Desired:  desired,
		Expected: expected,
		Current:  true,
	}
}

// seen returns the facts of a node with these pods that is drained by eviction.
func seen(pods ...drain.Pod) drain.Observed {
	return drain.Observed{
		Pods: pods, Means: drain.Evict, Now: epoch,
		Settings: drain.Settings{Attach: 90 * time.Second, Detach: 2 * time.Minute},
	}
}

func by(means drain.Means, o drain.Observed) drain.Observed {
	o.Means = means
	return o
}

func knowing(o drain.Observed, budgets ...drain.Budget) drain.Observed {
	o.Budgets = budgets
	return o
}

// sent names the pods of a decision's actions, in their order.
func sent(d drain.Decision) []string {
	var names []string
	for _, a := range d.Act {
		name := strings.TrimPrefix(a.UID, "uid-")
		if len(a.Probe) > 0 {
			name += " as a probe of " + strings.Join(a.Probe, ", ")
		}
		names = append(names, name)
	}
	return names
}

// states are the states of the rows, by pod without namespace.
func states(d drain.Decision) map[string]string {
	result := map[string]string{}
	for _, r := range d.Picture.Rows {
		result[strings.TrimPrefix(r.Pod, "shop/")] = r.State
	}
	return result
}

func row(d drain.Decision, name string) drain.Row {
	for _, r := range d.Picture.Rows {
		if r.Pod == "shop/"+name {
			return r
		}
	}
	return drain.Row{}
}
