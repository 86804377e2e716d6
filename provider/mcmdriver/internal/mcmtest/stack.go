package mcmtest

import "github.com/spf13/pflag"

// IgnoreStackFlags makes a process accept and ignore the flags that the local stack passes to the worker of the virtual
// provider. As a result, another provider's worker can replace the worker of the virtual provider in the local stack.
func IgnoreStackFlags() {
	for _, name := range []string{"queues", "virtualcloud-address"} {
		pflag.String(name, "", "not used")
	}
}
