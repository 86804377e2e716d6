// Command worker serves the task queue provider-libvirt. Command worker has the flags of Millwright's worker.
package main

import (
	libvirt "millwright/examples/provider-libvirt"
	"millwright/worker/serve"
)

func main() { serve.Provider{Name: libvirt.Name, Cloud: libvirt.New()}.Main() }
