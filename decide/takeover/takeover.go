// Package takeover plans how Millwright takes over a namespace from machine-controller-manager (MCM). The plan contains
// the preparations, the changes that Millwright will make, and the steps of the takeover and of the return to MCM. The
// package makes no decisions about single objects. The facts contain Millwright's decision about each object.
package takeover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// FindingWeight is the importance of a finding.
type FindingWeight string

// The weights of findings, with the most important weight first.
const (
	WeightBlocker FindingWeight = "first" // must be resolved before Millwright starts
	// an action or a behaviour of Millwright after its start that needs no preparation
	WeightNote FindingWeight = "note"
	WeightOK   FindingWeight = "ok"
)

// Finding is one result of the check.
type Finding struct {
	Weight  FindingWeight `json:"weight"`
	Object  string        `json:"object"`       // kind/name, or the part of the installation with the finding
	Message string        `json:"says"`         // one sentence
	Advice  string        `json:"do,omitempty"` // what to do; empty: nothing
}

// maxNamesPerFinding is the largest number of objects that one finding names. Source of maxNamesPerFinding: the width
// of a terminal.
const maxNamesPerFinding = 5

// Decide returns the findings, with the most important findings first.
func Decide(f Facts) []Finding {
	all := slices.Concat(
		f.installationFindings(),
		f.namespaceFindings(),
		f.classFindings(),
		f.rejectedTemplateFindings(),
		f.deploymentFindings(),
		f.setFindings(),
		f.ownershipFindings(),
		f.machineFindings(),
	)
	order := []FindingWeight{WeightBlocker, WeightNote, WeightOK}
	slices.SortStableFunc(
		all,
		func(a, b Finding) int { return slices.Index(order, a.Weight) - slices.Index(order, b.Weight) },
	)
	return all
}

// Blockers returns the findings that must be resolved before Millwright starts.
func Blockers(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Weight != WeightBlocker })
}

// installationFindings returns findings about MCM's processes and about Millwright's kinds in the API server.
func (f Facts) installationFindings() (all []Finding) {
	const stop = "stop it, and wait until its calls to the cloud have ended"
	working := f.signsOfRunningMCM()
	for _, w := range working {
		all = append(all, Finding{WeightBlocker, mcmFindingObject, w, stop})
	}
	if len(working) == 0 {
		all = append(all, Finding{WeightOK, mcmFindingObject, "it is not at work in namespace " + f.Namespace, ""})
	}
	if len(f.MissingKinds) > 0 {
		all = append(all, Finding{
			WeightBlocker, "CRDs", "the API server has no " + phrase.JoinNames(f.MissingKinds, maxNamesPerFinding, ", "),
			"kubectl apply -k deploy/crds; machine-controller-manager works with these CRDs, too",
		})
	} else {
		all = append(all, Finding{WeightOK, "CRDs", "the API server has all kinds of Millwright", ""})
	}
	for _, u := range f.UnreadableObjects {
		all = append(
			all,
			Finding{WeightBlocker, "rights", u, "use a kubeconfig that may do this: what is not read is not checked"},
		)
	}
	return all
}

// signsOfRunningMCM returns one sentence for each sign that MCM is running.
func (f Facts) signsOfRunningMCM() (signs []string) {
	for _, l := range f.Leases {
		if f.isHeldLease(l) {
			signs = append(
				signs,
				fmt.Sprintf("it is at work: %s renewed Lease %s at %s", l.Holder, l.Name, phrase.ClockText(l.RenewedAt, f.Now)),
			)
		}
	}
	for _, c := range f.MCMControllers {
		if c.Replicas > 0 {
			signs = append(signs, fmt.Sprintf("Deployment %s has %s", c.Name, phrase.CountText(c.Replicas, "replica")))
		}
	}
	return signs
}

func (f Facts) classFindings() (all []Finding) {
	well := 0
	for _, c := range f.Classes {
		object := "machineclass/" + c.Name
		switch {
		case !c.Exists:
			all = append(all, Finding{
				WeightNote,
				object,
				fmt.Sprintf(
					"it does not exist, and %s it: their instances can be neither created nor deleted",
					referencingMachinesClause(c.MachineCount),
				),
				"create the class, if its machines are wanted",
			})
		case c.Provider == "":
			all = append(all, Finding{
				WeightBlocker, object, "it has no provider: Millwright does not know which worker to ask for its instances",
				"set the field provider to the name of the cloud, such as aws: the worker of that name serves it",
			})
		case c.InvalidProviderReason != "":
			all = append(all, Finding{WeightBlocker, object, c.InvalidProviderReason, "change the field provider"})
		default:
			well++
		}
		for _, l := range c.CrossNamespaceSecrets {
			all = append(all, f.secretFindings(object, l)...)
		}
	}
	return append(all, okFindings(well, "machineclasses", "class names its provider", "classes name their providers")...)
}

