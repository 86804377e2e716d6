package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/takeover"
	"millwright/observe/cache"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

// namespaceCheck is the result of check for one namespace, as JSON and YAML show it.
type namespaceCheck struct {
	Namespace    string             `json:"namespace"`
	Ready        bool               `json:"ready"` // nothing must be done first
	MachineCount int                `json:"machines"`
	Findings     []takeover.Finding `json:"findings"`
}

// checkNamespaces prints a line for each namespace.
func (x *migrateCommand) checkNamespaces(ctx context.Context, out io.Writer) error {
	all, err := x.readAllFacts(ctx)
	if err != nil {
		return err
	}
	checks, blocked := []namespaceCheck{}, 0
	l := printers.Listing{
		Table:     [][]any{{"NAMESPACE", "READY", "MACHINES", "NOTES", "FIRST"}},
		EmptyText: "no namespace with Machines belongs to Millwright",
	}
	for _, f := range all {
		findings := takeover.Decide(f)
		blockers := takeover.Blockers(findings)
		check := namespaceCheck{f.Namespace, len(blockers) == 0, len(f.Machines), findings}
		ready, first := "yes", ""
		if !check.Ready {
			blocked++
			ready, first = "no", blockers[0].Object+": "+blockers[0].Message
			first += phrase.TextIf(len(blockers) > 1, "; and %s", phrase.CountText(len(blockers)-1, "more finding"))
		}
		notes := 0
		for _, finding := range findings {
			if finding.Weight == takeover.WeightNote {
				notes++
			}
		}
		checks = append(checks, check)
		l.Names = append(l.Names, "namespace/"+f.Namespace)
		l.Table = append(l.Table, []any{f.Namespace, ready, check.MachineCount, notes, first})
	}
	l.Items = checks
	if err := x.output.Write(out, l); err != nil {
		return err
	}
	if blocked > 0 {
		return fmt.Errorf("%d of %s cannot be taken over yet", blocked, phrase.CountText(len(all), "namespace"))
	}
	return nil
}

// readAllFacts reads the facts about each namespace with Machines that belongs to Millwright, sorted by namespace. If
// the nodes of a namespace's target cannot be read, the facts of this namespace say why.
func (x *migrateCommand) readAllFacts(ctx context.Context) ([]takeover.Facts, error) {
	if x.targetFlags.HasTargetPerNamespace() && x.targetKubeconfig != "" {
		return nil, errors.New(
			"--target-secret: --target-kubeconfig gives all namespaces one target cluster; set only one of the two",
		)
	}
	if err := x.scopeFlags.Complete(); err != nil {
		return nil, err //nolint:wrapcheck // the error names the flag
	}
	clients, err := x.NewClients(x.ClusterAccess)
	if err != nil {
		return nil, err
	}
	namespaces := map[string]bool{}
	err = cache.VisitMachines(
		ctx, clients.MachineClient, metav1.NamespaceAll, func(m *v1alpha1.Machine) { namespaces[m.Namespace] = true },
	)
	if err != nil {
		return nil, fmt.Errorf("list the Machines of all namespaces: %w", err)
	}
	var all []takeover.Facts
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		var unreadable takeover.Facts
		if !x.isInScope(ctx, clients, namespace, &unreadable) {
			continue
		}
		of := *x
		of.Namespace = namespace
		f, err := of.readFacts(ctx)
		if err != nil {
			f.UnreadableObjects = append(f.UnreadableObjects, kubecli.CollapseSpaces(err.Error()))
		}
		f.UnreadableObjects = append(f.UnreadableObjects, unreadable.UnreadableObjects...)
		all = append(all, f)
	}
	return all, nil
}
