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

func (p *drainPlan) buildOverview(blockers []Blocker) Overview {
	in := func(state string) int {
		return list.CountWhere(p.podStates, func(v *podState) bool { return v.state == state })
	}
	blocked, waiting := in(StateBlocked), in(StateWaiting)
	result := Overview{Counts: PodCounts{
		Gone:        p.GonePodCount,
		Terminating: len(p.podStates) - blocked - waiting,
		Blocked:     blocked,
		Waiting:     waiting,
		Skipped:     p.skippedCount,
	}}
	views := slices.Clone(p.podStates)
	for _, a := range p.awaitedVolumes {
		since := a.waitStart()
		a.Pod.DeletedAt = time.Time{} // the pod has left, so its grace period no longer matters
		views = append(
			views,
			&podState{
				pod:             a.Pod,
				state:           a.state,
				stateSince:      since,
				cause:           blockCause{name: a.volume},
				nextRequestTime: a.waitEnd,
			},
		)
	}
	// States that may need a person come first, and pods that wait for their turn come last.
	states := []string{StateBlocked, StateTerminating, StateEvicting, StateDetaching, StateAttaching, StateWaiting}
	slices.SortFunc(views, func(a, b *podState) int {
		byState := cmp.Compare(slices.Index(states, a.state), slices.Index(states, b.state))
		return cmp.Or(byState, a.pod.DeletedAt.Compare(b.pod.DeletedAt), comparePodsByName(a.pod, b.pod))
	})
	for _, v := range views[:min(len(views), MaxOverviewRows)] {
		row := PodRow{
			Pod: v.pod.key(), State: v.state, Since: v.stateSince, Attempts: v.pod.Tries.Attempts,
			BlockedBy: cmp.Or(v.cause.name, v.cause.kind), Bad: v.cause.needsPerson, Next: v.nextRequestTime,
		}
		if v.state == StateBlocked && v.cause.kind == BlockedByBudget {
			row.Budgets = v.pod.Budgets
		}
		result.Rows = append(result.Rows, row)
	}
	result.Why = p.summarySentence(result.Counts, blockers)
	return result
}

// summarySentence returns one sentence that says what the drain waits for.
func (p *drainPlan) summarySentence(c PodCounts, blockers []Blocker) string {
	parts := list.Map(list.SortedCopy(blockers, compareBlockersByImportance), func(b Blocker) string { return b.Why })
	if len(parts) > maxNamesPerSentence {
		parts = append(parts[:maxNamesPerSentence], fmt.Sprintf("%d more blockers", len(parts)-maxNamesPerSentence))
	}
	parts = append(parts, phrase.NonEmptyTexts(
		phrase.TextIf(
			c.Terminating > 0,
			"%d %s terminating",
			c.Terminating,
			phrase.SingularOrPlural(c.Terminating, "is", "are"),
		),
		phrase.TextIf(c.Waiting == 1, "1 waits for its turn"),
		phrase.TextIf(c.Waiting > 1, "%d wait for their turn", c.Waiting),
	)...)
	if len(parts) == 0 {
		return "empty"
	}
	pods := cmp.Or(phrase.TextIf(len(p.podStates) == 0, "no pods"), phrase.CountText(len(p.podStates), "pod"))
	return pods + " left: " + strings.Join(parts, "; ")
}

// MaxBlockers is the largest number of blockers in a decision. Blockers that need a person come first, then the
// blockers with the most pods. Source of MaxBlockers: a decision has room for 20 sentences.
const MaxBlockers = 20

// Limits of a blocker's sentence. Sources of the limits: CAPI lists 3 pods in a line; messages of the API server are
// far shorter than maxMessageBytes.
const (
	maxNamesPerSentence = 3
	maxMessageBytes     = 300 // maximum length of a message in bytes
)

// causeFromLastAnswer returns why a pod stays although its budgets allow the eviction. The reason comes from the API
// server's last answer.
func causeFromLastAnswer(p Pod) blockCause {
	tries := p.Tries
	switch refused := tries.Result == ResultRefused || tries.Result == ResultSeveralBudgets; {
	case refused && !tries.Next.IsZero(): // a zero Next means that the pod's budgets have changed since the refusal
		return blockCause{kind: BlockedByBudget, name: strings.Join(p.Budgets, " and "), why: refusalSentence(p)}
	case tries.Result == ResultNamespaceDeleting:
		return blockCause{kind: BlockedByNamespace}
	case tries.Result == ResultFailed:
		return blockCause{kind: BlockedByError}
	default:
		return blockCause{}
	}
}

