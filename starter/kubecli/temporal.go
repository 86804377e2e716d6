package kubecli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	workflowsrun "millwright/workflows/run"
)

// TemporalFlags say where Temporal is.
type TemporalFlags struct {
	Address   string
	Namespace string
}

// Register adds the flags to a command and its subcommands.
func (f *TemporalFlags) Register(c *cobra.Command) {
	address, namespace := os.Getenv("TEMPORAL_ADDRESS"), os.Getenv("TEMPORAL_NAMESPACE")
	if address == "" {
		address = "127.0.0.1:7233"
	}
	if namespace == "" {
		namespace = workflowsrun.Namespace
	}
	c.PersistentFlags().StringVar(&f.Address, "temporal-address", address, "host:port of Temporal's frontend")
	c.PersistentFlags().StringVar(&f.Namespace, "temporal-namespace", namespace, "Temporal namespace")
}

// Quiet is a logger for a command line that drops everything: errors are returned.
type Quiet struct{}

// Debug does nothing.
func (Quiet) Debug(string, ...any) {}

// Info does nothing.
func (Quiet) Info(string, ...any) {}

// Warn does nothing.
func (Quiet) Warn(string, ...any) {}

// Error does nothing.
func (Quiet) Error(string, ...any) {}

// Temporal has the requests of the drain commands to Temporal. The SDK's client implements it.
type Temporal interface {
	DescribeWorkflowExecution(ctx context.Context, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error)
	QueryWorkflow(ctx context.Context, workflowID, runID, queryType string, args ...any) (converter.EncodedValue, error)
	Close()
}

// dial makes a client that connects with its first request.
func dial(f TemporalFlags) (Temporal, error) {
	c, err := client.NewLazyClient(client.Options{HostPort: f.Address, Namespace: f.Namespace, Logger: Quiet{}})
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal at %s: %w", f.Address, err)
	}
	return c, nil
}
