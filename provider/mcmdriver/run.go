package mcmdriver

import (
	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"

	"millwright/worker/serve"
)

// Run is the main function of a worker for a driver of MCM. Parameter name is the value of provider in the
// MachineClasses, such as "AWS"; the task queue contains this name in lower case: provider-aws. The process has the
// flags of Millwright's worker, and runs until SIGINT or SIGTERM. The exit code is 1 after an error, and 2 for invalid
// arguments.
func Run(d mcm.Driver, name string, options ...Option) {
	newProvider(d, name, options...).Main()
}

func newProvider(d mcm.Driver, name string, options ...Option) serve.Provider {
	return serve.Provider{Name: name, Cloud: New(d, options...), ReadsNodeTemplates: true}
}
