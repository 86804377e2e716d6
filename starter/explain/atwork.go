package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/process/problems"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

// heartbeatCommand is the command `millwright heartbeats` with its flags.
type heartbeatCommand struct {
	kubecli.Environment
	access       kubecli.ClusterAccess
	namespace    string // namespace of the Leases
	probeAddress string // host:port of the probes; if empty, the command checks once and ends
	output       printers.OutputFormat
}

// HeartbeatsCommand returns the command heartbeats.
func HeartbeatsCommand(e kubecli.Environment) *cobra.Command {
	x := &heartbeatCommand{Environment: e}
	c := &cobra.Command{
		Use:   "heartbeats",
		Short: "Check whether worker and bridge are at work, also as a probe",
		Long: `heartbeats reads the two Leases that worker and bridge renew while they are at work. The exit code is 1 if no worker or no bridge is at work, or if a Lease
cannot be read. With --address it serves HTTP until it is stopped: /readyz answers 200 while both are at work, and /healthz while this
process runs. The Deployment machine-controller-manager runs it: Gardener's cluster autoscaler scales only while it is available.

With -o json or yaml it prints both heartbeats as a list of items, with the same exit code.`,
		Example: `  millwright heartbeats
  millwright heartbeats -o json --lease-namespace millwright`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return x.run(c) },
	}
	x.access.RegisterFlags(c)
	c.Flags().
		StringVar(&x.namespace, "lease-namespace", metav1.NamespaceDefault, "namespace of the Leases: the value of --lease-namespace of worker and bridge")
	c.Flags().StringVar(&x.probeAddress, "address", "", "host:port on which the probes are served; empty: check once")
	x.output.RegisterTextFlag(c)
	return c
}

func (x *heartbeatCommand) run(c *cobra.Command) error {
	clients, err := x.NewClients(x.access)
	if err != nil {
		return err
	}
	if x.output != printers.OutputText {
		if x.probeAddress != "" {
			return errors.New("--address serves probes, and prints nothing: leave out --output")
		}
		return x.encodeHeartbeats(c.Context(), c.OutOrStdout(), clients)
	}
	ask := func(ctx context.Context) error {
		return CheckProcessesAreActive(ctx, clients.Leases, x.namespace, x.Now())
	}
	if x.probeAddress != "" {
		return serveProbes(c.Context(), x.probeAddress, ask)
	}
	if err := ask(c.Context()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), "a worker and a bridge are at work")
	return err
}

// heartbeatAnswer is the heartbeat of one kind of process in JSON and YAML.
type heartbeatAnswer struct {
	Process   string    `json:"process"` // worker or bridge
	IsAtWork  bool      `json:"atWork"`
	RenewedAt time.Time `json:"renewedAt,omitzero"`        // last renewal of the Lease
	IsOverdue bool      `json:"overdue,omitempty"`         // a renewal is overdue, and the process does not count as down yet
	Message   string    `json:"message,omitempty"`         // why no process is at work, or why it is not known
	Problems  []string  `json:"processProblems,omitempty"` // what the processes may not or cannot do
}

// encodeHeartbeats writes both heartbeats as JSON or YAML, and returns an error if a process is not at work.
func (x *heartbeatCommand) encodeHeartbeats(ctx context.Context, out io.Writer, clients kubecli.Clients) error {
	answers := []heartbeatAnswer{}
	var errs []error
	for _, h := range ReadHeartbeats(ctx, clients.Leases, x.namespace, x.Now()) {
		a := heartbeatAnswer{
			Process: h.Process, IsAtWork: h.Err == nil && h.MissingMessage == "", RenewedAt: h.RenewTime,
			IsOverdue: h.IsOverdue, Message: h.MissingMessage,
			Problems: h.ProblemSentences("", x.Now(), func(problems.Problem) bool { return true }),
		}
		if h.Err != nil {
			a.Message = kubecli.CollapseSpaces(h.Err.Error())
		}
		if !a.IsAtWork {
			errs = append(errs, errors.New(a.Message))
		}
		answers = append(answers, a)
	}
	return errors.Join(x.output.Encode(out, map[string]any{"items": answers}), errors.Join(errs...))
}

// serveProbes serves the probes until ctx is done.
func serveProbes(ctx context.Context, address string, ready func(context.Context) error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on --address: %w", err)
	}
	server := &http.Server{Handler: probeHandler(ready), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes: %w", err)
	}
	return nil
}

// probeHandler answers /healthz with 200, and /readyz with 200 while ready returns nil, otherwise with 503.
func probeHandler(ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}
