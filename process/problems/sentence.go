package problems

import (
	"strings"

	"millwright/decide/phrase"
)

// Text says what a process may not do or cannot do, with the server's words. The parameter process is worker or bridge.
func (p Problem) Text(process string) string {
	of := phrase.TextIf(p.System == Target, " of the target cluster")
	switch {
	case p.System == Temporal:
		return "Temporal refuses " + p.Verb + " to the " + process + ": " + p.Words
	case p.Kind == Unanswered:
		return "the API server" + of + " does not answer the " + process + ": " + p.Words
	case p.Kind == Refused:
		return "the " + process + " may not " + p.Verb + " " + p.Resource + of + ": " + p.Words
	default:
		return "the " + process + " cannot " + p.Verb + " " + p.Resource + of + ": " + p.Words
	}
}

// Remedy says what a person can do about the problem.
func (p Problem) Remedy(process string) string {
	at := phrase.TextIf(p.System == Target, " (in the target cluster)")
	_, group, _ := strings.Cut(p.Resource, ".")
	group, _, _ = strings.Cut(group, "/")
	switch {
	case p.System == Temporal && p.Kind == Refused:
		return "check the Temporal namespace of the " + process + " and its API key or certificate: millwright doctor"
	case p.System == Temporal:
		return "raise the limit of Temporal's namespace, or run fewer processes"
	case p.Kind == Unanswered:
		return "check the kubeconfig of the " + process + ", and the network to the API server" + at
	case p.Kind == Refused:
		return "is its role bound? kubectl get clusterrolebinding millwright-" + process + at
	case p.Kind == Unserved:
		return "is the CRD installed? kubectl api-resources --api-group=" + group + at
	default:
		return "look at the API server and its webhooks: kubectl get --raw '/readyz?verbose'" + at
	}
}
