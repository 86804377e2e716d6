package kubecli

import (
	"context"
	"fmt"
	"io"
	"time"

	"millwright/decide/phrase"
)

// Interrupted reports whether the user has pressed Ctrl-C.
func Interrupted(ctx context.Context) bool { return ctx.Err() != nil }

// Watch shows one object. On a terminal it redraws itself; elsewhere it prints a line for each change.
type Watch struct {
	Out  io.Writer
	Live bool
	said string
}

// ClearScreen clears a terminal and its scroll-back.
const ClearScreen = "\x1b[H\x1b[2J\x1b[3J"

// Frame shows the text on a terminal; elsewhere it prints the summary if that has changed.
func (w *Watch) Frame(now time.Time, text, summary string) {
	if w.Live {
		_, _ = io.WriteString(w.Out, ClearScreen+text)
		return
	}
	w.change(now, summary)
}

// Fail shows an error below the last frame.
func (w *Watch) Fail(now time.Time, err error) {
	w.change(now, err.Error())
}

func (w *Watch) change(now time.Time, text string) {
	if w.said != text {
		w.said = text
		w.Line(now, text)
	}
}

// Line prints a line with the time.
func (w *Watch) Line(now time.Time, text string) {
	_, _ = fmt.Fprintf(w.Out, "%s  %s\n", phrase.Clock(now, now), text)
}
