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

// minRedacted is the minimum length, in bytes, of a value that Redact replaces. Shorter values, such as "true" or
// "eu-1", are not secrets, and without them messages would be unreadable.
const minRedacted = 6

// minLine is the minimum length, in bytes, of a line that Redact replaces in a value with several lines. Shorter lines
// are keywords of a format.
const minLine = 8

// Redact replaces in text the values of the secret, and the single lines of these values. It knows the forms in which
// requests carry a value: plain; escaped for JSON, XML or a URL; in base64. Clouds quote requests in their errors
// ("token abc is not valid"), so a provider calls Redact for every text of its cloud before the text becomes an Error's
// message. Package driver does so for a Driver.
func (s Secret) Redact(text string) string {
	var found []string
	for _, value := range s {
		// A cloud may quote a token without the line break with which it was pasted into the Secret.
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
	// The longest value comes first: if it contains another value, nothing of it remains.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	for _, value := range found {
		text = strings.ReplaceAll(text, value, redacted)
	}
	return text
}

// forms returns the forms in which requests may carry a value. In the base64 of a longer text, such as "user:password",
// a value has a different form for each of three offsets; forms returns these without the letters at both ends that
// also depend on the neighbouring text.
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
			first, last := (offset*8+5)/6, len(padded)*8/6 // letters that depend on this value alone
			if last-first >= minRedacted {
				all = append(all, whole[first:last])
			}
		}
	}
	return all
}

// xmlForms returns the forms of a value in XML: with quotation marks escaped as numbers, escaped as names, or
// unescaped.
func xmlForms(plain string) []string {
	var numbers bytes.Buffer
	_ = xml.EscapeText(&numbers, []byte(plain)) // a buffer never fails
	return []string{
		numbers.String(),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(plain),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(plain),
	}
}
