// Package doctor has the command that checks an installation from outside.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
	"millwright/workflows/run"
)

// checksTimeout is the timeout of all checks together. A user does not wait for more than 15 s.
const checksTimeout = 15 * time.Second

// doctorCommand is the command `millwright doctor` with its flags.
type doctorCommand struct {
	kubecli.Environment
	access        kubecli.ClusterAccess
	temporalFlags kubecli.TemporalFlags
	clusterName   string
	output        printers.OutputFormat
}

// Command returns the command doctor.
func Command(e kubecli.Environment) *cobra.Command {
	x := &doctorCommand{Environment: e}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation: connections, rights, processes, queues",
		Long: `doctor checks from outside what an installation needs, and prints a line for each check: ok, note, or FAILED or WARNING with what to do: API
server and CRDs, the user's rights, the clock, Temporal, its namespace and search attributes, the heartbeats of worker and bridge, what these
may not or cannot do, and who polls the queues. A check comes before the checks that depend on it: without Temporal, for example, no worker has
a heartbeat. doctor changes nothing.

The exit code is 1 if a check has failed. A warning does not change the exit code: for example, a heartbeat is overdue, but its process does
not count as down yet. A note is no error: it says what the user may not do or see. JSON and YAML have the same checks as a list of items, with
the result ok, note, warning or failed; the exit code is the same.`,
		Example: `  millwright doctor
  millwright doctor -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return x.run(c.Context(), c.OutOrStdout()) },
	}
	x.access.RegisterFlags(c)
	x.temporalFlags.RegisterFlags(c)
	kubecli.RegisterClusterName(c.Flags(), &x.clusterName)
	x.output.RegisterTextFlag(c)
	return c
}

// finding is the result of one check.
type finding struct {
	check     string
	problem   string // what is wrong; empty if the check has passed
	remedy    string // advice for the user if the check has not passed
	isWarning bool   // the finding is a warning, which does not change the exit code
	isNote    bool   // the finding is only information; the field check then contains the whole text
}

func (x *doctorCommand) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, checksTimeout)
	defer cancel()
	clients, err := x.NewClients(x.access)
	if err != nil {
		return err
	}
	temporal, err := x.DialTemporal(x.temporalFlags)
	if err != nil {
		return err
	}
	defer temporal.Close()
	findings, classes, reached := x.checkControlCluster(ctx, clients)
	isWorkerDown, mayReadLeases := false, true
	server, ready := x.checkTemporal(ctx, temporal)
	findings = append(findings, server...)
	if reached && clients.Leases != nil {
		heartbeats := explain.ReadHeartbeats(ctx, clients.Leases, metav1.NamespaceAll, x.Now())
		findings = append(findings, x.checkHeartbeats(heartbeats, ready)...)
		findings = append(findings, x.checkScopes(ctx, clients)...)
		isWorkerDown = list.CountWhere(heartbeats, isWorkerMissing) > 0
		mayReadLeases = !slices.ContainsFunc(heartbeats, isLeaseListForbidden)
	}
	switch installation := cmp.Or(run.Installation(x.clusterName), clients.FindInstallation(ctx)); {
	case !ready:
	case installation == "" && !mayReadLeases:
		findings = append(findings, finding{check: "the queues are not checked: give --cluster-name", isNote: true})
	default:
		shards, err := clients.ReadShards(ctx, installation)
		if err != nil {
			findings = append(findings, finding{check: "shards", problem: kubecli.CollapseSpaces(err.Error())})
			break
		}
		findings = append(findings, x.checkShards(ctx, clients, shards, classes)...)
		findings = append(findings, x.checkQueues(ctx, temporal, shards, classes, isWorkerDown)...)
	}
	return x.writeFindings(out, findings)
}

// Results of a check.
const (
	resultOK      = "ok"
	resultNote    = "note"
	resultWarning = "warning"
	resultFailed  = "failed"
)

// result returns the result of the check in one word.
func (f finding) result() string {
	switch {
	case f.isNote:
		return resultNote
	case f.problem == "":
		return resultOK
	case f.isWarning:
		return resultWarning
	default:
		return resultFailed
	}
}

// findingAnswer is one check in JSON and YAML.
type findingAnswer struct {
	Check   string `json:"check"`  // what was checked; of a note, the whole text
	Result  string `json:"result"` // ok, note, warning or failed
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"` // what a person can do about the problem
}

