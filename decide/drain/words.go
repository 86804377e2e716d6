package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of what a sentence says. Source: CAPI names 3 pods in a line; the API server's own texts are far shorter than
// longestMessage.
const (
	maxNames       = 3
	longestMessage = 300 // characters
)

// clock is a time as sentences say it: with the day only when it is not today.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly + " MST")
	}
	return t.Format(time.DateTime + " MST")
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// are is "1 is" or "2 are".
func are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// list names the first few of some things.
func list(names []string, separator string) string {
	if len(names) <= maxNames {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], separator), len(names)-maxNames)
}

// oneOf is a word for one thing and another one for several.
func oneOf(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > longestMessage {
		return string(runes[:longestMessage]) + "…"
	}
	return text
}

func sorted[T any](items []T, by func(a, b T) int) []T {
	items = slices.Clone(items)
	slices.SortFunc(items, by)
	return items
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
