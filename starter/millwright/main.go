// Package main is the operator's command line, the program millwright.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"millwright/process/commandline"
	"millwright/starter/dashboard"
	"millwright/starter/doctor"
	"millwright/starter/drain"
	"millwright/starter/explain"
	"millwright/starter/fleet"
	"millwright/starter/history"
	"millwright/starter/kubecli"
	"millwright/starter/migrate"
	"millwright/starter/printers"
	"millwright/starter/providers"
	"millwright/starter/replace"
	"millwright/starter/rollout"
	"millwright/starter/version"
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
		Use:   "millwright",
		Short: "Operate Millwright, the machines of Kubernetes clusters",
		Long: `millwright shows what machines, their sets and their deployments wait for, and changes rollouts, drains and machines. It reads and writes
with the rights of the user of the kubeconfig, as kubectl does. An object is given as NAME, NAMESPACE/NAME, KIND/NAME or KIND NAME.`,
		Example: `  millwright top -A
  millwright explain mcd/web -n shop
  millwright rollout status shop/web
  millwright drain explain shop/web-7f9c4-x2b8q`,
		Version: commandline.Version(),
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // the program runs as a plugin of kubectl
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl millwright"}
	}
	out := printers.NewScreen(os.Stdout)
	root.SetOut(out)
	cobra.OnFinalize(func() { printers.FlushScreen(out) })
	addGroup(
		root,
		cobra.Group{ID: "see", Title: "Commands that show the state:"},
		explain.Command(kubecli.NewEnvironment()),
		explain.TopCommand(kubecli.NewEnvironment()),
		explain.UICommand(kubecli.NewEnvironment()),
		dashboard.Command(kubecli.NewEnvironment()),
		history.Command(kubecli.NewEnvironment()),
		fleet.Command(kubecli.NewEnvironment()),
		providers.Command(kubecli.NewEnvironment()),
	)
	addGroup(
		root,
		cobra.Group{ID: "change", Title: "Commands that show and change machines:"},
		rollout.Command(kubecli.NewEnvironment()),
		drain.Command(kubecli.NewEnvironment()),
		drain.PreserveCommand(kubecli.NewEnvironment()),
		replace.Command(kubecli.NewEnvironment()),
	)
	addGroup(
		root,
		cobra.Group{ID: "install", Title: "Commands that install and check Millwright:"},
		doctor.Command(kubecli.NewEnvironment()),
		explain.HeartbeatsCommand(kubecli.NewEnvironment()),
		version.Command(kubecli.NewEnvironment()),
		bootstrapCommand(),
		migrate.Command(kubecli.NewEnvironment()),
		codecServerCommand(),
		demoCommand(),
	)
	root.AddCommand(commandline.OptionsCommand())
	commandline.UseGroupedHelp(root)
	return root
}

// addGroup adds commands to the root command, in a group of its help.
func addGroup(root *cobra.Command, group cobra.Group, commands ...*cobra.Command) {
	root.AddGroup(&group)
	for _, c := range commands {
		c.GroupID = group.ID
	}
	root.AddCommand(commands...)
}
