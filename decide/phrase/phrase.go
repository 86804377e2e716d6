// Package phrase forms parts of sentences: times, durations, counts, lists, and texts of bounded length.
package phrase

import (
	"fmt"
	"strings"
	"time"

	"millwright/decide/list"
)

// Clock returns a time in UTC, with the date unless it is the date of now. If now is zero, the date is always there.
func Clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly + " MST")
	}
	return t.Format(time.DateTime + " MST")
}

// When returns a time and its distance from now, such as "13:51:07 UTC (in 14m)".
func When(t, now time.Time) string {
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", Clock(t, now), distance(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", Clock(t, now), distance(now.Sub(t)))
}

// distance returns a Span, except that one to three hours are rounded to minutes and written as in a spec: "2h", not
// "119m", one second after a timeout of two hours has begun.
func distance(d time.Duration) string {
	if d < time.Hour || d >= 3*time.Hour {
		return Span(d)
	}
	return Length(d.Round(time.Minute))
}

// By returns " by ann (lunch)" for the words "ann: lunch" that a request records, " (lunch)" for words without a colon,
// and nothing for no words.
func By(words string) string {
	who, why, signed := strings.Cut(words, ": ")
	if !signed {
		return If(words != "", " (%s)", words)
	}
	return fmt.Sprintf(" by %s (%s)", who, why)
}

// Length returns a duration as people write it in a spec: "20s", "5m", "1h30m". It is exact; for an age, use Span.
func Length(d time.Duration) string {
	text := d.String() // such as "1h0m0s"
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Span returns a duration in one or two units, as kubectl prints ages.
func Span(d time.Duration) string {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, u := range []struct {
		below, unit, rest time.Duration // rest is zero: no second unit
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

// Cut shortens a text to at most so many bytes, and ends a shortened text with "…".
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// longestMessage bounds the message of a failure, condition or event, in bytes. Source: an event holds 1 KiB.
const longestMessage = 1000

// Message cuts a text to the length that a failure, condition or event may have.
func Message(text string) string { return Cut(text, longestMessage) }

// Count returns "1 pod" or "2 pods".
func Count(n int, thing string) string { return fmt.Sprint(n, " ", thing) + OneOf(n, "", "s") }

// OneOf returns the word for one thing, or the word for none or several.
func OneOf(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// List names the first of some things, and counts the others.
func List(names []string, most int, separator string) string {
	return ListOf(names, len(names), most, separator)
}

// ListOf is List for a longer list whose first items are in names; all is the length of that list.
func ListOf(names []string, all, most int, separator string) string {
	if all <= most {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], separator), all-most)
}

// Later is the later one of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// If returns the formatted text if holds is true, and an empty text otherwise.
func If(holds bool, format string, values ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, values...)
}

// Parts returns the texts that are not empty.
func Parts(texts ...string) []string {
	return list.Where(texts, func(text string) bool { return text != "" })
}

// PausedBy says that an object with the annotation pauses what it owns, in the words of Cluster API.
func PausedBy(kind string) string { return kind + " has the cluster.x-k8s.io/paused annotation" }
