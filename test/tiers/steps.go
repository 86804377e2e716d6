//go:build integration

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"millwright/test/tiers/core"
)

// step is one run of go test or of another command.
type step struct {
	name             string   // name in the table if the step runs a command
	module           string   // folder of the step's module, relative to the root; empty: the root module
	packages         []string // package patterns for go test; if empty, the step runs command
	excludedPackages []string // packages that match the patterns, and that another step runs
	tags             string   // build tags of go test
	flags            []string // other flags of go test
	// the packages share one stack, which this program starts and stops; they run one after the other
	usesSharedStack bool
	command         []string
}

const integrationFolder = "test/integration/"

// sharedStackPackages are the packages whose tests can use the shared stack. Each of the other packages starts a stack
// with its own options.
var sharedStackPackages = []string{"chain", "life", "rollouts", "drain", "explain", "docs"}

// phasesOfTier returns the phases of a tier, which run one after the other. A phase has lanes. The lanes of a phase run
// at the same time because integration tests mostly wait. The steps of a lane run one after the other. Only make
// test-all tests the nested modules, because they have heavy dependencies, or need root, a container engine or a
// daemon.
func phasesOfTier(name string, nested []string) (phases [][][]step, err error) {
	switch name {
	case "test":
		return [][][]step{
			{
				{unitTestStep("", "-race", "-short"), unitTestStep("deploy/render")},
				{sharedStackStep(core.ListTestsByPackage())},
				{separateStacksStep(core.ListTestsByPackage())},
			},
		}, nil
	case "all":
		var modules []step
		for _, module := range nested {
			modules = append(modules, step{
				name: module, module: module, packages: []string{"./..."}, tags: "integration", flags: []string{"-timeout=20m"},
			})
		}
		// On a slow machine, the tests of all seeds need 60 minutes.
		allUnits := unitTestStep("", "-race", "-timeout=60m")
		// The unit tests of package seeds run together with its integration tests.
		allUnits.excludedPackages = []string{integrationFolder + "seeds"}
		helm := step{
			name:     "deploy/render",
			module:   "deploy/render",
			packages: []string{"./..."},
			tags:     "integration",
			flags:    []string{"-run=TestHelmInstallsUpgradesAndRollsBackTheChart"},
		}
		return [][][]step{
			{
				{allUnits, unitTestStep("deploy/render")},
				{sharedStackStep(nil)},
				{separateStacksStep(nil)},
			},
			{append(modules, helm)},
			{{makefileStep("test-cluster-api")}},
			{{makefileStep("lint-all"), makefileStep("mutate"), makefileStep("vulncheck")}},
		}, nil
	}
	return nil, fmt.Errorf("no tier %q: have test and all", name)
}

// unitTestStep returns the step that runs the unit tests of a module.
func unitTestStep(module string, flags ...string) step {
	return step{name: "unit tests " + module, module: module, packages: []string{"./..."}, flags: flags}
}

// makefileStep returns the step that runs a target of the Makefile.
func makefileStep(target string) step {
	return step{name: target, command: []string{"make", "--no-print-directory", target}}
}

// sharedStackStep returns the step that runs integration tests of the packages that share a stack. The step runs the
// tests of the list, or all tests if the list is nil.
func sharedStackStep(list map[string][]string) step {
	s := step{name: "shared stack", usesSharedStack: true, tags: "integration", flags: stackTestFlags(list)}
	for _, name := range sharedStackPackages {
		if _, listed := list[name]; listed || list == nil {
			s.packages = append(s.packages, "./"+integrationFolder+name)
		}
	}
	return s
}

// separateStacksStep returns the step that runs integration tests of all packages that do not share a stack. The step
// runs the tests of the list, or all tests if the list is nil.
func separateStacksStep(list map[string][]string) step {
	s := step{
		name:     "integration tests",
		packages: []string{"./" + integrationFolder + "..."},
		tags:     "integration",
		flags:    stackTestFlags(list),
	}
	if list != nil {
		s.packages = nil
		for _, name := range slices.Sorted(maps.Keys(list)) {
			s.packages = append(s.packages, "./"+integrationFolder+name)
		}
	}
	for _, name := range sharedStackPackages {
		s.excludedPackages = append(s.excludedPackages, integrationFolder+name)
	}
	return s
}

// stackTestFlags returns the flags of go test for tests on a stack. Test packages run one at a time. Up to 8 tests of
// the package run at the same time, because these tests mostly wait.
func stackTestFlags(list map[string][]string) []string {
	flags := []string{"-count=1", "-p=1", "-parallel=8", "-timeout=60m"}
	if list == nil {
		return flags
	}
	var names []string
	for _, tests := range list {
		names = append(names, tests...)
	}
	slices.Sort(names)
	return append(flags, "-run=^("+strings.Join(names, "|")+")$")
}
