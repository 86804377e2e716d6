// Package doctor has the command that checks an installation from outside.
package doctor

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
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// timeout bounds all checks together. Source: a person does not wait longer for an answer.
const timeout = 15 * time.Second

// command has the flags of the command.
type command struct {
	kubecli.Environment
	access     kubecli.Access
	temporalAt kubecli.TemporalFlags
	cluster    string
}

// Command returns the command doctor.
func Command(e kubecli.Environment) *cobra.Command {
	x := &command{Environment: e}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation: connections, CRDs, Temporal's namespace and search attributes, workers, bridge, providers",
		Long: `doctor checks from outside what an installation needs, and prints a line for each check: ok, or FAILED or WARNING with what to do: API
server and CRDs, the user's rights, the clock, Temporal, its namespace and search attributes, the heartbeats of worker and bridge, and who
polls the queues. A check comes before the checks that depend on it: without Temporal, for example, no worker has a heartbeat. doctor changes
nothing.

The exit code is 1 if a check has failed. A warning does not change the exit code: for example, a heartbeat is overdue, but its process
does not count as down yet.`,
		Example: `  millwright doctor`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return x.run(c.Context(), c.OutOrStdout()) },
	}
	x.access.Register(c)
	x.temporalAt.Register(c)
	c.Flags().
		StringVar(&x.cluster, "cluster-name", os.Getenv("CLUSTER_NAME"), "name of the installation: the value of --cluster-name of worker and bridge; default: the name in the Lease millwright-worker")
	return c
}

// finding is the result of a check.
type finding struct {
	what string
	bad  string // what is wrong; empty: the check has passed
	do   string // what the user can do about it
	mild bool   // it is a warning and does not change the exit code
}

func (x *command) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	clients, err := x.Clients(x.access)
	if err != nil {
		return err
	}
	temporal, err := x.Temporal(x.temporalAt)
	if err != nil {
		return err
	}
	defer temporal.Close()
	findings, classes, reached := x.objects(ctx, clients)
	server, ready := x.server(ctx, temporal)
	findings = append(findings, server...)
	if reached && clients.Leases != nil {
		findings = append(findings, x.heartbeats(ctx, clients, ready)...)
		findings = append(findings, x.atWork(ctx, clients)...)
	}
	if ready {
		installation := cmp.Or(run.Installation(x.cluster), clients.Installation(ctx))
		findings = append(findings, x.queues(ctx, temporal, installation, classes)...)
	}
	return say(out, findings)
}

// say prints the findings. It returns an error if a check has failed.
func say(out io.Writer, findings []finding) error {
	failed := 0
	for _, f := range findings {
		word, tone := "FAILED ", kubecli.Bad
		switch {
		case f.bad == "":
			_, _ = fmt.Fprintf(out, "%s      %s\n", kubecli.Paint(out, kubecli.Good, "ok"), f.what)
			continue
		case f.mild:
			word, tone = "WARNING", kubecli.Stuck
		default:
			failed++
		}
		_, _ = fmt.Fprintf(out, "%s %s: %s\n        %s\n", kubecli.Paint(out, tone, word), f.what, f.bad, f.do)
	}
	if failed > 0 {
		return fmt.Errorf("%s failed", phrase.Count(failed, "check"))
	}
	return nil
}

// objects checks the control cluster, and returns its classes. Reached is false if the API server does not answer or
// does not serve Millwright's API group.
func (x *command) objects(
	ctx context.Context,
	clients kubecli.Clients,
) (findings []finding, classes []v1alpha1.MachineClass, reached bool) {
	const api = "API server and CRDs"
	resources, err := clients.Machines.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		return []finding{
			{
				what: api,
				bad:  kubecli.OneLine(err.Error()),
				do:   "check --kubeconfig and --context; install the CRDs: kubectl apply -k deploy/crds",
			},
		}, nil, false
	}
	missing := []string{
		"machines",
		"machinesets",
		"machinedeployments",
		"machineclasses",
		"machinedrainrules",
		"rolloutpolicies",
	}
	for _, r := range resources.APIResources {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == r.Name })
	}
	f := finding{what: api, do: "install the CRDs of this version: kubectl apply -k deploy/crds"}
	if len(missing) > 0 {
		f.bad = "no " + strings.Join(missing, ", ")
	}
	findings = append(findings, f)
	found, err := clients.Machines.MachineV1alpha1().MachineClasses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		findings = append(
			findings,
			finding{
				what: "rights",
				bad:  kubecli.OneLine(err.Error()),
				do:   "ask for the right to list the objects of " + v1alpha1.GroupName,
			},
		)
	} else {
		classes = found.Items
	}
	findings = append(findings, clusterAPI(clients)...)
	return append(findings, x.self(ctx, clients)...), classes, true
}

