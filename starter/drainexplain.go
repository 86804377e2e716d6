package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe"
)

func (f *drains) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain MACHINE",
		Short: "Say why a machine that is to go is still there, or why a node is not empty yet",
		Long: `explain shows the pods that a drain still has to do with, as the drain sees them now, and ends with one sentence: what
blocks, since when, what happens by itself and when, and which command changes that. Stages without pods (hooks, volumes, the
provider) are explained alike.

The pods come from the drain's workflow in Temporal. Without it, the sentence is made from the Machine alone.`,
		Example: `  starter drain explain m-1 -n shop
  starter drain explain shop/m-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := f.key(c, args[0])
			if err != nil {
				return err
			}
			eyes, err := f.open()
			if err != nil {
				return err
			}
			defer eyes.temporal.Close()
			s, err := eyes.look(c.Context(), key)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), s.text())
			return err
		},
	}
}

// eyes are what a deletion is looked at with.
type eyes struct {
	machines versioned.Interface
	temporal temporal
	address  string // of Temporal
	now      func() time.Time
}

// open makes clients. They connect when they are first used; Temporal's is to be closed.
func (f *drains) open() (eyes, error) {
	machines, err := f.machines(f.kubeconfig)
	if err != nil {
		return eyes{}, err
	}
	t, err := f.temporal(f.temporalAt)
	if err != nil {
		return eyes{}, err
	}
	return eyes{machines, t, f.temporalAt.address, f.now}, nil
}

// look gathers what is known of a machine that is being deleted, or whose node is emptied. Of any other machine, it is all
// there is beside the error.
func (e eyes) look(ctx context.Context, key types.NamespacedName) (sight, error) {
	m, err := find(ctx, e.machines, key)
	if err != nil {
		return sight{}, err
	}
	if m.DeletionTimestamp == nil && !staying(m) {
		return sight{machine: m}, notDeleting(m)
	}
	s := sight{machine: m, now: e.now()}
	s.ask(ctx, e.temporal, e.address)
	return s, nil
}

// text is the whole of an explanation.
func (s sight) text() string {
	var out bytes.Buffer
	_, _ = fmt.Fprintln(&out, s.headline())
	for _, w := range wishes() {
		if value, set := s.machine.Annotations[observe.VerbAnnotation(w.name)]; set && w.name != resume {
			_, _ = fmt.Fprintf(&out, "%s: %s\n", w.name, value)
		}
	}
	if left := s.leftBehind(); left != "" {
		_, _ = fmt.Fprintln(&out, left)
	}
	_, _ = fmt.Fprintln(&out)
	if s.note != "" {
		_, _ = fmt.Fprintln(&out, s.note)
	}
	if s.picture != nil && (len(s.picture.Rows) > 0 || s.picture.Counts != (drain.Counts{})) {
		s.table(&out)
		_, _ = fmt.Fprintln(&out)
	}
	_, _ = fmt.Fprintln(&out, s.sentence())
	return out.String()
}

// headline names machine, node and stage.
func (s sight) headline() string {
	parts := []string{keyOf(s.machine)}
	if node := s.machine.Labels[v1alpha1.LabelNode]; node != "" {
		parts = append(parts, "node "+node)
	}
	if word := stageWord(s.machine); word != "" {
		parts = append(parts, "stage "+word+" since "+s.sinceStage())
	}
	if how := observe.DrainMeans(s.machine); how != "" {
		parts = append(parts, "means "+string(how))
	}
	return strings.Join(parts, "   ")
}

func (s sight) leftBehind() string {
	d := s.machine.Status.Deletion
	if d == nil || d.Drain == nil || d.Drain.Result == "" {
		return ""
	}
	text := "drain: " + d.Drain.Result
	if len(d.Drain.LeftBehind) > 0 {
		text += "; left behind: " + strings.Join(d.Drain.LeftBehind, ", ")
	}
	return text
}

// table is the pods, and the counts of all of them.
func (s sight) table(out io.Writer) {
	rows := s.picture.Rows[:min(len(s.picture.Rows), drain.MaxRows)]
	if len(rows) > 0 {
		columns := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		_, _ = fmt.Fprintln(columns, "POD\tSTATE\tSINCE\tATTEMPTS\tBLOCKED BY\tNEXT TRY")
		for _, r := range rows {
			_, _ = fmt.Fprintf(columns, "%s\t%s\t%s\t%d\t%s\t%s\n", r.Pod, r.State, s.ageOf(r.Since), r.Attempts, orDash(r.BlockedBy), s.clockOf(r.Next))
		}
		_ = columns.Flush() // a buffer never fails
	}
	_, _ = fmt.Fprint(out, counted(s.picture.Counts))
	if !s.seen.IsZero() {
		_, _ = fmt.Fprintf(out, "; seen %s ago", age(s.seen, s.now))
	}
	_, _ = fmt.Fprintln(out)
}

func counted(c drain.Counts) string {
	return fmt.Sprintf("%d gone, %d terminating, %d blocked, %d waiting for their turn, %d stay", c.Gone, c.Terminating, c.Blocked, c.Waiting, c.Skipped)
}

func (s sight) ageOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return age(t, s.now)
}

func (s sight) clockOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return clock(t, s.now)
}
