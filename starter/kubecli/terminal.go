package kubecli

import (
	"io"
	"os"

	"github.com/fatih/color"
)

// IsTerminal reports whether the output goes to a terminal.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Tone is what a text says of its object.
type Tone color.Attribute

// The tones. They are the colours that most command lines use.
const (
	Good  Tone = Tone(color.FgGreen)
	Stuck Tone = Tone(color.FgYellow)
	Bad   Tone = Tone(color.FgRed)
)

// Paint returns the text in the colour of its tone if out is a terminal, and as it is elsewhere, or if NO_COLOR is set.
func Paint(out io.Writer, tone Tone, text string) string {
	if !IsTerminal(out) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	c := color.New(color.Attribute(tone))
	c.EnableColor()
	return c.Sprint(text)
}
