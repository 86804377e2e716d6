package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

func (p *plan) picture(blockers []Blocker) Picture {
	in := func(state string) int { return list.Count(p.views, func(v *view) bool { return v.state == state }) }
	blocked, waiting := in(Blocked), in(Waiting)
	result := Picture{Counts: Counts{
		Gone: p.Gone, Terminating: len(p.views) - blocked - waiting, Blocked: blocked, Waiting: waiting, Skipped: p.skipped,
	}}
	views := slices.Clone(p.views)
	for _, a := range p.awaited {
		since := a.since()
		a.Pod.DeletedAt = time.Time{} // its grace period no longer matters
		views = append(views, &view{pod: a.Pod, state: a.state, since: since, cause: cause{name: a.volume}, next: a.until})
	}
	// First pods that may need a person, last pods that only wait for their turn.
	states := []string{Blocked, Terminating, Evicting, Detaching, Attaching, Waiting}
	slices.SortFunc(views, func(a, b *view) int {
		byState := cmp.Compare(slices.Index(states, a.state), slices.Index(states, b.state))
		return cmp.Or(byState, a.pod.DeletedAt.Compare(b.pod.DeletedAt), byName(a.pod, b.pod))
	})
	for _, v := range views[:min(len(views), MaxRows)] {
		row := Row{
			Pod: v.pod.key(), State: v.state, Since: v.since, Attempts: v.pod.Tries.Attempts,
			BlockedBy: cmp.Or(v.cause.name, v.cause.kind), Bad: v.cause.bad, Next: v.next,
		}
		if v.state == Blocked && v.cause.kind == BlockedByBudget {
			row.Budgets = v.pod.Budgets
		}
		result.Rows = append(result.Rows, row)
	}
	result.Why = p.summary(result.Counts, blockers)
	return result
}

// summary says in one sentence what the drain waits for.
func (p *plan) summary(c Counts, blockers []Blocker) string {
	parts := list.Map(list.Sorted(blockers, byImportance), func(b Blocker) string { return b.Why })
	if len(parts) > maxNames {
		parts = append(parts[:maxNames], fmt.Sprintf("%d more blockers", len(parts)-maxNames))
	}
	parts = append(parts, phrase.Parts(
		phrase.If(c.Terminating > 0, "%d %s terminating", c.Terminating, phrase.OneOf(c.Terminating, "is", "are")),
		phrase.If(c.Waiting == 1, "1 waits for its turn"),
		phrase.If(c.Waiting > 1, "%d wait for their turn", c.Waiting),
	)...)
	if len(parts) == 0 {
		return "empty"
	}
	pods := cmp.Or(phrase.If(len(p.views) == 0, "no pods"), phrase.Count(len(p.views), "pod"))
	return pods + " left: " + strings.Join(parts, "; ")
}

// MaxBlockers is the largest number of blockers in a decision: first those that need somebody, then those of the most
// pods. Source: a decision has room for 20 sentences.
const MaxBlockers = 20

// Bounds of a sentence. Sources: CAPI names 3 pods in a line; the texts of the API server are far shorter than
// longestMessage.
const (
	maxNames       = 3
	longestMessage = 300 // bytes
)

// answered returns the cause that follows from the last answer for a pod that its budgets allow to go.
func answered(p Pod) cause {
	tries := p.Tries
	switch refused := tries.Result == Refused || tries.Result == Several; {
	case refused && !tries.Next.IsZero(): // zero: its budgets changed since
		return cause{kind: BlockedByBudget, name: strings.Join(p.Budgets, " and "), why: refusal(p)}
	case tries.Result == Going:
		return cause{kind: BlockedByNamespace}
	case tries.Result == Failed:
		return cause{kind: BlockedByError}
	default:
		return cause{}
	}
}

// refusal says that the API server counts a budget that is not seen here, or counts it differently.
func refusal(p Pod) string {
	if len(p.Budgets) == 0 {
		return phrase.Cut(
			fmt.Sprintf("a PodDisruptionBudget that is not seen here keeps %s: %s", p.key(), p.Tries.Message),
			longestMessage,
		)
	}
	return fmt.Sprintf(
		"the API server refuses an eviction for PodDisruptionBudget %s, whose status as it is seen here allows one",
		strings.Join(p.Budgets, " and "),
	)
}

// blockers returns the causes, each with all of its pods, sorted by kind and name. If no pod is left, the blockers are
// the volumes that the drain itself waits for. With brief, also volumes that do not count as blockers yet.
func (p *plan) blockers(brief bool) []Blocker {
	counts := func(c cause) bool { return c.kind != "" && (brief || !c.from.After(p.Now)) }
	kept := map[[2]string][]*view{} // by kind and name of the cause
	for _, v := range list.Sorted(p.views, func(a, b *view) int { return byName(a.pod, b.pod) }) {
		if counts(v.cause) {
			key := [2]string{v.cause.kind, v.cause.name}
			kept[key] = append(kept[key], v)
		}
	}
	var result []Blocker
	for key, views := range kept {
		result = append(result, Blocker{
			Kind:  key[0],
			Name:  key[1],
			Pods:  len(views),
			Bad:   views[0].cause.bad,
			Until: views[0].cause.until,
			Why:   p.because(key[0], views),
		})
	}
	for _, a := range p.awaited {
		if c := a.cause(); len(p.views) == 0 && counts(c) {
			result = append(result, Blocker{Kind: c.kind, Name: c.name, Until: c.until, Why: c.why})
		}
	}
	slices.SortFunc(result, byKind)
	// two pods may have used one volume
	return slices.CompactFunc(result, func(a, b Blocker) bool { return byKind(a, b) == 0 })
}

// because returns the sentence of a blocker. The views are sorted by name.
func (p *plan) because(kind string, views []*view) string {
	names := list.Map(views, func(v *view) string { return v.pod.key() })
	// sorted, as the names are
	namespaces := slices.Compact(list.Map(views, func(v *view) string { return v.pod.Namespace }))
	who := phrase.List(names, maxNames, ", ")
	switch kind {
	case BlockedByProtection:
		if until := views[0].next; len(views) == 1 && !until.IsZero() {
			return fmt.Sprintf("%s is not to be disrupted before %s", who, phrase.Clock(until, p.Now))
		}
		return fmt.Sprintf("%s %s not to be disrupted", who, phrase.OneOf(len(views), "is", "are"))
	case BlockedByWork:
		return fmt.Sprintf("waits for %s to complete", who)
	case BlockedByEnding:
		return fmt.Sprintf("%s should have ended long ago: %s kubelet or a finalizer holds %s",
			who, phrase.OneOf(len(views), "its", "their"), phrase.OneOf(len(views), "it", "them"))
	case BlockedByNamespace:
		return fmt.Sprintf("namespace %s is being deleted, and %s with it", phrase.List(namespaces, maxNames, ", "), who)
	case BlockedByError:
		return phrase.Cut(fmt.Sprintf("request for %s failed: %s", names[0], views[0].pod.Tries.Message), longestMessage)
	default:
		return views[0].cause.why
	}
}

func byKind(a, b Blocker) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func byImportance(a, b Blocker) int {
	return cmp.Or(list.FalseFirst(b.Bad, a.Bad), cmp.Compare(b.Pods, a.Pods), byKind(a, b))
}
