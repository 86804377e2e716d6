package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mutation applies only if its text occurs exactly once. If the text occurs twice, the mutation could change the
// wrong place. If the text does not occur, the mutation changes nothing, and its result proves nothing.
func TestApplyMutation(t *testing.T) {
	for _, c := range []struct {
		name, text, old, new, want string
		ok                         bool
	}{
		{"once", "a < b", "<", "<=", "a <= b", true},
		{"never", "a > b", "<", "<=", "", false},
		{"twice", "a < b < c", "<", "<=", "", false},
		{"no change", "a < b", "<", "<", "", false},
		{"empty", "a < b", "", "x", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := applyMutation(c.text, mutation{oldText: c.old, newText: c.new})
			require.Equal(t, c.ok, ok)
			if ok {
				assert.Equal(t, c.want, got)
			}
		})
	}
}

func TestParseTestOutput(t *testing.T) {
	result, detail := parseTestOutput("--- FAIL: TestScale (0.00s)\n    --- FAIL: TestScale/one (0.00s)\nFAIL\n")
	assert.Equal(t, verdictKilled, result)
	assert.Equal(t, " (TestScale)", detail)
	result, _ = parseTestOutput(
		"# millwright/decide/scale\n./create.go:3:1: undefined: x\nFAIL\tmillwright/decide/scale [build failed]\n",
	)
	assert.Equal(t, verdictDoesNotBuild, result, "a mutation that cannot be compiled was noticed by no test")
	result, _ = parseTestOutput("panic: test timed out after 1m0s\n")
	assert.Equal(t, verdictKilled, result, "tests that hang notice it")
}

// Every mutation still applies to the current code, and its packages exist. Without this test, a stale mutation would
// be found only when somebody runs all mutations, which takes many minutes.
func TestTheMutationsApply(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, m := range mutations() {
		assert.False(t, seen[m.id], "two mutations %s", m.id)
		seen[m.id] = true
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if !assert.NoError(t, err, m.id) {
			continue
		}
		_, ok := applyMutation(string(text), m)
		assert.True(t, ok, "%s: the old text occurs %d times in %s", m.id, strings.Count(string(text), m.oldText), m.file)
		assert.NotEmpty(t, m.brokenBehaviour, m.id)
		require.NotEmpty(t, strings.Fields(m.testArguments), m.id)
		for arg := range strings.FieldsSeq(m.testArguments) {
			if !strings.HasPrefix(arg, "-") {
				assert.DirExists(t, filepath.Join(root, arg), m.id)
			}
		}
	}
}

// A pattern that matches no test runs no test, or skips no simulation. Then the verdict about the mutation proves
// nothing.
func TestPatternsOfMutationsMatchTests(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	alternatives := regexp.MustCompile(`^\^Test\((.*)\)$`)
	for _, m := range mutations() {
		pattern, names := "", []string{}
		for arg := range strings.FieldsSeq(m.testArguments) {
			if _, value, isPattern := strings.Cut(arg, "="); isPattern {
				pattern = value
				continue
			}
			files, err := filepath.Glob(filepath.Join(root, arg, "*_test.go"))
			require.NoError(t, err)
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				for _, found := range function.FindAllStringSubmatch(string(text), -1) {
					names = append(names, found[1])
				}
			}
		}
		each := []string{pattern}
		if found := alternatives.FindStringSubmatch(pattern); found != nil {
			each = nil
			for alternative := range strings.SplitSeq(found[1], "|") {
				each = append(each, "^Test"+alternative)
			}
		}
		for _, part := range each {
			matches := regexp.MustCompile(part).MatchString
			assert.True(t, slices.ContainsFunc(names, matches), "%s: no test matches %q", m.id, part)
		}
	}
}
