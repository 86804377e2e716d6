package printers

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListOutputFormats(t *testing.T) {
	type item struct {
		Name string `json:"name"`
	}
	full := Listing{
		Items: []item{{"a"}, {"b"}},
		Names: []string{"machine/a", "machine/b"},
		Table: [][]any{
			{"NAME", "STAGE"},
			{"a", "Drain"},
			{"b", ""},
		},
		WideColumns: [][]any{{"WAITS FOR"}, {"a budget"}, {""}},
		EmptyText:   "nothing",
	}
	none := Listing{Items: []item{}, Table: [][]any{{"NAME"}}, EmptyText: "nothing"}
	for name, row := range map[string]struct {
		flags []string
		list  Listing
		says  string
	}{
		"a table":            {nil, full, "NAME   STAGE\na      Drain\nb      -\n"},
		"more columns":       {[]string{"-o", "wide"}, full, "NAME   STAGE   WAITS FOR\na      Drain   a budget\nb      -       -\n"},
		"JSON":               {[]string{"-o", "json"}, full, "{\n  \"items\": [\n    {\n      \"name\": \"a\"\n    },\n    {\n      \"name\": \"b\"\n    }\n  ]\n}\n"},
		"YAML":               {[]string{"--output=yaml"}, full, "items:\n- name: a\n- name: b\n"},
		"names":              {[]string{"-o=name"}, full, "machine/a\nmachine/b\n"},
		"a table of nothing": {[]string{"-o", "wide"}, none, "nothing\n"},
		"JSON of nothing":    {[]string{"-o", "json"}, none, "{\n  \"items\": []\n}\n"},
		"names of nothing":   {[]string{"-o", "name"}, none, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			var output OutputFormat
			c := &cobra.Command{RunE: func(*cobra.Command, []string) error { return output.Write(&out, row.list) }}
			output.RegisterFlag(c)
			c.SetArgs(row.flags)
			require.NoError(t, c.Execute())
			assert.Equal(t, row.says, out.String())
		})
	}
	var output OutputFormat
	c := &cobra.Command{RunE: func(*cobra.Command, []string) error { return nil }, SilenceUsage: true, SilenceErrors: true}
	output.RegisterFlag(c)
	c.SetArgs([]string{"-o", "xml"})
	require.ErrorContains(t, c.Execute(), "the formats are [table wide json yaml name]")
}
