package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func ours(t *testing.T) *registry {
	t.Helper()
	reg, err := loadRegistry(dataFiles)
	require.NoError(t, err)
	return reg
}

func TestInText(t *testing.T) {
	m := newMatcher(ours(t))
	for text, want := range map[string][]string{
		"I1: create a machine":        {"I1"},
		"I10: the deployment goes":    {"I10"},
		"D1 zero retries":             {"D1"},
		"D14: text":                   {"D14"},
		"DO-R01 none":                 {"DO-R01"},
		"RU-new-03: surge":            {"RU-new-03"},
		"SEQ-23: OnDelete":            {"SEQ-23"},
		"U45, U46: two at once":       {"U45", "U46"},
		"U45,U46: two at once":        {"U45", "U46"},
		"I1/I2: create and delete":    {"I1", "I2"},
		"I1 and I2: create, delete":   {"I1", "I2"},
		"U98/99: no target":           {"U98", "U99"},
		"DO-R01/R02/03: three":        {"DO-R01", "DO-R02", "DO-R03"},
		"U60–U62: creation":           {"U60", "U61", "U62"},
		"U60-62: creation":            {"U60", "U61", "U62"},
		"U60..U62: creation":          {"U60", "U61", "U62"},
		"MS-01–MS-03: a set":          {"MS-01", "MS-02", "MS-03"},
		"DO-R09–R11: order":           {"DO-R09", "DO-R10", "DO-R11"},
		"RU-old-09–10: old sets":      {"RU-old-09", "RU-old-10"},
		"U60–U62, D4, MS-01/02: many": {"U60", "U61", "U62", "D4", "MS-01", "MS-02"},
		"I1, 2 machines":              nil,
		"I1":                          nil,
		"I1-based":                    nil,
		"I1a: x":                      nil,
		"I18n: x":                     nil,
		"see I1: x":                   nil,
		"X1: x":                       nil,
		"DOI1: x":                     nil,
		"":                            nil,
	} {
		assert.Equal(t, want, m.inText(text, false), text)
	}
	assert.Equal(t, []string{"U45"}, m.inText("U45", true), "a subtest may be named by its ID alone")
}

func TestInTextKeepsWhatNobodyKnows(t *testing.T) {
	m := newMatcher(ours(t))
	for text, want := range map[string][]string{
		"U75: x":         {"U75"},
		"I12: x":         {"I12"},
		"MS-1: x":        {"MS-1"},
		"MS01: x":        {"MS01"},
		"DO-X01: x":      {"DO-X01"},
		"RU-newer-01: x": {"RU-newer-01"},
		"U74–U80: x":     {"U74", "U75", "U76", "U77", "U78", "U79", "U80"},
		"U62–U60: x":     {"U62", "U62–60"},
		"U1–9999999: x":  {"U1", "U1–9999999"},
	} {
		got := m.inText(text, false)
		assert.Equal(t, want, got, text)
		assert.True(t, slices.ContainsFunc(got, func(id string) bool { return !m.known[id] }), text)
	}
}

func TestInName(t *testing.T) {
	m := newMatcher(ours(t))
	for name, want := range map[string][]string{
		"TestI4CreateDeployment":    {"I4"},
		"TestI1":                    {"I1"},
		"TestI10DeletesAll":         {"I10"},
		"TestD11_StaleCache":        {"D11"},
		"TestD1_NoRetries":          {"D1"},
		"TestN5CreateSide":          {"N5"},
		"TestU45U46_Delete":         {"U45", "U46"},
		"TestU45_U46":               {"U45", "U46"},
		"TestDrainD14ReadsNoText":   {"D14"},
		"TestDrain_D14":             {"D14"},
		"TestMS01WholeLife":         {"MS-01"},
		"TestMS_01":                 {"MS-01"},
		"TestDOR01None":             {"DO-R01"},
		"TestDO_R01":                {"DO-R01"},
		"TestRUnew01":               {"RU-new-01"},
		"TestRUNew01Grows":          {"RU-new-01"},
		"TestRU_old_21":             {"RU-old-21"},
		"TestSEQ07":                 {"SEQ-07"},
		"TestI12_NotThere":          {"I12"},
		"TestI18nMessages":          nil,
		"TestMD5Sum":                nil,
		"TestV1D2":                  nil,
		"TestHTTPU2":                nil,
		"TestCreate":                nil,
		"TestingI1":                 nil,
		"helperD14":                 nil,
		"TestDivideAndUndo":         nil,
		"TestU":                     nil,
		"TestMS1IsTooShortButNamed": {"MS-1"},
	} {
		assert.Equal(t, want, m.inName(name), name)
	}
}
