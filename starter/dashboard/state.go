package dashboard

import (
	"fmt"
	"strings"

	"millwright/decide/phrase"
)

// state is the state of a pool or a cluster, as pages and the filter name it.
type state string

// The states, those that need a person first.
const (
	stateUnserved    state = "unserved"    // of a cluster: no worker or no bridge serves it
	stateUnreachable state = "unreachable" // of a cluster: the workers do not reach it
	stateStill       state = "still"
	stateApproval    state = "approval"
	stateRolledBack  state = "rolled-back"
	statePaused      state = "paused"
	stateFailed      state = "failed"
	stateReplacing   state = "replacing"
	stateRolling     state = "rolling"
	statePlanned     state = "planned" // waits for the time of a step, or for its turn
	stateMoving      state = "moving"
	stateDeleting    state = "deleting"
	stateHealthy     state = "healthy"
)

// stateGroup is a group of states. The filter of a page accepts a group as well as a state.
type stateGroup string

const (
	groupStill   stateGroup = "attention"
	groupMotion  stateGroup = "motion"
	groupHealthy stateGroup = "healthy"
)

// stateInfo says how pages show a state.
type stateInfo struct {
	state state
	word  string
	group stateGroup
}

// stateInfos has all states in their order.
func stateInfos() [13]stateInfo {
	return [...]stateInfo{
		{stateUnserved, "served by nobody", groupStill},
		{stateUnreachable, "not reachable", groupStill},
		{stateStill, "stands still", groupStill},
		{stateApproval, "waits for approval", groupStill},
		{stateRolledBack, "rolled back", groupStill},
		{statePaused, "paused", groupStill},
		{stateFailed, "has failed machines", groupStill},
		{stateReplacing, "replaces failed machines", groupMotion},
		{stateRolling, "rolling out", groupMotion},
		{statePlanned, "waits as planned", groupMotion},
		{stateMoving, "in motion", groupMotion},
		{stateDeleting, "being deleted", groupMotion},
		{stateHealthy, "healthy", groupHealthy},
	}
}

func (s state) rank() int {
	for i, of := range stateInfos() {
		if of.state == s {
			return i
		}
	}
	return -1
}

func (s state) info() stateInfo {
	for _, of := range stateInfos() {
		if of.state == s {
			return of
		}
	}
	return stateInfo{state: s, word: string(s)}
}

// Word returns the words for the state.
func (s state) Word() string { return s.info().word }

// Group returns the group of the state.
func (s state) Group() stateGroup { return s.info().group }

// matches reports whether the state is the one that a filter names, or is in the group that it names. An empty filter
// accepts all states.
func (s state) matches(filter string) bool {
	return filter == "" || filter == string(s) || filter == string(s.Group())
}

// bar is a drawing of the machines of a pool: one segment for each category, and a mark where the wanted number ends.
// Machines beyond the mark are surge.
type bar struct {
	Segments []segment
	Mark     float64 // position of the mark in percent of the width; 0: no mark
	Text     string  // what the bar shows, in words
}

// segment is one part of a bar.
type segment struct {
	Class    string  // class of the style, and of the pattern
	X, Width float64 // in percent of the bar's width
	Label    string
}

// categoryName is how pages show a category.
type categoryName struct {
	class  string // class of the style, and of the pattern
	word   string // after a number, in the text of a bar
	legend string
}

// Class returns the class of the style.
func (n categoryName) Class() string { return n.class }

// Legend returns the text of the key.
func (n categoryName) Legend() string { return n.legend }

// categoryNames has the names of the categories, in the order of the bar.
func categoryNames() [categoryCount]categoryName {
	return [categoryCount]categoryName{
		categoryUpToDate: {"new", "up to date", "wanted revision, ready"},
		categoryStarting: {"starting", "starting", "starting"},
		categoryStuck:    {"stuck", "cannot start", "cannot start"},
		categoryOld:      {"old", "of an old revision", "another revision"},
		categoryLeaving:  {"leaving", "leaving", "leaving"},
		categoryFailed:   {"failed", "failed", "failed"},
	}
}

// names returns the names of the categories of a pool. A pinned pool comes to an earlier revision, so its machines are
// not up to date.
func (p *pool) names() [categoryCount]categoryName {
	names := categoryNames()
	if p.isPinned() {
		names[categoryUpToDate].word = fmt.Sprintf("on revision %d", p.rollout.Pin.Revision)
		names[categoryOld].word = "of another revision"
	}
	return names
}

// newBar draws counts. The bar is as wide as the wanted or the existing number of machines, whichever is larger.
func newBar(c counts, names [categoryCount]categoryName) bar {
	total := c.total()
	width := max(c.desired, total)
	b := bar{Text: c.text(names)}
	if width == 0 {
		return b
	}
	percent := func(n int) float64 { return float64(n) * 100 / float64(width) }
	at := 0
	for i, name := range names {
		n := c.byCategory[i]
		if n > 0 {
			b.Segments = append(b.Segments, segment{name.class, percent(at), percent(n), fmt.Sprintf("%d %s", n, name.word)})
		}
		at += n
	}
	if missing := c.desired - total; missing > 0 {
		b.Segments = append(
			b.Segments,
			segment{"missing", percent(total), percent(missing), fmt.Sprintf("%d missing", missing)},
		)
	}
	if total > c.desired && c.desired > 0 {
		b.Mark = percent(c.desired)
	}
	return b
}

// text says in words what a bar shows.
func (c counts) text(names [categoryCount]categoryName) string {
	if max(c.desired, c.total()) == 0 {
		return "no machines"
	}
	parts := []string{fmt.Sprintf("%d of %d ready", c.ready, c.desired)}
	isPlain := c.byCategory[categoryUpToDate] == c.total()
	for i, name := range names {
		if n := c.byCategory[i]; n > 0 && !isPlain {
			parts = append(parts, fmt.Sprintf("%d %s", n, name.word))
		}
	}
	surge, missing := c.total()-c.desired, c.desired-c.total()
	return strings.Join(append(parts, phrase.NonEmptyTexts(
		phrase.TextIf(surge > 0, "%d surge", surge),
		phrase.TextIf(missing > 0, "%d missing", missing),
	)...), ", ")
}
