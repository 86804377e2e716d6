// Command worker serves the queue provider-libvirt. Its flags are those of Millwright's worker.
package main

import (
	libvirt "millwright/examples/provider-libvirt"
	"millwright/worker/serve"
)

func main() { serve.Provider{Name: libvirt.Name, Cloud: libvirt.New()}.Main() }
