package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/wait"

	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

func bootstrapCommand() *cobra.Command {
	var (
		flags     kubecli.TemporalFlags
		retention time.Duration
		timeout   time.Duration
	)
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make the namespace and search attributes in Temporal",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			return bootstrapTemporal(ctx, flags, retention)
		},
	}
	flags.RegisterFlags(c)
	c.Flags().
		DurationVar(&retention, "retention", 7*24*time.Hour, "how long Temporal keeps closed workflows, if the namespace is created")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for Temporal")
	return c
}

// bootstrapTemporal creates the namespace and the search attributes if they are missing, does not change existing ones,
// and returns when Temporal lists every search attribute. It is safe to call bootstrapTemporal again.
func bootstrapTemporal(ctx context.Context, f kubecli.TemporalFlags, retention time.Duration) error {
	c, err := kubecli.DialTemporal(f)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := retryUntilSuccess(ctx, func() error { return ensureNamespace(ctx, c, f.Namespace, retention) }); err != nil {
		return fmt.Errorf("make namespace %s at %s: %w", f.Namespace, f.Address, err)
	}
	if err := retryUntilSuccess(ctx, func() error { return ensureSearchAttributes(ctx, c, f.Namespace) }); err != nil {
		return fmt.Errorf("make search attributes in %s: %w", f.Namespace, err)
	}
	return nil
}

func ensureNamespace(ctx context.Context, c client.Client, namespace string, retention time.Duration) error {
	_, err := c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace:                        namespace,
		Description:                      "Millwright: machines of Kubernetes clusters",
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	if _, exists := errors.AsType[*serviceerror.NamespaceAlreadyExists](err); exists {
		return nil
	}
	return err
}

// ensureSearchAttributes adds the missing search attributes, and returns an error until Temporal lists all search
// attributes.
func ensureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	have, err := c.OperatorService().
		ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return err
	}
	types := map[string]enumspb.IndexedValueType{
		"Keyword": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "KeywordList": enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		"Bool": enumspb.INDEXED_VALUE_TYPE_BOOL, "Datetime": enumspb.INDEXED_VALUE_TYPE_DATETIME,
	}
	missing := map[string]enumspb.IndexedValueType{}
	for _, a := range run.SearchAttributes() {
		switch kind, there := have.GetCustomAttributes()[a.Name]; {
		case !there:
			missing[a.Name] = types[a.Type]
		case kind != types[a.Type]:
			return fmt.Errorf(
				"search attribute %s exists as %s, but must be a %s: remove it or use another namespace",
				a.Name,
				kind,
				a.Type,
			)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := c.OperatorService().
		AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing}); err != nil {
		return err
	}
	return errors.New("the search attributes were added and cannot be read back yet")
}

// retryUntilSuccess calls try until try returns nil. If ctx is done first, retryUntilSuccess returns the last error of
// try.
func retryUntilSuccess(ctx context.Context, try func() error) (err error) {
	_ = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		err = try()
		return err == nil, nil
	})
	return err
}
