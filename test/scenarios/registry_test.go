package main

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// every lists all scenarios there are, in the words that tests may use. The registry must hold these and no other.
var every = []string{
	"I1–I11: x", "N1–N20: x", "D1–D43: x",
	"U1–U34, U40–U74, U80–U100, U110–U128, U130–U134, U140–U151, U160–U163, U170–U174: x",
	"MS-01–MS-63: x", "DO-R01–R15, DO-N01–N09, DO-O01–O12, DO-S01–S12, DO-H01–H04: x", "PF-01–28: x", "ST-01–57: x",
	"DR-01–37: x", "VD-01–20: x", "ND-01–15: x",
	"RU-new-01–05, RU-old-01–21, DL-01–08, SEQ-01–23: x",
}

func TestRegistryIsComplete(t *testing.T) {
	m := newMatcher(ours(t))
	var want []string
	for _, text := range every {
		want = append(want, m.inText(text, false)...)
	}
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(m.known)))
	assert.Len(t, want, 538)
}

func TestPartsOfTheWork(t *testing.T) {
	parts := map[string][]int{}
	for _, f := range ours(t).families {
		for _, s := range f.Scenarios {
			parts[s.ID] = append([]int{s.Part}, s.Also...)
		}
	}
	m := newMatcher(ours(t))
	for part, lists := range map[int][]string{
		1: {"I1–I7, I10/11, D18/19: x"},
		2: {"U60–U74, U110–U127, U130/131, U133/134, U170/171, U173/174, D9, D20/21, D28, D30, N4/5, N8/9, N11/12, N15/16: x"},
		3: {"U80–U100, U128, U132, U140–U151, DR-01–37, VD-01–20, N2/3, N5, N13/14, D1, D3, D14–16, D36, D39, D41/42: x"},
		4: {"U40–U59, MS-01–63, PF-01–28, ST-01–57, N6, N19, D10–12, D32/33, D37, D40: x"},
		5: {"U1–U34, U172, RU-new-01–05, RU-old-01–21, DL-01–08, SEQ-01–23, N1, N7, N10, N17/18, D2, D7/8, D22, D35: x"},
	} {
		for _, list := range lists {
			for _, id := range m.inText(list, false) {
				assert.Contains(t, parts[id], part, id)
			}
		}
	}
}

const (
	smallRegistry = `{parts: [{number: 1, title: One}, {number: 2, title: Two}], resolved: [], families: ["N", MS]}`
	smallN        = `{family: "N", title: Cases, scenarios: [{id: N1, part: 1, title: one}, {id: N2, part: 1, also: [2], title: two}]}`
	smallMS       = `{family: MS, title: Sets, scenarios: [
  {id: MS-01, part: 2, title: a|b, weak: Nobody looks at the other half.},
  {id: MS-02, part: 2, title: "no", reason: Millwright does something else instead.},
  {id: MS-03, part: 2, title: "not so", reason: "Millwright does this, and a test shows it."}]}`
)

func small(t *testing.T) *registry {
	t.Helper()
	reg, err := loadRegistry(files(smallN, smallMS))
	require.NoError(t, err)
	return reg
}

func files(n, ms string) fstest.MapFS {
	return fstest.MapFS{
		"data/registry.yaml": {Data: []byte(smallRegistry)},
		"data/N.yaml":        {Data: []byte(n)},
		"data/MS.yaml":       {Data: []byte(ms)},
	}
}

func TestLoadRegistryRefuses(t *testing.T) {
	for want, n := range map[string]string{
		"N1: stands twice":                              `{family: "N", scenarios: [{id: N1, part: 1, title: a}, {id: N1, part: 1, title: b}]}`,
		"N1: there is no part 3":                        `{family: "N", scenarios: [{id: N1, part: 3, title: a}]}`,
		"N1: has no title":                              `{family: "N", scenarios: [{id: N1, part: 1}]}`,
		"N1: its reason or weak is no full sentence":    `{family: "N", scenarios: [{id: N1, part: 1, title: a, reason: not here}]}`,
		"N2: its reason or weak is no full sentence":    `{family: "N", scenarios: [{id: N2, part: 1, title: a, weak: half}]}`,
		"N1: has a reason, so that no test can be weak": `{family: "N", scenarios: [{id: N1, part: 1, title: a, reason: b, weak: c}]}`,
		"M1: is no ID of family N":                      `{family: "N", scenarios: [{id: M1, part: 1, title: a}]}`,
		"read family N: its file says M":                `{family: M}`,
		`unknown field "reasn"`:                         `{family: "N", scenarios: [{id: N1, part: 1, title: a, reasn: b}]}`,
	} {
		_, err := loadRegistry(files(n, smallMS))
		assert.ErrorContains(t, err, want)
	}
}

func TestMissing(t *testing.T) {
	shown := func(ids ...string) map[string][]proof {
		tests := map[string][]proof{}
		for _, id := range ids {
			tests[id] = []proof{{levelPure, "a"}}
		}
		return tests
	}
	for name, tc := range map[string]struct {
		resolved []int
		shown    map[string][]proof
		want     []string
	}{
		"no part is resolved": {nil, nil, nil},
		"nothing is shown": {[]int{1}, nil, []string{
			"N1 (part 1) is open, tests needed 1, found 0: one",
			"N2 (part 1, 2) is open, tests needed 1, found 0: two",
		}},
		"all is shown":       {[]int{1}, shown("N1", "N2"), nil},
		"a reason is enough": {[]int{2}, shown("N2", "MS-01"), nil},
		"each part wants a test": {[]int{1, 2}, shown("N1", "N2", "MS-01"), []string{
			"N2 (part 1, 2) is open, tests needed 2, found 1: two",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := small(t)
			reg.Resolved = tc.resolved
			assert.Equal(t, tc.want, reg.missing(tc.shown))
		})
	}
}
