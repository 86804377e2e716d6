// Package migrate has the commands for a takeover from machine-controller-manager (MCM).
package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/decide/takeover"
	"millwright/process"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

// migrateCommand is the command `millwright migrate` with the flags of its subcommands.
type migrateCommand struct {
	kubecli.ObjectFlags
	// kubeconfig of the cluster with the nodes; if empty, the cluster with the machines; noTargetCluster if there are
	// no nodes
	targetKubeconfig string
	targetFlags      process.TargetFlags // a target cluster for each namespace
	actsAsMCM        bool
	scopeFlags       process.ScopeFlags // the namespaces that worker and bridge act on
	allNamespaces    bool
	output           printers.OutputFormat
}

// noTargetCluster is the value of --target-kubeconfig for machines that join no cluster.
const noTargetCluster = "none"

// Command returns the command migrate.
func Command(e kubecli.Environment) *cobra.Command {
	x := &migrateCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: request.KindMachineDeployment}}
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Check and plan the take-over from machine-controller-manager",
		Long: `migrate reads the objects of one namespace or of all namespaces, and changes nothing. It runs the same decisions as Millwright's workers to
say what Millwright would do with each object now. With --target-secret, each namespace has its own target cluster. docs/migration.md
describes the takeover and the way back.`,
		Example: `  millwright migrate check --namespace shop --as-mcm
  millwright migrate plan --namespace shop --as-mcm
  millwright migrate check --all-namespaces --target-secret millwright-target
  millwright migrate plan --all-namespaces --target-secret millwright-target --wave-size 10`,
	}
	x.RegisterFlags(c)
	c.PersistentFlags().
		StringVar(&x.targetKubeconfig, "target-kubeconfig", "", "kubeconfig of the cluster that the machines join as nodes; default: the cluster of the machines; none: they join no cluster")
	c.PersistentFlags().BoolVar(&x.actsAsMCM, "as-mcm", false, "worker and bridge will run with --as-mcm")
	x.scopeFlags.Register(c.PersistentFlags())
	x.targetFlags.Register(c.PersistentFlags())
	c.PersistentFlags().
		BoolVarP(&x.allNamespaces, "all-namespaces", "A", false, "all namespaces with Machines that worker and bridge will act on")
	c.AddCommand(x.checkCommand(), x.planCommand())
	return c
}

func (x *migrateCommand) checkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Say what must be done before the takeover, and what Millwright will do to machines and nodes",
		Long: `check prints a line for each finding. The line begins with first if something must be done before Millwright starts, with note if Millwright
will do or change something, and otherwise with ok. Run check while machine-controller-manager is at work, and again when it is stopped.
After the takeover, check says what still differs. The exit code is 1 if something must be done first. With --all-namespaces, check prints
a line for each namespace: whether the takeover may begin, and the first thing that must be done before.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if x.allNamespaces {
				return x.checkNamespaces(c.Context(), c.OutOrStdout())
			}
			return x.checkTakeover(c.Context(), c.OutOrStdout())
		},
	}
	x.output.RegisterFlag(c)
	return c
}

func (x *migrateCommand) checkTakeover(ctx context.Context, out io.Writer) error {
	facts, err := x.readFacts(ctx)
	if err != nil {
		return err
	}
	findings := takeover.Decide(facts)
	if err := writeFindings(out, x.output, findings); err != nil {
		return err
	}
	if n := len(takeover.Blockers(findings)); n > 0 {
		return fmt.Errorf("%s to be done first", phrase.CountText(n, "thing")+phrase.SingularOrPlural(n, " has", " have"))
	}
	return nil
}

// writeFindings prints findings. In the table formats, writeFindings prints each finding in one line, and its advice in
// a second line.
func writeFindings(out io.Writer, format printers.OutputFormat, findings []takeover.Finding) error {
	if format != printers.OutputTable && format != printers.OutputWide {
		l := printers.Listing{Items: findings}
		for _, f := range findings {
			l.Names = append(l.Names, f.Object)
		}
		return format.Write(out, l)
	}
	for _, f := range findings {
		_, _ = fmt.Fprintf(out, "%-7s %s: %s\n", f.Weight, f.Object, f.Message)
		if f.Advice != "" {
			_, _ = fmt.Fprintf(out, "        %s\n", f.Advice)
		}
	}
	return nil
}

func (x *migrateCommand) planCommand() *cobra.Command {
	output, perWave := textFormat, 0
	c := &cobra.Command{
		Use:   "plan",
		Short: "Print the steps of the takeover of a namespace or of waves of namespaces, and of the way back",
		Long: `plan prints the steps for this namespace in their order, with the commands, and what happens to each object. Words in capital letters stand
for your own values. plan changes nothing. With --all-namespaces, plan divides the namespaces into waves, and names those that no wave
contains because something must be done first.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if x.allNamespaces {
				all, err := x.readAllFacts(c.Context())
				if err != nil {
					return err
				}
				there, back := takeover.PlanWaves(all, perWave)
				return writePlan(c.OutOrStdout(), output, there, back)
			}
			facts, err := x.readFacts(c.Context())
			if err != nil {
				return err
			}
			there, back := takeover.PlanSteps(facts)
			return writePlan(c.OutOrStdout(), output, there, back)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", textFormat, "format: text, json or yaml")
	c.Flags().IntVar(&perWave, "wave-size", 0, "with --all-namespaces: number of namespaces in a wave; 0: all in one wave")
	return c
}

// textFormat is the format of a plan for people.
const textFormat = "text"

// writePlan prints a plan.
func writePlan(out io.Writer, format string, there, back []takeover.Step) error {
	switch format {
	case textFormat:
		_, _ = fmt.Fprintln(out, "The takeover:")
		writeSteps(out, there)
		_, _ = fmt.Fprintln(out, "\nThe way back:")
		writeSteps(out, back)
		return nil
	case string(printers.OutputJSON), string(printers.OutputYAML):
		data, err := json.MarshalIndent(map[string]any{"takeover": there, "back": back}, "", "  ")
		if err == nil && format == string(printers.OutputYAML) {
			data, err = yaml.JSONToYAML(data)
		}
		if err != nil {
			return fmt.Errorf("encode the plan: %w", err)
		}
		_, err = fmt.Fprintf(out, "%s\n", data)
		return err
	}
	return fmt.Errorf("%q is no format of a plan: the formats are %s, json and yaml", format, textFormat)
}

func writeSteps(out io.Writer, steps []takeover.Step) {
	for i, s := range steps {
		_, _ = fmt.Fprintf(out, "\n%d. %s\n", i+1, s.Title)
		for _, says := range s.Sentences {
			_, _ = fmt.Fprintf(out, "   - %s\n", says)
		}
		for _, command := range s.Commands {
			_, _ = fmt.Fprintf(out, "       %s\n", command)
		}
	}
}
