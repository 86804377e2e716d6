// Package phrase forms the parts of sentences that all rooms use: times, durations, counts, lists and texts of bounded length.
package phrase

import (
	"fmt"
	"strings"
	"time"

	"millwright/decide/list"
)

// Clock is a time in UTC, with the day only when that is not the day of now.
func Clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly + " MST")
	}
	return t.Format(time.DateTime + " MST")
}

// When is a time with how far away it is, as "13:51:07 UTC (in 14m)".
func When(t, now time.Time) string {
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", Clock(t, now), Span(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", Clock(t, now), Span(now.Sub(t)))
}

// Span is a duration in one or two units, as kubectl shows ages.
func Span(d time.Duration) string {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, u := range []struct {
		below, unit, rest time.Duration // rest is zero where the unit is enough
		name, restName    string
	}{
		{2 * time.Minute, time.Second, 0, "s", ""},
		{10 * time.Minute, time.Minute, time.Second, "m", "s"},
		{3 * time.Hour, time.Minute, 0, "m", ""},
		{8 * time.Hour, time.Hour, time.Minute, "h", "m"},
		{48 * time.Hour, time.Hour, 0, "h", ""},
		{8 * day, day, time.Hour, "d", "h"},
		{2 * year, day, 0, "d", ""},
		{8 * year, year, day, "y", "d"},
	} {
		if d >= u.below {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.unit, u.name)
		if u.rest > 0 && d%u.unit >= u.rest {
			text += fmt.Sprintf("%d%s", d%u.unit/u.rest, u.restName)
		}
		return text
	}
	return fmt.Sprintf("%dy", d/year)
}

// Cut shortens a text to so many bytes. A text that was cut ends in "…".
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// longestMessage bounds what others write into a failure, a condition or an event, in bytes. Source: events hold 1 KiB.
const longestMessage = 1000

// Message cuts a text to what a failure, a condition or an event holds.
func Message(text string) string { return Cut(text, longestMessage) }

// Count is "1 pod" or "2 pods".
func Count(n int, thing string) string { return fmt.Sprint(n, " ", thing) + OneOf(n, "", "s") }

// OneOf is a word for one thing, and another word for several or none.
func OneOf(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// List names the first few of some things and counts the others.
func List(names []string, most int, separator string) string {
	if len(names) <= most {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], separator), len(names)-most)
}

// Later is the later one of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// If is a sentence that is said under a condition; empty when that does not hold.
func If(holds bool, format string, values ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, values...)
}

// Parts returns the texts that say something.
func Parts(texts ...string) []string {
	return list.Where(texts, func(text string) bool { return text != "" })
}
