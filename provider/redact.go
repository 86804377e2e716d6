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

// minRedactedLength is the minimum length, in bytes, of a value that Redact replaces. Shorter values, such as "true" or
// "eu-1", are not secrets, and their replacement would make messages unreadable.
const minRedactedLength = 6

// minRedactedLineLength is the minimum length, in bytes, of a single line that Redact replaces if a value has several
// lines. Lines shorter than minRedactedLineLength are keywords of a file format, not secrets.
const minRedactedLineLength = 8

// Redact replaces the values of the Secret in a text, and also the single lines of these values. Redact finds a value
// in these forms: plain; escaped for JSON, XML or a URL; in base64. Clouds quote requests in their errors ("token abc
// is not valid"). So a provider must pass every text of its cloud through Redact before the text becomes the message of
// an Error. For a Driver, package driver calls Redact.
func (s Secret) Redact(text string) string {
	var found []string
	for _, value := range s {
		// A cloud may quote a token without the line break at the end of the Secret's value.
		for _, plain := range []string{string(value), strings.TrimSpace(string(value))} {
			if len(plain) >= minRedactedLength {
				found = append(found, encodedForms(plain)...)
			}
		}
		for line := range strings.Lines(string(value)) {
			if line = strings.TrimSpace(line); len(line) >= minRedactedLineLength {
				found = append(found, line)
				found = append(found, xmlEncodedForms(line)...)
			}
		}
	}
	// Replace longer values first, because a longer value may contain a shorter one and no part of it may remain.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	for _, value := range found {
		text = strings.ReplaceAll(text, value, redactedPlaceholder)
	}
	return text
}

// encodedForms returns the encoded forms of a value that a request may contain. In the base64 of a longer text,
// such as "user:password", the form of a value depends on its offset modulo 3. encodedForms returns all three
// base64 forms, without the first and last letters, which also depend on the text around the value.
func encodedForms(plain string) []string {
	all := append(xmlEncodedForms(plain), plain, url.QueryEscape(plain), url.PathEscape(plain))
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
			first, last := (offset*8+5)/6, len(padded)*8/6 // range of the letters that depend only on the value
			if last-first >= minRedactedLength {
				all = append(all, whole[first:last])
			}
		}
	}
	return all
}

// xmlEncodedForms returns three XML forms of a value, in which quotation marks are character numbers (&#34;), entity
// names (&quot;) or not escaped.
func xmlEncodedForms(plain string) []string {
	var numbers bytes.Buffer
	_ = xml.EscapeText(&numbers, []byte(plain)) // a write to a bytes.Buffer never fails
	return []string{
		numbers.String(),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(plain),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(plain),
	}
}
