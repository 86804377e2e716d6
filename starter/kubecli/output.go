package kubecli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Output is the format of a list: a table, a table with more columns, JSON, YAML, or a name a line. It is the value of a flag.
type Output string

// The formats.
const (
	OutputTable Output = "table"
	OutputWide  Output = "wide"
	OutputJSON  Output = "json"
	OutputYAML  Output = "yaml"
	OutputName  Output = "name"
)

// Register adds the flag to a command.
func (o *Output) Register(c *cobra.Command) {
	*o = OutputTable
	c.Flags().VarP(o, "output", "o", "format of the list: table, wide, json, yaml or name")
}

// String implements pflag.Value.
func (o *Output) String() string { return string(*o) }

// Type implements pflag.Value.
func (*Output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *Output) Set(text string) error {
	formats := []Output{OutputTable, OutputWide, OutputJSON, OutputYAML, OutputName}
	if !slices.Contains(formats, Output(text)) {
		return fmt.Errorf("the formats are %v", formats)
	}
	*o = Output(text)
	return nil
}

// Listing is a list in all its forms.
type Listing struct {
	Items any      // a slice of what JSON and YAML show of each
	Names []string // KIND/NAME or NAME of each
	Table [][]any  // with its header
	Wide  [][]any  // the further columns, with their header; nil: there are none
	Empty string   // what the table says instead when there is nothing
}

// Write writes a list. JSON and YAML are one object with the field items, which is empty and not null when there is nothing.
func (o Output) Write(out io.Writer, l Listing) error {
	switch o {
	case OutputName:
		_, err := io.WriteString(out, strings.Join(append(l.Names, ""), "\n"))
		return err
	case OutputJSON, OutputYAML:
		data, err := json.MarshalIndent(map[string]any{"items": l.Items}, "", "  ")
		if err == nil && o == OutputYAML {
			data, err = yaml.JSONToYAML(data)
		}
		if err != nil {
			return fmt.Errorf("encode the list: %w", err)
		}
		_, err = fmt.Fprintln(out, strings.TrimSpace(string(data)))
		return err
	case OutputTable, OutputWide:
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
