package drain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/drain"
	"millwright/decide/request"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
)

func (f *drains) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain MACHINE",
		Short: "Show why a deleted machine is still there, or why a node is not empty yet",
		Long: `explain begins with the sentence of millwright explain. Then it shows the pods that a drain still waits for, as the drain sees them now, and
ends with the details of the step and all commands that change it. It also explains the stages that do not wait for pods: hooks,
volumes, and the provider.

The pods come from the drain's workflow in Temporal. Without Temporal, explain uses the Machine alone.`,
		Example: `  millwright drain explain m-1 -n shop
  millwright drain explain shop/m-1`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.open(c, args[0])
			if err != nil {
				return err
			}
			defer r.temporal.Close()
			s, err := r.look(c.Context())
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), s.text())
			return err
		},
	}
}

// reader reads one machine for the drain commands.
type reader struct {
	key      types.NamespacedName
	clients  kubecli.Clients
	temporal client.Client
	address  string // address of Temporal
	now      func() time.Time
}

// open makes a reader of the named machine. Its clients connect on their first use; the caller closes Temporal's
// client.
func (f *drains) open(c *cobra.Command, name string) (r reader, err error) {
	r.address, r.now = f.temporalAt.Address, f.Now
	if r.key, err = f.Key(c, name); err != nil {
		return r, err
	}
	clients, err := f.Clients(f.Access)
	if err != nil {
		return r, err
	}
	r.clients = clients
	r.temporal, err = f.Temporal(f.temporalAt)
	return r, err
}

// look gathers what is known about a machine that is being deleted or whose node is drained. For any other machine it
// returns an error, and a snapshot with the machine only.
func (e reader) look(ctx context.Context) (snapshot, error) {
	m, err := find(ctx, e.clients, e.key)
	if err != nil {
		return snapshot{}, err
	}
	if m.DeletionTimestamp == nil && !staying(m) {
		return snapshot{machine: m}, fmt.Errorf("machine %s is not being deleted: its phase is %s", e.key, kubecli.Status(*m))
	}
	s := snapshot{machine: m, now: e.now()}
	s.ask(ctx, e.temporal, e.address)
	return s, nil
}

// text is the complete explanation.
func (s snapshot) text() string {
	var out bytes.Buffer
	if waits := explain.Sentence("machine", s.machine, s.machine.Status.CurrentOperation); waits != "" {
		_, _ = fmt.Fprintln(&out, waits)
	}
	_, _ = fmt.Fprintln(&out, s.headline())
	for _, h := range drainCommands() {
		value, set := s.machine.Annotations[machine.RequestAnnotation(request.Machine, h.Name)]
		if set && h.Name != request.Resume {
			_, _ = fmt.Fprintf(&out, "%s: %s\n", h.Name, value)
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
func (s snapshot) headline() string {
	parts := []string{kubecli.KeyOf(s.machine)}
	if node := cache.NodeNameOf(s.machine); node != "" {
		parts = append(parts, "node "+node)
	}
	if word := stageWord(s.machine); word != "" {
		parts = append(parts, "stage "+word+" since "+s.sinceStage())
	}
	if how := observe.Means(s.machine); how != "" {
		parts = append(parts, "means "+string(how))
	}
	return strings.Join(parts, "   ")
}

func (s snapshot) leftBehind() string {
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

// table writes the first MaxRows pods, the counts of all pods, and how old they are.
func (s snapshot) table(out io.Writer) {
	if len(s.picture.Rows) > 0 {
		rows := [][]any{{"POD", "STATE", "SINCE", "ATTEMPTS", "BLOCKED BY", "NEXT TRY"}}
		for _, r := range s.picture.Rows[:min(len(s.picture.Rows), drain.MaxRows)] {
			rows = append(
				rows,
				[]any{r.Pod, r.State, kubecli.Age(r.Since, s.now), r.Attempts, r.BlockedBy, kubecli.Clock(r.Next, s.now)},
			)
		}
		_ = kubecli.WriteTable(out, rows) // a buffer never fails
	}
	_, _ = fmt.Fprint(out, counted(s.picture.Counts))
	if !s.seen.IsZero() {
		_, _ = fmt.Fprintf(out, "; seen %s ago", kubecli.Age(s.seen, s.now))
	}
	_, _ = fmt.Fprintln(out)
}

func counted(c drain.Counts) string {
	return fmt.Sprintf(
		"%d gone, %d terminating, %d blocked, %d waiting for their turn, %d stay",
		c.Gone,
		c.Terminating,
		c.Blocked,
		c.Waiting,
		c.Skipped,
	)
}
