// Package explain has the command that says what an object waits for.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/observe/cache"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// command has the flags of the command.
type command struct {
	kubecli.Objects
	temporalAt kubecli.TemporalFlags
	cluster    string // name of the installation; empty: as the status of the object names it
	target     string // kubeconfig of the cluster with the nodes; empty: the one with the machines
}

// Command returns the command explain.
func Command(e kubecli.Environment) *cobra.Command {
	x := &command{Objects: kubecli.Objects{Environment: e, Kind: "object"}}
	c := &cobra.Command{
		Use:   "explain [KIND/|NAMESPACE/]NAME",
		Short: "Say what a deployment, set, machine, class or node waits for, and the command that changes it",
		Long: `explain begins with the sentence that the object's status has, too: what it waits for, since when, what happens without a person and
when, and the command that changes it. Then it says what only Temporal knows: whether workers are there, and which attempt of which
call is open, since when. For a deployment and a set it lists the machines that wait.

KIND is machinedeployment (mcd), machineset (mcs), machine (mc), machineclass (mcc) or node. Without it, the first object of that name
counts, in this order.`,
		Example: `  starter explain mcd/web -n shop
  starter explain machine/web-7f9c4-x2b8q -n shop
  starter explain node/ip-10-0-0-7`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: x.CompleteKindAndName,
		RunE: func(c *cobra.Command, args []string) error { return x.run(c.Context(), c.OutOrStdout(), args[0]) },
	}
	x.Register(c)
	x.temporalAt.Register(c)
	c.Flags().StringVar(&x.cluster, "cluster-name", os.Getenv("CLUSTER_NAME"), "name of the installation, as of its worker and bridge; default: as the object's status or the Lease millwright-worker says")
	c.Flags().StringVar(&x.target, "target-kubeconfig", "", "kubeconfig of the cluster with the nodes, if it is another one")
	return c
}

// subject is the object that is explained.
type subject struct {
	kind             string
	workflow         run.Kind // of its workflow; empty: it has none of its own
	object           metav1.Object
	generation, seen int64 // seen is zero if the kind does not report it
	operation        *v1alpha1.Operation
	calm             string // what is said of an object that waits for nothing
	provider         string // that its machines or its class use; empty: not known
	members          []v1alpha1.Machine
}

func (x *command) run(ctx context.Context, out io.Writer, text string) error {
	clients, err := x.Clients(x.Access)
	if err != nil {
		return err
	}
	s, err := x.find(ctx, clients, text)
	if err != nil {
		return err
	}
	if s.unseen() { // before the sentence, which is of an earlier generation
		_, _ = fmt.Fprintln(out, kubecli.Paint(out, kubecli.Stuck, fmt.Sprintf("The status is of generation %d, and the object has generation %d: nobody has seen the change yet.", s.seen, s.generation)))
	}
	_, _ = fmt.Fprintln(out, kubecli.Paint(out, s.tone(), s.sentence()))
	for _, line := range append(Heartbeats(ctx, clients.Leases, x.Now()), x.ask(ctx, clients, s)...) {
		_, _ = fmt.Fprintln(out, line)
	}
	return s.table(out, x.Now())
}

// find reads the named object.
func (x *command) find(ctx context.Context, clients kubecli.Clients, text string) (*subject, error) {
	kind, name, given := strings.Cut(text, "/")
	namespaced := given && !slices.ContainsFunc(kubecli.Kinds, func(k kubecli.NamedKind) bool { return k.Is(kind) })
	switch {
	case !given:
		kind, name = "", text
	case namespaced: // NAMESPACE/NAME, as other commands take it
		kind, x.Namespace = "", kind
	}
	for _, k := range kubecli.Kinds {
		if kind != "" && !k.Is(kind) {
			continue
		}
		s, err := x.read(ctx, clients, k.Kind, k.Names[0], name)
		if err == nil || !apierrors.IsNotFound(err) {
			return s, err
		}
	}
	if namespaced {
		return nil, fmt.Errorf("%q is no kind, and in no namespace of that name is an object %s: give machinedeployment, machineset, machine, machineclass or node", x.Namespace, name)
	}
	return nil, fmt.Errorf("there is no %s %s in namespace %s", cmp.Or(kind, "object"), name, x.Namespace)
}

