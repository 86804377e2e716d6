package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample holds each way in which a test can name a scenario, and each way in which a text only looks as if it did.
const sample = `//go:build integration

package x

const helper = "D2: text of the package"

func TestI10Deletes(t *testing.T) {}

func (s *Suite) TestD14_Text() {}

func TestTable(t *testing.T) {
	for _, tc := range []struct{ name string }{
		{"U45: the younger goes first"},
		{name: "DO-R01–R03 order"},
		{name: ` + "`U60, U61: raw`" + `},
		{"no ID, I1: in the middle"},
		{"U1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, "U2: an expectation", got)
			require.Equal(t, []string{"U3: an expectation"}, got)
			t.Errorf("U4: a message")
			if bad {
				t.Skip("U5: a message")
			}
		})
	}
	for name := range map[string]int{"D1: zero | one": 0} {
		t.Run(name, nil)
	}
}

func TestNested(t *testing.T) {
	t.Run("on the stack", func(t *testing.T) {
		t.Run("N2: first", nil)
		s.Run("N3", nil)
	})
	// U6: a comment
}

func TestU7Skipped(t *testing.T) {
	t.Skip("later")
	t.Run("U8: never", nil)
}
`

func TestScanTests(t *testing.T) {
	file := func(source string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(source)} }
	shown, problems, err := scanTests(fstest.MapFS{
		"a/x_test.go":                    file(sample),
		"a/x.go":                         file("package x\nfunc TestU9() {}\n"),
		"nested/go.mod":                  file("module nested\n"),
		"nested/b_test.go":               file("package b\nfunc TestI10AsWell() {}\nfunc TestI12() {}\nvar x = \"MS-1: typo\"\n"),
		"nested/vendor/c_test.go":        file("package c\nfunc TestU10() {}\n"),
		"a/testdata/d_test.go":           file("no Go at all"),
		".hidden/e_test.go":              file("package e\nfunc TestU11() {}\n"),
		"_old/f_test.go":                 file("package f\nfunc TestU12() {}\n"),
		"test/scenarios/scan_test.go":    file("package main\nfunc TestU13() {}\n"),
		"test/integration/chain_test.go": file("package chain\nfunc TestU14() {}\n"),
		"test/integration/long_test.go":  file("// Long.\n\n//go:build integration && endurance\n\npackage chain\nfunc TestU14() {}\n"),
		"decide/g_test.go":               file("package g\nfunc TestU14() {\n\tt.Run(\"U14: a part of it\", nil)\n}\n"),
	}, newMatcher(ours(t)))
	require.NoError(t, err)

	assert.Equal(t, map[string][]proof{
		"I10":    {{levelStack, "a/x_test.go:TestI10Deletes"}, {levelFake, "nested/b_test.go:TestI10AsWell"}},
		"D2":     {{levelStack, "a/x_test.go:D2: text of the package"}},
		"D14":    {{levelStack, "a/x_test.go:TestD14_Text"}},
		"U45":    {{levelStack, "a/x_test.go:TestTable/U45: the younger goes first"}},
		"DO-R01": {{levelStack, "a/x_test.go:TestTable/DO-R01–R03 order"}},
		"DO-R02": {{levelStack, "a/x_test.go:TestTable/DO-R01–R03 order"}},
		"DO-R03": {{levelStack, "a/x_test.go:TestTable/DO-R01–R03 order"}},
		"U60":    {{levelStack, "a/x_test.go:TestTable/U60, U61: raw"}},
		"U61":    {{levelStack, "a/x_test.go:TestTable/U60, U61: raw"}},
		"D1":     {{levelStack, "a/x_test.go:TestTable/D1: zero | one"}},
		"N2":     {{levelStack, "a/x_test.go:TestNested/on the stack/N2: first"}},
		"N3":     {{levelStack, "a/x_test.go:TestNested/on the stack/N3"}},
		"U14": {
			{levelFake, "test/integration/chain_test.go:TestU14"},
			{levelPure, "decide/g_test.go:TestU14"},
			{levelEndurance, "test/integration/long_test.go:TestU14"},
		},
	}, shown)
	assert.Equal(t, []string{
		"nested/b_test.go:MS-1: typo names MS-1: there is no such scenario",
		"nested/b_test.go:TestI12 names I12: there is no such scenario",
	}, problems)
}

func TestScanTestsRefuses(t *testing.T) {
	_, _, err := scanTests(fstest.MapFS{"a_test.go": {Data: []byte("package")}}, newMatcher(ours(t)))
	assert.ErrorContains(t, err, "scan tests: parse test: a_test.go")
}
