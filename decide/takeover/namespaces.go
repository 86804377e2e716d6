package takeover

import (
	"fmt"
	"slices"
	"strings"

	"millwright/decide/phrase"
)

// OtherNamespace is another namespace in which Millwright would act when it starts.
type OtherNamespace struct {
	Namespace    string
	MachineCount int
	Leases       []Lease // Leases of MCM's processes in the namespace
}

// namespaceFindings returns findings about the other namespaces that Millwright would take over at the same time. The
// flags of worker and bridge can exclude namespaces. All namespaces have the same target cluster.
func (f Facts) namespaceFindings() (all []Finding) {
	others := slices.SortedFunc(
		slices.Values(f.OtherNamespaces),
		func(a, b OtherNamespace) int { return strings.Compare(a.Namespace, b.Namespace) },
	)
	for i, o := range others {
		if i == maxNamesPerFinding {
			return append(
				all,
				Finding{
					WeightBlocker,
					"namespaces",
					fmt.Sprintf("%d more namespaces have Machines", len(others)-i),
					f.namespaceHint(),
				},
			)
		}
		says := "Millwright acts on its " + phrase.CountText(
			o.MachineCount,
			"Machine",
		) + ", too, with the same target cluster"
		if slices.ContainsFunc(o.Leases, f.isHeldLease) {
			says += ", while machine-controller-manager is at work there"
		}
		all = append(all, Finding{WeightBlocker, "namespace/" + o.Namespace, says, f.namespaceHint()})
	}
	return all
}

func (f Facts) namespaceHint() string {
	return "if its nodes are in another cluster, or it is taken over later, start worker and bridge with --namespaces=" + f.Namespace +
		", and give this command the same flag; else take it over together with this namespace, and name both in the flag"
}

// isHeldLease reports whether a Lease is valid and has a holder.
func (f Facts) isHeldLease(l Lease) bool {
	return l.Holder != "" && f.Now.Sub(l.RenewedAt) <= l.Duration
}
