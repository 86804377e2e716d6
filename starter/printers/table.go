package printers

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"millwright/decide/list"
)

// StateWord is a cell of a table with the word for a state. On a terminal, the word has the colour of its tone; a zero
// tone is no colour.
type StateWord struct {
	Tone Tone
	Word string
}

// NewStateWord returns the cell for the word of a state: of a machine, a pod in a drain, a rollout, a namespace or a
// target cluster. A state that is neither good nor bad, such as Pending, has no colour.
func NewStateWord(word string) StateWord {
	switch word {
	case "Running", "Complete", "Served", "Ready":
		return StateWord{ToneGood, word}
	case "Blocked", "WaitsForApproval", "Paused", "Held", "Pinned", "Undoing", "Unknown", "CrashLoopBackOff":
		return StateWord{ToneWarning, word}
	case "Failed", "InPlaceUpdateFailed", "RolledBack", "Late", "Invalid", "Unserved", "Missing", "Unavailable":
		return StateWord{ToneBad, word}
	default:
		return StateWord{Word: word}
	}
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
	state, is := cell.(StateWord)
	switch {
	case !is:
		return cmp.Or(fmt.Sprint(cell), "-")
	case state.Word == "" || state.Tone == 0:
		return cmp.Or(state.Word, "-")
	default:
		return Paint(out, state.Tone, state.Word)
	}
}
