//go:build integration

package main

import "fmt"

// step is one call of go test, or of one other command.
type step struct {
	name     string   // in the table, if it is no package
	module   string   // its folder, seen from the root; empty: the root module
	packages []string // patterns of go test; empty: command is run
	but      []string // packages that the patterns match and that another step runs
	tags     string   // build tags of go test, separated by commas
	flags    []string // further flags of go test
	shared   bool     // the packages run one after the other on one stack, which this program starts and ends
	command  []string
}

// onSharedStack are the packages that run on the shared stack, because the same options serve all of them. Each of the others starts a stack
// with its own options.
var onSharedStack = []string{
	"test/integration/chain", "test/integration/docs", "test/integration/drain", "test/integration/explain", "test/integration/life",
	"test/integration/rollouts", "test/integration/sets",
}

// otherModules are the nested modules that only make test-all tests: they have heavy dependencies, or need root, an engine or a daemon.
var otherModules = []string{"devstack/mcm", "provider/incus", "provider/libvirt", "provider/mcmdriver"}

// tier returns the phases of a tier, one after the other. The lanes of a phase run at the same time, since an integration test mostly waits.
// The steps of a lane follow each other.
func tier(name string) (phases [][][]step, err error) {
	switch name {
	case "test":
		return [][][]step{
			{{units("", "-short"), units("deploy/render", "-short")}},
			{{integration("integration", true)}, {integration("integration", false)}},
		}, nil
	case "all":
		var modules []step
		for _, module := range otherModules {
			modules = append(modules, step{name: module, module: module, packages: []string{"./..."}, tags: "integration", flags: []string{"-race", "-timeout=20m"}})
		}
		return [][][]step{
			{{units("")}},
			{{integration("integration,full", true)}, {integration("integration,full", false)}},
			{modules},
			{{
				{name: "mutate", command: []string{"make", "--no-print-directory", "mutate"}},
				{name: "vulncheck", command: []string{"make", "--no-print-directory", "vulncheck"}},
			}},
		}, nil
	}
	return nil, fmt.Errorf("no tier %q: have test and all", name)
}

// units are the unit tests of a module.
func units(module string, flags ...string) step {
	return step{name: "unit tests " + module, module: module, packages: []string{"./..."}, flags: append(flags, "-race")}
}

// integration are the tests on the local stack: of the packages that share one, or of all others.
func integration(tags string, shared bool) step {
	s := step{name: "integration tests", packages: []string{"./test/integration/..."}, but: onSharedStack, tags: tags, flags: []string{"-count=1", "-p=1", "-parallel=8", "-timeout=40m"}}
	if shared {
		s.name, s.shared, s.packages, s.but = "the shared stack", true, nil, nil
		for _, p := range onSharedStack {
			s.packages = append(s.packages, "./"+p)
		}
	}
	return s
}
