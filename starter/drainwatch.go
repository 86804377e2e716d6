package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

func (f *drains) watchCommand() *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use:   "watch MACHINE",
		Short: "Follow a machine until it is gone, or a drain until it has ended",
		Long: `watch shows what explain shows, again and again, until the machine is gone. Of a machine that stays it ends with the drain. Where the output is no terminal it prints a line
for each change. Ctrl-C ends it, and is no failure.`,
		Example: `  starter drain watch shop/m-1
  starter drain watch m-1 -n shop --interval 10s`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if interval <= 0 {
				return fmt.Errorf("--interval %s is no pause", interval)
			}
			key, err := f.key(c, args[0])
			if err != nil {
				return err
			}
			eyes, err := f.open()
			if err != nil {
				return err
			}
			defer eyes.temporal.Close()
			return eyes.watch(c.Context(), c.OutOrStdout(), key, interval)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "pause between two looks")
	return c
}

// watch looks until the machine is gone, the drain of one that is to stay has ended, or ctx ends. What goes wrong at the first look is an error; later it is shown, and
// the next look may go well.
func (e eyes) watch(ctx context.Context, out io.Writer, key types.NamespacedName, interval time.Duration) error {
	w := watching{out: out, live: isTerminal(out)}
	var uid types.UID
	for {
		s, err := e.look(ctx, key)
		switch {
		case interrupted(ctx):
			return nil
		case uid == "" && err != nil:
			return err
		case apierrors.IsNotFound(err) || uid != "" && s.machine != nil && s.machine.UID != uid:
			w.line(e.now(), key.String()+" is gone")
			return nil
		case err != nil && s.machine != nil: // it is neither deleted nor emptied any more
			w.line(e.now(), fmt.Sprintf("the drain of %s is over: %s", key, outcome(s.machine)))
			return nil
		case err != nil:
			w.fail(e.now(), err)
		default:
			uid = s.machine.UID
			w.draw(s)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// outcome is how the last drain of a machine that is to stay ended.
func outcome(m *v1alpha1.Machine) string {
	if d := m.Status.Drain; d != nil && d.Result != "" {
		return d.Result
	}
	return "it is not wanted any more"
}

// interrupted reports whether somebody has pressed Ctrl-C.
func interrupted(ctx context.Context) bool { return ctx.Err() != nil }

// watching shows one object. On a terminal it draws itself anew; elsewhere it prints a line for each change.
type watching struct {
	out  io.Writer
	live bool
	said string
}

const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

func (w *watching) draw(s sight) { w.frame(s.now, s.text(), s.summary()) }

// frame shows all of it on a terminal, and elsewhere the summary when that has changed.
func (w *watching) frame(now time.Time, text, summary string) {
	if w.live {
		_, _ = io.WriteString(w.out, clearScreen+text)
		return
	}
	w.change(now, summary)
}

// fail shows what went wrong, below what was seen last.
func (w *watching) fail(now time.Time, err error) {
	w.change(now, err.Error())
}

func (w *watching) change(now time.Time, text string) {
	if w.said != text {
		w.said = text
		w.line(now, text)
	}
}

func (w *watching) line(now time.Time, text string) {
	_, _ = fmt.Fprintf(w.out, "%s  %s\n", clock(now, now), text)
}

// summary is one line that changes only with what is seen, and not with the time.
func (s sight) summary() string {
	text := keyOf(s.machine) + "  " + orDash(stageWord(s.machine))
	if how := observe.DrainMeans(s.machine); how != "" {
		text += " " + string(how)
	}
	if s.picture != nil {
		text += "  " + counted(s.picture.Counts)
	}
	switch {
	case held(s.machine):
		return text + "  held"
	case inDrain(s.machine):
		return text + "  " + s.waits()
	}
	if code, message := problem(s.machine); code != "" {
		text += "  " + code + ": " + message
	}
	return text
}
