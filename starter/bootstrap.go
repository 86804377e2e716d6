package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"millwright/workflows"
)

// temporalFlags say where Temporal is.
type temporalFlags struct {
	address   string
	namespace string
}

// register adds the flags to a command and to those below it.
func (f *temporalFlags) register(c *cobra.Command) {
	address, namespace := os.Getenv("TEMPORAL_ADDRESS"), os.Getenv("TEMPORAL_NAMESPACE")
	if address == "" {
		address = "127.0.0.1:7233"
	}
	if namespace == "" {
		namespace = workflows.Namespace
	}
	c.PersistentFlags().StringVar(&f.address, "temporal-address", address, "host:port of Temporal's frontend")
	c.PersistentFlags().StringVar(&f.namespace, "temporal-namespace", namespace, "Temporal namespace")
}

func bootstrapCommand() *cobra.Command {
	var (
		flags     temporalFlags
		retention time.Duration
		patience  time.Duration
	)
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make Temporal's namespace and search attributes, where they are missing",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), patience)
			defer cancel()
			return bootstrap(ctx, flags, retention)
		},
	}
	flags.register(c)
	c.Flags().DurationVar(&retention, "retention", 7*24*time.Hour, "how long ended workflows are kept, in a namespace that is made")
	c.Flags().DurationVar(&patience, "timeout", 30*time.Second, "how long to wait for Temporal")
	return c
}

// bootstrap makes what is missing and leaves alone what is there. It returns when workflows can be started with every
// search attribute. Running it again is harmless.
func bootstrap(ctx context.Context, f temporalFlags, retention time.Duration) error {
	c, err := client.NewLazyClient(client.Options{HostPort: f.address, Namespace: f.namespace, Logger: quiet{}})
	if err != nil {
		return fmt.Errorf("connect to Temporal at %s: %w", f.address, err)
	}
	defer c.Close()
	if err := eventually(ctx, func() error { return makeNamespace(ctx, c, f.namespace, retention) }); err != nil {
		return fmt.Errorf("make namespace %s at %s: %w", f.namespace, f.address, err)
	}
	if err := eventually(ctx, func() error { return makeAttributes(ctx, c, f.namespace) }); err != nil {
		return fmt.Errorf("make search attributes in %s: %w", f.namespace, err)
	}
	return nil
}

func makeNamespace(ctx context.Context, c client.Client, namespace string, retention time.Duration) error {
	_, err := c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace:                        namespace,
		Description:                      "Millwright: machines of Kubernetes clusters",
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	if exists := new(serviceerror.NamespaceAlreadyExists); errors.As(err, &exists) {
		return nil
	}
	return err
}

// makeAttributes adds the search attributes that are missing, and reports an error until all of them can be read back.
func makeAttributes(ctx context.Context, c client.Client, namespace string) error {
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return err
	}
	types := map[string]enumspb.IndexedValueType{
		"Keyword": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "KeywordList": enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		"Bool": enumspb.INDEXED_VALUE_TYPE_BOOL, "Datetime": enumspb.INDEXED_VALUE_TYPE_DATETIME,
	}
	missing := map[string]enumspb.IndexedValueType{}
	for _, a := range workflows.Attributes() {
		switch kind, there := have.GetCustomAttributes()[a.Name]; {
		case !there:
			missing[a.Name] = types[a.Type]
		case kind != types[a.Type]:
			return fmt.Errorf("search attribute %s exists as %s, but must be a %s: remove it or use another namespace", a.Name, kind, a.Type)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing}); err != nil {
		return err
	}
	return errors.New("the search attributes were added and cannot be read back yet")
}

// eventually calls try until it returns nil; when ctx ends first, it returns the last error.
func eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// quiet is a logger for a command line: what matters comes back as an error.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
