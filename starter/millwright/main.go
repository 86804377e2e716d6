// Package main is the operator's command line, the program millwright.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"millwright/process/commandline"
	"millwright/starter/doctor"
	"millwright/starter/drain"
	"millwright/starter/explain"
	"millwright/starter/fleet"
	"millwright/starter/kubecli"
	"millwright/starter/migrate"
	"millwright/starter/providers"
	"millwright/starter/rollout"
)

func main() {
	if note := formerNameHint(os.Args[0]); note != "" {
		fmt.Fprintln(os.Stderr, note)
	}
	commandline.Main(rootCommand())
}

// formerNameHint returns a hint if the program is called starter, its name before v0.1; otherwise an empty text.
func formerNameHint(called string) string {
	if filepath.Base(called) != "starter" {
		return ""
	}
	return "starter is called millwright now: call millwright; v0.2 removes the name starter"
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "millwright",
		Short:   "Operate Millwright: prepare Temporal, explain what waits, see and change drains and rollouts, preserve machines, check providers, take over from machine-controller-manager, decrypt payloads for Temporal's UI, run the demo",
		Version: commandline.Version(),
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // the program runs as a plugin of kubectl
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl millwright"}
	}
	out := kubecli.NewScreen(os.Stdout)
	root.SetOut(out)
	cobra.OnFinalize(func() { kubecli.FlushScreen(out) })
	root.AddCommand(
		bootstrapCommand(),
		explain.Command(kubecli.NewEnvironment()),
		explain.TopCommand(kubecli.NewEnvironment()),
		explain.UICommand(kubecli.NewEnvironment()),
		explain.HeartbeatsCommand(kubecli.NewEnvironment()),
		fleet.Command(kubecli.NewEnvironment()),
		doctor.Command(kubecli.NewEnvironment()),
		drain.Command(kubecli.NewEnvironment()),
		rollout.Command(kubecli.NewEnvironment()),
		drain.PreserveCommand(kubecli.NewEnvironment()),
		providers.Command(kubecli.NewEnvironment()),
		migrate.Command(kubecli.NewEnvironment()),
		codecServerCommand(),
		demoCommand(),
	)
	return root
}
