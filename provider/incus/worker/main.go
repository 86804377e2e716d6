// Command worker serves the task queue provider-incus. Command worker has the flags of Millwright's worker.
package main

import (
	"millwright/provider/incus"
	"millwright/worker/serve"
)

func main() { serve.Provider{Name: incus.Name, Cloud: incus.New()}.Main() }
