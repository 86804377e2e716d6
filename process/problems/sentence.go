package problems

import (
	"strings"

	"millwright/decide/phrase"
)

// Text returns a sentence about what a process cannot do, with the server's message. The parameter process is worker or
// bridge.
func (p Problem) Text(process string) string {
	what := p.Verb + " " + p.Resource +
		phrase.TextIf(
			p.Namespace != "",
			" in namespace %s",
			p.Namespace,
		) + phrase.TextIf(p.AffectsOtherNamespaces, " and others") +
		p.System.clusterPhrase(" of ")
	switch {
	case p.System == Temporal && p.Kind == Unanswered:
		return "Temporal does not serve " + p.Verb + " to the " + process + ": " + p.Message
	case p.System == Temporal:
		return "Temporal refuses " + p.Verb + " to the " + process + ": " + p.Message
	case p.Kind == Unanswered:
		return "the " + process + " gets no answer from the API server" + p.System.clusterPhrase(" of ") + ": " + p.Message
	case p.Kind == Unauthenticated:
		return "the API server" + p.System.clusterPhrase(
			" of ",
		) + " does not accept the credentials of the " + process + ": " + p.Message
	case p.Kind == Refused:
		return "the " + process + " may not " + what + ": " + p.Message
	default:
		return "the " + process + " cannot " + what + ": " + p.Message
	}
}

// clusterPhrase returns the name of the system's cluster after a preposition; empty for the control cluster.
func (s System) clusterPhrase(preposition string) string {
	return phrase.TextIf(s == TargetCluster, "%sthe target cluster", preposition) +
		phrase.TextIf(s.IsWorkloadCluster(), "%sthe workload cluster %s", preposition, s)
}

// kubeconfigLocation returns where the credentials of a process for a cluster are.
func (s System) kubeconfigLocation(process string) string {
	switch {
	case s == TargetCluster:
		return "--target-kubeconfig of the " + process
	case s.IsWorkloadCluster():
		return "Secret " + string(s) + "-kubeconfig"
	default:
		return "--kubeconfig of the " + process + " (without it: its service account)"
	}
}

// Remedy returns how an operator can solve the problem.
func (p Problem) Remedy(process string) string {
	at := phrase.TextIf(p.System != ControlCluster, " (%s)", p.System.clusterPhrase("in "))
	switch {
	case p.System == Temporal && p.Kind == Unanswered:
		return "does Temporal run at --temporal-address of the " + process + "? look at its services and at the network"
	case p.System == Temporal && p.Kind == Refused:
		return "check --temporal-namespace, --temporal-api-key-path and --temporal-tls-cert-path of the " + process
	case p.System == Temporal:
		return "raise the limit of Temporal's namespace, or run fewer processes"
	case p.Kind == Unanswered:
		return "check " + p.System.kubeconfigLocation(process) + ", and the network to the API server" + at
	case p.Kind == Unauthenticated:
		return "renew the credentials in " + p.System.kubeconfigLocation(process)
	case p.Kind == Refused && p.System.IsWorkloadCluster():
		return "give this right to the user in " + p.System.kubeconfigLocation(process) + at
	case p.Kind == Refused:
		return "is each of its roles bound, and of its version? " +
			"kubectl get clusterrolebindings,rolebindings -A -o wide | grep millwright-" + process + at
	case p.Kind == Unserved:
		return "is the CRD installed? kubectl api-resources --api-group=" + p.APIGroup() + at
	default:
		return "look at the API server and its webhooks: kubectl get --raw '/readyz?verbose'" + at
	}
}

// APIGroup returns the API group of the resource; empty for the core group.
func (p Problem) APIGroup() string {
	_, group, _ := strings.Cut(p.Resource, ".")
	group, _, _ = strings.Cut(group, "/")
	return group
}