// writeFindings writes the findings in the format of the flag, and returns an error if a check has failed.
func (x *doctorCommand) writeFindings(out io.Writer, findings []finding) error {
	answers, failed := []findingAnswer{}, 0
	for _, f := range findings {
		a := findingAnswer{Check: f.check, Result: f.result(), Problem: f.problem}
		if a.Problem != "" {
			a.Remedy = f.remedy
		}
		if answers = append(answers, a); a.Result == resultFailed {
			failed++
		}
	}
	if x.output != printers.OutputText {
		if err := x.output.Encode(out, map[string]any{"items": answers}); err != nil {
			return err
		}
	} else {
		for _, a := range answers {
			a.print(out)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s failed", phrase.CountText(failed, "check"))
	}
	return nil
}

// print prints the check as text.
func (a findingAnswer) print(out io.Writer) {
	word, tone := "FAILED ", printers.ToneBad
	switch a.Result {
	case resultNote:
		_, _ = fmt.Fprintf(out, "note    %s\n", a.Check)
		return
	case resultOK:
		_, _ = fmt.Fprintf(out, "%s      %s\n", printers.Paint(out, printers.ToneGood, "ok"), a.Check)
		return
	case resultWarning:
		word, tone = "WARNING", printers.ToneWarning
	}
	_, _ = fmt.Fprintf(out, "%s %s: %s\n        %s\n", printers.Paint(out, tone, word), a.Check, a.Problem, a.Remedy)
}

// checkControlCluster checks the control cluster, and returns its MachineClasses. The result reached is false if the
// API server does not answer or does not serve Millwright's API group.
func (x *doctorCommand) checkControlCluster(
	ctx context.Context,
	clients kubecli.Clients,
) (findings []finding, classes []v1alpha1.MachineClass, reached bool) {
	const api = "API server and CRDs"
	resources, err := clients.MachineClient.Discovery().
		ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		return []finding{
			{
				check:   api,
				problem: kubecli.CollapseSpaces(err.Error()),
				remedy:  "check --kubeconfig and --context; install the CRDs: kubectl apply -k deploy/crds",
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
	f := finding{check: api, remedy: "install the CRDs of this version: kubectl apply -k deploy/crds"}
	if len(missing) > 0 {
		f.problem = "no " + strings.Join(missing, ", ")
	}
	findings = append(findings, f)
	found, err := clients.MachineClient.MachineV1alpha1().
		MachineClasses(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		text := "you may not list the MachineClasses of all namespaces: the queues of providers are not checked"
		findings = append(findings, finding{check: text, isNote: true})
	case err != nil:
		findings = append(
			findings,
			finding{
				check:   "rights",
				problem: kubecli.CollapseSpaces(err.Error()),
				remedy:  "ask for the right to list the objects of " + v1alpha1.GroupName,
			},
		)
	default:
		classes = found.Items
	}
	findings = append(findings, shortNameFindings(clients)...)
	return append(findings, x.checkUserAndClock(ctx, clients)...), classes, true
}

// shortNameFindings returns a finding about kubectl's short names if Cluster API is installed too; otherwise nil.
func shortNameFindings(clients kubecli.Clients) []finding {
	f := finding{
		check: "Cluster API is installed, too: `kubectl get machines` may mean either; mc, mcs and mcd are Millwright's, ma, ms and md Cluster API's",
	}
	switch served, err := clients.ClusterAPI.IsServed(); {
	case err != nil:
		f.check = "Cluster API"
		f.problem = kubecli.CollapseSpaces(err.Error())
		f.remedy = "repeat the command; commands that need no object of Cluster API work"
		f.isWarning = true
	case !served:
		return nil
	}
	return []finding{f}
}

// checkHeartbeats checks whether a worker and a bridge renew their Leases. The parameter temporal is false if Temporal
// does not answer, because workers then do not renew their Lease.
func (x *doctorCommand) checkHeartbeats(heartbeats []explain.Heartbeat, temporal bool) []finding {
	findings := list.Map(
		heartbeats,
		func(h explain.Heartbeat) finding {
			f := finding{check: "heartbeat of the " + h.Process}
			switch {
			case isLeaseListForbidden(h):
				f.isNote = true
				f.check = "you may not list the Leases of all namespaces: whether a " + h.Process + " is at work is not known"
			case h.Err != nil:
				f.problem, f.remedy, f.isWarning = kubecli.CollapseSpaces(h.Err.Error()), "ask for the right to list Leases", true
			case h.MissingMessage != "":
				f.check = "heartbeats"
				f.problem = h.MissingMessage
				f.remedy = "look at its log, and at its Lease: kubectl get leases --all-namespaces --output custom-columns=NAME:.metadata.name,RENEWED:.spec.renewTime"
				if !temporal && h.Process == explain.WorkerProcess {
					f.remedy = "mend Temporal first: a worker has a heartbeat only while Temporal answers"
				}
			case h.IsOverdue:
				f.problem = fmt.Sprintf(
					"the last one was %s ago, and one is due each %s",
					kubecli.AgeText(h.RenewTime, x.Now()),
					phrase.AgeText(h.RenewInterval),
				)
				f.remedy = fmt.Sprintf(
					"the %s may be down; after %s it counts as down: repeat the command then, or look at its log",
					h.Process,
					phrase.AgeText(h.DownAfter),
				)
				f.isWarning = true
			default:
				f.check += ": " + kubecli.AgeText(h.RenewTime, x.Now()) + " ago"
			}
			return f
		},
	)
	for _, h := range heartbeats {
		findings = append(findings, problemFindings(h, x.Now())...)
	}
	return findings
}

// problemFindings returns a finding for each problem on the Leases of a kind of process.
func problemFindings(h explain.Heartbeat, now time.Time) (findings []finding) {
	for _, report := range h.Reports {
		for _, p := range report.Problems {
			findings = append(findings, finding{
				check:   h.Process + " " + report.Identity,
				problem: p.Text(h.Process) + " (since " + kubecli.TimeWithAgeText(p.FirstFailure, now) + ")",
				remedy:  p.Remedy(h.Process),
			})
		}
	}
	return findings
}

// isLeaseListForbidden reports whether the user may not list the Leases of a heartbeat.
func isLeaseListForbidden(h explain.Heartbeat) bool { return apierrors.IsForbidden(h.Err) }

// isWorkerMissing reports whether h is the heartbeat of the workers and no worker is active.
func isWorkerMissing(h explain.Heartbeat) bool {
	return h.Process == explain.WorkerProcess && h.MissingMessage != ""
}

// listLeasesWithName returns the Leases with this name, the oldest first. If the Leases cannot be listed,
// listLeasesWithName returns nil, because checkHeartbeats has already reported the error.
func (x *doctorCommand) listLeasesWithName(
	ctx context.Context,
	clients kubecli.Clients,
	name string,
) []coordinationv1.Lease {
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

// checkScopes returns a finding for each installation of Millwright, with its namespaces, and for each namespace
// that is left to machine-controller-manager.
func (x *doctorCommand) checkScopes(ctx context.Context, clients kubecli.Clients) (findings []finding) {
	older := ""
	for _, lease := range x.listLeasesWithName(ctx, clients, v1alpha1.LeaseWorkers) {
		if by := lease.Spec.HolderIdentity; by == nil || *by == "" { // the Lease has no holder
			continue
		}
		name := lease.Annotations[v1alpha1.AnnotationInstallation]
		what := fmt.Sprintf("installation %s acts on %s", name, cache.ScopeOfLease(&lease))
		if older != "" {
			what += "; those of installation " + older + ", which is older, are left to it"
		}
		findings, older = append(findings, finding{check: what}), name
	}
	for _, name := range cache.MCMLeaseNames() {
		for _, lease := range x.listLeasesWithName(ctx, clients, name) {
			by, renewed := cache.MCMLeaseHolder(&lease, x.Now())
			if by == "" {
				continue
			}
			findings = append(findings, finding{check: fmt.Sprintf(
				"namespace %s is left to machine-controller-manager, which is at work there: %s renewed Lease %s %s ago",
				lease.Namespace,
				by,
				name,
				kubecli.AgeText(renewed, x.Now()),
			)})
		}
	}
	return findings
}

// maxClockSkew is the largest accepted difference between the clocks of this machine and of the API server. The API
// server reports its time in whole seconds, and its response takes some time.
const maxClockSkew = 5 * time.Second

// checkUserAndClock asks the API server who the user is and what the user may change, and checks the clock of this
// machine.
func (x *doctorCommand) checkUserAndClock(ctx context.Context, clients kubecli.Clients) (findings []finding) {
	if clients.UserReviews == nil {
		return nil
	}
	self, err := clients.ReviewUser(ctx)
	if err != nil {
		return []finding{
			{check: "identity", problem: kubecli.CollapseSpaces(err.Error()), remedy: "check the credentials of the kubeconfig"},
		}
	}
	var may []string
	for _, right := range [][2]string{{"patch", "machines"}, {"patch", "machinedeployments"}, {"patch", "machineclasses"}} {
		allowed, err := clients.IsAllowed(ctx, right[0], right[1])
		switch {
		case err != nil:
			return []finding{
				{check: "rights", problem: kubecli.CollapseSpaces(err.Error()), remedy: "check the credentials of the kubeconfig"},
			}
		case allowed:
			may = append(may, right[1])
		}
	}
	user := finding{check: fmt.Sprintf("user %s may change %s", self.User, strings.Join(may, ", "))}
	if len(may) == 0 { // a RoleBinding in one namespace may allow more, but this command checks no single namespace
		user.check, user.isNote = "user "+self.User+" may only read, if no RoleBinding of a namespace allows more", true
	}
	findings = append(findings, user)
	clock := finding{
		check:  "clock of this machine",
		remedy: "set it by NTP: millwright prints times and ages by this clock",
	}
	if skew := x.Now().Sub(self.ServerTime); skew.Abs() > maxClockSkew {
		clock.problem = fmt.Sprintf("%s from that of the API server", phrase.AgeText(skew.Abs()))
	}
	return append(findings, clock)
}

// temporalTimeout bounds the first request to Temporal. The timeout is a third of the total timeout, so that enough
// time is left for the other checks.
const temporalTimeout = checksTimeout / 3

// checkTemporal checks Temporal, its namespace and the search attributes. The result ready is true if Temporal answers
// and has the namespace.
func (x *doctorCommand) checkTemporal(ctx context.Context, temporal client.Client) (findings []finding, ready bool) {
	server := finding{check: "Temporal and its namespace"}
	first, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	_, err := temporal.WorkflowService().
		DescribeNamespace(first, &workflowservice.DescribeNamespaceRequest{Namespace: x.temporalFlags.Namespace})
	if err != nil {
		server.problem, server.remedy = kubecli.CollapseSpaces(err.Error()), x.temporalRemedy(err)
		return []finding{server}, false
	}
	return []finding{server, x.checkSearchAttributes(ctx, temporal)}, true
}

// temporalRemedy returns advice for an error of the first request to Temporal.
func (x *doctorCommand) temporalRemedy(err error) string {
	switch serviceerror.ToStatus(err).Code() {
	case codes.NotFound:
		return fmt.Sprintf(
			"check --temporal-namespace (%s), or make the namespace: millwright bootstrap",
			x.temporalFlags.Namespace,
		)
	case codes.PermissionDenied, codes.Unauthenticated:
		return "check the API key, --temporal-api-key-path, or the certificate, --temporal-tls-cert-path"
	default:
		return fmt.Sprintf(
			"does a Temporal server run at %s? --temporal-address sets the address, else the variable TEMPORAL_ADDRESS",
			x.temporalFlags.Address,
		)
	}
}

// checkSearchAttributes checks that the namespace in Temporal has Millwright's search attributes.
func (x *doctorCommand) checkSearchAttributes(ctx context.Context, temporal client.Client) finding {
	f := finding{check: "search attributes", remedy: "millwright bootstrap"}
	have, err := temporal.OperatorService().
		ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: x.temporalFlags.Namespace})
	if err != nil {
		f.problem = kubecli.CollapseSpaces(err.Error())
		return f
	}
	var missing []string
	for _, a := range run.SearchAttributes() {
		if _, there := have.GetCustomAttributes()[a.Name]; !there {
			missing = append(missing, a.Name)
		}
	}
	if len(missing) > 0 {
		f.problem = "no " + strings.Join(missing, ", ")
	}
	return f
}
