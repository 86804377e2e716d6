package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millwright/devstack/virtualcloud/admin"
)

// cloudCommand makes the virtual cloud fail on demand, and shows what it does wrong. The function connect returns the
// client of the stack's cloud.
func cloudCommand(connect func() (*admin.Client, error)) *cobra.Command {
	var flags cloudFlags
	command := &cobra.Command{
		Use:   "cloud",
		Short: "Make the virtual cloud slow, full or broken, and show its instances",
		Long: `cloud sets what the virtual cloud does wrong, until --reset, and prints it. Without a flag it only prints, with all
instances. Several flags in one call add up, and a flag that is left out changes nothing.

A latency applies to new instances, in addition to the latency of their class; calls under way keep theirs. A quota of
the class applies as well. Refused calls are answered before they have an effect; a call that hangs is answered when
--hang=false or --reset ends that. Instances that vanish are gone as after a power cut, and their Nodes ten seconds
later. --reset keeps all instances.

Codes: ` + codeNames(),
		Example: `  devstack cloud                                     # what is wrong with the cloud, and its instances
  devstack cloud --latency 5m                        # create calls take 5 minutes longer
  devstack cloud --refuse ResourceExhausted          # create calls fail: no machines of this type left
  devstack cloud --refuse Unavailable --times 3      # the next three create calls fail
  devstack cloud --refuse Internal --operation delete
  devstack cloud --quota 3                           # at most 3 instances exist at a time
  devstack cloud --hang                              # create calls get no answer
  devstack cloud --nodes-late 10m                    # instances run, but their Nodes join 10 minutes late
  devstack cloud --vanish 2                          # a power cut for the two oldest instances
  devstack cloud --vanish pool-7dcbd-2mdck           # or for one, by machine or by ID
  devstack cloud --reset                             # a well-behaved cloud`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			order, err := parseCloudFlags(flags, c.Flags().Changed)
			if err != nil {
				return err
			}
			cloud, err := connect()
			if err != nil {
				return err
			}
			return runCloudOrder(c.Context(), c.OutOrStdout(), cloud, order)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.DurationVar(&flags.latency, "latency", 0, "extra duration of each create call; 0: none")
	set.StringVar(&flags.refuse, "refuse", "", "`code` with which create calls fail; none ends it")
	set.StringVar(&flags.quota, "quota", "", "`number` of instances that may exist at a time; none ends it")
	set.BoolVar(&flags.hang, "hang", false, "create calls get no answer; --hang=false ends it")
	set.DurationVar(&flags.nodesLate, "nodes-late", 0, "extra time before a Node joins; 0: none")
	set.StringVar(
		&flags.vanish,
		"vanish",
		"",
		"`instance` that vanishes: a machine, an ID such as i-7, or a number of instances",
	)
	set.BoolVar(&flags.reset, "reset", false, "end everything that is wrong, before the other flags apply")
	set.StringVar(&flags.operation, "operation", string(admin.OperationCreate),
		"`call` that --latency (create, delete), --refuse and --hang concern: "+operationNames(admin.Operations()))
	set.IntVar(&flags.times, "times", 0, "number of calls that --refuse lets fail; 0: no limit")
	set.DurationVar(&flags.lifetime, "for", 0, "time after which --refuse ends by itself; 0: no limit")
	set.StringVar(&flags.machine, "machine", "", "the only machine whose calls --refuse lets fail")
	set.StringVar(&flags.message, "message", "", "sentence of the cloud for --refuse")
	for flag, words := range map[string]string{"refuse": codeNames(), "operation": operationNames(admin.Operations())} {
		complete := cobra.FixedCompletions(strings.Split(words, ", "), cobra.ShellCompDirectiveNoFileComp)
		_ = command.RegisterFlagCompletionFunc(flag, complete) // an error would mean that there is no such flag
	}
	return command
}

// runCloudOrder carries out the order, and prints what the cloud does wrong. If the order changes nothing,
// runCloudOrder also prints all instances.
func runCloudOrder(ctx context.Context, out io.Writer, cloud *admin.Client, order cloudOrder) error {
	if err := changeCloud(ctx, cloud, order); err != nil {
		return err
	}
	instances, err := cloud.Instances(ctx)
	if err != nil {
		return err
	}
	if order.vanishes() {
		victims, err := order.victims(instances)
		if err != nil {
			return err
		}
		for _, v := range victims {
			if err := cloud.MakeInstanceVanish(ctx, admin.VanishRequest{ID: v.ID, DeleteNode: true}); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(out, "%s, the instance of machine %s, has vanished\n", v.ID, v.Tags.MachineName)
		}
	}
	behaviour, err := cloud.Behaviour(ctx)
	if err != nil {
		return err
	}
	faults, err := cloud.Faults(ctx)
	if err != nil {
		return err
	}
	text, err := describeCloud(behaviour, faults, len(instances), time.Now())
	if err != nil {
		return err
	}
	if order.isEmpty() {
		text += "\n" + describeInstances(instances, time.Now())
	}
	_, err = io.WriteString(out, text)
	return err
}

// changeCloud sets behaviour and faults as in the order.
func changeCloud(ctx context.Context, cloud *admin.Client, order cloudOrder) error {
	if order.resets {
		if err := cloud.ClearFaults(ctx); err != nil {
			return err
		}
	}
	if order.changesBehaviour() {
		if err := cloud.ChangeBehaviour(ctx, order.changeBehaviour); err != nil {
			return err
		}
	}
	if order.endsRefusals {
		if err := cloud.ClearFaultsOfOperation(ctx, order.operation); err != nil {
			return err
		}
	}
	if order.refusal != nil {
		return cloud.AddFault(ctx, *order.refusal)
	}
	return nil
}
