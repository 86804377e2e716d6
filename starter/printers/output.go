package printers

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

// OutputFormat is the format of the output. The formats of a list are a table, a table with more columns, JSON, YAML,
// and one name per line. A text can be printed as plain text, JSON or YAML.
type OutputFormat string

// Output formats of the commands.
const (
	OutputTable OutputFormat = "table"
	OutputWide  OutputFormat = "wide"
	OutputJSON  OutputFormat = "json"
	OutputYAML  OutputFormat = "yaml"
	OutputName  OutputFormat = "name"
	OutputText  OutputFormat = "text"
)

// RegisterFlag adds the flag --output with the formats of a list to a command.
func (o *OutputFormat) RegisterFlag(c *cobra.Command) {
	outputFlag{
		o,
		[]OutputFormat{OutputTable, OutputWide, OutputJSON, OutputYAML, OutputName},
	}.register(
		c,
		"format of the list: table, wide, json, yaml or name",
	)
}

// RegisterTextFlag adds the flag --output with the formats of a text to a command.
func (o *OutputFormat) RegisterTextFlag(c *cobra.Command) {
	outputFlag{o, []OutputFormat{OutputText, OutputJSON, OutputYAML}}.register(c, "format: text, json or yaml")
}

// outputFlag is the value of the flag --output: one of the formats in formats. The first format is the default.
type outputFlag struct {
	chosenFormat *OutputFormat
	formats      []OutputFormat
}

func (f outputFlag) register(c *cobra.Command, usage string) {
	*f.chosenFormat = f.formats[0]
	c.Flags().VarP(f, "output", "o", usage)
	words := list.Map(f.formats, func(format OutputFormat) string { return string(format) })
	// an error is possible only for a flag that does not exist
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (f outputFlag) String() string {
	if f.chosenFormat == nil { // pflag calls String on a zero value
		return ""
	}
	return string(*f.chosenFormat)
}

// Type implements pflag.Value.
func (outputFlag) Type() string { return "format" }

// Set implements pflag.Value.
func (f outputFlag) Set(text string) error {
	if !slices.Contains(f.formats, OutputFormat(text)) {
		return fmt.Errorf("the formats are %v", f.formats)
	}
	*f.chosenFormat = OutputFormat(text)
	return nil
}

// Listing has the data of a list for all output formats.
type Listing struct {
	Items       any      // slice with the items as JSON and YAML show them
	Names       []string // KIND/NAME or NAME of each item
	Table       [][]any  // rows of the table; the first is the header
	WideColumns [][]any  // further columns of the format wide, with their header; nil if there are no further columns
	EmptyText   string   // text instead of a table without items
}

// Write writes a list. In JSON and YAML, Write writes one object with the field items, which is an empty array instead
// of null if there are no items.
func (o OutputFormat) Write(out io.Writer, l Listing) error {
	switch o {
	case OutputName:
		_, err := io.WriteString(out, strings.Join(append(l.Names, ""), "\n"))
		return err
	case OutputJSON, OutputYAML:
		return o.Encode(out, map[string]any{"items": l.Items})
	case OutputTable, OutputWide, OutputText:
	}
	if len(l.Table) <= 1 {
		_, err := fmt.Fprintln(out, l.EmptyText)
		return err
	}
	rows := l.Table
	if o == OutputWide && l.WideColumns != nil {
		rows = make([][]any, len(l.Table))
		for i := range rows {
			rows[i] = append(slices.Clone(l.Table[i]), l.WideColumns[i]...)
		}
	}
	return WriteTable(out, rows)
}

// Encode writes a value as YAML if the format is yaml, otherwise as JSON.
func (o OutputFormat) Encode(out io.Writer, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && o == OutputYAML {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("encode what was found: %w", err)
	}
	_, err = fmt.Fprintln(UnwrappedOutput(out), strings.TrimSpace(string(data)))
	return err
}
