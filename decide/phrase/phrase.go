// Package phrase forms parts of sentences: times, durations, counts, lists, and texts of bounded length. Package phrase
// also recognizes a webhook's denial, which the API server shows only in the text of its message.
package phrase

import (
	"fmt"
	"strings"
	"time"

	"millwright/decide/list"
)

// ClockText returns a time in UTC. The date is left out if it is the date of now. If now is zero, the date is always
// present.
func ClockText(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly + " MST")
	}
	return t.Format(time.DateTime + " MST")
}

// TimeText returns a time and its distance from now, such as "13:51:07 UTC (in 14m)".
func TimeText(t, now time.Time) string {
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", ClockText(t, now), distanceText(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", ClockText(t, now), distanceText(now.Sub(t)))
}

// distanceText returns the same text as AgeText, except for a distance between one and three hours. distanceText rounds
// a distance between one and three hours to minutes, and writes the distance as in a spec. A timeout of two hours thus
// reads "2h", not "119m", one second after it began.
func distanceText(d time.Duration) string {
	if d < time.Hour || d >= 3*time.Hour {
		return AgeText(d)
	}
	return DurationText(d.Round(time.Minute))
}

// ActorText returns " by ann (lunch)" for the words "ann: lunch" of a request, " (lunch)" for words without a colon,
// and "" for no words.
func ActorText(words string) string {
	who, why, signed := strings.Cut(words, ": ")
	if !signed {
		return TextIf(words != "", " (%s)", words)
	}
	return fmt.Sprintf(" by %s (%s)", who, why)
}

// DurationText returns a duration as people write it in a spec: "20s", "5m", "1h30m". DurationText is exact; for an
// age, use AgeText.
func DurationText(d time.Duration) string {
	text := d.String() // such as "1h0m0s"
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// AgeText returns a duration in one or two units, as kubectl prints ages.
func AgeText(d time.Duration) string {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, u := range []struct {
		below, unit, rest time.Duration // rest is zero for a single unit
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

// TruncateText shortens a text to at most `most` bytes. A shortened text ends with "…".
func TruncateText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// maxMessageBytes bounds the message of a failure, condition or event, in bytes. Source: an event's message may have 1
// KiB.
const maxMessageBytes = 1000

// TruncateMessage cuts a text to the largest length of a failure, condition or event.
func TruncateMessage(text string) string { return TruncateText(text, maxMessageBytes) }

// CountText returns "1 pod" or "2 pods".
func CountText(n int, thing string) string {
	return fmt.Sprint(n, " ", thing) + SingularOrPlural(n, "", "s")
}

// SingularOrPlural returns one if n is 1, else several.
func SingularOrPlural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// JoinNames joins the first `most` names. If there are more names, JoinNames adds their number, as in "a, b and 3
// more".
func JoinNames(names []string, most int, separator string) string {
	return JoinNamesWithTotal(names, len(names), most, separator)
}

// JoinNamesWithTotal returns the result of JoinNames for a list of `all` names. The parameter names needs to contain
// only the first `most` names of this list.
func JoinNamesWithTotal(names []string, all, most int, separator string) string {
	if all <= most {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], separator), all-most)
}

// LaterTime returns the later of two times.
func LaterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// EarlierTime returns the earlier of two times. If one of the times is zero, EarlierTime returns the other time.
func EarlierTime(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// TextIf returns the formatted text if holds is true, else "".
func TextIf(holds bool, format string, values ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, values...)
}

// NonEmptyTexts returns the texts that are not empty.
func NonEmptyTexts(texts ...string) []string {
	return list.Filter(texts, func(text string) bool { return text != "" })
}

// PausedSentence returns Cluster API's message for an object of this kind that is paused by its annotation.
func PausedSentence(kind string) string { return kind + " has the cluster.x-k8s.io/paused annotation" }

// NodeText returns a text for the node of a machine. Without a name, only the machine's provider ID identifies the
// node.
func NodeText(name string) string {
	if name == "" {
		return "the node with its provider ID"
	}
	return "node " + name
}

// AwaitedNodeClause returns a clause about a node that has not joined. For some clouds the name is empty, because they
// do not know a node's name before the node joins.
func AwaitedNodeClause(name string) string {
	if name == "" {
		return "no node has its provider ID yet"
	}
	return "node " + name + " has not joined yet"
}

// IsWebhookDenial reports whether an API server's message says that an admission webhook has refused a write. A webhook
// sets the whole Status, and can even use the code and the reason of a conflict, of a failed authentication (401), or
// of a busy API server (429, 503). Only the text that the API server puts before the webhook's message identifies a
// denial.
func IsWebhookDenial(message string) bool {
	return strings.HasPrefix(message, "admission webhook ") && strings.Contains(message, " denied the request")
}
