package kubecli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"millwright/observe/taskqueue"
	"millwright/process/commandline"
	"millwright/process/connection"
)

// TemporalFlags has the flags for the connection to Temporal.
type TemporalFlags struct{ connection.Flags }

// RegisterFlags adds the flags to a command and its subcommands.
func (f *TemporalFlags) RegisterFlags(c *cobra.Command) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Register(own)
	commandline.MarkConnectionFlags(own)
	c.PersistentFlags().AddFlagSet(own)
}

// DialTemporal returns a client that connects with its first request. The client logs nothing, because the commands
// return all errors.
func DialTemporal(f TemporalFlags) (client.Client, error) {
	options, err := f.ClientOptions()
	if err != nil {
		return nil, err
	}
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.NewLazyClient(options)
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal at %s: %w", f.Address, err)
	}
	return c, nil
}

// CountPollers returns how many workers poll a queue for tasks of a type.
func CountPollers(
	ctx context.Context,
	temporal client.Client,
	namespace, queue string,
	kind enumspb.TaskQueueType,
) (int, error) {
	return taskqueue.CountPollers(ctx, temporal.WorkflowService(), namespace, queue, kind)
}
