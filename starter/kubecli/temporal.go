package kubecli

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"millwright/workflows/run"
)

// TemporalFlags say where Temporal is.
type TemporalFlags struct {
	Address   string
	Namespace string
}

// Register adds the flags to a command and its subcommands.
func (f *TemporalFlags) Register(c *cobra.Command) {
	address, namespace := cmp.Or(os.Getenv("TEMPORAL_ADDRESS"), "127.0.0.1:7233"), cmp.Or(os.Getenv("TEMPORAL_NAMESPACE"), run.Namespace)
	c.PersistentFlags().StringVar(&f.Address, "temporal-address", address, "host:port of Temporal's frontend")
	c.PersistentFlags().StringVar(&f.Namespace, "temporal-namespace", namespace, "Temporal namespace")
}

// Dial returns a client that connects with its first request. It logs nothing, because the commands return all errors.
func Dial(f TemporalFlags) (client.Client, error) {
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.NewLazyClient(client.Options{HostPort: f.Address, Namespace: f.Namespace, Logger: quiet})
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal at %s: %w", f.Address, err)
	}
	return c, nil
}
