package takeover

import (
	"fmt"
	"slices"
	"strings"

	"millwright/decide/phrase"
)

// fleetLabel and fleetLabelValue are the label, in the plan of a takeover in waves, of the namespaces that Millwright
// acts on.
const (
	fleetLabel      = "millwright"
	fleetLabelValue = "yes"
)

// mcmFindingObject is the object of the findings about MCM's processes.
const mcmFindingObject = "machine-controller-manager"

// PlanWaves returns the steps of the takeover of many namespaces, at most perWave of them at a time (0: all at once),
// and the steps of the return of one wave. Namespaces with other blockers than MCM itself are in no wave; the second
// step names them.
func PlanWaves(all []Facts, perWave int) (there, back []Step) {
	var ready []Facts
	var todo []string
	for _, f := range all {
		others := slices.DeleteFunc(Blockers(Decide(f)), func(x Finding) bool { return x.Object == mcmFindingObject })
		if len(others) == 0 {
			ready = append(ready, f)
			continue
		}
		todo = append(todo, fmt.Sprintf(
			"%s: %s: %s%s", f.Namespace, others[0].Object, others[0].Message,
			phrase.TextIf(len(others) > 1, "; and %s", phrase.CountText(len(others)-1, "more finding")),
		))
	}
	there = []Step{{
		Title: "Install Millwright for the namespaces with the label " + fleetLabel + "=" + fleetLabelValue,
		Sentences: []string{
			"No namespace has the label yet, so Millwright acts on nothing.",
			"Machine-controller-manager works with Millwright's CRDs, too.",
		},
		Commands: []string{
			"kubectl apply -k deploy/crds",
			"helm install millwright deploy/chart --namespace millwright --create-namespace --values VALUES --set crds.install=false,namespaceSelector=" + fleetLabel + `\=` + fleetLabelValue,
			"millwright doctor --cluster-name NAME",
		},
	}}
	if len(todo) > 0 {
		there = append(there, Step{
			Title: fmt.Sprintf(
				"Correct what is in the way in %s, which no wave contains",
				phrase.CountText(len(todo), "namespace"),
			),
			Sentences: todo,
		})
	}
	if perWave <= 0 {
		perWave = max(len(ready), 1)
	}
	number := 0
	for wave := range slices.Chunk(ready, perWave) {
		number++
		there = append(there, waveStep(number, wave))
	}
	return there, waveReturnSteps()
}

// waveStep returns the step of one wave.
func waveStep(number int, wave []Facts) Step {
	s := Step{Sentences: []string{
		"Whoever scales machine-controller-manager up again, such as Gardener's gardenlet, must be told not to.",
		"With Gardener's cluster autoscaler, delete the Deployments afterwards, and add the namespaces to the value autoscalerGuard.namespaces.",
	}}
	var names []string
	machines := 0
	for _, f := range wave {
		names = append(names, f.Namespace)
		machines += len(f.Machines)
		s.Commands = append(
			s.Commands, "kubectl scale deployment machine-controller-manager --namespace "+f.Namespace+" --replicas=0",
		)
	}
	s.Title = fmt.Sprintf(
		"Wave %d: %s with %s", number, phrase.CountText(len(wave), "namespace"), phrase.CountText(machines, "machine"),
	)
	s.Commands = append(
		s.Commands,
		fmt.Sprintf(
			"millwright migrate check --all-namespaces --namespaces %s%s   # until its exit code is 0",
			strings.Join(names, ","), phrase.TextIf(wave[0].RunsAsMCM, " --as-mcm"),
		),
		fmt.Sprintf("kubectl label namespace %s %s=%s", strings.Join(names, " "), fleetLabel, fleetLabelValue),
		"millwright fleet list",
		"millwright top --all-namespaces --blocked",
	)
	return s
}

// waveReturnSteps returns the steps of the return of a namespace, or of all namespaces of a wave.
func waveReturnSteps() []Step {
	return []Step{{
		Title: "For each namespace of the wave",
		Sentences: []string{
			"A drain or a creation that is in progress is continued by machine-controller-manager.",
			"It does not read RolloutPolicies, nor requests of millwright: a rollout that waits for approval goes on, and a held deletion too.",
		},
		Commands: []string{
			"kubectl label namespace NAMESPACE " + fleetLabel + "-",
			"kubectl scale deployment machine-controller-manager --namespace NAMESPACE --replicas=1",
		},
	}}
}
