// Package explain has the command that prints what an object waits for.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/ownership"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/observe/cache"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
	"millwright/workflows/run"
)

// explainCommand is the command `millwright explain` with its flags. The commands top and ui also use explainCommand.
type explainCommand struct {
	kubecli.ObjectFlags
	temporalFlags    kubecli.TemporalFlags
	temporalUI       kubecli.TemporalUI // empty: explain prints no address
	clusterName      string             // name of the installation; if empty, the name in the object's status or in the workers' Lease
	targetKubeconfig string             // kubeconfig of the cluster with the nodes; if empty, the cluster with the machines
	output           printers.OutputFormat
}

// Command returns the command explain.
func Command(e kubecli.Environment) *cobra.Command {
	x := &explainCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: "object"}}
	c := &cobra.Command{
		Use:   "explain [KIND/][NAMESPACE/]NAME",
		Short: "Say what an object waits for, and the command that changes it",
		Long: `explain prints the sentence of the object's status: what the object waits for, since when, what happens without a person and when,
and the command that changes it. If Temporal, a worker or the bridge is down, nobody writes a status, and explain says that first. After
the sentence it says which attempt of which call is open, since when. For a deployment and a set it lists machines that wait. JSON
and YAML have the same as fields, with all machines that wait.

KIND is machinedeployment (mcd), machineset (mcs), machine (mc), machineclass (mcc) or node. Without KIND, explain takes the
first object with the name, in this order. Of Cluster API, explain knows the deployments and sets that Millwright reconciles, and their
machines. With --ui-address, or the variable TEMPORAL_UI_ADDRESS, the last line has the address of the page in Temporal's UI.
If both API groups have an object with the name, name the group, too: machineset.cluster.x-k8s.io/web or machineset.machine.sapcloud.io/web.`,
		Example: `  millwright explain mcd/web -n shop
  millwright explain machine/shop/web-7f9c4-x2b8q
  millwright explain machineset.cluster.x-k8s.io/md-0-7f9c4 -n shop
  millwright explain node/ip-10-0-0-7
  millwright explain mcd/web -n shop -o json`,
		Args:              cobra.RangeArgs(1, 2), // KIND NAME is accepted too, as in kubectl
		ValidArgsFunction: x.CompleteKindAndName,
		RunE: func(c *cobra.Command, args []string) error {
			return x.run(c.Context(), c.OutOrStdout(), strings.Join(args, "/"))
		},
	}
	x.RegisterFlags(c)
	x.temporalFlags.RegisterFlags(c)
	x.temporalUI.RegisterFlag(c, "")
	kubecli.RegisterClusterName(c.Flags(), &x.clusterName)
	x.output.RegisterTextFlag(c)
	c.Flags().
		StringVar(&x.targetKubeconfig, "target-kubeconfig", "", "kubeconfig of the cluster with the nodes; default: the cluster with the machines")
	return c
}

func (x *explainCommand) run(ctx context.Context, out io.Writer, text string) error {
	clients, err := x.NewClients(x.ClusterAccess)
	if err != nil {
		return err
	}
	s, err := x.findSubject(ctx, clients, text)
	if err != nil {
		return err
	}
	down, notes, calls := x.readFromTemporal(ctx, clients, s)
	missing, troubles := DescribeProcessProblems(
		ctx,
		clients.Leases,
		x.findInstallation(ctx, clients, s),
		x.Now(),
		s.isAffectedBy,
	)
	down = append(down, missing...)
	if x.output != printers.OutputText {
		answer := newExplanation(s, slices.Concat(down, troubles, notes), calls)
		answer.Page = x.pageOrNone(ctx, clients, s)
		return x.output.Encode(out, answer)
	}
	if len(down) > 0 { // no process updates the status, so the sentence below may be out of date
		for _, line := range append(down, processDownAdvice) {
			_, _ = fmt.Fprintln(out, paintFirstWords(out, printers.ToneWarning, line))
		}
	}
	for _, line := range troubles {
		_, _ = fmt.Fprintln(out, paintFirstWords(out, printers.ToneWarning, line))
	}
	if s.isStatusOutdated() { // the sentence below is about an earlier generation
		_, _ = fmt.Fprintln(
			out,
			paintFirstWords(
				out,
				printers.ToneWarning,
				fmt.Sprintf(
					"The status is of generation %d, and the object has generation %d: nobody has seen the change yet.",
					s.observedGeneration,
					s.generation,
				),
			),
		)
	}
	_, _ = fmt.Fprintln(out, paintFirstWords(out, s.tone(), s.sentence(len(down) == 0 && !s.isStatusOutdated())))
	for _, line := range append(notes, list.Map(calls, func(c pendingActivity) string { return c.statusLine(x.Now()) })...) {
		_, _ = fmt.Fprintln(out, line)
	}
	if err := s.writeTable(out, x.Now()); err != nil {
		return err
	}
	if page := x.pageOrNone(ctx, clients, s); page != "" {
		_, _ = fmt.Fprintln(out, "\npage: "+page)
	}
	return nil
}

