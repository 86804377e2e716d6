package mcmdriver

import (
	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"

	"millwright/worker/serve"
)

// Run is the main function of a process that serves a driver. name is the value of provider in the MachineClasses, such
// as "AWS"; the process serves the queue of this name in lower case letters. It reads the flags, which are those of
// Millwright's worker, serves until SIGINT or SIGTERM, and exits with code 1 after an error, or with code 2 if it was
// called in a wrong way.
func Run(d mcm.Driver, name string, options ...Option) {
	process(d, name, options...).Main()
}

func process(d mcm.Driver, name string, options ...Option) serve.Provider {
	return serve.Provider{Name: name, Cloud: New(d, options...), NodeTemplates: true}
}
