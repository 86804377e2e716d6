package mcmdriver

import (
	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"

	"millwright/worker/serve"
)

// Run is the main function of a process that serves a driver. name is the value of provider in the MachineClasses, such
// as "AWS"; the process serves the queue of this name in lower case letters. It has the flags of Millwright's worker,
// and serves until SIGINT or SIGTERM. It exits with code 1 after an error, and with code 2 if its arguments are wrong.
func Run(d mcm.Driver, name string, options ...Option) {
	process(d, name, options...).Main()
}

func process(d mcm.Driver, name string, options ...Option) serve.Provider {
	return serve.Provider{Name: name, Cloud: New(d, options...), NodeTemplates: true}
}
