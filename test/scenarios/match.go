package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// widestRange bounds a range of IDs, so that a typo in its end does not list millions.
const widestRange = 200

// matcher finds the IDs of scenarios in the names of tests.
type matcher struct {
	known    map[string]bool
	prefixes map[string]string // as a function's name writes it (DOR, RUNEW), to as an ID does (DO-R, RU-new-)
	text     *regexp.Regexp    // what could be an ID, at the start of a text
	name     *regexp.Regexp    // what could be an ID, anywhere in a function's name
}

// idOf matches the IDs of a family. A family of one letter writes I1, the others write MS-01, DO-R01, RU-new-01.
func idOf(family string) *regexp.Regexp {
	if len(family) == 1 {
		return regexp.MustCompile(`^` + family + `[1-9]\d*$`)
	}
	return regexp.MustCompile(`^` + family + `-([A-Z]|[a-z]+-)?\d\d+$`)
}

func newMatcher(reg *registry) *matcher {
	m := &matcher{known: map[string]bool{}, prefixes: map[string]string{}}
	var texts, names []string
	for _, f := range reg.families {
		texts = append(texts, f.Name)
		if len(f.Name) > 1 {
			texts = append(texts, f.Name+`-(?:[A-Za-z]+-?)?`)
		}
		for _, s := range f.Scenarios {
			m.known[s.ID] = true
			prefix := strings.TrimRight(s.ID, "0123456789")
			key := strings.ToUpper(strings.ReplaceAll(prefix, "-", ""))
			if m.prefixes[key] == "" {
				m.prefixes[key] = prefix
				names = append(names, inNames(prefix))
			}
		}
	}
	longestFirst := func(a, b string) int { return len(b) - len(a) }
	slices.SortStableFunc(texts, longestFirst)
	slices.SortStableFunc(names, longestFirst)
	m.text = regexp.MustCompile(`^(` + strings.Join(texts, "|") + `)(\d+)`)
	m.name = regexp.MustCompile(`(` + strings.Join(names, "|") + `)(\d+)`)
	return m
}

// inNames is the pattern of a prefix in a function's name, which has no hyphens: RU-new- is RUnew, RUNew or RU_new_.
func inNames(prefix string) string {
	var pattern strings.Builder
	for piece := range strings.SplitSeq(prefix, "-") {
		if piece == "" {
			continue
		}
		if pattern.Len() > 0 {
			pattern.WriteString("_?")
		}
		pattern.WriteString("[" + piece[:1] + strings.ToUpper(piece[:1]) + "]" + piece[1:])
	}
	if strings.Contains(prefix, "-") {
		pattern.WriteString("_?")
	}
	return pattern.String()
}

// inName returns the IDs in the name of a Test function: at its start, after an underscore, a lower-case letter or another
// ID, and not before a digit or a lower-case letter. So TestI10 has I10 and not I1, and TestMD5 has none.
func (m *matcher) inName(name string) (ids []string) {
	rest, ok := strings.CutPrefix(name, "Test")
	if !ok || rest == "" || isLower(rest[0]) { // go test runs TestX and Test_x, but not Testx
		return nil
	}
	lastEnd := 0
	for _, at := range m.name.FindAllStringSubmatchIndex(rest, -1) {
		start, end := at[0], at[1]
		before := start == lastEnd || rest[start-1] == '_' || isLower(rest[start-1])
		if !before || end < len(rest) && rest[end] != '_' && !isUpper(rest[end]) {
			continue
		}
		key := strings.ToUpper(strings.ReplaceAll(rest[at[2]:at[3]], "_", ""))
		ids = append(ids, m.prefixes[key]+rest[at[4]:at[5]])
		lastEnd = end
	}
	return ids
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

// inText returns the IDs that a text starts with: one, a list (U45, U46 or I1/I2 or U98/99) or a range (DO-R01–R15, U60-62).
// A colon or a space must follow. A whole text may also be nothing but IDs where nameOnly is set, as in t.Run("U45", …).
func (m *matcher) inText(text string, nameOnly bool) []string {
	ids, rest := m.list(text)
	if strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, " ") || nameOnly && rest == "" {
		return ids
	}
	return nil
}

// list returns the IDs at the start of text and what follows them.
func (m *matcher) list(text string) (ids []string, rest string) {
	at := m.text.FindStringSubmatch(text)
	if at == nil {
		return nil, text
	}
	prefix, digits, rest := at[1], at[2], text[len(at[0]):]
	for {
		ids = append(ids, prefix+digits)
		for _, dash := range []string{"–", "-", ".."} {
			if last, after, ok := shortened(rest, dash, prefix); ok {
				ids = append(ids, expand(prefix, digits, last)...)
				rest = after
				break
			}
		}
		var ok bool
		if prefix, digits, rest, ok = m.next(prefix, rest); !ok {
			return ids, rest
		}
	}
}

// next returns the ID after a separator. Only after a slash may it be without the prefix of the one before.
func (m *matcher) next(prefix, text string) (newPrefix, digits, rest string, ok bool) {
	for _, separator := range []string{", ", ",", "/", " and "} {
		if after, found := strings.CutPrefix(text, separator); found {
			if at := m.text.FindStringSubmatch(after); at != nil {
				return at[1], at[2], after[len(at[0]):], true
			}
		}
	}
	digits, rest, ok = shortened(text, "/", prefix)
	if !ok {
		rest = text
	}
	return prefix, digits, rest, ok
}

// shortened reads sign and digits, with the end of prefix between them or none of it: –DO-R15, –R15 or –15 for DO-R.
func shortened(text, sign, prefix string) (digits, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, sign)
	if !ok {
		return "", "", false
	}
	for i := range len(prefix) + 1 {
		if after, ok := strings.CutPrefix(text, prefix[i:]); ok {
			rest = strings.TrimLeft(after, "0123456789")
			return after[:len(after)-len(rest)], rest, len(rest) < len(after)
		}
	}
	return "", "", false
}

// expand returns the IDs after first up to last. A range that does not rise is returned as one ID that nobody knows.
func expand(prefix, first, last string) (ids []string) {
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	if errFrom != nil || errTo != nil || to <= from || to-from > widestRange {
		return []string{prefix + first + "–" + last}
	}
	for i := from + 1; i <= to; i++ {
		ids = append(ids, fmt.Sprintf("%s%0*d", prefix, len(first), i))
	}
	return ids
}