func (x *command) read(ctx context.Context, clients kubecli.Clients, of request.Kind, kind, name string) (*subject, error) {
	machines := clients.Machines.MachineV1alpha1()
	switch of {
	case request.MachineDeployment:
		d, err := machines.MachineDeployments(x.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s := &subject{
			kind: kind, workflow: run.KindMachineDeployment, object: d, generation: d.Generation, seen: d.Status.ObservedGeneration,
			operation: d.Status.CurrentOperation, provider: providerOf(ctx, clients, d.Namespace, d.Spec.Template.Spec.Class.Name),
		}
		s.calm = fmt.Sprintf("%d of %s available", d.Status.AvailableReplicas, phrase.Count(int(d.Spec.Replicas), "machine"))
		sets, err := machines.MachineSets(x.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list sets: %w", err)
		}
		owners := []metav1.Object{}
		for i := range sets.Items {
			if metav1.IsControlledBy(&sets.Items[i], d) {
				owners = append(owners, &sets.Items[i])
			}
		}
		return s, x.addMembers(ctx, clients, s, owners)
	case kubecli.KindSet:
		set, err := machines.MachineSets(x.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s := &subject{
			kind: kind, workflow: run.KindMachineSet, object: set, generation: set.Generation, seen: set.Status.ObservedGeneration,
			operation: set.Status.CurrentOperation, provider: providerOf(ctx, clients, set.Namespace, set.Spec.Template.Spec.Class.Name),
		}
		s.calm = fmt.Sprintf("%d of %s available", set.Status.AvailableReplicas, phrase.Count(int(set.Spec.Replicas), "machine"))
		return s, x.addMembers(ctx, clients, s, []metav1.Object{set})
	case request.Machine:
		m, err := machines.Machines(x.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return ofMachine(ctx, clients, m), nil
	case kubecli.KindClass:
		class, err := machines.MachineClasses(x.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return &subject{
			kind: kind, workflow: run.KindMachineClass, object: class, provider: class.ProviderName(), calm: "provider " + class.ProviderName(),
		}, nil
	default:
		return x.readNode(ctx, clients, name)
	}
}

func ofMachine(ctx context.Context, clients kubecli.Clients, m *v1alpha1.Machine) *subject {
	return &subject{
		kind: "machine", workflow: run.KindMachine, object: m, operation: m.Status.CurrentOperation, calm: "phase " + kubecli.Status(*m),
		provider: providerOf(ctx, clients, m.Namespace, m.Spec.Class.Name),
	}
}

// providerOf returns the provider of a class; empty if the class cannot be read.
func providerOf(ctx context.Context, clients kubecli.Clients, namespace, name string) string {
	class, err := clients.Machines.MachineV1alpha1().MachineClasses(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return class.ProviderName()
}

// readNode finds the machine of a node. A node without a machine is explained by that.
func (x *command) readNode(ctx context.Context, clients kubecli.Clients, name string) (*subject, error) {
	target := clients
	if x.target != "" {
		var err error
		if target, err = x.Clients(kubecli.Access{Kubeconfig: x.target}); err != nil {
			return nil, err
		}
	}
	node, err := target.Core.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := clients.Machines.MachineV1alpha1().Machines(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; cache.NodeNameOf(m) == name || m.Spec.ProviderID != "" && m.Spec.ProviderID == node.Spec.ProviderID {
			return ofMachine(ctx, clients, m), nil
		}
	}
	ready := "not known"
	if c := cache.Condition(node.Status.Conditions, corev1.NodeReady); c != nil {
		ready = string(c.Status)
	}
	return &subject{kind: "node", object: node, calm: "no Machine has this node; Ready is " + ready}, nil
}

func (x *command) addMembers(ctx context.Context, clients kubecli.Clients, s *subject, owners []metav1.Object) error {
	list, err := clients.Machines.MachineV1alpha1().Machines(x.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	for _, m := range list.Items {
		if slices.ContainsFunc(owners, func(owner metav1.Object) bool { return metav1.IsControlledBy(&m, owner) }) {
			s.members = append(s.members, m)
		}
	}
	slices.SortFunc(s.members, func(a, b v1alpha1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// sentence is the first line: what the status says.
func (s *subject) sentence() string {
	name := s.kind + " " + s.object.GetName()
	if s.object.GetNamespace() != "" {
		name = s.kind + " " + kubecli.KeyOf(s.object)
	}
	if s.operation != nil && s.operation.WaitsFor != "" {
		return name + ": " + s.operation.WaitsFor
	}
	return name + " waits for nothing: " + s.calm
}

// unseen reports whether the status is of an earlier generation.
func (s *subject) unseen() bool { return s.seen != 0 && s.seen != s.generation }

// tone is that of the sentence: an object that waits for something that only takes time is well.
func (s *subject) tone() kubecli.Tone {
	if s.unseen() || s.operation != nil && len(s.operation.BlockedBy) > 0 {
		return kubecli.Stuck
	}
	return kubecli.Good
}

// cause is the beginning of the sentence of an operation, or the cause of its step if the status has no sentence yet.
func cause(o *v1alpha1.Operation) string {
	why, _, _ := strings.Cut(o.WaitsFor, " (since ")
	return cmp.Or(why, o.Cause)
}

// mostMachines is how many waiting machines are listed. Source: half a screen.
const mostMachines = 12

// table lists the machines that wait: those that stand still first, then the ones that wait longest.
func (s *subject) table(out io.Writer, now time.Time) error {
	waiting := slices.DeleteFunc(slices.Clone(s.members), func(m v1alpha1.Machine) bool { return m.Status.CurrentOperation == nil })
	if len(waiting) == 0 {
		return nil
	}
	slices.SortStableFunc(waiting, func(a, b v1alpha1.Machine) int {
		x, y := a.Status.CurrentOperation, b.Status.CurrentOperation
		return cmp.Or(list.FalseFirst(len(x.BlockedBy) == 0, len(y.BlockedBy) == 0), x.Since.Compare(y.Since.Time))
	})
	rows := [][]any{{"MACHINE", "STATUS", "STEP", "SINCE", "DEADLINE", "WAITS FOR"}}
	for _, m := range waiting[:min(len(waiting), mostMachines)] {
		o := m.Status.CurrentOperation
		rows = append(rows, []any{m.Name, kubecli.Status(m), o.Step, kubecli.Age(o.Since.Time, now), kubecli.Clock(cache.TimeOf(o.Deadline), now), cause(o)})
	}
	_, _ = fmt.Fprintln(out)
	if err := kubecli.WriteTable(out, rows); err != nil {
		return err
	}
	if rest := len(waiting) - mostMachines; rest > 0 {
		_, _ = fmt.Fprintf(out, "and %d more\n", rest)
	}
	return nil
}
