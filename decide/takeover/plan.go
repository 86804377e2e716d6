package takeover

import (
	"fmt"
	"slices"
	"strings"

	"millwright/decide/attention"
	"millwright/decide/phrase"
)

// Step is one step of a takeover, or of the return to MCM.
type Step struct {
	Title     string   `json:"title"`
	Sentences []string `json:"says,omitempty"`     // sentences about the step
	Commands  []string `json:"commands,omitempty"` // commands to execute
}

// PlanSteps returns the steps of the takeover of a namespace, and the steps of the return to MCM, each in order.
func PlanSteps(f Facts) (there, back []Step) {
	findings := Decide(f)
	there = slices.Concat(
		f.preparationSteps(findings),
		f.stopSteps(),
		f.startSteps(),
		f.objectSteps(findings),
		f.checkSteps(),
		f.autoscalerSteps(),
	)
	return there, f.returnSteps()
}

// preparationSteps returns the steps that are possible while MCM is running.
func (f Facts) preparationSteps(findings []Finding) []Step {
	var todo []string
	for _, x := range findings {
		if x.Weight == WeightBlocker && x.Object != mcmFindingObject && x.Object != "CRDs" {
			todo = append(todo, fmt.Sprintf("%s: %s: %s", x.Object, x.Message, x.Advice))
		}
	}
	steps := []Step{
		{
			Title:     "Install Millwright, without pods",
			Sentences: []string{"Machine-controller-manager works with Millwright's CRDs, too: nothing else changes yet."},
			Commands: []string{
				"kubectl apply -k deploy/crds",
				"helm install millwright deploy/chart --namespace millwright --create-namespace --set crds.install=false,worker.replicas=0,bridge.replicas=0 --values VALUES",
			},
		},
	}
	if len(todo) > 0 {
		steps = append(steps, Step{Title: "Correct what is in the way", Sentences: todo})
	}
	return steps
}

// stopSteps returns the step that stops MCM, with notes about calls in progress.
func (f Facts) stopSteps() []Step {
	says := []string{"Whoever scales it up again, such as Gardener's gardenlet, must be told not to."}
	if creating := f.machineNames(func(m Machine) bool { return m.Need == attention.NeedInstance }); len(creating) > 0 {
		says = append(
			says,
			"Wait until its calls to the cloud have ended: Millwright does not see a call that is still in progress. It was creating "+joinNames(
				creating,
			)+".",
		)
	}
	controllers := []string{"machine-controller-manager"}
	if len(f.MCMControllers) > 0 {
		controllers = nil
		for _, c := range f.MCMControllers {
			controllers = append(controllers, c.Name)
		}
	}
	return []Step{{
		Title:     "Stop machine-controller-manager",
		Sentences: says,
		Commands: []string{
			fmt.Sprintf("kubectl scale deployment %s --namespace %s --replicas=0", strings.Join(controllers, " "), f.Namespace),
			"millwright migrate check --namespace " + f.Namespace + phrase.TextIf(
				f.RunsAsMCM,
				" --as-mcm",
			) + "   # until its exit code is 0",
		},
	}}
}

// startSteps returns the step that starts Millwright.
func (f Facts) startSteps() []Step {
	says := []string{
		"The value clusterName is a tag of the instances, by which providers find them: it must be the one under which they were tagged. Drivers of machine-controller-manager have their cluster tags in the class.",
	}
	var providers []string
	named := map[string]bool{"": true}
	for _, c := range f.Classes {
		if c.Exists && !named[c.Provider] {
			named[c.Provider] = true
			providers = append(providers, c.Provider)
		}
	}
	if len(providers) > 0 {
		says = append(
			says,
			fmt.Sprintf(
				"Workers are needed for %s %s.",
				phrase.SingularOrPlural(len(providers), "provider", "providers"),
				joinNames(providers),
			),
		)
	}
	if f.RunsAsMCM {
		says = append(says, "Add --as-mcm to worker.args and to bridge.args of your values.")
	}
	return []Step{
		{
			Title:     "Start Millwright",
			Sentences: says,
			Commands: []string{
				"helm upgrade millwright deploy/chart --namespace millwright --values VALUES --set crds.install=false",
				"millwright doctor --cluster-name NAME",
			},
		},
	}
}

// objectSteps returns the step that lists what Millwright does with the objects after its start.
func (f Facts) objectSteps(findings []Finding) []Step {
	var says []string
	for _, x := range findings {
		if x.Weight == WeightNote ||
			x.Weight == WeightOK && strings.HasPrefix(x.Object, "machine") && x.Object != mcmFindingObject {
			says = append(says, fmt.Sprintf("%s: %s.", x.Object, x.Message))
		}
	}
	return []Step{{Title: "What then happens by itself", Sentences: append(
		says,
		"Bootstrap tokens of machine-controller-manager stay valid for the nodes that boot with them, and end by themselves at their time.",
	)}}
}

// checkSteps returns the step in which a person checks the result.
func (f Facts) checkSteps() []Step {
	return []Step{
		{
			Title: "Look",
			Sentences: []string{
				"Each machine has the same provider ID and the same node as before, and the column WAITS-FOR is empty, except for the machines above.",
			},
			Commands: []string{"kubectl get machinedeployments,machinesets,machines --namespace " + f.Namespace + " -o wide"},
		},
	}
}

// autoscalerSteps returns the step that clusters with Gardener's autoscaler need.
func (f Facts) autoscalerSteps() []Step {
	return []Step{{
		Title: "With Gardener's cluster autoscaler: answer it",
		Sentences: []string{
			"It scales only if the namespace has a Deployment machine-controller-manager with available replicas. Until then it scales nothing.",
			"Keep the manifest of the old Deployment for the way back: it has the name of the new one.",
		},
		Commands: []string{
			"kubectl delete deployment machine-controller-manager --namespace " + f.Namespace,
			"helm upgrade millwright deploy/chart --namespace millwright --values VALUES --set crds.install=false,autoscalerGuard.namespaces={" + f.Namespace + "}",
		},
	}}
}

// returnSteps returns the steps of the return to MCM.
func (f Facts) returnSteps() []Step {
	return []Step{
		{
			Title:     "Stop Millwright",
			Sentences: []string{"A drain or a creation that is in progress is continued by machine-controller-manager."},
			Commands: []string{
				"kubectl scale deployment --namespace millwright --selector app.kubernetes.io/part-of=millwright --replicas=0",
			},
		},
		{
			Title: "Start machine-controller-manager",
			Sentences: []string{
				"Leave Millwright's CRDs: its own would drop fields of the status.",
				"It does not read RolloutPolicies, nor requests of millwright: a rollout that waits for approval goes on, and a held deletion too.",
				"It deletes instances whose name no Machine has.",
			},
			Commands: []string{
				"kubectl scale deployment machine-controller-manager --namespace " + f.Namespace + " --replicas=1",
			},
		},
	}
}

// machineNames returns the names of the machines for which fits returns true.
func (f Facts) machineNames(fits func(Machine) bool) (names []string) {
	for _, m := range f.Machines {
		if fits(m) {
			names = append(names, m.Name)
		}
	}
	return names
}

func joinNames(names []string) string { return phrase.JoinNames(names, maxNamesPerFinding, ", ") }
