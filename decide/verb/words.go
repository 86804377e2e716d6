package verb

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// words say who wants it, and why. What counts from the present deadline has its time among them.
func (o Order) words() string {
	text := cmp.Or(o.Actor, "somebody")
	if o.For != "" && !o.Asked.IsZero() {
		text += " (at " + o.Asked.UTC().Format(time.RFC3339Nano) + ")"
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

// Written says in words what a decision wrote on the annotation of that key, and what stood there before.
func (d Decision) Written(key, before string) string {
	text := fmt.Sprintf("wrote %s: %q", key, d.Value)
	switch {
	case d.Same && d.Remove:
		return key + " is not there: nothing was to be taken off"
	case d.Same:
		return fmt.Sprintf("%s says so already: %q", key, d.Value)
	case d.Remove:
		return fmt.Sprintf("took %s off; it said %q", key, before)
	case before != "":
		text += fmt.Sprintf("; it said %q", before)
	}
	return text
}

// Wish says in words who wants what, and why.
func (o Order) Wish() string {
	o = o.Cleaned()
	return Wish(o.Actor, string(o.Verb), o.Reason)
}

// Wish says in words who wants what, and why. Nobody counts as somebody, and no reason as none given.
func Wish(actor, what, reason string) string {
	text := cmp.Or(actor, "somebody") + " wants " + cmp.Or(what, "?")
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// OneLine makes a text that people gave one line of at most 200 bytes.
func OneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	return strings.ToValidUTF8(text[:min(len(text), mostWords)], "")
}

func list(verbs []Verb) string {
	var text strings.Builder
	for i, v := range verbs {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(string(v))
	}
	return text.String()
}

// clock is a time as sentences say it: with the day only when it is not today.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly + " MST")
	}
	return t.Format(time.DateTime + " MST")
}

// when is a time with how far away it is.
func when(t, now time.Time) string {
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", clock(t, now), span(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", clock(t, now), span(now.Sub(t)))
}

// span is a duration in one or two units, as kubectl shows ages.
func span(d time.Duration) string {
	for _, u := range []struct {
		below, unit, rest time.Duration // rest is zero where the unit is enough
		name, restName    string
	}{
		{2 * time.Minute, time.Second, 0, "s", ""},
		{10 * time.Minute, time.Minute, time.Second, "m", "s"},
		{3 * time.Hour, time.Minute, 0, "m", ""},
		{8 * time.Hour, time.Hour, time.Minute, "h", "m"},
		{48 * time.Hour, time.Hour, 0, "h", ""},
		{8 * 24 * time.Hour, 24 * time.Hour, time.Hour, "d", "h"},
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
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
