package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"net/url"
	"slices"
	"strings"
)

// minRedacted is the shortest value, in bytes, that Redact replaces. Shorter ones are not secrets ("true", "eu-1"), and
// replacing them would make messages unreadable.
const minRedacted = 6

// minLine is the shortest line of a value of several lines, in bytes, that Redact replaces. Shorter lines are words of
// a format.
const minLine = 8

// Redact returns text without the values of the secret, in the forms in which requests carry them: plain, escaped for
// JSON, XML or a URL, in base64; and without single lines of a value. Clouds quote requests in their errors ("token abc
// is not valid"), so a provider calls it for every text from its cloud before that becomes an Error's message. Package
// driver does that for a Driver.
func (s Secret) Redact(text string) string {
	var found []string
	for _, value := range s {
		// A token that was pasted with a line break at its end is quoted without it.
		for _, plain := range []string{string(value), strings.TrimSpace(string(value))} {
			if len(plain) >= minRedacted {
				found = append(found, forms(plain)...)
			}
		}
		for line := range strings.Lines(string(value)) {
			if line = strings.TrimSpace(line); len(line) >= minLine {
				found = append(found, line)
				found = append(found, xmlForms(line)...)
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

// forms returns a value as requests may carry it. Within the base64 of a longer text, such as "user:password", a value
// looks different for each of the three offsets: the letters that depend on its neighbours are left out.
func forms(plain string) []string {
	all := append(xmlForms(plain), plain, url.QueryEscape(plain), url.PathEscape(plain))
	if quoted, err := json.Marshal(plain); err == nil {
		all = append(all, strings.Trim(string(quoted), `"`))
	}
	for offset := range 3 {
		padded := []byte(strings.Repeat("x", offset) + plain)
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := encoding.EncodeToString(padded)
			if offset == 0 {
				all = append(all, whole)
			}
			first, last := (offset*8+5)/6, len(padded)*8/6 // letters that hold bits of this value alone
			if last-first >= minRedacted {
				all = append(all, whole[first:last])
			}
		}
	}
	return all
}

// xmlForms returns a value as programs write it into XML: with quotation marks as numbers, as names, or as they are.
func xmlForms(plain string) []string {
	var numbers bytes.Buffer
	_ = xml.EscapeText(&numbers, []byte(plain)) // a buffer takes everything
	return []string{
		numbers.String(),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(plain),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(plain),
	}
}
