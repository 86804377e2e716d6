package printers

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"millwright/decide/list"
)

// StateWord is a cell of a table with the word for a state. On a terminal, the word has the colour of its tone.
type StateWord struct {
	Tone Tone
	Word string
}

// columnGap is the number of spaces between two columns.
const columnGap = 3

// WriteTable writes rows in columns. An empty cell is written as a dash. Package tabwriter would count the characters of
// a colour as part of the column.
func WriteTable(out io.Writer, rows [][]any) error {
	texts := list.Map(rows, func(row []any) []string {
		return list.Map(row, func(cell any) string { return cellText(out, cell) })
	})
	var widths []int
	for _, row := range texts {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], visibleLength(text))
		}
	}
	for _, row := range texts {
		var line strings.Builder
		for i, text := range row {
			line.WriteString(text)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]+columnGap-visibleLength(text)))
			}
		}
		if _, err := fmt.Fprintln(out, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// cellText returns the text of a cell; a dash for an empty cell.
func cellText(out io.Writer, cell any) string {
	if state, is := cell.(StateWord); is && state.Word != "" {
		return Paint(out, state.Tone, state.Word)
	} else if is {
		return "-"
	}
	return cmp.Or(fmt.Sprint(cell), "-")
}
