package mcmtest

import "github.com/spf13/pflag"

// IgnoreStackFlags lets a process that is the provider's worker of the local stack accept the flags that the stack has
// for the virtual provider.
func IgnoreStackFlags() {
	for _, name := range []string{"queues", "virtualcloud-address"} {
		pflag.String(name, "", "not used")
	}
}
