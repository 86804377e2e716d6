package kubecli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"millwright/decide/list"
)

// Output is the format of the output: of a list a table, a table with more columns, JSON, YAML or one name a line; of a
// text plain text, JSON or YAML.
type Output string

// The formats.
const (
	OutputTable Output = "table"
	OutputWide  Output = "wide"
	OutputJSON  Output = "json"
	OutputYAML  Output = "yaml"
	OutputName  Output = "name"
	OutputText  Output = "text"
)

// Register adds the flag --output with the formats of a list to a command.
func (o *Output) Register(c *cobra.Command) {
	choice{
		o,
		[]Output{OutputTable, OutputWide, OutputJSON, OutputYAML, OutputName},
	}.register(
		c,
		"format of the list: table, wide, json, yaml or name",
	)
}

// RegisterText adds the flag --output with the formats of a text to a command.
func (o *Output) RegisterText(c *cobra.Command) {
	choice{o, []Output{OutputText, OutputJSON, OutputYAML}}.register(c, "format: text, json or yaml")
}

// choice is the value of the flag --output: one of the formats in of. The first of them is the default.
type choice struct {
	chosen *Output
	of     []Output
}

func (f choice) register(c *cobra.Command, usage string) {
	*f.chosen = f.of[0]
	c.Flags().VarP(f, "output", "o", usage)
	words := list.Map(f.of, func(format Output) string { return string(format) })
	// it fails only for a flag that does not exist
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (f choice) String() string {
	if f.chosen == nil { // pflag asks a zero value for its text
		return ""
	}
	return string(*f.chosen)
}

// Type implements pflag.Value.
func (choice) Type() string { return "format" }

// Set implements pflag.Value.
func (f choice) Set(text string) error {
	if !slices.Contains(f.of, Output(text)) {
		return fmt.Errorf("the formats are %v", f.of)
	}
	*f.chosen = Output(text)
	return nil
}

// Listing is a list in all its forms.
type Listing struct {
	Items any      // slice with the items as JSON and YAML show them
	Names []string // KIND/NAME or NAME of each item
	Table [][]any  // rows of the table; the first is the header
	Wide  [][]any  // further columns of the format wide, with their header; nil: there are none
	Empty string   // text instead of a table without items
}

// Write writes a list. JSON and YAML have one object with the field items. A list without items has an empty array
// there, not null.
func (o Output) Write(out io.Writer, l Listing) error {
	switch o {
	case OutputName:
		_, err := io.WriteString(out, strings.Join(append(l.Names, ""), "\n"))
		return err
	case OutputJSON, OutputYAML:
		return o.Encode(out, map[string]any{"items": l.Items})
	case OutputTable, OutputWide, OutputText:
	}
	if len(l.Table) <= 1 {
		_, err := fmt.Fprintln(out, l.Empty)
		return err
	}
	rows := l.Table
	if o == OutputWide && l.Wide != nil {
		rows = make([][]any, len(l.Table))
		for i := range rows {
			rows[i] = append(slices.Clone(l.Table[i]), l.Wide[i]...)
		}
	}
	return WriteTable(out, rows)
}

// Encode writes a value as YAML, or in any other format as JSON.
func (o Output) Encode(out io.Writer, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o == OutputYAML {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("encode what was found: %w", err)
	}
	_, err = fmt.Fprintln(out, strings.TrimSpace(string(data)))
	return err
}