// refusalSentence says that the API server applies a budget that the cache does not contain, or that it counts a budget
// differently.
func refusalSentence(p Pod) string {
	if len(p.Budgets) == 0 {
		return phrase.TruncateText(
			fmt.Sprintf("a PodDisruptionBudget that is not seen here keeps %s: %s", p.key(), p.Tries.Message),
			maxMessageBytes,
		)
	}
	return fmt.Sprintf(
		"the API server refuses an eviction for PodDisruptionBudget %s, whose status as it is seen here allows one",
		strings.Join(p.Budgets, " and "),
	)
}

// listBlockers returns one blocker per cause, with the number of its pods, sorted by kind and name. If no pod is left,
// the blockers are the volumes for which the drain waits. If brief is true, listBlockers also includes volumes whose
// wait is shorter than slowVolumeAfter.
func (p *drainPlan) listBlockers(brief bool) []Blocker {
	counts := func(c blockCause) bool { return c.kind != "" && (brief || !c.blockerStart.After(p.Now)) }
	kept := map[[2]string][]*podState{} // pods by kind and name of their cause
	for _, v := range list.SortedCopy(p.podStates, func(a, b *podState) int { return comparePodsByName(a.pod, b.pod) }) {
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
			Bad:   views[0].cause.needsPerson,
			Until: views[0].cause.causeEnd,
			Why:   p.blockerSentence(key[0], views),
		})
	}
	for _, a := range p.awaitedVolumes {
		if c := a.cause(); len(p.podStates) == 0 && counts(c) {
			result = append(result, Blocker{Kind: c.kind, Name: c.name, Until: c.causeEnd, Why: c.why})
		}
	}
	slices.SortFunc(result, compareBlockersByKind)
	// two departed pods may have used the same volume
	return slices.CompactFunc(result, func(a, b Blocker) bool { return compareBlockersByKind(a, b) == 0 })
}

// blockerSentence returns the sentence of a blocker. The views are sorted by pod name.
func (p *drainPlan) blockerSentence(kind string, views []*podState) string {
	names := list.Map(views, func(v *podState) string { return v.pod.key() })
	// the views are sorted by namespace, so Compact finds all duplicates
	namespaces := slices.Compact(list.Map(views, func(v *podState) string { return v.pod.Namespace }))
	who := phrase.JoinNames(names, maxNamesPerSentence, ", ")
	switch kind {
	case BlockedByProtection:
		if until := views[0].nextRequestTime; len(views) == 1 && !until.IsZero() {
			return fmt.Sprintf("%s is not to be disrupted before %s", who, phrase.ClockText(until, p.Now))
		}
		return fmt.Sprintf("%s %s not to be disrupted", who, phrase.SingularOrPlural(len(views), "is", "are"))
	case BlockedByCompletion:
		return fmt.Sprintf("waits for %s to complete", who)
	case BlockedByTermination:
		return fmt.Sprintf("%s should have ended long ago: %s kubelet or a finalizer holds %s",
			who, phrase.SingularOrPlural(len(views), "its", "their"), phrase.SingularOrPlural(len(views), "it", "them"))
	case BlockedByNamespace:
		return fmt.Sprintf(
			"namespace %s is being deleted, and %s with it",
			phrase.JoinNames(namespaces, maxNamesPerSentence, ", "),
			who,
		)
	case BlockedByError:
		return phrase.TruncateText(
			fmt.Sprintf("request for %s failed: %s", names[0], views[0].pod.Tries.Message),
			maxMessageBytes,
		)
	default:
		return views[0].cause.why
	}
}

func compareBlockersByKind(a, b Blocker) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func compareBlockersByImportance(a, b Blocker) int {
	return cmp.Or(list.CompareFalseFirst(b.Bad, a.Bad), cmp.Compare(b.Pods, a.Pods), compareBlockersByKind(a, b))
}
