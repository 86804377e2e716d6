// Package takeover decides what has to be done before Millwright takes a namespace over from machine-controller-manager
// (MCM), what Millwright will do there, and the steps of the way there and back. It does not decide about single
// objects: the facts contain what Millwright would decide about each of them.
package takeover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Weight is how much a finding matters.
type Weight string

// The weights, the heaviest first.
const (
	First Weight = "first" // has to be done before Millwright starts
	Note  Weight = "note"  // Millwright does this, or behaves like this, when it starts: nothing has to be done before
	OK    Weight = "ok"
)

// Finding is one thing that was found out.
type Finding struct {
	Weight Weight `json:"weight"`
	Object string `json:"object"`       // kind/name, or the part of the installation that the finding is about
	Says   string `json:"says"`         // one sentence
	Do     string `json:"do,omitempty"` // what to do; empty: nothing
}

// mostNames is how many objects one finding names. Source: a line of a terminal.
const mostNames = 5

// Decide returns what was found, the heaviest first.
func Decide(f Facts) []Finding {
	all := slices.Concat(
		f.installation(),
		f.others(),
		f.classes(),
		f.refused(),
		f.deployments(),
		f.sets(),
		f.ties(),
		f.machines(),
	)
	order := []Weight{First, Note, OK}
	slices.SortStableFunc(
		all,
		func(a, b Finding) int { return slices.Index(order, a.Weight) - slices.Index(order, b.Weight) },
	)
	return all
}

// Blockers returns the number of findings that have to be done first.
func Blockers(findings []Finding) (n int) {
	for _, f := range findings {
		if f.Weight == First {
			n++
		}
	}
	return n
}

// installation says whether MCM has stopped, and whether the API server knows Millwright's kinds.
func (f Facts) installation() (all []Finding) {
	const stop = "stop it, and wait until its calls to the cloud have ended"
	working := f.working()
	for _, w := range working {
		all = append(all, Finding{First, "machine-controller-manager", w, stop})
	}
	if len(working) == 0 {
		all = append(all, Finding{OK, "machine-controller-manager", "it is not at work in namespace " + f.Namespace, ""})
	}
	if len(f.MissingKinds) > 0 {
		all = append(all, Finding{
			First, "CRDs", "the API server has no " + phrase.List(f.MissingKinds, mostNames, ", "),
			"kubectl apply -k deploy/crds; machine-controller-manager works with these CRDs, too",
		})
	} else {
		all = append(all, Finding{OK, "CRDs", "the API server has all kinds of Millwright", ""})
	}
	for _, u := range f.Unreadable {
		all = append(all, Finding{First, "rights", u, "use a kubeconfig that may do this: what is not read is not checked"})
	}
	return all
}

// working returns the signs that MCM is at work, one sentence each; none: it is not.
func (f Facts) working() (signs []string) {
	for _, l := range f.Leases {
		if f.isFresh(l) {
			signs = append(
				signs,
				fmt.Sprintf("it is at work: %s renewed Lease %s at %s", l.Holder, l.Name, phrase.Clock(l.Renewed, f.Now)),
			)
		}
	}
	for _, c := range f.Controllers {
		if c.Replicas > 0 {
			signs = append(signs, fmt.Sprintf("Deployment %s has %s", c.Name, phrase.Count(c.Replicas, "replica")))
		}
	}
	return signs
}

func (f Facts) classes() (all []Finding) {
	well := 0
	for _, c := range f.Classes {
		object := "machineclass/" + c.Name
		switch {
		case !c.Exists:
			all = append(all, Finding{
				Note,
				object,
				fmt.Sprintf("it does not exist, and %s it: their instances can be neither created nor deleted", named(c.Machines)),
				"create the class, if its machines are wanted",
			})
		case c.Provider == "":
			all = append(all, Finding{
				First, object, "it has no provider: Millwright does not know which worker to ask for its instances",
				"set the field provider to the name of the cloud, such as aws: the worker of that name serves it",
			})
		case c.BadName != "":
			all = append(all, Finding{First, object, c.BadName, "change the field provider"})
		default:
			well++
		}
		for _, l := range c.Lenders {
			all = append(all, f.lender(object, l)...)
		}
	}
	return append(all, calm(well, "machineclasses", "class names its provider", "classes name their providers")...)
}

