package printers

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"millwright/decide/phrase"
)

// WatchPrinter prints one object repeatedly. On a terminal, WatchPrinter redraws the screen; otherwise, it prints a
// line for each change.
type WatchPrinter struct {
	Out        io.Writer
	IsTerminal bool
	lastText   string
}

// FollowObject reads an object at each interval and passes it to show. FollowObject stops when show reports the end of
// the watch or returns an error. If ctx is done, FollowObject returns no error.
func FollowObject[T any](
	ctx context.Context,
	interval time.Duration,
	read func(context.Context) (T, error),
	show func(T, error) (over bool, err error),
) (err error) {
	if interval <= 0 {
		return fmt.Errorf("--interval %s is not positive", interval)
	}
	_ = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (over bool, _ error) {
		if found, failed := read(ctx); ctx.Err() == nil { // if ctx is done, the read was interrupted
			over, err = show(found, failed)
		}
		return over, err
	})
	return err
}

// ClearScreenSequence clears a terminal and its scroll-back.
const ClearScreenSequence = "\x1b[H\x1b[2J\x1b[3J"

// DrawFrame shows the text on a terminal; elsewhere DrawFrame prints the summary if the summary has changed.
func (w *WatchPrinter) DrawFrame(now time.Time, text, summary string) {
	if w.IsTerminal {
		_, _ = io.WriteString(w.Out, ClearScreenSequence+text)
		return
	}
	w.PrintChange(now, summary)
}

// PrintChange prints a line with the time if the text differs from the text that PrintChange printed last.
func (w *WatchPrinter) PrintChange(now time.Time, text string) {
	if w.lastText != text {
		w.lastText = text
		w.PrintLine(now, text)
	}
}

// PrintLine prints a line with the time.
func (w *WatchPrinter) PrintLine(now time.Time, text string) {
	_, _ = fmt.Fprintf(w.Out, "%s  %s\n", phrase.ClockText(now, now), text)
}
