// Command worker serves the queue provider-incus. Its flags are those of Millwright's worker.
package main

import (
	"millwright/provider/incus"
	"millwright/worker/serve"
)

func main() { serve.Provider{Name: incus.Name, Cloud: incus.New()}.Main() }
