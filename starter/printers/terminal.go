package printers

import (
	"io"
	"os"

	"github.com/fatih/color"
)

// IsTerminal reports whether the output goes to a terminal.
func IsTerminal(out io.Writer) bool {
	if _, is := out.(*Screen); is {
		return true
	}
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Tone is the colour of a text; the colour shows whether the object of the text is healthy.
type Tone color.Attribute

// The tones have the colours that most command-line tools use.
const (
	ToneGood    Tone = Tone(color.FgGreen)
	ToneWarning Tone = Tone(color.FgYellow)
	ToneBad     Tone = Tone(color.FgRed)
)

// Paint returns the text in the colour of its tone; unchanged if out is not a terminal, if NO_COLOR is set, or if TERM
// is dumb.
func Paint(out io.Writer, tone Tone, text string) string {
	if !IsTerminal(out) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	c := color.New(color.Attribute(tone))
	c.EnableColor()
	return c.Sprint(text)
}
