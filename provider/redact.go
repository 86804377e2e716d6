package provider

import (
	"slices"
	"strings"
)

// minRedacted is the shortest value, in bytes, that Redact replaces. Shorter ones are not secrets ("true", "eu-1"), and
// replacing them would make messages unreadable.
const minRedacted = 6

// Redact returns text without the values of the secret. Clouds quote requests in their errors ("token abc is not valid"), so a
// provider calls it for every text from its cloud before that becomes an Error's message.
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
	// Longest first: if one value contains another, no part of it remains.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	for _, value := range found {
		text = strings.ReplaceAll(text, value, redacted)
	}
	return text
}