// secretFindings returns a finding if a class uses a Secret of another namespace that does not permit the use.
func (f Facts) secretFindings(object string, l CrossNamespaceSecret) []Finding {
	const annotation = vocabulary.AnnotationAllowedClassNamespaces
	secret := "it uses Secret " + l.Namespace + "/" + l.Name + " of another namespace, which "
	refused := "instances of its machines can be neither created nor deleted"
	flag := ", or start the workers of providers with --allow-secrets-without-consent"
	switch {
	case l.ReadError != "":
		says := fmt.Sprintf("%scannot be read: %s; without the annotation %s, %s", secret, l.ReadError, annotation, refused)
		do := fmt.Sprintf("let its owner add %s to the annotation %s", f.Namespace, annotation)
		return []Finding{{WeightNote, object, says, do + flag}}
	case !l.AllowsUse:
		value := strings.Join(phrase.NonEmptyTexts(l.AllowedNamespaces, f.Namespace), ",")
		do := fmt.Sprintf(
			"kubectl annotate secret --namespace %s %s --overwrite '%s=%s'",
			l.Namespace,
			l.Name,
			annotation,
			value,
		)
		return []Finding{{WeightBlocker, object, secret + "does not allow that: " + refused, do + flag}}
	default:
		return nil
	}
}

func referencingMachinesClause(machines int) string {
	return phrase.CountText(machines, "machine") + phrase.SingularOrPlural(machines, " names", " name")
}

// okFindings returns one finding with the number n of objects that have no other finding, or nothing if n is 0.
func okFindings(n int, object, one, several string) []Finding {
	if n == 0 {
		return nil
	}
	return []Finding{{WeightOK, object, fmt.Sprint(n, " ", phrase.SingularOrPlural(n, one, several)), ""}}
}

func (f Facts) rejectedTemplateFindings() (all []Finding) {
	for _, r := range f.RejectedTemplates {
		all = append(all, Finding{
			WeightBlocker, r.Object, "the API server takes no machine of its template: " + r.Reason,
			"correct this field of the template",
		})
	}
	return all
}

func (f Facts) deploymentFindings() (all []Finding) {
	rest := 0
	for _, d := range f.Deployments {
		object, before := "machinedeployment/"+d.Name, len(all)
		if d.InvalidReason != "" {
			all = append(
				all,
				Finding{
					WeightBlocker,
					object,
					d.InvalidReason,
					"correct its spec: Millwright changes nothing of an invalid deployment",
				},
			)
		}
		switch {
		case d.NeedsNewSet:
			all = append(
				all,
				Finding{
					WeightNote,
					object,
					"none of its sets has its template: a rollout begins; " + d.NextAction,
					pauseCommand(d.Name, f.Namespace),
				},
			)
		case d.Rolling:
			all = append(
				all,
				Finding{
					WeightNote,
					object,
					"a rollout is in progress, and goes on: " + d.NextAction,
					pauseCommand(d.Name, f.Namespace),
				},
			)
		}
		all = append(all, f.behaviourFindings(object, d.MinReadyDuration, d.Frozen)...)
		if len(all) == before {
			rest++
		}
	}
	return append(
		all,
		okFindings(
			rest,
			"machinedeployments",
			"deployment keeps its sets and revisions",
			"deployments keep their sets and revisions",
		)...)
}

// pauseCommand returns the command that pauses a rollout, so that no machines are replaced.
func pauseCommand(name, namespace string) string {
	return fmt.Sprintf("to replace no machine now: millwright rollout pause %s/%s", namespace, name)
}

// behaviourFindings returns the differences between MCM and Millwright without --as-mcm for an object.
func (f Facts) behaviourFindings(object string, minReady time.Duration, frozen bool) (all []Finding) {
	if f.RunsAsMCM {
		return nil
	}
	if minReady > 0 {
		all = append(all, Finding{
			WeightNote,
			object,
			fmt.Sprintf(
				"minReadySeconds is obeyed: a machine is available %s after it is ready, and not at once",
				phrase.AgeText(minReady),
			),
			"start worker and bridge with --as-mcm, or set minReadySeconds to 0",
		})
	}
	if frozen {
		all = append(all, Finding{
			WeightNote, object, "it is frozen, and stays so: it creates no machines",
			"annotate it with safety.machine.sapcloud.io/unfreeze, or start worker and bridge with --as-mcm",
		})
	}
	return all
}

func (f Facts) setFindings() (all []Finding) {
	rest := 0
	for _, s := range f.Sets {
		object, before := "machineset/"+s.Name, len(all)
		if s.InvalidReason != "" {
			all = append(
				all,
				Finding{WeightBlocker, object, s.InvalidReason, "correct its spec: Millwright changes nothing of an invalid set"},
			)
		}
		work := phrase.NonEmptyTexts(
			phrase.TextIf(s.CreationCount > 0, "%s to create", phrase.CountText(s.CreationCount, "machine")),
			phrase.TextIf(s.DeletionCount > 0, "%s to delete", phrase.CountText(s.DeletionCount, "machine")),
			phrase.TextIf(s.MetadataChangeCount > 0, "%s to relabel", phrase.CountText(s.MetadataChangeCount, "machine")),
		)
		if len(work) > 0 {
			all = append(
				all,
				Finding{
					WeightNote,
					object,
					"it is not of the wanted size or template: " + phrase.JoinNames(
						work,
						maxNamesPerFinding,
						", ",
					) + "; " + s.NextAction,
					"",
				},
			)
		}
		if s.Standalone {
			all = append(all, f.behaviourFindings(object, s.MinReadyDuration, s.Frozen)...)
		} else {
			all = append(all, f.behaviourFindings(object, 0, s.Frozen)...)
		}
		if len(all) == before {
			rest++
		}
	}
	return append(all, okFindings(rest, "machinesets", "set has the wanted size", "sets have the wanted sizes")...)
}
