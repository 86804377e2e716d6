// Package version has the command that prints the versions of all parts of an installation.
package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/workflowservice/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/process/commandline"
	"millwright/starter/explain"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

// answerTimeout is how long the command waits for the API server, and for Temporal.
const answerTimeout = 5 * time.Second

// versionCommand is the command `millwright version` with its flags.
type versionCommand struct {
	kubecli.Environment
	access        kubecli.ClusterAccess
	temporalFlags kubecli.TemporalFlags
	output        printers.OutputFormat
}

// Command returns the command version.
func Command(e kubecli.Environment) *cobra.Command {
	x := &versionCommand{Environment: e}
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of all parts of an installation",
		Long: `version prints the build of this program, of worker and bridge (from their Leases: the build of the process that wrote the Lease last), and the
versions of the API server and of the Temporal server. A version that cannot be read is "unknown", with the reason. The exit code is 0 also then.`,
		Example: `  millwright version
  millwright version -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			parts := x.readParts(c.Context())
			if x.output != printers.OutputText {
				return x.output.Encode(c.OutOrStdout(), map[string]any{"items": parts})
			}
			var rows [][]any
			for _, p := range parts {
				rows = append(rows, []any{p.Name, p.text(x.Now())})
			}
			return printers.WriteTable(c.OutOrStdout(), rows)
		},
	}
	x.access.RegisterFlags(c)
	x.temporalFlags.RegisterFlags(c)
	x.output.RegisterTextFlag(c)
	return c
}

// Names of the parts.
const (
	partClient    = "client"
	partAPIServer = "API server"
	partTemporal  = "Temporal"
)

// part is one part of an installation, as JSON and YAML show it. Unknown and empty fields are omitted.
type part struct {
	Name          string `json:"name"` // client, worker, bridge, API server or Temporal
	Version       string `json:"version,omitempty"`
	UnknownReason string `json:"unknown,omitempty"` // why the version is not known; empty: it is known

	Build *commandline.Build `json:"build,omitempty"` // set only for the client

	Lease     string    `json:"lease,omitempty"`    // NAMESPACE/NAME of the Lease of a worker or bridge
	RenewedAt time.Time `json:"renewedAt,omitzero"` // last renewal of the Lease
	Holder    string    `json:"holder,omitempty"`   // process that wrote the Lease last
}

// text returns the version, or why it is not known.
func (p part) text(now time.Time) string {
	text := p.Version
	if p.UnknownReason != "" {
		text = "unknown: " + p.UnknownReason
	}
	if p.Lease != "" && !p.RenewedAt.IsZero() {
		text += fmt.Sprintf(" (%s, %s ago)", p.Holder, kubecli.AgeText(p.RenewedAt, now))
	}
	return text
}

// readParts reads the versions of all parts. A part that cannot be read has a reason instead of a version.
func (x *versionCommand) readParts(ctx context.Context) []part {
	build := commandline.ReadBuild()
	parts := []part{{Name: partClient, Version: build.String(), Build: &build}}
	clients, err := x.NewClients(x.access)
	if err != nil {
		for _, name := range []string{explain.WorkerProcess, explain.BridgeProcess, partAPIServer} {
			parts = append(parts, unknownPart(name, err))
		}
	} else {
		parts = append(parts, leaseParts(ctx, clients, explain.WorkerProcess, v1alpha1.LeaseWorkers)...)
		parts = append(parts, leaseParts(ctx, clients, explain.BridgeProcess, explain.LeaseBridges)...)
		parts = append(parts, apiServerPart(ctx, clients))
	}
	return append(parts, x.temporalPart(ctx))
}

func unknownPart(name string, err error) part {
	return part{Name: name, UnknownReason: kubecli.CollapseSpaces(err.Error())}
}

// leaseParts returns a part for each Lease of a kind of process: several installations have several Leases.
func leaseParts(ctx context.Context, clients kubecli.Clients, name, leaseName string) (parts []part) {
	if clients.Leases == nil {
		return []part{unknownPart(name, errors.New("there is no client of Leases"))}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	found, err := clients.Leases.Leases(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + leaseName})
	if err != nil {
		return []part{unknownPart(name, err)}
	}
	slices.SortFunc(found.Items, func(a, b coordinationv1.Lease) int { return cmp.Compare(a.Namespace, b.Namespace) })
	for i := range found.Items {
		if lease := &found.Items[i]; lease.Name == leaseName { // the fake client ignores the field selector
			parts = append(parts, leasePart(name, lease))
		}
	}
	if parts == nil {
		return []part{unknownPart(name, fmt.Errorf("there is no Lease %s: none has run", leaseName))}
	}
	return parts
}

func leasePart(name string, lease *coordinationv1.Lease) part {
	p := part{Name: name, Version: lease.Annotations[v1alpha1.AnnotationVersion], Lease: kubecli.KeyOfObject(lease)}
	if p.Version == "" {
		p.UnknownReason = fmt.Sprintf(
			"Lease %s has no annotation %s: the %s is of an earlier build",
			p.Lease,
			v1alpha1.AnnotationVersion,
			name,
		)
	}
	if by := lease.Spec.HolderIdentity; by != nil {
		p.Holder = *by
	}
	if at := lease.Spec.RenewTime; at != nil {
		p.RenewedAt = at.Time
	}
	return p
}

// apiServerPart asks the API server for its version. The request has no context, so apiServerPart does not wait for its
// end.
func apiServerPart(ctx context.Context, clients kubecli.Clients) part {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answers := make(chan part, 1)
	go func() {
		info, err := clients.MachineClient.Discovery().ServerVersion()
		if err != nil {
			answers <- unknownPart(partAPIServer, err)
			return
		}
		answers <- part{Name: partAPIServer, Version: info.GitVersion}
	}()
	select {
	case p := <-answers:
		return p
	case <-ctx.Done():
		return unknownPart(partAPIServer, errors.New("it does not answer"))
	}
}

func (x *versionCommand) temporalPart(ctx context.Context) part {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	temporal, err := x.DialTemporal(x.temporalFlags)
	if err != nil {
		return unknownPart(partTemporal, err)
	}
	defer temporal.Close()
	info, err := temporal.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return unknownPart(
			partTemporal,
			fmt.Errorf("%s at %s", strings.TrimSuffix(err.Error(), "."), x.temporalFlags.Address),
		)
	}
	return part{Name: partTemporal, Version: info.GetServerVersion()}
}
