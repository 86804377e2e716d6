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
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// timeout bounds all checks together. Source: a person waits that long.
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
		Long: `doctor checks from outside what an installation needs, and prints a line for each check: ok, or FAILED with what to do: API server and
CRDs, the user's rights, the clock, the heartbeats of worker and bridge, Temporal, its namespace and search attributes, and who polls the
queues. It changes nothing. The exit code is 1 if a check has failed.`,
		Example: `  starter doctor`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return x.run(c.Context(), c.OutOrStdout()) },
	}
	x.access.Register(c)
	x.temporalAt.Register(c)
	c.Flags().StringVar(&x.cluster, "cluster-name", os.Getenv("CLUSTER_NAME"), "name of the installation, as of its worker and bridge; default: that of the Lease millwright-worker")
	return c
}

// finding is the result of a check.
type finding struct {
	what string
	bad  string // what is wrong; empty: nothing
	do   string // what to do against it
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
	findings, classes := x.objects(ctx, clients)
	findings = append(findings, x.temporal(ctx, temporal, cmp.Or(run.Installation(x.cluster), clients.Installation(ctx)), classes)...)
	failed := 0
	for _, f := range findings {
		if f.bad == "" {
			_, _ = fmt.Fprintf(out, "%s      %s\n", kubecli.Paint(out, kubecli.Good, "ok"), f.what)
			continue
		}
		failed++
		_, _ = fmt.Fprintf(out, "%s  %s: %s\n        %s\n", kubecli.Paint(out, kubecli.Bad, "FAILED"), f.what, f.bad, f.do)
	}
	if failed > 0 {
		return fmt.Errorf("%s failed", phrase.Count(failed, "check"))
	}
	return nil
}

// objects checks the control cluster, and returns the classes in it.
func (x *command) objects(ctx context.Context, clients kubecli.Clients) (findings []finding, classes []v1alpha1.MachineClass) {
	const api = "API server and CRDs"
	resources, err := clients.Machines.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		return []finding{{api, kubecli.OneLine(err.Error()), "check --kubeconfig and --context; install the CRDs: kubectl apply -k deploy/crds"}}, nil
	}
	missing := []string{"machines", "machinesets", "machinedeployments", "machineclasses", "machinedrainrules", "rolloutpolicies"}
	for _, r := range resources.APIResources {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == r.Name })
	}
	f := finding{what: api, do: "install the CRDs of this version: kubectl apply -k deploy/crds"}
	if len(missing) > 0 {
		f.bad = "no " + strings.Join(missing, ", ")
	}
	findings = append(findings, f)
	list, err := clients.Machines.MachineV1alpha1().MachineClasses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		findings = append(findings, finding{"rights", kubecli.OneLine(err.Error()), "ask for the right to list the objects of " + v1alpha1.GroupName})
	} else {
		classes = list.Items
	}
	findings = append(findings, x.self(ctx, clients)...)
	silent := explain.Heartbeats(ctx, clients.Leases, x.Now())
	if clients.Leases != nil && len(silent) == 0 {
		findings = append(findings, finding{what: "heartbeats of worker and bridge"})
	}
	for _, line := range silent {
		findings = append(findings, finding{"heartbeats", line, "look at its log, and at its Lease: kubectl get leases --all-namespaces"})
	}
	return findings, classes
}

// mostSkew is how far the clock of this machine may be from that of the API server. Source: its time comes in whole seconds, and an answer
// takes a moment.
const mostSkew = 5 * time.Second

// self checks who the user is to the API server, what that user may change, and the clock of this machine.
func (x *command) self(ctx context.Context, clients kubecli.Clients) (findings []finding) {
	if clients.Identity == nil {
		return nil
	}
	self, err := clients.Self(ctx)
	if err != nil {
		return []finding{{"identity", kubecli.OneLine(err.Error()), "check the credentials of the kubeconfig"}}
	}
	var may []string
	for _, right := range [][2]string{{"patch", "machines"}, {"patch", "machinedeployments"}, {"patch", "machineclasses"}} {
		allowed, err := clients.May(ctx, right[0], right[1])
		switch {
		case err != nil:
			return []finding{{"rights", kubecli.OneLine(err.Error()), "check the credentials of the kubeconfig"}}
		case allowed:
			may = append(may, right[1])
		}
	}
	findings = append(findings, finding{what: fmt.Sprintf("user %s may change %s", self.User, cmp.Or(strings.Join(may, ", "), "nothing"))})
	clock := finding{what: "clock of this machine", do: "set it by NTP: starter prints times and ages by this clock"}
	if skew := x.Now().Sub(self.At); skew.Abs() > mostSkew {
		clock.bad = fmt.Sprintf("%s from that of the API server", phrase.Span(skew.Abs()))
	}
	return append(findings, clock)
}

// temporal checks Temporal, and who polls the queues of the installation.
func (x *command) temporal(ctx context.Context, temporal client.Client, installation run.Installation, classes []v1alpha1.MachineClass) (findings []finding) {
	const server = "Temporal and its namespace"
	_, err := temporal.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: x.temporalAt.Namespace})
	if err != nil {
		return []finding{{server, kubecli.OneLine(err.Error()), "check --temporal-address; make the namespace: starter bootstrap"}}
	}
	findings = append(findings, finding{what: server}, x.attributes(ctx, temporal))
	if err := installation.Check(); err != nil {
		return append(findings, finding{"queues", "the installation is not known", "give --cluster-name"})
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
		findings = append(findings, x.queue(ctx, temporal, installation.ProviderQueue(name), "start a worker with --queues=provider-"+name))
	}
	return findings
}

// attributes checks the search attributes.
func (x *command) attributes(ctx context.Context, temporal client.Client) finding {
	f := finding{what: "search attributes", do: "starter bootstrap"}
	have, err := temporal.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: x.temporalAt.Namespace})
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