// clusterAPI returns a finding about the short names in kubectl if Cluster API is installed, too; nil if it is not.
func clusterAPI(clients kubecli.Clients) []finding {
	f := finding{
		what: "Cluster API is installed, too: `kubectl get machines` may mean either; mc, mcs and mcd are Millwright's, ma, ms and md Cluster API's",
	}
	switch served, err := clients.ClusterAPI.Served(); {
	case err != nil:
		f.what = "Cluster API"
		f.bad = kubecli.OneLine(err.Error())
		f.do = "repeat the command; commands that need no object of Cluster API work"
		f.mild = true
	case !served:
		return nil
	}
	return []finding{f}
}

// heartbeats checks whether a worker and a bridge renew their Leases. Temporal is false if Temporal does not answer:
// then no worker renews its Lease.
func (x *command) heartbeats(ctx context.Context, clients kubecli.Clients, temporal bool) []finding {
	return list.Map(
		explain.ReadHeartbeats(ctx, clients.Leases, metav1.NamespaceAll, x.Now()),
		func(h explain.Heartbeat) finding {
			f := finding{what: "heartbeat of the " + h.Process}
			switch {
			case h.Err != nil:
				f.bad, f.do, f.mild = kubecli.OneLine(h.Err.Error()), "ask for the right to list Leases", true
			case h.Missing != "":
				f.what = "heartbeats"
				f.bad = h.Missing
				f.do = "look at its log, and at its Lease: kubectl get leases --all-namespaces --output custom-columns=NAME:.metadata.name,RENEWED:.spec.renewTime"
				if !temporal && h.Process == explain.Worker {
					f.do = "mend Temporal first: a worker has a heartbeat only while Temporal answers"
				}
			case h.Late:
				f.bad = fmt.Sprintf(
					"the last one was %s ago, and one is due each %s",
					kubecli.Age(h.At, x.Now()),
					phrase.Span(h.Each),
				)
				f.do = fmt.Sprintf(
					"the %s may be down; after %s it counts as down: repeat the command then, or look at its log",
					h.Process,
					phrase.Span(h.Silent),
				)
				f.mild = true
			default:
				f.what += ": " + kubecli.Age(h.At, x.Now()) + " ago"
			}
			return f
		},
	)
}

// leases returns the Leases with this name, the oldest first. It returns nil if they cannot be listed: heartbeats has
// reported that error already.
func (x *command) leases(ctx context.Context, clients kubecli.Clients, name string) []coordinationv1.Lease {
	of := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	found, err := clients.Leases.Leases(metav1.NamespaceAll).List(ctx, of)
	if err != nil {
		return nil
	}
	named := slices.DeleteFunc(found.Items, func(l coordinationv1.Lease) bool { return l.Name != name })
	slices.SortFunc(named, func(a, b coordinationv1.Lease) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace))
	})
	return named
}

// atWork says in which namespaces the installations of Millwright act, and which are left to
// machine-controller-manager.
func (x *command) atWork(ctx context.Context, clients kubecli.Clients) (findings []finding) {
	older := ""
	for _, lease := range x.leases(ctx, clients, v1alpha1.LeaseWorkers) {
		if by := lease.Spec.HolderIdentity; by == nil || *by == "" { // the Lease was released
			continue
		}
		name := lease.Annotations[v1alpha1.AnnotationInstallation]
		what := fmt.Sprintf("installation %s acts on %s", name, cache.ScopeOf(&lease))
		if older != "" {
			what += "; those of installation " + older + ", which is older, are left to it"
		}
		findings, older = append(findings, finding{what: what}), name
	}
	for _, name := range cache.MCMLeases() {
		for _, lease := range x.leases(ctx, clients, name) {
			by, renewed := cache.Holder(&lease, x.Now())
			if by == "" {
				continue
			}
			findings = append(findings, finding{what: fmt.Sprintf(
				"namespace %s is left to machine-controller-manager, which is at work there: %s renewed Lease %s %s ago",
				lease.Namespace,
				by,
				name,
				kubecli.Age(renewed, x.Now()),
			)})
		}
	}
	return findings
}

// mostSkew is the largest accepted difference between the clocks of this machine and of the API server. Source: the API
// server tells its time in whole seconds, and the answer is some time on its way.
const mostSkew = 5 * time.Second

