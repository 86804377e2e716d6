package drain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
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
	"millwright/starter/printers"
)

func (f *drainCommand) explainCommand() *cobra.Command {
	var ui kubecli.TemporalUI
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "explain MACHINE",
		Short: "Show why a deleted machine is still there, or why a node is not empty yet",
		Long: `explain begins with the sentence of millwright explain. Then it shows the pods that a drain still waits for, as the drain sees them now, and
ends with the other commands that change the step. It also explains the stages that do not wait for pods: hooks,
volumes, and the provider.

The pods come from the drain's workflow in Temporal. Without Temporal, explain uses the Machine alone. JSON and YAML have the same facts as
fields. With --ui-address, or the variable TEMPORAL_UI_ADDRESS, the last line has the address of the workflow's page in Temporal's UI.`,
		Example: `  millwright drain explain m-1 -n shop
  millwright drain explain shop/m-1
  millwright drain explain mc m-1 -n shop -o json`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.newMachineReader(c, args)
			if err != nil {
				return err
			}
			defer r.temporal.Close()
			s, err := r.readSnapshot(c.Context())
			if err != nil {
				return err
			}
			if output != printers.OutputText {
				return output.Encode(c.OutOrStdout(), s.answer())
			}
			page, err := ui.PageLine(f.temporalFlags.Namespace, s.machine.Status.CurrentOperation)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), s.explanation()+page)
			return err
		},
	}
	ui.RegisterFlag(c, "")
	output.RegisterTextFlag(c)
	return c
}

// machineReader reads one machine for the drain commands.
type machineReader struct {
	key             types.NamespacedName
	clients         kubecli.Clients
	temporal        client.Client // nil: Temporal is not asked
	temporalAddress string        // address of Temporal
	now             func() time.Time
}

// newMachineReader returns a reader of the named machine. The reader's clients connect on their first use; the caller
// must close Temporal's client.
func (f *drainCommand) newMachineReader(c *cobra.Command, args []string) (r machineReader, err error) {
	r.temporalAddress, r.now = f.temporalFlags.Address, f.Now
	if r.key, err = f.ParseKey(c, args); err != nil {
		return r, err
	}
	clients, err := f.NewClients(f.ClusterAccess)
	if err != nil {
		return r, err
	}
	r.clients = clients
	r.temporal, err = f.DialTemporal(f.temporalFlags)
	return r, err
}

// readSnapshot reads a machine that is being deleted or whose node is being drained, and the progress of the current
// step from Temporal. For any other machine, readSnapshot returns an error, and a snapshot that contains only the
// machine.
func (e machineReader) readSnapshot(ctx context.Context) (snapshot, error) {
	m, err := findMachine(ctx, e.clients, e.key)
	if err != nil {
		return snapshot{}, err
	}
	if m.DeletionTimestamp == nil && !isDrainedWithoutDeletion(m) {
		err := fmt.Errorf("machine %s is not being deleted: its phase is %s", e.key, kubecli.PhaseText(*m))
		return snapshot{machine: m}, err
	}
	s := snapshot{machine: m, now: e.now()}
	if e.temporal != nil {
		s.readFromTemporal(ctx, e.temporal, e.temporalAddress)
	}
	return s, nil
}

// explanation returns the complete output of the command explain.
func (s snapshot) explanation() string {
	var out bytes.Buffer
	waits := explain.Sentence("machine", s.machine, s.machine.Status.CurrentOperation)
	if waits != "" {
		_, _ = fmt.Fprintln(&out, waits)
	}
	_, _ = fmt.Fprintln(&out, s.headline())
	for _, h := range requestCommandsHelp() {
		value, set := s.machine.Annotations[machine.RequestAnnotationKey(request.KindMachine, h.Name)]
		if set && h.Name != request.Resume {
			_, _ = fmt.Fprintf(&out, "%s: %s\n", h.Name, value)
		}
	}
	if left := s.resultText(); left != "" {
		_, _ = fmt.Fprintln(&out, left)
	}
	_, _ = fmt.Fprintln(&out)
	if s.unknownFactNote != "" {
		_, _ = fmt.Fprintln(&out, s.unknownFactNote)
	}
	if s.podOverview != nil && (len(s.podOverview.Rows) > 0 || s.podOverview.Counts != (drain.PodCounts{})) {
		s.writePodTable(&out)
		_, _ = fmt.Fprintln(&out)
	}
	_, _ = fmt.Fprintln(&out, s.additionalText(waits))
	return out.String()
}

// additionalText returns the text that the sentence in the status does not contain. If the sentence already
// contains what blocks the pods, additionalText returns only the commands that are not in the sentence; otherwise,
// it returns the whole statement.
func (s snapshot) additionalText(waits string) string {
	said := s.statement()
	_, sentence, _ := strings.Cut(waits, ": ")
	if cause, _, found := strings.Cut(
		sentence,
		" (since ",
	); !found || s.podOverview == nil ||
		!strings.Contains(s.podOverview.Why, cause) {
		return said.String()
	}
	others := slices.DeleteFunc(
		said.commands,
		func(command string) bool { return strings.Contains(waits, "`"+command+"`") },
	)
	if len(others) == 0 {
		return "no other command changes that."
	}
	return "other commands: " + joinCommands(others) + "."
}

// headline names the machine, its node and the stage of the deletion.
func (s snapshot) headline() string {
	parts := []string{kubecli.KeyOfObject(s.machine)}
	if node := cache.NodeNameOfMachine(s.machine); node != "" {
		parts = append(parts, "node "+node)
	}
	if word := stageText(s.machine); word != "" {
		parts = append(parts, "stage "+word+" since "+s.stageStartText())
	}
	if how := observe.CurrentRemovalMeans(s.machine); how != "" {
		parts = append(parts, "means "+string(how))
	}
	return strings.Join(parts, "   ")
}

func (s snapshot) resultText() string {
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

// writePodTable writes the first MaxOverviewRows pods, the counts of all pods, and the age of these counts.
func (s snapshot) writePodTable(out io.Writer) {
	if len(s.podOverview.Rows) > 0 {
		rows := [][]any{{"POD", "STATE", "SINCE", "ATTEMPTS", "BLOCKED BY", "NEXT TRY"}}
		for _, r := range s.podOverview.Rows[:min(len(s.podOverview.Rows), drain.MaxOverviewRows)] {
			rows = append(
				rows,
				[]any{
					r.Pod,
					printers.NewStateWord(r.State),
					kubecli.AgeText(r.Since, s.now),
					r.Attempts,
					r.BlockedBy,
					kubecli.ClockText(r.Next, s.now),
				},
			)
		}
		_ = printers.WriteTable(out, rows) // a write to a buffer never fails
	}
	_, _ = fmt.Fprint(out, podCountsText(s.podOverview.Counts))
	if !s.lastHeartbeatAt.IsZero() {
		_, _ = fmt.Fprintf(out, "; seen %s ago", kubecli.AgeText(s.lastHeartbeatAt, s.now))
	}
	_, _ = fmt.Fprintln(out)
}

func podCountsText(c drain.PodCounts) string {
	return fmt.Sprintf(
		"%d gone, %d terminating, %d blocked, %d waiting for their turn, %d stay",
		c.Gone,
		c.Terminating,
		c.Blocked,
		c.Waiting,
		c.Skipped,
	)
}
