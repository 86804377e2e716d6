package drain_test

import (
	"strings"
	"time"

	"millwright/decide/drain"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// epochPlus returns epoch plus d.
func epochPlus(d time.Duration) time.Time { return epoch.Add(d) }

// newPod returns a running pod of the namespace shop, after the given changes.
func newPod(name string, changes ...func(*drain.Pod)) drain.Pod {
	p := drain.Pod{
		UID:       "uid-" + name,
		Namespace: "shop",
		Name:      name,
		Grace:     30 * time.Second,
		Started:   epochPlus(-time.Hour),
		Ready:     true,
	}
	return changedPod(p, changes...)
}

func changedPod(p drain.Pod, changes ...func(*drain.Pod)) drain.Pod {
	for _, change := range changes {
		change(&p)
	}
	return p
}

func withBudgets(keys ...string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Budgets = keys }
}

func withVolumes(names ...string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Volumes = names }
}

func withPriority(n int32) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Priority = n }
}

func withProtection(value string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Protected = value }
}

func withDrainLabel(value string) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Label = value }
}

// withDrainRule changes a pod to one that a drain rule selects.
func withDrainRule(behavior string, order int32) func(*drain.Pod) {
	return func(p *drain.Pod) { p.Rule = &drain.Rule{Name: "rule", Behavior: behavior, Order: order} }
}

// withDeletionTime changes a pod to one that is being deleted, and whose grace period ends at the time `end`.
func withDeletionTime(end time.Time) func(*drain.Pod) {
	return func(p *drain.Pod) { p.DeletedAt = end }
}

// withRequestAnswer adds a request to a pod. The API server answered the request with a at epoch minus ago.
func withRequestAnswer(a drain.RequestAnswer, ago time.Duration) func(*drain.Pod) {
	if a.Means == "" {
		a.Means = drain.MeansEvict
	}
	return func(p *drain.Pod) { p.Tries = drain.RequestRecordAfterAnswer(p.Tries, a, epochPlus(-ago)) }
}

func asMirrorPod(p *drain.Pod)    { p.Mirror = true }
func asDaemonSetPod(p *drain.Pod) { p.DaemonSet = true }
func asFinishedPod(p *drain.Pod)  { p.Finished = true }
func asPendingPod(p *drain.Pod)   { p.Pending, p.Ready = true, false }
func asUnreadyPod(p *drain.Pod)   { p.Ready = false }

// webBudget returns the budget shop/web with a status that is up to date.
func webBudget(allowed, healthy, desired, expected int) drain.DisruptionBudget {
	return drain.DisruptionBudget{
		Key:                "shop/web",
		DisruptionsAllowed: allowed,
		CurrentHealthy:     healthy,
		DesiredHealthy:     desired,
		ExpectedPods:       expected,
		IsUpToDate:         true,
	}
}

// newFacts returns the facts of a node with these pods, drained with Evict.
func newFacts(pods ...drain.Pod) drain.Facts {
	return drain.Facts{
		Pods: pods, Means: drain.MeansEvict, Now: epoch,
		Settings: drain.Settings{Attach: 90 * time.Second, Detach: 2 * time.Minute},
	}
}

func withMeans(means drain.RemovalMeans, o drain.Facts) drain.Facts {
	o.Means = means
	return o
}

func withKnownBudgets(o drain.Facts, budgets ...drain.DisruptionBudget) drain.Facts {
	o.Budgets = budgets
	return o
}

// requestedPodNames returns the names of the pods in a decision's actions, in the order of the actions.
func requestedPodNames(d drain.Decision) []string {
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

// rowStates returns the state of each row, by pod name without namespace.
func rowStates(d drain.Decision) map[string]string {
	result := map[string]string{}
	for _, r := range d.Picture.Rows {
		result[strings.TrimPrefix(r.Pod, "shop/")] = r.State
	}
	return result
}

func rowOfPod(d drain.Decision, name string) drain.PodRow {
	for _, r := range d.Picture.Rows {
		if r.Pod == "shop/"+name {
			return r
		}
	}
	return drain.PodRow{}
}
