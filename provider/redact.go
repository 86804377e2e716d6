package provider

import (
	"slices"
	"strings"
)

// minRedacted is the shortest value, in bytes, that Redact looks for. Shorter ones are no secrets ("true", "eu-1"), and
// replacing them would make messages unreadable.
const minRedacted = 6

// Redact returns text without the values of the secret. Clouds quote what they were sent ("token abc is not valid"), so
// a provider passes whatever text came from its cloud through here before it becomes an Error's message.
func (s Secret) Redact(text string) string {
	var found []string
	for _, value := range s {
		// A token that was pasted with a line break at its end is quoted without it.
		for _, form := range []string{string(value), strings.TrimSpace(string(value))} {
			if len(form) >= minRedacted {
				found = append(found, form)
			}
		}
	}
	// Longest first: of two values of which one holds the other, no rest stays behind.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	for _, value := range found {
		text = strings.ReplaceAll(text, value, redacted)
	}
	return text
}
