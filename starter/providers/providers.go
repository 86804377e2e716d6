// Package providers has the commands that show which providers have workers, and check whether a provider can use a
// class.
package providers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/phrase"
	"millwright/observe/machine"
	"millwright/process"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
	"millwright/workflows/check"
	"millwright/workflows/run"
)

// providerCommand is the command `millwright provider` with the flags of its subcommands.
type providerCommand struct {
	kubecli.ObjectFlags
	temporalFlags kubecli.TemporalFlags
	clusterName   string
}

// Command returns the command provider.
func Command(e kubecli.Environment) *cobra.Command {
	p := &providerCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: kubecli.KindClass}}
	c := &cobra.Command{
		Use:   "provider",
		Short: "Show which providers have workers, and check their classes",
		Example: `  millwright provider list -A
  millwright provider check shop/small`,
	}
	p.RegisterFlags(c)
	p.temporalFlags.RegisterFlags(c)
	kubecli.RegisterClusterName(c.PersistentFlags(), &p.clusterName)
	c.AddCommand(p.listCommand(), p.checkCommand())
	return c
}

func (p *providerCommand) listCommand() *cobra.Command {
	var all bool
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "list",
		Short: "List the classes with their providers, how many workers serve them, and how many machines wait for them",
		Long: `list shows each MachineClass with its provider, and how many workers poll the provider's queue now. A provider without a worker
creates and deletes nothing. A worker that was killed is counted for 75 seconds more. WAITING is the number of machines of the class whose
call of the provider is blocked or whose last operation failed, with the reasons.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if all {
				p.Namespace = metav1.NamespaceAll
			}
			return p.listProviders(c.Context(), c.OutOrStdout(), output)
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "classes of all namespaces")
	output.RegisterFlag(c)
	return c
}

// classRow is one MachineClass of the list, as JSON and YAML show the class.
type classRow struct {
	Namespace      string `json:"namespace"`
	Class          string `json:"class"`
	Provider       string `json:"provider"`
	WorkerCount    int    `json:"workers"`  // number of workers that poll the provider's queue
	MachineCount   int    `json:"machines"` // number of machines of the class
	WaitingSummary string `json:"waiting,omitempty"`
}

func (p *providerCommand) listProviders(ctx context.Context, out io.Writer, output printers.OutputFormat) error {
	installation, temporal, clients, err := p.connectToInstallation(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	classes, err := clients.MachineClient.MachineV1alpha1().MachineClasses(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list MachineClasses: %w", err)
	}
	machines, err := clients.MachineClient.MachineV1alpha1().Machines(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Machines: %w", err)
	}
	items := []classRow{}
	l := printers.Listing{
		Table: [][]any{{"NAMESPACE", "CLASS", "PROVIDER", "WORKERS", "MACHINES", "WAITING"}},
	}
	if len(classes.Items) == 0 {
		l.EmptyText = p.EmptyListText(ctx, clients, "there is no MachineClass", func(ctx context.Context) (int, error) {
			all, err := clients.MachineClient.MachineV1alpha1().
				MachineClasses(metav1.NamespaceAll).
				List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, fmt.Errorf("list MachineClasses: %w", err)
			}
			return len(all.Items), nil
		})
	}
	slices.SortFunc(classes.Items, func(a, b v1alpha1.MachineClass) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	shards, err := clients.ReadShards(ctx, installation)
	if err != nil {
		return err //nolint:wrapcheck // the error names the record
	}
	polled := map[string]int{} // by task queue
	for i := range classes.Items {
		class := &classes.Items[i]
		name := class.ProviderName()
		queue := shards.ShardOfNamespace(class.Namespace).ProviderTaskQueue(name)
		if _, known := polled[queue]; !known {
			if polled[queue], err = kubecli.CountPollers(
				ctx,
				temporal,
				p.temporalFlags.Namespace,
				queue,
				enumspb.TASK_QUEUE_TYPE_ACTIVITY,
			); err != nil {
				return err
			}
		}
		total, waiting := countMachines(class, machines.Items, polled[queue] > 0, p.Now())
		items = append(items, classRow{class.Namespace, class.Name, name, polled[queue], total, waiting})
		l.Names = append(l.Names, "machineclass/"+kubecli.KeyOfObject(class))
		l.Table = append(l.Table, []any{class.Namespace, class.Name, name, polled[queue], total, waiting})
	}
	l.Items = items
	return output.Write(out, l)
}

// countMachines returns the number of machines of a class. The result waiting is the number of machines whose provider
// call is blocked or whose last operation failed. It includes the reasons, such as "3 (2 ResourceExhausted, 1
// Unknown)", and is empty if no machine waits. The parameter isServed is false if no worker polls the provider's queue,
// because all calls then wait.
func countMachines(
	class *v1alpha1.MachineClass,
	machines []v1alpha1.Machine,
	isServed bool,
	now time.Time,
) (total int, waiting string) {
	codes, blocked := map[string]int{}, 0
	for i := range machines {
		m := &machines[i]
		if m.Namespace != class.Namespace || m.Spec.Class.Name != class.Name {
			continue
		}
		total++
		last, facts := m.Status.LastOperation, machine.ExplanationFacts(m, class, now)
		reason := phrase.TextIf(last.State == v1alpha1.MachineStateFailed, "%s", cmp.Or(last.ErrorCode, "without a code"))
		switch {
		case !facts.CallsProvider():
		case !isServed:
			reason = vocabulary.BlockedByMissingWorker
		default:
			reason = cmp.Or(facts.CurrentWait().Reason(), reason)
		}
		if reason != "" {
			blocked++
			codes[reason]++
		}
	}
	var parts []string
	for code, n := range codes {
		parts = append(parts, fmt.Sprintf("%d %s", n, code))
	}
	slices.Sort(parts)
	return total, phrase.TextIf(blocked > 0, "%d (%s)", blocked, strings.Join(parts, ", "))
}

// checkTimeout is how long check waits for its workflow. After a worker has picked up the workflow, the check takes at
// most one minute.
const checkTimeout = 90 * time.Second

func (p *providerCommand) checkCommand() *cobra.Command {
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "check CLASS",
		Short: "Ask the provider of a class once whether it can use the class",
		Long: `check lets the worker of the class's provider read the class and its Secrets, and ask the cloud once. It says what is wrong: no worker,
a missing Secret, an endpoint that does not answer, refused credentials. It creates and changes nothing; whether a quota is used up
shows only when an instance is created (list shows such machines).

The exit code is 0 if the provider can use the class, and 1 otherwise, also with -o json or yaml. If no worker carries the check out within 90
seconds, the command fails.`,
		Example: `  millwright provider check shop/small
  millwright provider check mcc small -n shop -o json`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: p.CompleteName,
		RunE:              func(c *cobra.Command, args []string) error { return p.checkClass(c, args, output) },
	}
	output.RegisterTextFlag(c)
	return c
}

func (p *providerCommand) checkClass(c *cobra.Command, args []string, output printers.OutputFormat) error {
	ctx := c.Context()
	installation, temporal, clients, err := p.connectToInstallation(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	key, err := p.ParseKey(c, args)
	if err != nil {
		return err
	}
	class, err := kubecli.FindObject(
		ctx,
		clients,
		p.Kind,
		key,
		clients.MachineClient.MachineV1alpha1().MachineClasses(key.Namespace).Get,
	)
	if err != nil {
		return err
	}
	// If no worker could decrypt the payloads of the check, the workflow would never end. Therefore, the command first
	// tests its own keys with the record of the installation, which each process of the installation can decrypt.
	mark, err := temporal.DescribeWorkflowExecution(ctx, installation.ReservationWorkflowID(), "")
	if err == nil {
		_, err = process.ControlClusterUID(mark)
	}
	if err != nil {
		return fmt.Errorf("find installation %s in Temporal: %w", installation, err)
	}
	in := check.Input{
		Class:    kube.Ref{Namespace: class.Namespace, Name: class.Name, UID: string(class.UID)},
		Provider: class.ProviderName(),
	}
	shards, err := clients.ReadShards(ctx, installation)
	if err != nil {
		return err //nolint:wrapcheck // the error names the record
	}
	begun, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       installation.ID(run.KindProviderCheck, in.Class),
		TaskQueue:                shards.ShardOfNamespace(class.Namespace).TaskQueue(run.QueueMachines),
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, string(run.KindProviderCheck), in)
	if err != nil {
		return fmt.Errorf("start the check: %w", err)
	}
	var result check.Result
	waits, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := begun.Get(waits, &result); err != nil {
		if waits.Err() == nil || ctx.Err() != nil {
			return fmt.Errorf("wait for the check: %w", err)
		}
		late := fmt.Errorf(
			"no worker of %s has carried out the check within %s: does one run, and with the payload keys of this command? `millwright doctor`",
			installation,
			phrase.DurationText(checkTimeout),
		)
		if err := temporal.TerminateWorkflow(
			ctx,
			begun.GetID(),
			begun.GetRunID(),
			"the command that asked waits no longer",
		); err != nil {
			return errors.Join(late, fmt.Errorf("terminate the check: %w", err))
		}
		return late
	}
	return writeCheckResult(c.OutOrStdout(), output, in, result)
}

// checkAnswer is the result of a check in JSON and YAML.
type checkAnswer struct {
	Namespace     string `json:"namespace"`
	Class         string `json:"class"`
	Provider      string `json:"provider"`
	IsUsable      bool   `json:"usable"`            // the provider can use the class
	Message       string `json:"message,omitempty"` // why the provider cannot use the class
	Reason        string `json:"reason,omitempty"`  // the provider's reason in one word; empty: the provider gave none
	NoWorker      bool   `json:"noWorker,omitempty"`
	InstanceCount int    `json:"instances"` // number of instances that the cloud lists
}

// writeCheckResult writes the result of a check in a format, and returns an error if the provider cannot use the class.
func writeCheckResult(out io.Writer, output printers.OutputFormat, in check.Input, r check.Result) error {
	if output == printers.OutputText {
		return printCheckResult(out, in, r)
	}
	failed := printCheckResult(io.Discard, in, r)
	a := checkAnswer{
		Namespace: in.Class.Namespace, Class: in.Class.Name, Provider: in.Provider,
		IsUsable: failed == nil, Message: r.Failure, NoWorker: r.NoWorker, InstanceCount: r.Instances,
	}
	if r.Problem != nil {
		a.Message, a.Reason = r.Problem.Message, r.Problem.Reason
	}
	return errors.Join(output.Encode(out, a), failed)
}

// printCheckResult prints the result of a check, and returns an error if the provider cannot use the class.
func printCheckResult(out io.Writer, in check.Input, r check.Result) error {
	switch {
	case r.NoWorker:
		return fmt.Errorf("provider %s: %s: does one run with --queues=provider-%s?", in.Provider, r.Failure, in.Provider)
	case r.Failure != "":
		return fmt.Errorf("provider %s: %s", in.Provider, r.Failure)
	case r.Problem != nil:
		return fmt.Errorf(
			"provider %s cannot use class %s/%s: %s (%s)",
			in.Provider,
			in.Class.Namespace,
			in.Class.Name,
			r.Problem.Message,
			r.Problem.Reason,
		)
	}
	t := r.Traits
	_, err := fmt.Fprintf(
		out,
		"provider %s can use class %s/%s: the cloud lists %s\ncreations are made once by: %s; reads show everything after %s; requests expire: %t; instances carry UIDs: %t\n",
		in.Provider,
		in.Class.Namespace,
		in.Class.Name,
		phrase.CountText(r.Instances, "instance"),
		cmp.Or(strings.ToLower(string(t.Idempotency)), "search"),
		phrase.DurationText(t.Window),
		t.Expires,
		!t.Named,
	)
	return err
}

// connectToInstallation returns the installation and the clients. The caller must close Temporal's client.
func (p *providerCommand) connectToInstallation(
	ctx context.Context,
) (run.Installation, client.Client, kubecli.Clients, error) {
	clients, err := p.NewClients(p.ClusterAccess)
	if err != nil {
		return "", nil, kubecli.Clients{}, err
	}
	installation := cmp.Or(run.Installation(p.clusterName), clients.FindInstallation(ctx))
	if err := installation.Check(); err != nil {
		return "", nil, kubecli.Clients{}, errors.Join(
			errors.New("--cluster-name is needed to find the installation in Temporal"),
			err,
		)
	}
	temporal, err := p.DialTemporal(p.temporalFlags)
	return installation, temporal, clients, err
}
