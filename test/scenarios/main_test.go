package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden document")

func TestRender(t *testing.T) {
	page := render(small(t), map[string][]proof{
		"N1":    {{levelStack, "a_test.go:TestN1"}, {levelFake, "a_test.go:TestTable/N1: x|y"}, {levelPure, "d"}, {levelPure, "e"}, {levelEndurance, "f"}},
		"N2":    {{levelFake, "b_test.go:TestN2"}},
		"MS-01": {{levelEndurance, "c_test.go:Test/MS-01: `quoted`"}},
		"MS-03": {{levelPure, "c_test.go:TestMS03"}},
	})
	golden := filepath.Join("testdata", "scenarios.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, page, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(page))
}

func TestRun(t *testing.T) {
	root, reg := t.TempDir(), small(t)
	require.NoError(t, os.Mkdir(filepath.Join(root, "docs"), 0o755))
	test := filepath.Join(root, "a_test.go")
	require.NoError(t, os.WriteFile(test, []byte("package a\nfunc TestN1() {}\n"), 0o644))

	assert.EqualError(t, run(root, reg, true), "docs/scenarios.md is out of date: run make generate")
	require.NoError(t, run(root, reg, false))
	require.NoError(t, run(root, reg, true))
	page, err := os.ReadFile(filepath.Join(root, document))
	require.NoError(t, err)
	assert.Contains(t, string(page), "| N1 | one | 1 | fake | `a_test.go:TestN1` |\n")

	reg.Resolved = []int{1}
	require.NoError(t, os.WriteFile(test, []byte("package a\nfunc TestN1Renamed() {}\nfunc TestN3() {}\n"), 0o644))
	assert.EqualError(t, run(root, reg, false), "a_test.go:TestN3 names N3: there is no such scenario\n"+
		"N2 (part 1, 2) is open, tests needed 1, found 0: two")
	page, err = os.ReadFile(filepath.Join(root, document))
	require.NoError(t, err)
	assert.Contains(t, string(page), "TestN1Renamed", "the document is written although something is missing")
}

func TestPartNumbers(t *testing.T) {
	parts, err := partNumbers("1, 3")
	require.NoError(t, err)
	assert.Equal(t, []int{1, 3}, parts)
	_, err = partNumbers("1,two")
	assert.ErrorContains(t, err, `parse part "two"`)
}

func TestModuleRoot(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(root, "test", "scenarios", "main.go"))
}
