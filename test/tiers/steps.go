//go:build integration

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"millwright/test/tiers/core"
)

// step is one call of go test, or of one other command.
type step struct {
	name            string   // name in the table, if it is not a package
	module          string   // folder of its module, relative to the root; empty: the root module
	packages        []string // patterns of go test; empty: command is run
	except          []string // packages that match the patterns, and that another step runs
	tags            string   // build tags of go test
	flags           []string // other flags of go test
	usesSharedStack bool     // the packages run one after the other on one stack, which this program starts and ends
	command         []string
}

const integration = "test/integration/"

// onSharedStack are the packages whose tests can use the shared stack. Each other package starts a stack with its own
// options.
var onSharedStack = []string{"chain", "life", "rollouts", "drain", "explain", "docs"}

// phasesOfTier returns the phases of a tier, which run one after the other. A phase has lanes, which run at the same
// time, because integration tests mostly wait. The steps of a lane run one after the other. Only make test-all tests
// the nested modules: they have heavy dependencies, or need root, an engine or a daemon.
func phasesOfTier(name string, nested []string) (phases [][][]step, err error) {
	switch name {
	case "test":
		return [][][]step{
			{
				{unitTests("", "-race", "-short"), unitTests("deploy/render")},
				{testsOnSharedStack(core.Tests())},
				{testsOnOwnStacks(core.Tests())},
			},
		}, nil
	case "all":
		var modules []step
		for _, module := range nested {
			modules = append(modules, step{
				name: module, module: module, packages: []string{"./..."}, tags: "integration", flags: []string{"-timeout=20m"},
			})
		}
		allUnits := unitTests("", "-race", "-timeout=60m") // the tests of all seeds need this on a slow machine
		allUnits.except = []string{integration + "seeds"}  // the unit tests of seeds run with its tests on a stack
		helm := step{
			name:     "deploy/render",
			module:   "deploy/render",
			packages: []string{"./..."},
			tags:     "integration",
			flags:    []string{"-run=TestHelm"},
		}
		return [][][]step{
			{
				{allUnits, unitTests("deploy/render")},
				{testsOnSharedStack(nil)},
				{testsOnOwnStacks(nil)},
			},
			{append(modules, helm)},
			{{makeTarget("lint-all"), makeTarget("mutate"), makeTarget("vulncheck")}},
		}, nil
	}
	return nil, fmt.Errorf("no tier %q: have test and all", name)
}

// unitTests returns the step that runs the unit tests of a module.
func unitTests(module string, flags ...string) step {
	return step{name: "unit tests " + module, module: module, packages: []string{"./..."}, flags: flags}
}

// makeTarget returns the step that makes a target of the Makefile.
func makeTarget(target string) step {
	return step{name: target, command: []string{"make", "--no-print-directory", target}}
}

// testsOnSharedStack returns the step that runs integration tests of the packages that share a stack: the tests of the
// list, or all tests if the list is nil.
func testsOnSharedStack(list map[string][]string) step {
	s := step{name: "shared stack", usesSharedStack: true, tags: "integration", flags: stackFlags(list)}
	for _, name := range onSharedStack {
		if _, listed := list[name]; listed || list == nil {
			s.packages = append(s.packages, "./"+integration+name)
		}
	}
	return s
}

// testsOnOwnStacks returns the step that runs integration tests of all other packages: the tests of the list, or all if
// nil.
func testsOnOwnStacks(list map[string][]string) step {
	s := step{
		name:     "integration tests",
		packages: []string{"./" + integration + "..."},
		tags:     "integration",
		flags:    stackFlags(list),
	}
	if list != nil {
		s.packages = nil
		for _, name := range slices.Sorted(maps.Keys(list)) {
			s.packages = append(s.packages, "./"+integration+name)
		}
	}
	for _, name := range onSharedStack {
		s.except = append(s.except, integration+name)
	}
	return s
}

// stackFlags returns the flags of go test for tests on a stack. One package runs at a time, with up to 8 tests at the
// same time, because these tests mostly wait.
func stackFlags(list map[string][]string) []string {
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