// lender says what a Secret of another namespace lacks; none if it lacks nothing.
func (f Facts) lender(object string, l Lender) []Finding {
	const annotation = vocabulary.AnnotationAllowedClassNamespaces
	secret := "it uses Secret " + l.Namespace + "/" + l.Name + " of another namespace, which "
	refused := "instances of its machines can be neither created nor deleted"
	flag := ", or start the workers of providers with --allow-secrets-without-consent"
	switch {
	case l.Unread != "":
		says := fmt.Sprintf("%scannot be read: %s; without the annotation %s, %s", secret, l.Unread, annotation, refused)
		do := fmt.Sprintf("let its owner add %s to the annotation %s", f.Namespace, annotation)
		return []Finding{{Note, object, says, do + flag}}
	case !l.Allows:
		value := strings.Join(phrase.Parts(l.Allowed, f.Namespace), ",")
		do := fmt.Sprintf(
			"kubectl annotate secret --namespace %s %s --overwrite '%s=%s'",
			l.Namespace,
			l.Name,
			annotation,
			value,
		)
		return []Finding{{First, object, secret + "does not allow that: " + refused, do + flag}}
	default:
		return nil
	}
}

func named(machines int) string {
	return phrase.Count(machines, "machine") + phrase.OneOf(machines, " names", " name")
}

// calm returns the finding about the n objects of a kind that need no other finding; none if n is 0.
func calm(n int, object, one, several string) []Finding {
	if n == 0 {
		return nil
	}
	return []Finding{{OK, object, fmt.Sprint(n, " ", phrase.OneOf(n, one, several)), ""}}
}

func (f Facts) refused() (all []Finding) {
	for _, r := range f.Refused {
		all = append(all, Finding{
			First, r.Object, "the API server takes no machine of its template: " + r.Why,
			"correct this field of the template",
		})
	}
	return all
}

func (f Facts) deployments() (all []Finding) {
	rest := 0
	for _, d := range f.Deployments {
		object, before := "machinedeployment/"+d.Name, len(all)
		if d.Invalid != "" {
			all = append(
				all,
				Finding{First, object, d.Invalid, "correct its spec: Millwright changes nothing of an invalid deployment"},
			)
		}
		switch {
		case d.NewSet:
			all = append(
				all,
				Finding{Note, object, "none of its sets has its template: a rollout begins; " + d.Why, pause(d.Name, f.Namespace)},
			)
		case d.Rolling:
			all = append(
				all,
				Finding{Note, object, "a rollout is in progress, and goes on: " + d.Why, pause(d.Name, f.Namespace)},
			)
		}
		all = append(all, f.behaviour(object, d.MinReady, d.Frozen)...)
		if len(all) == before {
			rest++
		}
	}
	return append(
		all,
		calm(
			rest,
			"machinedeployments",
			"deployment keeps its sets and revisions",
			"deployments keep their sets and revisions",
		)...)
}

// pause says how to keep a rollout from replacing machines.
func pause(name, namespace string) string {
	return fmt.Sprintf("to replace no machine now: millwright rollout pause %s/%s", namespace, name)
}

// behaviour says where Millwright without --as-mcm treats an object differently from MCM.
func (f Facts) behaviour(object string, minReady time.Duration, frozen bool) (all []Finding) {
	if f.AsMCM {
		return nil
	}
	if minReady > 0 {
		all = append(all, Finding{
			Note,
			object,
			fmt.Sprintf(
				"minReadySeconds is obeyed: a machine is available %s after it is ready, and not at once",
				phrase.Span(minReady),
			),
			"start worker and bridge with --as-mcm, or set minReadySeconds to 0",
		})
	}
	if frozen {
		all = append(all, Finding{
			Note, object, "it is frozen, and stays so: it creates no machines",
			"annotate it with safety.machine.sapcloud.io/unfreeze, or start worker and bridge with --as-mcm",
		})
	}
	return all
}

func (f Facts) sets() (all []Finding) {
	rest := 0
	for _, s := range f.Sets {
		object, before := "machineset/"+s.Name, len(all)
		if s.Invalid != "" {
			all = append(
				all,
				Finding{First, object, s.Invalid, "correct its spec: Millwright changes nothing of an invalid set"},
			)
		}
		work := phrase.Parts(
			phrase.If(s.Creates > 0, "%s to create", phrase.Count(s.Creates, "machine")),
			phrase.If(s.Deletes > 0, "%s to delete", phrase.Count(s.Deletes, "machine")),
			phrase.If(s.Relabels > 0, "%s to relabel", phrase.Count(s.Relabels, "machine")),
		)
		if len(work) > 0 {
			all = append(
				all,
				Finding{
					Note,
					object,
					"it is not of the wanted size or template: " + phrase.List(work, mostNames, ", ") + "; " + s.Why,
					"",
				},
			)
		}
		if s.Alone {
			all = append(all, f.behaviour(object, s.MinReady, s.Frozen)...)
		} else {
			all = append(all, f.behaviour(object, 0, s.Frozen)...)
		}
		if len(all) == before {
			rest++
		}
	}
	return append(all, calm(rest, "machinesets", "set has the wanted size", "sets have the wanted sizes")...)
}
