package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxBlockers is how many blockers a decision names: those that need somebody first, then those of the most pods. Source:
// a decision has room for 20 sentences.
const MaxBlockers = 20

// answered is what the last answer says of a pod that its budgets do not keep.
func answered(p Pod) cause {
	tries := p.Tries
	switch tries.Result {
	case Refused, Several:
		if tries.Next.IsZero() { // woken: that was another status
			return cause{}
		}
		return cause{kind: BlockedByBudget, name: strings.Join(p.Budgets, " and "), why: refusal(p)}
	case Going:
		return cause{kind: BlockedByNamespace}
	case Failed:
		return cause{kind: BlockedByError}
	default:
		return cause{}
	}
}

// refusal says that the API server knows more of a pod's budgets than we see.
func refusal(p Pod) string {
	if len(p.Budgets) == 0 {
		return shortened(fmt.Sprintf("a PodDisruptionBudget that is not seen here keeps %s: %s", p.key(), p.Tries.Message))
	}
	return fmt.Sprintf("the API server refuses an eviction for PodDisruptionBudget %s, whose status as it is seen here allows one", strings.Join(p.Budgets, " and "))
}

// blockers returns what keeps pods, each with all of its pods, sorted by kind and name.
func (p *plan) blockers() []Blocker {
	type id struct{ kind, name string }
	kept := map[id][]*view{}
	for _, v := range sorted(p.views, func(a, b *view) int { return byName(a.pod, b.pod) }) {
		if v.cause.kind != "" {
			key := id{v.cause.kind, v.cause.name}
			kept[key] = append(kept[key], v)
		}
	}
	var result []Blocker
	for key, views := range kept {
		result = append(result, Blocker{
			Kind: key.kind, Name: key.name, Pods: len(views), Bad: views[0].cause.bad, Why: p.because(key.kind, views),
		})
	}
	slices.SortFunc(result, byKind)
	return result
}

// because is the sentence of a blocker. The views are sorted by name.
func (p *plan) because(kind string, views []*view) string {
	first := views[0].pod
	var names, namespaces []string
	for _, v := range views {
		names = append(names, v.pod.key())
		namespaces = append(namespaces, v.pod.Namespace)
	}
	namespaces = slices.Compact(namespaces) // sorted, as the names are
	who := list(names, ", ")
	switch kind {
	case BlockedByProtection:
		if until := views[0].next; len(views) == 1 && !until.IsZero() {
			return fmt.Sprintf("%s is not to be disrupted before %s", who, clock(until, p.Now))
		}
		return fmt.Sprintf("%s %s not to be disrupted", who, oneOf(len(views), "is", "are"))
	case BlockedByWork:
		return fmt.Sprintf("waits for %s to complete", who)
	case BlockedByEnding:
		return fmt.Sprintf("%s should have ended long ago: %s kubelet or a finalizer holds %s",
			who, oneOf(len(views), "its", "their"), oneOf(len(views), "it", "them"))
	case BlockedByNamespace:
		return fmt.Sprintf("namespace %s is being deleted, and takes %s along", list(namespaces, ", "), who)
	case BlockedByError:
		return shortened(fmt.Sprintf("request for %s failed: %s", first.key(), first.Tries.Message))
	default:
		return views[0].cause.why
	}
}

// mostImportant cuts blockers to what a decision names, in the order in which they were.
func mostImportant(all []Blocker) []Blocker {
	if len(all) <= MaxBlockers {
		return all
	}
	return sorted(sorted(all, byImportance)[:MaxBlockers], byKind)
}

func byKind(a, b Blocker) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func byImportance(a, b Blocker) int {
	switch {
	case a.Bad && !b.Bad:
		return -1
	case b.Bad && !a.Bad:
		return 1
	}
	return cmp.Or(cmp.Compare(b.Pods, a.Pods), byKind(a, b))
}
