// Package main is the operator's command line. It prepares Temporal, shows and changes drains and rollouts, preserves
// machines, and runs the demo.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"millwright/starter/drain"
	"millwright/starter/kubecli"
	"millwright/starter/rollout"
)

func main() {
	if err := execute(); err != nil {
		fmt.Fprintln(os.Stderr, "starter:", err)
		os.Exit(1)
	}
}

func execute() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return command().ExecuteContext(ctx)
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "starter",
		Short:         "Operate Millwright: prepare Temporal, see and change drains and rollouts, preserve machines, run the demo",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		bootstrapCommand(),
		drain.Command(kubecli.NewEnvironment()),
		rollout.Command(kubecli.NewEnvironment()),
		drain.PreserveCommand(kubecli.NewEnvironment()),
		demoCommand(),
	)
	return root
}