// self asks the API server who the user is and what the user may change, and checks the clock of this machine.
func (x *command) self(ctx context.Context, clients kubecli.Clients) (findings []finding) {
	if clients.Identity == nil {
		return nil
	}
	self, err := clients.Self(ctx)
	if err != nil {
		return []finding{{what: "identity", bad: kubecli.OneLine(err.Error()), do: "check the credentials of the kubeconfig"}}
	}
	var may []string
	for _, right := range [][2]string{{"patch", "machines"}, {"patch", "machinedeployments"}, {"patch", "machineclasses"}} {
		allowed, err := clients.May(ctx, right[0], right[1])
		switch {
		case err != nil:
			return []finding{{what: "rights", bad: kubecli.OneLine(err.Error()), do: "check the credentials of the kubeconfig"}}
		case allowed:
			may = append(may, right[1])
		}
	}
	findings = append(
		findings,
		finding{what: fmt.Sprintf("user %s may change %s", self.User, cmp.Or(strings.Join(may, ", "), "nothing"))},
	)
	clock := finding{what: "clock of this machine", do: "set it by NTP: millwright prints times and ages by this clock"}
	if skew := x.Now().Sub(self.At); skew.Abs() > mostSkew {
		clock.bad = fmt.Sprintf("%s from that of the API server", phrase.Span(skew.Abs()))
	}
	return append(findings, clock)
}

// temporalTimeout bounds the first request to Temporal. Source: a third of timeout, so that time is left for the other
// checks.
const temporalTimeout = timeout / 3

// server checks Temporal, its namespace and the search attributes. Ready is true if Temporal answers and has the
// namespace.
func (x *command) server(ctx context.Context, temporal client.Client) (findings []finding, ready bool) {
	server := finding{what: "Temporal and its namespace"}
	first, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	_, err := temporal.WorkflowService().
		DescribeNamespace(first, &workflowservice.DescribeNamespaceRequest{Namespace: x.temporalAt.Namespace})
	if err != nil {
		server.bad, server.do = kubecli.OneLine(err.Error()), x.remedy(err)
		return []finding{server}, false
	}
	return []finding{server, x.attributes(ctx, temporal)}, true
}

// remedy says what to do against an error of the first request to Temporal.
func (x *command) remedy(err error) string {
	switch serviceerror.ToStatus(err).Code() {
	case codes.NotFound:
		return fmt.Sprintf(
			"check --temporal-namespace (%s), or make the namespace: millwright bootstrap",
			x.temporalAt.Namespace,
		)
	case codes.PermissionDenied, codes.Unauthenticated:
		return "check the API key, --temporal-api-key-path, or the certificate, --temporal-tls-cert-path"
	default:
		return fmt.Sprintf(
			"does a Temporal server run at %s? --temporal-address sets the address, else the variable TEMPORAL_ADDRESS",
			x.temporalAt.Address,
		)
	}
}

// queues checks that workers poll the queues of the installation and of the classes' providers.
func (x *command) queues(
	ctx context.Context,
	temporal client.Client,
	installation run.Installation,
	classes []v1alpha1.MachineClass,
) (findings []finding) {
	if err := installation.Check(); err != nil {
		return []finding{{what: "queues", bad: "the installation is not known", do: "give --cluster-name"}}
	}
	for _, name := range []string{run.QueueMachines, run.QueueKubernetes, run.QueueDrains} {
		findings = append(findings, x.queue(ctx, temporal, installation.Queue(name), "start a worker; see its log"))
	}
	var providers []string
	for i := range classes {
		providers = append(providers, classes[i].ProviderName())
	}
	slices.Sort(providers)
	for _, name := range slices.Compact(providers) {
		findings = append(
			findings,
			x.queue(ctx, temporal, installation.ProviderQueue(name), "start a worker with --queues=provider-"+name),
		)
	}
	return findings
}

// attributes checks the search attributes.
func (x *command) attributes(ctx context.Context, temporal client.Client) finding {
	f := finding{what: "search attributes", do: "millwright bootstrap"}
	have, err := temporal.OperatorService().
		ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: x.temporalAt.Namespace})
	if err != nil {
		f.bad = kubecli.OneLine(err.Error())
		return f
	}
	var missing []string
	for _, a := range run.Attributes() {
		if _, there := have.GetCustomAttributes()[a.Name]; !there {
			missing = append(missing, a.Name)
		}
	}
	if len(missing) > 0 {
		f.bad = "no " + strings.Join(missing, ", ")
	}
	return f
}

// queue checks that a worker polls a queue.
func (x *command) queue(ctx context.Context, temporal client.Client, name, do string) finding {
	n, err := kubecli.Pollers(ctx, temporal, x.temporalAt.Namespace, name, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	f := finding{what: "queue " + name, do: do}
	switch {
	case err != nil:
		f.bad = kubecli.OneLine(err.Error())
	case n == 0:
		f.bad = "no worker polls it"
	}
	f.what = cmp.Or(phrase.If(f.bad == "", "queue %s: %s", name, phrase.Count(n, "worker")), f.what)
	return f
}