// pageOrNone returns the address of the object's page in Temporal's UI; empty if the address of the UI, or the
// installation, is not known.
func (x *explainCommand) pageOrNone(ctx context.Context, clients kubecli.Clients, s *subject) string {
	installation := x.findInstallation(ctx, clients, s)
	if x.temporalUI == "" || installation == "" || s.workflowKind == "" {
		return ""
	}
	page, _ := x.pageOfObject(ctx, s, installation, "") // the notes of explain say that Temporal does not answer
	return page
}

// paintFirstWords paints the first two words of a line, which name the object or the process.
func paintFirstWords(out io.Writer, tone printers.Tone, line string) string {
	kind, rest, _ := strings.Cut(line, " ")
	name, rest, more := strings.Cut(rest, " ")
	return printers.Paint(out, tone, strings.TrimSpace(kind+" "+name)) + phrase.TextIf(more, " %s", rest)
}

// findSubject reads the named object. The name is NAME, KIND/NAME, NAMESPACE/NAME, or KIND/NAMESPACE/NAME, which lists
// print with -o name.
func (x *explainCommand) findSubject(ctx context.Context, clients kubecli.Clients, text string) (*subject, error) {
	kind, name, given := strings.Cut(text, "/")
	kinds := kubecli.KindsWithName(kind)
	known := len(kinds) > 0
	switch namespace, rest, both := strings.Cut(name, "/"); {
	case !given:
		kind, name, kinds = "", text, kubecli.Kinds
	case !known: // NAMESPACE/NAME
		kind, x.Namespace, kinds = "", kind, kubecli.Kinds
	case both:
		x.Namespace, name = namespace, rest
	}
	s, err := x.findFirstSubject(ctx, clients, kinds, name)
	switch {
	case s != nil || err != nil:
		return s, err
	case given && !known:
		return nil, fmt.Errorf(
			"%w; and namespace %s has no object %s",
			kubecli.UnknownKindError(x.Namespace, func(kubecli.NamedKind) bool { return true }),
			x.Namespace,
			name,
		)
	}
	missing := objectMissingError{key: types.NamespacedName{Namespace: x.Namespace, Name: name}}
	if kind != "" {
		_, group, _ := strings.Cut(kind, ".")
		missing.kind = kinds[0].Names[0] + phrase.TextIf(group != "", ".%s", group)
		missing.canBeMachine = slices.ContainsFunc(
			kinds,
			func(k kubecli.NamedKind) bool { return k.Kind == request.KindMachine },
		)
	}
	missing.hint = clients.SimilarNameHint(
		ctx,
		list.Map(kinds, func(k kubecli.NamedKind) request.Kind { return k.Kind }),
		missing.key,
	)
	return nil, missing
}

// objectMissingError means that no object has the name.
type objectMissingError struct {
	kind         string // kind on the command line; empty if the user named no kind
	key          types.NamespacedName
	canBeMachine bool   // the name can be the name of a Machine of Millwright
	hint         string // clause with the object that the user may have meant; empty if there is none
}

func (e objectMissingError) Error() string {
	if e.kind == "node" {
		return "there is no node " + e.key.Name + e.hint
	}
	text := fmt.Sprintf("there is no %s %s in namespace %s", cmp.Or(e.kind, "object"), e.key.Name, e.key.Namespace) +
		e.hint
	return text + phrase.TextIf(e.canBeMachine, "%s", kubecli.DeletedMachineHint(e.key))
}

// findFirstSubject reads the first object of these kinds that has the name; nil if no object has the name. If an object
// of the kind with this name exists in both API groups, findFirstSubject returns an error, because the user must
// choose.
func (x *explainCommand) findFirstSubject(
	ctx context.Context,
	clients kubecli.Clients,
	kinds []kubecli.NamedKind,
	name string,
) (*subject, error) {
	var found *subject
	var of kubecli.NamedKind
	for _, k := range kinds {
		if found != nil && k.Names[0] != of.Names[0] {
			break
		}
		s, err := x.readSubject(ctx, clients, k, name, len(kinds) == 1)
		switch {
		case err != nil && found == nil && !apierrors.IsNotFound(err):
			return nil, err
		case err != nil || s == nil: // this API group has no readable object with the name
		case found != nil:
			return nil, fmt.Errorf(
				"both API groups have a %s %s/%s: give %[1]s.%[4]s/%[3]s or %[1]s.%[5]s/%[3]s",
				k.Names[0],
				x.Namespace,
				name,
				of.Group,
				k.Group,
			)
		default:
			found, of = s, k
		}
	}
	return found, nil
}

// readSubject reads an object. The argument meant is true if the user named the API group. If meant is false,
// readSubject returns nil for an object of Cluster API that Millwright does not reconcile.
func (x *explainCommand) readSubject(
	ctx context.Context,
	clients kubecli.Clients,
	of kubecli.NamedKind,
	name string,
	meant bool,
) (*subject, error) {
	if of.BelongsToClusterAPI() {
		return x.readClusterAPIObject(ctx, clients, of, name, meant)
	}
	kind, machines := of.Names[0], clients.MachineClient.MachineV1alpha1()
	switch of.Kind {
	case request.KindMachineDeployment:
		d, err := machines.MachineDeployments(x.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s := &subject{
			kind:               kind,
			workflowKind:       run.KindMachineDeployment,
			object:             d,
			generation:         d.Generation,
			observedGeneration: d.Status.ObservedGeneration,
			operation:          d.Status.CurrentOperation,
			provider:           readProviderOfClass(ctx, clients, d.Namespace, d.Spec.Template.Spec.Class.Name),
		}
		s.counts = &counts{
			Desired:   d.Spec.Replicas,
			Updated:   &d.Status.UpdatedReplicas,
			Ready:     d.Status.ReadyReplicas,
			Available: d.Status.AvailableReplicas,
		}
		s.idleText = availableText(d.Status.AvailableReplicas, d.Spec.Replicas)
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
			kind:               kind,
			workflowKind:       run.KindMachineSet,
			object:             set,
			generation:         set.Generation,
			observedGeneration: set.Status.ObservedGeneration,
			operation:          set.Status.CurrentOperation,
			provider:           readProviderOfClass(ctx, clients, set.Namespace, set.Spec.Template.Spec.Class.Name),
		}
		s.counts = &counts{
			Desired:   set.Spec.Replicas,
			Ready:     set.Status.ReadyReplicas,
			Available: set.Status.AvailableReplicas,
		}
		s.idleText = availableText(set.Status.AvailableReplicas, set.Spec.Replicas)
		return s, x.addMembers(ctx, clients, s, []metav1.Object{set})
	case request.KindMachine:
		m, err := machines.Machines(x.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return x.newMachineSubject(ctx, clients, m), nil
	case kubecli.KindClass:
		class, err := machines.MachineClasses(x.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s := &subject{
			kind:               kind,
			workflowKind:       run.KindMachineClass,
			object:             class,
			provider:           class.ProviderName(),
			idleText:           "provider " + class.ProviderName(),
			isIdleTextComplete: true,
		}
		if found, err := machines.Machines(x.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
			used := list.CountWhere(found.Items, func(m v1alpha1.Machine) bool { return m.Spec.Class.Name == name })
			s.idleText += ", used by " + phrase.CountText(used, "machine")
		}
		return s, nil
	default:
		return x.readMachineOfNode(ctx, clients, name)
	}
}

// availableText reports how many machines are available.
func availableText(n, of int32) string {
	return fmt.Sprintf("%d of %s available", n, phrase.CountText(int(of), "machine"))
}

// replacementText describes why a machine must be replaced; empty if the machine need not be replaced. For a machine
// without a set, the text has the command that deletes the machine.
func replacementText(m *v1alpha1.Machine) string {
	c := cache.FindNodeCondition(m.Status.Conditions, v1alpha1.MachineReplacementDue)
	if c == nil || c.Status != corev1.ConditionTrue {
		return ""
	}
	return ": " + c.Message + phrase.TextIf(
		metav1.GetControllerOf(m) == nil,
		"; no set replaces it: `kubectl delete machine -n %s %s`",
		m.Namespace,
		m.Name,
	)
}

func (x *explainCommand) newMachineSubject(ctx context.Context, clients kubecli.Clients, m *v1alpha1.Machine) *subject {
	s := &subject{
		kind:         "machine",
		workflowKind: run.KindMachine,
		object:       m,
		operation:    m.Status.CurrentOperation,
		idleText:     "phase " + kubecli.PhaseText(*m) + replacementText(m),
		hasNoStatus:  m.Status.CurrentStatus.Phase == "",
	}
	s.isIdleTextComplete = replacementText(m) != ""
	class, err := clients.MachineClient.MachineV1alpha1().
		MachineClasses(m.Namespace).
		Get(ctx, m.Spec.Class.Name, metav1.GetOptions{})
	if err == nil { // a user without the right to read classes gets no provider
		s.provider = class.ProviderName()
	} else {
		class = nil
	}
	s.machine = new(newMemberMachine(m, class, x.Now()))
	return s
}

// readProviderOfClass returns the provider of a class; empty if the class cannot be read.
func readProviderOfClass(ctx context.Context, clients kubecli.Clients, namespace, name string) string {
	class, err := clients.MachineClient.MachineV1alpha1().MachineClasses(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return class.ProviderName()
}

// readMachineOfNode returns the machine of a node. For a node without a machine, readMachineOfNode returns the node
// itself, with a text that no machine has the node.
func (x *explainCommand) readMachineOfNode(
	ctx context.Context,
	clients kubecli.Clients,
	name string,
) (*subject, error) {
	target := clients
	if x.targetKubeconfig != "" {
		var err error
		if target, err = x.NewClients(kubecli.ClusterAccess{Kubeconfig: x.targetKubeconfig}); err != nil {
			return nil, err
		}
	}
	node, err := target.Core.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := clients.MachineClient.MachineV1alpha1().Machines(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; cache.NodeNameOfMachine(m) == name ||
			ownership.IsSameInstance(m.Spec.ProviderID, node.Spec.ProviderID) {
			return x.newMachineSubject(ctx, clients, m), nil
		}
	}
	ready := "not known"
	if c := cache.FindNodeCondition(node.Status.Conditions, corev1.NodeReady); c != nil {
		ready = string(c.Status)
	}
	return &subject{kind: "node", object: node, idleText: "no Machine has this node; Ready is " + ready}, nil
}

func (x *explainCommand) addMembers(
	ctx context.Context,
	clients kubecli.Clients,
	s *subject,
	owners []metav1.Object,
) error {
	found, err := clients.MachineClient.MachineV1alpha1().Machines(x.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	classes := map[string]*v1alpha1.MachineClass{}
	if list, err := clients.MachineClient.MachineV1alpha1().
		MachineClasses(x.Namespace).
		List(ctx, metav1.ListOptions{}); err == nil {
		// without the right to list classes, the machines' sentences have fewer details
		for i := range list.Items {
			classes[list.Items[i].Name] = &list.Items[i]
		}
	}
	for i := range found.Items {
		m := &found.Items[i]
		if slices.ContainsFunc(owners, func(owner metav1.Object) bool { return metav1.IsControlledBy(m, owner) }) {
			s.members = append(s.members, newMemberMachine(m, classes[m.Spec.Class.Name], x.Now()))
		}
	}
	slices.SortFunc(s.members, func(a, b memberMachine) int { return cmp.Compare(a.name, b.name) })
	return nil
}

// processDownAdvice is the line after the lines about processes that are down.
const processDownAdvice = "Start what is missing, or look at its log; `millwright doctor` checks the whole installation."

// maxMachineRows is the maximum number of waiting machines in the table. The table then takes half a screen.
const maxMachineRows = 12
